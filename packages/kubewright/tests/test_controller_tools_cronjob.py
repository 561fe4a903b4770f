"""controller-tools' own test types, written with kubewright: the CRD is equal field by field.

Its golden file is in the corpora; DIFFERENCES has every key in which ours is not equal, with the
reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Struct, field

from kubewright import (
    Doc,
    EmbeddedResource,
    Format,
    Int32,
    Int64,
    IntOrString,
    ListType,
    MapType,
    Object,
    PreserveUnknownFields,
    Resource,
    SchemaOverride,
    Spec,
    ValidationRule,
    kind,
)
from kubewright.api.batch_v1 import JobTemplateSpec
from kubewright.api.core_v1 import ObjectReference
from kubewright.crd import build_crds
from kubewright.yaml_text import parse_documents

from .support.corpora import find_corpus

# By a pattern of the path in the CRD.
DIFFERENCES = {
    r".*\.description": "The descriptions are sentences of controller-tools.",
    r"metadata\.annotations": "They belong to the project: kustomize adds them, not the types.",
    r"v1\.spec\.required": "A field with a default is not required: the API server fills it "
    "in before it checks.",
    r".*\.metadata\.properties": "Metadata inside a spec keeps its labels and annotations; "
    "controller-gen needs an option for that, without which they are dropped.",
    r"v1\.spec\.jobTemplate.*\.(configMapRef|secretRef|configMap|secret)"
    r"\.x-kubernetes-map-type": "controller-gen copies the marker from an embedded Go struct; the "
    "API server has the map as granular.",
    r"v1\.spec\.jobTemplate.*\.azureDisk\.(cachingMode|kind)\.default": "The API server has "
    "the default; the Go types of the golden file do not.",
    r"v1\.spec\.jobTemplate.*\.onPodConditions\[\]\.status\.default": "As for azureDisk.",
}

PlainInteger = Annotated[int, Format("")]
"""An int of Go has no format in OpenAPI."""
Host = Annotated[
    str,
    SchemaOverride.of(
        minLength=1,
        maxLength=255,
        pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
]
LongerString = Annotated[str, Doc("At least four characters.", min_length=4)]
Policy = Literal["Allow", "Forbid", "Replace"]
Percentage = SchemaOverride.of(pattern="^((100|[0-9]{1,2})%|[0-9]+)$")
EVEN_LENGTH = ValidationRule("self.size() % 2 == 0", "must have even length")


class NestedObject(Struct):
    foo: str
    bar: bool


class RootObject(Struct):
    nested: NestedObject


class EmptiableObject(Struct):
    foo: str = "forty-two"
    bar: str | None = None


class AssociativeType(Struct):
    name: str
    secondary: PlainInteger
    foo: str


class MinMaxObject(Struct):
    foo: str | None = None
    bar: str | None = None
    baz: str | None = None


class ContainsNestedMap(Struct):
    innerMap: dict[str, str] = {}


AssociativeList = Annotated[list[AssociativeType], ListType("map", "name", "secondary")]


def default_objects() -> list[RootObject]:
    return [
        RootObject(NestedObject(foo="baz", bar=True)),
        RootObject(NestedObject(foo="qux", bar=False)),
    ]


class CronJobSpec(Spec, kw_only=True):
    rules = (
        ValidationRule(
            "has(oldSelf.forbiddenInt) || !has(self.forbiddenInt)",
            "forbiddenInt is not allowed",
            reason="FieldValueForbidden",
            field_path=".forbiddenInt",
        ),
    )

    aliasFromPackage: str | None = None
    array: list[PlainInteger] = []
    arrayUsingCompositeLiteral: list[str] = []
    associativeList: AssociativeList
    baz: str
    binaryName: bytes
    byteSliceData: dict[str, bytes] = {}
    canBeNull: Annotated[str | None, SchemaOverride.of(nullable=True)]
    concurrencyPolicy: Policy | None = None
    defaultedEmptyMap: Annotated[dict[str, str], SchemaOverride.of(default={})] = {}
    defaultedEmptyObject: Annotated[EmptiableObject | None, SchemaOverride.of(default={})] = None
    defaultedEmptySlice: Annotated[list[str], SchemaOverride.of(default=[], title="{}")] = []
    defaultedObject: Annotated[
        list[RootObject],
        SchemaOverride.of(
            title="124",
            example=[
                {"nested": {"foo": "baz", "bar": True}},
                {"nested": {"foo": "qux", "bar": False}},
            ],
        ),
    ] = field(default_factory=default_objects)
    defaultedSlice: Annotated[
        list[str], SchemaOverride.of(title="DefaultedSlice", example=["a", "b"])
    ] = field(default_factory=lambda: ["a", "b"])
    defaultedString: Annotated[
        str, SchemaOverride.of(title="DefaultedString", example="forty-two")
    ] = "forty-two"
    doubleDefaultedString: str = "kubebuilder-default"
    embeddedResource: EmbeddedResource
    enumSlice: list[Literal[0, 1, 3]] = []
    explicitlyOptionalK8s: str | None = None
    explicitlyOptionalKubebuilder: str | None = None
    explicitlyOptionalKubernetes: str | None = None
    explicitlyRequiredK8s: str
    explicitlyRequiredKubebuilder: str
    explicitlyRequiredKubernetes: str
    failedJobsHistoryLimit: Int32 | None = None
    fieldLevelAliasOverride: Annotated[
        str | None,
        SchemaOverride.of(
            allOf=[{"minLength": 1, "maxLength": 255}, {"minLength": 10, "maxLength": 10}]
        ),
    ] = None
    fieldLevelLocalDeclarationOverride: Annotated[
        str | None, SchemaOverride.of(allOf=[{"minLength": 4}, {"minLength": 10}], maxLength=10)
    ] = None
    float64WithValidations: Annotated[float, Doc("A float.", ge=-0.5, le=1.5, multiple_of=0.5)]
    floatWithValidations: Annotated[float, Doc("A float.", ge=-0.5, le=1.5, multiple_of=0.5)]
    foo: str
    forbiddenInt: PlainInteger | None = None
    fromEmbedded: str | None = None
    fromPointer: str | None = None
    hosts: Annotated[list[Host], ListType("set"), Doc("Hosts.", min_length=1)] | None = None
    hostsAlias: Annotated[list[Host], ListType("set"), Doc("Hosts.", min_length=1)] | None = None
    int32WithValidations: Annotated[Int32, Doc("An integer.", ge=-2, le=2, multiple_of=2)]
    intOrStringArrayWithAPattern: list[
        Annotated[IntOrString, Percentage, SchemaOverride.of(minLength=1, maxLength=10)]
    ] = []
    intOrStringWithAPattern: Annotated[
        IntOrString | None, Percentage, SchemaOverride.of(minLength=2, maxLength=11)
    ] = None
    intOrStringWithEnum: Annotated[
        IntOrString | None, SchemaOverride.of(enum=[1, 2, "foo", "bar"])
    ] = None
    intOrStringWithEnumSlice: list[
        Annotated[
            IntOrString, SchemaOverride.of(enum=[1, 2, "foo", "bar"], minLength=1, maxLength=3)
        ]
    ] = []
    intWithValidations: Annotated[PlainInteger, Doc("An integer.", ge=-2, le=2, multiple_of=2)]
    jobTemplate: JobTemplateSpec
    justNestedObject: NestedObject | None = None
    k8sAssociativeList: Annotated[list[AssociativeType], ListType("map", "name")]
    k8sAtomicList: Annotated[list[str], ListType("atomic")] = []
    k8sConcurrencyPolicy: Policy | None = None
    k8sNestedAssociativeList: AssociativeList
    k8sSetList: Annotated[list[str], ListType("set")] = []
    kubernetesDefaultedEmptyMap: Annotated[dict[str, str], SchemaOverride.of(default={})] = {}
    kubernetesDefaultedEmptyObject: Annotated[
        EmptiableObject | None, SchemaOverride.of(default={})
    ] = None
    kubernetesDefaultedEmptySlice: Annotated[list[str], SchemaOverride.of(default=[])] = []
    kubernetesDefaultedObject: list[RootObject] = field(default_factory=default_objects)
    kubernetesDefaultedRef: str | None = None
    kubernetesDefaultedSlice: list[str] = field(default_factory=lambda: ["a", "b"])
    kubernetesDefaultedString: str = "forty-two"
    locallyBoundedInteger: Annotated[Int32 | None, Doc("An integer.", ge=1, le=10)] = None
    locallyBoundedString: Annotated[str | None, Doc("A string.", min_length=1, max_length=10)] = (
        None
    )
    longerStringArray: Annotated[list[LongerString] | None, Doc("Strings.", min_length=3)] = None
    mapOfArraysOfFloats: dict[str, list[bool]] = {}
    mapOfInfo: Annotated[dict[str, bytes], MapType("granular")]
    mapOfTextMarshalerKeys: dict[str, str] = {}
    minMaxProperties: Annotated[
        MinMaxObject | None, SchemaOverride.of(minProperties=1, maxProperties=2)
    ] = None
    nestedMap: dict[str, dict[str, str]] = {}
    nestedMapInStruct: dict[str, ContainsNestedMap] = {}
    nestedMapOfInfo: Annotated[dict[str, bytes], MapType("granular")]
    nestedNestedMap: dict[str, dict[str, dict[str, str]]] = {}
    nestedStructWithSeveralFields: Annotated[NestedObject, MapType("atomic")]
    nestedStructWithSeveralFieldsDoubleMarked: Annotated[NestedObject, MapType("atomic")]
    nestedassociativeList: AssociativeList
    noReallySuspend: str | None = None
    onlyAllowSettingOnUpdate: Annotated[
        Int32 | None,
        ValidationRule(
            "oldSelf.hasValue() || self == 0",
            "must be set to 0 on creation. can be set to any value on an update.",
            optional_old_self=True,
        ),
    ] = None
    # Not in a Doc: a pattern there must also be one of Python, which has no [:punct:].
    patternObject: Annotated[
        str,
        SchemaOverride.of(
            pattern=r"^$|^((https):\/\/?)[^\s()<>]+(?:\([\w\d]+\)|([^[:punct:]\s]|\/?))$"
        ),
    ]
    protocol: str = "TCP"
    ptrData: dict[str, str] = {}
    schedule: str
    schemaless: str | None = None
    selectableFieldString: str | None = None
    startingDeadlineSeconds: Int64 | None = None
    stringAlias: str | None = None
    stringAliasAddedValidation: Annotated[
        str | None, Doc("A string.", min_length=1, max_length=255)
    ] = None
    stringAliasAlreadyValidated: Annotated[
        str | None, Doc("A string.", min_length=1, max_length=255)
    ] = None
    stringAliasPtr: str | None = None
    stringAliasWithAddedTitle: Annotated[str | None, SchemaOverride.of(title="title on field")] = (
        None
    )
    stringAliasWithTitle: Annotated[str | None, SchemaOverride.of(title="title on type")] = None
    stringPair: Annotated[list[str], Doc("A pair.", min_length=2, max_length=2)]
    stringSliceData: dict[str, list[str]] = {}
    stringWithEvenLength: Annotated[str | None, EVEN_LENGTH, ValidationRule("true")] = None
    stringWithEvenLengthAndGoodPrefix: Annotated[
        str | None,
        ValidationRule("self.startsWith('good-')", "must have good prefix"),
        EVEN_LENGTH,
    ] = None
    stringWithEvenLengthAndMessageExpression: Annotated[
        str | None,
        ValidationRule(
            "self.size() % 2 == 0", message_expression="self + ' has odd length, must be even'"
        ),
    ] = None
    structWithSeveralFields: Annotated[NestedObject, MapType("atomic")]
    successfulJobsHistoryLimit: Int32 | None = None
    suspend: bool | None = None
    twoOfAKindPart0: LongerString
    twoOfAKindPart1: LongerString
    unprunedEmbeddedResource: EmbeddedResource
    unprunedFomType: PreserveUnknownFields
    unprunedFomTypeAndField: PreserveUnknownFields
    unprunedJSON: Annotated[
        NestedObject, SchemaOverride.of(x_kubernetes_preserve_unknown_fields=True)
    ]


class Duration(Struct):
    value: Int64


class CronJobStatus(Struct):
    active: list[ObjectReference] = []
    duration: Duration | None = None
    lastActiveLogURL: str | None = None
    lastActiveLogURL2: str | None = None
    lastActiveLogURL3: str | None = None
    lastActiveLogURL4: str | None = None
    lastScheduleMicroTime: datetime | None = None
    lastScheduleTime: datetime | None = None
    lastScheduleTime2: Int64 | None = None


@kind(
    "testdata.kubebuilder.io/v1",
    singular="mycronjob",
    selectable_fields=[".spec.selectableFieldString"],
    require_spec=False,
)
class CronJob(Resource[CronJobSpec, CronJobStatus]):
    pass


class OldSpec(Spec, kw_only=True):
    int32WithValidations: Annotated[Int32, Doc("An integer.", ge=-2, le=2, multiple_of=2)]
    twoOfAKindPart0: LongerString


@kind(
    "testdata.kubebuilder.io/v1beta1",
    name="CronJob",
    singular="mycronjob",
    status_subresource=True,
    served=False,
    storage=False,
    require_spec=False,
)
class CronJobV1Beta1(Object, kw_only=True):
    spec: OldSpec | None = None


@kind(
    "testdata.kubebuilder.io/v1beta2",
    name="CronJob",
    singular="mycronjob",
    status_subresource=True,
    storage=False,
    deprecated="use v1 instead, this version causes your data center to catch fire when used on "
    "Tuesdays",
)
class CronJobV1Beta2(Object):
    pass


VERSIONS: list[type[Object]] = [CronJob, CronJobV1Beta1, CronJobV1Beta2]


def find_differences(golden: Any, ours: Any, path: str) -> Iterator[str]:
    """The paths of all values that differ; those of schemas by the names of their fields."""
    if not isinstance(golden, Mapping) or not isinstance(ours, Mapping):
        if golden != ours:
            yield path
        return
    for key in sorted(golden.keys() | ours.keys()):
        old, new = golden.get(key), ours.get(key)
        if key == "properties" and isinstance(old, Mapping) and isinstance(new, Mapping):
            for name in sorted(old.keys() | new.keys()):
                yield from find_differences(old.get(name), new.get(name), f"{path}.{name}")
        elif key in ("items", "additionalProperties"):
            yield from find_differences(old, new, f"{path}[]")
        else:
            yield from find_differences(old, new, f"{path}.{key}")


def test_the_crd_of_controller_tools() -> None:
    file = find_corpus("controller-tools") / "testdata.kubebuilder.io_cronjobs.yaml"
    (golden,) = parse_documents(file.read_text(), str(file))
    (ours,) = build_crds(VERSIONS)
    golden_versions, our_versions = (crd["spec"].pop("versions") for crd in (golden, ours))
    differences = [
        *find_differences(golden["metadata"], ours["metadata"], "metadata"),
        *find_differences(golden["spec"], ours["spec"], "spec"),
    ]
    for golden_version, our_version in zip(golden_versions, our_versions, strict=True):
        golden_schema, our_schema = (
            version.pop("schema")["openAPIV3Schema"] for version in (golden_version, our_version)
        )
        differences += find_differences(golden_schema, our_schema, golden_version["name"])
        differences += find_differences(golden_version, our_version, "version")
    unexplained = [
        path
        for path in differences
        if not any(re.fullmatch(pattern, path) for pattern in DIFFERENCES)
    ]
    assert unexplained == []
    unused = [
        pattern
        for pattern in DIFFERENCES
        if not any(re.fullmatch(pattern, path) for path in differences)
    ]
    assert unused == []


def test_only_fields_with_defaults_are_not_required() -> None:
    file = find_corpus("controller-tools") / "testdata.kubebuilder.io_cronjobs.yaml"
    (golden,) = parse_documents(file.read_text(), str(file))
    golden_spec, our_spec = (
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for crd in (golden, build_crds(VERSIONS)[0])
    )
    missing = set(golden_spec["required"]) - set(our_spec["required"])
    assert missing == {
        name for name in golden_spec["required"] if "default" in golden_spec["properties"][name]
    }
    assert set(our_spec["required"]) <= set(golden_spec["required"])

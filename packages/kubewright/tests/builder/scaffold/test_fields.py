"""The fields of `create api`: what is accepted, and the Python that it becomes."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.builder.scaffold.fields import Fields, parse_fields
from kubewright.errors import ConfigError


def spec_line(text: str, *types: str) -> str:
    return parse_fields([text], [], types).spec[0].format_spec_line().strip()


@pytest.mark.parametrize(
    ("text", "line"),
    {
        "name": 'name: str = ""',
        "name:string": 'name: str = ""',
        "name:str!": "name: str",
        "name:str?": "name: str | None = None",
        "name:str=web": 'name: str = "web"',
        "count:int": "count: int = 0",
        "count:int32=3": "count: Int32 = 3",
        "count:int64": "count: Int64 = 0",
        "share:float=0.5": "share: float = 0.5",
        "on:bool=true": "on: bool = True",
        "until:datetime": "until: datetime | None = None",
        "limit:int-or-string=25%": 'limit: IntOrString = "25%"',
        "limit:int-or-string=3": "limit: IntOrString = 3",
        "limit:int-or-string=007": "limit: IntOrString = 7",
        'limit:int-or-string="a"': "limit: IntOrString = '\"a\"'",
        "count:int32=-2147483648": "count: Int32 = -2147483648",
        "count:int64=9223372036854775807": "count: Int64 = 9223372036854775807",
        "free:any": "free: PreserveUnknownFields = {}",
        "mode:enum[Fast,Slow]": 'mode: Literal["Fast", "Slow"] | None = None',
        "mode:enum[Fast,Slow]=Fast": 'mode: Literal["Fast", "Slow"] = "Fast"',
        "names:strings": "names: list[str] = []",
        "env:map[str]": "env: dict[str, str] = {}",
        "env:map[list[int32]]!": "env: dict[str, list[Int32]]",
        "name:str! The name.": 'name: Annotated[str, Doc("The name.")]',
        'name:str The "name".': 'name: Annotated[str, Doc("The \\"name\\".")] = ""',
    }.items(),
)
def test_field_becomes_a_line(text: str, line: str) -> None:
    assert spec_line(text) == line


def test_status_field_can_be_unknown() -> None:
    [field] = parse_fields([], ["ready:bool Whether it is ready."], []).status
    line = '    ready: Annotated[bool | None, Doc("Whether it is ready.")] = None'
    assert field.format_status_line() == line


def test_object_types_are_declared_before_their_use() -> None:
    fields = parse_fields(
        ["doors:list[Door]"],
        [],
        ["Door=name:str!,lock:Lock", "Lock=keys:int32=2 Keys, also lost ones.,model:enum[A,B]"],
    )
    assert [type_.name for type_ in fields.types] == ["Lock", "Door"]
    assert "".join(type_.format_class() for type_ in fields.types) == (
        "class Lock(Spec):\n"
        '    keys: Annotated[Int32, Doc("Keys, also lost ones.")] = 2\n'
        '    model: Literal["A", "B"] | None = None\n'
        "\n\n"
        "class Door(Spec):\n"
        "    name: str\n"
        "    lock: Lock | None = None\n"
        "\n\n"
    )
    assert fields.build_spec_example() == {
        "doors": [{"name": "example", "lock": {"keys": 2, "model": "A"}}]
    }


def test_sample_has_the_defaults() -> None:
    fields = ["image:str=memcached:1.6", "on:bool=false", "share:float=0.5", "mode:enum[A,B]=B"]
    fields += ["limit:int-or-string=25%", "count:int=-3", "name:str", "any:any"]
    assert parse_fields(fields, [], []).build_spec_example() == {
        "image": "memcached:1.6",
        "on": False,
        "share": 0.5,
        "mode": "B",
        "limit": "25%",
        "count": -3,
        "name": "example",
        "any": {"example": 1},
    }


@pytest.mark.parametrize(
    ("spec", "types", "message"),
    [
        ("cpu:quantity", [], "must be one of str, int, int32.*list.TYPE., map.TYPE., or an object"),
        ("cpu:list[", [], "must be one of"),
        ("cpu:list[quantity]", [], "must be one of"),
        ("a b:str", [], "must be NAME:TYPE, NAME:TYPE! .required."),
        ("1st:str", [], "invalid field name"),
        ("class:str", [], "reserved word of Python"),
        ("datetime:str", [], "it is the name of a type; choose another, such as myDatetime"),
        ("mode:enum[]", [], "separated by commas: enum.Fast,Slow."),
        ("mode:enum[A,A]", [], "given twice"),
        ("mode:enum[A,B]=C", [], "must be one of A, B"),
        ("on:bool=yes", [], "must be true or false"),
        ("count:int=many", [], "invalid default"),
        ("count:int32=2147483648", [], "must be from -2147483648 to 2147483647"),
        ("count:int32=-2147483649", [], "must be from -2147483648 to 2147483647"),
        ("count:int64=9223372036854775808", [], "must be from -9223372036854775808 to 92"),
        ("count:int=9223372036854775808", [], "must be from -9223372036854775808 to 92"),
        ("limit:int-or-string=2147483648", [], "must be from -2147483648 to 2147483647"),
        ("share:float=nan", [], "must be a number that JSON can express"),
        ("ports:list[str]=a", [], "no default on the command line; set it in the file"),
        ("ports:list[Port]", [], 'the type "Port" is not declared.*--type "Port=name:str'),
        ("name:str", ["Port=name:str"], 'no field has the type "Port"'),
        ("port:Port", ["port=name:str"], "begins with a capital"),
        ("port:Port", ["Port"], "and fields"),
        ("port:Port", ["Port=name:str", "Port=name:str"], "given twice"),
        ("port:Port", ["Port=name:str,name:int"], "the field name is given twice"),
        ("port:Port", ["Port=inner:list[Port]"], "a CRD cannot express recursion"),
        ("Port:Port", ["Port=name:str"], "a field and a type"),
    ],
)
def test_invalid_field_is_rejected_with_the_allowed_forms(
    spec: str, types: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_fields([spec], [], types)


@pytest.mark.parametrize("status", ["phase:str!", "phase:str=A", "conditions:str", "condition:str"])
def test_status_field_that_cannot_be_unknown_is_rejected(status: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be required|every status already has"):
        parse_fields([], [status], [])


names = st.sampled_from(["a", "freeCPU", "x9", "class", "datetime"])
scalars = st.sampled_from(
    ["str", "int", "int32", "float", "bool", "datetime", "int-or-string", "any", "enum[A,B]"]
)
types = st.recursive(
    scalars, lambda inner: inner.map("list[{}]".format) | inner.map("map[{}]".format)
)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=150)


@given(names, types, st.sampled_from(["", "!", "?"]), texts)
def test_every_accepted_field_is_valid_python(name: str, type_: str, mark: str, text: str) -> None:
    try:
        fields: Fields = parse_fields([f"{name}:{type_}{mark} {text}"], [], [])
    except ConfigError:
        return
    line = fields.spec[0].format_spec_line()
    [statement] = ast.parse(f"class X:\n{line}").body
    assert isinstance(statement, ast.ClassDef)
    docs = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    described: list[Any] = [ast.literal_eval(doc.args[0]) for doc in docs]
    assert described == ([" ".join(text.split())] if text.strip() else [])
    assert max(map(len, line.splitlines())) <= 100 or " " not in text

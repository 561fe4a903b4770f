from __future__ import annotations

import json

import pytest

from kubewright.plural import pluralize

from .support.corpora import find_corpus

# As gobuffalo/flect v1.0.3 gives them for these kinds, in lower case.
PLURALS = {
    # The plurals of existing operators, which are part of their URLs.
    "HostInfo": "hostinfoes",
    "VMInfo": "vminfoes",
    "VmGroup": "vmgroups",
    "MyCustomResource": "mycustomresources",
    # Regular endings.
    "Policy": "policies",
    "Gateway": "gateways",
    "IPAddress": "ipaddresses",
    "Mesh": "meshes",
    "Sandbox": "sandboxes",
    "Prometheus": "prometheuses",
    "Portfolio": "portfolios",
    "Kangaroo": "kangaroos",
    "Class": "classes",
    "Status": "statuses",
    "Studio": "studios",
    "Proto": "protos",
    # Irregular nouns, also as the end of a kind.
    "BlockIndex": "blockindices",
    "PodDisruptionCriterion": "poddisruptioncriteria",
    "Shelf": "shelves",
    "DataCenterMatrix": "datacentermatrices",
    "WildOx": "wildoxen",
    "Fox": "foxes",
    "MeshAxis": "meshaxes",
    "NameAlias": "namealiases",
    "Quota": "quotas",
    "SearchIndex": "searchindices",
    "Analysis": "analyses",
    "Person": "people",
    # Plural or uncountable already.
    "Metrics": "metrics",
    "Redis": "redis",
    "TrainingData": "trainingdata",
    "Lambda": "lambda",
    "Price": "price",
    "AppSettings": "appsettings",
    "UserData": "userdata",
    # Abbreviations.
    "DNS": "dnses",
    "ClusterTLS": "clustertlses",
    "SSH": "sshs",
    "OpenAPI": "openapis",
    "HTTPRoute": "httproutes",
    "S3": "s3s",
}


@pytest.mark.parametrize(("kind", "plural"), PLURALS.items())
def test_plural_is_that_of_kubebuilder(kind: str, plural: str) -> None:
    assert pluralize(kind) == plural


@pytest.mark.parametrize(
    ("kind", "plural"), {"Octopus": "octopuses", "Pendula": "pendula", "Dns": "dnses"}.items()
)
def test_spelling_mistakes_of_kubebuilder_are_not_repeated(kind: str, plural: str) -> None:
    assert pluralize(kind) == plural


def test_all_plurals_of_the_corpus_agree() -> None:
    expected: dict[str, set[str]] = {}
    # Three nouns have two plurals there. flect accepts both as input, and gives one of them.
    for singular, plural in json.loads(find_corpus("plurals.json").read_text()):
        expected.setdefault(singular, set()).add(plural)
    wrong = {word: pluralize(word) for word in expected if pluralize(word) not in expected[word]}
    assert wrong == {}
    assert len(expected) > 200
    given = {"dwarf": "dwarfs", "stadium": "stadiums", "symposium": "symposia"}
    assert {word: pluralize(word) for word in given} == given

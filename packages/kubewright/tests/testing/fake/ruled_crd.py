"""A CRD with rules in CEL."""

from __future__ import annotations

from typing import Any

from .crds import INTEGER, make_crd, with_spec

Json = dict[str, Any]

# By the field of `spec.function`: what has to be true for its value.
FUNCTIONS = {
    "url": [
        "isURL(self) && url(self).getHost() == 'a.test:80' && url(self).getPort() == '80'",
        "url(self).getHostname() == 'a.test' && url(self).getEscapedPath() == '/b'",
    ],
    "quantity": [
        "isQuantity(self) && quantity(self).isGreaterThan(quantity('1Mi'))",
        "quantity(self).compareTo(quantity('1024Mi')) == 0 && quantity(self).isInteger()",
    ],
    "ip": [
        "isIP(self) && ip(self).family() == 4 && cidr('10.0.0.0/8').containsIP(self)",
        "cidr('10.0.0.0/8').containsIP(ip(self)) && !ip(self).isLoopback()",
    ],
    "cidr": [
        "isCIDR(self) && cidr(self).prefixLength() == 16 && cidr(self).ip() == ip('10.1.0.0')",
        "cidr('10.0.0.0/8').containsCIDR(self)",
    ],
    "find": [
        "self.find('[0-9]+') == '12' && self.findAll('[0-9]+') == ['12', '34']",
        "self.findAll('[0-9]+', 1).size() == 1",
    ],
    "format": [
        "!format.dns1123Label().validate(self).hasValue()",
        "!format.named('dns1123Label').value().validate(self).hasValue()",
    ],
    "semver": [
        "isSemver(self) && semver(self).major() == 1",
        "semver(self).isLessThan(semver('2.0.0'))",
    ],
    "strings": [
        "self.lowerAscii() == 'abc' && self.substring(1) == 'BC' && self.charAt(0) == 'A'",
        "self.replace('A', 'x') == 'xBC' && self.matches('^[A-C]+$')",
    ],
    "sets": [
        "sets.contains(self.split(','), ['a']) && sets.intersects(self.split(','), ['b', 'z'])"
    ],
    "macros": [
        "self.split(',').all(i, x, i < 2) && self.split(',').exists_one(x, x == 'b')",
        "self.split(',').map(x, x + x) == ['aa', 'bb']",
        "self.split(',').transformList(i, x, i) == [0, 1]",
    ],
    "conversion": [
        "int(self) == 12 && string(12) == self && double(self) == 12.0 && type(self) == string"
    ],
}
NAME: Json = {
    "type": "string",
    "maxLength": 40,
    "x-kubernetes-validations": [
        {"rule": "self.startsWith('a')", "message": " must start with a "},
        {"rule": "self == oldSelf", "message": "is immutable"},
    ],
}
ONCE: Json = {
    "type": "string",
    "maxLength": 40,
    "x-kubernetes-validations": [
        {
            "rule": "oldSelf.hasValue() ? self == oldSelf.value() : self != 'x'",
            "optionalOldSelf": True,
            "message": "not x at first, then immutable",
        }
    ],
}
EXPRESSION: Json = {
    "type": "integer",
    "x-kubernetes-validations": [
        {"rule": "self < 5", "messageExpression": "'%d is not below 5'.format([self])"},
        {"rule": "self > 0", "messageExpression": "string(1 / (self - self))"},
        {"rule": "self != 3"},
        {"rule": "self != 4", "reason": "FieldValueForbidden", "message": "not 4"},
    ],
}
ITEMS: Json = {
    "type": "array",
    "maxItems": 5,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", "maxLength": 9}, "n": INTEGER},
        "x-kubernetes-validations": [
            {
                "rule": "!has(oldSelf.n) || has(self.n) && self.n >= oldSelf.n",
                "message": "n cannot shrink",
                "fieldPath": ".n",
            }
        ],
    },
}
EVEN_NUMBERS: Json = {
    "type": "object",
    "maxProperties": 5,
    "additionalProperties": {
        "type": "integer",
        "x-kubernetes-validations": [{"rule": "self % 2 == 0", "message": "odd"}],
    },
}
FUNCTION: Json = {
    "type": "object",
    "properties": {
        name: {
            "type": "string",
            "maxLength": 20,
            "x-kubernetes-validations": [{"rule": " && ".join(rules), "message": name}],
        }
        for name, rules in FUNCTIONS.items()
    },
    "x-kubernetes-validations": [
        {
            "rule": "self.?url.hasValue() || self.?ip.orValue('') != '10.9.9.9'",
            "message": "optional",
        }
    ],
}
NUMBERS: Json = {
    "type": "array",
    "maxItems": 5,
    "items": INTEGER,
    "x-kubernetes-validations": [
        {"rule": "self.isSorted() && self.sum() == 6 && self.min() == 1", "message": "sorted"},
        {"rule": "self.max() == 3 && self.indexOf(2) == 1", "message": "2 at 1"},
        {"rule": "self.lastIndexOf(3) == 2", "message": "3 at 2"},
    ],
}
TYPES: Json = {
    "type": "object",
    "properties": {
        "from": {"type": "string", "format": "date-time"},
        "to": {"type": "string", "format": "date-time"},
        "for": {"type": "string", "format": "duration"},
        "x-y": INTEGER,
        "ratio": {"type": "number"},
        "any": {"x-kubernetes-int-or-string": True},
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.to) || self.from < self.to", "message": "order"},
        {"rule": "!has(self.__for__) || self.__for__ < duration('1h')", "message": "too long"},
        {"rule": "!has(self.x__dash__y) || self.x__dash__y > 0", "message": "dash"},
        {"rule": "!has(self.ratio) || self.ratio <= 0.5", "message": "ratio"},
        {"rule": "!has(self.any) || type(self.any) != int || self.any > 1", "message": "any"},
    ],
}
SPEC: Json = {
    "properties": {
        "low": INTEGER,
        "high": INTEGER,
        "name": NAME,
        "once": ONCE,
        "expression": EXPRESSION,
        "items": ITEMS,
        "even": EVEN_NUMBERS,
        "function": FUNCTION,
        "numbers": NUMBERS,
        "types": TYPES,
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.low) || self.low <= self.high", "message": "low <= high"}
    ],
}
ROOT_RULES = [
    {"rule": "self.metadata.name.size() < 11", "message": "the name is too long"},
    {
        "rule": "!has(self.status) || !has(self.status.count) || self.status.count >= 0",
        "message": "count is negative",
    },
]
RULED = make_crd(
    "Ruled",
    with_spec(SPEC, {"count": INTEGER}) | {"x-kubernetes-validations": ROOT_RULES},
    subresources={"status": {}},
)

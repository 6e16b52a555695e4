"""CustomResourceDefinitions: what is refused, what becomes of the others.

The expected texts were compared with the answers of Kubernetes' own server (apiextensions-apiserver 0.35). It
names `spec.validation…` where all versions have the same schema; here the path is the one that was written.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.util.clock import TestClock
from certwright.resources.crds import custom_resource_definitions
from kube.apiserver.accepting import accept

Json = dict[str, Any]

BARS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "bars.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "bars", "kind": "Bar"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
                    }
                },
            }
        ],
    },
}
VERSION = ("spec", "versions", 0)
ROOT = (*VERSION, "schema", "openAPIV3Schema")
FIELD = (*ROOT, "properties", "spec", "properties", "a")
AT_ROOT = "spec.validation.openAPIV3Schema"
AT_FIELD = f"{AT_ROOT}.properties[spec].properties[a]"


@pytest.fixture
def clock() -> TestClock:
    return TestClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def registry(clock: TestClock) -> Registry:
    return make_registry(clock)


def bars(*path: str | int, value: Any = None) -> Json:
    """The definition above, with `value` at `path`."""
    crd = copy.deepcopy(BARS)
    if path:
        inside: Any = crd
        for step in path[:-1]:
            inside = inside[step]
        inside[path[-1]] = value
    return crd


def put(
    registry: Registry, crd: Json, old: Json | None = None, *, others: tuple[Json, ...] = ()
) -> list[str]:
    """What a write does; returns the errors, and serves the kind when there are none."""
    definition = registry.by_kind("apiextensions.k8s.io", "CustomResourceDefinition")
    assert definition is not None
    assert definition.schema.process(crd) == []
    if errors := definition.schema.validate(crd, old):
        return [str(error) for error in errors]
    if old is None:
        definition.strategy.prepare_create(crd)
    else:
        definition.strategy.prepare_update(crd, old)
    accept(crd, others)
    registry.put_crd(crd)
    return []


def condition(crd: Json, kind: str) -> Json:
    entry: Json = next(c for c in crd["status"]["conditions"] if c["type"] == kind)
    return entry


LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
META_TEXT = "must not specify anything other than name and generateName, but metadata is implicitly specified"
KEY_TEXT = (
    "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
)
EMBEDDED_TEXT = (
    "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
)
SELECTABLE_TEXT = (
    "must point to a field of type string, boolean or integer. Enum string fields and strings with "
    "formats are "
    "allowed."
)


def listing(items: Json, **more: Any) -> Json:
    return {
        "type": "array",
        "items": items,
        **{f"x-kubernetes-{k.replace('_', '-')}": v for k, v in more.items()},
    }


def case(path: tuple[str | int, ...], value: Any, *errors: str) -> Any:
    """A value at a path, and the errors: those that begin with a dot are of the field or of the root."""
    where = AT_FIELD if path[: len(FIELD)] == FIELD else AT_ROOT
    return path, value, [f"{where}{error}" if error.startswith(".") else error for error in errors]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        case(
            ("metadata", "name"),
            "x.example.com",
            'metadata.name: Invalid value: "x.example.com": must be spec.names.plural+"."+spec.group',
        ),
        case(
            ("spec", "scope"),
            "X",
            'spec.scope: Unsupported value: "X": supported values: "Cluster", "Namespaced"',
        ),
        case(("spec", "scope"), "", "spec.scope: Required value"),
        case(
            (*VERSION, "storage"),
            False,
            'spec.versions: Invalid value: [{"Name":"v1","Served":true,"Storage":false,"Deprecated":false,'
            '"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,'
            '"SelectableFields":null}]: must have exactly one version marked as storage version',
            "status.storedVersions: Invalid value: null: must have at least one stored version",
        ),
        case(
            (*VERSION, "name"),
            "V1",
            f'spec.version: Invalid value: "V1": {LABEL}',
            f'spec.versions[0].name: Invalid value: "V1": {LABEL}',
        ),
        case((*VERSION, "schema"), {}, "spec.versions[0].schema.openAPIV3Schema: Required value"),
        case(
            ("spec", "names", "kind"),
            "B_r",
            (
                'spec.names.kind: Invalid value: "B_r": may have mixed case, but should otherwise '
                f"match: {LABEL}"
            ),
            (
                'spec.names.listKind: Invalid value: "B_rList": may have mixed case, but should '
                f"otherwise match: {LABEL}"
            ),
            f'spec.names.singular: Invalid value: "b_r": {LABEL}',
        ),
        case(
            ("spec", "names", "shortNames"), ["B"], f'spec.names.shortNames[0]: Invalid value: "B": {LABEL}'
        ),
        case(
            ("spec", "names", "categories"), ["A"], f'spec.names.categories[0]: Invalid value: "A": {LABEL}'
        ),
        case(
            ("spec", "names", "listKind"),
            "Bar",
            'spec.names.listKind: Invalid value: "Bar": kind and listKind may not be the same',
        ),
        case(FIELD, {}, ".type: Required value: must not be empty for specified object fields"),
        case((*ROOT, "type"), "", ".type: Required value: must not be empty at the root"),
        case((*ROOT, "type"), "string", '.type: Invalid value: "string": must be object at the root'),
        case(
            (*FIELD, "type"),
            "strin",
            '.type: Unsupported value: "strin": supported values: "array", "boolean", "integer", '
            '"number", "object", "string"',
        ),
        case(FIELD, {"type": "array"}, ".items: Required value: must be specified"),
        case(FIELD, listing({}), ".items.type: Required value: must not be empty for specified array items"),
        case((*FIELD, "$ref"), "#/x", ".$ref: Forbidden: $ref is not supported"),
        case(
            FIELD,
            {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
            ".x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ),
        case(
            FIELD,
            {"x-kubernetes-embedded-resource": True},
            f".properties: Required value: {EMBEDDED_TEXT}",
            ".type: Required value: must be object if x-kubernetes-embedded-resource is true",
        ),
        case(
            FIELD,
            {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
            ".x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if "
            "x-kubernetes-int-or-string is true",
        ),
        case(FIELD, {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        case(
            (*ROOT, "additionalProperties"),
            {"type": "string"},
            ".additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ".additionalProperties: Forbidden: must not be used at the root",
        ),
        case(
            FIELD,
            {"type": "string", "x-kubernetes-list-type": "set"},
            '.type: Invalid value: "string": must be array if x-kubernetes-list-type is specified',
        ),
        case(
            FIELD,
            listing({"type": "string"}, list_type="xx"),
            '.x-kubernetes-list-type: Unsupported value: "xx": supported values: "atomic", "set", "map"',
        ),
        case(
            FIELD,
            listing({"type": "object"}, list_type="map"),
            ".x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        case(
            FIELD,
            listing({"type": "string"}, list_type="map", list_map_keys=["k"]),
            '.items.type: Invalid value: "string": must be object if parent array\'s '
            "x-kubernetes-list-type is map",
        ),
        case(
            FIELD,
            listing(
                {"type": "object", "properties": {"k": {"type": "string"}}},
                list_type="map",
                list_map_keys=["k", "z"],
            ),
            f".items.properties[k].default: Required value: {KEY_TEXT}",
            (
                '.x-kubernetes-list-map-keys: Invalid value: ["k","z"]: entries must all be names of '
                "item properties"
            ),
        ),
        case(
            FIELD,
            listing({"type": "object", "properties": {"k": {"type": "string"}}}, list_map_keys=["k"]),
            ".x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
        ),
        case(
            FIELD,
            listing({"type": "object"}, list_type="set"),
            ".items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list "
            "with x-kubernetes-list-type=set",
        ),
        case(
            FIELD,
            {"type": "string", "x-kubernetes-map-type": "atomic"},
            '.type: Invalid value: "string": must be object if x-kubernetes-map-type is specified',
        ),
        case(
            FIELD,
            {**listing({"type": "string"}), "uniqueItems": True},
            ".uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime "
            "complexity becomes quadratic",
        ),
        case((*ROOT, "nullable"), True, ".nullable: Forbidden: nullable cannot be true at the root"),
        case(
            (*ROOT, "properties", "metadata"),
            {"type": "object", "properties": {"labels": {"type": "object"}}},
            f".properties[metadata]: Forbidden: {META_TEXT}",
        ),
        case(
            (*ROOT, "properties", "metadata"),
            {"type": "string"},
            '.properties[metadata].type: Invalid value: "string": must be object',
        ),
        case(
            (*FIELD, "allOf"),
            [{"type": "string", "description": "x", "default": "a"}],
            ".allOf[0].default: Forbidden: must be undefined to be structural",
            ".allOf[0].description: Forbidden: must be empty to be structural",
            ".allOf[0].type: Forbidden: must be empty to be structural",
        ),
        case((*FIELD, "not"), {"nullable": True}, ".not.nullable: Forbidden: must be false to be structural"),
        case(
            (*FIELD, "default"),
            5,
            '.default: Invalid value: "integer":  in body must be of type string: "integer"',
        ),
        case(
            (*ROOT, "properties", "spec", "default"),
            {"zz": 1},
            '.properties[spec].default: Invalid value: {"zz":1}: must not have unknown fields',
        ),
        case(
            FIELD,
            {"type": "string", "enum": ["a"], "default": "b"},
            '.default: Unsupported value: "b": supported values: "a"',
        ),
        case(
            (*VERSION, "additionalPrinterColumns"),
            [{"name": "X", "type": "foo", "jsonPath": ".spec.a"}],
            'spec.additionalPrinterColumns[0].type: Invalid value: "foo": must be one of '
            "boolean,date,integer,number,string",
        ),
        case(
            (*VERSION, "additionalPrinterColumns"),
            [{"name": f"c{number}", "type": "string", "jsonPath": ".spec"} for number in range(101)],
            "spec.additionalPrinterColumns: Too many: 101: must have at most 100 items",
        ),
        case(
            (*VERSION, "selectableFields"),
            [{"jsonPath": ".spec.zz"}],
            'spec.selectableFields[0].jsonPath: Invalid value: ".spec.zz": is an invalid path: does '
            "not refer to a valid field",
        ),
        case(
            (*VERSION, "selectableFields"),
            [{"jsonPath": ".spec"}],
            f'spec.selectableFields[0].jsonPath: Invalid value: ".spec": {SELECTABLE_TEXT}',
        ),
        case(
            (*VERSION, "selectableFields"),
            [{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"}],
            'spec.selectableFields[1].jsonPath: Duplicate value: ".spec.a"',
        ),
        case(
            ("spec", "conversion"),
            {"strategy": "Webhook"},
            "spec.conversion.conversionReviewVersions: Required value",
            ("spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook"),
        ),
        case(
            ("spec", "conversion"),
            {"strategy": "Foo"},
            'spec.conversion.strategy: Unsupported value: "Foo": supported values: "None", "Webhook"',
        ),
        case(
            ("spec", "preserveUnknownFields"),
            True,
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set "
            "x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ),
    ],
)
def test_a_definition_that_is_wrong_is_refused(
    registry: Registry, path: tuple[str | int, ...], value: Any, expected: list[str]
) -> None:
    assert sorted(put(registry, bars(*path, value=value))) == expected


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("", "Required value"),
        ("example", "should be a domain with at least one dot"),
        ("Exa_mple.com", "a lowercase RFC 1123 subdomain must consist of"),
        ("x.k8s.io", "protected groups must have approval annotation"),
    ],
)
def test_a_group_must_be_a_domain_of_ones_own(registry: Registry, group: str, message: str) -> None:
    crd = bars("spec", "group", value=group)
    crd["metadata"]["name"] = f"bars.{group}"
    [error] = put(registry, crd)
    assert message in error


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a(", "missing closing ): `a(`"),
        ("(?=a)b", "invalid or unsupported Perl syntax: `(?=`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("x*+", "invalid nested repetition operator: `*+`"),
        ("(?>a)", "invalid or unsupported Perl syntax: `(?>`"),
        ("(?#c)", "invalid or unsupported Perl syntax: `(?#`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        (r"[\b]", r"invalid escape sequence: `\b`"),
        (r"\u0041", r"invalid escape sequence: `\u`"),
        (r"a\C", r"invalid escape sequence: `\C`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
    ],
)
def test_a_pattern_must_be_one_of_go(registry: Registry, pattern: str, text: str) -> None:
    [error] = put(registry, bars(*FIELD, value={"type": "string", "pattern": pattern}))
    assert error.startswith(f"{AT_FIELD}.pattern: Invalid value: ")
    assert error.endswith(f"must be a valid regular expression, but isn't: error parsing regexp: {text}")


def test_versions_must_have_different_names(registry: Registry) -> None:
    crd = bars()
    crd["spec"]["versions"].append(copy.deepcopy(crd["spec"]["versions"][0]))
    assert any("must contain unique version names" in error for error in put(registry, crd))


def test_a_definition_is_completed_and_established(registry: Registry) -> None:
    crd = bars()
    assert put(registry, crd) == []
    assert crd["spec"]["names"] == {"plural": "bars", "singular": "bar", "kind": "Bar", "listKind": "BarList"}
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert crd["status"]["storedVersions"] == ["v1"]
    assert crd["status"]["acceptedNames"] == crd["spec"]["names"]
    assert condition(crd, "NamesAccepted") == {
        "type": "NamesAccepted",
        "status": "True",
        "reason": "NoConflicts",
        "message": "no conflicts found",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    assert condition(crd, "Established")["reason"] == "InitialNamesAccepted"


def test_what_a_client_writes_into_the_status_is_ignored(registry: Registry) -> None:
    crd = {**bars(), "status": {"storedVersions": ["v9"], "conditions": []}}
    assert put(registry, crd) == []
    assert crd["status"]["storedVersions"] == ["v1"]


def test_a_served_kind_has_its_definition(registry: Registry) -> None:
    before = registry.generation
    crd = bars(*VERSION, "subresources", value={"status": {}})
    crd["spec"]["names"]["shortNames"] = ["br"]
    crd["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": ".spec.a"}]
    assert put(registry, crd) == []
    registered = registry.find("example.com", "v1", "bars")
    assert registered is not None
    assert registry.generation > before
    assert registered is registry.by_kind("example.com", "Bar") is registry.by_resource("example.com", "bars")
    assert (registered.bucket, registered.resource, registered.api_version) == (
        "example.com/bars",
        "bars.example.com",
        "example.com/v1",
    )
    assert registered.prefix == b'{"apiVersion":"example.com/v1","kind":"Bar","metadata":'
    assert registered.list_prefix == b'{"apiVersion":"example.com/v1","kind":"BarList","metadata":'
    assert registered.status_subresource
    assert registered.short_names == ("br",)
    assert registered.selectable_fields == ("spec.a",)
    assert [column.name for column in registered.columns] == ["Name", "Age"]


def test_all_versions_share_their_rows_and_the_newest_is_preferred(registry: Registry) -> None:
    crd = bars()
    [stable] = crd["spec"]["versions"]
    crd["spec"]["versions"] = [
        {**stable, "name": "v1beta1", "storage": False},
        stable,
        {**stable, "name": "v2", "storage": False},
        {**stable, "name": "v3", "storage": False, "served": False},
    ]
    assert put(registry, crd) == []
    made = registry.crd_kinds("bars.example.com")
    assert [d.version for d in made] == ["v2", "v1", "v1beta1"]
    assert {d.bucket for d in made} == {"example.com/bars"}
    preferred = registry.by_kind("example.com", "Bar")
    assert preferred is not None
    assert preferred.version == "v2"
    assert preferred.served_versions == ("v2", "v1", "v1beta1")


def test_names_that_are_taken_are_not_accepted(registry: Registry) -> None:
    first = bars()
    assert put(registry, first) == []
    other = bars("spec", "names", value={"plural": "bazes", "kind": "Bar", "shortNames": ["bars"]})
    other["metadata"]["name"] = "bazes.example.com"
    assert put(registry, other, others=(first,)) == []
    refused = condition(other, "NamesAccepted")
    assert (refused["status"], refused["reason"]) == ("False", "ListKindConflict")
    assert refused["message"] == '"BarList" is already in use'
    assert condition(other, "Established")["reason"] == "NotAccepted"
    assert registry.find("example.com", "v1", "bazes") is None


def test_an_update_keeps_conditions_and_their_times(registry: Registry, clock: TestClock) -> None:
    old = bars()
    assert put(registry, old) == []
    clock.set_now(datetime(2026, 2, 1, tzinfo=UTC))
    new = bars(*FIELD, "description", value="A field.")
    assert put(registry, new, old) == []
    assert new["status"] == old["status"]


def test_a_stored_version_must_stay(registry: Registry) -> None:
    old = bars()
    assert put(registry, old) == []
    new = bars(*VERSION, "name", value="v2")
    [error] = put(registry, new, old)
    assert error.startswith(
        'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously'
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda crd: crd["spec"].update(scope="Cluster"),
            'spec.scope: Invalid value: "Cluster": field is immutable',
        ),
        (
            lambda crd: crd["spec"]["names"].update(kind="Baz"),
            'spec.names.kind: Invalid value: "Baz": field is immutable',
        ),
    ],
)
def test_scope_and_kind_cannot_be_changed(
    registry: Registry, change: Callable[[Json], None], message: str
) -> None:
    old = bars()
    assert put(registry, old) == []
    new = bars()
    change(new)
    assert put(registry, new, old) == [message]


def test_a_dropped_definition_is_served_no_longer(registry: Registry) -> None:
    before = registry.groups()
    assert put(registry, bars()) == []
    registry.drop_crd("bars.example.com")
    assert registry.find("example.com", "v1", "bars") is None
    assert registry.groups() == before


def test_our_own_definitions_are_accepted(registry: Registry) -> None:
    before, ours = len(registry.all()), custom_resource_definitions()
    for crd in ours:
        assert put(registry, copy.deepcopy(crd)) == []
    assert len(registry.all()) == before + len(ours)

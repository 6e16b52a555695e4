"""Stories about CustomResourceDefinitions themselves."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from conformance.compare import story
from conformance.kinds import CRDS, STRING, Json, a_list, an_object, collection, crd
from conformance.peers import Caller
from conformance.servers import until, until_gone, until_served

GROUP = "definitions.dev"
_SCHEMA = an_object(spec=an_object(a=STRING))

VERSION = ("spec", "versions", 0)
ROOT = (*VERSION, "schema", "openAPIV3Schema")
SPEC = (*ROOT, "properties", "spec")
FIELD = (*SPEC, "properties", "a")


def _definition(group: str = GROUP) -> Json:
    return crd("bars", _SCHEMA, group=group)


def edited(*path: str | int, value: Any) -> Json:
    """The definition with another value at a path; `...` takes the member away."""
    made = copy.deepcopy(_definition())
    inside: Any = made
    for step in path[:-1]:
        inside = inside[step]
    if value is ...:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return made


@story
async def definitions_are_judged(c: Caller) -> None:
    await c.post(f"{CRDS}?dryRun=All", {"metadata": {"name": "x"}})
    await c.post(f"{CRDS}?dryRun=All", {**_definition(), "spec": {}})
    await c.post(f"{CRDS}?dryRun=All", {**_definition(), "spec": None})
    await c.post(f"{CRDS}?dryRun=All", {**_definition(), "spec": 5})
    await c.post(f"{CRDS}?dryRun=All", {**_definition(), "zzz": 5})
    await c.post(f"{CRDS}?dryRun=All&fieldValidation=Strict", {**_definition(), "zzz": 5})
    await c.post(f"{CRDS}?dryRun=All", {**_definition(), "metadata": {"name": "wrong"}})
    await c.post(f"{CRDS}?dryRun=All", {**_definition(), "metadata": {"name": "foos.other.dev"}})
    for name in ("group", "scope", "names", "versions"):
        body = _definition()
        del body["spec"][name]
        await c.post(f"{CRDS}?dryRun=All", body)


# --- what a definition may say ----------------------------------------------------------------------------


def _webhook(client_config: Json, *versions: str) -> Json:
    """A conversion by that webhook."""
    reviews = {"conversionReviewVersions": list(versions)} if versions else {}
    return {"strategy": "Webhook", "webhook": {"clientConfig": client_config, **reviews}}


_NAMES = ("spec", "names")
_HEADS: tuple[tuple[tuple[str | int, ...], Any], ...] = (
    (("metadata", "name"), "x.definitions.dev"),
    (("metadata", "name"), "Bars.definitions.dev"),
    (("metadata", "generateName"), "bars"),
    (("spec", "group"), "definitions"),
    (("spec", "group"), ""),
    (("spec", "group"), "Def_initions.dev"),
    (("spec", "scope"), "X"),
    (("spec", "scope"), ""),
    ((*VERSION, "storage"), False),
    ((*VERSION, "served"), False),
    ((*VERSION, "name"), "V1"),
    ((*VERSION, "name"), ""),
    ((*VERSION, "name"), "a" * 64),
    ((*VERSION, "schema"), ...),
    ((*VERSION, "schema"), {}),
    ((*VERSION, "schema"), None),
    ((*_NAMES, "kind"), "B_r"),
    ((*_NAMES, "kind"), ""),
    ((*_NAMES, "plural"), ""),
    ((*_NAMES, "plural"), "Bars"),
    ((*_NAMES, "singular"), "B"),
    ((*_NAMES, "shortNames"), ["B", "ok", ""]),
    ((*_NAMES, "shortNames"), "b"),
    ((*_NAMES, "categories"), ["A"]),
    ((*_NAMES, "listKind"), "Bar"),
    ((*_NAMES, "listKind"), "Bar-list"),
    (("spec", "versions"), []),
    (("spec", "versions"), {}),
    (("spec", "preserveUnknownFields"), True),
    (("spec", "preserveUnknownFields"), False),
    (("spec", "conversion"), {}),
    (("spec", "conversion"), {"strategy": "Foo"}),
    (("spec", "conversion"), {"strategy": "None", "webhook": {}}),
    (("spec", "conversion"), {"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}),
    (("spec", "conversion"), {"strategy": "None", "webhook": {"clientConfig": {}}}),
    (("spec", "conversion"), {"strategy": "Webhook"}),
    (("spec", "conversion"), _webhook({"url": "https://x"})),
    (("spec", "conversion"), _webhook({"url": "http://x?y#z"}, "v2", "v2", "V")),
    (
        ("spec", "conversion"),
        _webhook({"service": {"name": "", "namespace": "n", "path": "p", "port": 0}}, "v1beta1"),
    ),
    (
        ("spec", "conversion"),
        _webhook({"service": {"name": "n", "namespace": "n"}, "caBundle": "eA=="}, "v1"),
    ),
    ((*VERSION, "deprecated"), True),
    ((*VERSION, "deprecationWarning"), "old"),
    ((*VERSION, "subresources"), {"status": {}, "scale": {}}),
    ((*VERSION, "subresources"), {"scale": {"specReplicasPath": ".status.a", "statusReplicasPath": "x"}}),
    (
        (*VERSION, "subresources"),
        {
            "scale": {
                "specReplicasPath": ".spec.a",
                "statusReplicasPath": ".status.a",
                "labelSelectorPath": ".metadata.a",
            }
        },
    ),
    ((*VERSION, "additionalPrinterColumns"), [{"name": "X", "type": "foo", "jsonPath": ".spec.a"}]),
    ((*VERSION, "additionalPrinterColumns"), [{"name": "X", "type": "string", "jsonPath": "spec.a"}]),
    ((*VERSION, "additionalPrinterColumns"), [{"name": "", "type": "", "format": "xx", "jsonPath": ""}]),
    (
        (*VERSION, "additionalPrinterColumns"),
        [{"name": "X", "type": "string", "jsonPath": ".spec[0", "priority": "1"}],
    ),
    ((*VERSION, "selectableFields"), [{"jsonPath": ".spec.zz"}, {"jsonPath": ""}]),
    ((*VERSION, "selectableFields"), [{"jsonPath": ".metadata.name"}]),
    ((*VERSION, "selectableFields"), [{"jsonPath": ".spec"}]),
    ((*VERSION, "selectableFields"), [{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"}]),
    ((*VERSION, "selectableFields"), [{"jsonPath": "spec.a"}]),
    ((*VERSION, "selectableFields"), [{"jsonPath": ".spec[0]"}]),
)


@story
async def heads_of_definitions_are_judged(c: Caller) -> None:
    for path, value in _HEADS:
        await c.post(f"{CRDS}?dryRun=All", edited(*path, value=value))
    for warning in ("", "w" * 257, "a\nb", "é"):
        body = edited(*VERSION, "deprecated", value=True)
        body["spec"]["versions"][0]["deprecationWarning"] = warning
        await c.post(f"{CRDS}?dryRun=All", body)
    for annotation in (None, "", "x", "unapproved, an experiment", "https://example.com/1"):
        body = {**crd("bars", _SCHEMA, group="definitions.k8s.io")}
        if annotation is not None:
            body["metadata"]["annotations"] = {"api-approved.kubernetes.io": annotation}
        await c.post(f"{CRDS}?dryRun=All", body)


@story
async def versions_of_definitions_are_judged(c: Caller) -> None:
    for changes in (
        {},
        {"name": "v2"},
        {"name": "v2", "storage": False},
        {"name": "v2", "storage": False, "schema": {"openAPIV3Schema": an_object(spec=an_object(b={}))}},
        {"name": "v2", "storage": False, "schema": None},
        {"name": "v2", "storage": False, "subresources": {"status": {}}},
        {"name": "v2", "storage": False, "selectableFields": [{"jsonPath": ".spec.b"}]},
    ):
        body = _definition()
        body["spec"]["versions"].append({**body["spec"]["versions"][0], **changes})
        await c.post(f"{CRDS}?dryRun=All", body)
    body = _definition()
    many = {f"f{number}": STRING for number in range(9)}
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = an_object(spec=an_object(**many))
    fields = [{"jsonPath": f".spec.{name}"} for name in many]
    body["spec"]["versions"][0]["selectableFields"] = fields
    await c.post(f"{CRDS}?dryRun=All", body)


# --- schemas ----------------------------------------------------------------------------------------------

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_FORM = [{"type": "integer"}, {"type": "string"}]
_KEYED = {"type": "object", "properties": {"k": STRING}}
_FIELDS: tuple[Any, ...] = (
    {},
    5,
    {"type": "strin"},
    {"type": "null"},
    {"type": "array"},
    a_list({}),
    a_list([STRING]),
    {"type": "string", "$ref": "#/x", "id": "x", "definitions": {"a": {}}},
    {"type": "object", "patternProperties": {"a": {}}, "dependencies": {"a": ["b"]}, "additionalItems": True},
    {"type": "string", "pattern": "a("},
    {"type": "string", "pattern": "(?=a)"},
    {"type": "object", _PRESERVE: False},
    {_PRESERVE: True},
    {_EMBEDDED: True},
    {"type": "string", _EMBEDDED: True},
    {"type": "object", _EMBEDDED: True},
    {"type": "object", _EMBEDDED: True, "additionalProperties": STRING},
    {
        "type": "object",
        _EMBEDDED: True,
        "properties": {"metadata": {"type": "string"}, "kind": {"type": "integer"}},
    },
    {
        "type": "object",
        _EMBEDDED: True,
        "properties": {"metadata": {"type": "object", _EMBEDDED: True, _PRESERVE: True}},
    },
    {_INT_OR_STRING: True, _PRESERVE: True, _EMBEDDED: True},
    {_INT_OR_STRING: True, "anyOf": _FORM},
    {_INT_OR_STRING: True, "anyOf": [*_FORM, {"type": "object"}]},
    {_INT_OR_STRING: True, "allOf": [{"anyOf": _FORM}, {"minimum": 1}]},
    {_INT_OR_STRING: True, "allOf": [{"minimum": 1}, {"anyOf": _FORM}]},
    {"type": "integer", _INT_OR_STRING: True},
    {"type": "object", "additionalProperties": STRING, "properties": {"x": STRING}},
    {"type": "object", "additionalProperties": True, "properties": {"x": STRING}},
    {"type": "object", "additionalProperties": False, "properties": {"x": STRING}},
    {"type": "object", "additionalProperties": False},
    {"type": "object", "additionalProperties": True},
    {"type": "object", "additionalProperties": 5},
    {"type": "object", "additionalProperties": {}},
    {"type": "string", "x-kubernetes-list-type": "set"},
    {"x-kubernetes-list-type": "set"},
    a_list(STRING, list_type="xx"),
    a_list({"type": "object"}, list_type="map"),
    a_list(STRING, list_type="map", keys=["k"]),
    a_list(_KEYED, list_type="map", keys=["k", "z"]),
    a_list({**_KEYED, "required": ["k"]}, list_type="map", keys=["k", "k"]),
    a_list({**_KEYED, "required": ["k"], "nullable": True}, list_type="map", keys=["k"]),
    a_list({**_KEYED, "properties": {"k": {"type": "object"}}}, list_type="map", keys=["k"]),
    a_list(
        {**_KEYED, "properties": {"k": {"type": "string", "nullable": True, "default": "x"}}},
        list_type="map",
        keys=["k"],
    ),
    a_list(_KEYED, keys=["k"]),
    a_list(_KEYED, list_type="set", keys=["k"]),
    {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
    a_list({**STRING, "nullable": True}, list_type="set"),
    a_list(_KEYED, list_type="set"),
    a_list({**_KEYED, "x-kubernetes-map-type": "granular"}, list_type="set"),
    a_list({**_KEYED, "x-kubernetes-map-type": "atomic"}, list_type="set"),
    a_list(a_list(STRING, list_type="set"), list_type="set"),
    {**a_list(STRING), "uniqueItems": True},
    {"type": "string", "x-kubernetes-map-type": "atomic"},
    {"x-kubernetes-map-type": "atomic"},
    {"type": "object", "x-kubernetes-map-type": "x"},
    {
        **STRING,
        "allOf": [{"type": "string", "description": "x", "title": "t", "default": "a", "nullable": True}],
    },
    {**STRING, "anyOf": [{_PRESERVE: True, _EMBEDDED: True, _INT_OR_STRING: True}]},
    {**STRING, "oneOf": [{"x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": ["a"]}]},
    {**STRING, "not": {"nullable": True, "x-kubernetes-map-type": "atomic"}},
    {**STRING, "not": {}},
    {**STRING, "anyOf": [{"x-kubernetes-validations": [{"rule": "true"}]}]},
    {"type": "object", "properties": {"x": STRING}, "anyOf": [{"properties": {"q": {"minLength": 1}}}]},
    {"type": "object", "properties": {"x": STRING}, "anyOf": [{"properties": {"x": {"minLength": 1}}}]},
    {"type": "object", "anyOf": [{"additionalProperties": {"minLength": 1}}]},
    {"type": "object", "anyOf": [{"properties": {"metadata": {}}, "items": {"minimum": 1}}]},
    {**a_list(STRING), "allOf": [{"items": {"pattern": "a("}}]},
    {**STRING, "default": 5},
    {**STRING, "default": "a"},
    {**STRING, "default": None},
    {**STRING, "enum": ["a"], "default": "b"},
    {**STRING, "enum": []},
    {**STRING, "enum": "a"},
    {**STRING, "maxLength": -1},
    {**STRING, "maxLength": "1"},
    {**STRING, "minLength": 1.5},
    {**STRING, "format": "unheard-of"},
    {**STRING, "unheard": 1},
    {**STRING, "required": ["x"], "example": {"a": 1}, "externalDocs": {"url": "u", "zz": 1}},
    {"type": "number", "multipleOf": 0, "maximum": "x"},
    {"type": "object", "properties": {"x": STRING}, "default": {"zz": 1}},
    {"type": "object", "properties": {"x": {**STRING, "default": 1}}, "default": {"x": 1}},
    {"type": "object", "additionalProperties": {**STRING, "default": "x"}},
    {"type": "object", _EMBEDDED: True, _PRESERVE: True, "default": {"kind": "Pod"}},
    {
        "type": "object",
        _EMBEDDED: True,
        _PRESERVE: True,
        "default": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": 5}},
    },
    {**a_list({**STRING, "default": "x"}), "default": ["a"]},
    {**a_list(STRING), "maxItems": 1, "default": ["a", "b"]},
)
_ROOTS: tuple[tuple[tuple[str | int, ...], Any], ...] = (
    ((*ROOT, "type"), ...),
    ((*ROOT, "type"), "string"),
    ((*ROOT, "nullable"), True),
    ((*ROOT, "additionalProperties"), STRING),
    ((*ROOT, "default"), {"spec": {}}),
    ((*ROOT, "required"), ["spec"]),
    ((*ROOT, "title"), "x"),
    ((*ROOT, "anyOf"), [{"required": ["spec"]}]),
    ((*ROOT, "properties", "metadata"), {"type": "object", "properties": {"labels": {"type": "object"}}}),
    (
        (*ROOT, "properties", "metadata"),
        {"type": "object", "properties": {"name": {**STRING, "pattern": "a"}}},
    ),
    (
        (*ROOT, "properties", "metadata"),
        {"type": "object", "properties": {"name": {**STRING, "default": "a"}}},
    ),
    ((*ROOT, "properties", "metadata"), {"type": "object", "description": "x"}),
    ((*ROOT, "properties", "metadata"), {"type": "object", "default": {}}),
    ((*ROOT, "properties", "metadata"), STRING),
    ((*ROOT, "properties", "kind"), {"type": "integer"}),
    ((*ROOT, "properties", "apiVersion"), {**STRING, "default": "a"}),
    (ROOT, {}),
    (ROOT, None),
    (ROOT, "x"),
    ((*SPEC, "default"), {"zz": 1}),
)


@story
async def schemas_of_definitions_are_judged(c: Caller) -> None:
    for schema in _FIELDS:
        await c.post(f"{CRDS}?dryRun=All", edited(*FIELD, value=schema))


@story
async def roots_of_schemas_are_judged(c: Caller) -> None:
    for path, value in _ROOTS:
        await c.post(f"{CRDS}?dryRun=All", edited(*path, value=value))
        body = edited(*path, value=value)
        body["spec"]["versions"][0]["subresources"] = {"status": {}}
        await c.post(f"{CRDS}?dryRun=All", body)


# --- the life of a definition -----------------------------------------------------------------------------


def _name(definition: Json) -> str:
    return f"{CRDS}/{definition['metadata']['name']}"


@asynccontextmanager
async def _made(c: Caller, *definitions: Json) -> AsyncIterator[None]:
    for definition in definitions:
        await c.post(CRDS, definition)
    for definition in definitions:
        await until_served(c, collection(definition, c.namespace))
    try:
        yield
    finally:
        await _gone(c, *definitions)


async def _gone(c: Caller, *definitions: Json) -> None:
    for definition in definitions:
        await c.delete(_name(definition), quiet=True)
        await until_gone(c, _name(definition))


async def _until(c: Caller, path: str, kind: str, value: str, reason: str = "") -> None:
    """Wait until a condition of a definition has a value."""

    def holds(definition: Json) -> bool:
        return any(
            (condition["type"], condition["status"], reason or condition["reason"])
            == (kind, value, condition["reason"])
            for condition in definition["status"]["conditions"] or ()
        )

    await until(c, path, holds)


async def _accepted(c: Caller, path: str) -> None:
    """Wait until a definition has got its names."""
    await until(
        c, path, lambda definition: bool(definition["status"]["acceptedNames"] == definition["spec"]["names"])
    )


def _changes(definition: Json) -> Iterator[Json]:
    for path, value in (
        (("spec", "group"), "other.dev"),
        (("spec", "scope"), "Cluster"),
        ((*_NAMES, "plural"), "bazs"),
        ((*_NAMES, "kind"), "Baz"),
        ((*VERSION, "name"), "v2"),
        ((*VERSION, "storage"), False),
        ((*VERSION, "served"), False),
        ((*FIELD, "type"), "integer"),
        ((*FIELD, "pattern"), "a("),
        (("spec", "versions"), []),
        (("status",), {"storedVersions": ["v9"]}),
    ):
        changed = copy.deepcopy(definition)
        inside: Any = changed
        for step in path[:-1]:
            inside = inside[step]
        inside[path[-1]] = value
        yield changed


@story
async def definitions_are_replaced(c: Caller) -> None:
    definition = _definition("replaced.dev")
    path = _name(definition)
    async with _made(c, definition):
        await c.get(path)
        stored = (await c.get(path, quiet=True)).json
        for changed in _changes(stored):
            await c.put(f"{path}?dryRun=All", changed)
        await c.put(path, {**stored, "metadata": {"name": stored["metadata"]["name"]}})
        await c.patch(path, {"spec": {"names": {"shortNames": ["br"], "categories": ["all"]}}})
        await _accepted(c, path)
        await c.get(path)
        await c.patch(path, {"spec": {"names": {"shortNames": None, "singular": "barre"}}})
        await _accepted(c, path)
        await c.get(path)
        two = [
            stored["spec"]["versions"][0],
            {**stored["spec"]["versions"][0], "name": "v2", "storage": False},
        ]
        await c.patch(path, {"spec": {"versions": two}})
        moved = [{**two[0], "storage": False}, {**two[1], "storage": True}]
        await c.patch(path, {"spec": {"versions": moved}})
        await c.get(path)
        await c.patch(path, {"spec": {"versions": moved[1:]}})
        await c.patch(f"{path}/status", {"status": {"storedVersions": ["v2"]}})
        await c.patch(path, {"spec": {"versions": moved[1:]}})
        await c.get(path)
        await c.patch(f"{path}/status", {"status": {"storedVersions": []}})
        await c.patch(f"{path}/status", {"status": {"acceptedNames": {"plural": "B_"}}})
        await c.patch(f"{path}/status", {"metadata": {"labels": {"a": "b"}}, "spec": {"scope": "Cluster"}})


@story
async def names_of_definitions_meet(c: Caller) -> None:
    first, group = _definition("names.dev"), "names.dev"
    other = crd(
        "bazs", _SCHEMA, kind="Baz", group=group, names={"singular": "bar", "shortNames": ["br", "bars"]}
    )
    third = crd("quxs", _SCHEMA, kind="Bar", group=group, names={"listKind": "BazList"})
    async with _made(c, first):
        await c.post(CRDS, other)
        await _until(c, _name(other), "NamesAccepted", "False")
        await c.get(_name(other))
        await c.get(collection(other, c.namespace))
        await c.post(CRDS, third)
        await _until(c, _name(third), "NamesAccepted", "False")
        await c.get(_name(third))
        names = {"kind": "Qux", "listKind": "QuxList", "singular": "qux"}
        await c.patch(_name(third), {"spec": {"names": names}})
        await _until(c, _name(third), "Established", "True")
        await c.get(_name(third))
    await _until(c, _name(other), "Established", "True")
    await c.get(_name(other))
    await _gone(c, third, other)


async def _until_dying(c: Caller, path: str) -> None:
    """The reference deletes the objects of a definition one after the other, some time after it says so."""
    await until(c, path, lambda definition: "deletionTimestamp" in definition["metadata"])


@story
async def definitions_are_deleted_with_their_objects(c: Caller) -> None:
    definition = _definition("deleted.dev")
    path, objects = _name(definition), collection(definition, c.namespace)
    async with _made(c, definition):
        await c.delete(f"{path}?dryRun=All")
        await c.delete(path, {"preconditions": {"uid": "other"}})
        body = {"apiVersion": "deleted.dev/v1", "kind": "Bar"}
        await c.post(objects, {**body, "metadata": {"name": "free"}})
        await c.post(objects, {**body, "metadata": {"name": "held", "finalizers": ["x.dev/y"]}})
        await c.delete(path)
        await _until(c, path, "Terminating", "True", "InstanceDeletionInProgress")
        await c.get(path)
        await c.post(objects, {**body, "metadata": {"name": "late"}})
        await _until_dying(c, f"{objects}/held")
        await c.get(f"{objects}/held")
        await c.delete(path)
        await c.patch(path, {"metadata": {"labels": {"a": "b"}}})
        await c.post(CRDS, definition)
        await c.patch(f"{objects}/held", {"metadata": {"finalizers": None}})
        await until_gone(c, path)
        await c.get(objects)
        await c.get(path)
    async with _made(c, definition):
        await c.get(objects)
        await c.get(path)


@story
async def definitions_are_watched(c: Caller) -> None:
    definition = _definition("watched.dev")
    start = (await c.get(CRDS, quiet=True)).json["metadata"]["resourceVersion"]
    target = f"{CRDS}?fieldSelector=metadata.name%3D{definition['metadata']['name']}&resourceVersion={start}"
    async with c.watch(target) as events:
        await events.opened()
        async with _made(c, definition):
            await events.take(3)
            await c.patch(_name(definition), {"spec": {"names": {"shortNames": ["br"]}}})
            await events.take(2)
        # What follows depends on how fast the storage of the objects was there.
        await events.take(1)

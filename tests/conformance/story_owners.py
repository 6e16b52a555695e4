"""Stories about who owns which field: conflicts, migration from kubectl's apply, definitions that change."""

from __future__ import annotations

from typing import Any

from conformance.compare import story
from conformance.kinds import (
    CRDS,
    INTEGER,
    STRING,
    Json,
    a_list,
    an_object,
    crd,
    in_namespace,
    owned,
    twin,
    widget,
)
from conformance.peers import Caller
from conformance.servers import until_gone, until_judged, until_served
from conformance.story_apply import lay, owneds
from conformance.story_reads import PARTIAL, TABLE, TABLE_BETA

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@story
async def appliers_come_into_conflict(c: Caller) -> None:
    spec = {
        "text": "x",
        "number": 1,
        "names": ["a"],
        "map": {"a": "1", "b": "1"},
        "ports": [{"port": 1, "note": "x", "deep": {"x": "1"}}],
        "block": {"x": "1"},
        "whole": [{"name": "a"}],
        "deep": {"x": "1", "y": {"z": "1"}},
    }
    labels = {"labels": {"l": "1", "a.dev/x": "1"}}
    await lay(c, "a", "fieldManager=ann", meta=labels, spec=spec)
    await lay(c, "a", "fieldManager=bob", spec={"text": "y"})
    await lay(c, "a", "fieldManager=bob&force=false", spec={"text": "y", "number": 2})
    await lay(c, "a", "fieldManager=bob", meta={"labels": {"l": "2", "a.dev/x": "2"}})
    await lay(c, "a", "fieldManager=bob", spec={"text": "x", "number": 1, "names": ["a", "b"]})
    await lay(c, "a", "fieldManager=carl", spec={"text": "z", "number": 3})
    await lay(c, "a", "fieldManager=carl", spec={"map": {"a": "2", "b": "3"}, "block": {"y": "1"}})
    ports = [{"port": 1, "note": "y", "deep": {"x": "2"}}]
    await lay(c, "a", "fieldManager=carl", spec={"ports": ports, "whole": [], "deep": {"y": {"z": "2"}}})
    await lay(c, "a", "fieldManager=carl", spec={"deep": None, "text": None})
    await c.patch(f"{owneds(c)}/a?fieldManager=dan", {"spec": {"number": 7}}, agent="dan/1")
    await c.patch(f"{owneds(c)}/a/status", {"status": {"phase": "x"}}, agent="eve/1")
    await lay(c, "a", "fieldManager=carl", spec={"text": "z", "number": 3})
    status = owned("a", status={"phase": "y"})
    await c.patch(f"{owneds(c)}/a/status?fieldManager=carl", status, "apply")
    await c.patch(f"{owneds(c)}/a/status?fieldManager=carl&force=true", status, "apply")
    await lay(c, "a", "fieldManager=we%22ird%3C%3E%C3%A4", spec={"text": "z"})
    await lay(c, "a", "fieldManager=we%22ird%3C%3E%C3%A4&force=true", spec={"text": "z", "map": {"<&>": "1"}})
    await lay(c, "a", "fieldManager=ann", spec={"text": "y", "map": {"<&>": "2"}})
    await lay(c, "a", "fieldManager=carl&force=true", spec={"text": "z", "number": 3})
    await lay(c, "a", "fieldManager=ann", meta=labels, spec=spec)
    await lay(c, "a", "fieldManager=ann&force=true&dryRun=All", meta=labels, spec=spec)
    await lay(c, "a", "fieldManager=ann&force=true", meta=labels, spec=spec)


@story
async def list_items_come_into_conflict(c: Caller) -> None:
    owner = {"apiVersion": "nobody.dev/v1", "kind": "Owner", "name": "o", "uid": "1"}
    meta = {"ownerReferences": [owner], "finalizers": ["a.dev/x"]}
    ports = [{"port": 1}, {"port": 1, "protocol": "UDP", "note": "x"}, {"port": 2, "note": "x"}]
    await lay(c, "a", "fieldManager=ann", meta=meta, spec={"ports": ports})
    await lay(c, "a", "fieldManager=bob", meta={"ownerReferences": [{**owner, "name": "p"}]})
    expected = [
        {"port": 1, "note": "y"},
        {"port": 1, "protocol": "UDP", "note": "y"},
        {"port": 2, "note": "y"},
    ]
    await lay(c, "a", "fieldManager=bob", spec={"ports": expected})
    await lay(c, "a", "fieldManager=bob", spec={"ports": expected[:1]})
    await lay(c, "a", "fieldManager=ann", spec={"ports": ports[1:]})
    await lay(c, "a", "fieldManager=ann", spec={})
    await lay(c, "a", "fieldManager=bob", spec={})
    await c.get(f"{owneds(c)}/a")


@story
async def what_nobody_applies_any_more_goes(c: Caller) -> None:
    spec: Json = {"text": "x", "names": ["a", "b"], "map": {"a": "1"}, "deep": {"x": "1", "y": {"z": "1"}}}
    await lay(c, "a", "fieldManager=ann", meta={"labels": {"x": "1"}}, spec=spec)
    await lay(c, "a", "fieldManager=bob", spec={"text": "x", "names": ["b", "c"]})
    await lay(c, "a", "fieldManager=ann", spec={"map": {"a": "1"}})
    await lay(c, "a", "fieldManager=bob", spec={"names": ["c"]})
    await c.patch(f"{owneds(c)}/a", {"spec": {"map": {"b": "2"}}})
    await lay(c, "a", "fieldManager=ann")
    await lay(c, "a", "fieldManager=bob", spec=None)
    await lay(c, "a", "fieldManager=bob")
    await lay(c, "a", "fieldManager=ann", spec={"number": 1})
    await c.patch(f"{owneds(c)}/a", {"spec": {"number": None}})
    await lay(c, "a", "fieldManager=ann", spec={"number": 1})
    await c.patch(f"{owneds(c)}/a", {"spec": None})
    await lay(c, "a", "fieldManager=ann", spec={"number": 1})


@story
async def kubectl_begins_to_apply_on_the_server(c: Caller) -> None:
    path = owneds(c)
    text = (
        '{"apiVersion":"owned.dev/v1","kind":"Owned","metadata":{"annotations":{},"name":"NAME"},'
        '"spec":{"map":{"a":"1"},"number":1,"text":"x"}}\n'
    )
    for name, manager, agent in (
        ("a", "kubectl", "kubectl-client-side-apply/1"),
        ("b", "other", "kubectl-client-side-apply/1"),
        ("d", "kubectl", "kubectl/1"),
        ("e", "kubectl", "someone/1"),
    ):
        note = {LAST_APPLIED: text.replace("NAME", name)}
        spec: Json = {"text": "x", "number": 1, "map": {"a": "1"}}
        await c.post(path, owned(name, meta={"annotations": note}, spec=spec), agent=agent)
        await c.patch(f"{path}/{name}", {"spec": {"number": 2}}, agent="controller/1")
        query = f"fieldManager={manager}"
        await lay(c, name, query, spec={"text": "y"})
        await lay(c, name, query, spec={"text": "y", "number": 3})
        await lay(c, name, f"{query}&force=true", spec={"text": "y", "number": 3})
        await lay(c, name, query, meta={"annotations": note}, spec={"text": "z"})
        await lay(c, name, query, meta={"annotations": {LAST_APPLIED: ""}}, spec={"text": "z"})
        await lay(c, name, query, spec={"text": "z"})
    notes = ("", "{", "[]", '{"kind":"Owned"}', '{"apiVersion":"other/v1","spec":{"text":"x"}}', "5")
    for number, last in enumerate(notes):
        meta = {"annotations": {LAST_APPLIED: last}}
        name = f"n{number}"
        await c.post(path, owned(name, meta=meta, spec={"text": "x"}), agent="kubectl-client-side-apply/1")
        await lay(c, name, "fieldManager=kubectl", spec={"text": "y"})
    big = {"annotations": {LAST_APPLIED: text.replace("NAME", "big"), "x": "y" * 260000}}
    await c.post(path, owned("big", meta=big, spec={"text": "x"}))
    await lay(c, "big", "fieldManager=kubectl", spec={"text": "x", "map": {"long": "z" * 4000}})
    await lay(c, "big", "fieldManager=kubectl", spec={"text": "x"})


@story
async def owners_are_migrated_by_a_patch(c: Caller) -> None:
    """As client-go's `csaupgrade` does: it writes the entries themselves."""
    target = f"{owneds(c)}/a"
    await c.post(owneds(c), owned("a", spec={"text": "x", "number": 1}), agent="kubectl-client-side-apply/1")
    fields: Json = {"f:spec": {"f:text": {}, "f:number": {}}}
    entry: Json = {
        "manager": "kubectl",
        "operation": "Apply",
        "apiVersion": "owned.dev/v1",
        "time": "2020-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    version = (await c.get(target)).json["metadata"]["resourceVersion"]
    operations = [
        {"op": "replace", "path": "/metadata/managedFields", "value": [entry]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]
    await c.patch(target, operations, "json", agent="upgrade/1")
    await c.patch(target, operations, "json", agent="upgrade/1")
    await lay(c, "a", "fieldManager=kubectl", spec={"text": "x"})
    lists: tuple[Any, ...] = (
        [entry, {**entry, "manager": "b"}, entry],
        [{**entry, "operation": "Other"}],
        [{**entry, "apiVersion": ""}],
        [{**entry, "apiVersion": "owned.dev/v9"}],
        [{**entry, "fieldsType": "FieldsV2"}],
        [{**entry, "fieldsV1": {"x": {}}}],
        [{**entry, "fieldsV1": {"f:spec": {"f:gone": {}}, "q:x": {}}}],
        [{**entry, "fieldsV1": {"k:{": {}}}],
        [{**entry, "fieldsV1": {}}],
        [{**entry, "fieldsV1": None}],
        [{**entry, "manager": ""}],
        [{**entry, "manager": "x" * 129}],
        [{**entry, "subresource": "status"}],
        [{**entry, "subresource": "zzz"}],
        [{**entry, "zzz": 1}],
        [{**entry, "time": None}],
        [{}, entry],
        [{}],
        [],
        None,
    )
    for entries in lists:
        await c.patch(target, {"metadata": {"managedFields": entries}}, agent="upgrade/1")
    await lay(c, "a", "fieldManager=kubectl", spec={"text": "x"})


@story
async def owners_are_reset(c: Caller) -> None:
    path = owneds(c)
    resets: tuple[Any, ...] = ([], [{}], None)
    for number, owners in enumerate(resets):
        target = f"{path}/a{number}"
        await c.post(path, owned(f"a{number}", spec={"text": "x"}), agent="ann/1")
        obj = (await c.get(target)).json
        obj["metadata"]["managedFields"] = owners
        await c.put(target, obj, agent="bob/1")
        await c.get(target)
        await lay(c, f"a{number}", "fieldManager=carl", spec={"text": "y"})
        await lay(c, f"a{number}", "fieldManager=carl&force=true", spec={"text": "y"})
        await c.patch(target, {"metadata": {"managedFields": owners}, "spec": {"number": 1}}, agent="bob/1")
        await c.patch(target, {"spec": {"number": 2}}, agent="bob/1")
        await c.patch(f"{target}/status", {"metadata": {"managedFields": owners}}, agent="bob/1")
        operations = [{"op": "add", "path": "/metadata/managedFields", "value": owners}]
        await c.patch(target, operations, "json", agent="bob/1")
        await c.patch(target, [{"op": "remove", "path": "/metadata/managedFields"}], "json", agent="bob/1")
        await c.post(path, owned(f"b{number}", meta={"managedFields": owners}, spec={"text": "x"}))
        await c.patch(f"{target}/status", {"status": {"phase": "x"}}, agent="eve/1")
        await c.patch(f"{target}/scale", {"spec": {"replicas": 3}}, agent="eve/1")


@story
async def owners_of_no_field_go(c: Caller) -> None:
    target = f"{owneds(c)}/a"
    await c.post(owneds(c), owned("a", spec={"text": "x"}), agent="ann/1")
    await c.patch(target, {"spec": {"text": "y"}}, agent="bob/1")
    await c.patch(target, {"spec": {"text": None}}, agent="carl/1")
    await c.patch(target, {}, agent="dan/1")
    await c.patch(target, {"metadata": {"labels": {"x": "1"}}}, agent="dan/1")
    await c.patch(target, {"metadata": {"labels": {"x": None}}}, agent="eve/1")
    await c.patch(target, {"metadata": {"annotations": {"x": "1"}}}, agent="eve/1")
    for number in range(14):
        await c.patch(target, {"spec": {"map": {f"k{number}": "x"}}}, agent=f"many{number:02}/1")
    await lay(c, "a", "fieldManager=ann", spec={"map": {"k3": "x"}})
    await c.get(target)


@story
async def time_moves_only_with_a_change(c: Caller) -> None:
    target = f"{owneds(c)}/a"
    await lay(c, "a", "fieldManager=ann", spec={"text": "x"})
    first = (await c.get(target)).json["metadata"]
    same = []
    for _ in range(3):
        meta = (await lay(c, "a", "fieldManager=ann", spec={"text": "x"})).json["metadata"]
        same.append(meta["resourceVersion"] == first["resourceVersion"])
        obj = (await c.get(target)).json
        meta = (await c.put(target, obj, agent="bob/1")).json["metadata"]
        same.append(meta == first)
        meta = (await c.patch(target, {"spec": {"text": "x"}}, agent="bob/1")).json["metadata"]
        same.append(meta == first)
    await c.get(f"{target}?same={same}")
    await lay(c, "a", "fieldManager=bob", spec={"text": "x"})
    await lay(c, "a", "fieldManager=bob")
    await c.get(target)


@story
async def replicas_are_shared_with_the_scale(c: Caller) -> None:
    target = f"{owneds(c)}/a"
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}}
    await lay(c, "a", "fieldManager=ann", spec={"text": "x", "replicas": 2})
    for accept in ("application/json", TABLE, TABLE_BETA, PARTIAL):
        await c.get(f"{target}/scale", accept=accept)
        await c.patch(f"{target}/scale?dryRun=All", {"spec": {"replicas": 3}}, accept=accept)
    await c.get(f"{target}/scale?includeObject=Object", accept=TABLE)
    await c.patch(f"{target}/scale?fieldManager=hpa", {**scale, "spec": {"replicas": 2}}, "apply")
    await c.patch(f"{target}/scale?fieldManager=hpa", {**scale, "spec": {"replicas": 3}}, "apply")
    # An apply that changes the number ends in a 500 of the reference, which cannot convert its own Scale:
    # there is nothing to compare with.
    await c.get(target)
    await c.patch(f"{target}/scale?fieldManager=hpa", {**scale, "spec": {"replicas": 4}}, "apply")
    await lay(c, "a", "fieldManager=ann", spec={"text": "x", "replicas": 2})
    await lay(c, "a", "fieldManager=ann", spec={"text": "x"})
    await c.get(target)
    await c.patch(f"{target}/scale", {"spec": {"replicas": 5}}, agent="hand/1")
    await c.get(target)
    await c.patch(f"{target}/scale?fieldManager=hpa", {**scale, "spec": {"replicas": 4}}, "apply")
    await c.patch(f"{target}/scale?fieldManager=hpa&force=true", {**scale, "spec": {}}, "apply")
    await c.patch(f"{target}/scale?fieldManager=hpa", {**scale, "spec": {"replicas": "x"}}, "apply")
    await c.patch(f"{target}/scale?fieldManager=hpa", {**scale, "spec": {"zzz": 1}}, "apply")
    await c.patch(f"{target}/scale?fieldManager=hpa", {**scale, "kind": "Other"}, "apply")
    await c.patch(f"{target}/scale", {**scale, "spec": {"replicas": 1}}, "apply")
    await c.patch(
        f"{owneds(c)}/none/scale?fieldManager=hpa", {**scale, "metadata": {"name": "none"}}, "apply"
    )
    await c.get(target)
    await c.put(f"{target}/scale", {**scale, "spec": {"replicas": 6}}, agent="hand/1")
    await lay(c, "b", "fieldManager=ann", spec={"text": "x"})
    await c.patch(f"{owneds(c)}/b/scale", {"spec": {"replicas": 1}}, agent="hand/1")
    await lay(c, "b", "fieldManager=ann", spec={"replicas": 2})
    await c.get(f"{owneds(c)}/b")


@story
async def the_status_is_applied(c: Caller) -> None:
    target = f"{owneds(c)}/a"
    await lay(c, "a", "fieldManager=ann", spec={"text": "x"}, status={"phase": "lost"})
    conditions = [{"type": "A", "status": "True"}]
    bodies: tuple[Json, ...] = (
        owned("a", status={"phase": "x", "conditions": conditions}),
        owned("a", spec={"text": "other"}, status={"phase": "x"}),
        owned("a", meta={"labels": {"x": "1"}}, status={"phase": "y"}),
        owned("a", status={"conditions": [{"type": "A", "status": "False"}, {"type": "B"}]}),
        owned("a", status={"conditions": [{"status": "x"}]}),
        owned("a", status={"conditions": conditions * 2}),
        owned("a", status={"zzz": 1}),
        owned("a", status=None),
        owned("a", status={}),
        owned("a"),
    )
    for body in bodies:
        for manager in ("ctl", "ann"):
            await c.patch(f"{target}/status?fieldManager={manager}", body, "apply")
    await c.patch(f"{target}/status?fieldManager=ann&force=true", bodies[0], "apply")
    await c.patch(f"{target}/status", {"status": {"phase": "z"}}, agent="eve/1")
    await c.patch(f"{target}/status?fieldManager=ann", bodies[0], "apply")
    await lay(c, "a", "fieldManager=ann", spec={"text": "y"}, status={"phase": "lost"})
    await c.get(target)


_FIRST = an_object(
    spec=an_object(
        gone=STRING,
        list=a_list(STRING),
        set=a_list(STRING, "set"),
        map={"type": "object", "additionalProperties": STRING},
        block={"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"x": STRING, "y": STRING}},
        items=a_list(
            an_object(name=STRING, note=STRING, key=STRING | {"default": "k"}) | {"required": ["name"]},
            "map",
            ["name"],
        ),
        kind=STRING,
    )
)
_SECOND = an_object(
    spec=an_object(
        list=a_list(STRING, "set"),
        set=a_list(STRING),
        map={"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": STRING},
        block={"type": "object", "properties": {"x": STRING, "y": STRING}},
        items=a_list(an_object(name=STRING, note=STRING, key=STRING)),
        kind=INTEGER,
    )
)
_SPEC: Json = {
    "gone": "x",
    "list": ["a", "b"],
    "set": ["a", "b"],
    "map": {"a": "1", "b": "1"},
    "block": {"x": "1", "y": "1"},
    "items": [{"name": "a", "note": "x"}, {"name": "b"}],
}


@story
async def owners_outlive_a_change_of_the_schema(c: Caller) -> None:
    plural = f"changes{len(c.namespace)}s"
    definition = crd(plural, _FIRST, group="changing.dev", kind="Change")
    await c.post(CRDS, definition, quiet=True)
    path = in_namespace(c.namespace, plural, group="changing.dev")
    await until_served(c, path)

    def changed(name: str, spec: Json) -> Json:
        return {"apiVersion": "changing.dev/v1", "kind": "Change", "metadata": {"name": name}, "spec": spec}

    for name in ("a", "b", "d"):
        await c.patch(f"{path}/{name}?fieldManager=ann", changed(name, _SPEC), "apply")
        await c.patch(f"{path}/{name}", {"spec": {"list": ["c"], "set": ["a", "b", "c"]}}, agent="bob/1")
        parts: Json = {"map": {"a": "1"}, "items": [{"name": "b"}], "set": ["b"]}
        await c.patch(f"{path}/{name}?fieldManager=carl", changed(name, parts), "apply")
    await c.patch(f"{CRDS}/{plural}.changing.dev", _schema_change(_SECOND), "json", quiet=True)
    await until_judged(c, path, changed("probe", {"kind": 5}), 201)  # by the new schema
    await c.get(f"{path}/a")
    await c.patch(f"{path}/a", {"metadata": {"labels": {"x": "1"}}}, agent="dan/1")
    await c.patch(f"{path}/a", {"spec": {"map": {"c": "1"}, "block": {"x": "2"}}}, agent="dan/1")
    left = {name: value for name, value in _SPEC.items() if name != "gone"}
    await c.patch(f"{path}/b?fieldManager=ann", changed("b", _SPEC), "apply")
    await c.patch(f"{path}/b?fieldManager=ann", changed("b", left), "apply")
    await c.patch(f"{path}/b?fieldManager=ann&force=true", changed("b", left), "apply")
    await c.patch(f"{path}/b?fieldManager=carl", changed("b", {"map": {"a": "2"}}), "apply")
    await c.patch(f"{path}/d?fieldManager=ann&force=true", changed("d", {}), "apply")
    await c.patch(f"{path}/d?fieldManager=carl", changed("d", {}), "apply")
    await c.delete(f"{CRDS}/{plural}.changing.dev", quiet=True)


def _schema_change(schema: Json) -> list[Json]:
    return [{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": schema}]


@story
async def versions_are_applied_side_by_side(c: Caller) -> None:
    stable, beta = (f"{in_namespace(c.namespace, 'twins', version=v)}/a" for v in ("v1", "v1beta1"))
    await c.patch(f"{stable}?fieldManager=ann", twin("a", a="1", b="2"), "apply")
    await c.patch(f"{beta}?fieldManager=ann", twin("a", version="v1beta1", a="1"), "apply")
    await c.get(stable)
    await c.patch(f"{beta}?fieldManager=bob", twin("a", version="v1beta1", a="2"), "apply")
    await c.patch(f"{beta}?fieldManager=bob&force=true", twin("a", version="v1beta1", a="2"), "apply")
    await c.patch(f"{beta}?fieldManager=bob", twin("a", version="v1beta1", b="2"), "apply")
    await c.patch(f"{stable}?fieldManager=ann", twin("a", a="1", b="2"), "apply")
    await c.patch(f"{stable}?fieldManager=bob", twin("a", b="2"), "apply")
    await c.patch(beta, {"spec": {"a": "3"}}, agent="carl/1")
    await c.patch(stable, {"spec": {"a": "4"}}, agent="carl/1")
    await c.patch(f"{stable}?fieldManager=ann&force=true", twin("a"), "apply")
    await c.get(beta)


@story
async def owners_outlive_their_version(c: Caller) -> None:
    """A version that owners have written in is served no longer, and then is no more."""
    plural, schema = f"leaves{len(c.namespace)}s", an_object(spec=an_object(a=STRING, b=STRING))
    definition = crd(plural, schema, group="leaving.dev", kind="Leaf")
    versions = definition["spec"]["versions"]
    beta = {**versions[0], "name": "v1beta1", "storage": False}
    versions.append(beta)
    await c.post(CRDS, definition, quiet=True)
    newer, older = (
        in_namespace(c.namespace, plural, group="leaving.dev", version=v) for v in ("v1", "v1beta1")
    )
    for path in (newer, older):
        await until_served(c, path)

    def leaf(name: str, version: str = "v1", **spec: str) -> Json:
        return {
            "apiVersion": f"leaving.dev/{version}", "kind": "Leaf", "metadata": {"name": name}, "spec": spec
        }  # fmt: skip

    async def write(name: str) -> None:
        await c.patch(f"{newer}/{name}", {"metadata": {"labels": {"x": name}}}, agent="dan/1")
        await c.patch(f"{newer}/{name}", {"spec": {"b": "2"}}, agent="dan/1")

    async def lay_over(name: str) -> None:
        await c.patch(f"{newer}/{name}?fieldManager=bob", leaf(name, a="2"), "apply")
        await c.patch(f"{newer}/{name}?fieldManager=ann", leaf(name, b="1"), "apply")
        await c.patch(f"{newer}/{name}?fieldManager=ann&force=true", leaf(name, b="1"), "apply")

    for name in ("a", "b", "c", "d"):
        await c.post(older, leaf(name, "v1beta1", a="1"), agent="eve/1")
        await c.patch(f"{older}/{name}?fieldManager=ann", leaf(name, "v1beta1", a="1", b="1"), "apply")
    for number, left in enumerate(({**beta, "served": False}, None)):
        kept = [versions[0], left] if left else versions[:1]
        await c.patch(f"{CRDS}/{plural}.leaving.dev", {"spec": {"versions": kept}}, quiet=True)
        await until_gone(c, older)
        await until_served(c, newer)
        await write("ac"[number])
        await lay_over("bd"[number])
        await c.get(newer)
    await c.delete(f"{CRDS}/{plural}.leaving.dev", quiet=True)


@story
async def appliers_and_updaters_mix(c: Caller) -> None:
    target = f"{in_namespace(c.namespace)}/a"
    await c.post(in_namespace(c.namespace), widget("a", tags=["x"], parts=[{"name": "p"}]), agent="ann/1")
    await c.patch(f"{target}?fieldManager=ann", widget("a", tags=["x", "y"]), "apply")
    await c.patch(f"{target}?fieldManager=ann", widget("a", colour="blue"), "apply")
    obj = (await c.get(target)).json
    obj["spec"] |= {"tags": ["z"], "parts": [{"name": "q"}, {"name": "p", "count": 4}], "colour": "green"}
    await c.put(target, obj, agent="ann/1")
    await c.put(target, obj, agent="ann/1")
    await c.patch(f"{target}?fieldManager=ann", widget("a", colour="blue"), "apply")
    await c.patch(f"{target}?fieldManager=bob", widget("a", parts=[{"name": "p", "count": 4}]), "apply")
    await c.patch(f"{target}?fieldManager=bob", widget("a", parts=[]), "apply")
    await c.patch(f"{target}?fieldManager=bob&fieldManager=carl", {"spec": {"size": 3}})
    await c.patch(f"{target}?fieldManager=bob", [{"op": "remove", "path": "/spec/tags"}], "json")
    await c.patch(f"{target}?fieldManager=bob", widget("a", size=3), "apply")
    await c.get(target)

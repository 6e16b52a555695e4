"""Stories about server-side apply: what is refused, how lists and maps are laid over each other."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from conformance.compare import story
from conformance.kinds import GAUGES_PATH, Json, gauge, in_namespace, owned, widget
from conformance.peers import Answer, Caller

BY_ME = "fieldManager=me"


def owneds(c: Caller) -> str:
    """The path of the story's Owneds."""
    return in_namespace(c.namespace, "owneds", group="owned.dev")


async def lay(
    c: Caller, name: str, query: str = BY_ME, /, *, meta: Json | None = None, **parts: Any
) -> Answer:
    """Apply an Owned of the story's namespace."""
    return await c.patch(f"{owneds(c)}/{name}?{query}", owned(name, meta=meta, **parts), "apply")


@story
async def applies_are_refused_by_their_options(c: Caller) -> None:
    path = f"{owneds(c)}/a"
    body = owned("a", spec={"text": "x"})
    await c.patch(path, body, "apply")
    for query in (
        "fieldManager=",
        f"fieldManager={'x' * 128}&dryRun=All",
        f"fieldManager={'x' * 129}",
        "fieldManager=a%07b",
        "fieldManager=a%0Ab%00c",
        "fieldManager=%C3%A4&dryRun=All",
        "fieldManager=me&force=maybe",
        "fieldManager=me&force=1&dryRun=All",
        "fieldManager=me&force=T&dryRun=All",
        "fieldManager=me&force=&dryRun=All",
        "fieldManager=me&dryRun=Some",
        "fieldManager=me&fieldValidation=Other&dryRun=All",
        "fieldManager=me&fieldManager=you&dryRun=All",
        "fieldManager=%20&dryRun=All",
    ):
        await c.patch(f"{path}?{query}", body, "apply")
    await c.patch(f"{path}?force=true", {"spec": {}}, "merge")
    await c.patch(f"{path}?force=false", {"spec": {}}, "merge")
    await c.patch(f"{path}?fieldManager=a%07b", {"spec": {}}, "merge")
    await c.post(f"{owneds(c)}?fieldManager={'x' * 129}", body)
    await c.put(f"{path}?fieldManager={'x' * 129}", body)
    await c.get(path)


@story
async def applies_must_name_what_they_are_about(c: Caller) -> None:
    path = f"{owneds(c)}/a?{BY_ME}"
    for there in (False, True):
        if there:
            await c.post(owneds(c), owned("a", spec={"text": "x"}))
        for body in (
            {},
            {"metadata": {"name": "a"}},
            {"apiVersion": "owned.dev/v1", "metadata": {"name": "a"}},
            {"kind": "Owned", "metadata": {"name": "a"}},
            {"apiVersion": "owned.dev/v2", "kind": "Owned", "metadata": {"name": "a"}},
            {"apiVersion": "other.dev/v1", "kind": "Owned", "metadata": {"name": "a"}},
            {"apiVersion": "v1", "kind": "Owned", "metadata": {"name": "a"}},
            {"apiVersion": "a/b/c", "kind": "Owned", "metadata": {"name": "a"}},
            {"apiVersion": "owned.dev/v1", "kind": "Other", "metadata": {"name": "a"}},
            {"apiVersion": "owned.dev/v1", "kind": "OwnedList", "items": []},
            {"apiVersion": 5, "kind": "Owned", "metadata": {"name": "a"}},
            {"apiVersion": "owned.dev/v1", "kind": 5, "metadata": {"name": "a"}},
            {"apiVersion": "owned.dev/v1", "kind": "Owned"},
            {"apiVersion": "owned.dev/v1", "kind": "Owned", "metadata": None},
            {"apiVersion": "owned.dev/v1", "kind": "Owned", "metadata": {}},
            {"apiVersion": "owned.dev/v1", "kind": "Owned", "metadata": {"name": ""}},
            {"apiVersion": "owned.dev/v1", "kind": "Owned", "metadata": {"name": None}},
            {"apiVersion": "owned.dev/v1", "kind": "Owned", "metadata": {"generateName": "a"}},
            owned("b"),
            owned("a", meta={"namespace": "elsewhere"}),
            owned("a", meta={"namespace": c.namespace}),
            owned("a", meta={"namespace": ""}),
            owned("a", meta={"uid": "x"}),
            owned("a", meta={"resourceVersion": "1"}),
            owned("a", meta={"resourceVersion": "x"}),
            owned("a", meta={"resourceVersion": ""}),
            owned("a", meta={"resourceVersion": "0"}),
            owned("a", meta={"generation": 7, "creationTimestamp": "2020-01-01T00:00:00Z"}),
            owned("a", meta={"creationTimestamp": None}),
            owned("a", meta={"deletionTimestamp": "2020-01-01T00:00:00Z"}),
        ):
            await c.patch(f"{path}&dryRun=All", body, "apply")
            await c.patch(f"{path}&dryRun=All&force=true&fieldValidation=Strict", body, "apply")
    await c.get(f"{owneds(c)}/a")


@story
async def applied_owners_must_be_empty(c: Caller) -> None:
    path = f"{owneds(c)}/a?{BY_ME}"
    entry = {
        "manager": "you",
        "operation": "Apply",
        "apiVersion": "owned.dev/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:text": {}}},
    }
    lists: tuple[Any, ...] = (None, [], [{}], [entry], "x", {}, 5, [5])
    for there in (False, True):
        for owners in lists:
            body = owned("a", meta={"managedFields": owners}, spec={"text": "x"})
            await c.patch(f"{path}&dryRun=All", body, "apply")
        if not there:
            await lay(c, "a", spec={"text": "x"})


@story
async def applied_bodies_are_read(c: Caller) -> None:
    path = f"{owneds(c)}/a?{BY_ME}"
    texts = (
        b"",
        b"null",
        b"{",
        b"[]",
        b"5",
        b'"x"',
        b"a: [",
        b"\ttab: x",
        b"apiVersion: owned.dev/v1\nkind: Owned\nmetadata:\n  name: a\nspec:\n  text: x\n  number: 3\n",
        b"---\napiVersion: owned.dev/v1\nkind: Owned\nmetadata: {name: a}\nspec: {text: y}\n",
        b"apiVersion: owned.dev/v1\nkind: Owned\nmetadata: {name: a}\n---\nkind: Other\n",
        b"apiVersion: owned.dev/v1\nkind: Owned\nmetadata: {name: a}\nspec: {text: yes}\n",
        b"apiVersion: owned.dev/v1\nkind: Owned\nmetadata: {name: a}\nspec: {text: 'yes', number: 010}\n",
        b"apiVersion: owned.dev/v1\nkind: Owned\nmetadata: {name: a}\nspec: {number: 1e1}\n",
        b"apiVersion: owned.dev/v1\nkind: Owned\nmetadata: {name: a}\nspec: {text: 2020-01-01}\n",
        b"apiVersion: owned.dev/v1\nkind: Owned\nmetadata: {name: a}\nspec: {map: {1: x, true: y}}\n",
        b"apiVersion: owned.dev/v1\nkind: Owned\nmetadata: {name: a}\nspec: {text: !!binary eA==}\n",
        b"apiVersion: owned.dev/v1\nkind: Owned\nmetadata: {name: a}\nspec: &s {text: x}\nstatus: *s\n",
        b"apiVersion: owned.dev/v1\nkind: Owned\nmetadata: {name: a}\nspec: {text: x, text: y}\n",
        b"apiVersion: owned.dev/v1\nkind: Owned\nkind: Owned\nmetadata: {name: a, name: a}\n",
        b'{"apiVersion":"owned.dev/v1","kind":"Owned","metadata":{"name":"a"},"spec":{"text":"x","text":"y"}}',
        b'{"apiVersion":"owned.dev/v1","kind":"Owned","metadata":{"name":"a"},"spec":{"number":1.5}}',
        b'{"apiVersion":"owned.dev/v1","kind":"Owned","metadata":{"name":"a"},"spec":{"number":2.0}}',
        b'{"apiVersion":"owned.dev/v1","kind":"Owned","metadata":{"name":"a"},"spec":{"text":"\\u00e4"}}',
    )
    for text in texts:
        for strictness in ("Strict", "Warn", "Ignore"):
            await c.patch(f"{path}&fieldValidation={strictness}&dryRun=All", text, "apply")
    await c.patch(path, texts[8], "apply")
    for text in texts[9:]:
        await c.patch(path, text, "apply")
    await c.get(f"{owneds(c)}/a")


_WRONG_SPECS: tuple[Any, ...] = (
    None,
    5,
    "x",
    [],
    [1],
    {"text": 5},
    {"text": True},
    {"text": None},
    {"text": {}},
    {"text": []},
    {"number": "5"},
    {"number": True},
    {"number": 1.5},
    {"number": {}},
    {"mixed": True},
    {"mixed": {}},
    {"mixed": 1.5},
    {"mixed": None},
    {"either": None},
    {"names": "a"},
    {"names": {}},
    {"names": [1]},
    {"names": [None]},
    {"names": [{}]},
    {"names": [[]]},
    {"names": ["a", "a"]},
    {"names": ["a", "b", "a", "b"]},
    {"whole": [1]},
    {"whole": [None]},
    {"whole": [{"name": "a", "zzz": 1}]},
    {"whole": {}},
    {"ports": [{}]},
    {"ports": [{"protocol": "TCP"}]},
    {"ports": [{"port": 1}, {"port": 1}]},
    {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
    {"ports": [{"port": 1}, {"port": 1, "protocol": "UDP"}]},
    {"ports": [{"port": "1"}]},
    {"ports": [{"port": None}]},
    {"ports": [{"port": 1, "protocol": None}]},
    {"ports": [{"port": 1.5}]},
    {"ports": [{"port": 1, "zzz": 1}]},
    {"ports": [5]},
    {"ports": ["x"]},
    {"ports": [None]},
    {"ports": [[]]},
    {"ports": {}},
    {"map": {"a": 1}},
    {"map": {"a": None}},
    {"map": {"a": {}}},
    {"map": []},
    {"maps": {"a": {"zzz": 1}}},
    {"maps": {"a": None}},
    {"maps": {"a": 5}},
    {"block": {"zzz": 1}},
    {"block": {"x": 1}},
    {"block": []},
    {"anything": {"known": {"x": 1}}},
    {"anything": {"known": {"zzz": 1}}},
    {"anything": {"known": 5}},
    {"anything": {"zzz": {"a": [None, {"b": None}]}}},
    {"anything": []},
    {"deep": {"y": {"zzz": 1}}},
    {"deep": {"y": 5}},
    {"zzz": 1},
    {"text": 5, "number": "5"},
    {"replicas": 99999999999},
    {"replicas": -1},
)


@story
async def applied_specs_must_be_typed(c: Caller) -> None:
    for name in ("new", "there"):
        if name == "there":
            await c.post(
                owneds(c), owned("there", spec={"text": "x", "names": ["z"], "ports": [{"port": 9}]})
            )
        for spec in _WRONG_SPECS:
            await lay(c, name, f"{BY_ME}&dryRun=All&force=true", spec=spec)
    await lay(c, "there", f"{BY_ME}&fieldValidation=Strict", spec={"anything": {"known": {"zzz": 1}}})
    await lay(c, "there", zzz=1)
    await lay(c, "there", meta={"zzz": 1})


@story
async def applied_metadata_must_be_typed(c: Caller) -> None:
    await c.post(owneds(c), owned("a", meta={"labels": {"x": "y"}}))
    owner = {"apiVersion": "nobody.dev/v1", "kind": "Owner", "name": "o", "uid": "1"}
    metas: tuple[Json, ...] = (
        {"labels": {"a": 1}},
        {"labels": {"a": None}},
        {"labels": {"a": ""}},
        {"labels": {}},
        {"labels": None},
        {"labels": []},
        {"labels": {"bad key": "x"}},
        {"labels": {"a": "bad value!"}},
        {"annotations": {"a": 1}},
        {"annotations": {"a": "x" * 262145}},
        {"annotations": None},
        {"finalizers": ["x"]},
        {"finalizers": ["a.dev/x", "a.dev/x"]},
        {"finalizers": []},
        {"finalizers": [1]},
        {"finalizers": [None]},
        {"ownerReferences": [{}]},
        {"ownerReferences": [{"uid": "1"}]},
        {"ownerReferences": [owner, owner]},
        {"ownerReferences": [owner, {**owner, "uid": "2"}]},
        {"ownerReferences": [{**owner, "zzz": 1}]},
        {"ownerReferences": [{**owner, "controller": True}]},
        {"ownerReferences": []},
        {"generation": "7"},
        {"deletionGracePeriodSeconds": 5},
        {"generateName": "x-"},
    )
    for meta in metas:
        await lay(c, "a", f"{BY_ME}&dryRun=All", meta=meta)
        await lay(c, "new", f"{BY_ME}&dryRun=All", meta=meta)
    await lay(c, "Bad_Name", f"{BY_ME}&dryRun=All")


@story
async def lists_and_maps_are_laid_over(c: Caller) -> None:
    await lay(c, "a", spec={"names": ["a", "b"], "ports": [{"port": 1}, {"port": 2}], "map": {"a": "1"}})
    for number, spec in enumerate(
        (
            {"names": ["c", "b"], "ports": [{"port": 2, "note": "x"}, {"port": 3}], "map": {"b": "2"}},
            {"names": ["b", "a"], "ports": [{"port": 3}, {"port": 1, "protocol": "UDP"}]},
            {"names": [], "ports": [], "map": {}},
            {"names": None, "ports": None, "map": None, "deep": None},
            {"whole": [{"name": "a"}, {"name": "a"}], "block": {"x": "1"}},
            {"whole": [{"name": "b"}], "block": {"y": "1"}},
            {"whole": [], "block": {}},
            {"either": {"a": {"b": 1}}, "anything": {"known": {"x": "1"}, "free": {"a": 1}}},
            {"either": {"a": {"c": 1}}, "anything": {"free": {"b": 1, "l": [1, {"x": 2}]}}},
            {"either": 5, "mixed": "50%"},
            {"either": [1], "mixed": 50},
            {"deep": {"x": "1", "y": {"z": "1"}}, "maps": {"a": {"x": "1"}}},
            {"deep": {"y": {"w": 1}}, "maps": {"a": {"y": 1}, "b": {}}},
            {"deep": {}, "maps": {"b": {}}},
            {},
        )
    ):
        await lay(c, "a", f"fieldManager=m{number % 3}&force=true", spec=spec)
    await c.get(f"{owneds(c)}/a")


@story
async def free_content_is_applied(c: Caller) -> None:
    path = f"{GAUGES_PATH}/{c.namespace}"
    specs: tuple[Json, ...] = (
        {"a": {"b": {"c": 1}}, "l": [1, 2], "n": None},
        {"a": {"b": {"d": 1}}, "l": [3]},
        {"a": {"b": [1]}},
        {"a": 5},
        {"a": {}},
        {"a": None},
        {"x.y/z": {"f:a": 1, "": 2, ".": 3, "k:{}": 4}},
        {},
    )
    for number, spec in enumerate(specs):
        await c.patch(f"{path}?fieldManager=m{number % 2}&force=true", gauge(c.namespace, **spec), "apply")
    path = in_namespace(c.namespace)
    for embedded in (
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x", "labels": {"a": "b"}},
            "spec": {"x": 1},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "y", "finalizers": ["a.dev/x"]}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"zzz": 1}},
        {"kind": "Pod"},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"y": 1}},
    ):
        await c.patch(f"{path}/a?{BY_ME}", widget("a", embedded=embedded), "apply")
    await c.patch(f"{path}/a?fieldManager=you", widget("a", nested={"name": "x"}), "apply")
    await c.patch(f"{path}/a?fieldManager=you", widget("a", parts=[{"name": "x"}], tags=["b"]), "apply")
    await c.patch(f"{path}/a?{BY_ME}", widget("a", parts=[{"name": "x", "count": 1}], tags=["b"]), "apply")
    await c.patch(f"{path}/a?{BY_ME}", widget("a", parts=[{"name": "x", "count": 2}], size=200), "apply")
    await c.patch(f"{path}/a?{BY_ME}", widget("a", colour=None, note=None, enabled=None), "apply")
    await c.patch(f"{path}/b?{BY_ME}", widget("b", choice={}, size=0), "apply")
    await c.patch(f"{path}/b?{BY_ME}", {**widget("b"), "spec": {}}, "apply")


async def _another_second() -> None:
    """The times of appliers are whole seconds, and whether those of two are the same decides if the object
    is written once more: here they are not, on each server."""
    await asyncio.sleep(1.0 - time.time() % 1.0 + 0.02)


@story
async def applies_create(c: Caller) -> None:
    path = owneds(c)
    watched = owned("a", meta={"labels": {"x": "1"}}, spec={"text": "x"}, status={"phase": "lost"})
    async with c.watch(path) as events:
        await events.opened()
        await c.patch(f"{path}/a?{BY_ME}&dryRun=All", watched, "apply")
        await c.get(f"{path}/a")
        await c.patch(f"{path}/a?{BY_ME}", watched, "apply")
        await c.patch(f"{path}/a?{BY_ME}", watched, "apply")
        await _another_second()
        await c.patch(f"{path}/a?fieldManager=you", watched, "apply")
        await c.patch(f"{path}/a?fieldManager=you", watched, "apply")
        await _another_second()
        await lay(c, "a", meta={"labels": {"x": "1"}}, spec={"text": "x", "number": 1})
        await lay(c, "last")
        await events.until("last")
    await c.patch(f"{path}/b/status?{BY_ME}", owned("b", status={"phase": "x"}), "apply")
    await _another_second()
    await c.patch(
        f"{path}/a?{BY_ME}", watched, "apply", accept="application/json;as=Table;v=v1;g=meta.k8s.io"
    )
    meta = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    await _another_second()
    await c.patch(f"{path}/a?{BY_ME}", watched, "apply", accept=meta)
    await c.patch(f"{path}?{BY_ME}", watched, "apply")
    await c.patch(f"{path}/a?{BY_ME}", watched, "apply", accept="text/html")
    await c.delete(f"{path}/a")
    await c.get(f"{path}/a")


@story
async def applies_meet_the_dying(c: Caller) -> None:
    path = owneds(c)
    await lay(c, "a", meta={"finalizers": ["a.dev/x"]}, spec={"text": "x"})
    await c.delete(f"{path}/a")
    await lay(c, "a", meta={"finalizers": ["a.dev/x"]}, spec={"text": "y"})
    await lay(c, "a", "fieldManager=you", meta={"finalizers": ["a.dev/y"]})
    await lay(c, "a", f"{BY_ME}&dryRun=All", spec={"text": "y"})
    await lay(c, "a", spec={"text": "z"})
    await c.get(f"{path}/a")
    await lay(c, "b", meta={"finalizers": ["a.dev/x"]})
    answer = await c.get(f"{path}/b")
    for version in (answer.json["metadata"]["resourceVersion"], "1"):
        meta = {"resourceVersion": version, "labels": {"x": "1"}}
        await c.patch(f"{path}/b?fieldManager=you", owned("b", meta=meta), "apply")
    meta = {"uid": answer.json["metadata"]["uid"], "labels": {"x": "1"}}
    await c.patch(f"{path}/b?fieldManager=you", owned("b", meta=meta), "apply")
    await c.patch(f"{path}/b?fieldManager=you", owned("b", meta={"uid": "other"}), "apply")


@story
async def applies_may_name_a_revision_that_is_gone(c: Caller) -> None:
    path = in_namespace(c.namespace)
    made = (await c.post(path, widget("a"))).json
    meta = {"resourceVersion": made["metadata"]["resourceVersion"]}
    await c.delete(f"{path}/a")
    await c.patch(f"{path}/a?fieldManager=ann&dryRun=All", widget("a", meta=meta), "apply")
    await c.patch(f"{path}/a?fieldManager=ann", widget("a", meta=meta), "apply")
    await c.patch(f"{path}/a?fieldManager=ann", widget("a", meta=meta), "apply")
    await c.get(path)

"""Stories about patches of every kind."""

from __future__ import annotations

from typing import Any

from conformance.compare import story
from conformance.kinds import GAUGES_PATH, gauge, in_namespace, widget
from conformance.peers import Caller


@story
async def merge_patches(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a", tags=["x"], limits={"a": 1, "b": 2}, parts=[{"name": "p"}]))
    target = f"{path}/a"
    patches: tuple[Any, ...] = (
        {},
        {"spec": {"size": 2}},
        {"spec": {"size": 2}},
        {"spec": {"limits": {"a": None, "c": 3}}},
        {"spec": {"tags": ["y", "z"]}},
        {"spec": {"tags": None, "colour": None, "nested": None}},
        {"spec": {"size": None}},
        {"spec": {"size": "x"}},
        {"spec": {"size": 0}},
        {"spec": {"zzz": 1}},
        {"zzz": 1},
        {"spec": None},
        {"spec": 5},
        {"metadata": None},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"labels": {"a": None}}},
        {"metadata": {"labels": {"bad key": "x"}}},
        {"metadata": {"labels": {"a": 5}}},
        {"metadata": {"name": "b"}},
        {"metadata": {"namespace": "b"}},
        {"metadata": {"uid": "b"}},
        {"metadata": {"uid": None}},
        {"metadata": {"creationTimestamp": None}},
        {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}},
        {"metadata": {"resourceVersion": "1"}},
        {"metadata": {"resourceVersion": None}},
        {"metadata": {"resourceVersion": "x"}},
        {"metadata": {"generation": 50}},
        {"metadata": {"managedFields": [{}]}},
        {"metadata": {"zzz": 1}},
        {"apiVersion": "test.dev/v2"},
        {"kind": "Other"},
        {"kind": None},
        {"status": {"phase": "x"}},
        [],
        "x",
        5,
    )
    for patch in patches:
        await c.patch(f"{target}?fieldValidation=Ignore", patch)
    for patch in ({"spec": {"zzz": 1}}, {"zzz": {}}, {"metadata": {"zzz": 1}}):
        for strictness in ("Strict", "Warn", "Other"):
            await c.patch(f"{target}?fieldValidation={strictness}", patch)
    await c.patch(f"{path}/missing", {"spec": {"size": 2}})
    await c.patch(target, b"{", "merge")
    await c.patch(target, b"null", "merge")
    await c.patch(target, b"")
    await c.patch(target, b'{"spec":{"size":3,"size":4}}')
    await c.patch(f"{target}?fieldValidation=Strict", b'{"spec":{"size":3,"size":4}}')
    await c.patch(f"{target}?dryRun=All", {"spec": {"size": 99}})
    await c.patch(f"{target}?force=true", {"spec": {"size": 9}})
    await c.get(target)


@story
async def json_patches(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a", tags=["x", "y"], limits={"a/b": 1, "c~d": 2}))
    target = f"{path}/a"
    patches: tuple[Any, ...] = (
        [],
        [{"op": "replace", "path": "/spec/size", "value": 2}],
        [{"op": "test", "path": "/spec/size", "value": 2}],
        [{"op": "test", "path": "/spec/size", "value": 3}],
        [{"op": "test", "path": "/spec/missing", "value": None}],
        [{"op": "test", "path": "/spec/missing", "value": 1}],
        [{"op": "test", "path": "/spec/size", "value": True}],
        [{"op": "add", "path": "/spec/tags/-", "value": "z"}],
        [{"op": "add", "path": "/spec/tags/0", "value": "first"}],
        [{"op": "add", "path": "/spec/tags/9", "value": "z"}],
        [{"op": "add", "path": "/spec/tags/x", "value": "z"}],
        [{"op": "replace", "path": "/spec/tags/-", "value": "z"}],
        [{"op": "replace", "path": "/spec/tags/99999999999999999999", "value": "z"}],
        [{"op": "move", "from": "/spec/tags/0", "path": "/spec/tags/2"}],
        [{"op": "remove", "path": "/spec/tags/0"}],
        [{"op": "remove", "path": "/spec/tags/9"}],
        [{"op": "remove", "path": "/spec/missing"}],
        [{"op": "replace", "path": "/spec/missing", "value": 1}],
        [{"op": "replace", "path": "/spec/limits/a~1b", "value": 7}],
        [{"op": "remove", "path": "/spec/limits/c~0d"}],
        [{"op": "add", "path": "/spec/limits/new", "value": 1}],
        [{"op": "add", "path": "/spec/missing/new", "value": 1}],
        [{"op": "move", "from": "/spec/limits/new", "path": "/spec/limits/moved"}],
        [{"op": "copy", "from": "/spec/limits/moved", "path": "/spec/limits/copied"}],
        [{"op": "move", "from": "/spec/missing", "path": "/spec/other"}],
        [{"op": "move", "from": "/spec/limits", "path": "/spec/limits/below"}],
        [{"op": "replace", "path": "/spec/size/bar", "value": 1}],
        [{"op": "jump", "path": "/spec"}],
        [{"op": "add", "path": "spec/x", "value": 1}],
        [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}],
        [{"op": "add", "path": "/metadata/labels/z", "value": "y"}],
        [{"op": "replace", "path": "/metadata/name", "value": "b"}],
        [{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}],
        [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}],
        [{"op": "remove", "path": "/metadata/resourceVersion"}],
        [{"op": "remove", "path": "/spec"}],
        [{"op": "remove", "path": "/metadata"}],
        [{"op": "remove", "path": ""}],
        [{"op": "replace", "path": "", "value": {}}],
        [{"op": "replace", "path": "/spec/size", "value": "x"}],
        [{"op": "replace", "path": "/spec/size"}],
        [{"path": "/spec/size", "value": 3}],
        [{"op": "add", "value": 3}],
        [{}],
        [5],
        {},
        "x",
        {"op": "add"},
    )
    for patch in patches:
        await c.patch(target, patch, "json")
    await c.patch(target, b"[", "json")
    await c.patch(target, b"null", "json")
    await c.patch(f"{path}/missing", [{"op": "remove", "path": "/spec"}], "json")
    await c.patch(target, [{"op": "add", "path": "/spec/words", "value": ["x"]}] * 10001, "json")
    await c.get(target)


@story
async def patches_of_other_types(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a"))
    await c.patch(f"{path}/a", {"spec": {"size": 2}}, "strategic")
    for media in ("application/json", "text/plain", "application/yaml", ""):
        await c.call("PATCH", f"{path}/a", {"spec": {"size": 2}}, content_type=media)
    await c.patch(f"{GAUGES_PATH}/{c.namespace}", {"spec": {"x": 1}}, "merge")
    await c.post(GAUGES_PATH, gauge(c.namespace, x={"y": 1}, z=[1, 2]))
    await c.patch(f"{GAUGES_PATH}/{c.namespace}", {"spec": {"x": {"y": None, "w": {"v": None}}, "z": [3]}})
    for x in ("text", ["b"], [{"b": "c"}], [1], {"y": 1}, None, {"b": {"c": {"d": None}}}):
        await c.patch(f"{GAUGES_PATH}/{c.namespace}", {"spec": {"x": x}})
    await c.patch(
        f"{GAUGES_PATH}/{c.namespace}", [{"op": "add", "path": "/spec/z/0", "value": {"a": 1}}], "json"
    )
    await c.patch(
        f"{GAUGES_PATH}/{c.namespace}", [{"op": "test", "path": "/spec/z/0", "value": {"a": 1.0}}], "json"
    )

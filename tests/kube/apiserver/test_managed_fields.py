"""Who owns which field, and what server-side apply makes of it."""

from __future__ import annotations

from typing import Any

from kube.apiserver.callers import (
    CONFIG_MAPS,
    MERGE,
    SECRETS,
    Api,
)

Json = dict[str, Any]
APPLY = "application/apply-patch+yaml"


def owners(obj: Json) -> dict[str, Any]:
    """The sets of fields by manager and operation, and the subresource where there is one."""
    return {
        " ".join(filter(None, (entry["manager"], entry["operation"], entry.get("subresource")))): entry[
            "fieldsV1"
        ]
        for entry in obj["metadata"].get("managedFields", [])
    }


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def apply(api: Api, obj: Json, manager: str, *, force: bool = False) -> Any:
    target = f"{CONFIG_MAPS}/{obj['metadata']['name']}?fieldManager={manager}"
    return await api.call("PATCH", target + ("&force=true" if force else ""), obj, content_type=APPLY)


async def test_plain_data_of_a_secret_is_owned_as_data(api: Api) -> None:
    made = await api.secret("a")
    assert owners(made) == {"unknown Update": {"f:data": {".": {}, "f:key": {}}, "f:type": {}}}


async def test_of_a_large_object_a_field_is_owned_by_who_changed_it_last(api: Api) -> None:
    names = [f"key-{number:04}" for number in range(1_500)]
    await api.ok("POST", f"{CONFIG_MAPS}?fieldManager=ann", config_map("a", **dict.fromkeys(names, "1")))
    for changes in (names[:2], [names[1], names[9]], names[:700]):
        data = dict.fromkeys(changes, str(len(changes)) + changes[0])
        changed = await api.ok(
            "PATCH", f"{CONFIG_MAPS}/a?fieldManager=bob", {"data": data}, content_type=MERGE
        )
    assert owners(changed) == {
        "ann Update": {"f:data": {".": {}, **{f"f:{name}": {} for name in names[700:]}}},
        "bob Update": {"f:data": {f"f:{name}": {} for name in names[:700]}},
    }


async def test_a_label_may_be_called_like_the_owners(api: Api) -> None:
    obj = config_map("a", x="1")
    obj["metadata"]["labels"] = {"a": "b", "managedFields": "c"}
    await api.ok("POST", CONFIG_MAPS, obj)
    changed = await api.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "2"}}, content_type=MERGE)
    assert changed["metadata"]["labels"] == {"a": "b", "managedFields": "c"}


# --- server-side apply ------------------------------------------------------------------------------------


async def test_a_field_of_somebody_else_is_a_conflict_unless_forced(api: Api) -> None:
    await api.ok("POST", f"{CONFIG_MAPS}?fieldManager=ann", config_map("a", x="1"))
    refused = await apply(api, config_map("a", x="2"), "bob")
    assert refused.status == 409
    assert refused.message == 'Apply failed with 1 conflict: conflict with "ann" using v1: .data.x'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "ann" using v1', "field": ".data.x"}
    assert refused.json["details"]["causes"] == [cause]
    forced = await apply(api, config_map("a", x="2"), "bob", force=True)
    assert owners(forced.json) == {"ann Update": {"f:data": {}}, "bob Apply": {"f:data": {"f:x": {}}}}


async def test_what_was_there_before_the_first_apply_has_an_owner(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
    reset: Json = {"metadata": {"managedFields": [{}]}}
    await api.ok("PATCH", f"{CONFIG_MAPS}/a", reset, content_type=MERGE)
    applied = await apply(api, config_map("a", y="1"), "ann")
    assert owners(applied.json) == {
        "before-first-apply Update": {"f:data": {".": {}, "f:x": {}}},
        "ann Apply": {"f:data": {"f:y": {}}},
    }


async def test_owners_of_a_deleted_object_are_told_to_watchers(api: Api) -> None:
    await api.secret("a")
    stream = await api.watch(SECRETS)
    await api.ok("DELETE", f"{SECRETS}/a")
    events = [await stream.next() for _ in range(2)]
    await stream.close()
    assert events[1]["type"] == "DELETED"
    assert owners(events[1]["object"]) == owners(events[0]["object"])

"""Who owns which field, and what server-side apply makes of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kube.apiserver.callers import (
    CERTIFICATES,
    CONFIG_MAPS,
    CRDS,
    JSON_PATCH,
    MERGE,
    SECRETS,
    Api,
    certificate,
    thing_crd,
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


async def test_a_creator_owns_what_it_sent(api: Api) -> None:
    made = await api.ok("POST", CERTIFICATES, certificate("web", labels={"a": "b"}), user_agent="ann/1.0 (x)")
    assert owners(made) == {
        "ann Update": {
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {".": {}, "f:dnsNames": {}, "f:issuerRef": {".": {}, "f:name": {}}, "f:secretName": {}},
        }
    }
    entry = made["metadata"]["managedFields"][0]
    assert entry["apiVersion"] == "cert-manager.io/v1"
    assert entry["fieldsType"] == "FieldsV1"
    assert entry["time"] == made["metadata"]["creationTimestamp"]


async def test_plain_data_of_a_secret_is_owned_as_data(api: Api) -> None:
    made = await api.secret("a")
    assert owners(made) == {"unknown Update": {"f:data": {".": {}, "f:key": {}}, "f:type": {}}}


async def test_a_field_is_owned_by_who_changed_it_last(api: Api) -> None:
    await api.ok("POST", f"{CONFIG_MAPS}?fieldManager=ann", config_map("a", x="1", y="1"))
    api.clock.advance(timedelta(seconds=10))
    target = f"{CONFIG_MAPS}/a?fieldManager=bob"
    changed = await api.ok("PATCH", target, {"data": {"x": "2", "z": "3"}}, content_type=MERGE)
    assert owners(changed) == {
        "ann Update": {"f:data": {".": {}, "f:y": {}}},
        "bob Update": {"f:data": {"f:x": {}, "f:z": {}}},
    }
    first, second = (entry["time"] for entry in changed["metadata"]["managedFields"])
    assert first < second


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


async def test_a_patch_that_changes_nothing_leaves_owners_and_revision(api: Api) -> None:
    made = await api.ok("POST", f"{CONFIG_MAPS}?fieldManager=ann", config_map("a", x="1"))
    api.clock.advance(timedelta(seconds=10))
    target = f"{CONFIG_MAPS}/a?fieldManager=bob"
    again = await api.ok("PATCH", target, {"data": {"x": "1"}}, content_type=MERGE)
    assert again == made


async def test_a_status_is_owned_apart(api: Api) -> None:
    await api.certificate("web")
    status = {"status": {"revision": 1, "conditions": [{"type": "Ready", "status": "True"}]}}
    changed = await api.ok("PATCH", f"{CERTIFICATES}/web/status", status, content_type=MERGE)
    condition: Json = {".": {}, "f:status": {}, "f:type": {}}
    assert owners(changed)["unknown Update status"] == {
        "f:status": {
            ".": {},
            "f:conditions": {".": {}, 'k:{"type":"Ready"}': condition},
            "f:revision": {},
        }
    }


async def test_owners_can_be_reset_and_written_by_hand(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
    reset = [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]
    assert owners(await api.ok("PATCH", f"{CONFIG_MAPS}/a", reset, content_type=JSON_PATCH)) == {}
    entry = {"manager": "me", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    entries = [{**entry, "fieldsV1": {"f:data": {"f:x": {}}}}]
    meta = {"metadata": {"managedFields": entries}}
    written = await api.ok("PATCH", f"{CONFIG_MAPS}/a", meta, content_type=MERGE)
    assert written["metadata"]["managedFields"] == entries


async def test_a_client_that_leaves_owners_out_keeps_them(api: Api) -> None:
    made = await api.ok("POST", f"{CONFIG_MAPS}?fieldManager=ann", config_map("a", x="1"))
    del made["metadata"]["managedFields"]
    made["data"]["y"] = "2"
    changed = await api.ok("PUT", f"{CONFIG_MAPS}/a?fieldManager=bob", made)
    assert owners(changed)["ann Update"] == {"f:data": {".": {}, "f:x": {}}}


async def test_old_updaters_are_put_together(api: Api) -> None:
    await api.ok("POST", f"{CONFIG_MAPS}?fieldManager=m00", config_map("a", x="1"))
    for number in range(1, 13):
        api.clock.advance(timedelta(seconds=1))
        target = f"{CONFIG_MAPS}/a?fieldManager=m{number:02}"
        changed = await api.ok("PATCH", target, {"data": {f"k{number:02}": "v"}}, content_type=MERGE)
    assert len(changed["metadata"]["managedFields"]) == 10
    assert owners(changed)["ancient-changes Update"]["f:data"].keys() == {
        ".",
        "f:x",
        "f:k01",
        "f:k02",
        "f:k03",
    }


async def test_a_label_may_be_called_like_the_owners(api: Api) -> None:
    obj = config_map("a", x="1")
    obj["metadata"]["labels"] = {"a": "b", "managedFields": "c"}
    await api.ok("POST", CONFIG_MAPS, obj)
    changed = await api.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "2"}}, content_type=MERGE)
    assert changed["metadata"]["labels"] == {"a": "b", "managedFields": "c"}


# --- server-side apply ------------------------------------------------------------------------------------


async def test_apply_creates_and_then_changes(api: Api) -> None:
    made = await apply(api, config_map("a", x="1"), "ann")
    assert made.status == 201
    assert owners(made.json) == {"ann Apply": {"f:data": {"f:x": {}}}}
    again = await apply(api, config_map("a", x="1"), "ann")
    assert again.status == 200
    assert again.json == made.json
    changed = await apply(api, config_map("a", y="2"), "ann")
    assert changed.json["data"] == {"y": "2"}


async def test_a_field_of_somebody_else_is_a_conflict_unless_forced(api: Api) -> None:
    await api.ok("POST", f"{CONFIG_MAPS}?fieldManager=ann", config_map("a", x="1"))
    refused = await apply(api, config_map("a", x="2"), "bob")
    assert refused.status == 409
    assert refused.message == 'Apply failed with 1 conflict: conflict with "ann" using v1: .data.x'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "ann" using v1', "field": ".data.x"}
    assert refused.json["details"]["causes"] == [cause]
    forced = await apply(api, config_map("a", x="2"), "bob", force=True)
    assert owners(forced.json) == {"ann Update": {"f:data": {}}, "bob Apply": {"f:data": {"f:x": {}}}}


async def test_a_shared_field_goes_with_its_last_owner(api: Api) -> None:
    for manager in ("ann", "bob"):
        await apply(api, config_map("a", x="1", y="1"), manager)
    assert (await apply(api, config_map("a", y="1"), "ann")).json["data"] == {"x": "1", "y": "1"}
    assert (await apply(api, config_map("a", y="1"), "bob")).json["data"] == {"y": "1"}


@pytest.mark.parametrize(
    ("query", "change", "status", "text"),
    [
        ("", {}, 422, "fieldManager: Required value: is required for apply patch"),
        ("?fieldManager=a", {"managedFields": [{}]}, 400, "metadata.managedFields must be nil"),
        ("?fieldManager=a", {"resourceVersion": "1"}, 409, "the object has been modified"),
        ("?fieldManager=" + "a" * 129, {}, 422, "may not be more than 128 bytes"),
    ],
)
async def test_configurations_that_are_refused(
    api: Api, query: str, change: Json, status: int, text: str
) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
    obj = config_map("a", y="1")
    obj["metadata"] |= change
    answer = await api.call("PATCH", f"{CONFIG_MAPS}/a{query}", obj, content_type=APPLY)
    assert answer.status == status
    assert text in answer.message


async def test_fields_that_the_kind_has_not_are_refused(api: Api) -> None:
    await api.ok("POST", CRDS, thing_crd())
    body = certificate("web")
    body["spec"]["colour"] = "red"
    answer = await api.call("PATCH", f"{CERTIFICATES}/web?fieldManager=a", body, content_type=APPLY)
    assert answer.status == 500
    assert answer.message.endswith(".spec.colour: field not declared in schema")


async def test_apply_takes_yaml_and_keeps_a_dry_run_dry(api: Api) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata: {x: '1'}\n"
    target = f"{CONFIG_MAPS}/a?fieldManager=ann&dryRun=All"
    response = await api.raw("PATCH", target, text, content_type=APPLY)
    assert response.status == 201
    assert msgspec.json.decode(response.body)["data"] == {"x": "1"}
    assert (await api.call("GET", f"{CONFIG_MAPS}/a")).status == 404


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

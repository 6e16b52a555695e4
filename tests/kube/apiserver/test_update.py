"""PUT and PATCH of stored objects."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from certwright.kube.store.sqlite.store import open_sqlite
from kube.apiserver.callers import (
    CERTIFICATES,
    CONFIG_MAPS,
    CRDS,
    JSON_PATCH,
    MERGE,
    SECRETS,
    STRATEGIC,
    THING,
    THINGS,
    Api,
    Json,
    StartApi,
    certificate,
    thing_crd,
)


async def test_a_put_replaces_the_spec_and_counts_the_generation(api: Api) -> None:
    made = await api.certificate("web")
    made["spec"]["dnsNames"] = ["other.example.com"]
    put = await api.ok("PUT", f"{CERTIFICATES}/web", made)
    assert put["spec"]["dnsNames"] == ["other.example.com"]
    assert put["metadata"]["generation"] == 2
    assert int(put["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_a_put_of_the_same_object_changes_nothing(api: Api) -> None:
    made = await api.certificate("web")
    before = api.store.revision
    shuffled = dict(reversed(made.items()))
    assert await api.ok("PUT", f"{CERTIFICATES}/web", shuffled) == made
    assert api.store.revision == before


async def test_true_is_not_one(api: Api) -> None:
    await api.ok("POST", CRDS, thing_crd())
    body = {**THING, "metadata": {"name": "a"}, "spec": {"size": 1}}
    await api.ok("POST", THINGS, body)
    answer = await api.call("PATCH", f"{THINGS}/a", {"spec": {"size": True}}, content_type=MERGE)
    assert answer.status == 422


async def test_labels_do_not_count_as_a_generation(api: Api) -> None:
    await api.certificate("web")
    patched = await api.merge(f"{CERTIFICATES}/web", {"metadata": {"labels": {"a": "b"}}})
    assert (patched["metadata"]["generation"], patched["metadata"]["labels"]) == (1, {"a": "b"})


async def test_an_old_revision_is_a_conflict(api: Api) -> None:
    made = await api.certificate("web")
    await api.merge(f"{CERTIFICATES}/web", {"metadata": {"labels": {"a": "b"}}})
    answer = await api.call("PUT", f"{CERTIFICATES}/web", made)
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on certificates.cert-manager.io "web": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_another_uid_is_a_conflict(api: Api) -> None:
    made = await api.secret("a")
    answer = await api.call("PUT", f"{SECRETS}/a", {**made, "metadata": {"name": "a", "uid": "other"}})
    assert answer.status == 409
    assert "Precondition failed: UID in precondition: other, UID in object meta: " in answer.message


async def test_only_core_kinds_may_be_replaced_without_a_revision(api: Api) -> None:
    await api.secret("a")
    put = await api.ok("PUT", f"{SECRETS}/a", {"metadata": {"name": "a"}, "stringData": {"x": "y"}})
    assert put["data"] == {"x": "eQ=="}
    await api.certificate("web")
    answer = await api.call("PUT", f"{CERTIFICATES}/web", certificate("web"))
    assert answer.status == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in answer.message


@pytest.mark.parametrize(
    ("meta", "sentence"),
    [
        ({"name": "b"}, "the name of the object (b) does not match the name on the URL (a)"),
        (
            {"name": "a", "namespace": "b"},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ({}, "the name of the object (a based on URL) was undeterminable: name must be provided"),
    ],
)
async def test_a_put_must_name_the_object_of_its_path(api: Api, meta: Json, sentence: str) -> None:
    await api.secret("a")
    answer = await api.call("PUT", f"{SECRETS}/a", {"metadata": meta})
    assert (answer.status, answer.message) == (400, sentence)


async def test_what_the_server_decided_stays(api: Api) -> None:
    made = await api.certificate("web")
    manifest = {**made, "metadata": {**made["metadata"], "generation": 9, "labels": {"x": "y"}}}
    put = await api.ok("PUT", f"{CERTIFICATES}/web", manifest)
    for name in ("uid", "creationTimestamp", "generation", "namespace"):
        assert put["metadata"][name] == made["metadata"][name]
    moved = {**put, "metadata": {**put["metadata"], "creationTimestamp": "2020-01-01T00:00:00Z"}}
    kept = await api.ok("PUT", f"{CERTIFICATES}/web", moved)
    assert kept["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


async def test_status_and_spec_are_written_apart(api: Api) -> None:
    made = await api.certificate("web")
    both = {**made, "spec": {**made["spec"], "secretName": "other"}, "status": {"revision": 1}}
    both["metadata"] = {**made["metadata"], "labels": {"a": "b"}}
    status = await api.ok("PUT", f"{CERTIFICATES}/web/status", both)
    assert status["status"] == {"revision": 1}
    assert status["spec"] == made["spec"]
    assert status["metadata"]["generation"] == 1
    assert "labels" not in status["metadata"]
    both["metadata"]["resourceVersion"] = status["metadata"]["resourceVersion"]
    spec = await api.ok("PUT", f"{CERTIFICATES}/web", {**both, "status": {"revision": 99}})
    assert spec["spec"]["secretName"] == "other"
    assert spec["status"] == {"revision": 1}
    assert spec["metadata"]["generation"] == 2


async def test_a_kind_without_status_subresource_keeps_what_is_sent(api: Api) -> None:
    await api.ok("POST", CRDS, thing_crd(status=False))
    body = {**THING, "metadata": {"name": "a"}, "spec": {"size": 1}, "status": {"phase": "New"}}
    assert (await api.ok("POST", THINGS, body))["status"] == {"phase": "New"}
    patched = await api.merge(f"{THINGS}/a", {"status": {"phase": "Old"}})
    assert patched["metadata"]["generation"] == 2
    assert (await api.call("GET", f"{THINGS}/a/status")).status == 404


async def test_a_missing_object_is_not_made_by_put_or_patch(api: Api) -> None:
    body = {"metadata": {"name": "a"}}
    for method, media in (("PUT", "application/json"), ("PATCH", MERGE)):
        answer = await api.call(method, f"{SECRETS}/a", body, content_type=media)
        assert (answer.status, answer.message) == (404, 'secrets "a" not found')


async def test_a_merge_patch_sets_and_removes(api: Api) -> None:
    await api.config_map("a", {"x": "1", "y": "2"})
    patched = await api.merge(f"{CONFIG_MAPS}/a", {"data": {"x": None, "z": "3"}})
    assert patched["data"] == {"y": "2", "z": "3"}


async def test_string_data_in_a_patch_is_folded_in(api: Api) -> None:
    await api.secret("a")
    patched = await api.merge(f"{SECRETS}/a", {"stringData": {"more": "x"}})
    assert patched["data"] == {"key": "YQ==", "more": "eA=="}


async def test_a_json_patch_is_applied_in_order(api: Api) -> None:
    await api.certificate("web")
    patched = await api.ok(
        "PATCH",
        f"{CERTIFICATES}/web",
        [
            {"op": "test", "path": "/spec/dnsNames/0", "value": "example.com"},
            {"op": "add", "path": "/spec/dnsNames/-", "value": "b.example.com"},
            {"op": "remove", "path": "/spec/dnsNames/0"},
        ],
        content_type=JSON_PATCH,
    )
    assert patched["spec"]["dnsNames"] == ["b.example.com"]


async def test_a_failed_test_of_a_json_patch_changes_nothing(api: Api) -> None:
    made = await api.certificate("web")
    operations = [
        {"op": "remove", "path": "/spec/dnsNames"},
        {"op": "test", "path": "/spec/secretName", "value": 1},
    ]
    answer = await api.call("PATCH", f"{CERTIFICATES}/web", operations, content_type=JSON_PATCH)
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    assert answer.message == "the server rejected our request due to an error in our request"
    assert answer.json["details"] == {}
    assert await api.ok("GET", f"{CERTIFICATES}/web") == made


@pytest.mark.parametrize(
    ("media", "patch", "status"),
    [
        (MERGE, [], 400),
        (JSON_PATCH, {}, 400),
        (JSON_PATCH, [{"op": "shuffle", "path": "/a"}], 422),
        (JSON_PATCH, [{"op": "remove", "path": "/a"}] * 10_001, 413),
        (JSON_PATCH, [{"op": "replace", "path": "", "value": 1}], 422),
        (STRATEGIC, {}, 415),
        ("application/json", {}, 415),
    ],
)
async def test_patches_that_are_none(api: Api, media: str, patch: Any, status: int) -> None:
    await api.certificate("web")
    answer = await api.call("PATCH", f"{CERTIFICATES}/web", patch, content_type=media)
    assert answer.status == status


async def test_a_core_kind_takes_strategic_patches(api: Api) -> None:
    await api.secret("a", finalizers=["test.dev/a"])
    patch = {"metadata": {"finalizers": ["test.dev/b"], "labels": {"x": "y"}}}
    patched = await api.ok("PATCH", f"{SECRETS}/a", patch, content_type=STRATEGIC)
    assert patched["metadata"]["finalizers"] == ["test.dev/a", "test.dev/b"]


async def test_a_strict_patch_names_the_unknown_field(api: Api) -> None:
    await api.certificate("web")
    target = f"{CERTIFICATES}/web?fieldValidation=Strict"
    answer = await api.call("PATCH", target, {"spec": {"foo": 1}}, content_type=MERGE)
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    assert 'patch: Invalid value: "<omitted: it may hold a secret>"' in answer.message
    assert answer.message.endswith('strict decoding error: unknown field "spec.foo"')


@pytest.mark.every_store
async def test_patches_without_revision_all_get_through(api: Api) -> None:
    await api.secret("a")
    patches = [api.merge(f"{SECRETS}/a", {"metadata": {"labels": {f"l{n}": "x"}}}) for n in range(20)]
    await asyncio.gather(*patches)
    assert len((await api.ok("GET", f"{SECRETS}/a"))["metadata"]["labels"]) == 20


@pytest.mark.every_store
async def test_a_patch_with_an_old_revision_is_a_conflict(api: Api) -> None:
    made = await api.secret("a")
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"], "labels": {"a": "b"}}}
    await api.merge(f"{SECRETS}/a", old)
    answer = await api.call("PATCH", f"{SECRETS}/a", old, content_type=MERGE)
    assert answer.status == 409


async def test_a_dry_run_of_an_update_stores_nothing(api: Api) -> None:
    made = await api.secret("a")
    patched = await api.merge(f"{SECRETS}/a?dryRun=All", {"metadata": {"labels": {"a": "b"}}})
    assert patched["metadata"]["labels"] == {"a": "b"}
    assert await api.ok("GET", f"{SECRETS}/a") == made


async def test_a_revision_that_is_no_number_is_a_bad_request(api: Api) -> None:
    made = await api.secret("a")
    made["metadata"]["resourceVersion"] = "x"
    answer = await api.call("PUT", f"{SECRETS}/a", made)
    assert (answer.status, "expected a whole number" in answer.message) == (400, True)


async def test_an_immutable_secret_stays(api: Api) -> None:
    await api.ok("POST", SECRETS, {"metadata": {"name": "a"}, "immutable": True, "data": {"x": "eQ=="}})
    answer = await api.call("PATCH", f"{SECRETS}/a", {"data": {"x": "eg=="}}, content_type=MERGE)
    assert answer.status == 422


async def test_updates_keep_the_time_of_creation(api: Api) -> None:
    made = await api.secret("a")
    api.clock.advance(timedelta(hours=1))
    patched = await api.merge(f"{SECRETS}/a", {"metadata": {"creationTimestamp": None, "labels": {"a": "b"}}})
    assert patched["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


async def test_a_put_creates_a_lease_that_is_not_there(api: Api) -> None:
    answer = await api.call("PUT", f"{LEASES}/a", {"metadata": {"name": "a", "resourceVersion": "5"}})
    assert (answer.status, answer.json["metadata"]["name"]) == (201, "a")
    assert answer.json["metadata"]["uid"]
    again = await api.call("PUT", f"{LEASES}/a", {**answer.json, "spec": {"holderIdentity": "x"}})
    assert again.status == 200
    dry = await api.call("PUT", f"{LEASES}/b?dryRun=All", {"metadata": {"name": "b"}})
    assert (dry.status, (await api.call("GET", f"{LEASES}/b")).status) == (201, 404)


async def test_a_put_that_names_a_uid_creates_nothing(api: Api) -> None:
    answer = await api.call("PUT", f"{LEASES}/a", {"metadata": {"name": "a", "uid": "x"}})
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert answer.message.endswith("UID in precondition: x, UID in object meta: ")


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_who_is_told_of_a_conflict_reads_what_it_was_with(
    start_api: StartApi, tmp_path: Path, method: str
) -> None:
    api = await start_api(store=await open_sqlite(tmp_path / "store.sqlite"))
    made = await api.config_map("a", {"n": "0"})
    revision = made["metadata"]["resourceVersion"]

    async def lose() -> Json:
        body: Json = made | {"data": {"n": "2"}}
        if method == "DELETE":
            body = {"preconditions": {"resourceVersion": revision}}
        refused = await api.call(method, f"{CONFIG_MAPS}/a", body)
        assert refused.status == 409
        return await api.ok("GET", f"{CONFIG_MAPS}/a")

    # The winner is still being committed when the loser is refused.
    won, read = await asyncio.gather(api.ok("PUT", f"{CONFIG_MAPS}/a", made | {"data": {"n": "1"}}), lose())
    assert read == won

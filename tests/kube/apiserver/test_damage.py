"""What the API serves of a store with a damaged row: everything else."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from certwright.app.stores import check_row
from certwright.kube.store.keyring import KEY_BYTES
from certwright.kube.store.sqlite.store import open_sqlite
from certwright.kube.util.http_messages import Identity
from kube.apiserver.callers import ADMIN, CONFIG_MAPS, MERGE, SECRETS, Api, StartApi, grant, rule
from support.sealed import Keys, seal_with

TENANT = Identity("tenant", groups=("system:authenticated",))
Harm = tuple[str, str, str]
"""A bucket, a name and a part: `meta` or `body`."""
_CUT = {
    "meta": "UPDATE rows SET meta = substr(meta, 1, length(meta) - 1) WHERE bucket = ? AND name = ?",
    "body": "UPDATE rows SET body = substr(body, 1, length(body) - 1) WHERE bucket = ? AND name = ?",
}
Damage = Callable[..., Awaitable[Api]]


@pytest.fixture
def damage(tmp_path: Path, start_api: StartApi) -> Damage:
    """Starts a server with the Secrets and ConfigMaps a, b and c, and starts it again after `harms`."""
    path, keys = tmp_path / "store.sqlite", Keys(bytes(KEY_BYTES))

    async def start() -> Api:
        return await start_api(store=await open_sqlite(path, seal=seal_with(keys), check=check_row))

    async def damaged(*harms: Harm, namespace: str = "default") -> Api:
        api = await start()
        if namespace != "default":
            await api.namespace(namespace)
        for name in "abc":
            await api.secret(name, namespace)
            await api.ok("POST", CONFIG_MAPS.replace("default", namespace), {"metadata": {"name": name}})
        await api.settle()
        await api.server.close()
        await api.store.close()
        with closing(sqlite3.connect(path)) as connection, connection:
            for bucket, name, part in harms:
                changed = connection.execute(_CUT[part], (bucket, name))
                assert changed.rowcount == 1
        return await start()

    return damaged


each_part = pytest.mark.parametrize("part", ["meta", "body"])


def names(listing: dict[str, object]) -> set[str]:
    """Of a list's items, but for what each namespace has."""
    items = listing["items"]
    assert isinstance(items, list)
    return {item["metadata"]["name"] for item in items} - {"kube-root-ca.crt"}


@each_part
async def test_a_list_answers_without_the_damaged_object_and_warns_of_it(damage: Damage, part: str) -> None:
    api = await damage(("secrets", "b", part))
    for path in (
        SECRETS,
        "/api/v1/secrets",
        f"{SECRETS}?limit=1",
        f"{SECRETS}?fieldSelector=metadata.name%3Db",
    ):
        answer = await api.call("GET", path)
        assert answer.status == 200
        assert names(answer.json) <= {"a", "c"}
        assert "the stored row default/b of secrets cannot be read" in answer.headers["warning"]
    assert names((await api.call("GET", SECRETS)).json) == {"a", "c"}
    assert "warning" not in (await api.call("GET", CONFIG_MAPS)).headers


async def test_an_object_that_is_not_json_is_left_out_as_well(damage: Damage) -> None:
    api = await damage(("configmaps", "b", "meta"))
    assert names(await api.ok("GET", CONFIG_MAPS)) == {"a", "c"}


@each_part
async def test_a_damaged_object_is_named_by_every_request_for_it(damage: Damage, part: str) -> None:
    api = await damage(("secrets", "b", part))
    for method, body in (("GET", None), ("PUT", {"metadata": {"name": "b"}}), ("PATCH", {})):
        media = "application/json" if method == "PUT" else MERGE
        answer = await api.call(method, f"{SECRETS}/b", body, content_type=media)
        assert (answer.status, answer.json["reason"]) == (500, "StorageReadError")
        assert "default/b of secrets cannot be read" in answer.message
        assert "delete this object by name as a member of system:masters" in answer.message
    assert (await api.call("GET", f"{SECRETS}/a")).status == 200


@each_part
async def test_only_administrators_delete_a_damaged_object(damage: Damage, part: str) -> None:
    api = await damage(("secrets", "b", part))
    await grant(api, rule("*", "*"), namespace="default", user=TENANT.name)
    api.user = TENANT
    assert (await api.call("DELETE", f"{SECRETS}/b")).json["reason"] == "StorageReadError"
    assert (await api.call("DELETE", f"{SECRETS}/c")).status == 200
    api.user = ADMIN
    watch = await api.watch(SECRETS)
    assert await watch.names(1) == [("ADDED", "a")]
    assert (await api.call("DELETE", f"{SECRETS}/b?dryRun=All")).status == 200
    assert (await api.call("DELETE", f"{SECRETS}/b")).json["status"] == "Success"
    assert await watch.names(1) == [("DELETED", "b")]
    await watch.close()
    assert "warning" not in (await api.call("GET", SECRETS)).headers
    await api.secret("b")


@each_part
async def test_a_namespace_with_a_damaged_object_can_be_deleted(damage: Damage, part: str) -> None:
    api = await damage(("secrets", "b", part), namespace="shop")
    await api.ok("DELETE", "/api/v1/namespaces/shop")
    await api.settle()
    assert (await api.call("GET", "/api/v1/namespaces/shop")).status == 404
    assert not len(api.store.damage)


@each_part
async def test_garbage_collection_gets_past_a_damaged_object(damage: Damage, part: str) -> None:
    api = await damage(("secrets", "b", part))
    owner = await api.secret("owner")
    refers = {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": owner["metadata"]["uid"]}
    await api.secret("owned", ownerReferences=[refers])
    broken = {**refers, "name": "b"}
    await api.secret("of-the-damaged", ownerReferences=[broken])
    await api.ok("DELETE", f"{SECRETS}/owner")
    await api.settle()
    assert (await api.call("GET", f"{SECRETS}/owned")).status == 404
    assert (await api.call("GET", f"{SECRETS}/of-the-damaged")).status == 200


async def test_health_and_metrics_name_a_damaged_object(damage: Damage) -> None:
    api = await damage(("secrets", "b", "meta"))
    await api.settle()
    assert (await api.call("GET", "/readyz")).body == b"ok"
    verbose = await api.call("GET", "/readyz?verbose")
    assert verbose.status == 200
    assert b"warn: the stored row default/b of secrets cannot be read" in verbose.body
    metrics = await api.call("GET", "/metrics")
    named = b'certwright_store_damaged_rows{name="b",namespace="default",resource="secrets"} 1.0'
    assert named in metrics.body


@pytest.mark.parametrize(
    ("bucket", "name"),
    [
        ("apiextensions.k8s.io/customresourcedefinitions", "certificates.cert-manager.io"),
        ("namespaces", "kube-system"),
        ("rbac.authorization.k8s.io/clusterroles", "cluster-admin"),
    ],
)
async def test_what_the_server_itself_needs_is_made_again(damage: Damage, bucket: str, name: str) -> None:
    api = await damage((bucket, name, "meta"))
    assert not len(api.store.damage)
    assert await api.store.count(bucket)
    assert (await api.call("GET", "/apis/cert-manager.io/v1/certificates")).status == 200

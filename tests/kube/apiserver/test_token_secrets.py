"""Tokens of ServiceAccounts that lie in Secrets: made, put back, taken away."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from certwright.admission import certificate_kinds
from certwright.kube.apiserver.auth.tokens import TokenIssuer
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.contract import Key, Row
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.store import open_etcd
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import TestClock
from certwright.resources.crds import custom_resource_definitions
from kube.apiserver.callers import ADMIN, SECRETS, Answer, Api, StartApi
from support.etcd import running_etcd

Json = dict[str, Any]

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRET = f"{SECRETS}/robot-token"
NAME, UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
CLAIM = "kubernetes.io/serviceaccount/"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
AUDIENCE = "https://kubernetes.default.svc.cluster.local"


async def account(api: Api, **fields: Any) -> str:
    """Its uid."""
    made = await api.ok("POST", ACCOUNTS, {"metadata": {"name": "robot"}, **fields})
    return str(made["metadata"]["uid"])


def wanted(*, type: str = "kubernetes.io/service-account-token", **fields: Any) -> Json:
    notes = {NAME: "robot", **fields.pop("annotations", {})}
    return {"metadata": {"name": "robot-token", "annotations": notes, **fields}, "type": type}


async def entries(api: Api) -> dict[str, str]:
    data = (await api.ok("GET", SECRET)).get("data", {})
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


async def given(api: Api, **fields: Any) -> str:
    """The token in a new Secret."""
    await api.ok("POST", SECRETS, wanted(**fields))
    await api.settle()
    return (await entries(api))["token"]


async def issued(api: Api) -> str:
    """The token in a new Secret of a new account."""
    await account(api)
    return await given(api)


async def is_there(api: Api) -> bool:
    await api.settle()
    return (await api.call("GET", SECRET)).status == 200


async def whoami(api: Api, token: str) -> Answer:
    nobody = Api(api.server, api.clock, api.store, None)
    return await nobody.call("POST", WHOAMI, {}, authorization=f"Bearer {token}")


@pytest.fixture
async def api(start_api: StartApi) -> Api:
    """A server that has a CA to be checked by."""
    started: Api = await start_api(root_ca="PEM")
    return started


# --- what is put in ---------------------------------------------------------------------------------------


async def test_a_secret_that_names_an_account_is_given_its_token(api: Api) -> None:
    uid = await account(api)
    token = await given(api)
    assert await entries(api) == {"ca.crt": "PEM", "namespace": "default", "token": token}
    assert (await api.ok("GET", SECRET))["metadata"]["annotations"] == {NAME: "robot", UID: uid}
    claims = token.split(".")[1]
    assert msgspec.json.decode(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))) == {
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:default:robot",
        f"{CLAIM}namespace": "default",
        f"{CLAIM}secret.name": "robot-token",
        f"{CLAIM}service-account.name": "robot",
        f"{CLAIM}service-account.uid": uid,
    }


async def test_the_token_speaks_for_its_account_for_years(api: Api) -> None:
    uid, token = await account(api), await given(api)
    for _ in range(2):
        user = (await whoami(api, token)).json["status"]["userInfo"]
        assert user == {
            "username": "system:serviceaccount:default:robot",
            "uid": uid,
            "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
        }
        api.clock.set_now(api.clock.now() + timedelta(days=3650))


async def test_a_review_takes_the_token_to_be_meant_for_the_server(api: Api) -> None:
    token = await issued(api)
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    good = (await api.ok("POST", path, {"spec": {"token": token}}))["status"]
    assert (good["authenticated"], good["audiences"]) == (True, [AUDIENCE])
    other = (await api.ok("POST", path, {"spec": {"token": token, "audiences": ["vault"]}}))["status"]
    assert "authenticated" not in other


async def test_what_is_taken_out_is_put_back(api: Api) -> None:
    uid = await account(api)
    await given(api)
    change: Json = {"data": {"token": None, "namespace": None, "ca.crt": "Zm9yZ2Vk"}}
    await api.merge(SECRET, change)
    await api.settle()
    data = await entries(api)
    assert (data["ca.crt"], data["namespace"]) == ("PEM", "default")
    assert (await whoami(api, data["token"])).status == 201
    await api.merge(SECRET, {"metadata": {"annotations": {UID: None}}})
    await api.settle()
    assert (await api.ok("GET", SECRET))["metadata"]["annotations"][UID] == uid


async def test_a_token_that_is_there_stays(api: Api) -> None:
    token = await issued(api)
    await api.merge(SECRET, {"metadata": {"labels": {"a": "b"}}})
    await api.settle()
    assert (await entries(api))["token"] == token


async def test_secrets_of_other_types_are_left_alone(api: Api) -> None:
    await account(api)
    await api.ok("POST", SECRETS, wanted(type="Opaque"))
    await api.ok("DELETE", f"{ACCOUNTS}/robot")
    assert await is_there(api)
    assert await entries(api) == {}


async def test_a_secret_that_cannot_be_changed_keeps_nobody_waiting(api: Api) -> None:
    await account(api)
    await api.ok("POST", SECRETS, {**wanted(), "immutable": True})
    await api.ok("POST", SECRETS, {**wanted(), "metadata": {**wanted()["metadata"], "name": "other"}})
    await api.settle()
    assert await entries(api) == {}
    assert "token" in (await api.ok("GET", f"{SECRETS}/other"))["data"]
    await api.ok("DELETE", f"{ACCOUNTS}/robot")
    assert not await is_there(api)


# --- what is taken away -----------------------------------------------------------------------------------


async def test_the_secret_goes_with_its_account(api: Api) -> None:
    token = await issued(api)
    assert (await whoami(api, token)).status == 201
    await api.ok("DELETE", f"{ACCOUNTS}/robot")
    assert (await whoami(api, token)).status == 401
    assert not await is_there(api)


@pytest.mark.parametrize("uid", ["", "another"])
async def test_a_secret_of_an_account_that_is_not_there_goes(api: Api, uid: str) -> None:
    if uid:
        await account(api)
    await api.ok("POST", SECRETS, wanted(annotations={UID: uid}))
    assert not await is_there(api)


async def test_a_new_account_of_the_name_has_another_token(api: Api) -> None:
    token = await issued(api)
    await api.ok("DELETE", f"{ACCOUNTS}/robot")
    await account(api)
    assert not await is_there(api)
    assert (await whoami(api, token)).status == 401
    assert (await whoami(api, await given(api))).status == 201


async def test_a_token_ends_at_once_with_its_secret(api: Api) -> None:
    token = await issued(api)
    assert (await whoami(api, token)).status == 201
    await api.ok("DELETE", SECRET)
    assert (await whoami(api, token)).status == 401
    # Another Secret of the name makes it no better.
    assert (await whoami(api, await given(api))).status == 201
    assert (await whoami(api, token)).status == 401


async def test_a_token_that_is_replaced_is_none_any_more(api: Api) -> None:
    token = await issued(api)
    assert (await whoami(api, token)).status == 201
    await api.merge(SECRET, {"data": {"token": "b3RoZXI="}})
    assert (await whoami(api, token)).status == 401


@pytest.mark.parametrize("path", [SECRET, f"{ACCOUNTS}/robot"])
async def test_a_token_ends_when_its_deletion_begins(api: Api, path: str) -> None:
    token = await issued(api)
    await api.merge(path, {"metadata": {"finalizers": ["x.dev/own"]}})
    assert (await whoami(api, token)).status == 201
    await api.ok("DELETE", path)
    assert (await whoami(api, token)).status == 401


async def test_an_account_lists_a_secret_no_more_that_is_gone(api: Api) -> None:
    await account(api, secrets=[{"name": "robot-token"}, {"name": "kept"}])
    await given(api)
    await api.ok("DELETE", SECRET)
    await api.settle()
    assert (await api.ok("GET", f"{ACCOUNTS}/robot"))["secrets"] == [{"name": "kept"}]


class Slow(MemoryStore):
    """A store that takes its time to read."""

    async def get(self, key: Key) -> Row | None:
        """What is there, after others have gone on."""
        row = await super().get(key)
        await asyncio.sleep(0)
        return row


async def test_two_requests_at_once_with_a_dead_token_are_both_refused(start_api: StartApi) -> None:
    api = await start_api(store=Slow())
    token = await issued(api)
    await api.ok("DELETE", f"{ACCOUNTS}/robot")
    answers = await asyncio.gather(whoami(api, token), whoami(api, token))
    assert [answer.status for answer in answers] == [401, 401]


class Late(MemoryStore):
    """A store that hands out one row late."""

    def __init__(self) -> None:
        super().__init__()
        self.late: Key | None = None
        self.has_read, self.goes_on = asyncio.Event(), asyncio.Event()

    async def get(self, key: Key) -> Row | None:
        """What is there, or was."""
        row = await super().get(key)
        if key == self.late:
            self.late = None
            self.has_read.set()
            await self.goes_on.wait()
        return row


async def test_a_token_that_ends_while_it_is_looked_at_is_refused(start_api: StartApi) -> None:
    store = Late()
    api = await start_api(store=store)
    token = await issued(api)
    store.late = Key("secrets", "default", "robot-token")
    asked = asyncio.create_task(whoami(api, token))
    await store.has_read.wait()
    await api.ok("DELETE", SECRET)
    store.goes_on.set()
    assert (await asked).status == 401
    assert (await whoami(api, token)).status == 401


async def test_a_change_while_a_token_is_looked_at_does_not_refuse_it(start_api: StartApi) -> None:
    api = await start_api(store=Slow())
    token = await issued(api)
    label = {"metadata": {"labels": {"a": "b"}}}
    changed = api.merge(f"{ACCOUNTS}/robot", label)
    answer, _ = await asyncio.gather(whoami(api, token), changed)
    assert answer.status == 201


# --- servers that stop, and servers side by side ----------------------------------------------------------


async def test_what_was_begun_is_finished_after_a_start(start_api: StartApi) -> None:
    store = MemoryStore()
    api = await start_api(store=store)
    await account(api)
    await api.ok("POST", SECRETS, wanted())
    await api.server.close()
    again = await start_api(store=store, root_ca="PEM")
    await again.settle()
    assert set(await entries(again)) == {"token", "ca.crt", "namespace"}
    await again.server.close()
    await store.delete(Key("serviceaccounts", "default", "robot"))
    last = await start_api(store=store)
    assert not await is_there(last)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Api, Api]]:
    """Two servers over one etcd, with one key to sign tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    with running_etcd(tmp_path) as etcd:
        async with AsyncExitStack() as ends:
            servers = []
            for _ in range(2):
                store, clock = await open_etcd(Access((etcd.member,)), compact_every_s=0), TestClock()
                ends.push_async_callback(store.close)
                server = ApiServer(
                    store,
                    clock,
                    authenticator=lambda _: None,
                    tokens=TokenIssuer(key),
                    extensions=certificate_kinds(),
                )
                ends.push_async_callback(server.close)
                await server.start(custom_resource_definitions())
                servers.append(Api(server, clock, store, ADMIN))
            yield servers[0], servers[1]


@pytest.mark.real("etcd")
async def test_of_two_servers_each_knows_the_token_that_one_has_made(pair: tuple[Api, Api]) -> None:
    one, two = pair
    await account(one)
    await one.ok("POST", SECRETS, wanted())
    seen = await two.watch(f"{SECRETS}?fieldSelector=metadata.name=robot-token")
    while "data" not in (secret := (await seen.next(timeout_s=60))["object"]):
        pass
    await seen.close()
    token = base64.b64decode(secret["data"]["token"]).decode()
    for api in pair:
        assert (await whoami(api, token)).status == 201
    seen = await one.watch(f"{SECRETS}?fieldSelector=metadata.name=robot-token")
    await two.ok("DELETE", f"{ACCOUNTS}/robot")
    assert (await whoami(two, token)).status == 401
    while (await seen.next(timeout_s=60))["type"] != "DELETED":
        pass
    await seen.close()
    assert (await whoami(one, token)).status == 401

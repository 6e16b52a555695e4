"""GET: one object, lists, selectors, pages, revisions, representations, paths."""

from __future__ import annotations

import base64
from urllib.parse import quote

import msgspec
import pytest

from certwright.kube.apiserver.model.backend import CHUNK
from certwright.kube.apiserver.requests.selectors import FieldTerm, Matcher
from certwright.kube.store.contract import Key, Row
from certwright.kube.store.memory import MemoryStore
from kube.apiserver.callers import (
    CONFIG_MAPS,
    CRDS,
    SECRETS,
    TABLE,
    THING,
    THINGS,
    Api,
    Json,
    StartApi,
    thing_crd,
)


def names(listing: Json) -> list[str]:
    return [item["metadata"]["name"] for item in listing["items"]]


def _token(*, rv: int = 5, start: str = "a") -> str:
    """A continue token."""
    text = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": rv, "start": start})
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/persistentvolumes",
        "/api/v1/secrets/a",
        f"{SECRETS}/a/status",
        f"{SECRETS}/a/b/c/d",
        f"{SECRETS}//a",
    ],
)
async def test_among_built_in_kinds_what_is_not_there_has_a_status(api: Api, path: str) -> None:
    answer = await api.call("GET", path)
    assert (answer.status, answer.json["reason"], answer.json["details"]) == (404, "NotFound", {})
    assert answer.json["message"] == "the server could not find the requested resource"


async def test_percent_encoded_names_are_names(api: Api) -> None:
    await api.secret("a.b")
    assert (await api.ok("GET", f"{SECRETS}/a%2eb"))["metadata"]["name"] == "a.b"


@pytest.mark.every_store
async def test_lists_are_ordered_and_of_one_revision(api: Api) -> None:
    for name in ("b", "a", "c"):
        await api.secret(name)
    await api.secret("z", namespace="kube-system")
    listing = await api.ok("GET", "/api/v1/secrets")
    assert (listing["kind"], listing["apiVersion"]) == ("SecretList", "v1")
    assert listing["metadata"] == {"resourceVersion": str(api.store.revision)}
    assert names(listing) == ["a", "b", "c", "z"]
    assert names(await api.ok("GET", SECRETS)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("path", "selector", "message"),
    [
        (SECRETS, "a=b", "field label not supported: a"),
        (CONFIG_MAPS, "a=b", '"a" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        (SECRETS, "metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        (SECRETS, "metadata.name=a\\q", "invalid field selector: invalid escape sequence: \\q"),
        (SECRETS, "metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
async def test_a_field_selector_that_is_none(api: Api, path: str, selector: str, message: str) -> None:
    answer = await api.call("GET", f"{path}?fieldSelector={quote(selector)}")
    assert (answer.status, answer.message) == (400, message)


async def test_fields_select(api: Api) -> None:
    await api.secret("a")
    await api.ok("POST", SECRETS, {"metadata": {"name": "b"}, "type": "test.dev/x"})
    await api.secret("a", namespace="kube-system")

    async def selected(path: str, selector: str) -> list[str]:
        return names(await api.ok("GET", f"{path}?fieldSelector={selector.replace('=', '%3D')}"))

    assert await selected(SECRETS, "metadata.name=a") == ["a"]
    assert await selected(SECRETS, "metadata.name=nothing") == []
    assert await selected(SECRETS, "metadata.name!=a") == ["b"]
    assert await selected("/api/v1/secrets", "metadata.name=a") == ["a", "a"]
    assert await selected("/api/v1/secrets", "metadata.namespace=kube-system") == ["a"]
    assert await selected(SECRETS, "type=test.dev/x") == ["b"]


async def test_an_old_page_says_so_and_how_to_go_on(start_api: StartApi) -> None:
    api = await start_api(store=MemoryStore(window_bytes=2000))
    for name in "abc":
        await api.secret(name)
    first = await api.ok("GET", f"{SECRETS}?limit=2")
    for number in range(20):
        patch = {"metadata": {"labels": {"n": str(number)}}}
        await api.merge(f"{SECRETS}/a", patch)
    old = await api.call("GET", f"{SECRETS}?limit=2&continue={first['metadata']['continue']}")
    assert (old.status, old.json["reason"]) == (410, "Expired")
    assert "The provided continue parameter is too old" in old.message
    rest = await api.ok("GET", f"{SECRETS}?limit=2&continue={old.json['metadata']['continue']}")
    assert names(rest) == ["c"]
    exact = await api.call("GET", f"{SECRETS}?resourceVersion=1&resourceVersionMatch=Exact")
    assert (exact.status, exact.message) == (410, "The resourceVersion for the provided list is too old.")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("resourceVersion=99999", 504),
        ("resourceVersion=99999&resourceVersionMatch=Exact", 504),
        ("resourceVersion=99999999999999999999", 400),
        ("&".join(f"p{number}=x" for number in range(200)), 400),
        ("labelSelector=%ff&fieldSelector=%zz", 400),
        ("limit=2&limit=x", 200),
    ],
)
async def test_forms_of_parameters(api: Api, query: str, status: int) -> None:
    """Others are compared with the reference: `conformance/story_reads.py`."""
    assert (await api.call("GET", f"{SECRETS}?{query}")).status == status


_INVALID_TOKEN = "invalid continue token: continue key is not valid: "


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "resourceVersion=x",
            'invalid resource version: resourceVersion: expected a whole number of 64 bits, got "x"',
        ),
        ("limit=x", 'limit: expected a whole number of 64 bits, got "x"'),
        ("limit=", 'limit: expected a whole number of 64 bits, got ""'),
        (f"limit={10**20}", f'limit: expected a whole number of 64 bits, got "{10**20}"'),
        ("continue=!!", f"{_INVALID_TOKEN}illegal base64 data at input byte 0"),
        ("continue=AAAAA", f"{_INVALID_TOKEN}illegal base64 data at input byte 4"),
        ("continue=e30", f"{_INVALID_TOKEN}server does not recognize this encoded version "),
        (
            f"continue={_token(rv=0)}",
            f"{_INVALID_TOKEN}incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (
            f"continue={_token(start='')}",
            f"{_INVALID_TOKEN}encoded start key empty (version meta.k8s.io/v1)",
        ),
        (f"continue={_token(start='../kube-system/x')}", f"{_INVALID_TOKEN}../kube-system/x"),
        (
            f"resourceVersion=3&continue={_token()}",
            "specifying resource version is not allowed when using continue",
        ),
    ],
)
async def test_parameters_that_cannot_be_read(api: Api, query: str, message: str) -> None:
    answer = await api.call("GET", f"{SECRETS}?{query}")
    assert (answer.status, answer.json["reason"], answer.message) == (400, "BadRequest", message)


async def test_a_full_page_goes_on_while_there_is_more_to_look_at(api: Api) -> None:
    for name in "abc":
        await api.secret(name, labels={"l": name})
    page = await api.ok("GET", f"{SECRETS}?limit=1&labelSelector=l%3Db")
    assert (names(page), "remainingItemCount" in page["metadata"]) == (["b"], False)
    rest = await api.ok(
        "GET", f"{SECRETS}?limit=1&labelSelector=l%3Db&continue={page['metadata']['continue']}"
    )
    assert (names(rest), "continue" in rest["metadata"]) == ([], False)
    last = await api.ok("GET", f"{SECRETS}?limit=1&labelSelector=l%3Dc")
    assert "continue" not in last["metadata"]
    first = await api.ok("GET", f"{SECRETS}?limit=1")
    assert first["metadata"]["remainingItemCount"] == 2


@pytest.mark.parametrize("selector", ["type%3Dx.dev/one", "type%3Dx.dev/one&labelSelector=l%3D1"])
async def test_nothing_is_looked_at_beyond_a_full_page(api: Api, selector: str) -> None:
    for name, kind in (("a", "x.dev/two"), ("b", "x.dev/one"), ("c", "x.dev/two")):
        meta = {"name": name, "labels": {"l": "1" if kind == "x.dev/one" else "2"}}
        await api.ok("POST", SECRETS, {"metadata": meta, "type": kind})
    page = await api.ok("GET", f"{SECRETS}?limit=1&fieldSelector={selector}")
    assert (names(page), "continue" in page["metadata"]) == (["b"], True)
    await api.ok("DELETE", f"{SECRETS}/c")
    page = await api.ok("GET", f"{SECRETS}?limit=1&fieldSelector={selector}")
    assert (names(page), "continue" in page["metadata"]) == (["b"], False)


@pytest.mark.every_store
async def test_what_remains_is_told_of_old_revisions_and_after_any_token(api: Api) -> None:
    for name in "abc":
        await api.secret(name)
    revision = (await api.ok("GET", SECRETS))["metadata"]["resourceVersion"]
    await api.ok("DELETE", f"{SECRETS}/b")
    then = await api.ok("GET", f"{SECRETS}?limit=1&resourceVersion={revision}")
    assert then["metadata"]["remainingItemCount"] == 2
    rest = await api.ok("GET", f"{SECRETS}?limit=1&continue={then['metadata']['continue']}")
    assert (names(rest), rest["metadata"]["remainingItemCount"]) == (["b"], 1)
    now = await api.ok("GET", f"{SECRETS}?limit=1&continue={_token(rv=-1, start='0')}")
    assert (names(now), now["metadata"]["remainingItemCount"]) == (["a"], 1)


@pytest.mark.every_store
async def test_a_page_of_all_namespaces_goes_on_in_the_next(api: Api) -> None:
    for namespace in ("default", "kube-system"):
        for name in "ab":
            await api.secret(name, namespace)
    listed: list[tuple[str, str]] = []
    token = ""
    while True:
        page = await api.ok("GET", f"/api/v1/secrets?limit=1&fieldSelector=type%3DOpaque&continue={token}")
        listed += [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert listed == [(namespace, name) for namespace in ("default", "kube-system") for name in "ab"]


@pytest.mark.every_store
async def test_a_revision_that_is_not_reached(api: Api) -> None:
    await api.secret("a")
    answer = await api.call("GET", f"{SECRETS}/a?resourceVersion=99999")
    assert (answer.status, answer.json["reason"]) == (504, "Timeout")
    assert answer.message == f"Timeout: Too large resource version: 99999, current: {api.store.revision}"
    assert answer.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert (await api.call("GET", f"{SECRETS}/a?resourceVersion=0")).status == 200


async def test_long_lists_are_streamed_whole(api: Api) -> None:
    for number in range(CHUNK + 7):
        await api.config_map(f"c{number:04}", labels={"odd": str(number % 2)})
    response = await api.raw("GET", CONFIG_MAPS)
    assert response.stream is not None
    listing = (await api.call("GET", CONFIG_MAPS)).json
    assert names(listing) == [f"c{number:04}" for number in range(CHUNK + 7)]
    odd = (await api.call("GET", f"{CONFIG_MAPS}?labelSelector=odd%3D1")).json
    assert len(odd["items"]) == (CHUNK + 7) // 2
    none = (await api.call("GET", f"{CONFIG_MAPS}?labelSelector=odd%3D2")).json
    assert none["items"] == []


@pytest.mark.every_store
async def test_a_list_with_a_limit_ends_early_where_objects_are_large_and_continues(api: Api) -> None:
    for number in range(25):
        made = {"metadata": {"name": f"c{number:02}"}, "data": {"x": "y" * 100_000}}
        await api.ok("POST", CONFIG_MAPS, made)
    listed, token, pages = list[str](), "", 0
    while pages == 0 or token:
        page = await api.ok("GET", f"{CONFIG_MAPS}?limit=500&continue={token}")
        listed, pages, token = listed + names(page), pages + 1, page["metadata"].get("continue", "")
        assert len(msgspec.json.encode(page)) < 1_300_000
        assert page["metadata"].get("remainingItemCount", 0) == 25 - len(listed)
    assert (listed, pages) == ([f"c{number:02}" for number in range(25)], 3)


async def test_an_unforeseen_failure_tells_the_log_only(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("the secret is hunter2")

    monkeypatch.setattr(api.store, "get", broken)
    answer = await api.call("GET", f"{SECRETS}/a?x=secret")
    assert (answer.status, answer.json["reason"]) == (500, "InternalError")
    assert "hunter2" not in answer.message
    assert "hunter2" in caplog.text
    assert "x=secret" not in caplog.text


async def test_a_start_brings_stored_definitions_into_line(start_api: StartApi) -> None:
    store = MemoryStore()
    api = await start_api(store=store)
    await api.ok("POST", CRDS, thing_crd())
    await api.ok("POST", THINGS, {**THING, "metadata": {"name": "a"}, "spec": {"size": 1}})
    await api.settle()
    await api.server.close()
    before = store.revision
    again = await start_api(store=store)
    await again.settle()
    assert store.revision == before, "a restart writes nothing"
    assert names(await again.ok("GET", THINGS)) == ["a"]


@pytest.mark.parametrize("include", ["None", "Object"])
async def test_long_tables_are_streamed_whole(api: Api, include: str) -> None:
    names = [f"c{number:04}" for number in range(CHUNK + 7)]
    for name in names:
        await api.config_map(name)
    target = f"{CONFIG_MAPS}?includeObject={include}&fieldSelector=metadata.name!%3Dkube-root-ca.crt"
    assert (await api.raw("GET", target, accept=TABLE)).stream is not None
    table = (await api.call("GET", target, accept=TABLE)).json
    assert [row["cells"][0] for row in table["rows"]] == names
    assert table["columnDefinitions"][0]["name"] == "Name"
    assert table["metadata"] == {"resourceVersion": str(api.store.revision)}


@pytest.mark.parametrize(
    ("body", "is_selected"),
    [(b'"a":{"b":"web"}', True), (b'"a":{"b":"w\\u0065b"}', True), (b'"a":{"b":"wob"},"c":"web"', False)],
)
def test_a_field_is_selected_however_its_letters_are_written(body: bytes, is_selected: bool) -> None:
    matcher = Matcher((), (), (FieldTerm("a.b", "web"),), needles=(b"web",))
    assert matcher.matches_body(Row(Key("x", "", "y"), 1, b"", body)) is is_selected

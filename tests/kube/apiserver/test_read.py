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
    CERTIFICATES,
    CONFIG_MAPS,
    CRDS,
    PARTIAL,
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


async def test_a_missing_object_is_not_found(api: Api) -> None:
    answer = await api.call("GET", f"{CERTIFICATES}/web")
    assert answer.status == 404
    assert answer.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'certificates.cert-manager.io "web" not found',
        "reason": "NotFound",
        "details": {"name": "web", "group": "cert-manager.io", "kind": "certificates"},
        "code": 404,
    }


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/apis/cert-manager.io/v2/certificates",
        "/apis/cert-manager.io/v1/namespaces/default/clusterissuers",
    ],
)
async def test_a_path_that_names_nothing_is_not_found(api: Api, path: str) -> None:
    response = await api.raw("GET", path)
    assert (response.status, response.body) == (404, b"404 page not found\n")


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


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"{SECRETS}/a"),
        ("PUT", SECRETS),
        ("PATCH", SECRETS),
        ("DELETE", "/api/v1/namespaces"),
        ("DELETE", "/api/v1/secrets"),
        ("POST", "/api/v1/secrets"),
        ("TRACE", SECRETS),
    ],
)
async def test_a_verb_that_the_path_does_not_take(api: Api, method: str, path: str) -> None:
    answer = await api.call(method, path)
    assert (answer.status, answer.json["reason"]) == (405, "MethodNotAllowed")


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
    ("selector", "expected"),
    [
        ("app=web", ["a", "b"]),
        ("app==web,tier=1", ["a"]),
        ("app!=web", ["c", "d"]),
        ("app in (web, db)", ["a", "b", "c"]),
        ("app notin (web)", ["c", "d"]),
        ("tier", ["a", "c"]),
        ("!tier", ["b", "d"]),
        ("tier>1", ["c"]),
        ("tier<2", ["a"]),
        ("app=", []),
    ],
)
async def test_labels_select(api: Api, selector: str, expected: list[str]) -> None:
    labels = {"a": {"app": "web", "tier": "1"}, "b": {"app": "web"}, "c": {"app": "db", "tier": "3"}, "d": {}}
    for name, given in labels.items():
        await api.secret(name, labels=given)
    target = selector.replace("!", "%21").replace(" ", "%20").replace(",", "%2C")
    assert names(await api.ok("GET", f"{SECRETS}?labelSelector={target}")) == expected


_LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a=)", "unable to parse requirement: found ')', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (b,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        ("a in =", "unable to parse requirement: found '=' expected: '('"),
        ("a in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        (
            "a>b",
            'unable to parse requirement: values[0]: Invalid value: "b": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("a=-b", f'unable to parse requirement: values[0][a]: Invalid value: "-b": {_LABEL_RULE}'),
        (
            "a in (-c,-b)",
            f'unable to parse requirement: [values[0][a]: Invalid value: "-b": {_LABEL_RULE}, '
            f'values[1][a]: Invalid value: "-c": {_LABEL_RULE}]',
        ),
        (
            "-a",
            'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric '
            "characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
            "'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ],
)
async def test_a_label_selector_that_is_none(api: Api, selector: str, message: str) -> None:
    answer = await api.call("GET", f"{SECRETS}?labelSelector={quote(selector)}")
    assert (answer.status, answer.message) == (400, message)


@pytest.mark.parametrize(
    ("path", "selector", "message"),
    [
        (CERTIFICATES, "a", "invalid selector: 'a'; can't understand 'a'"),
        (CERTIFICATES, "a=b", "field label not supported: a"),
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
    answer = await api.call("GET", f"{SECRETS}?fieldSelector=data%3Dx")
    assert (answer.status, answer.message) == (400, "field label not supported: data")


async def test_selectable_fields_of_a_definition_select(api: Api) -> None:
    await api.ok("POST", CRDS, thing_crd())
    for owner in ("eve", "bob"):
        await api.ok(
            "POST", THINGS, {**THING, "metadata": {"name": owner}, "spec": {"size": 1, "owner": owner}}
        )
    assert names(await api.ok("GET", f"{THINGS}?fieldSelector=spec.owner%3Deve")) == ["eve"]
    assert (await api.call("GET", f"{THINGS}?fieldSelector=spec.size%3D1")).status == 400


@pytest.mark.every_store
async def test_pages_are_of_one_revision(api: Api) -> None:
    for name in "abcde":
        await api.secret(name)
    first = await api.ok("GET", f"{SECRETS}?limit=2")
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
    await api.ok("DELETE", f"{SECRETS}/c")
    await api.secret("bb")
    second = await api.ok("GET", f"{SECRETS}?limit=2&continue={first['metadata']['continue']}")
    assert names(second) == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert second["metadata"]["remainingItemCount"] == 1
    last = await api.ok("GET", f"{SECRETS}?limit=2&continue={second['metadata']['continue']}")
    assert names(last) == ["e"]
    assert "continue" not in last["metadata"]


@pytest.mark.every_store
async def test_pages_of_a_selection_are_full(api: Api) -> None:
    for number in range(20):
        await api.secret(f"s{number:02}", labels={"third": "yes" if number % 3 == 0 else "no"})
    listed: list[str] = []
    token = ""
    while True:
        page = await api.ok("GET", f"{SECRETS}?limit=2&labelSelector=third%3Dyes&continue={token}")
        listed += names(page)
        token = page["metadata"].get("continue", "")
        assert len(page["items"]) == 2 or not token
        if not token:
            break
    assert listed == [f"s{number:02}" for number in range(0, 20, 3)]


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
        ("resourceVersion=0", 200),
        ("resourceVersion=5", 200),
        ("resourceVersion=5&resourceVersionMatch=NotOlderThan", 200),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan", 200),
        ("resourceVersion=99999", 504),
        ("resourceVersion=99999&resourceVersionMatch=Exact", 504),
        ("resourceVersion=x", 400),
        ("resourceVersion=99999999999999999999", 400),
        ("resourceVersion=5&continue=e30", 400),
        ("sendInitialEvents=true", 422),
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422),
        ("resourceVersion=5&resourceVersionMatch=Roughly", 422),
        ("continue=nonsense", 400),
        ("continue=e30", 400),
        ("limit=x", 400),
        ("&".join(f"p{number}=x" for number in range(200)), 400),
        ("labelSelector=%ff&fieldSelector=%zz", 400),
        ("limit=2&limit=x", 200),
        ("limit=-1", 200),
    ],
)
async def test_forms_of_resource_versions(api: Api, query: str, status: int) -> None:
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
        (
            "limit=99999999999999999999",
            'limit: expected a whole number of 64 bits, got "99999999999999999999"',
        ),
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


async def test_all_that_is_wrong_with_a_list_is_told_at_once(api: Api) -> None:
    answer = await api.call("GET", f"{SECRETS}?sendInitialEvents=true&resourceVersionMatch=Foo")
    assert answer.message == (
        'ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is '
        'forbidden unless resourceVersion is provided, resourceVersionMatch: Unsupported value: "Foo": '
        'supported values: "Exact", "NotOlderThan", "", sendInitialEvents: Forbidden: sendInitialEvents is '
        "forbidden for list]"
    )


async def test_an_unreadable_revision_is_a_server_error_as_in_kubernetes(api: Api) -> None:
    await api.secret("a")
    for target in (f"{SECRETS}/a?resourceVersion=x", f"{SECRETS}?watch=1&resourceVersion=x"):
        answer = await api.call("GET", target)
        assert (answer.status, "reason" in answer.json) == (500, False)
        assert answer.message == 'resourceVersion: expected a whole number of 64 bits, got "x"'


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


async def test_lists_of_custom_objects_always_say_how_to_go_on(api: Api) -> None:
    assert (await api.ok("GET", CERTIFICATES))["metadata"]["continue"] == ""
    assert "continue" not in (await api.ok("GET", SECRETS))["metadata"]


async def test_a_table_that_is_to_include_what_nobody_knows(api: Api) -> None:
    for target in (f"{SECRETS}?includeObject=Foo", f"{SECRETS}?watch=1&includeObject=Foo"):
        answer = await api.call("GET", target, accept=TABLE)
        assert (answer.status, answer.message) == (
            400,
            'Unable to convert to Table as requested: includeObject: Invalid value: "Foo": '
            "must be 'Metadata', 'Object', 'None', or empty",
        )


async def test_a_list_as_it_was(api: Api) -> None:
    await api.secret("a")
    then = api.store.revision
    await api.secret("b")
    listing = await api.ok("GET", f"{SECRETS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert (names(listing), listing["metadata"]["resourceVersion"]) == (["a"], str(then))


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


async def test_a_table_has_the_printer_columns(api: Api) -> None:
    await api.certificate("web")
    for target in (CERTIFICATES, f"{CERTIFICATES}/web"):
        table = await api.ok("GET", target, accept=f"{TABLE},application/json")
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        columns = [column["name"] for column in table["columnDefinitions"]]
        assert columns[:3] == ["Name", "Ready", "Secret"]
        (row,) = table["rows"]
        assert row["cells"][0] == "web"
        assert row["object"]["kind"] == "PartialObjectMetadata"
    full_table = await api.ok("GET", f"{CERTIFICATES}?includeObject=Object", accept=TABLE)
    assert full_table["rows"][0]["object"]["kind"] == "Certificate"


async def test_metadata_only(api: Api) -> None:
    await api.secret("a", labels={"x": "y"})
    obj = await api.ok("GET", f"{SECRETS}/a", accept=PARTIAL)
    assert (obj["kind"], obj["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert set(obj) == {"kind", "apiVersion", "metadata"}
    many = await api.ok("GET", SECRETS, accept=PARTIAL.replace("Metadata", "MetadataList", 1))
    assert many["kind"] == "PartialObjectMetadataList"
    assert many["items"] == [obj]


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("", 200),
        ("*/*", 200),
        ("application/json, */*", 200),
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("application/vnd.kubernetes.protobuf", 200),
        ("application/yaml", 200),
        ("application/json;as=Table;v=v9;g=meta.k8s.io", 406),
        ("application/json;q=0", 200),
        ("text/html;q=0.9, application/json;q=0.8", 200),
    ],
)
async def test_representations(api: Api, accept: str, status: int) -> None:
    answer = await api.call("GET", SECRETS, accept=accept)
    assert answer.status == status
    if status == 406:
        assert answer.message.startswith("only the following media types are accepted: application/json")


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


async def test_an_empty_list_of_metadata(api: Api) -> None:
    accept = PARTIAL.replace("Metadata", "MetadataList", 1)
    listing = await api.ok("GET", f"{SECRETS}?labelSelector=nobody", accept=accept)
    assert (listing["kind"], listing["items"]) == ("PartialObjectMetadataList", None)
    full = await api.ok("GET", f"{SECRETS}?labelSelector=nobody")
    assert full["items"] == []


async def test_a_limit_does_not_count_for_a_list_of_any_revision(api: Api) -> None:
    for name in "abc":
        await api.secret(name)
    page = await api.ok("GET", f"{SECRETS}?limit=1&fieldSelector=type%3DOpaque")
    assert len(page["items"]) == 1
    every = await api.ok("GET", f"{SECRETS}?limit=1&resourceVersion=0&fieldSelector=type%3DOpaque")
    assert (len(every["items"]), "continue" in every["metadata"]) == (3, False)


@pytest.mark.parametrize("deeper", ["web/nothing", "web%2Fnothing", "web/a/b/c"])
async def test_a_custom_object_has_no_such_subresource(api: Api, deeper: str) -> None:
    await api.certificate("web")
    answer = await api.call("GET", f"{CERTIFICATES}/{deeper}")
    assert (answer.status, answer.message) == (404, 'certificates.cert-manager.io "web" not found')
    answer = await api.call("GET", f"{SECRETS}/{deeper}")
    assert (answer.status, answer.message) == (404, "the server could not find the requested resource")


@pytest.mark.parametrize(
    ("body", "is_selected"),
    [(b'"a":{"b":"web"}', True), (b'"a":{"b":"w\\u0065b"}', True), (b'"a":{"b":"wob"},"c":"web"', False)],
)
def test_a_field_is_selected_however_its_letters_are_written(body: bytes, is_selected: bool) -> None:
    matcher = Matcher((), (), (FieldTerm("a.b", "web"),), needles=(b"web",))
    assert matcher.matches_body(Row(Key("x", "", "y"), 1, b"", body)) is is_selected

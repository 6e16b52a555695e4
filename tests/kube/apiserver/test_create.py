"""POST."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import msgspec
import pytest

from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.model import offload
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.apiserver.model.negotiation import WHOLE
from certwright.kube.apiserver.model.routes import Route
from certwright.kube.util.http_messages import Identity, Request
from kube.apiserver.callers import (
    CERTIFICATES,
    CONFIG_MAPS,
    CRDS,
    JSON_PATCH,
    MERGE,
    SECRETS,
    THING,
    THINGS,
    Api,
    Json,
    StartApi,
    certificate,
    signing_request,
    thing_crd,
)


async def test_a_created_object_carries_what_the_server_decides(api: Api) -> None:
    made = await api.ok("POST", CERTIFICATES, certificate("web", labels={"a": "b"}))
    meta = made["metadata"]
    assert (meta["namespace"], meta["generation"], meta["labels"]) == ("default", 1, {"a": "b"})
    assert meta["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert re.fullmatch(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", meta["uid"])
    assert meta["resourceVersion"] == str(api.store.revision)
    assert await api.ok("GET", f"{CERTIFICATES}/web") == made


@pytest.mark.parametrize("revision", ["0", "x", "9" * 20, "9" * 5000])
async def test_what_is_no_revision_counts_as_none(api: Api, revision: str) -> None:
    await api.config_map("a", resourceVersion=revision)
    answer = await api.call("POST", CONFIG_MAPS, {"metadata": {"name": "b", "resourceVersion": "7"}})
    assert answer.message == "resourceVersion should not be set on objects to be created"


async def test_a_secret_keeps_string_data_as_data(api: Api) -> None:
    made = await api.secret("a")
    assert (made["type"], made["data"]) == ("Opaque", {"key": "YQ=="})
    assert "stringData" not in made
    assert "generation" not in made["metadata"]


async def test_a_namespace_must_exist(api: Api) -> None:
    answer = await api.call("POST", "/api/v1/namespaces/nowhere/secrets", {"metadata": {"name": "a"}})
    assert (answer.status, answer.message) == (404, 'namespaces "nowhere" not found')


async def test_other_bodies_are_not_read(api: Api) -> None:
    answer = await api.call("POST", SECRETS, {"metadata": {"name": "a"}}, content_type="text/plain")
    assert answer.status == 415
    assert "accepted media types include: application/json, application/yaml" in answer.message


async def test_wrong_fields_are_named_all_at_once(api: Api) -> None:
    body = certificate("Not_DNS", labels={"-": "x"})
    body["spec"]["secretName"] = 7
    answer = await api.call("POST", CERTIFICATES, body)
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    fields = {cause["field"] for cause in answer.json["details"]["causes"]}
    assert {"metadata.name", "metadata.labels", "spec.secretName"} <= fields
    assert answer.message.startswith('Certificate.cert-manager.io "Not_DNS" is invalid: [')


async def test_our_own_rules_hold_for_every_writer(api: Api) -> None:
    body = certificate("web")
    body["spec"]["duration"] = "1m"
    answer = await api.call("POST", CERTIFICATES, body)
    assert (answer.status, answer.json["reason"]) == (406, "NotAcceptable")
    assert answer.message == (
        'admission webhook "webhook.cert-manager.io" denied the request: '
        'spec.duration: Invalid value: "1m": must be at least 1h'
    )
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == ["spec.duration"]


async def test_suspicious_names_are_accepted_with_a_warning(api: Api) -> None:
    body = certificate("web")
    body["spec"] |= {"dnsNames": ["*.*.com"] * 2, "commonName": "a\u202eb"}
    answer = await api.call("POST", CERTIFICATES, body)
    assert answer.status == 201
    for words in ("spec.dnsNames[0]: ", "is listed 2 times", "spec.commonName: "):
        assert words in answer.headers["warning"]
    change = {"metadata": {"labels": {"a": "b"}}}
    relabelled = await api.call("PATCH", f"{CERTIFICATES}/web", change, content_type=MERGE)
    assert (relabelled.status, relabelled.headers.get("warning")) == (200, None)


async def test_a_generated_name_has_five_characters(api: Api) -> None:
    made = await api.ok("POST", SECRETS, {"metadata": {"generateName": "web-"}})
    assert re.fullmatch(r"web-[bcdfghjklmnpqrstvwxz2456789]{5}", made["metadata"]["name"])


REQUESTS = "/apis/cert-manager.io/v1/namespaces/default/certificaterequests"


def certificate_request(**spec: Any) -> Json:
    """A CertificateRequest."""
    head = {"apiVersion": "cert-manager.io/v1", "kind": "CertificateRequest", "metadata": {"name": "r"}}
    return {**head, "spec": {"request": signing_request(), "issuerRef": {"name": "ca"}, **spec}}


async def test_a_request_for_a_certificate_says_who_asked(start_api: StartApi) -> None:
    api = await start_api(user=Identity("eve", uid="7", groups=("system:masters",), extra={"a": ("b",)}))
    spec = (await api.ok("POST", REQUESTS, certificate_request(username="admin")))["spec"]
    assert (spec["username"], spec["uid"], spec["groups"], spec["extra"]) == (
        "eve",
        "7",
        ["system:masters"],
        {"a": ["b"]},
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"request": "YQ=="}, "error decoding certificate request PEM block"),
        ({"isCA": True, "usages": ["cert sign"]}, "the signing request"),
        ({"usages": ["client auth"]}, "the signing request has the usages"),
    ],
)
async def test_a_signing_request_must_be_sound_and_as_the_request_says(
    change: dict[str, Any], words: str, api: Api
) -> None:
    answer = await api.call("POST", REQUESTS, certificate_request(**change))
    assert answer.status == 406
    assert answer.message.startswith('admission webhook "webhook.cert-manager.io" denied the request: ')
    assert f'spec.request: Invalid value: \\"<signing request>\\": {words}'.encode() in answer.body


NUMBERS = {
    "count": {"type": "integer"},
    "f": {"type": "number"},
    "port": {"x-kubernetes-int-or-string": True},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "whole": {"type": "integer", "default": 7.0},
}
WAYS = {
    "POST": ("POST", THINGS, "application/json"),
    "merge": ("PATCH", f"{THINGS}/a", MERGE),
    "JSON patch": ("PATCH", f"{THINGS}/a", JSON_PATCH),
    "apply": ("PATCH", f"{THINGS}/a?fieldManager=a", "application/apply-patch+yaml"),
}
MAX = 2**63 - 1
GOOGOL = "1" + "0" * 400
NOT_AN_INTEGER = 'spec.count: Invalid value: "number": spec.count in body must be of type integer: "number"'


async def _with_numbers(api: Api) -> None:
    crd = thing_crd()
    crd["spec"]["versions"][0].pop("selectableFields")
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
        "type": "object",
        "properties": NUMBERS,
    }
    await api.ok("POST", CRDS, crd)


@pytest.mark.parametrize(
    ("spec", "result"),
    [
        pytest.param(f'{{"count":{MAX}}}', {"count": MAX}, id="the largest int64"),
        pytest.param(f'{{"count":{-MAX - 1}}}', {"count": -MAX - 1}, id="the smallest int64"),
        pytest.param(f'{{"count":{MAX + 1}}}', NOT_AN_INTEGER, id="one more than int64 has"),
        pytest.param(f'{{"count":{-MAX - 2}}}', NOT_AN_INTEGER, id="one less than int64 has"),
        pytest.param('{"count":1e3}', {"count": 1000}, id="an exponent"),
        pytest.param('{"count":-0}', {"count": 0}, id="minus zero"),
        pytest.param('{"count":1.5}', NOT_AN_INTEGER, id="a fraction"),
        pytest.param('{"count":1e19}', NOT_AN_INTEGER, id="an exponent beyond int64"),
        pytest.param(f'{{"f":{MAX + 1}}}', {"f": 2.0**63}, id="a number has no bound but float64"),
        pytest.param(f'{{"port":{MAX + 1}}}', "must be of type integer,string", id="a port beyond int64"),
        pytest.param(f'{{"free":{{"a":[{MAX + 1}]}}}}', {"free": {"a": [2.0**63]}}, id="no schema"),
        pytest.param(f'{{"free":{{"a":[{GOOGOL}]}}}}', "too large", id="an integer beyond float64"),
        pytest.param('{"free":{"a":1e400}}', "too large", id="an exponent beyond float64"),
        pytest.param(f'{{"free":{{"a":"{GOOGOL}"}}}}', {"free": {"a": GOOGOL}}, id="text with many digits"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", WAYS)
async def test_a_number_is_stored_only_if_go_decodes_it(
    api: Api, spec: str, result: dict[str, Any] | str, way: str
) -> None:
    await _with_numbers(api)
    body = f'{{"apiVersion":"test.dev/v1","kind":"Thing","metadata":{{"name":"a"}},"spec":{spec}}}'
    if way in ("merge", "JSON patch"):
        await api.ok("POST", THINGS, {**THING, "metadata": {"name": "a"}, "spec": {}})
    if way == "JSON patch":
        body = f'[{{"op":"replace","path":"/spec","value":{spec}}}]'
    method, target, media = WAYS[way]
    response = await api.raw(method, target, body.encode(), content_type=media)
    if way == "apply" and result == "too large":
        result = {"free": {"a": "1e400"}} if "1e400" in spec else {"free": {"a": [GOOGOL]}}
    if isinstance(result, str):
        assert response.status in (400, 422)
        assert result in msgspec.json.decode(response.body)["message"]
    else:
        assert response.status in (200, 201), response.body
        assert msgspec.json.decode(response.body)["spec"] == {**result, "whole": 7}
        assert b'"whole":7.' not in response.body


@pytest.mark.parametrize(
    "text", ["0xFFFFFFFFFFFFFFFF", "0o1777777777777777777777", "18_446_744_073_709_551_615", "1e19"]
)
async def test_forms_of_integers_in_yaml_are_bounded_too(api: Api, text: str) -> None:
    await _with_numbers(api)
    body = f"apiVersion: test.dev/v1\nkind: Thing\nmetadata: {{name: a}}\nspec: {{count: {text}}}\n"
    response = await api.raw("POST", THINGS, body.encode(), content_type="application/yaml")
    assert response.status == 422
    assert NOT_AN_INTEGER in msgspec.json.decode(response.body)["message"]


async def test_a_number_of_very_many_digits_is_text_in_yaml(api: Api) -> None:
    await _with_numbers(api)
    head, digits = "apiVersion: test.dev/v1\nkind: Thing\nmetadata: {name: a}\n", "9" * 5000
    body = f"{head}spec: {{free: {{a: {digits}}}}}\n"
    response = await api.raw("POST", THINGS, body.encode(), content_type="application/yaml")
    assert msgspec.json.decode(response.body)["spec"]["free"] == {"a": digits}


async def test_yaml_with_very_many_values_is_refused_and_json_is_not(api: Api) -> None:
    keys = range(60_000)
    text = "metadata: {name: a}\ndata:\n" + "".join(f"  k{key}: x\n" for key in keys)
    answer = await api.raw("POST", CONFIG_MAPS, text.encode(), content_type="application/yaml")
    assert answer.status == 400
    assert b"too many values to be read as YAML; send it as JSON" in answer.body
    await api.config_map("a", {f"k{key}": "x" for key in keys})


@pytest.mark.parametrize(
    ("accounts", "other"),
    [
        pytest.param([f"tenant:{number}" for number in range(4)], "other:a", id="of a namespace: together"),
        pytest.param(["certwright-users:jane"], "certwright-users:joe", id="of people: each"),
    ],
)
async def test_service_accounts_take_turns_with_large_requests(
    api: Api, accounts: list[str], other: str
) -> None:
    def call(user: str, namespace: str = "default") -> Call:
        definition = make_registry(api.clock).find("", "v1", "secrets")
        assert definition is not None
        route = Route("", "v1", namespace, "secrets", "a", "")
        who = Identity(f"system:serviceaccount:{user}")
        return Call(Request("GET", "/"), who, "get", definition, route, {}, WHOLE)

    started, may_end = threading.Event(), threading.Event()

    def long_work() -> None:
        started.set()
        may_end.wait()

    long = [asyncio.ensure_future(offload.in_thread(call(account), long_work)) for account in accounts]
    try:
        await asyncio.to_thread(started.wait)
        assert await offload.in_thread(call(other), lambda: "done") == "done"
        assert await offload.in_thread(call(accounts[0], "another"), lambda: "done") == "done"
        assert [task.done() for task in long] == [False] * len(accounts)
    finally:
        may_end.set()
        await asyncio.gather(*long)

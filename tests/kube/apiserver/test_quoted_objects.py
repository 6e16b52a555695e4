"""What errors quote of objects: never a key, a password or a token."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from certwright.pki.keys import KeyPlan, encode_private_key, generate
from kube.apiserver.callers import CERTIFICATES, CONFIG_MAPS, MERGE, SECRETS, STRATEGIC, Api, certificate

APPLY = "application/apply-patch+yaml"
JSON = "application/json"
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def pem() -> str:
    """A private key."""
    return encode_private_key(generate(KeyPlan())).decode()


def leaks(text: bytes, *secrets: str) -> list[str]:
    """Which of the secrets are in `text`, plain or in base64, by a piece of each line."""
    pieces = {
        piece
        for secret in secrets
        for line in (*secret.splitlines(), base64.b64encode(secret.encode()).decode())
        if "-----" not in line and (piece := line[8:24])
    }
    return [piece for piece in pieces if piece.encode() in text]


WRONG_SECRETS: dict[str, tuple[str, str, Any]] = {
    "bad base64 in a merge patch": ("PATCH", MERGE, {"data": {"z": "%"}}),
    "bad base64 in a strategic patch": ("PATCH", STRATEGIC, {"data": {"z": "%"}}),
    "bad base64 in an apply": ("PATCH", APPLY, {"data": {"z": "%"}}),
    "a wrong type": ("PATCH", MERGE, {"data": []}),
    "an unknown field": ("PATCH", MERGE, {"foo": 1}),
    "another kind": ("PATCH", MERGE, {"kind": "Other"}),
    "no kind": ("PUT", JSON, {"kind": 5}),
    "another type": ("PUT", JSON, {"type": "other"}),
    "a list": ("PUT", JSON, []),
    "a new object without an end": ("POST", JSON, None),
}


@pytest.mark.parametrize("wrong", WRONG_SECRETS.values(), ids=WRONG_SECRETS)
@pytest.mark.parametrize("strict", ["", "?fieldValidation=Strict"], ids=["warned", "strict"])
async def test_no_error_about_a_secret_quotes_it(
    api: Api, pem: str, wrong: tuple[str, str, Any], strict: str
) -> None:
    method, media, change = wrong
    data = {"tls.key": base64.b64encode(pem.encode()).decode()}
    text = {"password": PASSWORD}
    secret = {
        "stringData": text,
        "data": data,
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a"},
    }
    await api.ok("POST", SECRETS, secret)
    if method == "PATCH" and media != APPLY:
        body = msgspec.json.encode(change | {"stringData": text})
    else:
        body = msgspec.json.encode([secret] if change == [] else {**secret, **(change or {})})
    if change is None:
        body = b'{"stringData":{"p":"%b"},' % PASSWORD.encode()
    target = SECRETS + strict if method == "POST" else f"{SECRETS}/a{strict}"
    if media == APPLY:
        target += f"{'&' if strict else '?'}fieldManager=m&force=true"
    answer = await api.raw(method, target, body, content_type=media)
    assert answer.status >= 400 or wrong[2] == {"foo": 1}, answer.body
    if answer.status >= 400:
        assert not leaks(answer.body, pem, PASSWORD), answer.body


async def test_no_error_quotes_a_key_in_an_object_of_another_kind(api: Api, pem: str) -> None:
    body = certificate("a")
    body["spec"]["dnsNames"] = [pem]
    body["spec"]["commonName"] = pem
    refused = await api.call("POST", CERTIFICATES, body)
    assert refused.status >= 400
    assert not leaks(refused.body, pem), refused.body
    config = {"apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": pem}}
    for change in ({"data": {"k": pem, "l": 1}}, {"kind": 7}):
        refused = await api.call("POST", CONFIG_MAPS, config | change)
        assert refused.status >= 400
        assert not leaks(refused.body, pem), refused.body


async def test_no_error_about_a_certificate_quotes_its_password(api: Api) -> None:
    body = certificate("a")
    body["spec"]["keystores"] = {"jks": {"create": True, "password": PASSWORD}}
    await api.ok("POST", CERTIFICATES, body)
    target = f"{CERTIFICATES}/a?fieldValidation=Strict"
    for change in ({"spec": {"foo": 1}}, {"kind": None}, {"spec": 7}):
        refused = await api.call("PATCH", target, change, content_type=MERGE)
        assert refused.status >= 400
        assert not leaks(refused.body, PASSWORD), refused.body


async def test_other_objects_are_quoted_as_in_kubernetes(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"colour": "red"}})
    target = f"{CONFIG_MAPS}/a?fieldValidation=Strict"
    refused = await api.call("PATCH", target, {"foo": 7}, content_type=MERGE)
    assert '"colour":"red"' in refused.json["details"]["causes"][0]["message"].replace("\\", "")

"""What users get wrong, and servers that misbehave: one sentence each, with the field and the fix."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization

from certwright.issuers.contract import Checked, Failed, Outcome, Pending
from certwright.issuers.vault.issuer import Vault
from certwright.kit.outgoing import HttpAnswer, HttpClient, ServerTls, ServerUnreachable
from certwright.kube.apiserver.requests.patch import merge_patch
from certwright.pki.csr import CsrPlan
from certwright.pki.keys import KeyPlan, generate
from certwright.resources.causes import Cause
from certwright.resources.issuer import (
    VaultAppRole,
    VaultAuth,
    VaultIssuer,
)
from certwright.resources.references import SecretKeySelector
from conformance.check_issuer import Setup
from issuers.authority import new_root
from issuers.vault.conftest import MakeSetup, VaultSetup, view_of
from support.hostile import Behaviour, endless, hostile, not_http, silent, slow
from support.openbao import Bao
from support.tables import table

NAME = "a.example.org"
ROOT = new_root("client")
ENCRYPTED_KEY = ROOT.key.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.BestAvailableEncryption(b"secret"),
)
ROLE: dict[str, Any] = {
    "allowed_domains": ["example.org"],
    "allow_subdomains": True,
    "max_ttl": "2160h",
    "require_cn": False,
    "key_type": "any",
}
SPEC = VaultIssuer(
    auth=VaultAuth(token_secret_ref=SecretKeySelector(name="token")),
    server="https://vault.example",
    path="pki/sign/web",
)


async def check(setup: VaultSetup) -> Checked:
    """The verdict on an issuer, which must be one sentence."""
    checked = await setup.issuer.check(setup.view, setup.tools)
    assert "\n" not in checked.message
    return checked


# The role and the request, what the server says, and the advice.
ROLES = """
dns_names: [a.example.com] | a.example.com not allowed | spec.dnsNames ("a.example.com")
common_name: Me, dns_names: [a.example.org] | Me not allowed | spec.commonName ("Me")
dns_names: ["*.example.org"] | *.example.org not | spec.dnsNames ("*.example.org")
uris: ["spiffe://a/b"] | URI Subject Alternative Names | change spec.uris,
email_addresses: [a@example.com] | a@example.com not allowed | spec.emailAddresses ("a@example.com")
role: {allow_ip_sans: false}, ip_addresses: [10.0.0.1] | IP Subject Alternative Names
  | change spec.ipAddresses,
role: {require_cn: true}, dns_names: [a.example.org] | common_name | change spec.commonName,
role: {key_type: rsa}, dns_names: [a.example.org] | role requires keys of type rsa
  | change spec.privateKey.algorithm,
role: {key_type: ec, key_bits: 384}, dns_names: [a.example.org] | minimum of a 384-bit key
  | change spec.privateKey.size,
"""


@pytest.mark.parametrize(("case", "words", "advice"), table(ROLES))
async def test_what_the_role_forbids_names_the_field(
    make: MakeSetup, bao: Bao, case: dict[str, Any], words: str, advice: str
) -> None:
    role = {"allow_wildcard_certificates": False, **ROLE, **case.get("role", {})}
    bao.call("POST", "pki/roles/web", role)
    setup, plan = make(), msgspec.convert(case, CsrPlan)
    outcome = await setup.failed(setup.request(plan, key=generate(KeyPlan.of("ECDSA"))))
    assert (outcome.reason, outcome.cause) == ("SigningError", Cause.INVALID_REQUEST)
    assert outcome.message.startswith("Vault failed to sign certificate: ")
    assert words in outcome.message
    assert advice in outcome.advice


def lasting(setup: VaultSetup, duration: str) -> Any:
    """A request for a certificate of that lifetime."""
    signing = setup.request(CsrPlan(dns_names=(NAME,)))
    spec = msgspec.structs.replace(signing.request.spec, duration=duration)
    return replace(signing, request=msgspec.structs.replace(signing.request, spec=spec))


async def test_a_lifetime_beyond_that_of_the_ca_names_the_field(make: MakeSetup, bao: Bao) -> None:
    bao.call("POST", "pki/roles/web", {**ROLE, "max_ttl": "100000h"})
    setup = make()
    outcome = await setup.failed(lasting(setup, "90000h"))
    assert "beyond the expiration of the CA certificate" in outcome.message
    assert "change spec.duration," in outcome.advice


async def test_a_lifetime_that_the_role_shortens_is_warned_about(make: MakeSetup, bao: Bao) -> None:
    bao.call("POST", "pki/roles/web", {**ROLE, "max_ttl": "24h"})
    setup = make()
    setup.now = datetime.now(UTC)
    outcome = await setup.signed(lasting(setup, "48h"))
    assert [event.reason for event in outcome.warnings] == ["BadConfig"]
    assert "change spec.duration, or max_ttl of the role" in outcome.warnings[0].message
    exact = await setup.signed(lasting(setup, "24h"))
    assert exact.warnings == ()


# Changes of the spec, and what is said about them.
SETTINGS = """
auth: {appRole: {secretRef: {name: none}}}
  | the Secret "none" in spec.vault.auth.appRole.secretRef does not exist; create it
auth: {appRole: {secretRef: {name: app-role, key: other}}}
  | the Secret "app-role" in spec.vault.auth.appRole.secretRef has no entry "other"; add it
auth: {appRole: {secretRef: {name: binary}}}
  | the entry "secretId" of the Secret "binary" in spec.vault.auth.appRole.secretRef is not one
auth: {appRole: {roleId: wrong}} | Vault refuses the login:
auth: {appRole: {path: elsewhere}}
  | elsewhere/login answered 403: permission denied; check role, credentials and mount path in
auth: {appRole: null, clientCertificate: {name: web}} | Vault refuses the login:
auth: {appRole: null, kubernetes: {role: none, secretRef: {name: jwt}}} | Vault refuses the login:
namespace: none | and spec.vault.namespace
caBundle: null, caBundleSecretRef: {name: none}
  | the Secret "none" in spec.vault.caBundleSecretRef does not exist; create it
caBundle: null, caBundleSecretRef: {name: binary, key: secretId}
  | correct caBundle or the client certificate in spec.vault
auth: {appRole: null, clientCertificate: {name: web, secretName: encrypted}}
  | the client certificate of spec.vault cannot be used: the private key is encrypted
server: "https://127.0.0.1:1" | cannot be reached
server: "http://127.0.0.1:1" | write https://…, or start certwright with
server: vault | is not a URL of a server; write https://HOST/…
"""


@pytest.mark.parametrize(("change", "words"), table(SETTINGS))
async def test_a_wrong_setting_is_named_by_the_check(
    make: MakeSetup, change: dict[str, Any], words: str
) -> None:
    setup = make()
    setup.secrets["binary"] = {"secretId": b"\xff\n\x00"}
    setup.secrets["jwt"] = {"token": b"a.b.c"}
    setup.secrets["encrypted"] = {"tls.crt": ROOT.pem, "tls.key": ENCRYPTED_KEY}
    changed = merge_patch(msgspec.to_builtins(setup.spec), change)
    setup.change(msgspec.convert(changed, VaultIssuer))
    checked = await check(setup)
    assert (checked.ready, checked.reason) == (False, "VaultError")
    assert words in checked.message
    outcome = await setup.pending(setup.request(CsrPlan(dns_names=(NAME,))))
    assert words in outcome.message


async def test_a_token_that_has_expired_is_named(make: MakeSetup, bao: Bao) -> None:
    made = bao.call("POST", "auth/token/create", {"policies": ["sign-web"], "explicit_max_ttl": "1s"})
    setup = make(VaultAuth(token_secret_ref=SecretKeySelector(name="token")))
    setup.secrets["token"] = {"token": made["auth"]["client_token"].encode()}
    while (checked := await check(setup)).ready:
        pass
    message = "the token in spec.vault.auth.tokenSecretRef is invalid or has expired; put a valid one"
    assert message in checked.message
    outcome = await setup.pending(setup.request(CsrPlan(dns_names=(NAME,))))
    assert outcome.cause is Cause.UNAVAILABLE
    assert "put a valid token into the Secret of spec.vault.auth.tokenSecretRef" in outcome.message


async def test_a_lease_that_ends_early_costs_one_login(make: MakeSetup, bao: Bao) -> None:
    # The clock of the issuer stands still: only the server knows that the lease is over.
    settings = {"token_policies": ["sign-web"], "token_ttl": "1s", "token_max_ttl": "1s"}
    bao.call("POST", "auth/approle/role/short", settings)
    role = bao.call("GET", "auth/approle/role/short/role-id")["data"]["role_id"]
    secret = bao.call("POST", "auth/approle/role/short/secret-id", {})["data"]["secret_id"]
    ref = SecretKeySelector(name="short", key="secretId")
    setup = make(VaultAuth(app_role=VaultAppRole(path="approle", role_id=role, secret_ref=ref)))
    setup.secrets["short"] = {"secretId": secret.encode()}
    before = bao.count("auth/approle/login")
    while bao.count("auth/approle/login") < before + 2:
        await setup.signed(setup.request(CsrPlan(dns_names=(NAME,))))


async def test_a_policy_that_forbids_the_path_costs_no_further_login(make: MakeSetup, bao: Bao) -> None:
    setup = make(path="pki/sign/other")
    before = bao.count("auth/approle/login")
    for _ in range(3):
        outcome = await setup.pending(setup.request(CsrPlan(dns_names=(NAME,))))
        assert 'path "pki/sign/other" { capabilities = ["update"] }' in outcome.message
    assert bao.count("auth/approle/login") == before + 1


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (silent, "did not answer within 0.5 s"),
        (slow, "did not answer within 0.5 s"),
        (endless, "answered with more than 4 MiB"),
        (not_http, "does not speak HTTP"),
    ],
)
async def test_a_server_that_misbehaves_is_named_and_quoted_in_nothing(
    make: MakeSetup, behaviour: Behaviour, words: str
) -> None:
    setup = make()
    setup.timeout_s = 0.5 if behaviour is not endless else 30.0
    async with hostile(behaviour) as (url, ca_pem):
        setup.change(msgspec.structs.replace(setup.spec, server=url, ca_bundle=ca_pem))
        outcome = await setup.pending(setup.request(CsrPlan(dns_names=(NAME,))))
    assert outcome.cause is Cause.UNAVAILABLE
    assert words in outcome.message
    assert url in outcome.message
    assert "internal.example" not in outcome.message


@dataclass
class Answering:
    """An `HttpClient` that gives one answer, or raises."""

    answer: HttpAnswer | ServerUnreachable

    async def send(self, method: str, url: str, **_: object) -> HttpAnswer:
        if isinstance(self.answer, ServerUnreachable):
            raise self.answer
        return self.answer


@dataclass
class FakeSetup(VaultSetup):
    """A `vault` issuer whose server gives one answer to each request."""

    answer: HttpAnswer | ServerUnreachable = field(kw_only=True)

    def client(self, tls: ServerTls, fix: str) -> HttpClient:
        """See `VaultSetup`."""
        return Answering(self.answer)


def setup_at(answer: HttpAnswer | ServerUnreachable) -> FakeSetup:
    return FakeSetup(Vault(), view_of(SPEC), {"token": {"token": b"t"}}, answer=answer)


async def outcome_of(answer: HttpAnswer | ServerUnreachable) -> tuple[Setup, Outcome]:
    setup = setup_at(answer)
    return setup, await setup.sign(setup.request())


def answer(status: int, body: object, *headers: tuple[str, str]) -> HttpAnswer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpAnswer(status, headers, content)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (answer(200, b"<html>secret page</html>"), "no JSON"),
        (answer(200, {"data": {}}), "without a certificate"),
        (answer(200, {"data": {"certificate": "nonsense"}}), "not a certificate chain"),
        (answer(200, b"[" * 100_000), "no JSON"),
        (answer(302, b"", ("location", "https://internal")), "answered 302"),
        (answer(503, {"errors": ["Vault is sealed"]}), "Vault is sealed"),
        (answer(500, b"<html>secret page</html>"), "answered 500"),
        (answer(403, {"errors": ["permission denied"]}), 'capabilities = ["update"]'),
        (answer(404, {"errors": []}), 'spec.vault.path of the issuer is "pki/sign/web"'),
        (answer(400, {"errors": ["unknown role: web"]}), 'spec.vault.path of the issuer is "pki/sign/web"'),
        (ServerUnreachable("https://vault.example cannot be reached"), "cannot be reached"),
    ],
)
async def test_what_is_not_about_the_request_is_tried_again(
    response: HttpAnswer | ServerUnreachable, words: str
) -> None:
    _, outcome = await outcome_of(response)
    assert isinstance(outcome, Pending)
    assert outcome.cause is Cause.UNAVAILABLE
    assert outcome.retry_after is not None, "a request without a circuit breaker would wait for ever"
    assert words in outcome.message
    assert "secret page" not in outcome.message


async def test_a_rate_limit_is_obeyed() -> None:
    setup, outcome = await outcome_of(answer(429, {"errors": ["slow down"]}, ("retry-after", "90")))
    assert isinstance(outcome, Pending)
    assert (outcome.cause, outcome.not_before) == (Cause.RATE_LIMITED, setup.now + timedelta(seconds=90))


async def test_another_refusal_is_about_the_request() -> None:
    _, outcome = await outcome_of(answer(400, {"errors": ["key type not allowed", 7, {"a": 1}]}))
    assert isinstance(outcome, Failed)
    assert outcome.cause is Cause.INVALID_REQUEST
    assert "key type not allowed" in outcome.message


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (200, ""),
        (429, ""),
        (472, ""),
        (473, ""),
        (501, "is not initialized; run `vault operator init`"),
        (503, "is sealed; unseal it"),
        (500, "answers its health check with 500"),
    ],
)
async def test_the_health_check_distinguishes_the_states_of_a_server(status: int, words: str) -> None:
    setup = setup_at(answer(status, {}))
    assert isinstance(setup.issuer, Vault)
    problem = await setup.issuer.probe(setup.view, setup.tools)
    assert words in problem
    assert bool(problem) == bool(words)


async def test_a_ready_issuer_is_checked_again_after_an_hour_and_a_broken_one_after_seconds() -> None:
    allowed = answer(200, {"capabilities": ["update"], "data": {"type": "pki"}})
    setup = setup_at(allowed)
    checked = await setup.issuer.check(setup.view, setup.tools)
    assert (checked.ready, checked.retry_after) == (True, timedelta(hours=1))
    setup.answer = answer(503, {})
    checked = await Vault().check(setup.view, setup.tools)
    assert (checked.ready, checked.retry_after) == (False, timedelta(seconds=15))

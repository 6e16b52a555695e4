"""What is wrong with a server, its credentials, its zone or a request, each in one sentence."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from certwright.issuers.contract import Failed, Pending
from certwright.issuers.venafi.issuer import Venafi
from certwright.kit.outgoing import (
    HttpAnswer,
    ServerError,
    ServerUnreachable,
    ServerUntrusted,
    ServerUnusable,
)
from certwright.pki.csr import CsrPlan
from certwright.pki.keys import KeyPlan, generate
from certwright.pki.names import Subject
from certwright.resources.causes import Cause
from certwright.resources.names import VENAFI_CUSTOM_FIELDS, VENAFI_PICKUP_ID
from certwright.resources.references import SecretKeySelector
from issuers.venafi.conftest import PLAN, VenafiSetup, annotated

PREFIX = "Failed to setup Certificate Manager issuer: "


async def test_missing_secret_and_key_are_named(setup: VenafiSetup) -> None:
    kept = setup.secrets.pop("login")
    assert 'the Secret "login" in spec.venafi.' in await setup.message()
    assert "does not exist" in await setup.message()
    outcome = await setup.pending()
    assert (outcome.reason, outcome.secrets) == ("SecretMissing", ("login",))
    setup.secrets["login"] = {"other": b"x"}
    assert '"login" in spec.venafi.' in await setup.message()
    setup.secrets["login"] = dict.fromkeys(kept, b"\xff\n\n")
    assert "is not one line of" in await setup.message()


async def test_wrong_credentials_are_an_issuers_failure_that_names_the_secret(setup: VenafiSetup) -> None:
    setup.secrets["login"] = {
        key: value if key in ("username", "client-id") else b"wrong"
        for key, value in setup.secrets["login"].items()
    }
    checked = await setup.issuer.check(setup.view, setup.tools)
    assert (checked.ready, checked.reason) == (False, "AuthFailed")
    assert checked.message.startswith(PREFIX)
    assert "Secret in spec.venafi." in checked.message
    assert "wrong" not in checked.message
    outcome = await setup.pending()
    assert (outcome.reason, outcome.cause) == ("VenafiInitError", Cause.UNAVAILABLE)


async def test_a_wrong_zone_is_named(setup: VenafiSetup) -> None:
    setup.change(zone="Shop\\Nowhere")
    message = await setup.message()
    assert message.startswith(f'{PREFIX}the zone "Shop\\Nowhere" cannot be read: ')
    assert "correct spec.venafi.zone" in message


async def test_a_token_is_kept_refreshed_and_replaced(tpp: VenafiSetup) -> None:
    calls = tpp.fake.state.calls
    await tpp.issue()
    tpp.now += timedelta(minutes=45)
    tpp.fake.state.now = tpp.now
    await tpp.issue()
    assert (calls["POST vedauth/authorize/oauth"], calls["POST vedauth/authorize/token"]) == (1, 1)
    # The refresh token is used up, as if another client had used it.
    tpp.fake.state.refresh_tokens.clear()
    tpp.now += timedelta(minutes=45)
    tpp.fake.state.now = tpp.now
    await tpp.issue()
    assert (calls["POST vedauth/authorize/oauth"], calls["POST vedauth/authorize/token"]) == (2, 2)


async def test_a_revoked_token_is_a_new_login_and_no_failure(setup: VenafiSetup) -> None:
    await setup.issue()
    setup.fake.state.tokens.clear()
    outcome = await setup.sign(setup.request())
    if "access-token" in setup.secrets["login"]:
        assert isinstance(outcome, Pending)
        assert "put a valid key or token into the Secret in spec.venafi.tpp.credentialsRef" in outcome.message
        setup.secrets["login"] = {"access-token": setup.fake.state.new_token().encode()}
        outcome = await setup.signed()


PATHS = {
    "uid-tpp": "vedsdk/certificates/request",
    "uid-tpp by token": "vedsdk/certificates/request",
    "uid-cloud": "outagedetection/v1/certificaterequests",
    "uid-ngts": "ngts/outagedetection/v1/certificaterequests",
}
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, {}, b"<html>secret page</html>"), "no JSON"),
        ((200, JSON, b"[]"), "without"),
        ((200, JSON, b"[" * 100_000), "no JSON"),
        ((500, {}, b"<html>secret page</html>"), "answered 500"),
        ((503, JSON, b'{"Error": "in maintenance"}'), "in maintenance"),
        ((403, JSON, b'{"Error": "no rights"}'), "give the account of the issuer the right"),
        ((302, {"Location": "https://internal.example"}, b""), "answered 302"),
    ],
)
async def test_what_is_not_about_the_request_is_retried(
    setup: VenafiSetup, answer: tuple[int, dict[str, str], bytes], words: str
) -> None:
    setup.fake.state.answers[PATHS[setup.view.uid]] = answer
    signing, outcome = await setup.process(setup.request())
    assert isinstance(outcome, Pending)
    assert outcome.cause is Cause.UNAVAILABLE
    assert outcome.retry_after is not None, "a request without a circuit breaker would wait for ever"
    assert words in outcome.message
    assert "secret page" not in outcome.message
    setup.fake.state.answers.clear()
    await setup.signed(signing)


async def test_a_rate_limit_is_obeyed(setup: VenafiSetup) -> None:
    setup.fake.state.answers[PATHS[setup.view.uid]] = (429, {"Retry-After": "90"}, b"")
    _, outcome = await setup.process(setup.request())
    assert isinstance(outcome, Pending)
    assert (outcome.cause, outcome.not_before) == (Cause.RATE_LIMITED, setup.now + timedelta(seconds=90))


async def test_a_refused_order_is_the_requests_failure(setup: VenafiSetup) -> None:
    body = {"Error": "subject is not allowed", "errors": [{"message": "subject is not allowed"}]}
    setup.fake.state.answers[PATHS[setup.view.uid]] = (400, JSON, json.dumps(body).encode())
    refusal = await setup.refusal()
    assert (refusal.reason, refusal.cause) == ("RequestError", Cause.INVALID_REQUEST)
    assert "subject is not allowed" in refusal.message


async def test_a_failed_order_fails_the_request(cloud: VenafiSetup) -> None:
    cloud.fake.state.polls = 5
    signing, _ = await cloud.process(cloud.request())
    path = f"outagedetection/v1/certificaterequests/{cloud.fake.state.placed[0]}"
    body = {"status": "FAILED", "errorInformation": {"message": "the CA said no"}}
    cloud.fake.state.answers[path] = (200, JSON, json.dumps(body).encode())
    _, outcome = await cloud.process(signing)
    assert isinstance(outcome, Failed)
    assert outcome.reason == "RetrieveError"
    assert "the CA said no" in outcome.message


@pytest.mark.parametrize("raised", [ServerUnreachable, ServerUntrusted, ServerUnusable])
async def test_a_server_without_an_answer(setup: VenafiSetup, raised: type[ServerError]) -> None:
    class NoAnswer:
        """An `HttpClient` without a server."""

        async def send(
            self, method: str, url: str, *, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
        ) -> HttpAnswer:
            del method, url, body, headers
            raise raised("https://venafi.example did not answer within 30 s")

    tools = setup.tools
    assert tools.servers is not None
    tools = replace(tools, servers=dataclasses.replace(tools.servers, client=lambda _tls, _fix: NoAnswer()))
    checked = await Venafi().check(setup.view, tools)
    assert not checked.ready
    assert "did not answer within 30 s" in checked.message
    assert "did not answer" in await Venafi().probe(setup.view, tools)
    outcome = await Venafi().sign(setup.view, setup.request(), tools)
    assert isinstance(outcome, Pending)
    assert outcome.cause is Cause.UNAVAILABLE


async def test_an_unknown_ca_names_the_field(tpp: VenafiSetup) -> None:
    assert tpp.spec.tpp is not None
    tpp.change(tpp=msgspec.structs.replace(tpp.spec.tpp, ca_bundle=tpp.fake.state.root.pem))
    assert "put the CA of the server into spec.venafi.tpp.caBundle" in await tpp.message()
    tpp.change(tpp=msgspec.structs.replace(tpp.spec.tpp, ca_bundle=b"nonsense"))
    assert "correct caBundle in spec.venafi.tpp" in await tpp.message()


async def test_the_ca_of_the_server_comes_from_a_secret(tpp: VenafiSetup) -> None:
    assert tpp.spec.tpp is not None
    tpp.secrets["ca"] = {"ca.crt": tpp.fake.state.root.pem}
    chosen = SecretKeySelector(name="ca")
    tpp.change(tpp=msgspec.structs.replace(tpp.spec.tpp, ca_bundle=b"", ca_bundle_secret_ref=chosen))
    assert "is not trusted" in await tpp.message()
    tpp.secrets["ca"] = {"ca.crt": tpp.fake.ca_pem}
    checked = await tpp.issuer.check(tpp.view, tpp.tools)
    assert checked.ready, checked.message


async def test_an_unknown_ca_of_a_product_without_that_field_has_another_fix(cloud: VenafiSetup) -> None:
    cloud.fake.ca_pem = cloud.fake.state.root.pem
    message = await cloud.message()
    assert message.endswith("add the CA of the server to the CAs of this system")
    assert "zone" not in message


async def test_a_server_that_is_away_is_no_matter_of_the_zone(tpp: VenafiSetup) -> None:
    assert tpp.spec.tpp is not None
    tpp.change(tpp=msgspec.structs.replace(tpp.spec.tpp, url="https://127.0.0.1:1/vedsdk"))
    message = await tpp.message()
    assert "cannot be reached: Connection refused" in message
    assert "zone" not in message


async def test_a_pickup_id_that_is_no_name_is_not_saved(tpp: VenafiSetup) -> None:
    for text in ("x" * 100_000, "a\nb"):
        body = json.dumps({"CertificateDN": text}).encode()
        tpp.fake.state.answers[PATHS["uid-tpp"]] = (200, JSON, body)
        signing, outcome = await tpp.process(tpp.request())
        assert isinstance(outcome, Pending)
        assert "answered without a CertificateDN" in outcome.message
        assert signing.request.metadata.annotations[VENAFI_PICKUP_ID] == "\\VED\\Policy\\Web\\web"


async def test_a_probe_needs_no_credentials(setup: VenafiSetup) -> None:
    setup.fake.state.tokens.clear()
    assert await Venafi().probe(setup.view, setup.tools) == ""


async def test_a_request_without_a_subject_is_refused_in_cert_managers_words(setup: VenafiSetup) -> None:
    refusal = await setup.refusal(CsrPlan(dns_names=("web.example.org",)))
    assert refusal.message.startswith("Certificate requests submitted to Venafi issuers must have")
    assert (refusal.cause, refusal.advice) == (Cause.INVALID_REQUEST, "set spec.commonName")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "is not JSON"),
        ("{}", "is not a JSON array"),
        ('[{"name": ""}]', "has no"),
        ("[7]", "has no"),
        ('[{"name": "a", "value": "b", "type": "Odd"}]', 'the type of "a"'),
    ],
)
async def test_custom_fields_that_cannot_be_read(setup: VenafiSetup, text: str, words: str) -> None:
    outcome = await setup.failed(annotated(setup.request(), {VENAFI_CUSTOM_FIELDS: text}))
    assert (outcome.reason, outcome.cause) == ("CustomFieldsError", Cause.INVALID_REQUEST)
    assert words in outcome.message


async def test_custom_fields_of_the_issuer_that_cannot_be_read_fail_no_request(setup: VenafiSetup) -> None:
    setup.view = replace(setup.view, annotations={VENAFI_CUSTOM_FIELDS: "[7]"})
    assert VENAFI_CUSTOM_FIELDS in await setup.message()
    outcome = await setup.pending()
    assert (outcome.reason, outcome.cause) == ("CustomFieldsError", Cause.UNAVAILABLE)
    assert outcome.message.startswith("Issuer venafi: an item of the annotation ")
    setup.view = replace(setup.view, annotations={VENAFI_CUSTOM_FIELDS: ""})
    await setup.signed()


LOCKED = {"Locked": True, "Value": "RSA"}
POLICIES = [
    ({"SubjAltNameDnsAllowed": False}, PLAN, 'spec.dnsNames "web.example.org"'),
    ({"WhitelistedDomains": ["example.com"]}, PLAN, 'spec.commonName "web.example.org"'),
    (
        {"WildcardsAllowed": False},
        CsrPlan(common_name="web.example.org", dns_names=("*.example.org",)),
        'spec.dnsNames "*.example.org"',
    ),
    (
        {"SubjAltNameIpAllowed": False},
        CsrPlan(common_name="web", ip_addresses=("10.0.0.1",)),
        'spec.ipAddresses "10.0.0.1"',
    ),
    (
        {"Subject": {"Organization": {"Locked": True, "Value": "Example"}}},
        CsrPlan(common_name="web", subject=Subject(organizations=("Other",))),
        'spec.subject.organizations "Other"',
    ),
    ({"KeyPair": {"KeyAlgorithm": LOCKED}}, PLAN, 'spec.privateKey.algorithm "ECDSA 256"'),
    (
        {"KeyPair": {"EllipticCurve": {"Locked": True, "Value": "P384"}}},
        PLAN,
        'spec.privateKey.size "ECDSA 256"',
    ),
]


@pytest.mark.parametrize(("policy", "plan", "field"), POLICIES)
async def test_tpps_policy_names_the_field_and_costs_no_order(
    tpp: VenafiSetup, policy: dict[str, object], plan: CsrPlan, field: str
) -> None:
    tpp.fake.state.policy |= policy
    refusal = await tpp.refusal(plan)
    assert refusal.message == f'{field} is not allowed by the policy of the zone "Web"'
    assert refusal.cause is Cause.INVALID_REQUEST
    assert refusal.advice == f'change {field.partition(" ")[0]}, or the policy of the zone "Web"'
    assert not tpp.fake.state.placed


TEMPLATES = [
    ({"sanRegexes": ["^.*\\.example\\.com$"]}, PLAN, 'spec.dnsNames "web.example.org"'),
    ({"subjectCNRegexes": []}, PLAN, 'spec.commonName "web.example.org"'),
    (
        {"subjectCValues": ["DE"]},
        CsrPlan(common_name="web", subject=Subject(countries=("FR",))),
        'spec.subject.countries "FR"',
    ),
    ({"keyTypes": [{"keyType": "RSA", "keyLengths": [2048]}]}, PLAN, 'spec.privateKey.algorithm "ECDSA 256"'),
    ({"validityPeriod": "PT12H"}, PLAN, 'spec.duration "24h"'),
]


@pytest.mark.parametrize(("template", "plan", "field"), TEMPLATES)
async def test_a_template_names_the_field_and_costs_no_order(
    cloud: VenafiSetup, template: dict[str, object], plan: CsrPlan, field: str
) -> None:
    cloud.fake.state.template |= template
    refusal = await cloud.refusal(plan)
    assert refusal.message.startswith(f"{field} is not allowed by the policy")
    assert not cloud.fake.state.placed


async def test_a_policy_that_was_corrected_is_obeyed_immediately(tpp: VenafiSetup) -> None:
    tpp.fake.state.policy["WhitelistedDomains"] = ["example.com"]
    await tpp.refusal()
    tpp.fake.state.policy["WhitelistedDomains"] = ["example.org"]
    tpp.now += timedelta(seconds=1)
    await tpp.issue()


@pytest.mark.parametrize("pattern", ["(a+)+$", "(?=x)", "(", "a" * 5000])
async def test_patterns_of_a_hostile_server_do_no_harm(cloud: VenafiSetup, pattern: str) -> None:
    cloud.fake.state.template["subjectCNRegexes"] = [pattern]
    outcome = await cloud.sign(cloud.request(CsrPlan(common_name="a" * 60 + "!")))
    assert not isinstance(outcome, Pending)


async def test_an_rsa_key_below_the_locked_size(tpp: VenafiSetup) -> None:
    tpp.fake.state.policy["KeyPair"] = {"KeySize": {"Locked": True, "Value": 4096}}
    outcome = await tpp.failed(tpp.request(PLAN, key=generate(KeyPlan.of("RSA"))))
    assert outcome.message.startswith('spec.privateKey.size "RSA 2048"')

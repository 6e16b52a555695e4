"""CertificateRequests: approval, denial, signing, failure; and the waiting after a failure."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.controllers.backoff import BackoffLimits
from certwright.controllers.certificates.requests import copied_annotations
from certwright.controllers.requests.signing import Signing
from certwright.issuers.contract import SigningRequest, Tools
from certwright.kube.api import conditions, errors
from certwright.kube.api.core import SECRETS
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.util.executor import Inline
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import encode_private_key, load_private_key
from certwright.pki.signing import sign
from certwright.resources.certificate import Certificate
from certwright.resources.names import COPIED_ANNOTATION_PREFIXES
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest, CertificateRequestSpec
from certwright.resources.table import CERTIFICATE_REQUESTS, ISSUERS
from controllers.external_issuer import (
    ask_a_thing,
    external,
    let_approve_external_kind,
    mark,
    serve_external_kind,
)
from controllers.scene import Scene, make_issuer
from issuers.authority import new_root
from support.world import START, World, condition_of, make_world

YEAR = timedelta(days=365)
BY_HAND = "*,-certificaterequests-approver"


def condition(obj: Certificate | CertificateRequest, kind: str) -> tuple[str, str, str] | None:
    """Status, reason and message of a condition."""
    current = conditions.find(obj.status.conditions, kind)
    return (current.status, current.reason, current.message) if current else None


async def test_without_an_approver_a_request_waits_for_somebody() -> None:
    async with make_world(enabled=BY_HAND) as world:
        scene = Scene(world)
        await world.create(ISSUERS, make_issuer("root"))
        await scene.issue(issuer="root")
        assert (await scene.requests())[0].status.conditions == ()
        waiting = [e for e in await world.events() if e.reason == "WaitingForApproval"]
        assert [e.count for e in waiting] == [1]
        await mark(world, "web-1", "Approved")
        assert await world.is_ready("web")


async def test_a_denied_request_is_a_failure_with_the_approvers_reason() -> None:
    async with make_world(enabled=BY_HAND) as world:
        scene = Scene(world)
        await world.create(ISSUERS, make_issuer("root"))
        await scene.issue(issuer="root")
        await mark(world, "web-1", "Denied")
        certificate = await world.certificate("web")
        assert condition(certificate, "Issuing") == (
            "False",
            "test",
            "The certificate request has failed to complete and will be retried: it is Denied. Next attempt "
            "at 2026-01-01T01:00:00Z; the approver that denied the request must approve the next one; "
            "`certwright renew web -n default` retries immediately",
        )
        request = (await scene.requests())[0]
        assert condition(request, "Ready") == (
            "False",
            "Denied",
            "The CertificateRequest was denied by an approval controller",
        )
        assert request.status.failure_time == START
        assert certificate.status.failed_issuance_attempts == 1
        assert await scene.next_keys() == []


async def test_a_request_that_we_may_not_approve_waits_for_somebody_who_may(world: World) -> None:
    await serve_external_kind(world)
    await ask_a_thing(world)
    assert (await Scene(world).requests())[0].status.conditions == ()
    assert "WaitingForApproval" in [event.reason for event in await world.events()]
    await let_approve_external_kind(world)
    await world.advance(timedelta(minutes=5))
    assert [c.type for c in (await Scene(world).requests())[0].status.conditions] == ["Approved"]


async def test_a_certificate_for_another_key_is_refused(scene: Scene) -> None:
    other = await scene.issue("other")
    pem = (await scene.requests("other"))[0].status.certificate
    assert other.status.revision == 1
    await external(scene.world)
    await mark(scene.world, "web-1", "Ready", reason="Issued", certificate=pem)
    certificate = await scene.world.certificate("web")
    assert condition(certificate, "Issuing") == (
        "False",
        "InvalidCertificate",
        "The certificate request has failed to complete and will be retried: the issuer returned a "
        "certificate for another key. Next attempt at 2026-01-01T01:00:00Z; "
        "`certwright renew web -n default` retries immediately",
    )


async def test_a_private_key_that_an_issuer_returns_is_not_stored(scene: Scene) -> None:
    ca, world = new_root("Their CA"), scene.world
    await external(world)
    request = await world.get(CERTIFICATE_REQUESTS, "web-1")
    answer = ca.sign(request.spec.request, now=START) + encode_private_key(ca.key)
    await mark(world, "web-1", "Ready", reason="Issued", certificate=answer)
    issuing = await world.condition("web", "Issuing")
    assert (issuing.status, issuing.reason) == ("False", "InvalidCertificate")
    assert 'a block "EC PRIVATE KEY", and only certificates are accepted' in issuing.message


async def test_the_chain_of_an_issuer_is_stored_as_made_from_its_certificates(scene: Scene) -> None:
    ca, world = new_root("Their CA"), scene.world
    await external(world)
    request = await world.get(CERTIFICATE_REQUESTS, "web-1")
    leaf = ca.sign(request.spec.request, now=START)
    answer = b"for web\n" + leaf.replace(b"\n", b"\r\n")
    await mark(world, "web-1", "Ready", reason="Issued", certificate=answer, ca=b"our CA\n" + ca.pem)
    assert await world.is_ready("web")
    data = (await world.get(SECRETS, "web")).data
    assert (data["tls.crt"], data["ca.crt"]) == (leaf, ca.pem)
    assert (await world.certificate("web")).status.revision == 1


async def test_what_an_issuer_has_changed_is_a_condition(scene: Scene) -> None:
    ca, world = new_root("Their CA"), scene.world
    await external(world)
    (next_key,) = await scene.next_keys()
    name = "other.example.com"
    plan = CsrPlan(common_name=name, dns_names=(name,), encode_usages=False)
    csr = build_csr(plan, load_private_key(next_key.data["tls.key"]))
    leaf = sign(
        csr, ca_cert=ca.facts, ca_key=ca.key, duration=YEAR, is_ca=True, usages=("code signing",), now=START
    )
    await mark(world, "web-1", "Ready", reason="Issued", certificate=leaf, ca=ca.pem)
    assert await world.is_ready("web")
    assert condition(await world.certificate("web"), "Verified") == (
        "False",
        "NotVerified",
        "The issuer has not issued what the spec says: spec.commonName (issued: other.example.com); "
        "spec.dnsNames (issued: other.example.com); spec.isCA (issued: true); spec.usages (issued: code "
        "signing)",
    )
    assert [event.count for event in await world.events() if event.reason == "NotVerified"] == [1]


async def test_a_wrong_chain_is_a_condition_but_replaces_no_right_one(scene: Scene) -> None:
    ca, other, world = new_root("Their CA"), new_root("Other"), scene.world
    await external(world)

    async def answer(name: str) -> Certificate:
        csr = (await world.get(CERTIFICATE_REQUESTS, name)).spec.request
        certificate = ca.sign(csr, now=START) + other.pem
        await mark(world, name, "Ready", reason="Issued", certificate=certificate)
        return await world.certificate("web")

    verified = condition_of(await answer("web-1"), "Verified")
    assert '"CN=Their CA" of the certificate is not among those' in verified.message
    await scene.change_spec("web", dnsNames=["a.example.com"])
    csr = (await world.get(CERTIFICATE_REQUESTS, "web-2")).spec.request
    await mark(world, "web-2", "Ready", reason="Issued", certificate=ca.sign(csr, now=START))
    good = await world.certificate("web")
    assert (good.status.revision, condition(good, "Verified")) == (2, None)
    await scene.change_spec("web", dnsNames=["b.example.com"])
    issuing = condition_of(await answer("web-3"), "Issuing")
    assert issuing.reason == "InvalidCertificate"
    assert "the chain that the issuer returned is wrong, and the present one is not" in issuing.message


async def test_a_request_that_is_none_is_refused_and_never_signed_where_it_is_not(world: World) -> None:
    spec = CertificateRequestSpec(issuer_ref=IssuerReference(name="ca"), request=b"rubbish")
    meta = ObjectMeta(name="mine", namespace="default")
    bad = CertificateRequest(metadata=meta, spec=spec)
    with pytest.raises(errors.Invalid, match=r"spec\.request: .* error decoding certificate request PEM"):
        await world.create(CERTIFICATE_REQUESTS, bad)

    # Another API server may have taken it all the same.
    async def no_secret(_: str) -> None:
        return None

    tools = Tools(get_secret=no_secret, executor=Inline(), now=world.clock.now)
    signing = Signing(lambda _: None, kinds=("ca",), now=world.clock.now)
    answer = await signing.answer(bad, tools, SigningRequest(bad, get_secret=no_secret))
    assert (condition(answer.request, "Ready") or ())[:2] == ("False", "Failed")
    assert conditions.is_true(answer.request.status.conditions, "InvalidRequest")
    assert answer.request.status.failure_time is not None
    assert [event.reason for event in answer.events] == ["RequestParsingError"]


@pytest.mark.parametrize(
    ("minimum", "maximum"),
    [(timedelta(hours=-1), timedelta(hours=1)), (timedelta(hours=2), timedelta(hours=1))],
)
def test_a_backoff_that_makes_no_sense_is_refused(minimum: timedelta, maximum: timedelta) -> None:
    with pytest.raises(ValueError, match="backoff"):
        BackoffLimits(minimum=minimum, maximum=maximum)


NOTES = {
    "acme.cert-manager.io/http01-override-ingress-name": "web",
    "example.com/team": "web",
    "example.com/owner": "me",
    "fluxcd.io/sync": "1",
    "kubectl.kubernetes.io/last-applied-configuration": "{}",
}
ACME, TEAM, OWNER, FLUX, KUBECTL = NOTES


@pytest.mark.parametrize(
    ("prefixes", "copied"),
    [
        (COPIED_ANNOTATION_PREFIXES, {ACME, TEAM, OWNER}),
        (("*",), set(NOTES)),
        ((), set()),
        (("example.com/",), {TEAM, OWNER}),
        (("*", "-example.com/owner", "-acme."), {TEAM, FLUX, KUBECTL}),
        (("-example.com/owner",), set()),
    ],
)
def test_prefixes_say_what_is_copied(prefixes: tuple[str, ...], copied: set[str]) -> None:
    assert set(copied_annotations(ObjectMeta(annotations=NOTES), prefixes)) == copied


async def test_the_flag_reaches_the_requests() -> None:
    async with make_world(copied_annotation_prefixes=("example.com/team",)) as world:
        scene = Scene(world)
        await scene.add_ca()
        await scene.issue(annotations=NOTES)
        (request,) = await scene.requests()
        assert set(NOTES) & set(request.metadata.annotations) == {TEAM}

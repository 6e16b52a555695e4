"""What users do on the dashboard: renew, approve, deny, revoke; and who is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from msgspec.structs import replace

from certwright.kube.api import conditions
from certwright.kube.api.kinds import controller_reference
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client.rest import Client
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from certwright.resources.certificate import PrivateKeySpec
from certwright.resources.issuer import ACMEIssuer, IssuerSpec
from certwright.resources.names import RENEWED_BY
from certwright.resources.references import SecretKeySelector
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ISSUERS
from controllers.scene import make_certificate, make_issuer
from support.visitor import Page, grant, post, visitor
from support.world import ADMIN, World, make_world

PAGE = "/ui/certificates/default/web"
VIEW = ("get list", "cert-manager.io", "certificates certificaterequests", "")
DECIDE = ("get patch", "cert-manager.io", "certificaterequests/status", "")


@pytest.fixture
async def waiting() -> AsyncIterator[World]:
    """A world in which the request web-1 of default/web waits for approval."""
    async with make_world(enabled="*,-certificaterequests-approver") as world:
        await world.create(ISSUERS, make_issuer("root"))
        await world.create(CERTIFICATES, make_certificate("web", "root"))
        await world.settle()
        yield world


def buttons(page: Page) -> set[str]:
    """The verbs that the page links to."""
    return {
        link.rpartition("/")[2]
        for link in page.links
        if link.startswith(f"https://certwright.example{PAGE}/")
    }


async def is_decided(world: World, kind: str) -> bool:
    """Whether web-1 has the condition."""
    return conditions.is_true((await world.get(CERTIFICATE_REQUESTS, "web-1")).status.conditions, kind)


@pytest.mark.parametrize(("verb", "kind"), [("approve", "Approved"), ("deny", "Denied")])
async def test_a_request_is_decided(waiting: World, verb: str, kind: str) -> None:
    admin = await visitor(waiting)
    page = await admin.get(PAGE)
    assert buttons(page) == {"renew", "approve", "deny"}
    assert f"certwright {verb} web-1 -n default" in page.text
    asked = await admin.get(f"{PAGE}/{verb}")
    assert not await is_decided(waiting, kind)
    done = await admin.submit(asked, verb)
    assert f"CertificateRequest default/web-1 is {kind.lower()}." in done.text
    assert await is_decided(waiting, kind)
    # Repeated by the button Back: no error, and no other decision.
    assert (await admin.submit(asked, verb)).status in (200, 409)
    await waiting.settle()
    other = "deny" if verb == "approve" else "approve"
    assert (await admin.post(f"{PAGE}/{other}", request="web-1")).status in (403, 409)
    assert await is_decided(waiting, kind)


async def test_a_button_comes_and_goes_while_the_page_is_open(waiting: World) -> None:
    admin = await visitor(waiting)
    async with admin.following("certificates/default/web") as changes:
        assert "/approve" in (await anext(changes))["actions"]
        await admin.post(f"{PAGE}/approve", request="web-1")
        while "actions" not in (change := await anext(changes)):
            pass
        assert "/approve" not in change["actions"]
        assert "/renew" in change["actions"]


async def test_another_request_is_not_decided_in_the_place_of_the_one_shown(waiting: World) -> None:
    await waiting.create(CERTIFICATES, make_certificate("shop", "root"))
    await waiting.settle()
    admin = await visitor(waiting)
    for name in ("shop-1", "web-2", "", "../web-1"):
        page = await admin.post(f"{PAGE}/approve", request=name)
        assert page.status == 409
        assert "look at its page again" in page.text
    assert not await is_decided(waiting, "Approved")


async def test_a_request_shows_what_it_asks_for_before_it_is_approved(waiting: World) -> None:
    admin = await visitor(waiting)
    asked = (await admin.get(f"{PAGE}/approve")).text
    for words in (
        "Names web.example.com",
        "Requested by system:serviceaccount:cert-manager",
        "Issuer Issuer root",
    ):
        assert words in asked
    assert "which its Certificate does not have" not in asked
    # A tenant makes a request in the name of the next one.
    certificate = await waiting.certificate("web")
    plan = CsrPlan(dns_names=("bank.example.com",))
    owner = controller_reference(CERTIFICATES, certificate.metadata)
    notes = {"cert-manager.io/certificate-revision": "1"}
    meta = ObjectMeta(name="web-1", namespace="default", owner_references=(owner,), annotations=notes)
    made = await waiting.get(CERTIFICATE_REQUESTS, "web-1")
    await waiting.stop_controllers()
    await waiting.client.delete(CERTIFICATE_REQUESTS, "web-1", "default")
    spec = replace(made.spec, request=build_csr(plan, generate(KeyPlan.of("ECDSA", 256))))
    await waiting.create(CERTIFICATE_REQUESTS, CertificateRequest(metadata=meta, spec=spec))
    asked = (await admin.get(f"{PAGE}/approve")).text
    assert "it asks for the names bank.example.com, which its" in asked
    assert f"Requested by {ADMIN.name}" in asked


RIGHTS: dict[str, tuple[tuple[tuple[str, str, str, str], ...], str, set[str]]] = {
    "may only look": ((VIEW,), "", set()),
    "no right to approve for the issuer": ((VIEW, DECIDE), "", set()),
    "no right to write the status": ((VIEW,), "issuers.cert-manager.io/*", set()),
    "this issuer": ((VIEW, DECIDE), "issuers.cert-manager.io/default.root", {"approve", "deny"}),
    "all issuers": ((VIEW, DECIDE), "issuers.cert-manager.io/*", {"approve", "deny"}),
    "another issuer": ((VIEW, DECIDE), "issuers.cert-manager.io/default.other", set()),
    "renew it by name": ((VIEW, ("patch", "cert-manager.io", "certificates/status", "web")), "", {"renew"}),
    "renew another": ((VIEW, ("patch", "cert-manager.io", "certificates/status", "shop")), "", set()),
}
"""Rights in the namespace, the signer that the user may approve for, and what the page offers."""


@pytest.mark.parametrize(("rights", "signer", "expected"), RIGHTS.values(), ids=RIGHTS.keys())
async def test_users_are_offered_and_allowed_what_their_rights_are(
    waiting: World, rights: tuple[tuple[str, str, str, str], ...], signer: str, expected: set[str]
) -> None:
    user = await grant(waiting, "ann", *rights, namespace="default")
    if signer:
        await grant(waiting, "ann", ("approve", "cert-manager.io", "signers", signer))
    ann = await visitor(waiting, user)
    assert buttons(await ann.get(PAGE)) == expected
    for verb in ("renew", "approve", "deny", "revoke"):
        assert (await ann.get(f"{PAGE}/{verb}")).status == (200 if verb in expected else 403)
    if "approve" not in expected:
        assert (await ann.post(f"{PAGE}/approve", request="web-1")).status == 403
        assert not await is_decided(waiting, "Approved")
    if "renew" not in expected:
        assert (await ann.post(f"{PAGE}/renew")).status == 403


async def test_renewal_from_the_page_and_from_a_card(waiting: World) -> None:
    admin = await visitor(waiting)
    done = await admin.submit(await admin.get(f"{PAGE}/renew"), "/renew")
    assert done.url.startswith(f"https://certwright.example{PAGE}?")
    assert "Retrying certificate default/web." in done.text
    card = await admin.post(f"{PAGE}/renew", next="")
    assert card.url.startswith("https://certwright.example/ui/?")
    assert "Retrying certificate default/web." in card.text
    issuing = await waiting.condition("web", "Issuing")
    assert (issuing.status, issuing.reason) == ("True", "ManuallyTriggered")
    assert issuing.message == f"Certificate re-issuance manually triggered by {ADMIN.name}"


async def test_history_says_who_has_asked_for_a_renewal() -> None:
    async with make_world(enabled="*") as world:
        await world.create(ISSUERS, make_issuer("root"))
        await world.create(CERTIFICATES, make_certificate("web", "root"))
        await world.settle()
        what = "certificates certificates/status certificaterequests"
        rights = ("get list patch", "cert-manager.io", what, "")
        ann = await visitor(world, await grant(world, "ann", rights, namespace="default"))
        assert "manually triggered" not in (await ann.get(PAGE)).text
        await ann.post(f"{PAGE}/renew")
        await world.settle()
        assert "Certificate re-issuance manually triggered by ann. " in (await ann.get(PAGE)).text
        marks = (await world.get(CERTIFICATE_REQUESTS, "web-2")).metadata.annotations
        assert marks[RENEWED_BY] == "Certificate re-issuance manually triggered by ann"


async def test_a_card_has_a_button_for_those_who_may_renew(waiting: World) -> None:
    await waiting.advance(timedelta(hours=1))
    user = await grant(waiting, "ann", VIEW, namespace="default")
    for visits, expected in ((await visitor(waiting), True), (await visitor(waiting, user), False)):
        page = await visits.get("/ui/")
        assert "is waiting for approval" in page.text
        assert (f"https://certwright.example{PAGE}/renew" in page.forms) is expected


async def test_a_ca_with_a_new_key_is_warned_of(world: World) -> None:
    keys = {"new": PrivateKeySpec(rotation_policy="Always"), "same": PrivateKeySpec(rotation_policy="Never")}
    admin = await visitor(world)
    for name, key in keys.items():
        ca = make_certificate(name, "root", is_ca=True, common_name=name, private_key=key)
        await world.create(CERTIFICATES, ca)
        asked = await admin.get(f"/ui/certificates/default/{name}/renew")
        done = await admin.post(f"/ui/certificates/default/{name}/renew")
        assert ["is a CA and gets a new key" in page.text for page in (asked, done)] == [name == "new"] * 2


@pytest.mark.parametrize("verb", ["renew", "approve", "deny", "revoke"])
async def test_what_is_not_sent_by_a_form_of_the_session_changes_nothing(waiting: World, verb: str) -> None:
    """As `test_strangers.test_other_sites_cannot_send_forms`, for all verbs."""
    admin, reader = await visitor(waiting), await visitor(waiting, read_only=True)
    before = (await waiting.get(CERTIFICATES, "web")).metadata.resource_version
    for who, token, headers in (
        (admin, "0" * 64, {}),
        (admin, "", {}),
        (admin, reader.form_token, {}),
        (reader, reader.form_token, {}),
        (admin, admin.form_token, {"cookie": "", "authorization": f"Bearer {ADMIN.name}"}),
        (admin, admin.form_token, {"sec-fetch-site": "cross-site"}),
    ):
        fields = {"request": "web-1", "reason": "keyCompromise", "token": token}
        assert (await who.post(f"{PAGE}/{verb}", headers, **fields)).status == 403, (token, headers)
    assert (await waiting.get(CERTIFICATES, "web")).metadata.resource_version == before
    assert not await is_decided(waiting, "Approved")
    assert not await is_decided(waiting, "Denied")
    assert buttons(await reader.get(PAGE)) == set()
    assert (await reader.get(f"{PAGE}/{verb}")).status == 403


async def test_revocation_asks_for_a_reason_and_says_what_follows(world: World) -> None:
    acme = ACMEIssuer(
        server="https://ca.example/dir", private_key_secret_ref=SecretKeySelector(name="account")
    )
    await world.create(ISSUERS, make_issuer("acme", IssuerSpec(acme=acme)))
    await world.create(CERTIFICATES, make_certificate("web", "acme"))
    secret = {"metadata": {"name": "web"}, "stringData": {"tls.crt": "x", "tls.key": "y"}}
    await post(world, "/api/v1/namespaces/default/secrets", {"apiVersion": "v1", "kind": "Secret", **secret})
    revoked = []

    async def revoke(_client: Client, namespace: str, name: str, reason: str) -> str:
        revoked.append((namespace, name, reason))
        return "2a"

    admin = await visitor(world, revoke=revoke)
    assert "certwright revoke web -n default --reason REASON" in (await admin.get(PAGE)).text
    asked = await admin.get(f"{PAGE}/revoke")
    assert "keyCompromise: the private key has leaked, or may have" in asked.text
    for reason in ("", "cACompromise", "<script>"):
        assert (await admin.post(f"{PAGE}/revoke", reason=reason)).status == 400
    assert revoked == []
    done = await admin.post(f"{PAGE}/revoke", reason="keyCompromise")
    assert revoked == [("default", "web", "keyCompromise")]
    assert "Certificate 2a of default/web is revoked" in done.text
    assert "rotationPolicy: Always" in done.text
    # A process that cannot revoke offers none.
    assert buttons(await (await visitor(world)).get(PAGE)) == {"renew"}

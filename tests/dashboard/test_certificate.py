"""The page of a certificate, as users with many or few rights see it."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from certwright.dashboard.certificate import chain_of, decode, history_of, shown
from certwright.diagnosis.certificates import RelatedObjects, diagnose
from certwright.kube.api.core import NAMESPACES, Namespace
from certwright.kube.api.meta import ObjectMeta
from certwright.pki.certificates import read_certificate
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.scene import make_certificate, make_issuer
from dashboard.objects import delivery
from support.visitor import grant, post, visitor
from support.world import START, World, make_world

CERTIFICATES_ONLY = ("get", "cert-manager.io", "certificates", "")


@pytest.fixture
async def issued() -> AsyncIterator[World]:
    """A world with the certificate default/web."""
    async with make_world() as world:
        await world.create(ISSUERS, make_issuer("root"))
        await world.create(CERTIFICATES, make_certificate("web", "root"))
        await world.settle()
        yield world


async def test_the_page_shows_state_chain_history_content_and_events(issued: World) -> None:
    admin = await visitor(issued)
    page = await admin.get("/ui/certificates/default/web")
    facts = read_certificate((await issued.secret("web")).data["tls.crt"])
    expected = (
        "ready, valid until",
        "Certificate generation 1",
        "Request web-1",
        "Approval approved",
        "Signed by Issuer root",
        "Issued",
        facts.fingerprint.hex(":").upper(),
        "web.example.com",
        "digital signature",
        "certwright renew web -n default",
        "apiVersion: cert-manager.io/v1",
        "Requested",
        "No Delivery brings it to files",
        "older issuances are not recorded",
    )
    assert page.status == 200
    assert [text for text in expected if text not in page.text] == []
    assert "PRIVATE KEY" not in page.html
    assert base64.b64encode((await issued.secret("web")).data["tls.key"])[:40].decode() not in page.html
    assert "managedFields" not in page.html


@pytest.mark.parametrize(
    ("rights", "sees", "does_not_see"),
    [
        pytest.param(
            (CERTIFICATES_ONLY,),
            ["You may not read CertificateRequests", "you may not get Secret web", "You may not read Events"],
            ["SHA-256", "renew web", "Retry", "Renew now"],
            id="only the certificate",
        ),
        pytest.param(
            (CERTIFICATES_ONLY, ("get", "cert-manager.io", "certificaterequests", "")),
            ["SHA-256", "from CertificateRequest web-1: you may not get Secret web in namespace default"],
            ["You may not read CertificateRequests", "Renew now"],
            id="the request has the certificate, too",
        ),
        pytest.param(
            (CERTIFICATES_ONLY, ("patch", "cert-manager.io", "certificates/status", "")),
            ["Renew now", "certwright renew web -n default"],
            ["Approve", "Revoke"],
            id="may renew",
        ),
        pytest.param(
            (("get", "cert-manager.io", "certificates", "web"), ("get", "", "secrets", "web")),
            ["SHA-256"],
            ["you may not get Secret"],
            id="by their names",
        ),
    ],
)
async def test_users_see_what_they_may_read(
    issued: World, rights: Any, sees: list[str], does_not_see: list[str]
) -> None:
    user = await grant(issued, "ann", *rights, namespace="default")
    page = await (await visitor(issued, user)).get("/ui/certificates/default/web")
    assert page.status == 200
    assert [text for text in sees if text not in page.text] == []
    assert [text for text in does_not_see if text in page.text] == []


async def test_what_does_not_exist_and_what_may_not_be_seen_look_the_same(issued: World) -> None:
    await issued.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="other")))
    user = await grant(issued, "ann", CERTIFICATES_ONLY, namespace="other")
    ann = await visitor(issued, user)
    pages = {}
    for path in ("default/web", "default/wub", "other/web", "nowhere/web", "default/..", "default/a%2Fb"):
        for tail in ("", "/renew", "/approve"):
            page = await ann.get(f"/ui/certificates/{path}{tail}")
            posted = await ann.post(f"/ui/certificates/{path}{tail}") if tail else page
            pages[path + tail] = (page.status, posted.status)
    assert set(pages.values()) == {(404, 404)}
    seen = await ann.get("/ui/certificates/default/web")
    missing = await ann.get("/ui/certificates/default/wub")
    assert seen.html == missing.html.replace("wub", "web")


NAMES = ("live", "x.json", "status.json", "renew", "a.b-c.0", "login", "0", "a" * 253)


@pytest.mark.parametrize("name", NAMES)
async def test_a_certificate_may_have_any_name_that_kubernetes_allows(world: World, name: str) -> None:
    namespace = "live" if name == "renew" else "a" * 63 if name == "0" else "1-2"
    await world.create(NAMESPACES, Namespace(metadata=ObjectMeta(name=namespace)))
    await world.create(CERTIFICATES, make_certificate(name, "root", namespace=namespace, secret_name="web"))
    admin = await visitor(world)
    first = await admin.get("/ui/")
    page = await admin.get(next(link for link in first.links if link.endswith(name)))
    assert page.status == 200
    assert f"{namespace}/{name}" in page.text
    async with admin.following(f"certificates/{namespace}/{name}"):
        pass
    asked = await admin.get(f"/ui/certificates/{namespace}/{name}/renew")
    assert "Issue" in asked.text
    # Who is not logged in is sent to the form, and not answered as a program.
    admin.cookie = ""
    assert "Log in" in (await admin.get(f"/ui/certificates/{namespace}/{name}")).text


async def test_the_page_lists_nothing_but_events(issued: World) -> None:
    admin = await visitor(issued)
    admin.requests.clear()
    await admin.get("/ui/certificates/default/web")
    lists = [
        each for each in admin.requests if each.startswith("GET ") and each.partition("?")[0].endswith("s")
    ]
    assert [each for each in lists if "/events?fieldSelector=" not in each] == []


async def test_files_and_hosts_of_the_certificate_are_shown_to_those_who_may_read_its_deliveries(
    issued: World,
) -> None:
    path = "/apis/certwright.io/v1alpha1/namespaces/default/deliveries"
    for made in (delivery("one"), delivery("two", of="secretRef"), delivery("other", "x")):
        await post(issued, path, made)
    admin = await visitor(issued)
    page = await admin.get("/ui/certificates/default/web")
    files = "tls.crt (CertificateChain), tls.key (PrivateKey), ca.crt (CA)"
    expected = ("Delivery one", "Delivery two", "nginx:sites/one", files, "www.example.com:443", "reload")
    assert [words for words in expected if words not in page.text] == []
    assert "Delivery other" not in page.text
    user = await grant(
        issued, "ann", CERTIFICATES_ONLY, ("get", "certwright.io", "deliveries", "two"), namespace="default"
    )
    seen = (await (await visitor(issued, user)).get("/ui/certificates/default/web")).text
    assert ("Delivery two" in seen, "Delivery one" in seen) == (True, False)
    assert "You may not read 1 more." in seen


@pytest.mark.parametrize(
    ("states", "marks"),
    [
        ([("True", "True")], "++"),
        ([("True", "")], "+."),
        ([("True", "True"), ("False", "")], "x+"),
        ([("True", "False")], "+x"),
        ([("", "")], ".."),
        ([], ".."),
    ],
)
def test_the_chain_ends_at_files_and_hosts(states: list[tuple[str, str]], marks: str) -> None:
    deliveries = [delivery("d", Delivered=delivered, Deployed=deployed) for delivered, deployed in states]
    objects = RelatedObjects(ISSUED, READY_ISSUER, None, SECRET)
    chain = chain_of(objects, diagnose(objects, START), deliveries)
    assert "".join(MARKS[link.level] for link in chain[-2:]) == marks


def test_yaml_shows_no_password_and_no_copies() -> None:
    certificate = {
        "metadata": {
            "name": "web",
            "managedFields": [{}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "secret"},
        },
        "spec": {"keystores": {"jks": {"create": True, "password": "secret"}, "pkcs12": {"create": False}}},
    }
    assert shown(certificate) == {
        "metadata": {"name": "web"},
        "spec": {"keystores": {"jks": {"create": True, "password": "(hidden)"}, "pkcs12": {"create": False}}},
    }


UID = "00000000-0000-0000-0000-000000000000"


def _certificate(**status: Any) -> dict[str, Any]:
    conditions = [
        {"type": kind, "status": str(value), "reason": "Because", "message": "as it is"}
        for kind, value in status.pop("conditions", {}).items()
    ]
    spec = {"secretName": "web-tls", "issuerRef": {"name": "ca"}}
    meta = {"name": "web", "namespace": "default", "uid": UID, "generation": 1}
    return {"metadata": meta, "spec": spec, "status": {**status, "conditions": conditions}}


def _request(revision: int, *, ready: str = "", reason: str = "", **also: str) -> dict[str, Any]:
    conditions: list[dict[str, str]] = []
    if ready:
        conditions.append({"type": "Ready", "status": ready, "reason": reason, "message": "the CA says so"})
    conditions += [{"type": kind, "status": status, "message": "by rule"} for kind, status in also.items()]
    meta = {
        "name": f"web-{revision}",
        "namespace": "default",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"cert-manager.io/certificate-revision": str(revision)},
    }
    return {"metadata": meta, "spec": {"issuerRef": {"name": "ca"}}, "status": {"conditions": conditions}}


READY_ISSUER = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
LINKS = ["Certificate", "Key", "Request", "Approval", "Signed", "Secret", "Files", "Hosts"]
MARKS = {"ok": "+", "bad": "x", "busy": "o", "none": "."}
SECRET = {"data": {"tls.crt": "eA==", "tls.key": "eA=="}}
ISSUING = {"conditions": {"Ready": False, "Issuing": True}}
ENDS = {"revision": 1, "notAfter": "2027-01-01T00:00:00Z"}
FIRST = _certificate(**ISSUING)
WITH_KEY = _certificate(**ISSUING, nextPrivateKeySecretName="k")
FAILED = _certificate(conditions={"Ready": False, "Issuing": False}, lastFailureTime="2026-01-01T00:00:00Z")
RENEWING = _certificate(conditions={"Ready": True, "Issuing": True}, **ENDS)
ISSUED = _certificate(conditions={"Ready": True}, **ENDS)


def _pending(revision: int, reason: str = "Pending") -> dict[str, Any]:
    return _request(revision, Approved="True", ready="False", reason=reason)


NOTHING_READ = RelatedObjects(FIRST, None, hidden=("issuer", "request", "secret"))
CHAINS = {
    "its issuer is missing": (RelatedObjects(FIRST), "+x......"),
    "it waits for approval": (RelatedObjects(WITH_KEY, READY_ISSUER, _request(1)), "+++o...."),
    "it was denied": (RelatedObjects(FIRST, READY_ISSUER, _request(1, Denied="True")), "+++x...."),
    "it is being signed": (RelatedObjects(FIRST, READY_ISSUER, _pending(1)), "++++o..."),
    "it has failed": (RelatedObjects(FAILED, READY_ISSUER, _pending(1, "Failed")), "++++x..."),
    "it is renewed, and the one before is in use": (
        RelatedObjects(RENEWING, READY_ISSUER, _pending(2), SECRET),
        "++++o+..",
    ),
    "it is ready, and its request is gone": (
        RelatedObjects(ISSUED, READY_ISSUER, None, SECRET),
        "++++++..",
    ),
    "its request may not be read": (NOTHING_READ, "+o......"),
}


@pytest.mark.parametrize(("objects", "links"), CHAINS.values(), ids=CHAINS.keys())
def test_the_chain_shows_where_it_is_broken(objects: RelatedObjects, links: str) -> None:
    chain = chain_of(objects, diagnose(objects, START), ())
    assert [link.what for link in chain] == LINKS
    assert "".join(MARKS[link.level] for link in chain) == links


def test_the_chain_of_acme_has_the_order_and_its_challenges() -> None:
    order = {"metadata": {"name": "o"}, "status": {"state": "pending", "url": "https://ca.example/1"}}
    challenges = (
        {"spec": {"dnsName": "a.example.com", "type": "HTTP-01"}, "status": {"state": "valid"}},
        {"spec": {"dnsName": "b.example.com", "type": "HTTP-01"}, "status": {"reason": "connection refused"}},
    )
    objects = RelatedObjects(FIRST, READY_ISSUER, _pending(1), order=order, challenges=challenges)
    chain = {link.words: link for link in chain_of(objects, diagnose(objects, START), ())}
    assert chain["a.example.com by HTTP-01: valid"].level == "ok"
    assert chain["b.example.com by HTTP-01: pending (connection refused)"].level == "busy"


@pytest.mark.parametrize(
    ("request_", "outcome", "level", "took"),
    [
        (_request(1, ready="True", reason="Issued"), "Issued", "ok", "0 seconds"),
        (_request(1, ready="False", reason="Failed"), "Failed", "bad", ""),
        (_request(1), "Pending", "busy", ""),
        (_request(1, Denied="True"), "Denied", "bad", ""),
    ],
)
def test_history_says_how_each_issuance_ended(
    request_: dict[str, Any], outcome: str, level: str, took: str
) -> None:
    for item in request_["status"]["conditions"]:
        if item["type"] == "Ready" and item["status"] == "True":
            item["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    (one,) = history_of([request_])
    assert (one.outcome, one.level, one.took) == (outcome, level, took)


@pytest.mark.parametrize(
    ("secret", "problem"),
    [
        (None, "Secret web-tls has no certificate yet"),
        ({"data": {"tls.crt": "!!"}}, "the Certificate cannot be read"),
        ({"data": {"tls.crt": base64.b64encode(b"x" * 200_000).decode()}}, "larger than 128 KiB"),
    ],
)
def test_content_that_cannot_be_read_gets_a_sentence(secret: Any, problem: str) -> None:
    found, words = decode(RelatedObjects(_certificate(), secret=secret))
    assert found == []
    assert problem in words

"""What our controllers have written satisfies cert-manager: it would issue, mend and begin nothing."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import pytest

from certwright.kube.api import codec
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.acme.fake_world import fake_world
from controllers.scene import Scene, make_issuer
from controllers.stages import FORMATS, STORES, set_password
from support.world import START, World, make_world
from takeover import fleet, judge
from takeover.go_x509 import key_pem, new_key
from takeover.judge import Case
from takeover.objects import Json
from takeover.scene import objects, taken_over

FULL: Json = {
    "commonName": "all.example.org",
    "subject": {"organizations": ["Example"], "countries": ["DE"], "serialNumber": "42"},
    "dnsNames": ["all.example.org", "*.all.example.org"],
    "ipAddresses": ["192.0.2.1", "2001:db8::1"],
    "uris": ["spiffe://example.org/all"],
    "emailAddresses": ["all@example.org"],
    "duration": "720h",
    "renewBefore": "240h",
    "usages": ["digital signature", "server auth", "client auth"],
    "privateKey": {"algorithm": "ECDSA", "encoding": "PKCS8"},
}
SPECS: dict[str, Json] = {
    "plain": {"dnsNames": ["web.example.org"]},
    "with a whole reference": {
        "dnsNames": ["web.example.org"],
        "issuerRef": {"name": "ca", "kind": "Issuer", "group": "cert-manager.io"},
    },
    "all names": FULL,
    "percentage": {"dnsNames": ["web.example.org"], "renewBeforePercentage": 20},
    "template": {
        "dnsNames": ["web.example.org"],
        "secretTemplate": {"labels": {"team": "web"}, "annotations": {"note": "one"}},
    },
    "formats": {"dnsNames": ["web.example.org"], "additionalOutputFormats": FORMATS},
    "key stores": {"dnsNames": ["web.example.org"], "keystores": STORES},
    "ca": {"commonName": "Team CA", "isCA": True},
    "ed25519": {"dnsNames": ["web.example.org"], "privateKey": {"algorithm": "Ed25519"}},
}


async def case_of(world: World, name: str) -> Case:
    """What cert-manager would gather for a Certificate."""
    (certificate,) = [obj for obj in await objects(world, "certificates") if obj["metadata"]["name"] == name]
    meta = certificate["metadata"]
    secrets = {
        secret["metadata"]["name"]: secret
        for secret in await objects(world, "secrets")
        if secret["metadata"]["namespace"] == meta["namespace"]
    }
    requests = [
        request
        for request in await objects(world, "certificaterequests")
        if any(owner["uid"] == meta["uid"] for owner in request["metadata"].get("ownerReferences", []))
    ]
    return Case(certificate, secrets.get(certificate["spec"]["secretName"]), requests, world.clock.now())


async def check(world: World, name: str = "web", *, owner_references: bool = False) -> None:
    """It is ready, and cert-manager has nothing to say against it."""
    case = await case_of(world, name)
    assert judge.trigger(case) == []
    assert judge.readiness(case) == []
    assert judge.after_issuance(case, owner_references=owner_references) == []
    assert case.current is not None
    (ready,) = case.status["conditions"]
    assert (ready["status"], ready["reason"]) == ("True", "Ready")
    assert "nextPrivateKeySecretName" not in case.status
    # Ours may be later, so that not all are renewed at once, but never earlier.
    planned = judge.parse_time(case.status["renewalTime"])
    assert timedelta(0) <= planned - judge.renewal_time(case) <= timedelta(days=1)


async def issue(world: World, **spec: Any) -> None:
    """A Certificate `web` from the CA."""
    fields = {"secretName": "web", "issuerRef": {"name": "ca"}, "privateKey": {"algorithm": "ECDSA"}, **spec}
    obj = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": fields,
    }
    await world.create(CERTIFICATES, codec.from_dict(CERTIFICATES, obj))
    await world.settle()


@pytest.mark.parametrize("spec", SPECS)
async def test_what_we_issue_cert_manager_would_leave_alone(spec: str) -> None:
    async with make_world() as world:
        scene = Scene(world)
        await scene.add_ca()
        await set_password(scene)
        await issue(world, **SPECS[spec])
        await check(world)
        # And again after a renewal.
        await world.advance(timedelta(days=80))
        assert (await world.certificate("web")).status.revision in (2, 3, 4)
        await check(world)


async def test_owner_references_are_as_cert_manager_wants_them() -> None:
    async with make_world(certificate_owner_references=True) as world:
        await Scene(world).add_ca()
        await issue(world, **SPECS["plain"])
        await check(world, owner_references=True)


async def test_after_a_visit_of_ours_cert_manager_finds_everything_as_it_was() -> None:
    async with taken_over(fleet.settled()) as world:
        await world.advance(timedelta(days=1))
        for made in fleet.plain():
            case = await case_of(world, made.name)
            assert judge.trigger(case) == [], made.name
            assert judge.after_issuance(case) == [], made.name


@pytest.mark.parametrize("made", fleet.old_versions(), ids=lambda made: made.name)
async def test_what_old_versions_lacked_cert_manager_need_not_add(made: Any) -> None:
    async with taken_over([*fleet.issuers(), *fleet.issuer_secrets(), *made.all()]) as world:
        case = await case_of(world, made.name)
        assert judge.trigger(case) == []
        assert judge.after_issuance(case) == []


async def test_an_issuance_that_we_have_begun_cert_manager_can_end() -> None:
    async with make_world(enabled="*,-certificaterequests-approver") as world:
        await world.create(ISSUERS, make_issuer("self"))
        await issue(world, issuerRef={"name": "self"}, dnsNames=["web.example.org"])
        await world.stop_controllers()
        case = await case_of(world, "web")
        assert [
            condition["type"] for condition in case.status["conditions"] if condition["status"] == "True"
        ] == ["Issuing"]
        assert len(case.of_revision(1)) == 1
        label = "cert-manager.io/next-private-key"
        keys = [
            secret
            for secret in await objects(world, "secrets")
            if label in secret["metadata"].get("labels", {})
        ]
        assert judge.goes_on_with(case, keys) == []


async def test_orders_and_accounts_are_found_again_by_cert_manager() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        fake.ca.sees = lambda *_: False
        fake.ca.slow.update(("a.example.org", "b.example.org"))
        await fake.issue("web", "b.example.org", "a.example.org", commonName="a.example.org")
        (order,) = await objects(fake.world, "orders")
        assert order["metadata"]["name"] == judge.order_name("web-1", order["spec"])
        (issuer,) = await objects(fake.world, "clusterissuers")
        account = await fake.world.secret("acme-account", "kube-system")
        assert judge.account_needs_the_server(issuer, account.data["tls.key"]) == []


async def test_a_failure_counts_on_where_cert_manager_takes_over() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        fake.ca.sees = lambda *_: False
        await fake.issue("web")
        await fake.world.advance(timedelta(minutes=1))
        case = await case_of(fake.world, "web")
        assert case.status["failedIssuanceAttempts"] == 1
        failed = judge.parse_time(case.status["lastFailureTime"])
        assert fake.world.clock.now() - failed < timedelta(minutes=2)
        (request,) = case.of_revision(1)
        # What would lift the wait at once: a request that is not what the spec asks for.
        assert judge.request_violations(request, case.spec) == []


def test_the_judge_finds_fault_where_there_is_some() -> None:
    made = fleet.every_name()

    def judged(**changes: Any) -> tuple[list[str], list[str]]:
        certificate, secret, request = made.all()
        certificate["spec"] |= changes.get("spec", {})
        secret["metadata"] |= changes.get("secret", {})
        secret["data"] |= changes.get("data", {})
        request["spec"] |= changes.get("request", {})
        case = Case(certificate, secret, [request], changes.get("now", START))
        return judge.trigger(case), judge.after_issuance(case)

    assert judged() == ([], [])
    assert judged(spec={"dnsNames": ["x.example.org"]})[0] == ["RequestChanged: spec.dnsNames"]
    assert judged(spec={"issuerRef": {"name": "other"}})[0][0] == "IncorrectIssuer"
    assert judged(spec={"privateKey": {"algorithm": "RSA"}})[0] == [
        "SecretMismatch: spec.privateKey.algorithm"
    ]
    assert judged(request={"issuerRef": {"name": "ca"}})[0] == ["RequestChanged: spec.issuerRef"]
    assert judged(now=made.renewal_time)[0] == ["Renewing"]
    assert judged(secret={"labels": {}})[1] == ["label"]
    assert judged(secret={"managedFields": []})[1] == ["managed labels", "managed annotations"]
    assert judged(spec={"additionalOutputFormats": FORMATS})[1][0] == "managed tls-combined.pem"
    assert judged(spec={"keystores": STORES})[1] == [
        "keystore.jks",
        "truststore.jks",
        "keystore.p12",
        "truststore.p12",
    ]
    other = base64.b64encode(key_pem(new_key())).decode()
    assert judged(data={"tls.key": other})[0] == ["InvalidKeyPair"]

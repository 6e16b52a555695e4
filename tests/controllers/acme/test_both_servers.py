"""The same story at the Pebble of today and at the one of Debian, which knows neither renewal information nor
profiles: what a server lacks is done without.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509

from certwright.acme.protocol.exchange import Directory
from certwright.controllers.acme.revoking import Holder, revoke
from certwright.kube.api import conditions
from certwright.resources.certificate import Certificate
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS
from support.acme_world import AcmeWorld, acme_world
from support.bind import running_bind
from support.pebble import debian_pebble, running_pebble

pytestmark = pytest.mark.asyncio(loop_scope="module")
_TODAY, _DEBIAN = "today", "debian"


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[_TODAY, _DEBIAN])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[AcmeWorld]:
    """A world at either server, whose names are in BIND."""
    program = debian_pebble() if request.param == _DEBIAN else None
    environment = {"PEBBLE_WFE_NONCEREJECT": "10", "PEBBLE_ALTERNATE_ROOTS": "1"}
    with contextlib.ExitStack() as stack:
        bind = stack.enter_context(running_bind())
        pebble = stack.enter_context(
            running_pebble(program=program, names=bind.address, environment=environment)
        )
        async with acme_world(pebble, bind=bind) as made:
            await made.secret("tsig", {"key": bind.secrets["hmacsha256"].encode()}, "kube-system")
            rfc2136 = {
                "nameserver": bind.address,
                "tsigKeyName": "hmacsha256",
                "tsigAlgorithm": "HMACSHA256",
                "tsigSecretSecretRef": {"name": "tsig", "key": "key"},
            }
            await made.issuer()
            await made.issuer("tls", solvers=[{"tlsALPN01": {}}])
            await made.issuer("dns", solvers=[{"dns01": {"rfc2136": rfc2136}}])
            yield made


async def directory_of(world: AcmeWorld) -> Directory:
    """What the server says of itself."""
    await world.until(CLUSTER_ISSUERS, "acme", lambda i: conditions.is_true(i.status.conditions, "Ready"))
    controllers = world.controllers
    assert controllers is not None
    client = next(iter(controllers.wiring.clients.registry._clients.values()))
    return await client.directory()


def has_ari(certificate: Certificate) -> bool:
    """Whether the server has said when it is to be renewed, or could not."""
    return certificate.status.acme is not None and certificate.status.acme.ari is not None


@pytest.mark.parametrize(
    ("name", "issuer", "content"),
    [
        ("page", "acme", {"dnsNames": ["page.example.org", "more.example.org"]}),
        ("address", "acme", {"ipAddresses": ["127.0.0.1"]}),
        ("handshake", "tls", {"dnsNames": ["handshake.example.org"]}),
        ("record", "dns", {"dnsNames": ["record.example.org"]}),
        ("wildcard", "dns", {"dnsNames": ["*.wild.example.org", "wild.example.org"]}),
    ],
)
async def test_a_certificate_is_issued(
    world: AcmeWorld, name: str, issuer: str, content: dict[str, Any]
) -> None:
    await world.certificate(name, issuer=issuer, **content)
    leaf = (await world.chain_of(name))[0]
    assert sorted(leaf.dns_names) == sorted(content.get("dnsNames", []))
    assert sorted(leaf.ip_addresses) == sorted(content.get("ipAddresses", []))


async def test_a_profile_is_taken_where_it_is_offered_and_told_where_it_is_not(world: AcmeWorld) -> None:
    offered = (await directory_of(world)).profiles
    await world.issuer("profile", profile="shortlived")
    if not offered:
        status, _, message = await world.verdict("profile")
        assert (status, "a profile with name shortlived (it has none)" in message) == ("True", True)
        return
    await world.certificate("profile", "profile.example.org", issuer="profile")
    leaf = (await world.chain_of("profile"))[0]
    assert (leaf.not_after - leaf.not_before).days in (5, 6)
    await world.issuer("unknown", profile="longlived")
    status, _, message = await world.verdict("unknown")
    assert (status, "a profile with name longlived (it has default, shortlived)" in message) == ("True", True)


async def test_a_renewal_has_another_key_and_another_order(world: AcmeWorld) -> None:
    await world.certificate("again", "again.example.org")
    first = (await world.chain_of("again"))[0]
    status = {"conditions": [{"type": "Issuing", "status": "True", "reason": "ManuallyTriggered"}]}
    await world.client.patch(CERTIFICATES, "again", "default", {"status": status}, subresource="status")
    await world.until(CERTIFICATES, "again", lambda c: c.status.revision == 2)
    second = (await world.chain_of("again"))[0]
    assert second.serial_number != first.serial_number
    assert second.public_key_der != first.public_key_der
    # Where there is no renewal information nobody asks for it, and nobody complains.
    is_offered = bool((await directory_of(world)).renewal_info)
    renewed = await world.until(
        CERTIFICATES, "again", lambda c: c.status.renewal_time is not None and has_ari(c) is is_offered
    )
    assert not renewed.status.failed_issuance_attempts


async def test_what_the_ca_refuses_is_told(world: AcmeWorld) -> None:
    await world.certificate("blocked", "a.blocked-domain.example")
    failed = await world.until(CERTIFICATES, "blocked", lambda c: bool(c.status.failed_issuance_attempts))
    issuing = conditions.find(failed.status.conditions, "Issuing")
    assert issuing is not None
    assert "urn:ietf:params:acme:error:rejectedIdentifier]" in issuing.message


async def test_an_account_is_found_again_by_its_key(world: AcmeWorld) -> None:
    before = (await world.client.get(CLUSTER_ISSUERS, "acme")).status.acme
    assert before is not None
    await world.client.patch(CLUSTER_ISSUERS, "acme", "", {"spec": {"acme": {"email": "other@example.org"}}})
    after = await world.until(
        CLUSTER_ISSUERS,
        "acme",
        lambda i: i.status.acme is not None and i.status.acme.last_registered_email == "other@example.org",
    )
    assert after.status.acme is not None
    assert after.status.acme.uri == before.uri


async def test_the_chain_that_is_preferred(world: AcmeWorld) -> None:
    root = x509.load_pem_x509_certificate(world.pebble.root(1))
    common_name = root.subject.rfc4514_string().removeprefix("CN=")
    await world.issuer("chain", preferredChain=common_name)
    await world.certificate("chain", "chain.example.org", issuer="chain")
    assert (await world.chain_of("chain"))[-1].issuer_text == f"CN={common_name}"


async def test_a_certificate_is_revoked_with_its_own_key(world: AcmeWorld) -> None:
    await world.certificate("bad", "bad.example.org")
    leaf = (await world.chain_of("bad"))[0]
    await revoke(world.client, Holder("default", "bad"), reason="keyCompromise", user_agent="certwright-test")
    assert world.pebble.status_of(f"{leaf.serial_number:x}")["Status"] == "Revoked"

"""Azure DNS, against a fake of it, of the identity service and of the metadata service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.api import Endpoint
from certwright.acme.solvers.dns01.hosts.azure import AzureSettings, ManagedIdentity, ServicePrincipal
from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected, Outside
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.kit.outgoing import ServerRules
from conformance.check_dns_host import OF_OTHERS, ZONE, check_dns_host, session_of, solver_of, task
from support.dns.azure import ASSERTION, CLIENT, GROUP, SECRET, SUBSCRIPTION, TENANT, FakeAzure
from support.dns.outside import Time

MANAGER = "https://management.azure.com"


@pytest.fixture(params=[False, True], ids=["public", "private"])
async def fake(request: pytest.FixtureRequest) -> AsyncIterator[FakeAzure]:
    host = FakeAzure(ZONE, private=request.param)
    host.add(ZONE, "_acme-challenge.shared", OF_OTHERS)
    async with host.running():
        yield host


@pytest.fixture
def principal(fake: FakeAzure) -> ServicePrincipal:
    endpoint = Endpoint(fake.url, ServerRules(allow_http=True))
    return ServicePrincipal(
        authority=endpoint, tenant=TENANT, client_id=CLIENT, resource=MANAGER, secret=SECRET
    )


@pytest.fixture
def settings(fake: FakeAzure, principal: ServicePrincipal) -> AzureSettings:
    return AzureSettings(
        subscription=SUBSCRIPTION,
        resource_group=GROUP,
        login=principal,
        endpoint=principal.authority,
        is_private=fake.kind == "privateDnsZones",
    )


async def test_it_behaves_as_a_dns_host(fake: FakeAzure, settings: AzureSettings, outside: Outside) -> None:
    await check_dns_host(lambda: session_of(settings, outside), fake.values)
    assert fake.sets[ZONE, "_acme-challenge.shared"][1]["metadata"] == {"owner": "others"}


async def test_one_login_serves_all_challenges_until_the_token_ends(
    fake: FakeAzure, time: Time, session: HostSession
) -> None:
    for number in range(5):
        await solver_of(session).present(task(f"n{number}.{ZONE}", "v"))
    assert fake.logins == 1
    fake.revoke()
    await solver_of(session).present(task(f"revoked.{ZONE}", "v"))
    assert fake.logins == 2


@pytest.mark.parametrize("kind", ["federated", "managed"])
async def test_credentials_of_the_surroundings(
    kind: str, fake: FakeAzure, settings: AzureSettings, principal: ServicePrincipal, outside: Outside
) -> None:
    managed = ManagedIdentity(resource=f"{MANAGER}/", client_id=CLIENT, metadata=principal.authority)
    login = managed if kind == "managed" else replace(principal, secret="", assertion=ASSERTION)
    await session_of(replace(settings, login=login), outside).verify()
    assert fake.logins == 1


async def test_the_named_zone_is_not_looked_up(
    fake: FakeAzure, settings: AzureSettings, outside: Outside
) -> None:
    from certwright.acme.solvers.dns01.hosts.contract import HostedZone

    session = session_of(replace(settings, zone=HostedZone(ZONE, ZONE)), outside)
    await solver_of(session).present(task(f"a.{ZONE}", "v"))
    assert fake.values(f"_acme-challenge.a.{ZONE}")
    assert not [call for call in fake.calls if call.endswith("{zone}")]


async def test_a_wrong_secret_is_named_and_not_quoted(
    settings: AzureSettings, principal: ServicePrincipal, outside: Outside
) -> None:
    session = session_of(replace(settings, login=replace(principal, secret="wrong-secret")), outside)
    with pytest.raises(CredentialsRejected, match="AADSTS7000215") as caught:
        await session.verify()
    assert "wrong-secret" not in str(caught.value)
    assert "Trace ID" not in str(caught.value)


async def test_an_unknown_identity_is_named(
    settings: AzureSettings, principal: ServicePrincipal, outside: Outside
) -> None:
    login = ManagedIdentity(resource=f"{MANAGER}/", client_id="nobody", metadata=principal.authority)
    with pytest.raises(CredentialsRejected, match="Identity not found"):
        await session_of(replace(settings, login=login), outside).verify()


async def test_a_missing_group_is_named(settings: AzureSettings, outside: Outside) -> None:
    with pytest.raises(SolverError, match="ResourceGroupNotFound"):
        await session_of(replace(settings, resource_group="other"), outside).find_zone((ZONE,))

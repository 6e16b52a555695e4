"""Azure DNS, against a fake of it, of the identity service and of the metadata service."""

from __future__ import annotations

from dataclasses import replace

import pytest

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.azure import AzureSettings, ManagedIdentity, ServicePrincipal
from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected, HostedZone, Outside
from certwright.acme.solvers.dns01.hosts.session import HostSession
from conformance.check_dns_host import ZONE, session_of, solver_of, task
from support.dns.azure import ASSERTION, CLIENT, FakeAzure
from support.dns.outside import Time

MANAGER = "https://management.azure.com"

PROVIDER = "azure"


@pytest.fixture
def principal(settings: AzureSettings) -> ServicePrincipal:
    assert isinstance(settings.login, ServicePrincipal)
    return settings.login


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

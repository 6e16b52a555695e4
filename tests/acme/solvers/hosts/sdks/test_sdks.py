"""Each vendor's own client judges the fake of its API: what it writes, ours reads, and the reverse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from certwright.acme.solvers.dns01.hosts.akamai import AkamaiSettings
from certwright.acme.solvers.dns01.hosts.api import Endpoint
from certwright.acme.solvers.dns01.hosts.azure import AzureSettings
from certwright.acme.solvers.dns01.hosts.azure_login import ServicePrincipal
from certwright.acme.solvers.dns01.hosts.clouddns import CloudDnsSettings
from certwright.acme.solvers.dns01.hosts.cloudflare import CloudflareSettings
from certwright.acme.solvers.dns01.hosts.contract import HostSettings, Outside
from certwright.acme.solvers.dns01.hosts.digitalocean import DigitalOceanSettings
from certwright.acme.solvers.dns01.hosts.google_login import ServiceAccountKey
from certwright.acme.solvers.dns01.hosts.route53 import Route53Settings
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.kit.aws.credentials import StaticKeys
from certwright.kit.aws.service import AwsEndpoint
from certwright.kit.outgoing import ServerRules
from conformance.check_dns_host import ZONE, solver_of, task
from support.dns import akamai, azure, clouddns, cloudflare, digitalocean
from support.dns.fake import FakeHost
from support.dns.outside import Time
from support.dns.route53 import StrictRoute53
from support.ministack import running_ministack
from support.programs import environment_of

HTTP = ServerRules(allow_http=True)
HOST = f"sdk.{ZONE}"
NAME = f"_acme-challenge.{HOST}"


@dataclass(frozen=True)
class Case:
    """A running fake, the credentials for the vendor's client, and our settings."""

    fake: FakeHost
    given: dict[str, Any]
    settings: HostSettings


@asynccontextmanager
async def cloudflare_case() -> AsyncIterator[Case]:
    fake = cloudflare.FakeCloudflare(ZONE)
    async with fake.running() as url:
        settings = CloudflareSettings(token=cloudflare.TOKEN, endpoint=Endpoint(url, HTTP))
        yield Case(fake, {"token": cloudflare.TOKEN}, settings)


@asynccontextmanager
async def digitalocean_case() -> AsyncIterator[Case]:
    fake = digitalocean.FakeDigitalOcean(ZONE)
    async with fake.running() as url:
        settings = DigitalOceanSettings(token=digitalocean.TOKEN, endpoint=Endpoint(f"{url}/v2", HTTP))
        yield Case(fake, {"token": digitalocean.TOKEN}, settings)


@asynccontextmanager
async def azure_case() -> AsyncIterator[Case]:
    fake = azure.FakeAzure(ZONE)
    async with fake.running() as url:
        login = ServicePrincipal(
            authority=Endpoint(url, HTTP),
            tenant=azure.TENANT,
            client_id=azure.CLIENT,
            resource="https://management.azure.com",
            secret=azure.SECRET,
        )
        settings = AzureSettings(
            subscription=azure.SUBSCRIPTION,
            resource_group=azure.GROUP,
            login=login,
            endpoint=Endpoint(url, HTTP),
        )
        given = {
            "tenant": azure.TENANT,
            "client_id": azure.CLIENT,
            "client_secret": azure.SECRET,
            "subscription": azure.SUBSCRIPTION,
            "group": azure.GROUP,
        }
        yield Case(fake, given, settings)


@asynccontextmanager
async def clouddns_case() -> AsyncIterator[Case]:
    fake = clouddns.FakeCloudDns(ZONE)
    async with fake.running() as url:
        login = ServiceAccountKey(
            email=clouddns.EMAIL,
            key_id=clouddns.KEY_ID,
            key_pem=fake.key_file["private_key"],
            tokens=Endpoint(f"{url}/token", HTTP),
        )
        settings = CloudDnsSettings(project=clouddns.PROJECT, login=login, endpoint=Endpoint(url, HTTP))
        yield Case(fake, {"project": clouddns.PROJECT, "key_file": fake.key_file}, settings)


@asynccontextmanager
async def akamai_case() -> AsyncIterator[Case]:
    fake = akamai.FakeAkamai(ZONE)
    async with fake.running() as url:
        given: dict[str, Any] = {
            "client_token": akamai.CLIENT_TOKEN,
            "access_token": akamai.ACCESS_TOKEN,
            "client_secret": akamai.CLIENT_SECRET,
        }
        yield Case(fake, given, AkamaiSettings(endpoint=Endpoint(url, HTTP), **given))


@asynccontextmanager
async def route53_case() -> AsyncIterator[Case]:
    with running_ministack() as aws:
        fake = await asyncio.to_thread(StrictRoute53, aws, ZONE)
        async with fake.running() as url:
            settings = Route53Settings(
                source=StaticKeys("test", "test"), endpoint=AwsEndpoint(url, "us-east-1", HTTP)
            )
            yield Case(fake, {"key": "test", "secret": "test"}, settings)


CASES = {
    "akamai": akamai_case,
    "azure": azure_case,
    "clouddns": clouddns_case,
    "cloudflare": cloudflare_case,
    "digitalocean": digitalocean_case,
    "route53": route53_case,
}


@pytest.fixture
def time() -> Time:
    """The vendors' clients take the system's time."""
    clock = Time()
    clock.now = datetime.now(UTC)
    return clock


@pytest.mark.parametrize("name", CASES)
async def test_the_vendors_client_and_ours_agree(name: str, outside: Outside) -> None:
    async with CASES[name]() as case:
        solver = solver_of(HostSession(case.settings.connect(outside), outside.now, case.settings.zone))
        kept = task(HOST, "ours")
        await solver.present(kept)
        if name == "route53":
            # Theirs writes simple records, which are not possible beside ours.
            await solver.clean_up(kept)
        theirs = ["first-value", "second-value"]
        ours = [] if name == "route53" else [kept.key]
        found = await driven(name, case, theirs)
        assert found == {"added": sorted([*theirs, *ours]), "left": []}
        await solver.clean_up(kept)
        assert await asyncio.to_thread(case.fake.values, NAME) == set()


async def driven(name: str, case: Case, values: list[str]) -> dict[str, Any]:
    """What the vendor's client reads after it has added values, and after it has removed all."""
    python = environment_of("sdks") / "bin" / "python"
    script = Path(__file__).parent / f"drive_{name}.py"
    given = {"url": case.fake.url, "zone": ZONE, "name": NAME, "values": values, **case.given}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        str(python), str(script), stdin=pipe, stdout=pipe, stderr=pipe
    )
    answer, complaints = await process.communicate(json.dumps(given).encode())
    assert process.returncode == 0, complaints.decode()
    found: dict[str, Any] = json.loads(answer)
    return found

"""A running server of each DNS provider, with our settings and the credentials for another client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from certwright.acme.solvers.dns01.hosts.acmedns import Account, AcmeDnsSettings
from certwright.acme.solvers.dns01.hosts.akamai import AkamaiSettings
from certwright.acme.solvers.dns01.hosts.api import Endpoint
from certwright.acme.solvers.dns01.hosts.azure import AzureSettings, ServicePrincipal
from certwright.acme.solvers.dns01.hosts.clouddns import CloudDnsSettings, ServiceAccountKey
from certwright.acme.solvers.dns01.hosts.cloudflare import CloudflareSettings
from certwright.acme.solvers.dns01.hosts.contract import HostSettings
from certwright.acme.solvers.dns01.hosts.digitalocean import DigitalOceanSettings
from certwright.acme.solvers.dns01.hosts.powerdns import PowerDnsSettings
from certwright.acme.solvers.dns01.hosts.route53 import Route53Settings
from certwright.kit.aws.service import AwsEndpoint, StaticKeys
from certwright.kit.outgoing import ServerRules
from support.dns import acmedns, akamai, azure, clouddns, cloudflare, digitalocean, powerdns
from support.dns.acmedns import FakeAcmeDns
from support.dns.fake import FakeHost
from support.dns.powerdns import running_powerdns
from support.dns.route53 import StrictRoute53
from support.ministack import running_ministack

ZONE = "example.org"
HTTP = ServerRules(allow_http=True)


@dataclass(frozen=True)
class Case:
    """A running fake, the credentials for the vendor's client, and our settings."""

    fake: FakeHost
    given: dict[str, Any]
    settings: HostSettings

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self.fake.url


@asynccontextmanager
async def _cloudflare() -> AsyncIterator[Case]:
    fake = cloudflare.FakeCloudflare(ZONE)
    async with fake.running() as url:
        settings = CloudflareSettings(token=cloudflare.TOKEN, endpoint=Endpoint(url, HTTP))
        yield Case(fake, {"token": cloudflare.TOKEN}, settings)


@asynccontextmanager
async def _digitalocean() -> AsyncIterator[Case]:
    fake = digitalocean.FakeDigitalOcean(ZONE)
    async with fake.running() as url:
        settings = DigitalOceanSettings(token=digitalocean.TOKEN, endpoint=Endpoint(f"{url}/v2", HTTP))
        yield Case(fake, {"token": digitalocean.TOKEN}, settings)


@asynccontextmanager
async def _azure() -> AsyncIterator[Case]:
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
async def _clouddns() -> AsyncIterator[Case]:
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
async def _akamai() -> AsyncIterator[Case]:
    fake = akamai.FakeAkamai(ZONE)
    async with fake.running() as url:
        given: dict[str, Any] = {
            "client_token": akamai.CLIENT_TOKEN,
            "access_token": akamai.ACCESS_TOKEN,
            "client_secret": akamai.CLIENT_SECRET,
        }
        yield Case(fake, given, AkamaiSettings(endpoint=Endpoint(url, HTTP), **given))


@asynccontextmanager
async def _route53() -> AsyncIterator[Case]:
    with running_ministack() as aws:
        fake = await asyncio.to_thread(StrictRoute53, aws, ZONE)
        async with fake.running() as url:
            settings = Route53Settings(
                source=StaticKeys("test", "test"), endpoint=AwsEndpoint(url, "us-east-1", HTTP)
            )
            yield Case(fake, {"key": "test", "secret": "test"}, settings)


@asynccontextmanager
async def _powerdns() -> AsyncIterator[Case]:
    with running_powerdns([ZONE]) as server:
        endpoint = Endpoint(server.url, HTTP)
        fake = FakeHost()
        fake.url = server.url
        yield Case(fake, {}, PowerDnsSettings(endpoint=endpoint, key=powerdns.KEY))


@asynccontextmanager
async def _acmedns() -> AsyncIterator[Case]:
    """200 accounts, one for each of the names `n0` to `n199`."""
    numbers = range(200)
    fake = FakeAcmeDns(*(f"sub-{number}" for number in numbers))
    accounts = tuple(
        (
            f"n{number}.{ZONE}",
            Account(acmedns.USER, acmedns.PASSWORD, f"sub-{number}.auth.test", f"sub-{number}"),
        )
        for number in numbers
    )
    async with fake.running() as url:
        yield Case(fake, {}, AcmeDnsSettings(endpoint=Endpoint(url, HTTP), accounts=accounts))


CASES = {
    "acmedns": _acmedns,
    "akamai": _akamai,
    "azure": _azure,
    "clouddns": _clouddns,
    "cloudflare": _cloudflare,
    "digitalocean": _digitalocean,
    "powerdns": _powerdns,
    "route53": _route53,
}

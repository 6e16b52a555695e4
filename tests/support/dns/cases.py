"""A running server of each DNS provider, with our settings and the credentials for another client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from certwright.acme.solvers.dns01.hosts.akamai import AkamaiSettings
from certwright.acme.solvers.dns01.hosts.api import Endpoint
from certwright.acme.solvers.dns01.hosts.azure import AzureSettings, ServicePrincipal
from certwright.acme.solvers.dns01.hosts.clouddns import CloudDnsSettings, ServiceAccountKey
from certwright.acme.solvers.dns01.hosts.cloudflare import CloudflareSettings
from certwright.acme.solvers.dns01.hosts.contract import HostSettings
from certwright.acme.solvers.dns01.hosts.digitalocean import DigitalOceanSettings
from certwright.acme.solvers.dns01.hosts.route53 import Route53Settings
from certwright.kit.aws.service import AwsEndpoint, StaticKeys
from certwright.kit.outgoing import ServerRules
from conformance.check_dns_host import OF_OTHERS, SHARED, ZONE
from support.dns import akamai, azure, clouddns, cloudflare, digitalocean
from support.dns.fake import FakeHost
from support.dns.route53 import StrictRoute53
from support.ministack import running_ministack

NAME = f"_acme-challenge.{SHARED}"
"""Where another client has written a value."""
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
    fake.zones[ZONE].records[NAME] = {"other": OF_OTHERS}
    async with fake.running() as url:
        settings = CloudflareSettings(token=cloudflare.TOKEN, endpoint=Endpoint(url, HTTP))
        yield Case(fake, {"token": cloudflare.TOKEN}, settings)


@asynccontextmanager
async def _digitalocean() -> AsyncIterator[Case]:
    fake = digitalocean.FakeDigitalOcean(ZONE)
    fake.zones[ZONE].records[NAME] = {"1000": OF_OTHERS}
    async with fake.running() as url:
        settings = DigitalOceanSettings(token=digitalocean.TOKEN, endpoint=Endpoint(f"{url}/v2", HTTP))
        yield Case(fake, {"token": digitalocean.TOKEN}, settings)


@asynccontextmanager
async def _azure(*, private: bool = False) -> AsyncIterator[Case]:
    fake = azure.FakeAzure(ZONE, private=private)
    fake.add(ZONE, "_acme-challenge.shared", OF_OTHERS)
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
            is_private=private,
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
    fake.add(ZONE, NAME, OF_OTHERS)
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
    fake.zones[ZONE].records[NAME] = {"0": OF_OTHERS}
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


CASES: dict[str, Callable[[], AbstractAsyncContextManager[Case]]] = {
    "akamai": _akamai,
    "azure": _azure,
    "private azure": partial(_azure, private=True),
    "clouddns": _clouddns,
    "cloudflare": _cloudflare,
    "digitalocean": _digitalocean,
    "route53": _route53,
}

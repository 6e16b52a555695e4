"""What each provider's client makes of a server that does not answer as documented."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.acmedns import Account, AcmeDnsSettings
from certwright.acme.solvers.dns01.hosts.akamai import AkamaiSettings
from certwright.acme.solvers.dns01.hosts.api import AccessToken, Endpoint
from certwright.acme.solvers.dns01.hosts.azure import AzureSettings
from certwright.acme.solvers.dns01.hosts.clouddns import CloudDnsSettings
from certwright.acme.solvers.dns01.hosts.cloudflare import CloudflareSettings
from certwright.acme.solvers.dns01.hosts.contract import (
    DnsHost,
    Edit,
    HostedZone,
    HostSettings,
    Outside,
    Throttled,
)
from certwright.acme.solvers.dns01.hosts.digitalocean import DigitalOceanSettings
from certwright.acme.solvers.dns01.hosts.powerdns import PowerDnsSettings
from certwright.acme.solvers.dns01.hosts.route53 import Route53Settings
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.kit.aws.service import AwsEndpoint, StaticKeys
from certwright.kit.https import HttpsClient
from certwright.kit.outgoing import ServerRules, ServerTls
from conformance.check_dns_host import ZONE
from support.dns.outside import START

pytestmark = pytest.mark.every(2)

HTTP = ServerRules(allow_http=True)
SECRET = "the-credential"
NAME = f"_acme-challenge.a.{ZONE}"
PAGE = "<html><body>Internal page of 10.0.0.1</body></html>"
HOSTED = HostedZone(ZONE, ZONE)


class Login:
    """A login that always works."""

    async def fetch(self, outside: Outside) -> AccessToken:
        return AccessToken(SECRET, START + timedelta(days=1))


def settings_at(url: str) -> dict[str, HostSettings]:
    """The settings of each provider at that endpoint."""
    endpoint = Endpoint(url, HTTP)
    account = Account("u", SECRET, "x.auth.test", "x")
    return {
        "acme-dns": AcmeDnsSettings(endpoint=endpoint, accounts=((f"a.{ZONE}", account),)),
        "Akamai": AkamaiSettings(endpoint=endpoint, client_token="c", access_token="a", client_secret=SECRET),
        "Azure": AzureSettings(subscription="s", resource_group="g", login=Login(), endpoint=endpoint),
        "Cloud DNS": CloudDnsSettings(project="p", login=Login(), endpoint=endpoint),
        "Cloudflare": CloudflareSettings(token=SECRET, endpoint=endpoint),
        "DigitalOcean": DigitalOceanSettings(token=SECRET, endpoint=endpoint),
        "PowerDNS": PowerDnsSettings(endpoint=endpoint, key=SECRET),
        "Route 53": Route53Settings(
            source=StaticKeys("AKIA", SECRET), endpoint=AwsEndpoint(url, "us-east-1", HTTP)
        ),
    }


PROVIDERS = tuple(settings_at(""))
QUOTED = {"Azure", "Cloud DNS", "Cloudflare", "DigitalOcean", "Route 53"}
"""Their endpoints are the vendors' or the operator's, so that what they answer may be shown."""
Answer = Callable[[], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """A server that gives this answer to every request; yields its URL."""
    app = web.Application()

    async def handle(request: web.Request) -> web.StreamResponse:
        return await answer()

    app.router.add_route("*", "/{path:.*}", handle)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


def plain(status: int, text: str, **headers: str) -> Answer:
    """An answer with that page."""

    async def answer() -> web.StreamResponse:
        shown = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text=text, content_type="text/html", headers=shown)

    return answer


def calls_of(host: DnsHost) -> dict[str, Callable[[], Awaitable[object]]]:
    """The calls of the contract that send a request."""
    edits = {adds: [Edit(NAME, "v" * 43, adds)] for adds in (True, False)}
    return {
        "verify": host.verify,
        "find": lambda: host.find_zone(ZONE),
        "add": lambda: host.apply(HOSTED, edits[True]),
        "remove": lambda: host.apply(HOSTED, edits[False]),
    }


async def errors_of(host: DnsHost) -> dict[str, SolverError]:
    """The error of each call; a call that succeeds has none."""
    errors = {}
    for name, call in calls_of(host).items():
        try:
            await call()
        except SolverError as error:
            errors[name] = error
    return errors


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("status", [400, 401, 403, 500, 502])
async def test_an_error_page(name: str, status: int, outside: Outside) -> None:
    async with answering(plain(status, PAGE)) as url:
        errors = await errors_of(settings_at(url)[name].connect(outside))
    assert "add" in errors
    for error in errors.values():
        check_sentence(error, name)
        assert str(status) in str(error)


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize(
    "text", [PAGE, "", "[]", "null", '{"result": "x"}', '{"x":' + "[" * 100_000], ids=lambda text: text[:20]
)
async def test_a_success_that_is_no_answer_of_the_api(name: str, text: str, outside: Outside) -> None:
    async with answering(plain(200, text)) as url:
        errors = await errors_of(settings_at(url)[name].connect(outside))
    for error in errors.values():
        check_sentence(error, name)
    # Whatever cannot fail, a value that was not added must.
    assert "add" in errors or (name in ("Akamai", "Azure") and text.startswith("{"))


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("status", [429, 503])
async def test_too_many_requests_pause_all_challenges(name: str, status: int, outside: Outside) -> None:
    requests = 0
    limited = plain(status, PAGE, Retry_After="7")

    async def answer() -> web.StreamResponse:
        nonlocal requests
        requests += 1
        return await limited()

    async with answering(answer) as url:
        settings = settings_at(url)[name]
        session = HostSession(settings.connect(outside), outside.now, HOSTED)
        for _ in range(3):
            with pytest.raises(Throttled) as caught:
                await session.edit((ZONE,), Edit(NAME, "v" * 43, True))
            assert START < caught.value.until <= START + timedelta(seconds=7)
    assert requests == 1


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_slow_server(name: str) -> None:
    client = HttpsClient(ServerTls(), user_agent="certwright", trust_fix="", rules=HTTP, timeout_s=0.05)

    async def answer() -> web.StreamResponse:
        await asyncio.sleep(3600)
        raise AssertionError("the server is too late")

    async with answering(answer) as url:
        host = settings_at(url)[name].connect(Outside(lambda _: client, lambda: START))
        with pytest.raises(SolverError, match="did not answer within") as caught:
            await host.apply(HOSTED, [Edit(NAME, "v" * 43, True)])
        await client.close()
    check_sentence(caught.value, name)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_server_that_is_not_running(name: str, outside: Outside) -> None:
    host = settings_at("http://127.0.0.1:1")[name].connect(outside)
    with pytest.raises(SolverError, match="cannot be asked to") as caught:
        await host.apply(HOSTED, [Edit(NAME, "v" * 43, True)])
    check_sentence(caught.value, name)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_credentials_do_not_follow_a_redirect_to_another_host(name: str, outside: Outside) -> None:
    answer = plain(307, "", Location="http://localhost:1/")
    async with answering(answer) as url:
        errors = await errors_of(settings_at(url)[name].connect(outside))
    assert "add" in errors


async def test_plain_http_is_refused_where_an_object_names_the_server(outside: Outside) -> None:
    for name in ("acme-dns", "Akamai", "PowerDNS"):
        settings = settings_at("http://127.0.0.1:1")[name]
        assert isinstance(settings, AcmeDnsSettings | AkamaiSettings | PowerDnsSettings)
        host = replace(settings, endpoint=Endpoint("http://127.0.0.1:1")).connect(outside)
        with pytest.raises(SolverError, match="is not an https URL"):
            await host.apply(HOSTED, [Edit(NAME, "v" * 43, True)])


def check_sentence(error: SolverError, name: str) -> None:
    """One line that begins with the provider, and shows no credential and no page of an internal server."""
    text = str(error)
    assert text.startswith(name)
    assert "\n" not in text
    assert SECRET not in text
    assert len(text) < 700
    if name not in QUOTED:
        assert "Internal page" not in text

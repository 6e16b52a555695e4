from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from certwright.acme.solvers.dns01.hosts.contract import HostSettings, Outside
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.kit.https import HttpsClient
from certwright.kit.outgoing import HttpClient, ServerRules, ServerTls
from conformance.check_dns_host import session_of
from support.dns.cases import CASES, Case
from support.dns.fake import FakeHost
from support.dns.outside import Time


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def outside(time: Time) -> AsyncIterator[Outside]:
    """HTTPS clients as in the product, and a clock that stands still."""
    clients: dict[ServerRules, HttpsClient] = {}

    def client(rules: ServerRules) -> HttpClient:
        if rules not in clients:
            clients[rules] = HttpsClient(ServerTls(), user_agent="certwright", trust_fix="", rules=rules)
        return clients[rules]

    yield Outside(client, lambda: time.now)
    for http_client in clients.values():
        await http_client.close()


@pytest.fixture
async def case(request: pytest.FixtureRequest) -> AsyncIterator[Case]:
    """The provider that the module names in `PROVIDER`."""
    async with CASES[request.module.PROVIDER]() as made:
        yield made


@pytest.fixture
def fake(case: Case) -> FakeHost:
    """The fake of the provider."""
    return case.fake


@pytest.fixture
def settings(case: Case) -> HostSettings:
    """Our settings for the fake."""
    return case.settings


@pytest.fixture
def session(settings: HostSettings, outside: Outside) -> HostSession:
    """A session of the host whose `settings` the module has."""
    return session_of(settings, outside)

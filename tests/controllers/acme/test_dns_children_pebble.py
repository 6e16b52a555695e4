"""From a Certificate to its chain with a provider of dns-lexicon and with a plug-in: Pebble and PowerDNS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from certwright.kube.api import conditions
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from support.acme_world import AcmeWorld, acme_world
from support.dns.plugins import EXAMPLE, install, write_plugins
from support.dns.powerdns import KEY, PowerDnsServer, running_powerdns, served
from support.pebble import running_pebble
from support.real import require_package

pytestmark = pytest.mark.asyncio(loop_scope="module")

BLOCKS = """
    import time
    class Plugin:
        def __init__(self, *, config, secrets): pass
        def has_zone(self, name): time.sleep(600)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PowerDnsServer]:
    with running_powerdns() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(server: PowerDnsServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AcmeWorld]:
    """Names are in PowerDNS. The right key is in the namespace of ClusterIssuers, a wrong one beside the
    Certificates."""
    folder = tmp_path_factory.mktemp("site")
    install(folder, EXAMPLE)
    write_plugins(folder, blocks=BLOCKS)
    policy = OperatorPolicy(
        lexicon_providers=("powerdns",),
        lexicon_options={"powerdns": {"pdns_server": server.url}},
        plugins=("pdns-example", "blocks"),
    )
    with pytest.MonkeyPatch.context() as patch, running_pebble(names=server.address) as pebble:
        patch.syspath_prepend(folder)
        patch.setenv("DNS01_PLUGIN_PDNS_URL", server.url)
        async with acme_world(pebble, bind=server, policy=policy) as made:
            await made.secret("pdns", {"auth_token": KEY.encode()}, "kube-system")
            await made.secret("pdns", {"auth_token": b"wrong"}, "default")
            lexicon = {"provider": "powerdns", "credentialsSecretRef": {"name": "pdns"}}
            refs = {"apiKey": {"name": "pdns", "key": "auth_token"}}
            example = {"name": "pdns-example", "config": {}, "secretRefs": refs}
            await made.issuer("lexicon", solvers=[{"dns01": {"lexicon": lexicon}}])
            await made.issuer("plugin", solvers=[{"dns01": {"plugin": example}}])
            await made.issuer("blocks", solvers=[{"dns01": {"plugin": {"name": "blocks"}}}])
            await made.issuer("refused", solvers=[{"dns01": {"plugin": {"name": "unknown"}}}])
            yield made


async def test_by_lexicon(world: AcmeWorld, server: PowerDnsServer) -> None:
    require_package("lexicon")
    await world.certificate("lexicon", "*.l.example.org", "l.example.org", issuer="lexicon")
    assert (await world.chain_of("lexicon"))[0].dns_names == ("*.l.example.org", "l.example.org")
    assert served(server, "_acme-challenge.l.example.org") == set()


async def test_by_a_plugin_beside_one_that_blocks(world: AcmeWorld, server: PowerDnsServer) -> None:
    for number in range(3):
        await world.certificate(f"blocked{number}", f"b{number}.example.org", issuer="blocks")
    await world.certificate("plugin", "*.p.example.org", "p.example.org", issuer="plugin")
    assert (await world.chain_of("plugin"))[0].dns_names == ("*.p.example.org", "p.example.org")
    assert served(server, "_acme-challenge.p.example.org") == set()
    for number in range(3):
        await world.client.delete(CERTIFICATES, f"blocked{number}", "default")


async def test_a_plugin_that_the_operator_has_not_named(world: AcmeWorld) -> None:
    await world.certificate("refused", "r.example.org", issuer="refused")
    request = await world.until(
        CERTIFICATE_REQUESTS, "refused-1", lambda request: "--dns01-plugin" in str(request.status.conditions)
    )
    condition = conditions.find(request.status.conditions, "Ready")
    assert condition is not None
    assert "unknown" in condition.message

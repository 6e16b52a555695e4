"""Deliveries to web, mail and database servers: what they serve is what the Secret contains."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition
from certwright.pki.certificates import read_certificate
from certwright.resources.table import DELIVERIES
from support.supplied import SERVERS, STALE, Server, renew, served, supplied_servers
from support.world import LiveWorld, eventually

RENEWALS = 20


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's, which the user postgres may not enter."""
    with tempfile.TemporaryDirectory(prefix="delivery-") as name:
        Path(name).chmod(0o755)
        (Path(name) / "tls").mkdir()
        yield Path(name)


async def condition(world: LiveWorld, name: str, kind: str) -> Condition:
    current = conditions.find((await world.get(DELIVERIES, name)).status.conditions, kind)
    return current or Condition(type=kind, status="Unknown", reason="", message="")


ANSWERS = {"postgres": b"42", "postfix": b"250 2.0.0 Ok", "dovecot": b"OK"}
"""What the connections are answered that began before the renewals; the others' answer is HTTP's."""


async def test_servers_serve_each_renewed_certificate_and_keep_their_connections(folder: Path) -> None:
    async with supplied_servers(folder, (*SERVERS, STALE)) as (world, ports):
        await _renew_and_compare(world, ports)
        await _check_conditions(world, SERVERS)


async def _renew_and_compare(world: LiveWorld, ports: Mapping[str, int]) -> None:
    expected = read_certificate((await world.secret("web")).data["tls.crt"]).der

    async def serves(server: Server) -> bool:
        return await served(server, ports[server.name]) == expected

    async def all_serve() -> bool:
        return all(await asyncio.gather(*map(serves, SERVERS)))

    await eventually(all_serve)
    secret = {
        server.name: await asyncio.to_thread(server.hold, ports[server.name])
        for server in SERVERS
        if server.hold is not None
    }
    for _ in range(RENEWALS):
        expected = await renew(world)
        await eventually(all_serve)
    for name, connection in secret.items():
        assert ANSWERS.get(name, b"HTTP/1.1 ") in await asyncio.to_thread(connection.finish), name


async def _check_conditions(world: LiveWorld, servers: Sequence[Server]) -> None:
    for server in servers:

        async def is_deployed(name: str = server.name) -> bool:
            return (await condition(world, name, "Deployed")).status == "True"

        await eventually(is_deployed)
        assert (await condition(world, server.name, "Delivered")).status == "True"
    stale = await condition(world, STALE.name, "Deployed")
    assert (stale.status, (await condition(world, STALE.name, "Delivered")).status) == ("False", "True")
    assert "stored and delivered, but 127.0.0.1:" in stale.message

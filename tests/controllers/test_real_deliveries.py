"""Deliveries to Debian's nginx, HAProxy and PostgreSQL: what they serve is what the Secret contains."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition
from certwright.pki.certificates import read_certificate
from certwright.resources.table import DELIVERIES
from support.live import LiveWorld, eventually
from support.supplied import SERVERS, STALE, renew, served, supplied_servers
from support.tls_servers import HeldRequest, HeldSession

RENEWALS = 20


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's, which the user postgres may not enter."""
    with tempfile.TemporaryDirectory(prefix="delivery-") as name:
        Path(name).chmod(0o755)
        (Path(name) / "tls").mkdir()
        yield Path(name)


async def condition(world: LiveWorld, name: str, kind: str) -> Condition:
    found = conditions.find((await world.get(DELIVERIES, name)).status.conditions, kind)
    return found or Condition(type=kind, status="Unknown", reason="", message="")


async def test_servers_serve_each_renewed_certificate_and_keep_their_connections(folder: Path) -> None:
    async with supplied_servers(folder) as (world, ports):
        await _renew_and_compare(world, {name: ports[name] for name in SERVERS})
        await _check_conditions(world, SERVERS)


async def _renew_and_compare(world: LiveWorld, ports: Mapping[str, int]) -> None:
    expected = read_certificate((await world.secret("web")).data["tls.crt"]).der

    async def all_serve() -> bool:
        found = [await served(name, port) for name, port in ports.items()]
        return found == [expected] * len(ports)

    await eventually(all_serve)
    held: tuple[HeldRequest | HeldSession, ...] = (
        HeldRequest(ports["nginx"]),
        HeldRequest(ports["haproxy"]),
        HeldSession(ports["postgres"]),
    )
    for _ in range(RENEWALS):
        expected = await renew(world)
        await eventually(all_serve)
    answers = [await asyncio.to_thread(one.finish) for one in held]
    assert answers[:2] == [b"HTTP/1.1 200 OK"] * 2
    assert b"42" in answers[2]


async def _check_conditions(world: LiveWorld, names: tuple[str, ...]) -> None:
    for name in names:

        async def is_deployed(name: str = name) -> bool:
            return (await condition(world, name, "Deployed")).status == "True"

        await eventually(is_deployed)
        assert (await condition(world, name, "Delivered")).status == "True"
    stale = await condition(world, STALE, "Deployed")
    assert (stale.status, (await condition(world, STALE, "Delivered")).status) == ("False", "True")
    assert "stored and delivered, but 127.0.0.1:" in stale.message

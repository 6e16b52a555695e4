"""Each vendor's own client judges the fake of its API: what it writes, ours reads, and the reverse."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from certwright.acme.solvers.dns01.hosts.contract import Outside
from certwright.acme.solvers.dns01.hosts.session import HostSession
from conformance.check_dns_host import ZONE, solver_of, task
from support.dns.cases import CASES, Case
from support.dns.outside import Time
from support.programs import environment_of

HOST = f"sdk.{ZONE}"
NAME = f"_acme-challenge.{HOST}"
VENDORS = ("akamai", "azure", "clouddns", "cloudflare", "digitalocean", "route53")


@pytest.fixture
def time() -> Time:
    """The vendors' clients take the system's time."""
    clock = Time()
    clock.now = datetime.now(UTC)
    return clock


@pytest.mark.parametrize("name", VENDORS)
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
        result = await driven(name, case, theirs)
        assert result == {"added": sorted([*theirs, *ours]), "left": []}
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
    document: dict[str, Any] = json.loads(answer)
    return document

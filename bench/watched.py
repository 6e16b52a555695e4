"""How soon watchers hear of a write: writes at an even pace, and what `bench/watchers.py` heard of them."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from dataclasses import dataclass

from bench.contenders import Contender, collection
from bench.load import Connection, Target, creating, measure, revision_in
from bench.rig import cpu_s, median

PLURAL = "watched"
SECONDS = 4.0
_KEPT = 64
_AT = re.compile(rb'"at": "(\d+)"')


@dataclass(frozen=True, slots=True)
class Delays:
    """In milliseconds: from the moment the writer asked, and from the moment it had its answer (events that
    came before that count as 0). `rate` in writes per second, `busy` in processors. `away`: how long the
    watchers' own process did not get to read, at the longest."""

    asked: list[float]
    answered: list[float]
    rate: float
    busy: float
    away: float

    def shown(self) -> list[str]:
        """For a row of a table."""
        cells = [f"{at(delays):.2f}" for delays in (self.asked, self.answered) for at in (median, _p99)]
        return [f"{self.rate:,.0f}", *cells, f"{self.busy:.0%}", f"{self.away:.0f}"]


async def delays(contender: Contender, *, watchers: int, rate: int) -> Delays:
    """Have so many watchers, and write so often."""
    target = contender.target(PLURAL, 512)
    async with target.connections(1) as (connection,):
        await connection.ask(target.get(query="?limit=1"))
        revision = json.loads(connection.text())["metadata"]["resourceVersion"]
    command = [sys.executable, "-m", "bench.watchers", "--server", contender.url, "--revision", revision]
    command += ["--path", collection(PLURAL), "--count", str(watchers)]
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--certificate", str(contender.certificate)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 28,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    await process.stdout.readline()
    cpu, begun = _processor_s(contender), time.perf_counter()
    answered = await _write(target, rate)
    took = time.perf_counter() - begun
    process.stdin.write(f"{len(answered) * watchers}\n".encode())
    report = json.loads(await process.stdout.readline())
    busy = (_processor_s(contender) - cpu) / took
    heard = [tuple(pair) for pair in report["heard"] if pair[0] in answered]
    await process.wait()
    if len(heard) != len(answered) * watchers:
        raise SystemExit(f"{contender.name}: {len(heard)} events of {len(answered)} × {watchers} were heard")
    return Delays(
        asked=sorted((at - stamp) / 1e6 for stamp, at in heard),
        answered=sorted(max(0, at - answered[stamp]) / 1e6 for stamp, at in heard),
        rate=len(answered) / took,
        busy=busy,
        away=report["away_ns"] / 1e6,
    )


async def prepare(contender: Contender) -> None:
    """Have the objects there that are written."""
    target = contender.target(PLURAL, 512)
    await measure(target, creating(target, ""), connections=1, seconds=60.0, most=_KEPT)


async def _write(target: Target, rate: int) -> dict[int, int]:
    """Replace objects at an even pace: when each write was answered, by the stamp in it."""
    answered: dict[int, int] = {}
    revisions: dict[int, str] = {}
    loop = asyncio.get_running_loop()
    begun, total = loop.time(), round(rate * SECONDS)
    numbers = iter(range(total))

    async def drive(connection: Connection, own: int) -> None:
        await connection.ask(target.get(f"load-{own}"))
        revisions[own] = revision_in(connection)
        for number in numbers:
            if (early := begun + number / rate - loop.time()) > 0:
                await asyncio.sleep(early)
            request = target.replace(f"load-{own}", revisions[own])
            assert await connection.ask(request) == 200, connection.body
            answered[_stamp(request)] = time.monotonic_ns()
            revisions[own] = revision_in(connection)

    async with target.connections(min(_KEPT, max(1, rate // 50))) as opened:
        await asyncio.gather(*(drive(connection, own) for own, connection in enumerate(opened)))
    return answered


def _stamp(request: bytes) -> int:
    match = _AT.search(request)
    assert match is not None
    return int(match[1])


def _processor_s(contender: Contender) -> float:
    return sum(map(cpu_s, contender.pids))


def _p99(delays: list[float]) -> float:
    return delays[len(delays) * 99 // 100]

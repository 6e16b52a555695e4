"""generateName under load (KEP-4420): what retries cost, and how likely a conflict is with them.

The picture goes to docs/img/generate-name.svg, what it means is in docs/generate-name.md.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.name_chart import draw
from bench.name_conflicts import (
    ATTEMPTS,
    GOAL,
    GOAL_NAMES,
    SIZES,
    expected_failures,
    recurrence,
    simulate,
    size_at,
)
from bench.rig import memory_mb, table
from bench.webhook import webhook
from certwright.admission.kinds import certificate_kinds
from certwright.kube.api import naming
from certwright.kube.apiserver.base.features import NAME_GENERATION_LOOK_AHEAD, FeatureGates
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.apiserver.verbs.creates import NAME_ATTEMPTS
from certwright.kube.store.contract import Store
from certwright.kube.store.memory import MemoryStore
from certwright.kube.store.sqlite.store import open_sqlite
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.http_messages import Identity, Request

OpenStore = Callable[[], Awaitable[Store]]
Simulated = dict[int, dict[int, tuple[int, int]]]

PICTURE = Path(__file__).parent.parent / "docs" / "img" / "generate-name.svg"
_ADMIN = Identity("bench", groups=("system:masters", "system:authenticated"))
_PATH = "/api/v1/namespaces/default/configmaps"
_HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_GENERATED = {"metadata": {"generateName": "p-"}}
_RETRIES = NAME_ATTEMPTS - 1
_RUNS = {500: 6_000, 5_000: 600, 100_000: 20, GOAL_NAMES: 4}
_REAL_NAMES = int(os.environ.get("BENCH_NAMES", GOAL_NAMES))
_KEP_LENGTHS = (
    (5, 5_000, 500),
    (6, 25_000, 900),
    (7, 120_000, 5_000),
    (8, 650_000, 8_000),
    (9, 3_300_000, 120_000),
    (10, 17_000_000, 600_000),
    (11, 24_000_000, 3_400_000),
)
"""The KEP's table: characters, names at 50 %, names at 0.1 %."""


def main() -> None:
    """Print all tables and draw the picture."""
    asyncio.run(_worst_cases())
    print()
    theory = {attempts: recurrence(attempts) for attempts in ATTEMPTS}
    simulated = {size: simulate(size, runs, naming.random_suffix) for size, runs in _RUNS.items()}
    _print_chances(theory, simulated)
    needed = asyncio.run(_real_run())
    _print_failures(simulated, needed)
    _print_differences(theory)
    dots = [
        (size, attempts, counts[attempts][0] / _RUNS[size])
        for size, counts in simulated.items()
        for attempts in ATTEMPTS
    ]
    draw(PICTURE, dots, "Lines: the KEP's recurrence. Dots: runs with our generator that had a conflict.")


# --- (a) what retries cost --------------------------------------------------------------------------------


async def _worst_cases() -> None:
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as folder:
        numbers = itertools.count()

        async def memory() -> Store:
            return MemoryStore()

        async def sqlite() -> Store:
            return await open_sqlite(Path(folder) / f"{next(numbers)}.db")

        rows = [
            ["memory", *await _compare(memory, 1, 6_000)],
            ["sqlite, one at a time", *await _compare(sqlite, 1, 1_500)],
            ["sqlite, 64 at once", *await _compare(sqlite, 64, 12_000)],
            ["memory, a validating webhook", *await _compare(memory, 1, 400, hooked=True)],
        ]
    headings = ["µs per create", "no conflict", "7 retries", "factor", "7 retries, no look ahead", "factor"]
    table(headings, rows)


async def _compare(opened: OpenStore, at_once: int, count: int, *, hooked: bool = False) -> list[str]:
    figures: list[float] = []
    for retries, look in ((0, True), (_RETRIES, True), (_RETRIES, False)):
        async with _server(opened, retries=retries, look=look, hooked=hooked) as server:
            figures.append(await _creates(server, at_once, count))
    plain, looked, blind = figures
    return [f"{plain:.0f}", f"{looked:.0f}", f"{looked / plain:.2f}", f"{blind:.0f}", f"{blind / plain:.2f}"]


@asynccontextmanager
async def _server(
    opened: OpenStore, *, retries: int, look: bool, hooked: bool = False
) -> AsyncIterator[ApiServer]:
    """A server whose every create finds that many names taken before one that is free."""
    store = await opened()
    server = ApiServer(
        store,
        SystemClock(),
        authenticator=lambda _: None,
        name_suffix=_conflicting(retries),
        gates=FeatureGates({NAME_GENERATION_LOOK_AHEAD: look}),
        extensions=certificate_kinds(),
    )
    await server.start([])
    for number in range(retries):
        await _post(server, _PATH, {"metadata": {"name": f"p-taken{number}"}})
    async with webhook() as configuration:
        if hooked:
            await _post(server, _HOOKS, configuration)
        try:
            yield server
        finally:
            await server.close()
            await store.close()


def _conflicting(retries: int) -> Callable[[], str]:
    numbers = itertools.count()

    def names() -> Iterator[str]:
        while True:
            yield from (f"taken{number}" for number in range(retries))
            yield f"{next(numbers):07}"

    drawn = names()
    return lambda: next(drawn)


async def _post(server: ApiServer, path: str, body: Any) -> None:
    request = Request("POST", path, body=msgspec.json.encode(body), user=_ADMIN)
    response = await server.handle(request)
    assert response.status == 201, response.body


async def _creates(server: ApiServer, at_once: int, count: int) -> float:
    """Microseconds per create."""
    numbers = iter(range(count))

    async def work() -> None:
        for _ in numbers:
            await _post(server, _PATH, _GENERATED)

    for _ in range(10):  # connections, caches
        await _post(server, _PATH, _GENERATED)
    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return (time.perf_counter() - begun) / count * 1e6


# --- (b) how likely a conflict is ---------------------------------------------------------------------------


def _print_chances(theory: dict[int, list[float]], simulated: Simulated) -> None:
    rows = []
    for attempts in ATTEMPTS:
        row = [f"{attempts} ({attempts - 1})"]
        for index, size in enumerate(SIZES):
            share = simulated[size][attempts][0] / _RUNS[size]
            row += [f"{theory[attempts][index]:.3g}", f"{share:.3g}" if share else "0"]
        rows.append(row)
    sizes = [heading for size in SIZES for heading in (f"{size:,} names", f"in {_RUNS[size]:,} runs")]
    table(["attempts (retries)", *sizes], rows)
    print(
        "\nThe chance that at least one create fails: by the KEP's recurrence, and the share of simulated "
        "runs in which one did.\nWith 0 attempts there is no name at all. "
        f"With 8 attempts 0.1 % is reached at {size_at(GOAL, 8):,.0f} names.\n"
    )


async def _real_run() -> dict[int, int]:
    """A million creates, one prefix, our generator, the create path as it is, the store in memory.

    Returns how many creates needed so many names.
    """
    drawn = 0

    def suffix() -> str:
        nonlocal drawn
        drawn += 1
        return naming.random_suffix()

    server = ApiServer(
        MemoryStore(),
        SystemClock(),
        authenticator=lambda _: None,
        name_suffix=suffix,
        extensions=certificate_kinds(),
    )
    await server.start([])
    needed: dict[int, int] = {}
    request = Request("POST", _PATH, body=msgspec.json.encode(_GENERATED), user=_ADMIN)
    begun = time.perf_counter()
    for _ in range(_REAL_NAMES):
        before = drawn
        response = await server.handle(request)
        tried = drawn - before if response.status == 201 else NAME_ATTEMPTS + 1
        needed[tried] = needed.get(tried, 0) + 1
    took = time.perf_counter() - begun
    print(
        f"{_REAL_NAMES:,} creates with one prefix in the memory store, through the API server's create path: "
        f"{took:.0f} s, {_REAL_NAMES / took:,.0f}/s, {memory_mb():,.0f} MB; "
        f"{needed.get(NAME_ATTEMPTS + 1, 0)} failed.\n"
    )
    await server.close()
    return needed


def _print_failures(simulated: Simulated, needed: dict[int, int]) -> None:
    rows = []
    for attempts in range(1, NAME_ATTEMPTS + 1):
        real = sum(count for tried, count in needed.items() if tried > attempts)
        per_run = simulated[GOAL_NAMES][attempts][1] / _RUNS[GOAL_NAMES]
        expected = expected_failures(attempts, _REAL_NAMES)
        rows.append([str(attempts), f"{expected:,.3g}", f"{per_run:,.6g}", f"{real:,}"])
    headings = [
        f"of {_REAL_NAMES:,} creates, more names needed than",
        "expected",
        "simulated",
        "in the store",
    ]
    table(headings, rows)


def _print_differences(theory: dict[int, list[float]]) -> None:
    at_500, at_100_000, at_million = (theory[t][i] for t, i in ((1, 0), (8, 2), (8, 3)))
    print()
    rows = [
        ["0.1 % for one attempt", "500 names", f"{size_at(GOAL, 1):,.0f} (at 500: {at_500:.2%})"],
        ["50 % for one attempt", "5,000 names", f"{size_at(0.5, 1):,.0f}"],
        ["8 attempts at 100,000", "1 in 1.6e13", f"1 in {1 / at_100_000:.2g}"],
        ["below 0.1 % at a million", "after 7 attempts", f"7: {theory[7][3]:.4%}; 8: {at_million:.4%}"],
    ]
    for length, half, small in _KEP_LENGTHS:
        names = 27.0**length
        ours = f"{size_at(0.5, 1, names):,.0f}; {size_at(GOAL, 1, names):,.0f}"
        rows.append([f"{length} characters: 50 %; 0.1 %", f"{half:,}; {small:,}", ours])
    table(["", "KEP-4420 says", "exact"], rows)


if __name__ == "__main__":
    main()

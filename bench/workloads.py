"""The workloads of the design for little memory (cert-manager, 20221205-memory-management), and larger ones.

make bench ARGS=workloads                          all of them: half an hour, most of it waiting
make bench ARGS="workloads --only big-secrets"     one
make bench ARGS="workloads --only many-certificates --size 10000"

Each prints a table and draws docs/img/NAME.svg.

The controllers run in a process of their own, over TLS, against `certwright serve --controllers ''`. Memory
is theirs: PSS where nothing else is said, the peak is the highest resident set since their start. "Off" is
`--feature-gates SecretsFilteredCaching=false`: one copy of all Secrets.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import issuance, sharded, stock
from bench.beside import Resting, controllers, pss_mb, rest, session, share_of_a_core
from bench.rig import Daemon, daemon, memory_mb, table
from bench.workload_chart import Bar, draw
from certwright.kube.api.core import SECRETS

PICTURES = Path("docs/img")
GATE = "SecretsFilteredCaching"
BIG, BIG_BYTES = 300, 1_000_000
MANY, MANY_BYTES = 30_000, 2_000
FEW = 4
CERTIFICATES = 100_000
DUE = 0.01
ISSUED = 1_000
QUIET_S = 30.0


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    size: int = CERTIFICATES
    algorithm: str = stock.ALGORITHM
    issued: int = ISSUED


@dataclass(frozen=True, slots=True)
class Seen:
    """Controllers of one store: at rest after the start, and what they took at the end."""

    started: Resting
    end_mb: float
    peak_mb: float
    quiet_share: float


def big_secrets(_: Options) -> list[Bar]:
    """300 unrelated Secrets of 1 MB: growth at most 2 MB over the same controllers with none."""
    return _unrelated("big-secrets", BIG, BIG_BYTES, goal_mb=2.0)


def many_secrets(_: Options) -> list[Bar]:
    """4 certificates and 30,000 unrelated Secrets: growth at most 10 MB, 3 s of processor time to start."""
    return _unrelated("many-secrets", MANY, MANY_BYTES, goal_mb=10.0)


def issue(_: Options) -> list[Bar]:
    """500 certificates from 10 CA issuers: at most 10 requests for each, whoever has labelled the CAs."""
    rows = []
    for is_on, has_label, pace in issuance.CASES:
        with _store(0) as folder:
            rows.append(issuance.measured(folder, flags=_gate(is_on=is_on), has_label=has_label, pace=pace))
            print(".", rows[-1].sorts(), flush=True)
    table(issuance.HEADINGS, [row.cells() for row in rows])
    return [Bar(f"{row.name}, requests a certificate", row.each, "", goal=10.0) for row in rows]


def mass(_: Options) -> list[Bar]:
    """300 and 3,000 certificates at once: the median is ready at 60 % of the last one's time at most."""
    rows = []
    for number, algorithm in issuance.MASSES:
        with _store(0) as folder:
            rows += issuance.mass(folder, number, algorithm)
            print(".", rows[-2:], flush=True)
    table(issuance.MASS_HEADINGS, rows)
    return []


def many_certificates(options: Options) -> list[Bar]:
    """100,000 certificates, 1 % of them due: at most 3 KB each, 2 % of a core, a start within 60 s."""
    with _store(0) as folder:
        empty = _seen(folder, ())
    with _store(options.size, due=DUE, algorithm=options.algorithm) as folder:
        full = _seen(folder, ())
    each = 1_000 * (full.end_mb - empty.end_mb) / options.size
    started = full.started
    table(
        ["figure", f"{options.size:,} certificates, {options.algorithm}"],
        [
            ["memory of the controllers without any", f"{empty.end_mb:.0f} MB"],
            ["memory at rest / highest", f"{full.end_mb:.0f} / {full.peak_mb:.0f} MB"],
            ["memory per certificate over that, at rest", f"{each:.2f} kB"],
            ["start until all were looked at and the due ones renewed", f"{started.wall_s:.0f} s"],
            ["processor time of that", f"{started.cpu_s:.0f} s"],
            ["share of a core in rest", f"{100 * full.quiet_share:.2f} %"],
        ],
    )
    return [
        Bar(f"{options.size:,} certificates, kB each", each, "kB", goal=3.0),
        Bar("start and 1 % renewed, s", started.wall_s, "s", goal=60.0),
    ]


def shards(options: Options) -> list[Bar]:
    """Certificates issued with 1, 2 and 4 replicas that share the work: the rate grows with them until the
    processors or the API server are the bound."""
    rows = []
    for limit, number in sharded.CASES:
        with _store(0) as folder:
            rows.append(sharded.sharded(folder, limit, number, options.issued))
            print(".", rows[-1].cells(), flush=True)
    table(sharded.HEADINGS, [row.cells() for row in rows])
    return [Bar(row.name, row.rate, "/s") for row in rows]


WORKLOADS: dict[str, Callable[[Options], list[Bar]]] = {
    "big-secrets": big_secrets,
    "many-secrets": many_secrets,
    "issuance": issue,
    "mass": mass,
    "many-certificates": many_certificates,
    "shards": shards,
}


def _unrelated(title: str, number: int, size: int, *, goal_mb: float) -> list[Bar]:
    rows, bars = [], []
    for is_on in (True, False):
        flags = _gate(is_on=is_on)
        with _store(FEW) as folder:
            empty = _seen(folder, flags)
        with _store(FEW, stock.unrelated_secrets(number, size)) as folder:
            full = _seen(folder, flags, relabelled=min(number, BIG))
        grown = [
            full.started.memory_mb - empty.started.memory_mb,
            full.started.peak_mb - empty.started.peak_mb,
            full.end_mb - empty.started.memory_mb,
            full.peak_mb - empty.started.peak_mb,
        ]
        rows.append(
            [
                "on" if is_on else "off",
                f"{empty.started.memory_mb:.1f} / {empty.started.peak_mb:.1f}",
                *(f"{mb:+.1f}" for mb in grown),
                f"{full.started.cpu_s:.1f}",
            ]
        )
        print(".", rows[-1], flush=True)
        state = "on" if is_on else "off"
        names = ("steady", "peak of the start", "after relabelling", "peak of relabelling")
        bars += [
            Bar(f"{title}, {state}: {name}", mb, "MB", goal=goal_mb)
            for name, mb in zip(names, grown, strict=True)
        ]
    table(
        [
            "gate",
            "MB without: steady / peak",
            "steady",
            "peak of the start",
            "after relabelling",
            "peak of that",
            "start, CPU s",
        ],
        rows,
    )
    return bars


def _seen(folder: Path, flags: Sequence[str], *, relabelled: int = 0) -> Seen:
    """Start a server and controllers over that store, wait, relabel the Secrets if asked to, wait."""
    with daemon("--controllers", "", *stock.IN_CLEAR, data_dir=folder) as server:
        begun = time.perf_counter()
        with controllers(server, *flags) as pid:
            started = rest(server, pid, since=begun)
            if relabelled:
                asyncio.run(_relabel(server, relabelled))
                rest(server, pid, since=begun)
            quiet = share_of_a_core(pid, QUIET_S)
            return Seen(started, pss_mb(pid), memory_mb(pid, peak=True), quiet)


async def _relabel(server: Daemon, number: int) -> None:
    """Give each of the unrelated Secrets another label."""
    async with session(server) as client:
        for n in range(number):
            patch = {"metadata": {"labels": {"bench": "relabelled"}}}
            await client.patch(SECRETS, f"sh.helm.release.v1.app-{n}.v1", "default", patch)


def _gate(*, is_on: bool) -> tuple[str, ...]:
    return ("--feature-gates", f"{GATE}={'true' if is_on else 'false'}")


@contextmanager
def _store(
    certificates: int,
    more: Iterable[tuple[str, str, bytes, bytes]] = (),
    *,
    due: float = 0.0,
    algorithm: str = stock.ALGORITHM,
) -> Iterator[Path]:
    """A folder with a store that holds so many certificates, and what else is given."""
    with tempfile.TemporaryDirectory(prefix="certwright-workload-") as name:
        folder = Path(name)
        stock.stock(folder, certificates, due=due, algorithm=algorithm)
        stock.insert(folder, more)
        yield folder


def main(arguments: Sequence[str] = ()) -> None:
    """Print a table of each, and draw a picture of it."""
    parser = argparse.ArgumentParser(prog="workloads", description=__doc__)
    parser.add_argument("--only", choices=tuple(WORKLOADS), action="append", help="this one; may be repeated")
    parser.add_argument("--size", type=int, default=CERTIFICATES, help="of many-certificates")
    parser.add_argument("--algorithm", default=stock.ALGORITHM, help="of the keys of many-certificates")
    parser.add_argument("--issued", type=int, default=ISSUED, help="certificates of shards")
    given = parser.parse_args(arguments)
    for name in given.only or WORKLOADS:
        print(f"\n### {name}: {WORKLOADS[name].__doc__}\n", flush=True)
        bars = WORKLOADS[name](Options(given.size, given.algorithm, given.issued))
        draw(PICTURES / f"{name}.svg", name, bars)


if __name__ == "__main__":
    main()

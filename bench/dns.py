"""DNS providers: requests for one certificate, for 20 names of a zone, and for 200 certificates at once; the
look-ups of zones among them; memory of a provider in use.

PowerDNS is the real server, Route 53 is ministack, the others are the fakes of the tests. The requests are
those of the solvers: present, wait until the provider reports the change as done, clean up.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from certwright.acme.solvers.contract import Ready
from certwright.acme.solvers.dns01.hosts.contract import HostedZone, Outside
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.acme.solvers.dns01.hosts.solver import AfterChange
from certwright.kit.https import HttpsClient
from certwright.kit.outgoing import HttpAnswer, HttpClient, ServerRules, ServerTls
from conformance.check_dns_host import ZONE, solver_of, task
from support.dns.cases import CASES, Case

_COUNTS = (1, 20, 200)
_POLL = timedelta(seconds=4)


@dataclass(slots=True)
class Counting:
    """Clients of the product that count requests, and a clock."""

    now: datetime
    requests: int = 0
    client: HttpsClient | None = None

    async def send(
        self, method: str, url: str, *, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
    ) -> HttpAnswer:
        """See `HttpClient`."""
        self.requests += 1
        if self.client is None:
            rules = ServerRules(allow_http=True)
            self.client = HttpsClient(ServerTls(), user_agent="certwright", trust_fix="", rules=rules)
        return await self.client.send(method, url, body=body, headers=headers)

    def of(self, _rules: ServerRules) -> HttpClient:
        """The client."""
        return self


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests for a number of names, and look-ups of zones."""

    requests: int
    lookups: int


async def cost(case: Case, names: int) -> Cost:
    """What this many challenges at once cost, with nothing cached."""
    counting, lookups = Counting(datetime.now(UTC)), 0
    host = case.settings.connect(Outside(counting.of, lambda: counting.now))
    find_zone = host.find_zone

    async def find(name: str) -> HostedZone | None:
        nonlocal lookups
        lookups += 1
        return await find_zone(name)

    host.find_zone = find  # type: ignore[method-assign] # to count the calls
    session = HostSession(host, lambda: counting.now, case.settings.zone)
    pairs = [(solver_of(session), task(f"n{number}.{ZONE}", "v")) for number in range(names)]
    await asyncio.gather(*(solver.present(challenge) for solver, challenge in pairs))
    checks = [(AfterChange(solver, None), challenge) for solver, challenge in pairs]
    while not all(
        isinstance(verdict, Ready)
        for verdict in await asyncio.gather(*(check.check(challenge) for check, challenge in checks))
    ):
        counting.now += _POLL
    await asyncio.gather(*(solver.clean_up(challenge) for solver, challenge in pairs))
    if counting.client is not None:
        await counting.client.close()
    return Cost(counting.requests, lookups)


async def memory_kb(case: Case) -> str:
    """Memory that a process takes for this provider, in kB: after one certificate, and after 200 at once."""
    command = [sys.executable, "-m", "bench.dns_memory", case.url]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    answer, _ = await process.communicate(pickle.dumps(case.settings))
    return ", ".join(answer.decode().split())


async def measure() -> None:
    """Print a row for each provider."""
    print(f"{'provider':14}{'requests for 1, 20, 200':>26}{'look-ups of zones':>20}{'kB for 1, 200':>20}")
    for name, make in CASES.items():
        async with make() as case:
            costs = [await cost(case, names) for names in _COUNTS]
            requests = ", ".join(str(result.requests) for result in costs)
            lookups = ", ".join(str(result.lookups) for result in costs)
            print(f"{name:14}{requests:>26}{lookups:>20}{await memory_kb(case):>20}", flush=True)


def main() -> None:
    """Measure and print."""
    asyncio.run(measure())


if __name__ == "__main__":
    main()

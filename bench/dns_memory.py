"""Memory of one DNS provider in use, in a process that already has the solvers and an HTTPS client in use.

Reads pickled settings from stdin, presents and removes one value, then 200 at once, and prints kB after each.
The argument is the URL of the server.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import pickle
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from certwright.acme.solvers.dns01.hosts.contract import HostSettings, Outside
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.controllers.acme import solver_factory
from certwright.kit.https import HttpsClient
from certwright.kit.outgoing import ServerError, ServerRules, ServerTls
from conformance.check_dns_host import ZONE, solver_of, task

_MOST = 200


def resident_kb() -> int:
    """Memory of this process, what can be given back being given back."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4


async def measure(url: str, content: bytes) -> list[int]:
    """Memory after each use less memory before."""
    rules = ServerRules(allow_http=True)
    client = HttpsClient(ServerTls(), user_agent="certwright", trust_fix="", rules=rules)

    async def request() -> None:
        with suppress(ServerError):
            await client.send("GET", url)

    # What requests to any server take, e.g. the ACME client's.
    for _ in range(3):
        await asyncio.gather(*(request() for _ in range(_MOST)))
    assert solver_factory.__name__ in sys.modules
    # What an ACME account has in memory.
    rsa.generate_private_key(65537, 2048).sign(b"", padding.PKCS1v15(), hashes.SHA256())
    before = resident_kb()
    settings: HostSettings = pickle.loads(content)  # noqa: S301 - our own
    now = [datetime.now(UTC)]
    host = settings.connect(Outside(lambda _: client, lambda: now[0]))
    session = HostSession(host, lambda: now[0], settings.zone)
    used = []
    for names in (1, _MOST):
        await use(session, names, now)
        used.append(resident_kb() - before)
    await client.close()
    return used


async def use(session: HostSession, names: int, now: list[datetime]) -> None:
    """Present and remove this many values at once."""
    pairs = [(solver_of(session), task(f"n{number}.{ZONE}", "v")) for number in range(names)]
    await asyncio.gather(*(solver.present(challenge) for solver, challenge in pairs))
    while any([await solver.is_pending() for solver, _ in pairs]):
        now[0] += timedelta(seconds=4)
    await asyncio.gather(*(solver.clean_up(challenge) for solver, challenge in pairs))


if __name__ == "__main__":
    print(*asyncio.run(measure(sys.argv[1], sys.stdin.buffer.read())))

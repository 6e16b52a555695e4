"""Pebble's own floor: the same orders by a bare client loop, which keeps no objects.

Without it a figure would tell how fast Pebble is. The loop shows its proofs and takes them away, but does not
look whether they are seen; what a server wants waited for (`Retry-After`), it waits for. At most 60 names
are with the CA at once, as certwright has it: with 200, name servers drop questions and names fail.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography.hazmat.primitives.serialization import Encoding

from certwright.acme.protocol import account, authorizations, certificates, challenges, orders
from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.problem import Identifier
from certwright.acme.protocol.transport import Transport
from certwright.acme.solvers.contract import Solver, Task
from certwright.pki import csr, keys

_FIRST_S, _LONGEST_S = 0.1, 1.0
_AT_ONCE = 60


def now() -> datetime:
    """The time, for whoever needs it as a function."""
    return datetime.now(UTC)


@dataclass(slots=True)
class Floor:
    """A client with an account, and a way to prove names: `kind` is `http-01` or `dns-01`."""

    client: AcmeClient
    solver: Solver
    kind: str
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def take(self, name_lists: Sequence[Sequence[str]]) -> float:
        """The seconds that it takes to get a certificate for each list of names, all at once."""
        start = time.perf_counter()
        await asyncio.gather(*(self._obtain(names) for names in name_lists))
        return time.perf_counter() - start

    async def _obtain(self, names: Sequence[str]) -> None:
        key = keys.generate(keys.KeyPlan.of("ECDSA", 256))
        request = csr.read_csr(csr.build_csr(csr.CsrPlan(dns_names=tuple(names)), key))
        order = await self.client.run(orders.new_order, [Identifier("dns", name) for name in names])
        await asyncio.gather(*(self._prove(url) for url in order.authorizations))
        finalized = await self.client.run(orders.finalize, order, request.parsed.public_bytes(Encoding.DER))
        wait = _FIRST_S
        while finalized.status != "valid":
            await _pause(wait, finalized.retry_after)
            wait = min(2 * wait, _LONGEST_S)
            finalized = await self.client.run(orders.fetch_order, order.url)
            assert finalized.status != "invalid", finalized.error
        await self.client.run(certificates.download, finalized.certificate)

    async def _prove(self, url: str) -> None:
        authorization = await self.client.run(authorizations.fetch_authorization, url)
        if authorization.status == "valid":
            return
        offered = next(challenge for challenge in authorization.challenges if challenge.type == self.kind)
        shown = challenges.key_authorization(offered.token, self.client.key)
        task = Task(
            type=self.kind,
            identifier=authorization.identifier.value,
            token=offered.token,
            key=challenges.dns_value(shown) if self.kind == "dns-01" else shown,
            uid=offered.url,
        )
        await self.solver.present(task)
        async with self.slots:
            await self._await_verdict(url, offered.url)
        await self.solver.clean_up(task)

    async def _await_verdict(self, url: str, challenge: str) -> None:
        await self.client.run(authorizations.accept_challenge, challenge)
        wait, status, retry_after = _FIRST_S, "pending", None
        while status == "pending":
            await _pause(wait, retry_after)
            wait = min(2 * wait, _LONGEST_S)
            authorization = await self.client.run(authorizations.fetch_authorization, url)
            status, retry_after = authorization.status, authorization.retry_after
        assert status == "valid", authorization.error


async def _pause(seconds: float, retry_after: datetime | None) -> None:
    named = (retry_after - now()).total_seconds() if retry_after is not None else 0.0
    await asyncio.sleep(max(seconds, named))


async def open_account(directory: str, transport: Transport) -> AcmeClient:
    """A client whose account is new; its key is RSA as cert-manager's."""
    key = AccountKey(keys.generate(keys.KeyPlan.of("RSA", 2048)))
    client = AcmeClient(directory, key, transport, now=now)
    await client.run(account.register)
    return client

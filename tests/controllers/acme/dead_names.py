"""Many Certificates for names that no name server resolves, and one for a live name: when is that one
ready?

API server, controllers, listener, self-checks and name server are real; the CA is in memory. The
name server does not answer for dead names at all, so that each look at one takes its whole timeout.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import dns.message
import dns.rdatatype
import dns.rrset

from acme.fake_ca import FakeCa
from certwright.acme.solvers.http01 import Responder
from certwright.admission import certificate_kinds
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.manager import Controllers
from certwright.controllers.settings import Settings
from certwright.kube.api import codec, conditions
from certwright.kube.api.kinds import Kind
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.executor import Threads
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.table import CERTIFICATES, CHALLENGES, CLUSTER_ISSUERS
from support.world import ADMIN, CONTROLLER

ALIVE = "alive.test"
_AT_ONCE = 50
_SHORT_S = 0.02


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds: until all dead ones were there (and waited, if the live one comes after them), and until the
    live one was done, once it was wanted; and for how many dead ones nobody had looked by then."""

    dead: int
    prepared_s: float
    done_s: float
    not_looked_for: int


def _answer_names(there: socket.socket) -> None:
    """Know `alive.test`, and be silent about everything else; an empty message ends it."""
    while data := (received := there.recvfrom(4096))[0]:
        question = dns.message.from_wire(data)
        asked = question.question[0]
        if asked.name.to_text(omit_final_dot=True).endswith(ALIVE):
            answer = dns.message.make_response(question)
            if asked.rdtype == dns.rdatatype.A:
                answer.answer.append(dns.rrset.from_text(asked.name, 60, "IN", "A", "127.0.0.1"))
            there.sendto(answer.to_wire(), received[1])


@contextmanager
def _name_server() -> Iterator[str]:
    """In a thread of its own: as busy as the world under test, it would not answer for anybody."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", 0))
        there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        thread = threading.Thread(target=_answer_names, args=(there,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{there.getsockname()[1]}"
        finally:
            while thread.is_alive():  # The message is lost where its queue is full.
                there.sendto(b"", there.getsockname())
                thread.join(timeout=0.1)


@asynccontextmanager
async def _scene(looks: int) -> AsyncIterator[tuple[Client, FakeCa]]:
    clock = SystemClock()
    ca, responder = FakeCa(clock.now), Responder()
    port = await responder.listen("127.0.0.1", 0)
    server = ApiServer(
        MemoryStore(),
        clock,
        authenticator=lambda _: None,
        bookmark_every_s=None,
        extensions=certificate_kinds(),
    )
    await server.start(custom_resource_definitions())
    executor = Threads()
    with _name_server() as names:
        options = AcmeOptions(
            make_transport=ca.transport,
            responder=responder,
            http01_check_port=port,
            http01_nameservers=(names,),
            concurrent_checks=looks,
        )
        theirs = Client(LocalTransport(server.handle, CONTROLLER), user_agent="certwright-controllers")
        controllers = Controllers(theirs, clock, executor, Settings(acme=options))
        controllers.start()
        try:
            yield Client(LocalTransport(server.handle, ADMIN), user_agent="test"), ca
        finally:
            await controllers.close()
            executor.close()
            await server.close()
            await responder.close()


When = Literal["before", "amid", "after"]


async def measure(dead: int, *, looks: int = 100, within_s: float = 200.0, when: When = "after") -> Figures:
    """Do it; the live one is wanted `before` the dead ones, when half of them are there, or after they all
    wait. Raises `TimeoutError` where it is not done in time."""
    async with _scene(looks) as (client, ca):
        await _create(client, CLUSTER_ISSUERS, "acme", _issuer(ca))
        # What is as old as the process might have been ordered by the one before: that is looked for.
        await asyncio.sleep(1.1)
        began = time.perf_counter()
        waiting: asyncio.Task[float] | None = None
        for start in range(0, dead, _AT_ONCE):
            if when == "before" or (when == "amid" and start >= dead // 2):
                waiting = waiting or asyncio.create_task(_live(client, within_s))
            numbers = range(start, min(start + _AT_ONCE, dead))
            await asyncio.gather(
                *(
                    _create(client, CERTIFICATES, f"dead-{n}", _certificate(f"d{n}.dead.test"))
                    for n in numbers
                )
            )
        if waiting is None:
            await _all_wait(client, dead)
        prepared_s = time.perf_counter() - began
        done_s = await (waiting or _live(client, within_s))
        return Figures(dead, prepared_s, done_s, dead - await _looked_for(client))


async def _live(client: Client, within_s: float) -> float:
    """How many seconds it takes until a Certificate for a live name is Ready."""
    started = time.perf_counter()
    await _create(client, CERTIFICATES, "live", _certificate(f"www.{ALIVE}"))
    async with asyncio.timeout(within_s):
        while not await _is_ready(client):  # noqa: ASYNC110 - what a user would do
            await asyncio.sleep(_SHORT_S)
    return time.perf_counter() - started


async def _all_wait(client: Client, dead: int) -> None:
    """Return when each dead name has been looked for, and its Challenge says that it waits."""
    while await _looked_for(client) < dead:  # noqa: ASYNC110 - what a user would do
        await asyncio.sleep(0.1 + dead / 2000)


async def _looked_for(client: Client) -> int:
    challenges = (await client.list(CHALLENGES)).items
    return sum(
        bool(challenge.status.reason)
        for challenge in challenges
        if challenge.metadata.name.startswith("dead")
    )


async def _is_ready(client: Client) -> bool:
    certificate = await client.get(CERTIFICATES, "live", "default")
    return conditions.is_true(certificate.status.conditions, "Ready")


async def _create(client: Client, kind: Kind[Any], name: str, spec: dict[str, Any]) -> None:
    meta = {"name": name} | ({"namespace": "default"} if kind.namespaced else {})
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
    await client.create(kind, codec.from_dict(kind, manifest))


def _issuer(ca: FakeCa) -> dict[str, Any]:
    solvers: list[dict[str, Any]] = [{"http01": {"ingress": {}}}]
    account = {"name": "acme-account"}
    return {"acme": {"server": ca.directory, "privateKeySecretRef": account, "solvers": solvers}}


def _certificate(name: str) -> dict[str, Any]:
    return {
        "secretName": name,
        "dnsNames": [name],
        "issuerRef": {"name": "acme", "kind": "ClusterIssuer"},
        "privateKey": {"algorithm": "ECDSA"},
    }

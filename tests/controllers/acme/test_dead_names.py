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
from typing import Any, Literal

import dns.message
import dns.rdatatype
import dns.rrset
import pytest

from acme.fake_ca import FakeCa
from certwright.acme.solvers import checks, names
from certwright.acme.solvers.http01 import Responder
from certwright.admission import certificate_kinds
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.manager import ControllerManager
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
    with _name_server() as address:
        options = AcmeOptions(
            make_transport=ca.transport,
            responder=responder,
            http01_check_port=port,
            http01_nameservers=(address,),
            concurrent_checks=looks,
        )
        theirs = Client(LocalTransport(server.handle, CONTROLLER), user_agent="certwright-controllers")
        controllers = ControllerManager(theirs, clock, executor, Settings(acme=options))
        controllers.start()
        try:
            yield Client(LocalTransport(server.handle, ADMIN), user_agent="test"), ca
        finally:
            await controllers.close()
            executor.close()
            await server.close()
            await responder.close()


async def measure(
    dead: int, *, looks: int, when: Literal["before", "amid", "after"] = "after"
) -> tuple[float, int]:
    """The seconds until the Certificate for the live name was ready, which is made `before` those for the
    dead names, when half of them exist, or after they all wait; and how many dead names had not been looked
    for by then."""
    async with _scene(looks) as (client, ca):
        await _create(client, CLUSTER_ISSUERS, "acme", _issuer(ca))
        # What is as old as the process might have been ordered by the one before: that is looked for.
        await asyncio.sleep(1.1)
        waiting: asyncio.Task[float] | None = None
        for start in range(0, dead, _AT_ONCE):
            if when == "before" or (when == "amid" and start >= dead // 2):
                waiting = waiting or asyncio.create_task(_live(client))
            made = (
                _create(client, CERTIFICATES, f"dead-{n}", _certificate(f"d{n}.dead.test"))
                for n in range(start, min(start + _AT_ONCE, dead))
            )
            await asyncio.gather(*made)
        if waiting is None:
            while await _looked_for(client) < dead:  # noqa: ASYNC110 - what a user would do
                await asyncio.sleep(0.1 + dead / 2000)
        done_s = await (waiting or _live(client))
        return done_s, dead - await _looked_for(client)


async def _live(client: Client) -> float:
    """How many seconds it takes until a Certificate for a live name is Ready."""
    started = time.perf_counter()
    await _create(client, CERTIFICATES, "live", _certificate(f"www.{ALIVE}"))
    async with asyncio.timeout(200):
        while True:
            certificate = await client.get(CERTIFICATES, "live", "default")
            if conditions.is_true(certificate.status.conditions, "Ready"):
                return time.perf_counter() - started
            await asyncio.sleep(_SHORT_S)


async def _looked_for(client: Client) -> int:
    challenges = (await client.list(CHALLENGES)).items
    return sum(
        bool(challenge.status.reason)
        for challenge in challenges
        if challenge.metadata.name.startswith("dead")
    )


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


@pytest.mark.parametrize("when", ["before", "amid"])
@pytest.mark.long  # real time passes
async def test_a_live_name_is_done_while_the_dead_ones_have_not_even_been_looked_for(
    when: Literal["before", "amid"],
) -> None:
    # To look for all of them takes 60 s, and the live one three of the CPU's on the slowest machine.
    _, not_looked_for = await measure(200, looks=5, when=when)
    assert not_looked_for > 0


@pytest.mark.long  # real time passes
async def test_a_live_name_is_done_while_the_dead_ones_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # By then a look takes up to two minutes, and there are more who look than can.
    monkeypatch.setattr(names, "_TIMEOUT_S", 120.0)
    monkeypatch.setattr(checks, "_TIMEOUT_S", 120.0)
    done_s, _ = await measure(60, looks=20)
    assert done_s < 60

"""Starts what is compared: the reference, and ours over each store and behind HTTPS."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from certwright.admission import certificate_kinds
from certwright.app import tls_identity
from certwright.kube.apiserver.auth.authentication import ClientCertificates
from certwright.kube.apiserver.http.https import serve_https
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.contract import Store
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.store import open_etcd
from certwright.kube.store.memory import MemoryStore
from certwright.kube.store.sqlite.store import open_sqlite
from certwright.kube.util.clock import SystemClock
from conformance.kinds import ALL, CRDS, collection
from conformance.peers import Answer, Caller, HttpPeer, Json, LocalPeer, Peer
from support.connections import all_closed
from support.oracle import Oracle

_CHANGES_WITHIN_S = 120.0
_WINDOW_BYTES = 1 << 20  # enough for any story; one of them outgrows it
OURS = ("memory", "sqlite", "https")
"""The forms of our server in which every story is told."""
_ON_ETCD = ("story_writes", "story_deletes", "story_reads", "story_watches", "story_owners")
_prefixes = itertools.count()


def forms_of(story: Callable[..., object]) -> tuple[str, ...]:
    """The forms of our server that a story is told to: to one over etcd where it says much of the store, or
    to all where CERTWRIGHT_SOAK is set."""
    on_etcd = "CERTWRIGHT_SOAK" in os.environ or story.__module__.endswith(_ON_ETCD)
    return (*OURS, "etcd") if on_etcd else OURS


@asynccontextmanager
async def reference(oracle: Oracle) -> AsyncIterator[HttpPeer]:
    """The reference, serving the definitions that stories use."""
    connector = aiohttp.TCPConnector(ssl=oracle.client_tls)
    async with all_closed(), aiohttp.ClientSession(connector=connector) as session:
        peer = HttpPeer(session, oracle.url, oracle.etcd)
        await prepare(peer)
        yield peer


async def prepare(peer: Peer) -> None:
    """Create the definitions, and wait until they are served."""
    caller = Caller(peer)
    await until_served(caller, CRDS)
    for definition in ALL:
        made = await caller.post(CRDS, definition, quiet=True)
        assert made.status in (201, 409), made.body
    for definition in ALL:
        await until_served(caller, collection(definition, "default"))


async def until_served(caller: Caller, path: str) -> None:
    """Wait until a collection of a new definition is there."""
    await until_answered(lambda: caller.get(path, quiet=True), lambda answer: answer.status == 200)


@asynccontextmanager
async def ours(form: str, oracle: Oracle, folder: Path, namespaces: Iterable[str]) -> AsyncIterator[Peer]:
    """Our server over an empty store, with the definitions and these namespaces; who may ask the reference
    may ask it too."""
    store = await _open_store(form, oracle, folder)
    server = ApiServer(
        store, SystemClock(), authenticator=ClientCertificates(), extensions=certificate_kinds()
    )
    try:
        await server.start(list(ALL))
        caller = Caller(LocalPeer(server))
        for name in namespaces:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            made = await caller.post("/api/v1/namespaces", namespace)
            assert made.status in (201, 409), made.body
        if form != "https":
            yield LocalPeer(server)
        else:
            async with _behind_https(server, oracle, folder) as peer:
                yield peer
    finally:
        await server.close()
        await store.close()


async def _open_store(form: str, oracle: Oracle, folder: Path) -> Store:
    if form == "sqlite":
        return await open_sqlite(folder / "state.db", window_bytes=_WINDOW_BYTES)
    if form == "etcd":
        # The reference's own, beside what that keeps there.
        access = Access((oracle.etcd.removeprefix("http://"),))
        prefix = f"/certwright/{next(_prefixes)}"
        return await open_etcd(access, prefix=prefix, compact_every_s=0, window_bytes=_WINDOW_BYTES)
    return MemoryStore(window_bytes=_WINDOW_BYTES)


@asynccontextmanager
async def _behind_https(server: ApiServer, oracle: Oracle, folder: Path) -> AsyncIterator[Peer]:
    identity = tls_identity.load_or_make(tls_identity.Settings(folder, "127.0.0.1"), now=datetime.now(UTC))
    face = await serve_https(
        server.handle,
        host="127.0.0.1",
        port=0,
        certfile=identity.cert_path,
        keyfile=identity.key_path,
        client_ca_file=oracle.ca_path,
    )
    connector = aiohttp.TCPConnector(ssl=oracle.client_tls)
    try:
        async with all_closed(), aiohttp.ClientSession(connector=connector) as session:
            yield HttpPeer(session, f"https://127.0.0.1:{face.port}")
    finally:
        await face.close()


async def until(caller: Caller, path: str, holds: Callable[[Json], bool]) -> None:
    """Wait until something is true of an object."""
    await until_answered(lambda: caller.get(path, quiet=True), lambda answer: holds(answer.json))


async def until_gone(caller: Caller, path: str) -> None:
    """Wait until an object that is being deleted is gone."""
    await until_answered(lambda: caller.get(path, quiet=True), lambda answer: answer.status == 404)


async def until_judged(caller: Caller, path: str, body: Json, status: int) -> None:
    """Wait until a definition has come into force: creating this object gives that status."""
    target = f"{path}?dryRun=All"
    await until_answered(
        lambda: caller.post(target, body, quiet=True), lambda answer: answer.status == status
    )


async def until_answered(ask: Callable[[], Awaitable[Answer]], holds: Callable[[Answer], bool]) -> None:
    """Ask again and again until something is true of the answer: servers follow their definitions in their
    own time."""
    deadline = time.monotonic() + _CHANGES_WITHIN_S
    while not holds(answer := await ask()):
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.02)

"""Servers for tests."""

from __future__ import annotations

import copy
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from certwright.admission import certificate_kinds
from certwright.app.stores import check_row
from certwright.kube.api import naming
from certwright.kube.apiserver.background.expiry import DEFAULT_TTL
from certwright.kube.apiserver.base.features import FeatureGates
from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.http.fairness import InFlight
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.contract import Store
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.store import open_etcd
from certwright.kube.store.memory import MemoryStore
from certwright.kube.store.sqlite.store import open_sqlite
from certwright.kube.util.clock import TestClock
from certwright.kube.util.http_messages import Identity
from certwright.resources.crds import custom_resource_definitions
from kube.apiserver.accepting import serve
from kube.apiserver.callers import ADMIN, Api, StartApi
from kube.apiserver.over_tls import Served, served
from support.definitions import started_store
from support.etcd import Etcd, running_etcd

OpenStore = Callable[[], Awaitable[Store]]

KINDS_OF_STORE = ("memory", "SQLite", pytest.param("etcd", marks=pytest.mark.real("etcd")))
_prefixes = itertools.count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the marker `every_store` on each kind of store, or on those that the marker names."""
    marker = metafunc.definition.get_closest_marker("every_store")
    if "store_kind" in metafunc.fixturenames and marker is not None:
        metafunc.parametrize("store_kind", marker.args or KINDS_OF_STORE, indirect=True)


@pytest.fixture
def store_kind(request: pytest.FixtureRequest) -> str:
    """Which kind of store a server of the test uses."""
    kind: str = getattr(request, "param", "memory")
    return kind


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd for all tests of a process: each store uses a prefix of its own."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def open_store(request: pytest.FixtureRequest, store_kind: str, tmp_path: Path) -> OpenStore:
    """Opens a new, empty store of the test's kind; the same as a server opens, but without encryption."""

    async def open_it() -> Store:
        if store_kind == "memory":
            return MemoryStore()
        name = f"store{next(_prefixes)}"
        if store_kind == "SQLite":
            return await open_sqlite(tmp_path / name, check=check_row)
        etcd: Etcd = request.getfixturevalue("shared_etcd")
        access = Access((etcd.member,))
        return await open_etcd(access, prefix=f"/apiserver/{name}", compact_every_s=0, check=check_row)

    return open_it


async def _start_once(store: MemoryStore) -> None:
    server = ApiServer(store, TestClock(), authenticator=lambda _: None, extensions=certificate_kinds())
    await server.start(custom_resource_definitions())
    await Api(server, TestClock(), store, ADMIN).settle()
    await server.close()


@pytest.fixture
async def start_api(open_store: OpenStore, store_kind: str) -> AsyncIterator[StartApi]:
    """Starts servers that are closed after the test, in memory on a store on which one has started before."""
    started: list[Api] = []

    async def start(
        *,
        store: Store | None = None,
        bookmark_every_s: float | None = None,
        name_suffix: Callable[[], str] = naming.random_suffix,
        authenticator: Any = lambda _: None,
        user: Identity | None = ADMIN,
        anonymous: bool = False,
        gates: FeatureGates | None = None,
        root_ca: str = "",
        event_ttl: timedelta = DEFAULT_TTL,
        in_flight: InFlight | None = None,
        collects_garbage: bool = True,
    ) -> Api:
        definitions = custom_resource_definitions()
        if store is None and store_kind == "memory" and gates is None and not root_ca:
            # The store has the definitions; to compare them would cost time in every test.
            store, definitions = await started_store("api", _start_once), []
        store, clock = store or await open_store(), TestClock()
        server = ApiServer(
            store,
            clock,
            authenticator=authenticator,
            anonymous=anonymous,
            bookmark_every_s=bookmark_every_s,
            name_suffix=name_suffix,
            gates=gates,
            root_ca=root_ca,
            event_ttl=event_ttl,
            in_flight=in_flight,
            extensions=certificate_kinds(),
        )
        await server.start(definitions, collects_garbage=collects_garbage)
        started.append(Api(server, clock, store, user))
        return started[-1]

    yield start
    for api in started:
        await api.server.close()
        await api.store.close()


@pytest.fixture
async def server(start_api: StartApi, tmp_path: Path) -> AsyncIterator[Served]:
    """A running server behind TLS."""
    async with served(start_api, tmp_path) as it:
        yield it


@pytest.fixture
async def api(start_api: StartApi) -> Api:
    """A running server that has nothing to do: what it made at its start is there."""
    started: Api = await start_api()
    await started.settle()
    return started


@pytest.fixture
def registry() -> Registry:
    """The kinds of a server, those of our definitions among them, without a server."""
    made = make_registry(TestClock())
    for crd in copy.deepcopy(custom_resource_definitions()):
        serve(made, crd)
    return made

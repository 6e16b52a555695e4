"""Work of the server without a request: objects that it maintains, observers, dependents of owners."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import timedelta

import pytest

from certwright.kube.api import naming
from certwright.kube.apiserver.background.gc import Dependents
from certwright.kube.apiserver.background.own_objects import Selectors
from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.model.backend import Backend, Namespaces
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.requests.selectors import Requirement
from certwright.kube.store.contract import Encode, Key, Row
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import TestClock
from certwright.kube.util.tasks import TaskSet
from kube.apiserver.callers import CRDS, Api, rule_for, thing_crd
from kube.apiserver.webhook_server import register, running
from support.waiting import until

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
DEFAULT = "/api/v1/namespaces/default"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


async def _names(api: Api) -> set[str]:
    await api.settle()
    return {item["metadata"]["name"] for item in (await api.ok("GET", API_SERVICES))["items"]}


async def test_every_group_of_ours_has_an_api_service_that_is_available(api: Api) -> None:
    assert {"v1.", "v1.rbac.authorization.k8s.io", "v1.cert-manager.io"} <= await _names(api)
    api_service = await api.ok("GET", f"{API_SERVICES}/v1.cert-manager.io")
    assert api_service["status"]["conditions"][0]["reason"] == "Local"
    assert (await api.call("GET", f"{API_SERVICES}/v1.apiregistration.k8s.io")).status == 404


async def test_an_api_service_comes_and_goes_with_its_definition(api: Api) -> None:
    made = await api.ok("POST", CRDS, thing_crd())
    name = f"v1.{made['spec']['group']}"
    assert name in await _names(api)
    await api.ok("DELETE", f"{API_SERVICES}/{name}")
    assert name in await _names(api)
    await api.ok("DELETE", f"{CRDS}/{made['metadata']['name']}")
    assert name not in await _names(api)


@pytest.mark.parametrize(("host", "family"), [("192.0.2.7", "IPv4"), ("2001:db8::7", "IPv6")])
async def test_the_service_kubernetes_leads_to_the_server(api: Api, host: str, family: str) -> None:
    await api.server.publish(host=host, port=7001)
    await api.server.publish(host=host, port=7002)
    service = await api.ok("GET", f"{DEFAULT}/services/kubernetes")
    assert service["spec"]["ports"][0] | {"port": 443, "targetPort": 7002} == service["spec"]["ports"][0]
    (subset,) = (await api.ok("GET", f"{DEFAULT}/endpoints/kubernetes"))["subsets"]
    assert (subset["addresses"], subset["ports"][0]["port"]) == ([{"ip": host}], 7002)
    piece = await api.ok("GET", f"{SLICES}/kubernetes")
    assert (piece["addressType"], piece["endpoints"][0]["addresses"]) == (family, [host])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "localhost"])  # noqa: S104 - not listened on
async def test_an_address_that_is_nobody_elses_is_not_published(api: Api, host: str) -> None:
    await api.server.publish(host=host, port=7001)
    assert (await api.call("GET", f"{DEFAULT}/services/kubernetes")).status == 200
    assert (await api.call("GET", f"{DEFAULT}/endpoints/kubernetes")).status == 404


async def test_an_api_service_that_is_refused_is_made_later(api: Api) -> None:
    await api.settle()
    async with running() as hooks:
        await register(api, "Validating", hooks.hook(rules=[rule_for("apiservices", group="*")]))
        hooks.answers["/"] = lambda _: {"allowed": False}
        made = await api.ok("POST", CRDS, thing_crd())
        name = f"v1.{made['spec']['group']}"
        await until(lambda: bool(hooks.reviews))
        assert name not in await _names(api)
        hooks.answers["/"] = lambda _: {"allowed": True}
        async with asyncio.timeout(60):
            while (await api.call("GET", f"{API_SERVICES}/{name}")).status != 200:
                api.clock.advance(timedelta(minutes=1))
                await asyncio.sleep(0.01)


def one_of(key: str, *values: str) -> Requirement:
    return Requirement(key, "in", frozenset(values))


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ((), True),
        ((one_of("a", "1"),), True),
        ((one_of("a", "0", "1"), one_of("b", "2")), True),
        ((one_of("a", "1"), one_of("b", "0")), False),
        ((one_of("c", "1"),), False),
        ((Requirement("b", "exists"),), True),
        ((Requirement("b", "exists"), one_of("a", "0")), False),
        ((Requirement("a", "!"),), False),
        ((Requirement("c", "!"), one_of("a", "1")), True),
        ((Requirement("a", "notin", frozenset({"1"})),), False),
        ((Requirement("a", "notin", frozenset({"0"})),), True),
    ],
)
def test_a_role_is_selected_by_its_labels(selector: tuple[Requirement, ...], *, is_selected: bool) -> None:
    never = (one_of("never", "there"),)
    assert Selectors([never, selector, never]).match({"a": "1", "b": "2"}) is is_selected


def test_of_thousands_of_selectors_those_are_looked_at_that_name_a_label_of_the_role() -> None:
    selectors = Selectors([(one_of(f"k{number}", "v"),) for number in range(20_000)])
    assert len(list(selectors.near({"k7": "v", "other": "v"}))) == 1
    assert selectors.match({"k19999": "v"})
    assert not selectors.match({"k19999": "w"})


A, B, C = (Key("secrets", "ns", name) for name in "abc")


def test_dependents_are_told_in_the_order_in_which_they_came() -> None:
    known = Dependents()
    for key in (B, A, B, C):
        known.add("owner", key)
    known.add("other", A)
    assert (list(known.of("owner")), list(known.of("other")), list(known.of("nobody"))) == (
        [B, A, C],
        [A],
        [],
    )


def test_an_owner_whom_nobody_names_is_forgotten() -> None:
    known = Dependents()
    for key in (A, B):
        known.add("owner", key)
        known.add("owner", key)
    known.discard("owner", A)
    known.discard("owner", C)
    assert ("owner" in known, list(known.of("owner"))) == (True, [B])
    known.discard("owner", B)
    known.add("single", A)
    known.discard("single", B)
    known.discard("nobody", A)
    assert ("owner" in known, "single" in known) == (False, True)
    known.discard("single", A)
    assert "single" not in known


class Listener:
    """An observer that notes what it is told, together with others."""

    def __init__(self, name: str, calls: list[str], *, observed_buckets: Collection[str] | None) -> None:
        self._name = name
        self._calls = calls
        self.observed_buckets = observed_buckets

    def wrote(self, definition: ResourceDefinition, row: Row, previous: Row | None) -> None:
        """Note a write."""
        self._calls.append(
            f"{self._name}: {'' if previous is None else 're'}wrote {definition.plural} {row.key.name}"
        )

    def removed(self, definition: ResourceDefinition, row: Row) -> None:
        """Note a deletion."""
        self._calls.append(f"{self._name}: removed {definition.plural} {row.key.name}")


@pytest.fixture
def backend() -> Backend:
    """One over an empty store, of which nobody is told anything yet."""
    store, clock = MemoryStore(), TestClock()
    namespaces = Namespaces(store)
    return Backend(store, make_registry(clock), clock, namespaces, naming.random_suffix, TaskSet())


def saying(text: str) -> Encode:
    """A row with that text as its body."""
    return lambda revision: (b"%d" % revision, text.encode())


async def write(backend: Backend, plural: str, name: str) -> Row:
    """Create an object."""
    definition = backend.registry.by_resource("", plural)
    assert definition is not None
    return await backend.put(definition, Key(definition.bucket, "ns", name), saying(name), previous=None)


async def test_observers_are_told_of_what_they_hear_of_in_the_order_in_which_they_came(
    backend: Backend,
) -> None:
    calls: list[str] = []
    backend.observe(
        Listener("all", calls, observed_buckets=None),
        Listener("secrets", calls, observed_buckets=("secrets",)),
    )
    await write(backend, "configmaps", "a")
    row = await write(backend, "secrets", "b")
    definition = backend.registry.by_resource("", "secrets")
    assert definition is not None
    row = await backend.put(definition, row.key, saying("c"), previous=row)
    await backend.delete(definition, row, saying("d"))
    assert calls == [
        "all: wrote configmaps a",
        "all: wrote secrets b",
        "secrets: wrote secrets b",
        "all: rewrote secrets b",
        "secrets: rewrote secrets b",
        "all: removed secrets b",
        "secrets: removed secrets b",
    ]


async def test_an_observer_that_comes_later_is_told_of_what_follows(backend: Backend) -> None:
    calls: list[str] = []
    backend.observe(Listener("first", calls, observed_buckets=None))
    await write(backend, "secrets", "a")
    backend.observe(Listener("later", calls, observed_buckets=("secrets",)))
    await write(backend, "secrets", "b")
    assert calls == ["first: wrote secrets a", "first: wrote secrets b", "later: wrote secrets b"]

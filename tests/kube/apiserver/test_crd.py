"""CustomResourceDefinitions: the kinds that the registry serves for them, and limits of our own.

What Kubernetes refuses as well is compared with the reference: `conformance/story_definitions.py`.
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.util.clock import TestClock
from certwright.resources.crds import custom_resource_definitions
from kube.apiserver.accepting import accept
from kube.apiserver.callers import Json, thing_crd

VERSION = ("spec", "versions", 0)
ROOT = (*VERSION, "schema", "openAPIV3Schema")
FIELD = (*ROOT, "properties", "spec", "properties", "owner")


@pytest.fixture
def clock() -> TestClock:
    return TestClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def registry(clock: TestClock) -> Registry:
    return make_registry(clock)


def things(*path: str | int, value: Any = None) -> Json:
    """A definition, with `value` at `path`."""
    crd = thing_crd()
    if path:
        inside: Any = crd
        for step in path[:-1]:
            inside = inside[step]
        inside[path[-1]] = value
    return crd


def put(registry: Registry, crd: Json, old: Json | None = None) -> list[str]:
    """What a write does; returns the errors, and serves the kind when there are none."""
    definition = registry.by_kind("apiextensions.k8s.io", "CustomResourceDefinition")
    assert definition is not None
    assert definition.schema.process(crd) == []
    if errors := definition.schema.validate(crd, old):
        return [str(error) for error in errors]
    if old is None:
        definition.strategy.prepare_create(crd)
    else:
        definition.strategy.prepare_update(crd, old)
    accept(crd)
    registry.put_crd(crd)
    return []


def test_a_definition_has_a_hundred_columns_at_most(registry: Registry) -> None:
    columns = [{"name": f"c{number}", "type": "string", "jsonPath": ".spec"} for number in range(101)]
    [error] = put(registry, things(*VERSION, "additionalPrinterColumns", value=columns))
    assert error == "spec.additionalPrinterColumns: Too many: 101: must have at most 100 items"


def test_what_a_client_writes_into_the_status_is_ignored(registry: Registry) -> None:
    crd = {**things(), "status": {"storedVersions": ["v9"], "conditions": []}}
    assert put(registry, crd) == []
    assert crd["status"]["storedVersions"] == ["v1"]


def test_a_served_kind_has_its_definition(registry: Registry) -> None:
    before = registry.generation
    crd = things("spec", "names", "shortNames", value=["th"])
    assert put(registry, crd) == []
    registered = registry.find("test.dev", "v1", "things")
    assert registered is not None
    assert registry.generation > before
    assert registered is registry.by_kind("test.dev", "Thing") is registry.by_resource("test.dev", "things")
    assert (registered.bucket, registered.resource, registered.api_version) == (
        "test.dev/things",
        "things.test.dev",
        "test.dev/v1",
    )
    assert registered.prefix == b'{"apiVersion":"test.dev/v1","kind":"Thing","metadata":'
    assert registered.list_prefix == b'{"apiVersion":"test.dev/v1","kind":"ThingList","metadata":'
    assert registered.status_subresource
    assert registered.short_names == ("th",)
    assert registered.selectable_fields == ("spec.owner",)
    assert [column.name for column in registered.columns] == ["Name", "Age"]


def test_all_versions_share_their_rows_and_the_newest_is_preferred(registry: Registry) -> None:
    crd = things()
    [stable] = crd["spec"]["versions"]
    crd["spec"]["versions"] = [
        {**stable, "name": "v1beta1", "storage": False},
        stable,
        {**stable, "name": "v2", "storage": False},
        {**stable, "name": "v3", "storage": False, "served": False},
    ]
    assert put(registry, crd) == []
    made = registry.crd_kinds("things.test.dev")
    assert [d.version for d in made] == ["v2", "v1", "v1beta1"]
    assert {d.bucket for d in made} == {"test.dev/things"}
    preferred = registry.by_kind("test.dev", "Thing")
    assert preferred is not None
    assert preferred.version == "v2"
    assert preferred.served_versions == ("v2", "v1", "v1beta1")


def test_an_update_keeps_conditions_and_their_times(registry: Registry, clock: TestClock) -> None:
    old = things()
    assert put(registry, old) == []
    clock.set_now(datetime(2026, 2, 1, tzinfo=UTC))
    new = things(*FIELD, "description", value="A field.")
    assert put(registry, new, old) == []
    assert new["status"] == old["status"]


def test_a_dropped_definition_is_served_no_longer(registry: Registry) -> None:
    before = registry.groups()
    assert put(registry, things()) == []
    registry.drop_crd("things.test.dev")
    assert registry.find("test.dev", "v1", "things") is None
    assert registry.groups() == before


def test_our_own_definitions_are_accepted(registry: Registry) -> None:
    before, ours = len(registry.all()), custom_resource_definitions()
    for crd in ours:
        assert put(registry, copy.deepcopy(crd)) == []
    assert len(registry.all()) == before + len(ours)

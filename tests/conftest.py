"""Hypothesis tries the same examples in every run, and lets each take its time: neither luck nor a busy
machine makes a run fail. `make test` tries 25, `make test ALL=1` a hundred, and `make soak` looks for others.
"""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from support.world import World

pytest_plugins = ["support.quick"]

settings.register_profile("all", settings.get_profile("ci"))
settings.register_profile("quick", settings.get_profile("ci"), max_examples=25)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=500, derandomize=False)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of examples."""
    soak = os.environ.get("CERTWRIGHT_SOAK")
    settings.load_profile("soak" if soak else "quick" if config.getoption("quick") else "all")


_LONG = ("tests/cli/", "tests/faults/", "tests/conformance/", "tests/security/", "tests/kube/store/")
"""Tests that start processes and wait for them. They run first: at the end of a run, one long test would keep
one worker busy and the others idle."""


def pytest_collection() -> None:
    """Collect no garbage while modules are imported: there is next to none."""
    gc.disable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Let each worker begin with other modules: it then loads what another one has compiled."""
    report = yield
    if isinstance(collector, pytest.Directory) and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        begin = len(report.result) * int(worker.removeprefix("gw")) // workers
        report.result = report.result[begin:] + report.result[:begin]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of `_LONG` first, and all in the same order on every worker."""
    items.sort(key=lambda item: (not item.nodeid.startswith(_LONG), item.path))


def pytest_collection_finish() -> None:
    """Keep the modules and thousands of tests out of every garbage collection that follows."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def validated_schemas() -> Iterator[None]:
    """Schemas without errors are validated once per process: see `support.definitions`."""
    # The process that only distributes tests needs none.
    from support.definitions import valid_schemas_remembered

    with valid_schemas_remembered():
        yield


@pytest.fixture(autouse=True, scope="module")
def rsa_keys(pytestconfig: pytest.Config) -> Iterator[None]:
    """RSA keys of other modules are used again where no real server remembers them."""
    from support.rsa_pool import rsa_keys_shared  # as above

    with rsa_keys_shared() if pytestconfig.getoption("quick") else nullcontext():
        yield


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world without controllers."""
    from support.world import make_world  # as above

    async with make_world(controllers=False) as made:
        yield made

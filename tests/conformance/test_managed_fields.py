"""Three managers write the same objects on the reference server and on ours: both must name the same owners.

Generated: sequences of create, replace, merge patch and server-side apply over a kind that has every way of
owning lists and maps.
"""

from __future__ import annotations

import asyncio
import difflib
import itertools
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from certwright.admission import certificate_kinds
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import SystemClock
from conformance.generated import METADATA, OWNEDS, TEXT, some
from conformance.kinds import CRDS, OWNED
from conformance.peers import Answer, Caller, HttpPeer, LocalPeer
from conformance.servers import until_served
from support.connections import all_closed
from support.oracle import Oracle

Json = dict[str, Any]

SOAK = int(os.environ.get("CERTWRIGHT_SOAK", "0"))
"""How many sequences; 0: as many as a test run has time for."""
COLLECTION = "/apis/owned.dev/v1/namespaces/default/owneds"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"

# --- what is sent -----------------------------------------------------------------------------------------

_STATUSES = some(
    phase=TEXT,
    conditions=st.lists(
        st.fixed_dictionaries({"type": st.sampled_from(["A", "B"])}, optional={"status": TEXT}),
        unique_by=lambda condition: condition["type"],
        max_size=2,
    ),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One write: who does it, how, and what is sent."""

    verb: str
    manager: str
    metadata: Json
    spec: Json
    status: Json
    force: bool


STEPS = st.lists(
    st.builds(
        Step,
        verb=st.sampled_from(
            ["update", "merge", "apply", "apply", "status", "apply status", "replace status"]
        ),
        manager=st.sampled_from(["ann", "bob", "kubectl"]),
        metadata=METADATA,
        spec=OWNEDS,
        status=_STATUSES,
        force=st.booleans(),
    ),
    min_size=1,
    max_size=7,
)


async def take(caller: Caller, step: Step, name: str) -> Answer:
    """Ask for one step. A replacement is made of what the server has, as clients do."""
    target, agent = f"{COLLECTION}/{name}", f"{step.manager}/1"
    obj: Json = {"apiVersion": "owned.dev/v1", "kind": "Owned"}
    if step.verb.startswith("apply"):
        obj["metadata"] = {"name": name, **step.metadata}
        about = "status" if step.verb == "apply status" else "spec"
        obj[about] = step.status if about == "status" else step.spec
        target += "/status" if about == "status" else ""
        query = f"?fieldManager={step.manager}&force={'true' if step.force else 'false'}"
        return await caller.call("PATCH", target + query, obj, content_type=APPLY, agent=agent)
    response = await caller.get(target)
    if response.status == 404:
        obj |= {"metadata": {"name": name, **step.metadata}, "spec": step.spec, "status": step.status}
        return await caller.call("POST", COLLECTION, obj, agent=agent)
    if step.verb in ("merge", "status"):
        changes: Json = {"status": step.status} if step.verb == "status" else {"spec": step.spec}
        changes["metadata"] = step.metadata
        target += "/status" if step.verb == "status" else ""
        return await caller.call("PATCH", target, changes, content_type=MERGE, agent=agent)
    stored = response.json
    kept = {key: value for key, value in stored["metadata"].items() if key not in ("labels", "annotations")}
    stored |= {"spec": step.spec, "status": step.status, "metadata": kept | step.metadata}
    target += "/status" if step.verb == "replace status" else ""
    return await caller.call("PUT", target, stored, agent=agent)


# --- what comes back --------------------------------------------------------------------------------------


def levelled(answer: Answer) -> tuple[int, Any]:
    """What must be alike: everything but uids, times and revisions, the order of entries (it is by time),
    and the order of conflicts (the reference takes its managers in any)."""
    body = answer.json
    meta = body.get("metadata", {})
    for name in ("uid", "resourceVersion", "creationTimestamp"):
        meta.pop(name, None)
    entries = meta.get("managedFields", [])
    for entry in entries:
        entry["time"] = "time" in entry
    entries.sort(key=lambda entry: (entry["manager"], entry["operation"], entry.get("subresource", "")))
    causes = body.get("details", {}).get("causes", [])
    causes.sort(key=lambda cause: (cause.get("message", ""), cause.get("field", "")))
    if body.get("reason") == "Invalid":
        # The reference words several causes in any order.
        body.pop("message")
    return answer.status, body


def _unlike(theirs: Any, said: Any) -> str:
    old, new = (json.dumps(value, indent=1, sort_keys=True).splitlines() for value in (theirs, said))
    return "\n".join(difflib.unified_diff(old, new, "the reference", "ours", lineterm="", n=6))


class Both:
    """The two servers, and the loop that they are asked on.

    No dataclass: a failure would print it with all that was ever asked.
    """

    def __init__(self, runner: asyncio.Runner, reference: Caller, ours: Caller) -> None:
        self.runner = runner
        self.reference = reference
        self.ours = ours
        self.names = itertools.count()

    async def walk(self, steps: list[Step]) -> None:
        """Take the steps on both; the answers must be alike all the way."""
        name = f"o{next(self.names)}"
        for step in steps:
            theirs = levelled(await take(self.reference, step, name))
            said = levelled(await take(self.ours, step, name))
            assert said == theirs, f"{step}\n{_unlike(theirs, said)}"


@asynccontextmanager
async def _both(oracle: Oracle, runner: asyncio.Runner) -> AsyncIterator[Both]:
    server = ApiServer(
        MemoryStore(), SystemClock(), authenticator=lambda _: None, extensions=certificate_kinds()
    )
    connector = aiohttp.TCPConnector(ssl=oracle.client_tls)
    async with all_closed(), aiohttp.ClientSession(connector=connector) as session:
        await server.start([])
        try:
            pair = Both(runner, Caller(HttpPeer(session, oracle.url)), Caller(LocalPeer(server)))
            for caller in (pair.reference, pair.ours):
                made = await caller.post(CRDS, OWNED)
                assert made.status in (201, 409), made.body
                await until_served(caller, COLLECTION)
            yield pair
        finally:
            await server.close()


@pytest.fixture(scope="module")
def both(oracle: Oracle) -> Iterator[Both]:
    with asyncio.Runner() as runner:
        opening = _both(oracle, runner)
        yield runner.run(opening.__aenter__())
        runner.run(opening.__aexit__(None, None, None))


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@settings(
    max_examples=SOAK or 40,
    deadline=None,
    database=None,
    derandomize=not SOAK,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_both_servers_name_the_same_owners(both: Both, steps: list[Step]) -> None:
    both.runner.run(both.walk(steps))

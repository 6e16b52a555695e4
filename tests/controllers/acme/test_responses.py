"""Replicas answer each other's challenges, and only those of accounts of this API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import msgspec

from certwright.controllers.acme.responses import Responses
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.tasks import TaskSet
from certwright.resources.acme import Challenge
from certwright.resources.table import CHALLENGES
from controllers.acme.fake_world import FakeWorld, Shown
from support.world import CONTROLLER


@asynccontextmanager
async def another_replica(fake: FakeWorld, namespace: str = "") -> AsyncIterator[Shown]:
    """One that works on nothing: it waits for the lease, or has another shard."""
    client = Client(LocalTransport(fake.world.recording.handle, CONTROLLER), user_agent="other")
    listening, tasks = Shown(), TaskSet()
    scope = {"namespace": namespace, "cluster_resource_namespace": "kube-system"}
    Responses(client, fake.world.clock, cast(Any, listening), None, **scope).start(tasks)
    await fake.world.settle()
    assert listening.shown.patience_s > 0
    try:
        yield listening
    finally:
        await tasks.close()


async def pending(fake: FakeWorld) -> Challenge:
    """A Challenge that the CA does not validate yet."""
    solver = {"http01": {"ingress": {}}, "waitInsteadOfSelfCheck": "1h"}
    await fake.issuer(solvers=[solver])
    await fake.issue()
    (challenge,) = await fake.challenges()
    return challenge


async def test_a_replica_answers_for_the_challenges_of_others_until_they_end(bare: FakeWorld) -> None:
    async with another_replica(bare) as other:
        challenge = await pending(bare)
        assert other.tokens == {challenge.spec.token: challenge.spec.key} == bare.shown.tokens
        await bare.world.advance(timedelta(hours=2))
        assert await bare.world.is_ready("web")
        assert other.tokens == {}


async def test_a_replica_that_starts_later_answers_too(bare: FakeWorld) -> None:
    challenge = await pending(bare)
    async with another_replica(bare) as other:
        assert other.tokens == {challenge.spec.token: challenge.spec.key}
    async with another_replica(bare, namespace="default") as other:
        # With --namespace there are no ClusterIssuers.
        assert other.tokens == {}


async def test_a_challenge_written_by_hand_proves_nothing_for_a_foreign_account(bare: FakeWorld) -> None:
    challenge = await pending(bare)
    async with another_replica(bare) as other:
        for number, key in enumerate(("stolen.thumbprint-of-an-attacker", "stolen", "")):
            spec = msgspec.structs.replace(challenge.spec, token="stolen", key=key)
            meta = msgspec.structs.replace(
                challenge.metadata, name=f"forged-{number}", uid="", resource_version="", owner_references=()
            )
            await bare.world.client.create(CHALLENGES, Challenge(metadata=meta, spec=spec))
        await bare.world.advance(timedelta(minutes=1))
        assert "stolen" not in other.tokens

"""State in annotations that a tenant may write delays the tenant's object, no issuer and no other object."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from acme.fake_ca import Refusal
from certwright.kube.api import codec
from certwright.kube.api.kinds import Kind
from certwright.resources import names
from certwright.resources.retry import read_breaker
from certwright.resources.table import (
    CERTIFICATE_REQUESTS,
    CERTIFICATES,
    CHALLENGES,
    CLUSTER_ISSUERS,
    ORDERS,
)
from controllers.acme.fake_world import FakeWorld, fake_world

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
VALUES: Final = {
    "far-future": "2999-01-01T00:00:00Z",
    "last-moment": "9999-12-31T23:59:59.999999Z",
    "beyond-the-last": "9999-12-31T23:59:59-14:00",
    "before-the-first": "0001-01-01T00:00:00+14:00",
    "no-zone": "2999-01-01T00:00:00",
    "garbage": "; not before 2999-01-01T00:00:00Z [rateLimited]",
    "huge-number": "9" * 400,
    "many-moments": ",".join(["2026-01-01T00:00:00Z", "2999-01-01T00:00:00Z"] * 250),
    "problem": "rateLimited",
    "records": (
        '{"failedAt":"9999-12-31T23:59:59-14:00","nextAttempt":"9999-12-31T23:59:59.999Z",'
        '"notBefore":"2999-01-01T00:00:00Z","waitsForIssuer":true,"name":"acme","kind":"ClusterIssuer"}'
    ),
    "deep": "[" * 3000,
}
FORGED: Final = names.STATE | {names.MINIMUM_BACKOFF, names.CIRCUIT_BREAKER}
KINDS: Final[tuple[Kind[Any], ...]] = (CERTIFICATES, CERTIFICATE_REQUESTS, ORDERS, CHALLENGES)


async def forge(fake: FakeWorld, certificate: str, value: str) -> None:
    """Set each annotation to that value, on the Certificate and on all that was made for it."""
    client = fake.world.client
    for kind in KINDS:
        for obj in (await client.list(kind, "default")).items:
            name = obj.metadata.name
            if name == certificate or name.startswith(f"{certificate}-"):
                patch = {"metadata": {"annotations": dict.fromkeys(FORGED, value)}}
                await client.patch(kind, name, "default", patch)


async def away(fake: FakeWorld) -> None:
    """Orders wait for a CA that does not answer."""
    fake.ca.is_away = True


async def refused(fake: FakeWorld) -> None:
    """The CA refuses the names: the issuances have failed."""
    for name in (*VALUES, "other"):
        fake.ca.verdicts[f"{name}.example.org"] = Refusal("dns", "no such name")


async def back(fake: FakeWorld) -> None:
    fake.ca.is_away = False
    fake.ca.verdicts.clear()


def failures(fake: FakeWorld) -> int:
    """How many passes of the controllers have raised."""
    assert fake.world.controllers is not None
    text = fake.world.controllers.metrics.take()().decode()
    counts = [
        line.split()[-1] for line in text.splitlines() if line.startswith("certmanager_controller_sync_error")
    ]
    return sum(map(int, counts))


@pytest.mark.parametrize("trouble", [away, refused], ids=["away", "refused"])
async def test_a_forged_state_delays_the_object_that_has_it(
    trouble: Callable[[FakeWorld], Awaitable[None]],
) -> None:
    async with fake_world() as fake:
        await fake.issuer()
        await trouble(fake)
        for name in (*VALUES, "other"):
            await fake.issue(name, f"{name}.example.org")
        await fake.world.advance(MINUTE)
        for name, value in VALUES.items():
            await forge(fake, name, value)
        await fake.world.settle()
        await fake.start()
        await back(fake)
        await fake.world.advance(62 * MINUTE)
        assert await fake.world.is_ready("other")
        issuer = await fake.world.get(CLUSTER_ISSUERS, "acme")
        assert read_breaker(issuer.metadata.annotations) is None
        await fake.world.advance(16 * DAY)
        late = [name for name in VALUES if not await fake.world.is_ready(name)]
        assert not late
        assert failures(fake) == 0


async def test_forged_orders_are_no_attempts_of_an_issuer() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        await fake.issue("mine", "mine.example.org")
        await fake.world.advance(MINUTE)
        (order,) = await fake.orders()
        owner = {
            "apiVersion": "cert-manager.io/v1",
            "kind": "CertificateRequest",
            "name": "mine-1",
            "controller": True,
        }
        for number in range(20):
            uid = order.metadata.owner_references[0].uid if number < 10 else f"uid-{number}"
            made = {
                "metadata": {
                    "name": f"forged-{number}",
                    "namespace": "default",
                    "annotations": {names.CERTIFICATE_NAME: f"other-{number}"},
                    "ownerReferences": [owner | {"uid": uid}],
                },
                "spec": {
                    "request": base64.b64encode(order.spec.request).decode(),
                    "issuerRef": {"name": "acme", "kind": "ClusterIssuer"},
                    "dnsNames": [f"forged{number}.example.org"],
                },
            }
            await fake.world.create(ORDERS, codec.from_dict(ORDERS, made))
        await fake.start()
        fake.world.recording.writes.clear()
        await fake.issue("web", "web.example.org")
        await fake.world.advance(MINUTE)
        assert await fake.world.is_ready("web")
        # An issuer that may have been sent attempts in vain has each further one recorded.
        writes = [write.path for write in fake.world.recording.object_writes()]
        assert not [path for path in writes if path.endswith("/clusterissuers/acme")]

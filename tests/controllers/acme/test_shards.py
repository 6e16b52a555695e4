"""ACME where several replicas share the work."""

from __future__ import annotations

from datetime import timedelta

from certwright.acme.protocol.messages import Action
from certwright.controllers.acme.wiring import AcmeOptions
from controllers.acme.fake_world import fake_world


async def test_a_lost_account_is_looked_after_by_the_replica_that_misses_it() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        await fake.world.stop_controllers()
        # The issuer is in the shard of somebody else, who knows of no trouble.
        acme = AcmeOptions(make_transport=fake.ca.transport, responder=fake.shown)
        await fake.world.start_controllers(acme=acme, mine=lambda key: key.name != "acme")
        fake.ca.accounts.clear()
        await fake.issue("web")
        await fake.world.advance(timedelta(minutes=5))
        assert await fake.world.is_ready("web"), await fake.message_of()
        assert [action for action, _ in fake.ca.requests].count(Action.NEW_ACCOUNT) == 2

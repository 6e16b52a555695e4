"""Of many Orders, what the CA has yet to work on goes before what it is done with."""

from __future__ import annotations

from datetime import timedelta

from certwright.acme.protocol.messages import Action
from controllers.acme.fake_world import FakeWorld

NUMBER = 20


async def test_all_are_finalised_while_few_are_fetched(fake: FakeWorld) -> None:
    await fake.issuer()
    # Each that is fetched stays so: how many there are tells how many go at once.
    fake.silent.add(Action.CERTIFICATE)
    for number in range(NUMBER):
        await fake.issue(f"web-{number}", f"{number}.example.org")
    await fake.world.advance(timedelta(seconds=10))
    assert fake.ca.counted()[Action.FINALIZE] == NUMBER
    assert 0 < fake.ca.counted()[Action.CERTIFICATE] < NUMBER / 2


async def test_one_ca_that_does_not_hand_them_out_holds_up_no_other(fake: FakeWorld) -> None:
    await fake.issuer()
    await fake.issuer("other", server=fake.ca.directory + "?other")
    fake.silent.add(Action.CERTIFICATE)
    for number in range(NUMBER):
        await fake.issue(f"web-{number}", f"{number}.example.org")
    await fake.world.advance(timedelta(seconds=10))
    fake.silent.clear()
    await fake.issue("live", "live.example.org", issuer="other")
    await fake.world.advance(timedelta(seconds=10))
    assert await fake.message_of("Ready", "live") == "Certificate is up to date and has not expired"

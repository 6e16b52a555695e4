"""What is told about challenges and about the requests to ACME servers when somebody scrapes."""

from __future__ import annotations

from datetime import timedelta

from certwright.acme.protocol.messages import Action
from controllers.acme.fake_world import FakeWorld
from controllers.test_metrics import scrape, value


async def test_requests_to_the_server_are_counted_by_what_they_are_for(fake: FakeWorld) -> None:
    await fake.issue(after=timedelta(minutes=1))
    about = {"scheme": "https", "host": "ca.example"}
    metric = "http_acme_client_request"
    for action, number in fake.ca.counted().items():
        counted = [
            count
            for labels, count in scrape(fake.world)[f"certmanager_{metric}_count"]
            if labels["action"] == action
        ]
        assert sum(counted) == number, action
    order = {**about, "action": "newOrder", "method": "POST", "status": "201"}
    assert value(fake.world, f"{metric}_duration_seconds_count", **order) == 1
    assert value(fake.world, f"{metric}_duration_seconds", quantile="0.9", **order) is not None


async def test_refusals_are_counted_by_their_status(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, "rateLimited", status=429, retry_after="600")
    await fake.issue(after=timedelta(minutes=1))
    assert value(fake.world, "http_acme_client_request_count", action="newOrder", status="429") == 1


async def test_a_challenge_has_its_state(fake: FakeWorld) -> None:
    fake.ca.slow.add("a.example.org")
    await fake.issue(after=timedelta(seconds=30))
    about = {"domain": "a.example.org", "namespace": "default", "type": "HTTP-01", "processing": "true"}
    assert value(fake.world, "certificate_challenge_status", status="valid", **about) == 0
    (challenge,) = await fake.challenges()
    assert value(fake.world, "certificate_challenge_status", status="processing", **about) == 1
    samples = scrape(fake.world)["certmanager_certificate_challenge_status"]
    assert {labels["reason"] for labels, _ in samples} == {challenge.status.reason}
    fake.decide()
    await fake.world.advance(timedelta(minutes=1))
    assert await fake.challenges() == []
    assert "certmanager_certificate_challenge_status" not in scrape(fake.world)

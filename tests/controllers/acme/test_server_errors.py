"""What becomes of an Order, its Certificate and its issuer by each type of error that RFC 8555 has, and by
what no CA does on purpose. A CA's refusal of names delays no other names, and no text of a CA decides about a
wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509

from acme.fake_ca import FakeCa, Refusal
from certwright.acme.protocol.errors import PROBLEM_TYPES, Reaction
from certwright.acme.protocol.messages import Action
from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, CLUSTER_ISSUERS
from controllers.acme.fake_world import FakeWorld, fake_world

pytestmark = pytest.mark.every(2)

# What a refusal of newOrder or finalize leads to:
# - "goes on": tried again, and that ends well; the Certificate has not failed
# - "fails":   the Order is final, the Certificate has failed once, with the server's words
URN = "urn:ietf:params:acme:error:"
_AFTER_REFUSAL = {
    Reaction.AT_ONCE: "goes on",
    Reaction.WAIT: "goes on",
    Reaction.ORDER_FAILS: "fails",
    Reaction.ACCOUNT: "goes on",
    # Not to be had in earnest: nothing was replaced, finalized or revoked. Asking again does no harm.
    Reaction.WITHOUT_REPLACES: "goes on",
    Reaction.LOOK_AGAIN: "goes on",
    Reaction.DONE: "goes on",
    Reaction.OUR_MISTAKE: "fails",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[FakeWorld]:
    """One world for the many types of errors, with an issuer."""
    async with fake_world() as made:
        await made.issuer()
        yield made


class Attempt:
    """One issuance in the shared world."""

    def __init__(self, fake: FakeWorld, name: str) -> None:
        self.fake = fake
        self.name = name

    async def make(self, problem: str = "") -> None:
        """Issue; a minute passes, or a quarter of an hour where the account's owner has to act."""
        await self.fake.issue(self.name, f"{self.name}.example.org")
        minutes = 15 if problem == "userActionRequired" else 1
        await self.fake.world.advance(timedelta(minutes=minutes))

    async def check(self, expected: str, sentence: str, *, state: str = "errored") -> None:
        """It is ready, or has failed once with this sentence, from the Order to the Certificate."""
        fake, certificate = self.fake, await self.fake.certificate(self.name)
        if expected == "goes on":
            assert await fake.world.is_ready(self.name), await fake.message_of("Issuing", self.name)
            assert certificate.status.failed_issuance_attempts is None
            return
        (order,) = [order for order in await fake.orders() if order.metadata.name.startswith(self.name)]
        assert (order.status.state, order.status.reason) == (state, sentence)
        (request,) = [
            request for request in await fake.requests() if request.metadata.name.startswith(self.name)
        ]
        ready = conditions.find(request.status.conditions, "Ready")
        assert ready is not None
        assert f'order is in "{state}" state: {sentence}' in ready.message
        assert certificate.status.failed_issuance_attempts == 1
        assert sentence in await fake.message_of("Issuing", self.name)

    async def delete(self) -> None:
        """So that it is not tried again."""
        await self.fake.world.client.delete(CERTIFICATES, self.name, "default")
        await self.fake.world.settle()


@pytest_asyncio.fixture(loop_scope="module")
async def attempt(shared: FakeWorld, request: pytest.FixtureRequest) -> AsyncIterator[Attempt]:
    """An issuance that begins."""
    digest = sum(ord(c) * number for number, c in enumerate(request.node.name, 1))
    made = Attempt(shared, f"t-{digest}")
    yield made
    await made.delete()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("action", [Action.NEW_ORDER, Action.FINALIZE])
@pytest.mark.parametrize("name", PROBLEM_TYPES)
async def test_a_new_order_or_the_signing_request_is_refused(
    attempt: Attempt, name: str, action: Action
) -> None:
    attempt.fake.ca.refuse(action, name, "it is so and so")
    await attempt.make(name)
    await attempt.check(_AFTER_REFUSAL[PROBLEM_TYPES[name].reaction], f"it is so and so [400 {URN}{name}]")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", PROBLEM_TYPES)
async def test_a_challenge_is_refused(attempt: Attempt, name: str) -> None:
    attempt.fake.ca.refuse(Action.CHALLENGE, name, "it is so and so")
    await attempt.make(name)
    waits = PROBLEM_TYPES[name].reaction in (Reaction.AT_ONCE, Reaction.WAIT, Reaction.ACCOUNT)
    expected = f"{attempt.name}.example.org: it is so and so [400 {URN}{name}]"
    await attempt.check("goes on" if waits else "fails", expected, state="invalid")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", PROBLEM_TYPES)
async def test_a_proof_is_not_accepted(attempt: Attempt, name: str) -> None:
    host = f"{attempt.name}.example.org"
    attempt.fake.ca.verdicts[host] = Refusal(name, "we have looked")
    await attempt.make()
    expected = f"Error accepting authorization: we have looked [400 {URN}{name}]"
    (challenge,) = [c for c in await attempt.fake.challenges() if c.spec.dns_name == host]
    assert (challenge.status.state, challenge.status.reason) == ("invalid", expected)
    await attempt.check("fails", f"{host}: {expected}", state="invalid")


async def test_a_directory_whose_urls_have_moved_is_fetched_again(fake: FakeWorld) -> None:
    fake.ca.path = "/v2"
    await fake.issue("web")
    await fake.issue("other", "b.example.org", after=timedelta(seconds=5))
    for name in ("web", "other"):
        assert await fake.world.is_ready(name)
        assert (await fake.certificate(name)).status.failed_issuance_attempts is None
    assert fake.ca.counted()[Action.DIRECTORY] == 2


async def test_an_issuer_whose_server_has_moved_is_ready(fake: FakeWorld) -> None:
    fake.ca.path = "/v2"
    email = {"spec": {"acme": {"email": "other@example.org"}}}
    await fake.world.client.patch(CLUSTER_ISSUERS, "acme", "", email)
    await fake.world.settle()
    assert (await fake.ready_of())[0] == "True"


def expire_authorizations(ca: FakeCa) -> None:
    """As after a week."""
    for authorization in ca.authorizations.values():
        authorization.status = "expired"


def lose_orders(ca: FakeCa) -> None:
    """Forget all orders."""
    ca.orders.clear()
    for authorization in ca.authorizations.values():
        ca.decide(authorization)


def lose_authorizations(ca: FakeCa) -> None:
    """Forget all authorizations, and with them their challenges."""
    ca.authorizations.clear()
    for order in ca.orders.values():
        order.status = "invalid"


LOSSES = [expire_authorizations, lose_orders, lose_authorizations]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("slow", [Action.CHALLENGE, Action.FINALIZE])
async def test_what_the_ca_has_lost_is_ordered_again_without_a_failure(
    fake: FakeWorld, lose: Callable[[FakeCa], None], slow: Action
) -> None:
    if slow is Action.CHALLENGE:
        fake.ca.slow.add("a.example.org")
    else:
        fake.ca.refuse(Action.FINALIZE, "serverInternal", status=503, times=3)
    await fake.issue("web", after=timedelta(seconds=2))
    fake.ca.slow.clear()
    lose(fake.ca)
    await fake.world.advance(timedelta(minutes=1))
    assert await fake.world.is_ready("web"), [order.status for order in await fake.orders()]
    assert (await fake.certificate()).status.failed_issuance_attempts is None
    assert fake.ca.counted()[Action.NEW_ORDER] <= 2


async def test_a_ca_that_loses_each_order_makes_a_failure_of_the_second(fake: FakeWorld) -> None:

    def loses(action: Action, _payload: object) -> None:
        if action is Action.CHALLENGE:
            lose_orders(fake.ca)
            lose_authorizations(fake.ca)

    fake.ca.before = loses
    await fake.issue("web", after=timedelta(minutes=1))
    assert (await fake.certificate()).status.failed_issuance_attempts == 1
    assert fake.ca.counted()[Action.NEW_ORDER] == 2


@pytest.mark.parametrize("at", [Action.NEW_ORDER, Action.CHALLENGE, Action.FINALIZE])
async def test_a_deactivated_account_is_the_issuers_condition(fake: FakeWorld, at: Action) -> None:
    fake.ca.slow.add("a.example.org")

    def deactivates(action: Action, _payload: object) -> None:
        if action is at:
            (account,) = fake.ca.accounts.values()
            account.status = "deactivated"
            raise Refusal("unauthorized", "account is deactivated", status=403)

    fake.ca.before = deactivates
    fake.ca.slow.clear()
    await fake.issue("web", after=timedelta(minutes=1))
    status, reason, message = await fake.ready_of()
    assert (status, reason) == ("False", "ErrRegisterACMEAccount")
    assert "the account has been deactivated" in message
    assert 'delete Secret "acme-account"' in message
    assert (await fake.certificate()).status.failed_issuance_attempts is None
    assert "deactivated" in (await fake.requests())[0].status.conditions[-1].message
    fake.ca.before = None
    await fake.world.client.delete(SECRETS, "acme-account", "kube-system")
    await fake.world.advance(timedelta(minutes=1))
    assert (await fake.ready_of())[0] == "True"
    assert len(fake.ca.accounts) == 2
    assert await fake.world.is_ready("web")


async def test_the_cas_last_error_is_in_the_order(fake: FakeWorld) -> None:

    def breaks(action: Action, _payload: object) -> None:
        if action is Action.FINALIZE and len(fake.ca.orders) == 1:
            (order,) = fake.ca.orders.values()
            order.status = "invalid"
            raise Refusal("serverInternal", "enrollment failed", status=500)

    fake.ca.before = breaks
    await fake.issue("web", after=timedelta(seconds=10))
    reasons = [order.status.reason for order in await fake.orders()]
    assert sum("enrollment failed" in reason for reason in reasons) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
async def test_troubles_without_a_document_are_waited_out(fake: FakeWorld, status: int) -> None:
    for action in (Action.NEW_ORDER, Action.AUTHORIZATION, Action.CHALLENGE, Action.FINALIZE):
        fake.ca.refuse(action, "", status=status, times=2)
    await fake.issue("web", after=timedelta(minutes=1))
    assert await fake.world.is_ready("web")
    assert (await fake.certificate()).status.failed_issuance_attempts is None


@pytest.mark.parametrize("action", [Action.NEW_ORDER, Action.CHALLENGE, Action.FINALIZE, Action.CERTIFICATE])
async def test_the_time_that_the_ca_names_is_waited_for(fake: FakeWorld, action: Action) -> None:
    fake.ca.refuse(action, "rateLimited", "too many", status=429, retry_after="7200")
    await fake.issue("web", after=timedelta(seconds=7100))
    asked = fake.ca.counted()[action]
    assert asked == 1
    assert "too many [rateLimited]" in (await fake.orders())[0].status.reason
    assert "too many [rateLimited]; not before 2026-01-01T02:00:0" in await fake.message_of()
    assert "too many [rateLimited]" in (await fake.requests())[0].status.conditions[-1].message
    assert (await fake.certificate()).status.failed_issuance_attempts is None
    await fake.world.advance(timedelta(seconds=200))
    assert await fake.world.is_ready("web")
    assert len(fake.ca.orders) == 1


async def test_nothing_is_said_to_the_ca_about_an_order_that_is_final(fake: FakeWorld) -> None:
    fake.ca.verdicts["bad.example.org"] = Refusal("dns", "no such name")
    fake.ca.slow.add("slow.example.org")
    await fake.issue(
        "web", "a.example.org", "bad.example.org", "slow.example.org", after=timedelta(minutes=1)
    )
    assert (await fake.orders())[0].status.state == "invalid"
    asked = len(fake.ca.requests)
    await fake.world.advance(timedelta(minutes=50))
    await fake.start()
    assert len(fake.ca.requests) == asked
    # All stay to be read, and nothing is shown any more.
    statuses = {challenge.spec.dns_name: challenge.status for challenge in await fake.challenges()}
    assert {name: status.state for name, status in statuses.items()} == {
        "a.example.org": "valid",
        "bad.example.org": "invalid",
        "slow.example.org": "errored",
    }
    assert "has ended as invalid" in statuses["slow.example.org"].reason
    assert fake.shown.tokens == {}


async def test_nothing_is_said_to_the_ca_about_an_order_that_has_succeeded(fake: FakeWorld) -> None:
    await fake.issue("web", after=timedelta(minutes=1))
    assert await fake.world.is_ready("web")
    asked = fake.ca.counted()
    await fake.start()
    await fake.world.advance(timedelta(days=1))
    # When to renew is another question; a new process looks up in the directory where to ask it.
    about = {Action.DIRECTORY, Action.NEW_NONCE, Action.RENEWAL_INFO}
    assert set(fake.ca.counted() - asked) <= about
    assert await fake.challenges() == []


def precertificate(builder: x509.CertificateBuilder, _: x509.CertificateSigningRequest) -> Any:
    """What a CA sends to logs."""
    return builder.add_extension(x509.PrecertPoison(), critical=True)


async def test_a_certificate_that_no_client_accepts_is_never_stored(fake: FakeWorld) -> None:
    fake.ca.tamper = precertificate
    await fake.issue("web", after=timedelta(minutes=1))
    (order,) = await fake.orders()
    assert (order.status.state, order.status.certificate) == ("errored", b"")
    sentence = "the server returned a certificate that no client accepts: the certificate is a pre"
    assert sentence in order.status.reason
    assert sentence in await fake.message_of()
    assert "web" not in await fake.secret_names()


_BAD = 8


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (Action.NEW_ORDER, "malformed"),
        (Action.NEW_ORDER, "rejectedIdentifier"),
        (Action.NEW_ORDER, "tomorrowsType"),
        (Action.CHALLENGE, "malformed"),
        (None, "incorrectResponse"),
        (None, "unauthorized"),
        (None, "dns"),
        (None, "serverInternal"),
        (Action.FINALIZE, "caa"),
        (Action.FINALIZE, "badCSR"),
    ],
)
async def test_bad_names_delay_no_other_name(fake: FakeWorld, action: Action | None, kind: str) -> None:
    """A request about the names is refused, or (without `action`) a name fails its validation."""
    if action is not None:
        fake.ca.refuse(action, kind, "it is about the name", times=_BAD)
    for number in range(_BAD):
        name = f"bad{number}.example.org"
        if action is None:
            fake.ca.verdicts[name] = Refusal(kind, "it is about the name")
        await fake.issue(f"bad{number}", name)
    await fake.world.advance(timedelta(seconds=10))
    assert not any([await fake.world.is_ready(f"bad{number}") for number in range(_BAD)])
    await fake.issue("good", "good.example.org", after=timedelta(seconds=2))
    assert await fake.world.is_ready("good"), await fake.message_of(name="good")


HOUR = timedelta(hours=1)


async def reason_of(fake: FakeWorld) -> str:
    condition = conditions.find((await fake.certificate()).status.conditions, "Issuing")
    return condition.reason if condition else ""


_GOOD_NAME = {"spec": {"dnsNames": ["good.example.org"]}}


async def test_a_refused_name_waits_for_the_spec_and_names_the_field(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, "rejectedIdentifier", "not this one")
    await fake.issue("web", "bad.example.org", after=31 * HOUR)
    assert fake.ca.counted()[Action.NEW_ORDER] == 1
    assert await reason_of(fake) == "InvalidRequest"
    message = await fake.message_of()
    assert "not this one" in message
    assert "change spec.dnsNames: this CA refuses one of them" in message
    await fake.world.client.patch(CERTIFICATES, "web", "default", _GOOD_NAME)
    await fake.world.advance(timedelta(minutes=1))
    assert fake.ca.counted()[Action.NEW_ORDER] == 2
    assert await fake.world.is_ready("web")


async def test_a_changed_issuer_is_asked_again_at_the_designs_time(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, "rejectedIdentifier", "not this one")
    await fake.issue(after=timedelta(minutes=5))
    change = {"spec": {"acme": {"email": "other@example.org"}}}
    await fake.world.client.patch(CLUSTER_ISSUERS, "acme", "", change)
    await fake.world.advance(timedelta(minutes=54))
    assert fake.ca.counted()[Action.NEW_ORDER] == 1
    await fake.world.advance(timedelta(minutes=2))
    assert await fake.world.is_ready("web")


async def test_a_proof_that_failed_is_tried_again_after_an_hour(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, "dns", "no such name")
    await fake.issue(after=timedelta(minutes=59))
    assert fake.ca.counted()[Action.NEW_ORDER] == 1
    assert await reason_of(fake) == "Failed"
    await fake.world.advance(timedelta(minutes=2))
    assert await fake.world.is_ready("web")


_FORGED = "the page says: gone; not before 2026-01-07T00:00:00Z"


def _placed(fake: FakeWorld) -> int:
    return fake.ca.counted()[Action.NEW_ORDER]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_time_inside_a_detail_does_not_delay_the_next_attempt(
    fake: FakeWorld, restarts: bool
) -> None:
    fake.ca.verdicts["a.example.org"] = Refusal("unauthorized", _FORGED)
    await fake.issue()
    del fake.ca.verdicts["a.example.org"]
    if restarts:
        await fake.start()
    await fake.world.advance(timedelta(minutes=61))
    assert await fake.world.is_ready("web")


async def test_a_time_inside_a_detail_does_not_delay_an_order_after_a_restart(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, "serverInternal", _FORGED, status=503)
    await fake.issue()
    await fake.start()
    await fake.world.advance(timedelta(minutes=1))
    assert await fake.world.is_ready("web")


async def test_a_type_inside_a_detail_is_not_the_cause(fake: FakeWorld) -> None:
    fake.ca.verdicts["a.example.org"] = Refusal("", "")
    fake.ca.refuse(Action.NEW_ORDER, "dns", "no such name [rejectedIdentifier] [rateLimited]")
    await fake.issue()
    assert await reason_of(fake) == "Failed"


async def test_the_named_time_outlives_a_restart(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, "serverInternal", status=503, retry_after="7200")
    await fake.issue()
    await fake.start()
    await fake.world.advance(timedelta(minutes=115))
    assert _placed(fake) == 1
    await fake.world.advance(timedelta(minutes=10))
    assert await fake.world.is_ready("web")


@pytest.mark.parametrize("action", [Action.NEW_ORDER, Action.CHALLENGE])
async def test_a_retry_after_is_obeyed_for_a_week_at_most(fake: FakeWorld, action: Action) -> None:
    fake.ca.refuse(action, "serverInternal", status=503, retry_after="315360000")
    await fake.issue(after=timedelta(days=6))
    assert not await fake.world.is_ready("web")
    await fake.world.advance(timedelta(days=1, minutes=5))
    assert await fake.world.is_ready("web")


async def test_a_changed_spec_is_tried_immediately_after_the_failed_request_was_deleted(
    fake: FakeWorld,
) -> None:
    fake.ca.refuse(Action.NEW_ORDER, "dns", "no such name")
    await fake.issue()
    await fake.world.client.delete(CERTIFICATE_REQUESTS, "web-1", "default")
    await fake.world.advance(timedelta(minutes=2))
    assert _placed(fake) == 1
    await fake.world.client.patch(CERTIFICATES, "web", "default", _GOOD_NAME)
    await fake.world.advance(timedelta(seconds=5))
    assert await fake.world.is_ready("web")


async def test_a_clock_that_was_behind_at_start_causes_no_storm(fake: FakeWorld) -> None:
    for number in range(12):
        name = f"web{number}.example.org"
        fake.ca.verdicts[name] = Refusal("dns", "no such name")
        await fake.issue(f"web{number}", name)
    await fake.world.advance(timedelta(minutes=1))
    right = fake.world.clock.now()
    placed = _placed(fake)
    await fake.world.stop_controllers()
    fake.world.clock.set_now(right - timedelta(hours=2))
    await fake.start()
    await fake.world.advance(timedelta(seconds=4))
    fake.world.clock.set_now(right + timedelta(seconds=10))
    await fake.world.settle()
    await fake.world.advance(timedelta(minutes=50))
    assert _placed(fake) == placed

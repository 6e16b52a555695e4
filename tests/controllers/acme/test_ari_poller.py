"""Renewal when the ACME server wants it (RFC 9773): asked with the issuance, obeyed, not asked too often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from acme.fake_ca import FakeCa, Refusal
from certwright.acme.protocol.messages import Action
from certwright.kube.api.core import SECRETS
from certwright.pki.certificates import certificate_id, read_certificate
from certwright.resources.certificate import ARIStatus, Certificate
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, ORDERS
from controllers.acme.fake_world import FakeWorld
from support.acme_world import acme_world
from support.pebble import Pebble
from support.shifted import ShiftedClock

pytestmark = pytest.mark.every(3)

DAY, A_MINUTE = timedelta(days=1), timedelta(minutes=1)


def window(begin: datetime, length: timedelta = timedelta(hours=2), **more: str) -> dict[str, Any]:
    """An answer of the server."""
    return {
        "suggestedWindow": {
            "start": begin.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "end": (begin + length).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
        **more,
    }


def suggest(fake: FakeWorld, answer: dict[str, Any]) -> None:
    """Let the CA answer this for every certificate."""
    fake.ca.suggests = lambda _identifier: answer


async def issue_with(fake: FakeWorld, answer: dict[str, Any], after: timedelta = A_MINUTE) -> None:
    """Make an issuer at a CA that answers this for every certificate, and a Certificate."""
    suggest(fake, answer)
    await fake.issuer()
    await fake.issue(after=after)


def ari_of(certificate: Certificate) -> ARIStatus:
    """What is known of the server's wishes."""
    assert certificate.status.acme is not None
    assert certificate.status.acme.ari is not None
    return certificate.status.acme.ari


def is_renewed_by_its_dates(certificate: Certificate) -> bool:
    """Whether the certificate is renewed in the last third of its 90 days."""
    end, moment = certificate.status.not_after, certificate.status.renewal_time
    return end is not None and moment is not None and moment >= end - 30 * DAY


async def identifier_in(fake: FakeWorld, name: str = "web") -> str:
    """The RFC 9773 identifier of the certificate in a Secret."""
    secret = await fake.world.secret(name)
    return certificate_id(read_certificate(secret.data["tls.crt"]))


def replaced(fake: FakeWorld) -> list[str]:
    """What each order at the CA replaces."""
    return [order.payload.get("replaces", "") for order in fake.ca.orders.values()]


async def test_the_window_is_in_the_status_with_the_first_ready(bare: FakeWorld) -> None:
    begin = bare.world.clock.now() + 20 * DAY
    await issue_with(bare, window(begin, explanationURL="https://ca.example/why"))
    certificate = await bare.certificate()
    ari = ari_of(certificate)
    assert ari.suggested_window is not None
    assert ari.suggested_window.start == begin
    assert ari.suggested_window.end == begin + timedelta(hours=2)
    assert ari.explanation_url == "https://ca.example/why"
    assert ari.last_error == ""
    assert certificate.status.renewal_time is not None
    assert begin <= certificate.status.renewal_time <= begin + timedelta(hours=2)


async def test_it_costs_no_write(fake: FakeWorld) -> None:
    counts = []
    for name in ("silent", "asked"):
        before = len(fake.world.recording.object_writes())
        await fake.issue(name, f"{name}.example.org", after=timedelta(minutes=1))
        assert await fake.world.is_ready(name)
        counts.append(len(fake.world.recording.object_writes()) - before)
        # What a server offers is looked up once a day.
        suggest(fake, window(fake.world.clock.now() + 20 * DAY))
        await fake.start()
        await fake.world.advance(2 * DAY)
    assert ari_of(await fake.certificate("asked")).suggested_window is not None
    assert counts[0] == counts[1]


async def test_it_is_renewed_within_the_window_and_the_order_names_what_it_replaces(bare: FakeWorld) -> None:
    begin = bare.world.clock.now() + 20 * DAY
    await issue_with(bare, window(begin))
    first = await identifier_in(bare)
    await bare.world.advance_to(begin - timedelta(minutes=1))
    assert (await bare.certificate()).status.revision == 1
    # Of the first one the server says the same whenever it is asked again, which may be before its moment.
    bare.ca.suggests = lambda identifier: window(begin if identifier == first else begin + 40 * DAY)
    await bare.world.advance_to(begin + timedelta(hours=3))
    certificate = await bare.certificate()
    assert certificate.status.revision == 2
    assert replaced(bare) == ["", first]
    suggested = ari_of(certificate).suggested_window
    assert suggested is not None
    assert suggested.start == begin + 40 * DAY


async def test_a_window_in_the_past_renews_at_once(bare: FakeWorld) -> None:
    """As before a mass revocation: the server is asked every few hours, and then says: now."""
    await issue_with(bare, window(bare.world.clock.now() + 60 * DAY), after=DAY)
    first = await identifier_in(bare)
    assert (await bare.certificate()).status.revision == 1

    def suggests(identifier: str) -> dict[str, Any]:
        now = bare.world.clock.now()
        return window(now - DAY if identifier == first else now + 60 * DAY)

    bare.ca.suggests = suggests
    await bare.world.advance(timedelta(hours=7))
    assert (await bare.certificate()).status.revision == 2
    assert replaced(bare) == ["", first]
    await bare.world.advance(2 * DAY)
    assert (await bare.certificate()).status.revision == 2


async def test_a_server_that_calls_every_certificate_overdue_gets_no_storm_of_orders(bare: FakeWorld) -> None:
    await issue_with(bare, window(bare.world.clock.now() - DAY), after=DAY)
    assert len(bare.ca.orders) <= 13


async def test_a_server_that_is_slow_to_tell_does_not_have_the_new_one_renewed(bare: FakeWorld) -> None:
    """What it said of the one before must not be taken for the new one's, whose beginning it sets back."""

    def earlier(builder: x509.CertificateBuilder, _csr: object) -> x509.CertificateBuilder:
        certificate_builder: Any = builder
        certificate_builder._not_valid_before -= timedelta(hours=1)
        return builder

    bare.ca.tamper = earlier
    await issue_with(bare, window(bare.world.clock.now() + 20 * DAY), after=20 * DAY - timedelta(hours=1))
    bare.ca.refuse(Action.RENEWAL_INFO, "serverInternal", status=500, times=8)  # for hours
    await bare.world.advance(timedelta(hours=3))
    assert (await bare.certificate()).status.revision == 2
    suggest(bare, window(bare.world.clock.now() + 20 * DAY))
    await bare.world.advance(DAY)
    assert (await bare.certificate()).status.revision == 2


ALREADY_REPLACED = Refusal("alreadyReplaced", status=409)
NOT_FOUND = Refusal("serverInternal", "could not find an order for the given certificate", status=500)


@pytest.mark.parametrize("refusal", [ALREADY_REPLACED, NOT_FOUND], ids=["replaced already", "not found"])
async def test_a_server_that_refuses_the_predecessor_is_asked_without(
    bare: FakeWorld, refusal: Refusal
) -> None:
    begin = bare.world.clock.now() + 20 * DAY
    suggest(bare, window(begin))
    await bare.issuer()
    await bare.issue()
    await bare.world.advance_to(begin - timedelta(minutes=1))

    def refuse_replaces(action: Action, payload: dict[str, Any]) -> None:
        if action is Action.NEW_ORDER and "replaces" in payload:
            raise refusal

    bare.ca.before = refuse_replaces
    first = await identifier_in(bare)
    # Of the first one the server says the same whenever it is asked again.
    bare.ca.suggests = lambda identifier: window(begin if identifier == first else begin + 40 * DAY)
    await bare.world.advance(timedelta(hours=3))
    certificate = await bare.certificate()
    assert certificate.status.revision == 2
    assert certificate.status.failed_issuance_attempts is None
    assert replaced(bare) == ["", ""]


def other_ca(fake: FakeWorld) -> FakeCa:
    """A CA with renewal information of its own certificates."""
    second = fake.second_ca()
    second.suggests, second.lifetime = known_to(second), 9 * DAY
    return second


def known_to(ca: FakeCa) -> Callable[[str], dict[str, Any]]:
    """Answers about certificates that the CA has issued."""

    def suggests(identifier: str) -> dict[str, Any]:
        order = next((order for order in ca.orders.values() if order.replaced == identifier), None)
        if order is None:
            raise Refusal("malformed", "no known issuer matches", status=404)
        return window(order.placed_at + 2 * DAY)

    return suggests


async def reference_another_issuer(fake: FakeWorld) -> None:
    second = other_ca(fake)
    await fake.issuer("second", server=second.directory)
    spec = {"spec": {"issuerRef": {"name": "second", "kind": "ClusterIssuer"}}}
    await fake.world.client.patch(CERTIFICATES, "web", "default", spec)


async def reference_an_issuer_without_renewal_information(fake: FakeWorld) -> None:
    await reference_another_issuer(fake)
    fake.others[0].suggests = None


async def change_the_server(fake: FakeWorld) -> None:
    second = other_ca(fake)
    patch = {"spec": {"acme": {"server": second.directory}}}
    await fake.world.client.patch(CLUSTER_ISSUERS, "acme", "", patch)


async def replace_the_account_key(fake: FakeWorld) -> None:
    await fake.world.client.delete(SECRETS, "acme-account", "kube-system")


async def reset_the_database(fake: FakeWorld) -> None:
    for table in (fake.ca.accounts, fake.ca.orders, fake.ca.authorizations):
        table.clear()


async def rename_all_names(fake: FakeWorld) -> None:
    spec = {"spec": {"dnsNames": ["renamed.example.org"]}}
    await fake.world.client.patch(CERTIFICATES, "web", "default", spec)


async def import_from_another_account(fake: FakeWorld) -> None:
    """Its Orders are lost, too, so that nothing is known of the account that ordered it."""
    await replace_the_account_key(fake)
    await fake.start()
    for order in await fake.orders():
        await fake.world.client.delete(ORDERS, order.metadata.name, "default")


async def import_from_another_ca(fake: FakeWorld) -> None:
    await change_the_server(fake)
    for order in await fake.orders():
        await fake.world.client.delete(ORDERS, order.metadata.name, "default")


Change = Callable[[FakeWorld], Awaitable[None]]
CHANGES: dict[Change, int] = {
    reference_another_issuer: 0,
    reference_an_issuer_without_renewal_information: 0,
    change_the_server: 0,
    replace_the_account_key: 0,
    rename_all_names: 0,
    import_from_another_ca: 0,
    reset_the_database: 1,
    import_from_another_account: 1,
}
"""What is changed, and how many orders may be refused for what they name."""


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_a_certificate_that_the_account_has_not_issued_is_renewed(
    bare: FakeWorld, change: Change
) -> None:
    bare.ca.suggests, bare.ca.lifetime = known_to(bare.ca), 9 * DAY
    await bare.issuer()
    await bare.issue(after=timedelta(minutes=1))
    assert ari_of(await bare.certificate()).suggested_window is not None
    placed = len(bare.ca.orders)
    await change(bare)
    await bare.world.advance(7 * DAY)
    certificate = await bare.certificate()
    assert certificate.status.revision is not None
    assert certificate.status.revision >= 2
    assert await bare.world.is_ready("web")
    assert certificate.status.failed_issuance_attempts is None
    cas = [bare.ca, *bare.others]
    orders = [order for ca in cas for order in ca.orders.values()]
    refused = sum(ca.counted()[Action.NEW_ORDER] for ca in cas) - len(orders)
    assert refused - (placed if change is reset_the_database else 0) <= CHANGES[change]


async def test_renewal_information_of_a_former_server_is_dropped(bare: FakeWorld) -> None:
    bare.ca.suggests = known_to(bare.ca)
    await bare.issuer()
    await bare.issue(after=timedelta(minutes=1))
    assert ari_of(await bare.certificate()).suggested_window is not None
    await change_the_server(bare)
    await bare.world.advance(timedelta(hours=7))
    ari = ari_of(await bare.certificate())
    assert (ari.suggested_window, ari.account) == (None, next(iter(bare.others[0].accounts)))
    assert "no known issuer" in ari.last_error


async def test_a_server_that_offers_nothing_is_not_asked(fake: FakeWorld) -> None:
    await fake.issue(after=10 * DAY)
    certificate = await fake.certificate()
    assert certificate.status.acme is None
    assert Action.RENEWAL_INFO not in fake.ca.counted()
    assert is_renewed_by_its_dates(certificate)


async def test_an_issuer_may_switch_it_off(bare: FakeWorld) -> None:
    suggest(bare, window(bare.world.clock.now() + 20 * DAY))
    await bare.issuer(renewalInformationSource="None")
    await bare.issue(after=70 * DAY)
    certificate = await bare.certificate()
    assert certificate.status.acme is None
    assert Action.RENEWAL_INFO not in bare.ca.counted()
    assert certificate.status.revision == 2
    assert replaced(bare) == ["", ""]


async def test_what_was_suggested_before_stands_while_the_server_is_in_trouble(bare: FakeWorld) -> None:
    begin = bare.world.clock.now() + 20 * DAY
    await issue_with(bare, window(begin))
    before = await bare.certificate()

    def suggests(_identifier: str) -> dict[str, Any]:
        raise Refusal("serverInternal", "on fire", status=500)

    bare.ca.suggests = suggests
    await bare.world.advance(timedelta(hours=8))
    after = await bare.certificate()
    assert ari_of(after).suggested_window == ari_of(before).suggested_window
    assert "on fire" in ari_of(after).last_error
    assert ari_of(after).last_checked == ari_of(before).last_checked
    assert after.status.renewal_time == before.status.renewal_time
    assert await bare.world.is_ready("web")
    asked = bare.ca.counted()[Action.RENEWAL_INFO]
    await bare.world.advance(DAY)
    assert bare.ca.counted()[Action.RENEWAL_INFO] - asked <= 24
    suggest(bare, window(begin))
    await bare.world.advance(timedelta(hours=2))
    assert ari_of(await bare.certificate()).last_error == ""


async def test_a_window_without_sense_is_none(bare: FakeWorld) -> None:
    await issue_with(bare, window(bare.world.clock.now() + 20 * DAY, -timedelta(hours=1)))
    certificate = await bare.certificate()
    assert ari_of(certificate).suggested_window is None
    assert "window" in ari_of(certificate).last_error
    assert is_renewed_by_its_dates(certificate)


async def test_the_server_is_asked_again_when_it_says(bare: FakeWorld) -> None:
    suggest(bare, window(bare.world.clock.now() + 20 * DAY))
    bare.ca.renewal_retry_after = "7200"
    await bare.issuer()
    await bare.issue(after=timedelta(minutes=1))
    ari = ari_of(await bare.certificate())
    assert ari.last_checked is not None
    assert ari.next_check is not None
    wait = ari.next_check - ari.last_checked
    assert timedelta(hours=2) <= wait <= timedelta(hours=2.2)
    before = bare.ca.counted()[Action.RENEWAL_INFO]
    await bare.world.advance(timedelta(hours=11))
    assert bare.ca.counted()[Action.RENEWAL_INFO] - before == 5


@pytest.mark.parametrize(("action", "day"), [(Action.RENEWAL_INFO, 10), (Action.NEW_ORDER, 20)])
async def test_a_certificate_rests_while_no_answer_comes(bare: FakeWorld, action: Action, day: int) -> None:
    await issue_with(bare, window(bare.world.clock.now() + 20 * DAY), after=day * DAY - timedelta(hours=1))
    bare.silent.add(action)
    # What looks at it over and over, because a moment has passed, would never be done.
    async with asyncio.timeout(200):
        await bare.world.advance(DAY)
    assert await bare.world.is_ready("web")


async def test_a_restart_keeps_the_moment_and_asks_nobody(bare: FakeWorld) -> None:
    await issue_with(bare, window(bare.world.clock.now() + 20 * DAY, 3 * DAY))
    before = await bare.certificate()
    asked = bare.ca.counted()[Action.RENEWAL_INFO]
    writes = len(bare.world.recording.object_writes())
    for _ in range(3):
        await bare.start()
        await bare.world.advance(timedelta(minutes=5))
    assert (await bare.certificate()).status == before.status
    assert bare.ca.counted()[Action.RENEWAL_INFO] == asked
    assert len(bare.world.recording.object_writes()) == writes


async def test_maintenance_windows_are_obeyed_after_the_servers_moment(bare: FakeWorld) -> None:
    begin = (bare.world.clock.now() + 20 * DAY).replace(hour=9, minute=0)
    suggest(bare, window(begin))
    await bare.issuer()
    at_night = {"cron": "0 2 * * *", "windowDuration": "1h", "timezone": "UTC"}
    await bare.issue(renewal={"windows": [at_night]}, after=timedelta(minutes=1))
    moment = (await bare.certificate()).status.renewal_time
    assert moment is not None
    assert moment > begin
    assert moment.hour == 2


async def test_pebble_refuses_the_predecessor_of_another_account_and_the_renewal_succeeds(
    pebble: Pebble,
) -> None:
    """No Order shows which account ordered it, as after an import."""
    async with acme_world(pebble) as world:
        await world.issuer()
        await world.issuer("other")
        await world.certificate("web", "moved.example.org")
        await world.until(CERTIFICATES, "web", lambda obj: obj.status.acme is not None)
        for order in (await world.client.list(ORDERS)).items:
            await world.client.delete(ORDERS, order.metadata.name, "default")
        other = {"spec": {"issuerRef": {"name": "other", "kind": "ClusterIssuer"}}}
        await world.client.patch(CERTIFICATES, "web", "default", other)
        certificate = await world.until(CERTIFICATES, "web", lambda obj: obj.status.revision == 2)
        assert certificate.status.failed_issuance_attempts is None


async def test_pebble_is_asked_and_what_it_suggests_is_done(pebble: Pebble) -> None:
    clock = ShiftedClock()
    async with acme_world(pebble, clock=clock) as world:
        await world.issuer()
        await world.certificate("web", "ari.example.org")
        # A server that takes longer than a second is not waited for with Ready.
        certificate = await world.until(
            CERTIFICATES, "web", lambda certificate: certificate.status.acme is not None
        )
        suggested = ari_of(certificate).suggested_window
        assert suggested is not None
        assert suggested.start is not None
        assert suggested.end is not None
        assert certificate.status.renewal_time is not None
        assert suggested.start <= certificate.status.renewal_time <= suggested.end
        first = (await world.client.get(SECRETS, "web", "default")).data["tls.crt"]
        leaf = first[: first.index(b"-----END CERTIFICATE-----") + 26]
        past = datetime.now(UTC) - timedelta(hours=2)
        pebble.set_renewal_info(leaf, window(past, timedelta(hours=1), explanationURL="https://ca.example/r"))
        clock.jump(timedelta(hours=7))
        await world.until(CERTIFICATES, "web", lambda obj: obj.status.revision == 2)
        orders = [order.spec.replaces for order in (await world.client.list(ORDERS)).items]
        assert certificate_id(read_certificate(first)) in orders

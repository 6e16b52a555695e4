"""Who may order now, by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from certwright.acme.ratelimits import published
from certwright.acme.ratelimits.ledger import Ledger, NewOrder, WaitUntil
from certwright.acme.ratelimits.published import PRESETS, CaLimits, Limit
from certwright.acme.ratelimits.state import ISSUED, LedgerState, Seen, catch_up, restore, state
from certwright.kit.rate_limit import Rate

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
LETS_ENCRYPT = PRESETS["acme-v02.api.letsencrypt.org"]
ACCOUNT = "https://ca.example/acct/1"


def new_order(uid: str, *names: str, account: str = ACCOUNT, **rest: Any) -> NewOrder:
    """An order of that uid."""
    return NewOrder(uid, account, names or (f"{uid}.example.com",), NOW, **rest)


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def ledger(woken: list[str]) -> Ledger:
    return Ledger(LETS_ENCRYPT, woken.append)


def issue(ledger: Ledger, order: NewOrder, now: datetime = NOW) -> None:
    """Order, and get it at once."""
    assert ledger.admit(order, now) is None
    ledger.placed(order.uid, now)
    ledger.issued(order.uid, now)


def test_the_sixth_certificate_for_the_same_names_waits(ledger: Ledger) -> None:
    for i in range(5):
        issue(ledger, new_order(f"o{i}", "a.example.com", "b.example.com"))
    answer = ledger.admit(new_order("o6", "B.example.com", "a.example.com"), NOW)
    assert answer == WaitUntil(
        NOW + timedelta(hours=33.6),
        "Waiting until 2026-01-02T09:36:00Z: Let's Encrypt allows 5 certificates for exactly these names "
        "in 7 days",
    )
    assert ledger.admit(new_order("o7", "a.example.com"), NOW) is None


def test_an_order_that_replaces_a_certificate_is_exempt_from_everything(ledger: Ledger) -> None:
    for i in range(5):
        issue(ledger, new_order(f"o{i}", "a.example.com"))
    for _ in range(5):
        ledger.failed_validation(ACCOUNT, "a.example.com", NOW)
    assert isinstance(ledger.admit(new_order("new", "a.example.com"), NOW), WaitUntil)
    issue(ledger, new_order("renewal", "a.example.com", replaces=True))


def test_the_same_names_again_count_for_their_set_only(ledger: Ledger) -> None:
    for i in range(50):
        issue(ledger, new_order(f"o{i}"))
    assert isinstance(ledger.admit(new_order("new"), NOW), WaitUntil)
    for i in range(4):
        issue(ledger, new_order(f"again{i}", "o1.example.com", renewal=True))
    answer = ledger.admit(new_order("again4", "o1.example.com", renewal=True), NOW)
    assert isinstance(answer, WaitUntil)
    assert "exactly these names" in answer.sentence


def test_a_name_that_has_failed_five_times_waits_and_others_do_not(ledger: Ledger) -> None:
    for _ in range(5):
        ledger.failed_validation(ACCOUNT, "a.example.com", NOW)
    answer = ledger.admit(new_order("o", "b.example.com", "*.a.example.com"), NOW)
    assert isinstance(answer, WaitUntil)
    assert answer.moment == NOW + timedelta(minutes=12)
    assert answer.sentence.endswith("allows 5 failed validations of a.example.com in an hour")
    assert ledger.admit(new_order("p", "b.example.com"), NOW) is None
    assert ledger.admit(new_order("q", "a.example.com", account="https://ca.example/acct/2"), NOW) is None


def test_domains_are_shared_by_accounts_and_orders_are_not() -> None:
    limits = CaLimits(
        limits={
            published.ORDERS: Limit(Rate(1, HOUR)),
            published.DOMAIN: Limit(Rate(2, HOUR), {"big.com": 9}),
        }
    )
    ledger = Ledger(limits, lambda _uid: None)
    issue(ledger, new_order("a"))
    assert isinstance(ledger.admit(new_order("b", "b.other.com"), NOW), WaitUntil)
    issue(ledger, new_order("c", account="second"))
    answer = ledger.admit(new_order("d", account="third"), NOW)
    assert isinstance(answer, WaitUntil)
    assert "for example.com" in answer.sentence
    for i in range(9):
        issue(ledger, new_order(f"big{i}", f"{i}.big.com", account=f"account{i}"))


def test_an_order_that_fails_gives_back_its_certificate_but_not_its_order(ledger: Ledger) -> None:
    for i in range(50):
        assert ledger.admit(new_order(f"o{i}"), NOW) is None
        ledger.placed(f"o{i}", NOW)
    assert isinstance(ledger.admit(new_order("late"), NOW), WaitUntil)
    ledger.failed("o7", NOW)
    assert ledger.admit(new_order("late"), NOW) is None
    kept = state(ledger, NOW).buckets
    assert kept[f"newOrders/{ACCOUNT}"][1] == 1


def test_names_that_nobody_proves_do_not_keep_others_for_ever(ledger: Ledger, woken: list[str]) -> None:
    for i in range(50):
        ledger.admit(new_order(f"dead{i}"), NOW)
        ledger.placed(f"dead{i}", NOW)
    answer = ledger.admit(new_order("live"), NOW)
    assert isinstance(answer, WaitUntil)
    assert answer.moment == NOW + HOUR
    woken.clear()
    later = NOW + HOUR + timedelta(minutes=2)
    assert ledger.admit(new_order("live"), later) is None
    ledger.issued("dead3", later)
    assert ledger.admit(new_order("dead3"), later) is None


def test_asking_twice_counts_once(ledger: Ledger) -> None:
    assert ledger.admit(new_order("o"), NOW) is ledger.admit(new_order("o"), NOW) is None
    assert state(ledger, NOW).buckets[f"newOrders/{ACCOUNT}"][1] == 1


def test_a_refused_order_is_not_counted_and_the_time_that_was_named_is_kept(ledger: Ledger) -> None:
    order = new_order("o")
    assert ledger.admit(order, NOW) is None
    text = 'too many certificates (50) already issued for "example.com", retry after 2026-01-01 02:00:00 UTC'
    ledger.record_refusal(order, text, None, NOW)
    answer = ledger.admit(order, NOW)
    assert isinstance(answer, WaitUntil)
    assert answer.moment == NOW + 2 * HOUR
    assert ledger.admit(new_order("p", "other.org"), NOW) is None
    assert ledger.admit(order, NOW + 2 * HOUR) is None


@pytest.mark.parametrize(
    "text", ['too many certificates (50) already issued for "example.com"', "too many new orders", "no"]
)
def test_a_time_in_a_refusal_is_obeyed_for_a_week_at_most(ledger: Ledger, text: str) -> None:
    order = new_order("o")
    assert ledger.admit(order, NOW) is None
    ledger.record_refusal(order, f"{text}, retry after 9999-12-31 02:00:00 UTC", None, NOW)
    assert isinstance(ledger.admit(order, NOW), WaitUntil)
    assert ledger.admit(order, NOW + timedelta(days=7)) is None


def test_accounts_are_counted_by_address(ledger: Ledger) -> None:
    for number in range(10):
        assert ledger.admit_account(f"account-{number}", NOW) is None
    answer = ledger.admit_account("late", NOW)
    assert isinstance(answer, WaitUntil)
    assert answer.moment == NOW + timedelta(minutes=18)
    ledger.account_ended("account-0", NOW, is_made=False)
    assert ledger.admit_account("late", NOW) is None
    for uid in (*(f"account-{number}" for number in range(1, 10)), "late"):
        ledger.account_ended(uid, NOW, is_made=True)
    assert isinstance(ledger.admit_account("later", NOW), WaitUntil)
    assert ledger.admit_account("later", NOW + timedelta(minutes=18)) is None


def test_a_ca_that_limits_failures_only_has_its_orders_followed() -> None:
    ledger = Ledger(CaLimits(limits={published.FAILURES: Limit(Rate(1, HOUR))}), lambda _uid: None)
    ledger.admit(new_order("o"), NOW)
    assert ledger.is_changed
    ledger.failed_validation(ACCOUNT, "o.example.com", NOW)
    assert isinstance(ledger.admit(new_order("p", "o.example.com"), NOW), WaitUntil)


def saved_and_read(ledger: Ledger) -> LedgerState:
    """What a later process reads."""
    return msgspec.json.decode(msgspec.json.encode(state(ledger, NOW)), type=LedgerState)


def test_orders_that_went_while_nobody_looked_count(ledger: Ledger) -> None:
    for i in range(50):
        ledger.admit(new_order(f"o{i}"), NOW)
        ledger.placed(f"o{i}", NOW)
    restored = Ledger(LETS_ENCRYPT, lambda _uid: None)
    restore(restored, saved_and_read(ledger), NOW)
    # Half of them have been issued, the others are gone.
    seen = [
        Seen(new_order(f"o{i}"), is_newer=False, is_placed=True, end=ISSUED, placed_by=NOW, ended_by=NOW)
        for i in range(25)
    ]
    catch_up(restored, seen, NOW)
    for i in range(25, 50):
        restored.abandon(f"o{i}", NOW)
    answer = restored.admit(new_order("new"), NOW)
    assert isinstance(answer, WaitUntil)
    assert answer.moment == NOW + timedelta(minutes=201.6)


def test_what_is_restored_is_what_was_saved(ledger: Ledger) -> None:
    for i in range(7):
        ledger.admit(new_order(f"o{i}", f"{i}.example.com", f"{i}.example.org"), NOW)
    ledger.placed("o3", NOW)
    ledger.issued("o4", NOW)
    ledger.record_refusal(new_order("o5"), "no", NOW + HOUR, NOW)
    ledger.admit(new_order("replaces", replaces=True), NOW)
    restored = Ledger(LETS_ENCRYPT, lambda _uid: None)
    restore(restored, saved_and_read(ledger), NOW)
    assert restored.buckets == ledger.buckets
    assert restored.flights == ledger.flights
    assert restored.paces == ledger.paces


def test_what_an_earlier_version_reserved_counts_as_used(ledger: Ledger) -> None:
    """It wrote down which orders were under way, but not which buckets they were reserved in."""
    text = b'{"buckets": {"certificatesPerDomain/example.com": [0, 50, 0]}, "flights": {"o1": [0, true]}}'
    restore(ledger, msgspec.json.decode(text, type=LedgerState), NOW)
    assert isinstance(ledger.admit(new_order("new"), NOW), WaitUntil)
    assert ledger.flights == {}


def test_what_cannot_be_read_is_left_out(ledger: Ledger) -> None:
    restore(ledger, LedgerState(buckets={"newOrders/x": ["a"], "newOrders/y": [1]}), NOW)
    assert ledger.admit(new_order("o"), NOW) is None


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("too many: see #new-certificates-per-exact-set-of-identifiers", ["a"]),
        ('too many for "example.com": see #new-certificates-per-registered-domain', ["a", "b"]),
        ("no more for you", ["a", "b", "c"]),
    ],
)
def test_an_unknown_limit_holds_only_the_names_that_the_refusal_is_about(text: str, waits: list[str]) -> None:
    names = {"a": ("a.example.com",), "b": ("b.example.com",), "c": ("c.example.org",)}
    ledger = Ledger(CaLimits(), lambda _uid: None)
    order = new_order("a", *names["a"])
    ledger.admit(order, NOW)
    ledger.record_refusal(order, text, NOW + HOUR, NOW)
    entries = [
        uid
        for uid in names
        if ledger.admit(new_order(f"{uid}2", *names[uid]), NOW + timedelta(minutes=1)) is not None
    ]
    assert entries == waits

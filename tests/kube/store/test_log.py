"""The window of recent events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.store.contract import Compacted, Event, FutureRevision, Key, Row
from certwright.kube.store.log import EventLog, size_of_row


def event(revision: int, bucket: str = "b", name: str = "n", *, size: int = 0) -> Event:
    """A change of a row from nothing."""
    return Event(revision, Row(Key(bucket, "", name), revision, b"", b"x" * size), None)


def revisions(events: list[Event]) -> list[int]:
    """The events' revisions."""
    return [event.revision for event in events]


def test_events_after_a_revision_come_oldest_first() -> None:
    log = EventLog(10)
    log.append([event(11), event(12, "other"), event(13)])
    assert revisions(log.since("b", 10)) == [11, 13]
    assert revisions(log.since("b", 11)) == [13]
    assert log.since("nobody", 10) == []
    assert log.revision == 13


def test_nothing_is_known_of_before_the_start() -> None:
    log = EventLog(10)
    with pytest.raises(Compacted) as refused:
        log.since("b", 9)
    assert refused.value.oldest == 10
    with pytest.raises(FutureRevision):
        log.since("b", 11)


def test_the_window_is_bounded_by_bytes() -> None:
    log = EventLog(max_bytes=50_000)
    for revision in range(1, 101):
        log.append([event(revision, name=f"n{revision}", size=1_000)])
    assert log.size <= 50_000
    assert 30 <= 100 - log.oldest("b") <= 50


def test_a_list_that_is_continued_keeps_the_events_since_its_revision() -> None:
    log = EventLog(max_bytes=50_000, max_held_bytes=300_000)
    log.append([event(1)])
    for revision in range(2, 152):
        log.append([event(revision, name=f"n{revision}", size=1_000)])
        if revision % 20 == 0:
            log.undo("b", 1)
    assert log.oldest("b") <= 1
    assert len(log.undo("b", 1)) == 150


def test_events_that_a_continued_list_keeps_are_bounded() -> None:
    log = EventLog(max_bytes=50_000, max_held_bytes=100_000)
    log.append([event(1)])
    for revision in range(2, 152):
        log.append([event(revision, name=f"n{revision}", size=1_000)])
        if log.oldest("b") <= 1:
            log.undo("b", 1)
    assert log.size <= 100_000
    with pytest.raises(Compacted):
        log.undo("b", 1)


def test_a_list_that_is_not_continued_keeps_nothing() -> None:
    log = EventLog(max_bytes=50_000, max_held_bytes=300_000)
    log.append([event(1)])
    log.undo("b", 1)
    for revision in range(2, 152):
        log.append([event(revision, name=f"n{revision}", size=1_000)])
    assert log.size <= 50_000


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 900)), max_size=60))
def test_a_row_that_two_events_refer_to_counts_once(steps: list[tuple[str, int, int]]) -> None:
    log, rows = EventLog(max_bytes=10_000), dict[str, Row]()
    for revision, (name, kind, size) in enumerate(steps, 1):
        previous = rows.get(name)
        row = Row(Key("b", "", name), revision, b"m", b"x" * size)
        if kind == 0 and previous is not None:
            log.append([Event(revision, previous._replace(revision=revision), previous, deleted=True)])
            del rows[name]
        else:
            log.append([Event(revision, row, previous)])
            rows[name] = row
        window = log.since("b", log.oldest("b"))
        counted = {
            (row.key, row.revision): row for item in window for row in (item.row, item.previous) if row
        }
        assert log.size == sum(map(size_of_row, counted.values())) + 500 * len(window)
        assert log.size <= 10_000


def test_the_window_drops_the_oldest_events_first() -> None:
    log = EventLog(max_bytes=5 * 500)
    log.append([event(revision) for revision in range(1, 21)])
    assert log.oldest("b") == 15
    assert revisions(log.since("b", 15)) == [16, 17, 18, 19, 20]
    with pytest.raises(Compacted):
        log.since("b", 14)


def test_a_busy_bucket_does_not_age_a_quiet_one() -> None:
    log = EventLog(max_bytes=5 * 500)
    log.append([event(1, "busy"), event(2, "quiet")])
    log.append([event(revision, "busy") for revision in range(3, 7)])
    assert log.oldest("busy") == 1
    assert revisions(log.since("quiet", 0)) == [2]
    log.append([event(7, "busy")])
    assert log.oldest("quiet") == 2


def test_an_event_larger_than_the_window_is_known_to_be_missing() -> None:
    log = EventLog(max_bytes=1_000)
    log.append([event(1, size=5_000)])
    assert log.revision == 1
    assert log.size == 0
    assert log.oldest("b") == 1


def test_undoing_gives_the_oldest_state_of_each_key() -> None:
    log = EventLog()
    one, two, three = (Row(Key("b", "", "n"), revision, b"", b"") for revision in (1, 2, 3))
    log.append([Event(1, one, None), Event(2, two, one), Event(3, three, two, deleted=True)])
    assert log.undo("b", 0) == {("", "n"): None}
    assert log.undo("b", 1) == {("", "n"): one}
    assert log.undo("b", 2) == {("", "n"): two}
    assert log.undo("b", 3) == {}


def test_the_last_event_of_a_key_is_known_for_as_long_as_it_is_in_the_window() -> None:
    log = EventLog(max_bytes=3 * 500)
    log.append([event(1, name="changed"), event(2, name="old"), event(3, name="changed")])
    changed, old = Key("b", "", "changed"), Key("b", "", "old")
    assert revisions([latest for key in (changed, old) if (latest := log.last(key))]) == [3, 2]
    log.append([event(4, name="new"), event(5, name="newer")])
    assert log.last(old) is None
    assert revisions([latest for latest in [log.last(changed)] if latest]) == [3]

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.api.errors import Expired, Unreachable
from certwright.kube.client.watch import LineReader, before_error, identify

LINES = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}\n' * 3


@given(st.lists(st.integers(0, len(LINES)), max_size=6))
def test_chunks_may_be_cut_anywhere(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(LINES)]
    reader = LineReader()
    events = []
    for start, end in itertools.pairwise(edges):
        events += reader.feed(LINES[start:end])
    assert [(event.who.name, identify(event.object).name) for event in events] == [("a", "a")] * 3


def test_half_a_line_is_no_event() -> None:
    reader = LineReader()
    assert reader.feed(LINES[:20]) == []


def test_what_is_no_event_ends_the_watch() -> None:
    with pytest.raises(Unreachable, match="no event"):
        LineReader().feed(b"<html>\n")


def test_events_before_an_error_count() -> None:
    error = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
    events, failure = before_error(LineReader().feed(LINES + error + LINES))
    assert len(events) == 3
    assert isinstance(failure, Expired)
    assert failure.message == "too old"


def test_an_object_without_readable_metadata_has_no_name() -> None:
    assert identify(b'{"metadata":{"name":5}}').name == ""
    assert identify(b"[]").resource_version == ""


@pytest.mark.parametrize(
    "odd", [b'{"metadata":{"name":5}}', b'{"metadata":null}', b"null", b"[1]", b'"text"']
)
def test_an_event_of_an_object_without_readable_metadata_is_an_event_all_the_same(odd: bytes) -> None:
    [event] = LineReader().feed(b'{"type":"ADDED","object":%b}\n' % odd)
    assert (event.type, event.who.name, bytes(event.object)) == ("ADDED", "", odd)


@pytest.mark.parametrize("line", [b'{"type":"ADDED"}', b'{"object":{}}', b'{"type":5,"object":{}}', b"[]"])
def test_a_line_that_lacks_type_or_object_is_no_event(line: bytes) -> None:
    with pytest.raises(Unreachable, match="no event"):
        LineReader().feed(line + b"\n")

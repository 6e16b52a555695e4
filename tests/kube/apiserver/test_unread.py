"""The bound on what clients have not read: who is closed first."""

from __future__ import annotations

from functools import partial

from certwright.kube.apiserver.http.response_writer import Unread


def test_the_connection_that_has_waited_longest_is_closed_first() -> None:
    unread, closed = Unread(limit=100), list[str]()
    for name in ("a", "b", "c"):
        unread.add(name, 30, partial(closed.append, name))
    unread.remove("a")
    unread.add("a", 30, partial(closed.append, "a"))
    unread.add("d", 30, partial(closed.append, "d"))
    assert closed == ["b"]
    assert (unread.size, unread.dropped) == (90, 1)


def test_a_connection_that_reads_again_holds_nothing() -> None:
    unread = Unread(limit=100)
    unread.add("a", 30, lambda: None)
    unread.remove("a")
    unread.remove("a")
    assert unread.size == 0


def test_one_answer_may_exceed_the_limit_alone() -> None:
    unread, closed = Unread(limit=100), list[str]()
    unread.add("a", 300, partial(closed.append, "a"))
    assert (unread.size, closed) == (300, [])
    unread.add("b", 1, partial(closed.append, "b"))
    assert (unread.size, closed) == (1, ["a"])

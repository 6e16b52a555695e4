"""The machine, driven by a script: no server, no tasks, no time."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta

import msgspec

from certwright.kube.api.errors import (
    Details,
    Expired,
    Forbidden,
    InternalError,
    TooManyRequests,
    Unreachable,
)
from certwright.kube.client.listing import PAGE, RawPage
from certwright.kube.client.reflector import (
    Answer,
    Apply,
    Compared,
    ComparePage,
    ListPage,
    Load,
    OpenWatch,
    Pause,
    Prune,
    ReadWatch,
    Step,
    follow,
)
from certwright.kube.client.watch import LineReader, RawEvent


class Script:
    """Sends answers to the machine and looks at what it wants next."""

    def __init__(self, *, compares: bool = True, first: int = PAGE) -> None:
        self.time = 0.0
        self.machine: Generator[Step, Answer, None] = follow(
            now=lambda: self.time, jitter=lambda: 1.0, compares=compares, first=first
        )
        self.step: Step = next(self.machine)

    def answer(self, answer: Answer = None) -> Step:
        self.step = self.machine.send(answer)
        return self.step

    def listed(self, revision: str = "10") -> Step:
        """Answer a list with one page, up to the watch being read."""
        assert isinstance(self.step, ListPage)
        assert isinstance(self.answer(page(revision)), Load)
        assert isinstance(self.answer(), Prune)
        assert self.answer() == OpenWatch(revision)
        return self.answer()

    def fails(self, error: Exception) -> timedelta:
        """Answer with an error; the pause that follows."""
        step = self.answer(error)
        assert isinstance(step, Pause)
        assert step.because is error
        return step.delay


def page(revision: str, token: str = "", *names: str) -> RawPage:
    return RawPage([msgspec.Raw(b'{"metadata":{"name":"%s"}}' % n.encode()) for n in names], revision, token)


def event(kind: str, revision: int) -> RawEvent:
    obj = b'{"metadata":{"name":"a","resourceVersion":"%d"}}' % revision
    [made] = LineReader().feed(b'{"type":"%s","object":%b}\n' % (kind.encode(), obj))
    return made


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def test_a_list_comes_in_pages_then_the_watch_begins_at_its_revision() -> None:
    script = Script()
    assert script.step == ListPage("", 500)
    load = script.answer(page("10", "more", "a"))
    assert isinstance(load, Load)
    assert len(load.items) == 1
    assert script.answer() == ListPage("more", 500)
    assert isinstance(script.answer(page("10")), Load)
    assert script.answer() == Prune(10)
    assert script.answer() == OpenWatch("10")
    assert script.answer() == ReadWatch()


def test_the_pages_of_a_list_are_as_long_as_the_objects_are_small() -> None:
    script = Script(first=20)
    assert script.step == ListPage("", 20)
    for size, limit in ((20_000_000, 2), (40_000_000, 1), (1_000, 500), (2_000_000, 500), (4_000_000, 250)):
        script.answer(RawPage([], "10", "more", size))
        assert script.answer() == ListPage("more", limit)


def test_a_watch_that_ended_goes_on_after_the_last_event() -> None:
    script = Script()
    script.listed()
    changes = [event("ADDED", 11), event("DELETED", 12)]
    assert script.answer(changes) == Apply(changes)
    assert script.answer() == ReadWatch()
    assert script.answer(None) == OpenWatch("12")


def test_a_bookmark_moves_the_revision_and_is_not_applied() -> None:
    script = Script()
    script.listed()
    assert script.answer([event("BOOKMARK", 40)]) == ReadWatch()
    assert script.answer(None) == OpenWatch("40")


def test_410_at_the_start_of_a_watch_lists_again_at_once() -> None:
    script = Script()
    script.listed()
    assert script.answer(Expired("too old")) == ListPage("", 500)
    assert script.listed("30") == ReadWatch()


def test_410_in_the_middle_of_a_watch_lists_again() -> None:
    script = Script()
    script.listed()
    script.answer([event("ADDED", 11)])
    script.answer()
    assert script.answer(Expired("too old")) == ListPage("", 500)


def test_a_server_that_says_410_every_time_is_asked_more_and_more_rarely() -> None:
    script = Script()
    script.listed()
    assert script.answer(Expired("too old")) == ListPage("", 500)
    delays = []
    for _ in range(6):
        script.listed()
        delays.append(script.fails(Expired("too old")))
        script.answer()
    assert delays == [seconds(s) for s in (2, 4, 8, 16, 30, 30)]


def test_an_unreachable_server_is_tried_again_from_where_it_was() -> None:
    script = Script()
    script.listed()
    waits = []
    for _ in range(7):
        waits.append(script.fails(Unreachable("connection refused")))
        assert script.answer() == OpenWatch("10")
        assert script.answer() == ReadWatch()
    assert waits == [seconds(s) for s in (1, 2, 4, 8, 16, 30, 30)]
    # What comes then ends the bad times.
    script.answer([event("ADDED", 11)])
    script.answer()
    assert script.fails(Unreachable("connection reset")) == seconds(1)


def test_a_list_that_fails_is_tried_again() -> None:
    script = Script()
    assert script.fails(InternalError("boom")) == seconds(1)
    assert script.answer() == ListPage("", 500)
    assert script.fails(Unreachable("connection refused")) == seconds(2)
    assert script.answer() == ListPage("", 500)
    assert script.listed() == ReadWatch()


def test_a_list_whose_pages_expire_is_asked_for_whole() -> None:
    script = Script()
    script.answer(page("10", "more", "a"))
    assert script.answer() == ListPage("more", 500)
    script.fails(Expired("the continue token is too old"))
    assert script.answer() == ListPage("", 0)


def test_retry_after_is_obeyed() -> None:
    script = Script()
    script.listed()
    assert script.fails(TooManyRequests("busy", details=Details(retry_after_seconds=45))) == seconds(45)
    assert script.answer() == OpenWatch("10")


def test_a_watch_that_the_server_fails_three_times_is_given_up_for_a_list() -> None:
    script = Script()
    script.listed()
    for _ in range(2):
        script.fails(InternalError("boom"))
        assert script.answer() == OpenWatch("10")
        script.answer()
    script.fails(InternalError("boom"))
    assert script.answer() == ListPage("", 500)


def test_a_watch_that_is_refused_is_listed_again_after_a_pause() -> None:
    script = Script()
    script.listed()
    assert script.fails(Forbidden("you may not watch")) == seconds(1)
    assert script.answer() == ListPage("", 500)


def test_a_watch_that_ends_at_once_is_not_opened_in_a_hot_loop() -> None:
    script = Script()
    script.listed()
    pauses = []
    for _ in range(4):
        step = script.answer(None)
        assert isinstance(step, Pause)
        pauses.append(step.delay)
        assert script.answer() == OpenWatch("10")
        script.answer()
    assert pauses == [seconds(s) for s in (1, 2, 4, 8)]


def test_a_quiet_watch_that_ends_after_a_while_is_opened_again_at_once() -> None:
    script = Script()
    script.listed()
    script.time += 200
    assert script.answer(None) == OpenWatch("10")


def ended_after(script: Script, time: float) -> Step:
    """What follows a watch that has brought nothing for so long, and ended in good order."""
    script.time += time
    return script.answer(None)


def test_after_a_long_watch_what_is_held_is_compared_with_what_is_there() -> None:
    script = Script()
    script.listed()
    assert ended_after(script, 480) == ComparePage("", 500, 10)
    assert script.answer(Compared(0, "more", "10")) == ComparePage("more", 500, 10)
    # All is as it should be: the watch goes on where it was.
    assert script.answer(Compared(0, "", "10")) == OpenWatch("10")


def test_what_a_watch_has_swallowed_is_listed() -> None:
    script = Script()
    script.listed()
    assert ended_after(script, 480) == ComparePage("", 500, 10)
    script.answer(Compared(1, "more", "10"))
    assert script.answer(Compared(0, "", "10")) == ListPage("", 500)
    assert script.listed("20") == ReadWatch()


def test_short_watches_are_compared_every_five_minutes_and_not_more_often() -> None:
    script = Script()
    script.listed()
    compared = 0
    for _ in range(100):
        step = ended_after(script, 31)
        if isinstance(step, ComparePage):
            compared += 1
            step = script.answer(Compared(0, "", "10"))
        assert step == OpenWatch("10")
        script.answer()
    assert compared == 10


def test_what_comes_with_no_watch_at_all_is_missed_at_the_second_look() -> None:
    script = Script()
    script.listed()
    assert ended_after(script, 480) == ComparePage("", 500, 10)
    assert script.answer(Compared(0, "", "15")) == OpenWatch("10")
    script.answer()
    assert ended_after(script, 480) == ComparePage("", 500, 15)


def test_a_comparison_that_fails_says_nothing_and_is_made_again_later() -> None:
    script = Script()
    script.listed()
    assert ended_after(script, 480) == ComparePage("", 500, 10)
    assert script.answer(InternalError("boom")) == OpenWatch("10")
    script.answer()
    assert ended_after(script, 31) == ComparePage("", 500, 10)


def test_where_metadata_is_all_that_is_held_a_list_is_the_comparison() -> None:
    script = Script(compares=False)
    script.listed()
    assert ended_after(script, 480) == ListPage("", 500)


def test_a_history_that_has_gone_back_is_taken_as_listed() -> None:
    script = Script()
    script.listed("1000")
    script.answer(Expired("unknown revision"))
    load = script.answer(page("20", "", "a"))
    assert isinstance(load, Load)
    assert load.rewound
    assert script.answer() == Prune(0)
    assert script.answer() == OpenWatch("20")
    script.answer()
    # From there on it is an ordinary history again.
    script.answer(Expired("too old"))
    script.answer()
    load = script.answer(page("25", "", "a"))
    assert isinstance(load, Load)
    assert not load.rewound


def test_the_first_410_after_an_outage_is_not_waited_for() -> None:
    script = Script()
    script.listed()
    for _ in range(6):
        script.fails(Unreachable("connection refused"))
        script.answer()
        script.answer()
    assert script.answer(Expired("too old")) == ListPage("", 500)

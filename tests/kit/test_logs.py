import asyncio
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from certwright.kit import event_loop, logs

LOG = logging.getLogger("certwright.x")


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("certwright")
    before = (root.handlers[:], root.level, ours.level)
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:], root.level, ours.level = before


def record(message: str, created: float, *args: object, level: int = logging.INFO) -> logging.LogRecord:
    made = logging.LogRecord("certwright.x", level, "", 0, message, args, None)
    made.created = created
    return made


def test_an_event_has_its_values_in_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"issuer": "Issuer/default/ca", "cause": 'it said "no"', "missing": None, "attempts": 2}
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for form in logs.FORMATS:
        logs.set_up(level="info", form=form)
        logs.event(LOG, logging.INFO, "failed", subject="x", nextAttempt=moment, **values)
    text, line = capsys.readouterr().err.splitlines()
    assert text.partition(" ")[2] == (
        "INFO x: failed nextAttempt=2026-01-02T03:04:05Z issuer=Issuer/default/ca "
        'cause="it said \\"no\\"" attempts=2'
    )
    document = json.loads(line)
    assert (document["msg"], document["level"], document["attempts"]) == ("failed", "info", 2)
    assert (document["nextAttempt"], document["cause"]) == ("2026-01-02T03:04:05Z", 'it said "no"')
    assert "missing" not in document


def test_the_text_of_a_remote_server_cannot_forge_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(level="info")
    LOG.info("the CA said %s", "x\n2026-01-01T00:00:00Z INFO x: certificate issued")
    logs.event(LOG, logging.INFO, "failed", subject="x", cause="y\n2026 INFO x: certificate=a issued")
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_terminal_that_shows_the_log_obeys_no_text_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(level="info")
    LOG.info("the CA said %s", "\x1b[31mred\x9b32m \u202egnp.exe\r")
    logs.event(LOG, logging.INFO, "failed", subject="x", cause="\x1b]0;title\x07 \x9b32m")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(r"the CA said \u001b[31mred\u009b32m \u202egnp.exe\u000d")
    assert second.endswith(r'cause="\u001b]0;title\u0007 \u009b32m"')


@pytest.mark.parametrize("form", logs.FORMATS)
def test_a_field_of_a_megabyte_makes_no_line_of_a_megabyte(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.set_up(level="info", form=form)
    LOG.info("%s", "x" * 10**6)
    logs.event(LOG, logging.INFO, "failed", subject="x", cause="y" * 10**6)
    first, second = capsys.readouterr().err.splitlines()
    assert len(first) < 10_000 > len(second)
    assert "(1000000 characters)" in first


def test_a_source_that_repeats_itself_is_limited_and_counted() -> None:
    limiter = logs.Limiter()
    passed = [n for n in range(100) if limiter.filter(record("disk %s full", 1000.0, n))]
    assert passed == list(range(10))
    assert limiter.filter(record("another line", 1000.0))
    later = record("disk %s full", 1006.0, 1)
    assert limiter.filter(later)
    assert later.__dict__["suppressed"] == 90
    # A clock that was set back gives nothing, and stops nothing.
    assert not limiter.filter(record("disk %s full", 500.0, 1))
    assert limiter.filter(record("disk %s full", 506.0, 1))


def test_different_objects_are_different_sources(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(level="info")
    for number in range(30):
        logs.event(LOG, logging.INFO, "issued", subject=str(number), certificate=str(number))
        logs.event(LOG, logging.INFO, "issued", subject="the same")
    assert len(capsys.readouterr().err.splitlines()) == 30 + 10


def test_debug_lines_are_not_limited() -> None:
    limiter = logs.Limiter()
    assert all(limiter.filter(record("x", 0.0, level=logging.DEBUG)) for _ in range(100))


def test_what_python_and_the_event_loop_report_is_one_json_object_per_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.set_up(form="json")

    async def main() -> None:
        context = {"message": "Fatal error", "exception": ValueError("a\nb"), "protocol": LOG}
        asyncio.get_running_loop().call_exception_handler(context)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("a coroutine was never awaited", RuntimeWarning, stacklevel=1)

    event_loop.run(main())
    error, warning = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (error["logger"], error["level"]) == ("asyncio", "error")
    assert error["error"].endswith("ValueError: a\nb")
    assert (warning["logger"], warning["level"]) == ("py.warnings", "warning")
    assert "RuntimeWarning: a coroutine was never awaited" in warning["msg"]


def test_exceptions_that_nothing_catches_are_json_lines_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    logs.set_up(form="json")
    logs.take_over_uncaught()

    class Broken:
        def __del__(self) -> None:
            raise ValueError("in a destructor")

    def fail() -> None:
        raise ValueError("in a thread")

    thread = threading.Thread(target=fail, name="worker")
    thread.start()
    thread.join()
    Broken()
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["level"], first["msg"]) == ("error", "uncaught exception in thread worker")
    assert first["error"].endswith("ValueError: in a thread")
    assert second["msg"].startswith("Exception ignored in <function ")
    assert second["error"].endswith("ValueError: in a destructor")

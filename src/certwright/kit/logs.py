"""Logging to standard error: one line per record, as text for people or as JSON for machines.

Structured records: `event` adds named values to a message, as `key=value` in text and as members in JSON.
Each source of lines is rate-limited (`Limiter`). Values are what API objects show anyway; a private key or a
token MUST NOT be passed.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from certwright.kube.util.caches import Lru
from certwright.kube.util.encoding import visible

_log = logging.getLogger(__name__)
Value = str | int | float | bool | datetime | None
"""A value of a structured record; None and the empty string are left out."""

FORMATS: Final = ("text", "json")
_BURST = 10
_REFILL_S = 5.0
"""A source may log ten lines at once, then one every five seconds."""
_SOURCES = 4096
_LONGEST = 8192
"""Characters of a message or a value. Fields of objects, which they may quote, have up to 3 MB."""
_NEEDS_QUOTES = frozenset(' "=\\')


def event(logger: logging.Logger, level: int, message: str, *, subject: str, **values: Value) -> None:
    """Log `message`, a constant phrase, with `values`.

    `subject` names the object that the record is about, e.g. "Certificate/default/web": records of different
    subjects are different sources to the rate limit. It is not written; the values name the object.
    """
    if logger.isEnabledFor(level):
        given = {name: value for name, value in values.items() if value is not None and value != ""}
        logger.log(level, message, extra={"values": given, "subject": subject}, stacklevel=2)


def _values(record: logging.LogRecord) -> Mapping[str, Value]:
    values: Mapping[str, Value] = getattr(record, "values", {})
    suppressed: int = getattr(record, "suppressed", 0)
    return {**values, "suppressed": suppressed} if suppressed else values


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """`2026-01-02T12:30:45Z WARNING package.module: message key=value`, in one line, followed by the
        traceback of an exception."""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        module = record.name.removeprefix("certwright.")
        # A line break in the text of a remote server must not forge another line.
        message = visible(_short(record.getMessage())).replace("\n", "\\n")
        values = "".join(f" {name}={_quoted(value)}" for name, value in _values(record).items())
        line = f"{moment} {record.levelname} {module}: {message}{values}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object with `ts`, `level`, `logger`, `msg`, the record's values and, after an exception,
        `error`."""
        entry: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": _short(record.getMessage()),
        }
        for name, value in _values(record).items():
            entry.setdefault(name, _json_value(value))
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return visible(json.dumps(entry, ensure_ascii=False))


def _json_value(value: Value) -> Value:
    if isinstance(value, datetime):
        return _rfc3339(value)
    return _short(value) if isinstance(value, str) else value


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _quoted(value: Value) -> str:
    text = _rfc3339(value) if isinstance(value, datetime) else _short(str(value))
    if text.isprintable() and _NEEDS_QUOTES.isdisjoint(text):
        return text
    return visible(json.dumps(text, ensure_ascii=False))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


@dataclass(slots=True)
class _Source:
    """A token bucket; `suppressed` are the lines dropped since the last one that passed."""

    tokens: float
    at: float
    suppressed: int = 0


class Limiter(logging.Filter):
    """Rate limit of each source of log lines: a logger, a message template, and a subject.

    A line after others that were dropped has their number as `suppressed`. Lines of level DEBUG, which a
    person has asked for, are not limited.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sources: Lru[tuple[str, str, str], _Source] = Lru(_SOURCES)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line may be written."""
        if record.levelno <= logging.DEBUG:
            return True
        key = (record.name, str(record.msg), str(getattr(record, "subject", "")))
        source = self._sources.get(key) or self._sources.put(key, _Source(_BURST, record.created))
        # The system clock may be set back.
        passed = max(0.0, record.created - source.at)
        source.tokens = min(_BURST, source.tokens + passed / _REFILL_S)
        source.at = record.created
        if source.tokens < 1:
            source.suppressed += 1
            return False
        source.tokens -= 1
        if source.suppressed:
            record.suppressed = source.suppressed
            source.suppressed = 0
        return True


def formatter(form: str) -> logging.Formatter:
    """The formatter of `text` or `json`. Raises `ValueError` for another form."""
    if form not in FORMATS:
        raise ValueError(f"{form!r} is not a log format; write text or json")
    return _JsonFormatter() if form == "json" else _TextFormatter()


def set_up(*, level: str = "warning", form: str = "text") -> None:
    """Send this program's log, and Python's warnings, to standard error. `form` is `text` or `json`.

    Raises `ValueError` for another form or an unknown level.
    """
    lines = formatter(form)
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"{level!r} is not a log level; write debug, info, warning or error")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(lines)
    handler.addFilter(Limiter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    logging.getLogger("certwright").setLevel(number)


def take_over_uncaught() -> None:
    """Log the exceptions that Python itself would print: those of threads, destructors and callbacks of C."""
    threading.excepthook = _log_end_of_thread
    sys.unraisablehook = _log_unraisable


def _log_end_of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        name = args.thread.name if args.thread is not None else "unknown"
        _log.error("uncaught exception in thread %s", name, exc_info=args.exc_value)


def _log_unraisable(args: sys.UnraisableHookArgs) -> None:
    _log.error("%s %r", args.err_msg or "Exception ignored in", args.object, exc_info=args.exc_value)


def json_line(level: int, message: str, **values: Value) -> str:
    """A line of the JSON log, for output of a command."""
    record = logging.LogRecord("certwright", level, "", 0, message, None, None)
    record.values = values
    return _JsonFormatter().format(record)

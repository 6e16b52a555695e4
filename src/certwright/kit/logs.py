"""Logging to standard error: one line per record, as text for people or as JSON for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """`12:30:45 WARNING package.module: message`, with the traceback of an exception."""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        module = record.name.removeprefix("certwright.")
        line = f"{moment} {record.levelname} {module}: {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object with `ts`, `level`, `logger`, `msg` and, after an exception, `error`."""
        entry = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up(*, level: str = "warning", form: str = "text") -> None:
    """Send this program's log to standard error. `form` is `text` or `json`.

    Raises `ValueError` for another form or an unknown level.
    """
    if form not in ("text", "json"):
        raise ValueError(f"{form!r} is not a log format; write text or json")
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"{level!r} is not a log level; write debug, info, warning or error")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("certwright").setLevel(number)

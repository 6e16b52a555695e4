"""The last lines of the process's log, for those who may see them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from certwright.dashboard.index import Scope
from certwright.kube.util.encoding import visible

_KEPT: Final = 1_000


class LogLine(msgspec.Struct, frozen=True):
    """A line of the log. `subject` is the certificate that it is about (`namespace/name`), or empty."""

    at: datetime
    level: str
    text: str
    subject: str


class LogLines(logging.Handler):
    """The last lines of the process's log, from the first use of the dashboard on."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[LogLine] = deque(maxlen=_KEPT)
        logging.getLogger("certwright").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        values: Mapping[str, object] = getattr(record, "values", {})
        tail = "".join(f" {name}={value}" for name, value in values.items())
        text = visible(f"{record.getMessage()}{tail}").replace("\n", "\\n")
        at = datetime.fromtimestamp(record.created, UTC)
        self.lines.append(
            LogLine(at, record.levelname.lower(), text[:2_000], str(values.get("certificate", "")))
        )

    def close(self) -> None:
        """Keep no further lines."""
        logging.getLogger("certwright").removeHandler(self)
        super().close()

    def of(self, scope: Scope) -> list[LogLine]:
        """The lines that a user with this scope may see, newest first: those about certificates in it; others
        only for users who may see all."""
        return [line for line in reversed(self.lines) if scope.everywhere or _may_see(scope, line.subject)]


def _may_see(scope: Scope, subject: str) -> bool:
    namespace, found, name = subject.partition("/")
    return bool(found) and scope.allows(namespace, name)

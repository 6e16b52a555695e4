"""The last lines of the process's log, for those who may see them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from certwright.dashboard.index import Scope
from certwright.kube.util.encoding import visible

_KEPT: Final = 1_000
_LONGEST: Final = 2_000


class LogLine(msgspec.Struct, frozen=True):
    """A line of the log. `subject`: the object in question (`Certificate/namespace/name`), or empty."""

    at: datetime
    level: str
    text: str
    subject: str

    @property
    def namespace(self) -> str:
        """The object's namespace; empty if the line is about none."""
        return self.subject.split("/")[1] if self.subject.count("/") == 2 else ""

    @property
    def name(self) -> str:
        """The object's name."""
        return self.subject.rpartition("/")[2]

    @property
    def certificate(self) -> str:
        """The name of the Certificate that the line is about; empty for other lines."""
        return self.name if self.subject.startswith("Certificate/") else ""


class LogLines(logging.Handler):
    """The last lines of the process's log, from the first use of the dashboard on."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[LogLine] = deque(maxlen=_KEPT)
        self._observers: set[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = set()
        logging.getLogger("certwright").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line, without the traceback of an exception."""
        try:
            values: Mapping[str, object] = getattr(record, "values", {})
            tail = "".join(f" {name}={value}" for name, value in values.items())
            text = visible(f"{record.getMessage()}{tail}"[:_LONGEST]).replace("\n", "\\n")
        except (
            Exception
        ):  # As the handlers of `logging`: a line that cannot be written must not stop its writer.
            self.handleError(record)
            return
        at = datetime.fromtimestamp(record.created, UTC)
        self.lines.append(LogLine(at, record.levelname.lower(), text, str(getattr(record, "subject", ""))))

        if record.levelno < logging.INFO:
            # The requests of the pages themselves are logged at this level: they would have no end.
            return
        for loop, changed in tuple(self._observers):
            with suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(changed)

    def observe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` in the present event loop after each new line, until the returned function is
        called."""
        entry = (asyncio.get_running_loop(), changed)
        self._observers.add(entry)
        return lambda: self._observers.discard(entry)

    def close(self) -> None:
        """Keep no further lines."""
        logging.getLogger("certwright").removeHandler(self)
        super().close()

    def of(self, scopes: Mapping[str, Scope]) -> list[LogLine]:
        """The lines that a user with these scopes (by kind) may see, newest first: lines about objects in the
        scopes. A scope for the kind "" allows all lines."""
        return [
            line for line in reversed(tuple(self.lines)) if "" in scopes or _may_see(scopes, line.subject)
        ]


def _may_see(scopes: Mapping[str, Scope], subject: str) -> bool:
    kind, _, key = subject.partition("/")
    namespace, found, name = key.partition("/")
    return bool(found) and kind in scopes and scopes[kind].allows(namespace, name)

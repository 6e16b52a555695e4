"""A plug-in: an object of a Python package, found by its entry point. See docs/dns-plugins.md."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import cast

from certwright.acme.solvers.dns01 import installed
from certwright.acme.solvers.dns01.child.contract import Busy, Failed
from certwright.acme.solvers.dns01.child.messages import Provider

_LONGEST_PAUSE_S = 86_400


class Plugin:
    """See `Provider` in `contract.py`. Raises `Failed` if no package has it, else what the plug-in raises."""

    def __init__(self, request: Provider) -> None:
        entry = installed.plugins().get(request.name)
        if entry is None:
            raise Failed(f"no installed package has the entry point {request.name} of {installed.GROUP}")
        make = cast("Callable[..., object]", entry.load())
        self._plugin = make(config=request.config, secrets=request.secrets)

    def verify(self) -> None:
        """See `Provider`. Its constructor has checked them."""

    def has_zone(self, name: str) -> bool:
        """See `Provider`."""
        answer = self._method("has_zone")(name)
        if not isinstance(answer, bool):
            raise Failed(f"has_zone returned {_shown(answer)}, neither True nor False")
        return answer

    def add(self, zone: str, name: str, value: str) -> None:
        """See `Provider`."""
        self._change("add", zone, name, value)

    def remove(self, zone: str, name: str, value: str) -> None:
        """See `Provider`."""
        self._change("remove", zone, name, value)

    def _change(self, method: str, zone: str, name: str, value: str) -> None:
        answer = self._method(method)(zone, name, value)
        if answer is not None:
            # A coroutine, which has done nothing yet, is the likeliest.
            raise Failed(f"{method} returned {_shown(answer)} instead of None")

    def _method(self, name: str) -> Callable[..., object]:
        method = getattr(self._plugin, name, None)
        if not callable(method):
            raise Failed(f"it has no method {name}")
        return cast("Callable[..., object]", method)


def explain(error: BaseException) -> Failed:
    """The failure that an error of a plug-in means: its text, and the line that raised it."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")
    ]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    reason = f"{type(error).__name__}: {error}{where}"
    pause = getattr(error, "retry_after", None)
    if isinstance(pause, int | float) and not isinstance(pause, bool) and pause >= 0:
        return Busy(reason, str(round(min(pause, _LONGEST_PAUSE_S))))
    return Failed(reason)


def _shown(answer: object) -> str:
    return f"an object of type {type(answer).__name__}"

"""Providers of other packages that are installed, and plug-ins: objects of Python packages, found by their
entry points. See docs/dns-plugins.md.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from certwright.acme.solvers.dns01.child.messages import Busy, Failed, Provider

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


GROUP: Final = "certwright.dns01"
"""Group of the entry points of plug-ins."""
_LONGEST_PAUSE_S = 86_400


def plugins() -> dict[str, EntryPoint]:
    """The plug-ins of all installed packages, by name."""
    from importlib.metadata import entry_points  # 0.6 MB; most servers have no plug-ins

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def lexicon_providers() -> frozenset[str]:
    """The providers of dns-lexicon; empty: it is not installed."""
    spec = find_spec("lexicon")
    places = spec.submodule_search_locations if spec is not None else None
    modules = [path for place in places or () for path in Path(place).glob("_private/providers/*.py")]
    return frozenset(path.stem for path in modules if path.stem != "__init__")


class Plugin:
    """See `Provider` in `contract.py`. Raises `Failed` if no package has it, else what the plug-in raises."""

    def __init__(self, request: Provider) -> None:
        entry = plugins().get(request.name)
        if entry is None:
            raise Failed(f"no installed package has the entry point {request.name} of {GROUP}")
        make = cast("Callable[..., object]", entry.load())
        self._plugin = make(config=request.config, secrets=request.secrets)

    def verify(self) -> None:
        """See `Provider`. Its constructor has checked them."""

    def has_zone(self, name: str) -> bool:
        answer = self._method("has_zone")(name)
        if not isinstance(answer, bool):
            raise Failed(f"has_zone returned {_shown(answer)}, neither True nor False")
        return answer

    def add(self, zone: str, name: str, value: str) -> None:
        self._change("add", zone, name, value)

    def remove(self, zone: str, name: str, value: str) -> None:
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
    """The failure for an error of a plug-in: its text, and the line that raised it."""
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

"""DNS providers of other packages that are installed: dns-lexicon's, and plug-ins. Nothing is imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "certwright.dns01"
"""Group of the entry points of plug-ins."""


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

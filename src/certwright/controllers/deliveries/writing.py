"""Write the files of one Delivery below its root. Blocking file I/O: call it in a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from certwright.controllers.deliveries.outputs import Read
from certwright.controllers.deliveries.refusals import NOT_ALLOWED, Refused
from certwright.kit.directories import open_below
from certwright.kit.versioned_files import (
    File,
    current_version,
    is_done,
    is_ours,
    mark_done,
    read_file,
    replace_files,
    signature,
)


class Place(msgspec.Struct, frozen=True):
    """A directory below a root."""

    root: str
    parts: Sequence[str]

    @property
    def path(self) -> Path:
        """Its path."""
        return Path(self.root, *self.parts)


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The changed files, the version of the files, whether the hook has succeeded for it, and a value that
    changes when others change the files."""

    changed: Sequence[str]
    version: str
    is_done: bool
    signature: tuple[object, ...]


def write(place: Place, make: Callable[[Read], Mapping[str, File]]) -> Written:
    """Replace the files by those that `make` returns. Raises `Refused` and `OSError`."""
    with open_below(place.root, place.parts, create=True) as folder:
        files = make(partial(read_file, folder))
        for name in files:
            if not is_ours(folder, name):
                raise Refused(
                    NOT_ALLOWED,
                    f"{name} exists there and is not from a Delivery; remove it, or deliver to another path",
                )
        changed = replace_files(folder, files)
        return Written(
            changed=changed,
            version=current_version(folder) or "",
            is_done=is_done(folder),
            signature=signature(folder, files),
        )


def sign(place: Place, names: Sequence[str]) -> tuple[object, ...] | None:
    """The signature of the files as they are; None if the directory does not exist."""
    try:
        with open_below(place.root, place.parts) as folder:
            return signature(folder, names)
    except OSError:
        return None


def record_done(place: Place, version: str) -> None:
    """Record that the hook has succeeded for this version. Raises `OSError`."""
    with open_below(place.root, place.parts) as folder:
        mark_done(folder, version)

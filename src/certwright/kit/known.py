"""Types that any thread may give to msgspec.

msgspec learns what a class is made of when it first meets it. Another thread that meets the class before all
is learnt finds it half known, and the process dies of a segmentation fault (seen with msgspec 0.22).
"""

from __future__ import annotations

from threading import Lock
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=type[Any])

_learning = Lock()


def known(kind: T) -> T:
    """`kind` itself, and all that it is made of known to msgspec. For types that threads other than the
    loop's convert to, before a second thread can know of them: where they are defined or made."""
    with _learning:
        msgspec.json.Decoder(kind)
    return kind

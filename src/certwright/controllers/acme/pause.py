"""The pause of an Order or a Challenge after an answer, or no answer, of the CA."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Pause(msgspec.Struct, frozen=True):
    """The CA MUST NOT be asked before `until`, whatever else happens. If the time `is_ours` (the CA named
    none), a certificate that is needed immediately ends the pause. `since`: when it began; None: before this
    process, or the CA works and its recovery would change nothing."""

    until: datetime
    since: datetime | None
    is_ours: bool

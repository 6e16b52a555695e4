"""The paths below /ui/, with the function of each."""

from __future__ import annotations

from typing import Final

from certwright.dashboard import overview
from certwright.dashboard.visit import ActFunction, ViewFunction

VIEWS: Final[dict[str, ViewFunction]] = {
    r"": overview.page,
    r"status\.json": overview.status_json,
}
ACTS: Final[dict[str, ActFunction]] = {}

"""The paths below /ui/, with the function of each."""

from __future__ import annotations

from typing import Final

from certwright.dashboard import certificate, overview, stream
from certwright.dashboard.visit import ActFunction, ViewFunction

VIEWS: Final[dict[str, ViewFunction]] = {
    r"": overview.page,
    r"status\.json": overview.status_json,
    r"certificates/([^/]+)/([^/]+)": certificate.page,
    r"certificates/([^/]+)/([^/]+)/(renew|approve|deny|revoke)": certificate.confirm,
    r"stream": stream.page,
}
ACTS: Final[dict[str, ActFunction]] = {
    r"certificates/([^/]+)/([^/]+)/(renew|approve|deny|revoke)": certificate.act,
}

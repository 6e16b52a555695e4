"""The paths below /ui/, with the function of each."""

from __future__ import annotations

from typing import Final

from certwright.dashboard import certificate, elsewhere, issuers, overview, stream
from certwright.dashboard.visit import ActFunction, ViewFunction

VIEWS: Final[dict[str, ViewFunction]] = {
    r"": overview.page,
    r"status\.json": overview.status_json,
    r"certificates/([^/]+)/([^/]+)": certificate.page,
    r"certificates/([^/]+)/([^/]+)/(renew|approve|deny|revoke)": certificate.confirm,
    r"issuers": issuers.page,
    r"cas/([^/]+)/([^/]+)\.crt": issuers.root_file,
    r"cas/([^/]+)/([^/]+)": issuers.root,
    r"elsewhere": elsewhere.page,
    r"stream": stream.page,
}
ACTS: Final[dict[str, ActFunction]] = {
    r"certificates/([^/]+)/([^/]+)/(renew|approve|deny|revoke)": certificate.act,
}

"""Names of CertificateRequests. Not in `request`, so that commands that read them as JSON start quickly."""

from __future__ import annotations

from typing import Final

from certwright.kube.api.naming import bounded_name

_LONGEST_NAME: Final = 253


def request_names(certificate: str, uid: str, revision: int) -> tuple[str, str]:
    """The names of a Certificate's request for that revision: `<certificate>-<revision>`, and where a request
    of another owner has that name, one with a part of the Certificate's UID too."""
    first, second = f"-{revision}", f"-{revision}-{uid[:8]}"
    return (
        bounded_name(certificate, limit=_LONGEST_NAME - len(first)) + first,
        bounded_name(certificate, limit=_LONGEST_NAME - len(second)) + second,
    )

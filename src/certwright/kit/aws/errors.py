"""Errors of AWS.

AwsError
├── NoCredentials    no source has credentials, or the source does not answer
├── AwsUnreachable   no complete answer of AWS: retry
└── AwsRefused       AWS answered with an error
    ├── AwsDenied    the credentials are wrong, have expired, or lack the permission
    └── AwsThrottled too many requests, or the service is busy: retry later
"""

from __future__ import annotations

from typing import Final


class AwsError(Exception):
    """A failed call of AWS. The message is one sentence: the request, the reason, and the fix if known. It
    contains no key and no token."""


class NoCredentials(AwsError):
    """No source has credentials, or the source does not answer."""


class AwsUnreachable(AwsError):
    """No complete answer of AWS."""


class AwsRefused(AwsError):
    """AWS answered with an error. `code` is its error code, e.g. `NoSuchHostedZone`; `text` its message."""

    def __init__(self, message: str, *, status: int, code: str = "", text: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.text = text


class AwsDenied(AwsRefused):
    """The credentials are wrong, have expired, or lack the permission."""


class AwsThrottled(AwsRefused):
    """Too many requests, or the service is busy."""


DENIED: Final = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "ExpiredTokenIdentityException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidIdentityToken",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "NotAuthorized",
        "OptInRequired",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    }
)
"""Error codes of wrong, expired or insufficient credentials ("Common error types" of each API reference)."""

THROTTLED: Final = frozenset(
    {
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "ServiceUnavailable",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
"""Error codes of rate limits."""

"""Why an ACME account cannot be used: reasons of conditions, messages with the fix, and when to retry.

Source: cert-manager `pkg/issuer/acme/setup.go` (reasons and messages).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from certwright.acme.protocol.errors import (
    AcmeError,
    Fault,
    Problem,
    Reaction,
    Refused,
    Unreachable,
    Untrusted,
)
from certwright.resources.issuer import ACMEIssuer

NOT_REGISTERED: Final = "ErrRegisterACMEAccount"
NOT_VERIFIED: Final = "ErrVerifyACMEAccount"
NOT_UPDATED: Final = "ErrUpdateACMEAccount"
REGISTER: Final = "Failed to register ACME account: "
VERIFY: Final = "Failed to verify ACME account: "
UPDATE: Final = "Failed to update ACME account: "
_SOON: Final = timedelta(seconds=30)
_LATER: Final = timedelta(hours=1)


class AccountError(Exception):
    """The account cannot be used; the text is one sentence with the fix. `retry_after` None: no retry before
    something changes."""

    def __init__(self, reason: str, message: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


def account_error(error: AcmeError, reason: str, prefix: str, spec: ACMEIssuer) -> AccountError:
    """Convert an error; its type decides whether and when to retry."""
    if isinstance(error, Unreachable) and not isinstance(error, Untrusted):
        return AccountError(reason, f"{prefix}{error}", retry_after=_SOON)
    if not isinstance(error, Refused):
        return AccountError(reason, f"{prefix}{error}", retry_after=_LATER)
    if error.problem.name == "about:blank" and error.reaction is not Reaction.WAIT:
        # ACME servers refuse with a problem document: this is another server, or a temporary proxy error.
        message = f"{prefix}{error}; check the URL in spec.acme.server with your CA"
        return AccountError(reason, message, retry_after=_LATER)
    message = f"{prefix}{error}{_hint(error.problem, spec)}"
    if error.reaction is not Reaction.WAIT:
        # A retry would be refused again: the issuer or a Secret has to change first.
        return AccountError(reason, message)
    return AccountError(reason, message, retry_after=_SOON)


def _hint(problem: Problem, spec: ACMEIssuer) -> str:
    """What helps, to follow the CA's words. "unauthorized" means another thing here than for an order."""
    if problem.name != "unauthorized":
        known = problem.known
        advice = known.advice if known is not None and known.fault is Fault.ACCOUNT else ""
        return f"; {advice}" if advice else ""
    if spec.external_account_binding is not None:
        return "; check the key ID and the key of spec.acme.externalAccountBinding with your CA"
    secret = spec.private_key_secret_ref.name
    return f'; if the account has been closed, delete Secret "{secret}" to have a new one made'

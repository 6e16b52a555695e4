"""Why a Delivery is not delivered: reasons of the condition `Delivered`."""

from __future__ import annotations

from typing import Final

DELIVERED: Final = "Delivered"
"""The files contain the current certificate, and the hook has succeeded."""
INVALID: Final = "Invalid"
"""The spec, or a file made from the Secret, is invalid."""
NOT_ALLOWED: Final = "NotAllowed"
"""The operator's flags do not allow the root, owner, group, mode or hook."""
PATH_IN_USE: Final = "PathInUse"
"""Another Delivery writes to the same path."""
NOT_FOUND: Final = "NotFound"
"""The Certificate, its Secret or the Secret with the password does not exist."""
NOT_ISSUED: Final = "NotIssued"
"""The Secret has no certificate and key yet."""
WRITE_FAILED: Final = "WriteFailed"
"""The files cannot be written."""
HOOK_FAILED: Final = "HookFailed"
"""The hook failed; it is repeated."""


class Refused(Exception):
    """The object cannot be delivered until something changes; `message` is one sentence with the fix.
    `details` are for the log only: paths and a hook's output are the operator's."""

    def __init__(self, reason: str, message: str, details: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.details = details

"""Revocation, for the command of that name. Not in `app` itself, because it loads the ACME client."""

from certwright.controllers.acme.revoking import CannotRevoke, Holder, Revoked, revoke

__all__ = ["CannotRevoke", "Holder", "Revoked", "revoke"]

"""Immutable fields of an Order or a Challenge.

Source: cert-manager `internal/apis/acme/validation/{order,challenge}.go`.
"""

from __future__ import annotations

from certwright.kube.api.errors import FieldError, forbidden
from certwright.resources.acme import ACMEAuthorization, Challenge, Order

_ONCE_SET = "field is immutable once set"


def validate_order_update(old: Order, new: Order) -> list[FieldError]:
    """The spec is immutable, and so is what the server has set. cert-manager protects only the signing
    request; a change of the rest would do nothing, and is refused here."""
    errors: list[FieldError] = []
    if old.spec.request != new.spec.request:
        errors.append(forbidden("spec.request", _ONCE_SET))
    elif old.spec != new.spec:
        errors.append(forbidden("spec", "order spec is immutable after creation"))
    before, after = old.status, new.status
    for path, was, now in (
        ("status.url", before.url, after.url),
        ("status.finalizeURL", before.finalize_url, after.finalize_url),
        ("status.certificate", before.certificate, after.certificate),
    ):
        if was and was != now:
            errors.append(forbidden(path, _ONCE_SET))
    return errors + _authorizations(before.authorizations, after.authorizations)


def _authorizations(
    old: tuple[ACMEAuthorization, ...], new: tuple[ACMEAuthorization, ...]
) -> list[FieldError]:
    path = "status.authorizations"
    if not old:
        return []
    if len(old) != len(new):
        return [forbidden(path, _ONCE_SET)]
    errors: list[FieldError] = []
    # The URLs are known first; the rest of each authorization is set once, when it is fetched.
    for number, (before, after) in enumerate(zip(old, new, strict=True)):
        here = f"{path}[{number}]"
        for name, was, now in (
            ("url", before.url, after.url),
            ("identifier", before.identifier, after.identifier),
            ("wildcard", before.wildcard, after.wildcard),
            ("initialState", before.initial_state, after.initial_state),
            ("challenges", before.challenges, after.challenges),
        ):
            if was not in ("", None, ()) and was != now:
                errors.append(forbidden(f"{here}.{name}", _ONCE_SET))
    return errors


def validate_challenge_update(old: Challenge, new: Challenge) -> list[FieldError]:
    """The spec is immutable."""
    return [forbidden("spec", "challenge spec is immutable after creation")] if old.spec != new.spec else []

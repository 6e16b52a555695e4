"""ACME accounts: register, find, update (RFC 8555 §7.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from certwright.acme.protocol import reading
from certwright.acme.protocol.exchange import Session, post
from certwright.acme.protocol.jws import bind_external_account
from certwright.acme.protocol.messages import Action, Flow, Response


@dataclass(frozen=True, slots=True)
class ExternalAccount:
    """External account binding: ties our account to one of the CA's customers (RFC 8555 §7.3.4)."""

    key_id: str
    mac_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Account:
    """An ACME account. `status` is `valid`, `deactivated` or `revoked`; unknown values survive."""

    url: str
    status: str
    contact: tuple[str, ...] = ()

    @property
    def is_usable(self) -> bool:
        """Whether the account can place orders."""
        return self.status not in ("deactivated", "revoked")


def register(
    session: Session, contact: Sequence[str] = (), *, external: ExternalAccount | None = None
) -> Flow[Account]:
    """Return the account of the session's key: a new one, or the existing one (§7.3.1), which is then NOT
    changed. Agrees to the terms of service. Sets the session's `kid`."""
    url = session.directory.new_account
    payload: dict[str, Any] = {"termsOfServiceAgreed": True}
    if contact:
        payload["contact"] = list(contact)
    if external is not None:
        payload["externalAccountBinding"] = bind_external_account(
            session.key, url=url, key_id=external.key_id, mac_key=external.mac_key
        )
    session.kid = ""
    response = yield from post(session, Action.NEW_ACCOUNT, url, payload)
    return _account(session, response)


def find(session: Session) -> Flow[Account]:
    """Return the existing account of the session's key. Raises `AccountTrouble` (accountDoesNotExist) if it
    has none. Sets the session's `kid`."""
    session.kid = ""
    payload = {"onlyReturnExisting": True}
    response = yield from post(session, Action.NEW_ACCOUNT, session.directory.new_account, payload)
    return _account(session, response)


def fetch(session: Session) -> Flow[Account]:
    """Fetch the session's account."""
    response = yield from post(session, Action.ACCOUNT, session.kid)
    return _read(session.kid, response)


def update_contact(session: Session, contact: Sequence[str]) -> Flow[Account]:
    """Replace the contact addresses of the account; an empty `contact` removes them (§7.3.2)."""
    response = yield from post(session, Action.ACCOUNT, session.kid, {"contact": list(contact)})
    return _read(session.kid, response)


def _account(session: Session, response: Response) -> Account:
    url = reading.location(response, "an account")
    session.kid = url
    return _read(url, response)


def _read(url: str, response: Response) -> Account:
    content = reading.read_object(response, "an account")
    return Account(url, reading.text(content, "status"), reading.texts(content, "contact"))

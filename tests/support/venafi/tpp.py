"""The calls of Certificate Manager Self-Hosted."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from certwright.pki.errors import PkiError
from support.venafi.state import Order, State

Reply = tuple[int, Any]
Body = Mapping[str, Any]
_ZONE = "\\VED\\Policy\\Web"


def answer(state: State, path: str, token: str, body: Body) -> Reply:
    """The status and JSON value for a call to `vedauth/…` or `vedsdk/…`."""
    if (login := _LOGINS.get(path.lower())) is not None:
        return login(state, body)
    if not state.is_valid(token):
        return 401, {"error": "invalid_token", "error_description": "Access token is invalid or expired"}
    if path.lower() == "vedauth/authorize/verify":
        stamp = "2026-01-01T00:00:00.0000000Z"
        return 200, {
            "access_issued_on_ISO8601": stamp,
            "application": "cert-manager.io",
            "expires_ISO8601": stamp,
            "grant_issued_on_ISO8601": stamp,
            "identity": "local:{1}",
            "scope": "certificate:manage",
            "valid_for": state.token_s,
        }
    call = _CALLS.get(path.lower())
    return call(state, body) if call is not None else (404, {"Error": "no such call"})


def _log_in(state: State, body: Body) -> Reply:
    if body.get("client_id") not in state.clients:
        return 400, {"error": "invalid_client", "error_description": "Application does not exist"}
    if state.users.get(str(body.get("username"))) != body.get("password"):
        return 400, {
            "error": "invalid_grant",
            "error_description": "Username/password combination not valid",
        }
    return 200, _tokens(state)


def _refresh(state: State, body: Body) -> Reply:
    token = str(body.get("refresh_token"))
    if token not in state.refresh_tokens:
        return 400, {"error": "invalid_grant", "error_description": "Refresh token is invalid"}
    state.refresh_tokens.discard(token)
    return 200, _tokens(state)


def _tokens(state: State) -> dict[str, Any]:
    expires = int(state.now.timestamp()) + state.token_s
    return {
        "access_token": state.new_token(),
        "expires": expires if state.token_s else int(time.time()),
        "expires_in": state.token_s,
        "identity": "local:{1}",
        "refresh_token": state.new_refresh_token(),
        "refresh_until": expires + 86400,
        "scope": "certificate:manage",
        "token_type": "Bearer",
    }


def _check_policy(state: State, body: Body) -> Reply:
    if body.get("PolicyDN") != _ZONE:
        return 400, {"Error": f"PolicyDN: {body.get('PolicyDN')} does not exist"}
    return 200, {"Error": None, "Policy": state.policy}


def _reset(state: State, body: Body) -> Reply:
    dn = str(body.get("CertificateDN"))
    if dn not in state.orders:
        return 400, {"Error": f"{dn} does not exist or you do not have sufficient rights to the object."}
    if state.orders[dn].polls <= 0:
        return 400, {"Error": "Reset is not completed. No reset is required for the certificate."}
    del state.orders[dn]
    return 200, {}


def _request(state: State, body: Body) -> Reply:
    if body.get("PolicyDN") != _ZONE:
        return 400, {"Error": f"PolicyDN: {body.get('PolicyDN')} does not exist"}
    name = body.get("ObjectName")
    if not name:
        return 400, {"Error": "ObjectName is missing"}
    dn = f"{_ZONE}\\{name}"
    if dn in state.orders and state.orders[dn].polls > 0:
        return 400, {"Error": "The certificate is being enrolled"}
    try:
        state.place(dn, Order(str(body.get("PKCS10")).encode(), _duration(state, body), state.polls, body))
    except PkiError:
        return 400, {"Error": "PKCS10 data is invalid"}
    return 200, {"CertificateDN": dn, "Guid": f"{{{uuid.uuid4()}}}"}


def _duration(state: State, body: Body) -> timedelta:
    for attribute in body.get("CASpecificAttributes") or ():
        if attribute["Name"] == "Specific End Date":
            return datetime.fromisoformat(attribute["Value"]) - state.now
    return timedelta(days=90)


def _retrieve(state: State, body: Body) -> Reply:
    dn = str(body.get("CertificateDN"))
    if dn not in state.orders:
        return 400, {"Error": f"Certificate {dn} does not exist"}
    chain = state.chain(state.orders[dn])
    if not chain:
        return 202, {"Stage": 500, "Status": "Post CSR"}
    if body.get("RootFirstOrder") in (True, "true"):
        chain.reverse()
    data = base64.b64encode(b"".join(chain)).decode()
    return 200, {"CertificateData": data, "Filename": "web.cer", "Format": "base64"}


_LOGINS: dict[str, Callable[[State, Body], Reply]] = {
    "vedauth/authorize/oauth": _log_in,
    "vedauth/authorize/token": _refresh,
}
_CALLS: dict[str, Callable[[State, Body], Reply]] = {
    "vedsdk/certificates/checkpolicy": _check_policy,
    "vedsdk/certificates/reset": _reset,
    "vedsdk/certificates/request": _request,
    "vedsdk/certificates/retrieve": _retrieve,
    "vedsdk/systemstatus/version": lambda _state, _body: (200, {"Version": "24.1.0.1"}),
}

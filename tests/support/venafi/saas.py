"""The calls of Certificate Manager SaaS, and of NGTS, which has no applications."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, unquote

from certwright.pki.errors import PkiError
from support.venafi.state import TSG, Order, State

Reply = tuple[int, Any]
_APPLICATION = "Shop"
_APPLICATION_ID = "9a1c-application"


def log_in(state: State, authorization: str, form: bytes) -> Reply:
    """NGTS's token endpoint (RFC 6749 §4.4)."""
    pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
    name, _, secret = map(unquote, pair.partition(":"))
    fields = parse_qs(form.decode())
    if state.users.get(name) != secret:
        return 401, {"error": "invalid_client", "error_description": "Client authentication failed"}
    if fields.get("grant_type") != ["client_credentials"] or fields.get("scope") != [f"tsg_id:{TSG}"]:
        return 400, {"error": "invalid_scope"}
    token = {"access_token": state.new_token(), "token_type": "Bearer", "expires_in": state.token_s}
    return 200, token


def answer(state: State, method: str, path: str, body: Mapping[str, Any], *, is_ngts: bool) -> Reply:
    """The status and JSON value (or text) for a call with valid credentials."""
    parts = [unquote(part) for part in path.split("/")]
    match (method, parts):
        case "GET", ["v1", "useraccounts"]:
            return 200, {"user": {"id": "1"}, "company": {"id": "company"}}
        case "GET", ["v1", "certificateissuingtemplates"]:
            return 200, {"certificateIssuingTemplates": [state.template]}
        case "GET", ["outagedetection", "v1", "applications", "name", name] if not is_ngts:
            aliases = {state.template["name"]: state.template["id"]}
            application = {
                "id": _APPLICATION_ID,
                "name": name,
                "certificateIssuingTemplateAliasIdMap": aliases,
            }
            return (200, application) if name == _APPLICATION else _error(404, "application not found")
        case "GET", ["outagedetection", "v1", "applications", name, "certificateissuingtemplates", alias]:
            is_known = name in (_APPLICATION, _APPLICATION_ID) and alias == state.template["name"]
            return (200, state.template) if is_known else _error(404, "issuing template not found")
        case "POST", ["outagedetection", "v1", "certificaterequests"]:
            return _request(state, body, is_ngts=is_ngts)
        case "GET", ["outagedetection", "v1", "certificaterequests", key]:
            return _status(state, key)
        case "GET", ["outagedetection", "v1", "certificates", key, "contents"]:
            return _contents(state, key)
        case "GET", ["outagedetection", "v1", "certificates", key]:
            return 200, {"id": key}
        case _:
            return _error(404, "no such call")


def _request(state: State, body: Mapping[str, Any], *, is_ngts: bool) -> Reply:
    if body.get("certificateIssuingTemplateId") != state.template["id"]:
        return _error(400, "unknown certificateIssuingTemplateId")
    if body.get("applicationId") != (None if is_ngts else _APPLICATION_ID):
        return _error(400, "unknown applicationId")
    if not body.get("apiClientInformation", {}).get("type"):
        return _error(400, "apiClientInformation.type is missing")
    key = str(uuid.uuid4())
    order = Order(str(body.get("certificateSigningRequest")).encode(), _duration(body), state.polls, body)
    try:
        state.place(key, order)
    except PkiError:
        return _error(400, "certificateSigningRequest is invalid")
    return 201, {"certificateRequests": [{"id": key, "status": "REQUESTED"}]}


def _duration(body: Mapping[str, Any]) -> timedelta:
    match = re.fullmatch(r"P(?:(\d+)D)?(?:T(\d+)H)?", str(body.get("validityPeriod", "P90D")))
    assert match is not None, body
    return timedelta(days=int(match[1] or 0), hours=int(match[2] or 0))


def _status(state: State, key: str) -> Reply:
    order = state.orders.get(key)
    if order is None:
        return _error(404, "certificate request not found")
    certificate_request = {"id": key, "subjectDN": "CN=web", "status": "PENDING", "certificateIds": []}
    if order.polls > 0:
        order.polls -= 1
        return 200, certificate_request
    return 200, certificate_request | {"status": "ISSUED", "certificateIds": [order.certificate_id]}


def _contents(state: State, key: str) -> Reply:
    for order in state.orders.values():
        if order.certificate_id == key:
            return 200, b"".join(state.chain(order)).decode()
    return _error(404, "certificate not found")


def _error(status: int, message: str) -> Reply:
    return status, {"errors": [{"code": 10001, "message": message, "args": []}]}

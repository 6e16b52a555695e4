"""The `venafi` issuer: judges the server, its login and its zone, and orders certificates.

An order survives a crash, because its pickup ID is an annotation of the CertificateRequest. TPP's ID is known
before the order, so it is saved before; an order whose answer was lost is then fetched, never repeated. SaaS
and NGTS choose the ID, so it is saved immediately after the order.

Source: cert-manager `pkg/issuer/venafi/setup.go` (reasons and messages of the condition) and
`pkg/controller/certificaterequests/venafi/venafi.go` (of the request), `custom_fields.go` (what wins).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from certwright.issuers.contract import (
    Checked,
    Failed,
    IssuerView,
    Outcome,
    Pending,
    ServerTools,
    SigningRequest,
    Tools,
)
from certwright.issuers.servers import (
    CHECK_ANYWAY,
    NO_REQUESTS,
    BadSettings,
    CallError,
    LoginRefused,
    Sessions,
    Unauthorized,
    Unavailable,
    failing,
    mapping,
    not_ready,
    unusable,
)
from certwright.issuers.venafi.orders import INIT_ERROR, REQUEST_ERROR, Orders, VenafiSession
from certwright.issuers.venafi.products import CertificateOrder, CustomField
from certwright.issuers.venafi.settings import Product, Settings, StaticKey, settings_of
from certwright.pki.csr import read_csr
from certwright.pki.errors import PkiError
from certwright.pki.names import NO_SUBJECT
from certwright.resources import reasons
from certwright.resources.causes import Cause
from certwright.resources.names import VENAFI_CUSTOM_FIELDS, VENAFI_PICKUP_ID

_TYPES: Final = ("", "Plain")
_SHAPE: Final = 'write a JSON array such as [{"name": "Owner", "value": "web team"}]'
STARTED: Final = "Certificate Manager issuer started"
"""cert-manager's reason and message of a ready issuer."""
_SETUP: Final = "Failed to setup Certificate Manager issuer"
_SETUP_ERROR: Final = "ErrorSetup"
_AUTH_FAILED: Final = "AuthFailed"
_CUSTOM_FIELDS_ERROR: Final = "CustomFieldsError"
_TPP_TRUST_FIX: Final = "put the CA of the server into spec.venafi.tpp.caBundle"
_TRUST_FIX: Final = "add the CA of the server to the CAs of this system"
"""SaaS and NGTS have no field for it."""
_NO_SUBJECT: Final = (
    "Certificate requests submitted to Venafi issuers must have the 'commonName' field or at least one other "
    "subject field set."
)
_ZONE_AGE: Final = timedelta(seconds=15)
"""A check uses a zone that was read for the previous one."""


class BadCustomFields(ValueError):
    """The annotation cannot be used. The message is one sentence with the fix."""


def merge(issuers: Sequence[CustomField], requests: Sequence[CustomField]) -> tuple[CustomField, ...]:
    """All fields; of a name that both set, the request's values alone."""
    named = {field.name for field in requests}
    return (*(field for field in issuers if field.name not in named), *requests)


def parse_custom_fields(annotations: Mapping[str, str]) -> tuple[CustomField, ...]:
    """The custom fields in an object's annotations. Raises `BadCustomFields`."""
    text = annotations.get(VENAFI_CUSTOM_FIELDS, "")
    if not text:
        return ()
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadCustomFields(f"the annotation {VENAFI_CUSTOM_FIELDS} is not JSON; {_SHAPE}") from error
    if not isinstance(listed, list):
        raise BadCustomFields(f"the annotation {VENAFI_CUSTOM_FIELDS} is not a JSON array; {_SHAPE}")
    return tuple(map(_field, listed))


def _field(item: object) -> CustomField:
    name, value, kind = (mapping(item).get(key, "") for key in ("name", "value", "type"))
    if not isinstance(name, str) or not name or not isinstance(value, str):
        raise BadCustomFields(
            f'an item of the annotation {VENAFI_CUSTOM_FIELDS} has no "name" and "value" of text; {_SHAPE}'
        )
    if kind not in _TYPES:
        raise BadCustomFields(
            f'the type of "{name}" in the annotation {VENAFI_CUSTOM_FIELDS} is not Plain; leave it out'
        )
    return CustomField(name, value)


class Venafi:
    """Orders certificates. Keeps a token and a zone for each issuer, and which orders it has placed."""

    def __init__(self) -> None:
        self._sessions: Sessions[VenafiSession] = Sessions()
        self._orders = Orders()

    async def check(self, issuer: IssuerView, tools: Tools) -> Checked:
        """Ready if the server accepts the credentials and shows the zone."""
        if tools.servers is None:
            return Checked(ready=False, reason=_SETUP_ERROR, message=f"{_SETUP}: {NO_REQUESTS}")
        try:
            parse_custom_fields(issuer.annotations)
        except BadCustomFields as error:
            return Checked(ready=False, reason=_SETUP_ERROR, message=f"{_SETUP}: {error}")
        try:
            session = await self._session(issuer, tools, tools.servers)
            if isinstance(session.settings.credentials, StaticKey):
                await session.use(session.client.check_credentials)
        except BadSettings as error:
            return not_ready(_SETUP_ERROR, f"{_SETUP}: {error}", error.secret)
        except (Unauthorized, LoginRefused) as error:
            return not_ready(_AUTH_FAILED, f"{_SETUP}: {error}; {_credentials_fix(session.settings)}")
        except CallError as error:
            return not_ready(_SETUP_ERROR, f"{_SETUP}: {error}")
        return await _check_zone(session, tools)

    async def sign(self, issuer: IssuerView, signing: SigningRequest, tools: Tools) -> Outcome:
        """Order the certificate, or fetch it."""
        request = signing.request
        try:
            csr = read_csr(request.spec.request)
            lifetime = request.spec.requested_duration
        except (PkiError, ValueError) as error:
            return Failed(REQUEST_ERROR, f"the request cannot be used: {error}", cause=Cause.INVALID_REQUEST)
        if not csr.common_name and csr.subject == NO_SUBJECT:
            advice = "set spec.commonName"
            return Failed(REQUEST_ERROR, _NO_SUBJECT, cause=Cause.INVALID_REQUEST, advice=advice)
        try:
            own_fields = parse_custom_fields(request.metadata.annotations)
        except BadCustomFields as error:
            advice = f"correct the annotation {VENAFI_CUSTOM_FIELDS}"
            return Failed(_CUSTOM_FIELDS_ERROR, str(error), cause=Cause.INVALID_REQUEST, advice=advice)
        if tools.servers is None:
            return Pending(INIT_ERROR, NO_REQUESTS)
        is_taken = VENAFI_PICKUP_ID in request.metadata.annotations
        try:
            fields = merge(parse_custom_fields(issuer.annotations), own_fields)
            session = await self._session(issuer, tools, tools.servers)
        except BadCustomFields as error:
            text = f"{issuer.kind} {issuer.name}: {error}"
            return failing(_CUSTOM_FIELDS_ERROR, text, is_taken=is_taken)
        except BadSettings as error:
            return unusable(error, INIT_ERROR, "Certificate Manager", is_taken=is_taken)
        order = CertificateOrder(request.spec.request.decode("ascii", "replace"), csr, lifetime, fields)
        meta = request.metadata
        try:
            return await self._orders.process(session, meta, order, tools)
        except (LoginRefused, Unauthorized) as error:
            text = f"{error}; {_credentials_fix(session.settings)}"
            return failing(INIT_ERROR, text, is_taken=self._orders.is_accepted(session, meta))
        except CallError as error:
            is_taken = self._orders.is_accepted(session, meta)
            return failing(REQUEST_ERROR, str(error), error, is_taken=is_taken)

    async def probe(self, issuer: IssuerView, tools: Tools) -> str:
        """Whether the server answers. Returns why not, in a sentence; empty: it answers."""
        assert tools.servers is not None
        try:
            session = await self._session(issuer, tools, tools.servers)
            await session.client.check_reachable()
        except (BadSettings, CallError) as error:
            return str(error)
        return ""

    async def _session(self, issuer: IssuerView, tools: Tools, servers: ServerTools) -> VenafiSession:
        assert issuer.spec.venafi is not None, "table.kind_of chose this implementation because of it"
        settings = await settings_of(issuer.spec.venafi, tools.get_secret)
        fix = _TPP_TRUST_FIX if settings.product is Product.TPP else _TRUST_FIX
        try:
            return self._sessions.get(
                issuer.uid,
                settings,
                lambda: VenafiSession(issuer.uid, settings, servers.client(settings.tls, fix), tools.now),
            )
        except ValueError as error:
            raise BadSettings(f"{error}; correct caBundle in spec.venafi.tpp") from error


async def _check_zone(session: VenafiSession, tools: Tools) -> Checked:
    try:
        await session.zone(tools.now() - _ZONE_AGE)
    except (Unauthorized, LoginRefused) as error:
        return not_ready(_AUTH_FAILED, f"{_SETUP}: {error}; {_credentials_fix(session.settings)}")
    except Unavailable as error:
        return not_ready(_SETUP_ERROR, f"{_SETUP}: {error}")
    except CallError as error:
        zone = session.settings.zone
        return not_ready(
            _SETUP_ERROR,
            f'{_SETUP}: the zone "{zone}" cannot be read: {error}; correct spec.venafi.zone, or give the '
            "account rights on it",
        )
    return Checked(
        ready=True,
        reason=STARTED,
        message=STARTED,
        retry_after=CHECK_ANYWAY,
        event=reasons.READY,
        is_answered=True,
    )


def _credentials_fix(settings: Settings) -> str:
    if isinstance(settings.credentials, StaticKey):
        return f"put a valid key or token into the Secret in {settings.credentials.where}"
    return f"correct the Secret in spec.venafi.{settings.product.name.lower()}.credentialsRef"

"""Certificate Manager SaaS (Cloud), and NGTS, which has the same API behind another login.

Source: the API of Certificate Manager SaaS, `outagedetection/v1`; RFC 6749 §4.4 for the login of NGTS.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

from certwright.issuers.servers import (
    Answer,
    Calls,
    Headers,
    Refused,
    Token,
    Unavailable,
    lifetime_of,
    mapping,
    text_of,
    texts_of,
)
from certwright.issuers.venafi.policies import Allowed, KeyRules, OneOf, Patterns, ZonePolicy
from certwright.issuers.venafi.products import CertificateOrder
from certwright.issuers.venafi.settings import ClientCredentials, Product, Settings
from certwright.kit.outgoing import quote as quoted
from certwright.pki.csr import CsrFacts

_REQUESTS: Final = "outagedetection/v1/certificaterequests"
_CLIENT: Final = "certwright"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""IDs become parts of URLs."""
_PATTERNS: Final = (
    ("subjectCNRegexes", "common_name"),
    ("subjectORegexes", "organizations"),
    ("subjectOURegexes", "organizational_units"),
    ("subjectLRegexes", "localities"),
    ("subjectSTRegexes", "provinces"),
    ("sanRegexes", "dns_names"),
    ("sanIpAddressRegexes", "ip_addresses"),
    ("sanRfc822NameRegexes", "email_addresses"),
    ("sanUniformResourceIdentifierRegexes", "uris"),
)
_PERIOD: Final = re.compile(
    r"P(?:(?P<years>\d{1,4})Y)?(?:(?P<days>\d{1,6})D)?(?:T(?:(?P<hours>\d{1,8})H)?)?", re.ASCII
)
"""The periods (ISO 8601) that templates have."""


class SaasClient:
    """Calls to one server, in one zone: `application\\template` of SaaS, `template` of NGTS."""

    def __init__(self, calls: Calls, settings: Settings) -> None:
        self._calls = calls
        self._server = settings.server
        self._zone = settings.zone.strip()
        self._is_ngts = settings.product is Product.NGTS

    async def log_in(self, client: ClientCredentials) -> Token:
        """A token for the client credentials of NGTS (RFC 6749 §4.4.2)."""
        # RFC 6749 §2.3.1: both are form-encoded before they are joined.
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        basic = base64.b64encode(pair.encode()).decode()
        body = urlencode({"grant_type": "client_credentials", "scope": client.scope}).encode()
        answer = await self._calls.post_form(client.token_url, body, (("Authorization", f"Basic {basic}"),))
        value = text_of(answer.data.get("access_token"))
        if not value:
            raise Unavailable(f"{client.token_url} answered without an access token")
        return Token(value, lifetime_of(answer.data.get("expires_in")))

    async def check_credentials(self, token: str) -> None:
        """See `ProductClient`. The login of NGTS, and reading its zone, show as much."""
        if not self._is_ngts:
            await self._get("v1/useraccounts", token)

    async def check_reachable(self) -> None:
        await self._calls.is_reachable(f"{self._server}/v1/useraccounts")

    async def read_zone(self, token: str) -> ZonePolicy:
        if self._is_ngts:
            listed = (await self._get("v1/certificateissuingtemplates", token)).data
            templates = listed.get("certificateIssuingTemplates")
            for template in map(mapping, templates if isinstance(templates, list) else ()):
                if template.get("name") == self._zone:
                    return _policy(template, "")
            raise Refused(f'there is no issuing template "{self._zone}"', 404)
        application, _, alias = self._zone.partition("\\")
        if not application or not alias:
            raise Refused(f'"{self._zone}" is not of the form APPLICATION\\TEMPLATE', 400)
        path = (
            f"outagedetection/v1/applications/{_part(application)}/certificateissuingtemplates/{_part(alias)}"
        )
        template = (await self._get(path, token)).data
        name = f"outagedetection/v1/applications/name/{_part(application)}"
        application_id = text_of((await self._get(name, token)).data.get("id"))
        return _policy(template, application_id)

    def pickup_id(self, csr: CsrFacts) -> str:
        """See `ProductClient`: the server chooses it."""
        del csr
        return ""

    async def place(self, token: str, order: CertificateOrder, zone: ZonePolicy) -> str:
        days, rest = divmod(order.lifetime, timedelta(days=1))
        body: dict[str, Any] = {
            "certificateSigningRequest": order.csr_pem,
            "certificateIssuingTemplateId": zone.template_id,
            "apiClientInformation": {"type": _CLIENT, "identifier": _CLIENT},
            "validityPeriod": (
                f"P{days}D" if days and not rest else f"PT{max(order.lifetime // timedelta(hours=1), 1)}H"
            ),
        }
        if zone.application_id:
            body["applicationId"] = zone.application_id
        url = f"{self._server}/{_REQUESTS}"
        answer = await self._calls.post(url, body, self._headers(token))
        listed = answer.data.get("certificateRequests")
        request_id = text_of(mapping(listed[0]).get("id")) if isinstance(listed, list) and listed else ""
        if not _ID.fullmatch(request_id):
            raise Unavailable(f"{url} answered without the ID of the request")
        return request_id

    async def fetch(self, token: str, pickup_id: str) -> str | None:
        if not _ID.fullmatch(pickup_id):
            raise Refused("the pickup ID is not the ID of a request", 404)
        request = (await self._get(f"{_REQUESTS}/{pickup_id}", token)).data
        match text_of(request.get("status")):
            case "FAILED" | "REJECTED" | "REJECTED_APPROVAL" | "CANCELLED":
                reason = quoted(text_of(mapping(request.get("errorInformation")).get("message")))
                raise Refused("the server has failed the request" + (f": {reason}" if reason else ""), 400)
            case "ISSUED":
                ids = texts_of(request.get("certificateIds"))
                if not ids or not _ID.fullmatch(ids[0]):
                    return None
                url = f"{self._server}/outagedetection/v1/certificates/{ids[0]}/contents"
                url += "?chainOrder=EE_FIRST&format=PEM"
                answer = await self._calls.get(url, self._headers(token), is_text=True, accepted=(409,))
                return answer.text if answer.status == 200 else None
            case _:
                return None

    async def _get(self, path: str, token: str) -> Answer:
        return await self._calls.get(f"{self._server}/{path}", self._headers(token))

    def _headers(self, token: str) -> Headers:
        if self._is_ngts:
            return (("Authorization", f"Bearer {token}"),)
        return (("tppl-api-key", token),)


def _part(name: str) -> str:
    """A name as one part of a path; dots alone would lead to another path."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def _policy(template: Mapping[str, Any], application_id: str) -> ZonePolicy:
    template_id = text_of(template.get("id"))
    if not _ID.fullmatch(template_id):
        raise Unavailable("the server answered without the ID of the issuing template")
    names: dict[str, Allowed] = {
        name: Patterns(texts_of(template[rule]))
        for rule, name in _PATTERNS
        if isinstance(template.get(rule), list)
    }
    countries = template.get("subjectCValues")
    if isinstance(countries, list) and ".*" not in countries:
        names["countries"] = OneOf(frozenset(texts_of(countries)))
    return ZonePolicy(
        names=names,
        keys=_keys(template.get("keyTypes")),
        longest=_longest(template),
        template_id=template_id,
        application_id=application_id,
    )


def _longest(template: Mapping[str, Any]) -> timedelta | None:
    match = _PERIOD.fullmatch(text_of(template.get("validityPeriod")))
    if match is None:
        return None
    years, days, hours = (int(match[name] or 0) for name in ("years", "days", "hours"))
    return timedelta(days=366 * years + days, hours=hours) or None


def _keys(key_types: object) -> KeyRules:
    if not isinstance(key_types, list):
        return KeyRules()
    types = {text_of(mapping(item).get("keyType")).upper(): mapping(item) for item in key_types}
    lengths = types.get("RSA", {}).get("keyLengths")
    curves = types.get("EC", {}).get("keyCurves")
    return KeyRules(
        algorithms=frozenset(types),
        rsa_sizes=frozenset(length for length in lengths if isinstance(length, int))
        if isinstance(lengths, list)
        else None,
        curves=frozenset(map(str.upper, texts_of(curves))) if isinstance(curves, list) else None,
    )

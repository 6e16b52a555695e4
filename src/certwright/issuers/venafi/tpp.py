"""Certificate Manager Self-Hosted, formerly Trust Protection Platform (TPP).

Source: its Web SDK, `vedauth/authorize/*` and `vedsdk/certificates/*`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from certwright.issuers.servers import (
    Calls,
    Headers,
    Refused,
    Token,
    Unavailable,
    mapping,
    text_of,
    texts_of,
)
from certwright.issuers.venafi.policies import Allowed, Domains, KeyRules, OneOf, ZonePolicy
from certwright.issuers.venafi.products import CertificateOrder
from certwright.issuers.venafi.settings import Password, Settings
from certwright.pki.csr import CsrFacts

_LONGEST_DN: Final = 1024
"""Characters: it becomes an annotation."""
_ROOT: Final = "\\VED\\Policy"
_SCOPE: Final = "certificate:manage"
_ORIGIN: Final = "certwright"
_END_DATES: Final = tuple(
    f"{prefix}Specific End Date" for prefix in ("", "Microsoft CA:", "DigiCert CA:", "EntrustNET CA:")
)
"""The attributes by which TPP passes the end of a lifetime to its CA drivers; each reads its own."""
_SAN_TYPES: Final[tuple[tuple[int, Callable[[CsrFacts], tuple[str, ...]]], ...]] = (
    (2, lambda csr: csr.dns_names),
    (1, lambda csr: csr.email_addresses),
    (6, lambda csr: csr.uris),
    (7, lambda csr: csr.ip_addresses),
)
"""The numbers of GeneralName (RFC 5280 §4.2.1.6)."""
_SAN_RULES: Final = (
    ("SubjAltNameIpAllowed", "ip_addresses"),
    ("SubjAltNameUriAllowed", "uris"),
    ("SubjAltNameEmailAllowed", "email_addresses"),
)
_SUBJECT_RULES: Final = (
    ("Organization", "organizations"),
    ("OrganizationalUnit", "organizational_units"),
    ("City", "localities"),
    ("State", "provinces"),
    ("Country", "countries"),
)


def zone_dn(zone: str) -> str:
    """The distinguished name of a policy folder, which a zone may name with or without its root."""
    path = zone.strip().strip("\\")
    if path.lower().startswith(_ROOT.strip("\\").lower()):
        return f"\\{path}"
    return f"{_ROOT}\\{path}"


class TppClient:
    """Calls to one server, in one zone. `now` returns the time."""

    def __init__(self, calls: Calls, settings: Settings, now: Callable[[], datetime]) -> None:
        self._calls = calls
        self._server = settings.server
        self._zone = zone_dn(settings.zone)
        self._now = now

    async def log_in(self, password: Password) -> Token:
        """A token for a user's name and password."""
        body = {
            "client_id": password.client_id,
            "username": password.username,
            "password": password.password,
            "scope": _SCOPE,
        }
        answer = await self._calls.post(f"{self._server}/vedauth/authorize/oauth", body)
        return self._token(answer.data)

    async def refresh(self, client_id: str, refresh_token: str) -> Token:
        """A token for a refresh token."""
        body = {"client_id": client_id, "refresh_token": refresh_token}
        answer = await self._calls.post(f"{self._server}/vedauth/authorize/token", body)
        return self._token(answer.data)

    async def check_credentials(self, token: str) -> None:
        await self._calls.get(f"{self._server}/vedauth/authorize/verify", _bearer(token))

    async def check_reachable(self) -> None:
        await self._calls.is_reachable(f"{self._server}/vedauth/authorize/verify")

    async def read_zone(self, token: str) -> ZonePolicy:
        answer = await self._calls.post(
            f"{self._server}/vedsdk/certificates/checkpolicy", {"PolicyDN": self._zone}, _bearer(token)
        )
        policy = answer.data.get("Policy")
        if not isinstance(policy, dict):
            raise Refused(f"the server has no policy for {self._zone}", 404)
        wildcards = policy.get("WildcardsAllowed") is not False
        domains = Domains(texts_of(policy.get("WhitelistedDomains")), wildcards)
        names: dict[str, Allowed] = {"common_name": domains, "dns_names": domains}
        if policy.get("SubjAltNameDnsAllowed") is False:
            names["dns_names"] = OneOf(frozenset())
        for rule, name in _SAN_RULES:
            if policy.get(rule) is False:
                names[name] = OneOf(frozenset())
        subject = mapping(policy.get("Subject"))
        for rule, name in _SUBJECT_RULES:
            entry = mapping(subject.get(rule))
            values = (*texts_of(entry.get("Values")), text_of(entry.get("Value")))
            if entry.get("Locked") is True and any(values):
                names[name] = OneOf(frozenset(values))
        return ZonePolicy(names=names, keys=_keys(mapping(policy.get("KeyPair"))))

    def pickup_id(self, csr: CsrFacts) -> str:
        """See `ProductClient`: the distinguished name of the certificate object."""
        return f"{self._zone}\\{_object_name(csr)}"

    async def place(self, token: str, order: CertificateOrder, zone: ZonePolicy) -> str:
        del zone
        await self._reset(token, self.pickup_id(order.csr))
        answer = await self._calls.post(
            f"{self._server}/vedsdk/certificates/request", self._body(order), _bearer(token)
        )
        certificate_dn = text_of(answer.data.get("CertificateDN"))
        if not certificate_dn or len(certificate_dn) > _LONGEST_DN or not certificate_dn.isprintable():
            raise Unavailable(f"{self._server}/vedsdk/certificates/request answered without a CertificateDN")
        return certificate_dn

    async def fetch(self, token: str, pickup_id: str) -> str | None:
        body = {
            "CertificateDN": pickup_id,
            "Format": "base64",
            "IncludeChain": True,
            "RootFirstOrder": False,
        }
        url = f"{self._server}/vedsdk/certificates/retrieve"
        answer = await self._calls.post(url, body, _bearer(token))
        if answer.status == 202:
            return None
        try:
            return base64.b64decode(text_of(answer.data.get("CertificateData")), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise Unavailable(f"{url} answered without a certificate") from error

    async def _reset(self, token: str, pickup_id: str) -> None:
        """End an enrollment of this object that is in progress or has failed: TPP refuses another until then.
        A refusal here means that there is none, or the request repeats it."""
        try:
            await self._calls.post(
                f"{self._server}/vedsdk/certificates/reset",
                {"CertificateDN": pickup_id, "Restart": False},
                _bearer(token),
            )
        except Refused:
            return

    def _body(self, order: CertificateOrder) -> dict[str, Any]:
        end = (self._now().astimezone(UTC) + order.lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
        fields: dict[str, list[str]] = {}
        for field in order.custom_fields:
            fields.setdefault(field.name, []).append(field.value)
        return {
            "PolicyDN": self._zone,
            "ObjectName": _object_name(order.csr),
            "PKCS10": order.csr_pem,
            "SubjectAltNames": [
                {"Type": number, "Name": name} for number, names in _SAN_TYPES for name in names(order.csr)
            ],
            "CertificateType": "AUTO",
            "DisableAutomaticRenewal": True,
            "Reenable": True,
            "Origin": _ORIGIN,
            "CASpecificAttributes": [
                {"Name": "Origin", "Value": _ORIGIN},
                *({"Name": name, "Value": end} for name in _END_DATES),
            ],
            "CustomFields": [{"Name": name, "Values": values} for name, values in fields.items()],
        }

    def _token(self, data: Mapping[str, Any]) -> Token:
        value = text_of(data.get("access_token"))
        if not value:
            raise Unavailable(f"{self._server}/vedauth/authorize answered without an access token")
        expires = data.get("expires")
        lifetime = None
        if isinstance(expires, int) and 0 < expires < 2**37:
            # Seconds since 1970. A time in the past, by our clock, is no reason to log in for every call.
            left = datetime.fromtimestamp(expires, UTC) - self._now()
            lifetime = left if left > timedelta(0) else None
        return Token(value, lifetime, text_of(data.get("refresh_token")))


def _bearer(token: str) -> Headers:
    return (("Authorization", f"Bearer {token}"),)


def _object_name(csr: CsrFacts) -> str:
    """The name of the certificate object, as cert-manager chooses it."""
    names = (csr.common_name, *csr.dns_names, *csr.uris, *csr.email_addresses, *csr.ip_addresses)
    # A backslash would lead to another folder.
    return next((name for name in names if name), "").replace("\\", "_")


def _keys(pair: Mapping[str, Any]) -> KeyRules:
    algorithm, size, curve = (mapping(pair.get(key)) for key in ("KeyAlgorithm", "KeySize", "EllipticCurve"))
    algorithms = {"RSA": frozenset({"RSA"}), "ECC": frozenset({"EC"})}
    least, name = size.get("Value"), text_of(curve.get("Value")).upper()
    return KeyRules(
        algorithms=algorithms.get(text_of(algorithm.get("Value")).upper())
        if algorithm.get("Locked")
        else None,
        rsa_minimum=least if size.get("Locked") is True and isinstance(least, int) else 0,
        curves=frozenset({name}) if curve.get("Locked") is True and name else None,
    )

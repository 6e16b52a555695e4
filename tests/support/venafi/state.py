"""What the fake knows: accounts, tokens, policies, orders, and the faults that a test asks for."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from certwright.pki.csr import read_csr
from certwright.pki.signing import sign
from issuers.authority import Authority, new_root

API_KEY = "0d7d5c6e-key"
TSG = "1234567890"

_OPEN: dict[str, Any] = {"Locked": False, "Value": ""}
TPP_POLICY: dict[str, Any] = {
    "CertificateAuthority": {"Locked": False, "Value": "\\VED\\Policy\\CA"},
    "CsrGeneration": {"Locked": False, "Value": "UserProvided"},
    "KeyGeneration": _OPEN,
    "ManagementType": {"Locked": False, "Value": "Enrollment"},
    "KeyPair": {
        "KeyAlgorithm": {"Locked": False, "Value": "RSA"},
        "KeySize": {"Locked": False, "Value": 2048},
        "EllipticCurve": {"Locked": False, "Value": "P256"},
    },
    "PrivateKeyReuseAllowed": True,
    "SubjAltNameDnsAllowed": True,
    "SubjAltNameEmailAllowed": True,
    "SubjAltNameIpAllowed": True,
    "SubjAltNameUpnAllowed": True,
    "SubjAltNameUriAllowed": True,
    "Subject": {
        "City": _OPEN,
        "Country": _OPEN,
        "Organization": _OPEN,
        "OrganizationalUnit": {"Locked": False, "Values": []},
        "State": _OPEN,
    },
    "UniqueSubjectEnforced": False,
    "WhitelistedDomains": [],
    "WildcardsAllowed": True,
}
TEMPLATE: dict[str, Any] = {
    "id": "2f6b0a1e-template",
    "companyId": "company",
    "name": "Web",
    "certificateAuthority": "BUILTIN",
    "validityPeriod": "P365D",
    "subjectCNRegexes": [".*"],
    "subjectORegexes": [".*"],
    "subjectOURegexes": [".*"],
    "subjectLRegexes": [".*"],
    "subjectSTRegexes": [".*"],
    "subjectCValues": [".*"],
    "sanRegexes": [".*"],
    "sanRfc822NameRegexes": [".*"],
    "sanIpAddressRegexes": [".*"],
    "sanUniformResourceIdentifierRegexes": [".*"],
    "keyTypes": [
        {"keyType": "RSA", "keyLengths": [2048, 3072, 4096]},
        {"keyType": "EC", "keyCurves": ["P256", "P384", "P521", "ED25519"]},
    ],
    "keyReuse": False,
}


@dataclass
class Order:
    """An order; `polls` retrievals say that it is pending before the certificate is issued."""

    csr_pem: bytes
    duration: timedelta
    polls: int
    body: Mapping[str, Any] = field(default_factory=dict)
    issued: list[bytes] = field(default_factory=list)
    certificate_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass
class State:
    """`answers` replaces what a path answers: status, headers, body. `calls` counts requests by their first
    path parts."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    users: dict[str, str] = field(default_factory=lambda: {"alice": "secret"})
    clients: tuple[str, ...] = ("cert-manager.io", "vcert-sdk")
    tokens: dict[str, float] = field(default_factory=dict)
    refresh_tokens: set[str] = field(default_factory=set)
    token_s: int = 3600
    policy: dict[str, Any] = field(default_factory=lambda: dict(TPP_POLICY))
    template: dict[str, Any] = field(default_factory=lambda: dict(TEMPLATE))
    polls: int = 0
    orders: dict[str, Order] = field(default_factory=dict)
    placed: list[str] = field(default_factory=list)
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    root: Authority = field(default_factory=lambda: new_root("Fake Venafi Root"))
    issuing: Authority | None = None

    def new_token(self) -> str:
        token = f"token-{uuid.uuid4()}"
        self.tokens[token] = time.monotonic() + self.token_s
        return token

    def new_refresh_token(self) -> str:
        """A refresh token, for one use."""
        token = f"refresh-{uuid.uuid4()}"
        self.refresh_tokens.add(token)
        return token

    def is_valid(self, token: str) -> bool:
        """Whether the token may be used."""
        return self.tokens.get(token, 0.0) > time.monotonic()

    def place(self, key: str, order: Order) -> None:
        """Take an order. Raises `PkiError` for a request that cannot be read."""
        read_csr(order.csr_pem)
        self.orders[key] = order
        self.placed.append(key)

    def chain(self, order: Order) -> list[bytes]:
        """The certificate, its issuer and the root (PEM); empty while the order is pending."""
        if order.polls > 0:
            order.polls -= 1
            return []
        if order.issued:
            return list(order.issued)
        if self.issuing is None:
            self.issuing = self.root.issue("Fake Venafi Issuing")
        leaf = sign(
            order.csr_pem,
            ca_cert=self.issuing.facts,
            ca_key=self.issuing.key,
            duration=order.duration,
            is_ca=False,
            usages=read_csr(order.csr_pem).usages or (),
            now=self.now,
        )
        order.issued = [leaf, self.issuing.pem, self.root.pem]
        return list(order.issued)

"""CAs for tests of issuers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from certwright.pki.certificates import CertificateFacts, read_certificate
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, PrivateKey, encode_private_key, generate
from certwright.pki.signing import self_sign, sign

_BEGIN = datetime(2025, 12, 1, tzinfo=UTC)
_YEAR = timedelta(days=365)


@dataclass(frozen=True)
class Authority:
    """A CA certificate and its key."""

    pem: bytes
    key: PrivateKey

    @classmethod
    def fresh(
        cls, name: str, *, now: datetime, duration: timedelta = _YEAR, key: PrivateKey | None = None
    ) -> Authority:
        """A root CA that is valid from now on."""
        key = key or generate(KeyPlan.of("ECDSA"))
        csr = build_csr(CsrPlan(common_name=name, is_ca=True), key)
        return cls(self_sign(csr, key=key, duration=duration, is_ca=True, usages=(), now=now), key)

    @property
    def facts(self) -> CertificateFacts:
        return read_certificate(self.pem)

    def secret(self, *above: Authority, ca: Authority | None = None) -> dict[str, bytes]:
        """A Secret with this CA's pair, the CAs above it in `tls.crt`, and `ca` in `ca.crt`."""
        data = {
            "tls.crt": self.pem + b"".join(authority.pem for authority in above),
            "tls.key": encode_private_key(self.key),
        }
        return data | ({"ca.crt": ca.pem} if ca else {})

    def issue(self, name: str, *, is_ca: bool = True, key: PrivateKey | None = None) -> Authority:
        key = key or generate(KeyPlan.of("ECDSA"))
        csr = build_csr(CsrPlan(common_name=name, is_ca=is_ca), key)
        pem = sign(
            csr, ca_cert=self.facts, ca_key=self.key, duration=_YEAR, is_ca=is_ca, usages=(), now=_BEGIN
        )  # fmt: skip
        return Authority(pem, key)

    def sign(self, csr: bytes, *, now: datetime, duration: timedelta = timedelta(days=90)) -> bytes:
        """A certificate for somebody's signing request."""
        return sign(
            csr, ca_cert=self.facts, ca_key=self.key, duration=duration, is_ca=False, usages=(), now=now
        )  # fmt: skip


def new_root(name: str, algorithm: str = "ECDSA", *, is_ca: bool = True) -> Authority:
    """A root CA, or with `is_ca=False` a self-signed certificate that is none."""
    key = generate(KeyPlan.of(algorithm))
    csr = build_csr(CsrPlan(common_name=name, is_ca=is_ca), key)
    return Authority(self_sign(csr, key=key, duration=_YEAR, is_ca=is_ca, usages=(), now=_BEGIN), key)

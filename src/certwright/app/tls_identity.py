"""The server's TLS identity: a small private CA, and the serving certificate.

Clients trust the CA, which stays (every kubeconfig embeds it); the serving certificate is re-issued when a
third of its lifetime is left, when the server's names have changed, or when a file is missing or does not
match. Key and certificate are written in an order that survives any crash: a pair that does not match is
re-issued.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography.exceptions import InvalidSignature

from certwright.kube.util.files import PUBLIC, write_atomically
from certwright.pki import keys
from certwright.pki.certificates import CertificateFacts, read_certificate
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.errors import PkiError
from certwright.pki.keys import KeyAlgorithm, KeyEncoding, KeyPlan, PrivateKey
from certwright.pki.signing import self_sign, sign

CA_LIFE = timedelta(days=3650)
SERVING_LIFE = timedelta(days=365)
# A client whose clock is slightly slow must not reject a new certificate.
_BACKDATED = timedelta(hours=1)
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,60}[A-Za-z0-9])?")
_PLAN = KeyPlan(KeyAlgorithm.ECDSA, 256)


@dataclass(frozen=True, slots=True)
class ServingIdentity:
    """The serving pair's files, the CA that clients trust (PEM, and its file), and when to check again."""

    ca_pem: bytes
    ca_path: Path
    cert_path: Path
    key_path: Path
    renew_at: datetime


def load_or_make(folder: Path, *, host: str, now: datetime) -> ServingIdentity:
    """Load the identity from `folder`, created or renewed as needed. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca_cert, ca_key = _ca(folder, now)
    cert_path, key_path = folder / "server.crt", folder / "server.key"
    names, addresses = _reached_by(host)
    facts = _fitting(cert_path, key_path, ca_cert, (names, addresses), now)
    if facts is None:
        facts = _make_serving(cert_path, key_path, (ca_cert, ca_key), (names, addresses), now)
    return ServingIdentity(ca_cert.pem, folder / "ca.crt", cert_path, key_path, _renew_at(facts))


def _renew_at(facts: CertificateFacts) -> datetime:
    return facts.not_after - (facts.not_after - facts.not_before) / 3


def _ca(folder: Path, now: datetime) -> tuple[CertificateFacts, PrivateKey]:
    cert_path, key_path = folder / "ca.crt", folder / "ca.key"
    pair = _read_pair(cert_path, key_path)
    if pair is not None and pair[0].may_sign and now < _renew_at(pair[0]):
        return pair
    key = keys.generate(_PLAN)
    plan = CsrPlan(common_name="certwright API server", is_ca=True, usages=("digital signature", "cert sign"))
    pem = self_sign(
        build_csr(plan, key),
        key=key,
        duration=CA_LIFE,
        is_ca=True,
        usages=plan.usages,
        now=now - _BACKDATED,
    )
    _write_pair(cert_path, key_path, pem, key)
    return read_certificate(pem), key


def _make_serving(
    cert_path: Path,
    key_path: Path,
    ca: tuple[CertificateFacts, PrivateKey],
    reached_by: tuple[tuple[str, ...], tuple[str, ...]],
    now: datetime,
) -> CertificateFacts:
    names, addresses = reached_by
    key = keys.generate(_PLAN)
    plan = CsrPlan(
        common_name="certwright",
        dns_names=names,
        ip_addresses=addresses,
        usages=("digital signature", "server auth"),
    )
    pem = sign(
        build_csr(plan, key),
        ca_cert=ca[0],
        ca_key=ca[1],
        duration=SERVING_LIFE,
        is_ca=False,
        usages=plan.usages,
        now=now - _BACKDATED,
    )
    _write_pair(cert_path, key_path, pem, key)
    return read_certificate(pem)


def _fitting(
    cert_path: Path,
    key_path: Path,
    ca: CertificateFacts,
    reached_by: tuple[tuple[str, ...], tuple[str, ...]],
    now: datetime,
) -> CertificateFacts | None:
    pair = _read_pair(cert_path, key_path)
    if pair is None:
        return None
    facts, _ = pair
    names, addresses = reached_by
    fits = (
        facts.parsed.issuer == ca.parsed.subject
        and set(names) <= set(facts.dns_names)
        and set(addresses) <= set(facts.ip_addresses)
        and facts.not_before <= now < _renew_at(facts)
    )
    return facts if fits and _signed_by(facts, ca) else None


def _signed_by(facts: CertificateFacts, ca: CertificateFacts) -> bool:
    try:
        facts.parsed.verify_directly_issued_by(ca.parsed)
    except (ValueError, TypeError, InvalidSignature):  # another issuer, another key type, another key
        return False
    return True


def _read_pair(cert_path: Path, key_path: Path) -> tuple[CertificateFacts, PrivateKey] | None:
    """The pair, or None if a file is missing or unreadable, or the two do not match."""
    try:
        facts, key = read_certificate(cert_path.read_bytes()), keys.load_private_key(key_path.read_bytes())
    except (FileNotFoundError, PkiError):
        return None
    return (facts, key) if keys.public_key_der(key) == facts.public_key_der else None


def _write_pair(cert_path: Path, key_path: Path, pem: bytes, key: PrivateKey) -> None:
    write_atomically(key_path, keys.encode_private_key(key, KeyEncoding.PKCS8))
    write_atomically(cert_path, pem, mode=PUBLIC)


def _reached_by(host: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and addresses for clients: loopback always, and those that the server listens on."""
    names, addresses = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"], []
    addresses += ["127.0.0.1", "::1"]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        names.append(host)
    else:
        addresses.append(str(address))
        if address.is_unspecified and _HOST_NAME.fullmatch(socket.gethostname()):
            names.append(socket.gethostname())
    return tuple(dict.fromkeys(names)), tuple(dict.fromkeys(addresses))

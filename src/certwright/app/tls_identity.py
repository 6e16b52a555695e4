"""The server's TLS identity: a small private CA, and the serving certificate.

Clients trust the CA, because every kubeconfig embeds it. When a third of its lifetime is left, it is renewed
with the same key and subject: kubeconfigs of before stay valid until the former CA certificate expires, years
later, and what was signed before is valid under both. The serving certificate is re-issued when a third of
its lifetime is left, when the server's names have changed, or when a file is missing or does not match. Key
and certificate are written in an order that survives any crash: a pair that does not match is re-issued.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature

from certwright.app.options import ServeOptions
from certwright.kit import interfaces, logs
from certwright.kube.util.files import PUBLIC, write_atomically
from certwright.pki import keys
from certwright.pki.certificates import CertificateFacts, read_certificate
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.errors import PkiError
from certwright.pki.keys import KeyAlgorithm, KeyEncoding, KeyPlan, PrivateKey
from certwright.pki.renewal import renewal_time
from certwright.pki.roots import is_root, renewed
from certwright.pki.signing import self_sign, sign

_log = logging.getLogger(__name__)

CA_LIFE = timedelta(days=3650)
SERVING_LIFE = timedelta(days=365)
# A client whose clock is slightly slow must not reject a new certificate.
_BACKDATED = timedelta(hours=1)
# A clock that shows an earlier time is wrong, as is one that is a little behind the CA's beginning: without a
# battery it may start anywhere. A CA that begins later was made by a clock that was ahead.
_WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)
_MAY_BE_BEHIND = timedelta(days=30)
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,60}[A-Za-z0-9])?")
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
"""Every address of this machine, as a host to listen on."""
_PLAN = KeyPlan(KeyAlgorithm.ECDSA, 256)


class ServingIdentity(msgspec.Struct, frozen=True):
    """The serving pair's files, the CA that clients trust (PEM, and its file), when to check again, and the
    names and addresses of the certificate."""

    ca_pem: bytes
    ca_path: Path
    cert_path: Path
    key_path: Path
    renew_at: datetime
    names: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True):
    """Where the identity is kept, the host that the server listens on, and further names and addresses."""

    folder: Path
    host: str
    sans: tuple[str, ...] = ()


def settings_of(options: ServeOptions) -> Settings:
    """The settings of a server."""
    return Settings(options.data_dir / "pki", options.host, options.tls_sans)


def load_or_make(settings: Settings, *, now: datetime) -> ServingIdentity:
    """Load the identity, created or renewed as needed. Raises `OSError`."""
    folder = settings.folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca_cert, ca_key = _ca(folder, now)
    cert_path, key_path = folder / "server.crt", folder / "server.key"
    names, addresses = _reached_by(settings)
    facts = _fitting(cert_path, key_path, ca_cert, (names, addresses), now)
    if facts is None:
        facts = _make_serving(cert_path, key_path, (ca_cert, ca_key), (names, addresses), now)
    names = (*facts.dns_names, *facts.ip_addresses)
    renew_at = min(_renew_at(facts), _renew_at(ca_cert))
    return ServingIdentity(ca_cert.pem, folder / "ca.crt", cert_path, key_path, renew_at, names)


def _renew_at(facts: CertificateFacts) -> datetime:
    return renewal_time(facts.not_before, facts.not_after)


def _ca(folder: Path, now: datetime) -> tuple[CertificateFacts, PrivateKey]:
    cert_path, key_path = folder / "ca.crt", folder / "ca.key"
    pair, former = _read_pair(cert_path, key_path), (folder / "ca.former.crt", folder / "ca.former.key")
    if pair is not None and _is_usable(pair[0], now):
        return pair
    if pair is not None and pair[0].may_sign:
        if pair[0].not_before > now:
            before = _read_pair(*former)
            if before is not None and _is_usable(before[0], now):
                # The clock was ahead when the CA was replaced; clients still trust the former one.
                _write_pair(cert_path, key_path, before[0].pem, before[1])
                return before
            if now < _WRITTEN or pair[0].not_before - now < _MAY_BE_BEHIND:
                return pair
        _write_pair(*former, pair[0].pem, pair[1])
        if is_root(pair[0]):
            pem = _renewed_ca(*pair, now)
            # The key file stays, so a crash leaves the pair of before or this one.
            write_atomically(cert_path, pem, mode=PUBLIC)
            return read_certificate(pem), pair[1]
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
    facts = read_certificate(pem)
    _event("the server's own CA was issued", notAfter=facts.not_after)
    return facts, key


def _renewed_ca(ca: CertificateFacts, key: PrivateKey, now: datetime) -> bytes:
    """The CA for another lifetime. Servers that share it renew it at different moments, and get the same
    bytes, because the dates follow from those of the certificate."""
    begin = _renew_at(ca) if ca.not_before <= now < ca.not_after else now
    begin = begin.replace(microsecond=0) - _BACKDATED
    return renewed(ca, key, begin=begin, end=begin + CA_LIFE)


def _is_usable(ca: CertificateFacts, now: datetime) -> bool:
    return ca.may_sign and ca.not_before <= now < _renew_at(ca)


def _make_serving(
    cert_path: Path,
    key_path: Path,
    ca: tuple[CertificateFacts, PrivateKey],
    reached_by: tuple[tuple[str, ...], tuple[str, ...]],
    now: datetime,
) -> CertificateFacts:
    (names, addresses), is_first = reached_by, not cert_path.exists()
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
    facts = read_certificate(pem)
    _event(
        "the server's own certificate was " + ("issued" if is_first else "renewed"),
        names=",".join((*facts.dns_names, *facts.ip_addresses)),
        notAfter=facts.not_after,
        renewal=_renew_at(facts),
    )
    return facts


def _event(message: str, **values: logs.Value) -> None:
    logs.event(_log, logging.INFO, message, subject="server", **values)


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


def _reached_by(settings: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and addresses for clients: loopback always, those that the server listens on, and those that
    the operator has given."""
    hosts = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", "::1"]
    if settings.host in ANY_ADDRESS:
        hosts += interfaces.own_addresses()
        if _HOST_NAME.fullmatch(socket.gethostname()):
            hosts.append(socket.gethostname())
    else:
        hosts.append(settings.host)
    names, addresses = [], []
    for text in (*hosts, *settings.sans):
        try:
            addresses.append(str(ipaddress.ip_address(text)))
        except ValueError:
            names.append(text)
    return tuple(dict.fromkeys(names)), tuple(dict.fromkeys(addresses))

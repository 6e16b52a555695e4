"""The server's TLS identity: a small private CA and the serving certificate; and a second CA with the client
certificate of the proxy to aggregated servers.

Clients trust the CA, because every kubeconfig embeds it. When a third of its lifetime is left, the CA is
renewed with the same key and subject: older kubeconfigs stay valid until the former CA certificate expires,
years later, and older certificates are valid under both. The serving certificate is re-issued when a third of
its lifetime is left, when the server's names have changed, or when a file is missing or does not match. Key
and certificate are written in an order that survives any crash: a pair that does not match is re-issued.

The proxy has a separate CA, because its certificates may name any user to aggregated servers; client
certificates may not.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature

from certwright.app.options import ServeOptions
from certwright.kit import logs
from certwright.kube.apiserver.aggregation_proxy import CLIENT_NAME, FrontProxy
from certwright.kube.util.files import PUBLIC, write_atomically
from certwright.pki import keys
from certwright.pki.certificates import CertificateFacts, read_certificate
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.errors import PkiError
from certwright.pki.keys import KeyAlgorithm, KeyEncoding, KeyPlan, PrivateKey
from certwright.pki.renewal import renewal_time
from certwright.pki.signing import is_root, self_sign, sign
from certwright.pki.signing import renewed_root as renewed

_log = logging.getLogger(__name__)

CA_LIFE = timedelta(days=3650)
SERVING_LIFE = timedelta(days=365)
# A client whose clock is slightly slow must not reject a new certificate.
_BACKDATED = timedelta(hours=1)
# A clock before this time is wrong, and so is a clock slightly before the CA's beginning: without a battery
# it may start anywhere. A CA that begins in the future was made by a clock that was ahead.
_WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)
_MAY_BE_BEHIND = timedelta(days=30)
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,60}[A-Za-z0-9])?")
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
"""Every address of this machine, as a host to listen on."""
_IN_CLUSTER = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
"""The names of the Service of the API server, as in kubeadm's certificate."""
_PLAN = KeyPlan(KeyAlgorithm.ECDSA, 256)


class ServingIdentity(msgspec.Struct, frozen=True):
    """The serving pair's files, the CA that clients trust (PEM, and its file), the client certificate for
    aggregated servers, since when all are valid and when to renew them, and the names and addresses of the
    serving certificate."""

    ca_pem: bytes
    ca_path: Path
    cert_path: Path
    key_path: Path
    front_proxy: FrontProxy
    valid_from: datetime
    renew_at: datetime
    names: tuple[str, ...] = ()

    def is_due(self, now: datetime) -> bool:
        """Whether a certificate is to be renewed, or was issued while the clock was ahead."""
        return not self.valid_from <= now < self.renew_at


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
    ca = _ca(_Pair.in_folder(folder, "ca", "the server's own CA", "certwright API server"), now)
    proxy_files = _Pair.in_folder(folder, "front-proxy-ca", "the front proxy's CA", "certwright front proxy")
    proxy_ca = _ca(proxy_files, now)
    names, addresses = _reached_by(settings)
    plan = CsrPlan(
        common_name="certwright",
        dns_names=names,
        ip_addresses=addresses,
        usages=("digital signature", "server auth"),
    )
    server = _leaf(_Pair.in_folder(folder, "server", "the server's own certificate"), ca, plan, now)
    proxy_plan = CsrPlan(common_name=CLIENT_NAME, usages=("digital signature", "client auth"))
    client = _Pair.in_folder(folder, "front-proxy-client", "the front proxy's certificate")
    proxy = _leaf(client, proxy_ca, proxy_plan, now)
    everything = [ca.facts, proxy_ca.facts, server, proxy]
    return ServingIdentity(
        ca.facts.pem,
        folder / "ca.crt",
        folder / "server.crt",
        folder / "server.key",
        FrontProxy(proxy.pem + client.key.read_bytes(), proxy_ca.facts.pem),
        max(facts.not_before for facts in everything),
        min(map(renew_at, everything)),
        (*server.dns_names, *server.ip_addresses),
    )


class _Pair(NamedTuple):
    """The files of a certificate and its key; `what`: its name in the log; `subject`: the common name of a
    CA."""

    cert: Path
    key: Path
    what: str
    subject: str = ""

    @classmethod
    def in_folder(cls, folder: Path, stem: str, what: str, subject: str = "") -> _Pair:
        """The files `STEM.crt` and `STEM.key`."""
        return cls(folder / f"{stem}.crt", folder / f"{stem}.key", what, subject)


class Signed(NamedTuple):
    """A certificate and its key."""

    facts: CertificateFacts
    key: PrivateKey


def new_ca(subject: str, life: timedelta, *, now: datetime) -> Signed:
    """A new CA of that common name."""
    plan = CsrPlan(common_name=subject, is_ca=True, usages=("digital signature", "cert sign"))
    return self_signed(plan, life, now=now)


def self_signed(plan: CsrPlan, life: timedelta, *, now: datetime) -> Signed:
    """A new self-signed certificate."""
    key = keys.generate(_PLAN)
    csr = build_csr(plan, key)
    pem = self_sign(csr, key=key, duration=life, is_ca=plan.is_ca, usages=plan.usages, now=now)
    return Signed(read_certificate(pem), key)


def new_leaf(ca: Signed, plan: CsrPlan, life: timedelta, *, now: datetime) -> Signed:
    """A new certificate that the CA signs."""
    key = keys.generate(_PLAN)
    csr = build_csr(plan, key)
    pem = sign(csr, ca_cert=ca.facts, ca_key=ca.key, duration=life, is_ca=False, usages=plan.usages, now=now)
    return Signed(read_certificate(pem), key)


def read_pair(pem: bytes, key_pem: bytes) -> Signed | None:
    """The pair; None if one is unreadable, or the two do not match."""
    try:
        pair = Signed(read_certificate(pem), keys.load_private_key(key_pem))
    except PkiError:
        return None
    return pair if keys.public_key_der(pair.key) == pair.facts.public_key_der else None


def renew_at(facts: CertificateFacts) -> datetime:
    """When a third of its lifetime is left."""
    return renewal_time(facts.not_before, facts.not_after)


def _ca(files: _Pair, now: datetime) -> Signed:
    cert_path, key_path = files.cert, files.key
    pair = _read_pair(cert_path, key_path)
    former = cert_path.with_suffix(".former.crt"), cert_path.with_suffix(".former.key")
    if pair is not None and _is_usable(pair.facts, now):
        return pair
    if pair is not None and pair.facts.may_sign:
        if pair.facts.not_before > now:
            before = _read_pair(*former)
            if before is not None and _is_usable(before.facts, now):
                # The clock was ahead when the CA was replaced; clients still trust the former one.
                _write_pair(cert_path, key_path, before.facts.pem, before.key)
                return before
            if now < _WRITTEN or pair.facts.not_before - now < _MAY_BE_BEHIND:
                return pair
        _write_pair(*former, pair.facts.pem, pair.key)
        if is_root(pair.facts):
            pem = _renewed_ca(*pair, now)
            # The key file stays, so a crash leaves the pair of before or this one.
            write_atomically(cert_path, pem, mode=PUBLIC)
            return Signed(read_certificate(pem), pair.key)
    made = new_ca(files.subject, CA_LIFE, now=now - _BACKDATED)
    _write_pair(cert_path, key_path, made.facts.pem, made.key)
    _event(f"{files.what} was issued", notAfter=made.facts.not_after)
    return made


def _renewed_ca(ca: CertificateFacts, key: PrivateKey, now: datetime) -> bytes:
    """The CA for another lifetime. Servers that share the CA renew it at different moments and get the same
    bytes, because its dates follow from the present certificate's."""
    begin = renew_at(ca) if ca.not_before <= now < ca.not_after else now
    begin = begin.replace(microsecond=0) - _BACKDATED
    return renewed(ca, key, begin=begin, end=begin + CA_LIFE)


def _is_usable(ca: CertificateFacts, now: datetime) -> bool:
    return ca.may_sign and ca.not_before <= now < renew_at(ca)


def _leaf(files: _Pair, ca: Signed, plan: CsrPlan, now: datetime) -> CertificateFacts:
    """The certificate in the files, or a new one if it does not fit."""
    if (stored := _fitting(files, ca.facts, plan, now)) is not None:
        return stored
    is_first = not files.cert.exists()
    facts, key = new_leaf(ca, plan, SERVING_LIFE, now=now - _BACKDATED)
    _write_pair(files.cert, files.key, facts.pem, key)
    _event(
        f"{files.what} was {'issued' if is_first else 'renewed'}",
        names=",".join((*facts.dns_names, *facts.ip_addresses)) or plan.common_name,
        notAfter=facts.not_after,
        renewal=renew_at(facts),
    )
    return facts


def _event(message: str, **values: logs.Value) -> None:
    logs.event(_log, logging.INFO, message, subject="server", **values)


def _fitting(files: _Pair, ca: CertificateFacts, plan: CsrPlan, now: datetime) -> CertificateFacts | None:
    pair = _read_pair(files.cert, files.key)
    if pair is None:
        return None
    facts, _ = pair
    fits = (
        facts.parsed.issuer == ca.parsed.subject
        and set(plan.dns_names) <= set(facts.dns_names)
        and set(plan.ip_addresses) <= set(facts.ip_addresses)
        and facts.not_before <= now < renew_at(facts)
    )
    return facts if fits and _signed_by(facts, ca) else None


def _signed_by(facts: CertificateFacts, ca: CertificateFacts) -> bool:
    try:
        facts.parsed.verify_directly_issued_by(ca.parsed)
    except (ValueError, TypeError, InvalidSignature):  # another issuer, another key type, another key
        return False
    return True


def _read_pair(cert_path: Path, key_path: Path) -> Signed | None:
    """The pair; None if a file is missing or unreadable, or the two do not match."""
    try:
        return read_pair(cert_path.read_bytes(), key_path.read_bytes())
    except FileNotFoundError:
        return None


def _write_pair(cert_path: Path, key_path: Path, pem: bytes, key: PrivateKey) -> None:
    write_atomically(key_path, keys.encode_private_key(key, KeyEncoding.PKCS8))
    write_atomically(cert_path, pem, mode=PUBLIC)


def _reached_by(settings: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and addresses for clients: loopback, the listening addresses, and the operator's names."""
    hosts = ["localhost", *_IN_CLUSTER, "127.0.0.1", "::1"]
    if settings.host in ANY_ADDRESS:
        hosts += own_addresses()
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


# In place of netlink sockets, which a sandbox may lack (proc(5)); elsewhere the addresses of the host name.
_IPV4, _IPV6 = Path("/proc/net/fib_trie"), Path("/proc/net/if_inet6")
_LOCAL_ADDRESS = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")
# include/uapi/linux/if_addr.h: addresses that change daily (RFC 8981), or are not usable.
_TEMPORARY, _DEPRECATED, _TENTATIVE, _FAILED = 0x01, 0x20, 0x40, 0x08
_MOST = 64


def own_addresses() -> tuple[str, ...]:
    """The addresses by which other machines may reach this one, in canonical form; 64 at most. Link-local and
    temporary addresses are left out."""
    addresses = [*_read_ipv4(_text(_IPV4)), *_read_ipv6(_text(_IPV6))] or _of_host_name()
    return tuple(dict.fromkeys(addresses))[:_MOST]


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text()
    return ""


def _read_ipv4(fib_trie: str) -> list[str]:
    return [text for text in _LOCAL_ADDRESS.findall(fib_trie) if _is_reachable(text)]


def _read_ipv6(if_inet6: str) -> list[str]:
    addresses = []
    for line in if_inet6.splitlines():
        address, _, _, _, flags, *_ = line.split()
        text = str(ipaddress.IPv6Address(bytes.fromhex(address)))
        if _is_reachable(text) and not int(flags, 16) & (_TEMPORARY | _DEPRECATED | _TENTATIVE | _FAILED):
            addresses.append(text)
    return addresses


def _of_host_name() -> list[str]:
    with suppress(OSError):
        records = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        return [text for record in records if _is_reachable(text := str(record[4][0]).partition("%")[0])]
    return []


def _is_reachable(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return not (address.is_loopback or address.is_link_local or address.is_multicast)

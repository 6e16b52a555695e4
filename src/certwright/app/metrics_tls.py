"""TLS of the controllers' metrics and dashboard: a certificate from files, signed by a CA in a Secret, or
self-signed.

The certificate is checked every ten seconds; new connections use a new certificate. Before the first
certificate, handshakes fail; after a later failure, the former certificate stays in use.

The Secret of the CA has cert-manager's form: `tls.crt` and `ca.crt` are the CA, `tls.key` its key, and CAs
may be injected from it. All replicas use one CA; each replica has its own certificate, which is not stored.
The CA is replaced, with its key, when a third of its lifetime is left.

Source: cert-manager `pkg/server/tls` (files and CA are checked as often), `pkg/server/tls/authority`
(content, lifetimes, replacement).
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from certwright.app.tls_identity import Signed, new_ca, new_leaf, read_pair, renew_at, self_signed
from certwright.kit import logs
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.api.errors import AlreadyExists, ApiError, Conflict, NotFound, Unreachable
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.connections import load_pair
from certwright.kube.util.encoding import is_ip_address
from certwright.pki import keys
from certwright.pki.certificates import CertificateFacts
from certwright.pki.csr import CsrPlan
from certwright.pki.errors import PkiError
from certwright.pki.keys import KeyEncoding
from certwright.resources import names

_EVERY: Final = timedelta(seconds=10)
_log = logging.getLogger(__name__)


class CertificateFiles(msgspec.Struct, frozen=True):
    """A `Source` of PEM files: the certificate with its intermediate certificates, and its key."""

    cert: Path
    key: Path

    async def pem(self, _now: datetime) -> bytes:
        """See `Source`."""
        return await asyncio.to_thread(lambda: self.cert.read_bytes() + b"\n" + self.key.read_bytes())


class MetricsTls(msgspec.Struct, frozen=True, kw_only=True):
    """The settings. `ciphers` are OpenSSL's names for TLS 1.2; empty: those with ephemeral keys and AEAD."""

    source: CertificateFiles | CaSettings | OwnCertificate
    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: tuple[str, ...] = ()


class Source(Protocol):
    """Where the certificate comes from."""

    async def pem(self, now: datetime) -> bytes:
        """The certificate with its intermediate certificates, and its key. Raises `OSError`, `ApiError`,
        `Unreachable`, `PkiError`, and `ValueError` with a sentence."""


class OwnCertificate:
    """A `Source` with a self-signed certificate, whose fingerprint is logged for users to compare."""

    def __init__(self, dns_names: tuple[str, ...]) -> None:
        self._dns_names = dns_names
        self._pem = b""
        self._facts: CertificateFacts | None = None

    async def pem(self, now: datetime) -> bytes:
        """See `Source`."""
        if self._facts is None or not self._facts.not_before <= now < renew_at(self._facts):
            self._facts, key = self_signed(_plan(self._dns_names), CA_LIFE, now=now)
            self._pem = self._facts.pem + keys.encode_private_key(key, KeyEncoding.PKCS8)
            logs.event(
                _log,
                logging.WARNING,
                "the dashboard has its own certificate, which browsers warn of: compare its fingerprint, "
                "or name another with --dashboard-tls-cert-file",
                subject="server",
                sha256=self._facts.fingerprint.hex(":").upper(),
                notAfter=self._facts.not_after,
            )
        return self._pem


class ServingCertificate:
    """The certificate of the endpoint `name`. `context` uses the current one for each handshake."""

    def __init__(self, tls: MetricsTls, client: Client, clock: Clock, name: str = "metrics endpoint") -> None:
        self._tls = tls
        self._clock = clock
        self._name = name
        source = tls.source
        self._source: Source = SecretCa(client, source) if isinstance(source, CaSettings) else source
        self._pem = b""
        self._current: ssl.SSLContext | None = None
        self._problem = ""
        self.context = self._new_context()
        # Called for each handshake, also without a server name.
        self.context.sni_callback = self._choose

    async def keep(self) -> None:
        """Renew the certificate in time, for ever."""
        while True:
            await self._clock.sleep_until(self._clock.now() + _EVERY)
            await self.renew()

    async def renew(self) -> None:
        """Use the certificate that is current now; a failure is logged once."""
        try:
            pem = await self._source.pem(self._clock.now())
            if pem != self._pem:
                context = self._new_context()
                load_pair(context, pem, f"certificate of the {self._name}")
                self._current, self._pem = context, pem
                logs.event(_log, logging.INFO, f"the {self._name} has a new certificate", subject="server")
        except OSError as error:
            self._report(f"{error.filename}: {error.strerror}")
        except (ApiError, Unreachable, PkiError, ValueError) as error:
            self._report(str(error))
        else:
            self._problem = ""

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            _log.warning("the %s gets no new certificate: %s; trying again", self._name, problem)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._tls.minimum
        # Without a choice as for the API server (RFC 9325 §4.2): ephemeral keys and AEAD, no CBC.
        context.set_ciphers(":".join(self._tls.ciphers) or "ECDHE+AESGCM:ECDHE+CHACHA20")
        context.set_alpn_protocols(["http/1.1"])
        return context


LEAF_LIFE: Final = timedelta(days=7)
CA_LIFE: Final = timedelta(days=365)
_CA_NAME: Final = "certwright metrics"
_FIELD_MANAGER: Final = "certwright-metrics-ca"


class CaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The Secret of the CA, and the DNS names (or addresses) and lifetime of the certificate."""

    secret: ObjectKey
    dns_names: tuple[str, ...]
    leaf_life: timedelta = LEAF_LIFE


class SecretCa:
    """Signs with the CA in the Secret, which is created if it is missing."""

    def __init__(self, client: Client, settings: CaSettings) -> None:
        self._client = client
        self._settings = settings
        self._signer = b""
        self._leaf = b""
        self._facts: CertificateFacts | None = None

    async def pem(self, now: datetime) -> bytes:
        """See `Source`."""
        ca = await self._current(now)
        facts = self._facts
        # A certificate that begins in the future was issued by a clock that was ahead.
        if self._signer != ca.facts.pem or facts is None or not facts.not_before <= now < renew_at(facts):
            self._leaf, self._facts = _leaf(ca, self._settings, now)
            self._signer = ca.facts.pem
        return self._leaf

    async def _current(self, now: datetime) -> Signed:
        """The CA in the Secret, created or replaced if need be."""
        where = self._settings.secret
        try:
            secret = await self._client.get(SECRETS, where.name, where.namespace)
            ca = _ca_in(secret)
            # What has been put there for another purpose is never replaced.
            is_ours = (
                not secret.data or secret.metadata.annotations.get(names.ALLOW_DIRECT_INJECTION) == "true"
            )
            if ca is not None and _is_usable(ca.facts, now, is_ours=is_ours):
                return ca
            if not is_ours:
                raise ValueError(
                    f"Secret {where} exists and holds no CA that is valid now; name another one with "
                    "--metrics-dynamic-serving-ca-secret-name"
                )
            configuration = _configuration(secret, _new_ca(now))
            made = await self._client.apply(SECRETS, configuration, field_manager=_FIELD_MANAGER, force=True)
        except NotFound:
            annotations = {names.ALLOW_DIRECT_INJECTION: "true"}
            meta = SecretMeta(name=where.name, namespace=where.namespace, annotations=annotations)
            try:
                made = await self._client.create(
                    SECRETS, Secret(metadata=meta, type="Opaque", data=_new_ca(now))
                )
            except AlreadyExists:  # another replica
                made = await self._client.get(SECRETS, where.name, where.namespace)
        except Conflict:  # another replica
            made = await self._client.get(SECRETS, where.name, where.namespace)
        ca = _ca_in(made)
        if ca is None:
            raise ValueError(f"Secret {where} holds no CA")
        logs.event(
            _log,
            logging.INFO,
            "the CA of the metrics endpoint was issued",
            subject="server",
            secret=str(where),
            notAfter=ca.facts.not_after,
        )
        return ca


def _is_usable(ca: CertificateFacts, now: datetime, *, is_ours: bool) -> bool:
    """Whether it signs now. A CA of the operator's own is used to its end."""
    return ca.not_before <= now < (renew_at(ca) if is_ours else ca.not_after)


def _ca_in(secret: Secret) -> Signed | None:
    """The CA in the Secret; None if it holds none."""
    data = secret.data
    certificate = data.get(names.TLS_CERT_KEY, b"")
    if certificate != data.get(names.CA_CERT_KEY):
        return None
    ca = read_pair(certificate, data.get(names.TLS_PRIVATE_KEY_KEY, b""))
    return ca if ca is not None and ca.facts.may_sign else None


def _configuration(secret: Secret, data: dict[str, bytes]) -> dict[str, Any]:
    """The Secret with another CA, unless it has changed since the read."""
    meta = secret.metadata
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "resourceVersion": meta.resource_version,
            "annotations": {names.ALLOW_DIRECT_INJECTION: "true"},
        },
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }


def _new_ca(now: datetime) -> dict[str, bytes]:
    facts, key = new_ca(_CA_NAME, CA_LIFE, now=now)
    return {
        names.TLS_CERT_KEY: facts.pem,
        names.CA_CERT_KEY: facts.pem,
        names.TLS_PRIVATE_KEY_KEY: keys.encode_private_key(key, KeyEncoding.PKCS8),
    }


def _leaf(ca: Signed, settings: CaSettings, now: datetime) -> tuple[bytes, CertificateFacts]:
    """A new certificate, its key, and its facts."""
    facts, key = new_leaf(ca, _plan(settings.dns_names), settings.leaf_life, now=now)
    return facts.pem + keys.encode_private_key(key, KeyEncoding.PKCS8), facts


def _plan(names: tuple[str, ...]) -> CsrPlan:
    """The plan of a serving certificate for these names and addresses."""
    dns_names = tuple(name for name in names if not is_ip_address(name))
    addresses = tuple(name for name in names if is_ip_address(name))
    return CsrPlan(dns_names=dns_names, ip_addresses=addresses, usages=("digital signature", "server auth"))

"""TLS of the metrics endpoint: a certificate from files, or one signed by a CA in a Secret.

The certificate is checked every ten seconds; a new one is used for new connections. Until there is one,
handshakes fail; what fails later leaves the former certificate in use.

Source: cert-manager `pkg/server/tls` (files and CA are checked as often).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import msgspec

from certwright.app.metrics_ca import CaSettings, SecretCa
from certwright.kit import logs
from certwright.kube.api.errors import ApiError, Unreachable
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.connections import load_pair
from certwright.pki.errors import PkiError

_EVERY: Final = timedelta(seconds=10)
_log = logging.getLogger(__name__)


class CertificateFiles(msgspec.Struct, frozen=True):
    """PEM files of the certificate, with those above it, and of its key."""

    cert: Path
    key: Path


class MetricsTls(msgspec.Struct, frozen=True, kw_only=True):
    """The settings. `ciphers` are OpenSSL's names for TLS 1.2; empty: those with ephemeral keys and AEAD."""

    source: CertificateFiles | CaSettings
    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: tuple[str, ...] = ()


class Source(Protocol):
    """Where the certificate comes from."""

    async def pem(self, now: datetime) -> bytes:
        """The certificate, those above it, and its key. Raises `OSError`, `ApiError`, `Unreachable`,
        `PkiError`, and `ValueError` with a sentence."""


class _Files:
    def __init__(self, files: CertificateFiles) -> None:
        self._files = files

    async def pem(self, _now: datetime) -> bytes:
        return await asyncio.to_thread(
            lambda: self._files.cert.read_bytes() + b"\n" + self._files.key.read_bytes()
        )


class ServingCertificate:
    """The certificate. `context` uses the current one for each handshake."""

    def __init__(self, tls: MetricsTls, client: Client, clock: Clock) -> None:
        self._tls = tls
        self._clock = clock
        source = tls.source
        self._source: Source = SecretCa(client, source) if isinstance(source, CaSettings) else _Files(source)
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
                load_pair(context, pem, "certificate of the metrics endpoint")
                self._current, self._pem = context, pem
                logs.event(_log, logging.INFO, "the metrics endpoint has a new certificate", subject="server")
        except OSError as error:
            self._report(f"{error.filename}: {error.strerror}")
        except (ApiError, Unreachable, PkiError, ValueError) as error:
            self._report(str(error))
        else:
            self._problem = ""

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            _log.warning("the metrics endpoint gets no new certificate: %s; trying again", problem)

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

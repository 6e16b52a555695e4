"""Flags of the metrics endpoint of `certwright controllers`: cert-manager's."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Final

import click

from certwright.cli import lazy
from certwright.cli.flags import (
    Address,
    duration,
    flag,
    parse_address,
    parse_names,
    parse_period,
    repeated,
    split_words,
)
from certwright.kube.api.meta import ObjectKey

_VERSIONS: Final = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
_CIPHERS: Final = {
    f"TLS_ECDHE_{kind}_WITH_{iana}": f"ECDHE-{kind}-{openssl}"
    for kind in ("ECDSA", "RSA")
    for iana, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("CHACHA20_POLY1305", "CHACHA20-POLY1305"),
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
    )
}
"""Cipher suites of TLS 1.2 by the names of IANA and Go, with OpenSSL's."""
_ALWAYS: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Those of TLS 1.3, which always has all of them."""

_SHORTEST_LIFE: Final = timedelta(minutes=1)
_LONGEST_LIFE: Final = timedelta(days=365)


def _address(value: str) -> Address | None:
    # As cert-manager's flag: 0 is none.
    return None if value in ("", "0") else parse_address(value)


def _version(value: str) -> ssl.TLSVersion:
    if value not in _VERSIONS:
        raise click.BadParameter(f"{value!r} is not supported; write {' or '.join(_VERSIONS)}")
    return _VERSIONS[value]


def _ciphers(values: tuple[str, ...]) -> tuple[str, ...]:
    names = split_words(values)
    for name in names:
        if name not in _CIPHERS and name not in _ALWAYS:
            raise click.BadParameter(
                f"{name!r} is not supported; known are {', '.join((*_CIPHERS, *_ALWAYS))}"
            )
    return names


def _leaf_life(value: str) -> timedelta:
    life = parse_period(value)
    if not _SHORTEST_LIFE <= life <= _LONGEST_LIFE:
        raise click.BadParameter(f"{value!r} is not between 1m and 8760h, the lifetime of the CA")
    return life


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsFlags:
    """Where metrics are served, and with which certificate. Raises `click.UsageError`."""

    SECTION: ClassVar = "Metrics"

    address: Address | None = flag(
        "--metrics-listen-address",
        "Serve Prometheus metrics there, at /metrics, over plain HTTP unless there is a certificate for "
        "them; without it, disabled.",
        metavar="HOST:PORT",
        default="",
        parse=_address,
        often=True,
    )
    cert_file: str = flag(
        "--metrics-tls-cert-file",
        "Serve metrics over HTTPS with this certificate (PEM); read again when it changes.",
        metavar="FILE",
        default="",
    )
    key_file: str = flag(
        "--metrics-tls-private-key-file",
        "The private key of --metrics-tls-cert-file.",
        metavar="FILE",
        default="",
    )
    ca_namespace: str = flag(
        "--metrics-dynamic-serving-ca-secret-namespace",
        "Namespace of --metrics-dynamic-serving-ca-secret-name.",
        metavar="NS",
        default="",
    )
    ca_name: str = flag(
        "--metrics-dynamic-serving-ca-secret-name",
        "Serve metrics over HTTPS with a certificate signed by the CA in this Secret, which is created "
        "if it is missing.",
        metavar="NAME",
        default="",
    )
    dns_names: tuple[str, ...] = repeated(
        "--metrics-dynamic-serving-dns-names",
        "Names of that certificate.",
        metavar="NAME,…",
        parse=parse_names,
    )
    leaf_life: timedelta = duration(
        "--metrics-dynamic-serving-leaf-duration",
        "Lifetime of that certificate.",
        default="168h",
        parse=_leaf_life,
    )
    minimum: ssl.TLSVersion = flag(
        "--metrics-tls-min-version",
        "The lowest version of TLS for metrics: VersionTLS12 or VersionTLS13.",
        metavar="VERSION",
        default="VersionTLS12",
        parse=_version,
    )
    ciphers: tuple[str, ...] = repeated(
        "--metrics-tls-cipher-suites",
        "Cipher suites of TLS 1.2 for metrics, by IANA's names.  [default: ECDHE with AES-GCM or "
        "ChaCha20-Poly1305]",
        metavar="NAME,…",
        parse=_ciphers,
    )

    def __post_init__(self) -> None:
        by_files, by_ca = self._files, self._ca
        if any(by_files) and any(by_ca):
            raise click.UsageError(
                "--metrics-tls-cert-file and --metrics-dynamic-serving-ca-secret-name exclude each other"
            )
        if any(by_files) and not all(by_files):
            raise click.UsageError(
                "--metrics-tls-cert-file and --metrics-tls-private-key-file need each other"
            )
        if any(by_ca) and not all(by_ca):
            raise click.UsageError(
                "--metrics-dynamic-serving-ca-secret-namespace, --metrics-dynamic-serving-ca-secret-name and "
                "--metrics-dynamic-serving-dns-names need each other"
            )
        if self.address is None and (any(by_files) or any(by_ca)):
            raise click.UsageError("a certificate for metrics needs --metrics-listen-address")

    @property
    def _files(self) -> tuple[str, str]:
        return self.cert_file, self.key_file

    @property
    def _ca(self) -> tuple[str, str, tuple[str, ...]]:
        return self.ca_namespace, self.ca_name, self.dns_names

    @property
    def tls(self) -> lazy.app.MetricsTls | None:
        """The settings of TLS; None: metrics are served over plain HTTP."""
        ciphers = tuple(_CIPHERS[name] for name in self.ciphers if name in _CIPHERS)
        # Go serves no TLS 1.2 where only suites of TLS 1.3 are named.
        minimum = ssl.TLSVersion.TLSv1_3 if self.ciphers and not ciphers else self.minimum
        if all(self._files):
            files = lazy.app.CertificateFiles(Path(self.cert_file), Path(self.key_file))
            return lazy.app.MetricsTls(source=files, minimum=minimum, ciphers=ciphers)
        if all(self._ca):
            secret = ObjectKey(self.ca_namespace, self.ca_name)
            ca = lazy.app.CaSettings(secret=secret, dns_names=self.dns_names, leaf_life=self.leaf_life)
            return lazy.app.MetricsTls(source=ca, minimum=minimum, ciphers=ciphers)
        return None

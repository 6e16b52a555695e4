"""BIND 9 and Knot on loopback: zones that can be updated with TSIG, and BIND's recursive view of them.

Everything is at one port of 127.0.0.1, not 53: who asks must be told the port.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trustme

from support.programs import free_port
from support.questions import running_with_zones
from support.real import require

ALGORITHMS = ("hmac-md5", "hmac-sha1", "hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512")
# Each update is on the disk before it is answered, which may take seconds where that is slow.
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
_ZONE = """\
$TTL 60
@ SOA ns1.{zone}. admin.{zone}. 1 3600 600 86400 {negative}
@ NS ns1.{zone}.
ns1 A 127.0.0.1
@ A 127.0.0.1
* A 127.0.0.1
{records}
"""


@dataclass(frozen=True, slots=True)
class Bind:
    """A BIND that is running. `secrets` are the TSIG keys: name, secret in base64; the name of each is its
    algorithm in cert-manager's words, in small letters. `https_port` is that of DNS over HTTPS, if it is
    served."""

    port: int
    secrets: dict[str, str] = field(repr=False)
    https_port: int = 0

    @property
    def address(self) -> str:
        """Host and port, as name servers are written."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The URL of DNS over HTTPS."""
        return f"https://127.0.0.1:{self.https_port}/dns-query"


@contextlib.contextmanager
def running_bind(
    zones: Sequence[str] = ("example.org",),
    *,
    records: dict[str, str] | None = None,
    negative_ttl: int = 1,
    signed: bool = True,
    pair: trustme.LeafCert | None = None,
) -> Iterator[Bind]:
    """A BIND with these zones, `records` of them in the form of a zone file, every name at 127.0.0.1.

    Without `signed` anyone may update them, with no TSIG key. With the certificate `pair` it serves DNS over
    HTTPS as well, which is HTTP/2 only.
    """
    program = require("named", debian="bind9")
    with tempfile.TemporaryDirectory(prefix="bind-", dir=_MEMORY) as name:
        folder = Path(name)
        # named gives up root where it can; whoever it is then must write the journals.
        folder.chmod(0o777)
        port = free_port()
        keys = {a.replace("-", ""): base64.b64encode(secrets.token_bytes(32)).decode() for a in ALGORITHMS}
        for zone in zones:
            text = _ZONE.format(zone=zone, negative=negative_ttl, records=(records or {}).get(zone, ""))
            (folder / f"{zone}.zone").write_text(text)
        https_port = 0
        if pair is not None:
            https_port = free_port()
            pair.private_key_pem.write_to_path(folder / "tls.key")
            pair.cert_chain_pems[0].write_to_path(folder / "tls.crt")
            (folder / "tls.key").chmod(0o644)
        configuration = _configuration(folder, port, keys, zones, signed=signed, https_port=https_port)
        (folder / "named.conf").write_text(configuration)
        command = [program, "-g", "-c", str(folder / "named.conf"), "-n", "1"]
        with running_with_zones(command, folder / "log", port, zones):
            yield Bind(port, keys, https_port)


def _configuration(
    folder: Path, port: int, keys: dict[str, str], zones: Sequence[str], *, signed: bool, https_port: int
) -> str:
    lines = []
    if https_port:
        lines = [
            f'tls "doh" {{ cert-file "{folder}/tls.crt"; key-file "{folder}/tls.key"; }};',
            'http "doh" { endpoints { "/dns-query"; }; };',
        ]
    over_https = f'listen-on port {https_port} tls "doh" http "doh" {{ 127.0.0.1; }};' if https_port else ""
    lines += [
        f'options {{ directory "{folder}"; managed-keys-directory "{folder}"; pid-file none;',
        f"  listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; session-keyfile none;",
        f"  {over_https}",
        "  notify no; dnssec-validation no;",
        # Pebble asks by TCP, a connection for each question.
        "  tcp-clients 2000; tcp-listen-queue 1000;",
        # It follows aliases from zone to zone for whoever asks; of the world it knows nothing.
        "  recursion yes; allow-recursion { any; }; forward only; forwarders { 127.0.0.1 port 1; }; };",
        "controls { };",
    ]
    for (name, secret), algorithm in zip(keys.items(), ALGORITHMS, strict=True):
        lines.append(f'key "{name}" {{ algorithm {algorithm}; secret "{secret}"; }};')
    granted = " ".join(f'grant "{name}" zonesub TXT;' for name in keys)
    updates = f"update-policy {{ {granted} }};" if signed else "allow-update { any; };"
    for zone in zones:
        lines.append(f'zone "{zone}" {{ type primary; file "{zone}.zone"; {updates} }};')
    return "\n".join(lines) + "\n"


TSIG_SECRET: Final = "NTgwODMzMzU0MTZhYmE0NTk0MzI3NDk2NzY2Zjk1YTA="
_KNOT_ZONE = """\
$TTL 60
@ SOA ns1 admin 1 3600 600 86400 1
@ NS ns1
ns1 A 127.0.0.1
"""
_CONFIGURATION = """\
server:
  listen: 127.0.0.1@{port}
  rundir: {folder}
  user: {user}
database:
  storage: {folder}
log:
  - target: stderr
    any: info
key:
  - id: certwright
    algorithm: hmac-sha256
    secret: {secret}
acl:
  - id: updates
    key: certwright
    action: update
template:
  - id: default
    storage: {folder}
    file: "%s.zone"
    acl: updates
    zonefile-sync: -1
    journal-content: all
zone:
{zones}
"""


@dataclass(frozen=True, slots=True)
class Knot:
    """A Knot that is running; the TSIG key `certwright` (hmac-sha256) may update its zones."""

    port: int

    @property
    def address(self) -> str:
        """Host and port, as name servers are written."""
        return f"127.0.0.1:{self.port}"


@contextlib.contextmanager
def running_knot(zones: Sequence[str] = ("example.org",)) -> Iterator[Knot]:
    """A Knot with these zones."""
    program = require("knotd", debian="knot")
    with tempfile.TemporaryDirectory(prefix="knot-") as name:
        folder, port = Path(name), free_port()
        for zone in zones:
            (folder / f"{zone}.zone").write_text(f"$ORIGIN {zone}.\n{_KNOT_ZONE}")
        text = _CONFIGURATION.format(
            port=port,
            folder=folder,
            user=folder.owner(),
            secret=TSIG_SECRET,
            zones="\n".join(f"  - domain: {zone}" for zone in zones),
        )
        (folder / "knot.conf").write_text(text)
        command = [program, "-c", str(folder / "knot.conf")]
        with running_with_zones(command, folder / "log", port, zones):
            yield Knot(port)

"""Pebble: Let's Encrypt's test server for ACME clients, and its name server, on loopback.

`make pebble` builds both; Debian has an older Pebble (`debian_pebble`). Pebble forgets everything when it
ends and has no valid certificate of its own, so that every start is a new CA: trust `Pebble.ca_bundle` for
its HTTPS, and `root()` for its leaves.
"""

from __future__ import annotations

import contextlib
import functools
import json
import ssl
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme

from support.programs import free_port, running, tool, wait_for
from support.questions import answers
from support.real import require


@dataclass(frozen=True, slots=True)
class NameServer:
    """pebble-challtestsrv: what names resolve to, as tests say. Everything is 127.0.0.1 until then."""

    address: str
    _management: str

    def set_txt(self, name: str, value: str) -> None:
        """Show a TXT record (beside others of that name)."""
        self._post("set-txt", {"host": f"{name.rstrip('.')}.", "value": value})

    def set_addresses(self, name: str, addresses: Sequence[str]) -> None:
        """Let the name resolve to these IPv4 addresses."""
        self._post("add-a", {"host": f"{name.rstrip('.')}.", "addresses": list(addresses)})

    def fail(self, name: str) -> None:
        """Answer SERVFAIL for the name."""
        self._post("set-servfail", {"host": f"{name.rstrip('.')}."})

    def _post(self, path: str, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        _open(f"{self._management}/{path}", data)


@dataclass(frozen=True, slots=True)
class Pebble:
    """A Pebble that is running. `http_port` and `tls_port` are where it looks for challenges."""

    directory: str
    ca_bundle: bytes
    http_port: int
    tls_port: int
    names: NameServer
    _management: str
    _tls: ssl.SSLContext

    def root(self, number: int = 0) -> bytes:
        """The PEM of a root; above 0 those of the alternate chains."""
        return self._get(f"roots/{number}")

    def status_of(self, serial_hex: str) -> dict[str, Any]:
        """What Pebble knows of a certificate: `Status` is Valid or Revoked."""
        document: dict[str, Any] = json.loads(self._get(f"cert-status-by-serial/{serial_hex}"))
        return document

    def set_renewal_info(self, certificate_pem: bytes, answer: Mapping[str, Any]) -> None:
        """Let RFC 9773 answer this for the certificate."""
        body = {"certificate": certificate_pem.decode(), "ariResponse": json.dumps(answer)}
        _open(f"{self._management}/set-renewal-info/", json.dumps(body).encode(), self._tls)

    def _get(self, path: str) -> bytes:
        return _open(f"{self._management}/{path}", None, self._tls)


def _open(url: str, data: bytes | None, tls: ssl.SSLContext | None = None) -> bytes:
    # The URL is one that this module has made itself.
    with urllib.request.urlopen(url, data, context=tls, timeout=60) as answer:  # noqa: S310
        body: bytes = answer.read()
        return body


@contextlib.contextmanager
def running_name_server() -> Iterator[NameServer]:
    """A name server of its own, which does what a test tells it."""
    program = tool("pebble-challtestsrv", made_by="pebble")
    with tempfile.TemporaryDirectory(prefix="names-") as name:
        dns, management, log = free_port(), free_port(), Path(name) / "log"
        command = [str(program), f"-dnsserver=127.0.0.1:{dns}", f"-management=127.0.0.1:{management}"]
        command += [
            "-http01=",
            "-https01=",
            "-tlsalpn01=",
            "-doh=",
            "-defaultIPv4=127.0.0.1",
            "-defaultIPv6=",
        ]
        with running(command, log, management) as process:
            wait_for(lambda: answers(dns, "a.test", "A"), process, log, what="answer")
            yield NameServer(f"127.0.0.1:{dns}", f"http://127.0.0.1:{management}")


def debian_pebble() -> Path:
    """Pebble 2.4 of Debian (package `pebble`): a server without renewal information and profiles."""
    return Path(require("pebble"))


@contextlib.contextmanager
def running_pebble(
    *,
    environment: Mapping[str, str] | None = None,
    names: str = "",
    program: Path | None = None,
    http_port: int | None = None,
    tls_port: int | None = None,
    identity_ends: datetime | None = None,
    port: int | None = None,
    authority: trustme.CA | None = None,
    **options: Any,
) -> Iterator[Pebble]:
    """A Pebble. It does not dawdle before it validates, and refuses 5 % of the nonces as is its custom.

    `environment` sets Pebble's variables (`PEBBLE_WFE_NONCEREJECT`, …), `names` is another name server to
    ask, `program` another Pebble than that of `make pebble`, `identity_ends` when its own TLS certificate
    expires, `options` are members of its configuration (`externalAccountBindingRequired=True`). With the
    `port` and the TLS `authority` of one that has ended it takes that one's place.
    """
    binary = program or tool("pebble", made_by="pebble")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pebble-")))
        name_server = stack.enter_context(running_name_server())
        port, management = port or free_port(), free_port()
        authority = authority or trustme.CA()
        identity = authority.issue_cert("localhost", "127.0.0.1", not_after=identity_ends)
        identity.private_key_pem.write_to_path(folder / "key.pem")
        identity.cert_chain_pems[0].write_to_path(folder / "cert.pem")
        configuration: dict[str, Any] = {
            "listenAddress": f"127.0.0.1:{port}",
            "managementListenAddress": f"127.0.0.1:{management}",
            "certificate": str(folder / "cert.pem"),
            "privateKey": str(folder / "key.pem"),
            "httpPort": http_port or free_port(),
            "tlsPort": tls_port or free_port(),
            "ocspResponderURL": "",
            "externalAccountBindingRequired": False,
            "domainBlocklist": ["blocked-domain.example"],
            "retryAfter": {"authz": 1, "order": 1},
            "keyAlgorithm": "ecdsa",
            "profiles": {
                "default": {"description": "90 days", "validityPeriod": 7776000},
                "shortlived": {"description": "6 days", "validityPeriod": 518400},
            },
            **options,
        }
        (folder / "config.json").write_text(json.dumps({"pebble": configuration}))
        command = [str(binary), "-config", str(folder / "config.json")]
        command += ["-dnsserver", names or name_server.address]
        variables = {"PEBBLE_VA_NOSLEEP": "1", **(environment or {})}
        # It begins to listen at both by itself, in any order.
        stack.enter_context(running(command, folder / "log", port, management, env=variables))
        tls = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        yield Pebble(
            directory=f"https://localhost:{port}/dir",
            ca_bundle=authority.cert_pem.bytes(),
            http_port=configuration["httpPort"],
            tls_port=configuration["tlsPort"],
            names=name_server,
            _management=f"https://localhost:{management}",
            _tls=tls,
        )


@contextlib.contextmanager
def serving(folder: Path, host: str, port: int) -> Iterator[None]:
    server = ThreadingHTTPServer((host, port), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def shown(folder: Path) -> list[Path]:
    """The pages in a web root."""
    return [path for path in folder.rglob("*") if path.is_file()]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

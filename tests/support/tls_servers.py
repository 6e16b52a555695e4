"""Debian's nginx, HAProxy and PostgreSQL with TLS on loopback, for certificates that change meanwhile."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.real import require

_POSTGRES_USER = "postgres"


def hooks_of(folder: Path) -> dict[str, str]:
    """The hooks that make the servers in this folder read their files again."""
    return {
        "nginx": f"{require('nginx')} -c {folder}/nginx.conf -s reload",
        "haproxy": f"haproxy:{folder}/haproxy.sock",
        "postgres": f"kill -HUP $(head -1 {folder}/data/postmaster.pid)",
    }


@contextmanager
def running_nginx(folder: Path, port: int, tls: Path) -> Iterator[None]:
    """nginx with the pair in `tls`."""
    program = require("nginx")
    config = folder / "nginx.conf"
    config.write_text(f"""
        daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
        events {{ worker_connections 64; }}
        http {{
            access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
            fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
            server {{
                listen 127.0.0.1:{port} ssl;
                ssl_certificate {tls}/tls.crt; ssl_certificate_key {tls}/tls.key;
                return 200 ok;
            }}
        }}
    """)
    with _process([program, "-c", str(config)]):
        yield


@contextmanager
def running_haproxy(folder: Path, files: Mapping[int, Path]) -> Iterator[None]:
    """HAProxy with a port for each of the files."""
    program = require("haproxy")
    config, runtime = folder / "haproxy.cfg", folder / "haproxy.sock"
    binds = "\n".join(f"    bind 127.0.0.1:{port} ssl crt {file}" for port, file in files.items())
    config.write_text(f"""
global
    stats socket {runtime} mode 600 level admin
defaults
    mode http
    timeout client 60s
    timeout connect 5s
    timeout server 60s
frontend both
{binds}
    http-request return status 200 content-type text/plain string ok
""")
    with _process([program, "-db", "-f", str(config)]):
        yield


@contextmanager
def running_postgres(folder: Path, port: int, tls: Path) -> Iterator[None]:
    """PostgreSQL with the pair in `tls`, whose key the user postgres owns if this process is root's."""
    programs = _postgres_programs()
    data = folder / "data"
    as_user = ["setpriv", f"--reuid={_POSTGRES_USER}", "--clear-groups"] if os.geteuid() == 0 else []
    data.mkdir()
    if as_user:
        shutil.chown(data, _POSTGRES_USER)
    initialize = [f"{programs}/initdb", "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync"]
    subprocess.run([*as_user, *initialize], check=True, capture_output=True, cwd="/")
    settings = {
        "port": str(port),
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "ssl": "on",
        "ssl_cert_file": f"{tls}/tls.crt",
        "ssl_key_file": f"{tls}/tls.key",
        "fsync": "off",
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with _process([*as_user, f"{programs}/postgres", "-D", str(data), *options]):
        yield


def _postgres_programs() -> Path:
    """Debian keeps them off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    if os.environ.get("CERTWRIGHT_REQUIRE_REAL") == "1":
        pytest.fail("PostgreSQL is not installed, and CERTWRIGHT_REQUIRE_REAL=1 demands it")
    pytest.skip("PostgreSQL is not installed here")


@contextmanager
def _process(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", *command],
        cwd="/",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class HeldRequest:
    """An HTTP request whose end is not sent yet."""

    def __init__(self, port: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._socket = context.wrap_socket(_connected(port))
        self._socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n")

    def finish(self) -> bytes:
        """Send the end; the first line of the answer."""
        with self._socket:
            self._socket.sendall(b"\r\n")
            return self._socket.recv(4096).split(b"\r\n")[0]


class HeldSession:
    """A session of PostgreSQL."""

    def __init__(self, port: int) -> None:
        plain = _connected(port)
        plain.sendall(b"\x00\x00\x00\x08\x04\xd2\x16\x2f")
        assert plain.recv(1) == b"S"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._socket = context.wrap_socket(plain)
        start = struct.pack("!i", 196608) + b"user\0postgres\0database\0postgres\0\0"
        self._socket.sendall(struct.pack("!i", len(start) + 4) + start)
        self._until_ready()

    def finish(self) -> bytes:
        """Ask a question; the answer."""
        with self._socket:
            self._socket.sendall(b"Q" + struct.pack("!i", 4 + 10) + b"select 42\0")
            return self._until_ready()

    def _until_ready(self) -> bytes:
        answer = b""
        while not answer.endswith(b"Z\x00\x00\x00\x05I"):
            piece = self._socket.recv(4096)
            assert piece, answer
            answer += piece
        return answer


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)

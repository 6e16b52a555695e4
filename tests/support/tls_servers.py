"""Debian's nginx, Apache, HAProxy and PostgreSQL with TLS on loopback, for certificates that change
meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.real import missing, require

_POSTGRES_USER = "postgres"


@contextmanager
def running_nginx(folder: Path, port: int, tls: Path) -> Iterator[None]:
    """nginx with the pair in `tls`."""
    program = require("nginx")
    config = folder / "nginx.conf"
    config.write_text(f"""
        daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
        events {{ worker_connections 64; }}
        http {{
            access_log off; client_header_timeout 900s;
            client_body_temp_path {folder}; proxy_temp_path {folder};
            fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
            server {{
                listen 127.0.0.1:{port} ssl;
                ssl_certificate {tls}/tls.crt; ssl_certificate_key {tls}/tls.key;
                return 200 ok;
            }}
        }}
    """)
    with running([program, "-c", str(config)]):
        yield


@contextmanager
def running_apache(folder: Path, port: int, tls: Path) -> Iterator[None]:
    """Apache with the pair in `tls`; answers every request with 404."""
    program, user = require("apache2"), "User www-data\nGroup www-data" if os.geteuid() == 0 else ""
    config, modules = folder / "apache.conf", "/usr/lib/apache2/modules"
    config.write_text(f"""
ServerRoot {folder}
DefaultRuntimeDir {folder}
PidFile {folder}/apache.pid
ErrorLog {folder}/apache.log
ServerName localhost
Mutex pthread
Timeout 900
{user}
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule ssl_module {modules}/mod_ssl.so
StartServers 1
ThreadsPerChild 8
MinSpareThreads 8
MaxSpareThreads 16
MaxRequestWorkers 256
ServerLimit 32
Listen 127.0.0.1:{port}
SSLEngine on
SSLCertificateFile {tls}/tls.crt
SSLCertificateKeyFile {tls}/tls.key
""")
    with running([program, "-f", str(config), "-D", "FOREGROUND"]):
        yield


@contextmanager
def running_haproxy(folder: Path, port: int, tls: Path, *, name: str = "haproxy") -> Iterator[None]:
    """HAProxy with `all.pem` in `tls`."""
    program = require("haproxy")
    config, runtime = folder / f"{name}.cfg", folder / f"{name}.sock"
    config.write_text(f"""
global
    stats socket {runtime} mode 600 level admin
defaults
    mode http
    timeout client 900s
    timeout connect 5s
    timeout server 900s
frontend both
    bind 127.0.0.1:{port} ssl crt {tls}/all.pem
    http-request return status 200 content-type text/plain string ok
""")
    with running([program, "-db", "-f", str(config)]):
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
    with running([*as_user, f"{programs}/postgres", "-D", str(data), *options]):
        yield


def _postgres_programs() -> Path:
    """Debian keeps them off the PATH."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        missing("PostgreSQL is not installed here (Debian: postgresql)")
    return programs[-1].parent


@contextmanager
def running(command: list[str], *, env: Mapping[str, str] | None = None) -> Iterator[None]:
    """A server, the leader of its process group; `env` is added to the environment."""
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", *command],
        cwd="/",
        env={**os.environ, **(env or {})},
        process_group=0,
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

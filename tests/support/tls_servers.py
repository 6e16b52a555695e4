"""Debian's nginx, Apache, HAProxy, PostgreSQL, Postfix and Dovecot, and Caddy and Envoy, with TLS on
loopback, for certificates that change meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.programs import environment_of
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


@contextmanager
def running_postfix(folder: Path, port: int, tls: Path) -> Iterator[None]:
    """Postfix with the pair in `tls`; its queue is in `folder`."""
    _require_root()
    require("postfix")
    config = folder / "postfix"
    for name in ("", "queue", "queue/pid", "queue/private", "queue/public", "data"):
        (config / name).mkdir()
    for name in ("data", "queue/private", "queue/public"):
        shutil.chown(config / name, "postfix")
    (config / "main.cf").write_text(f"""
compatibility_level = 3.6
queue_directory = {config}/queue
data_directory = {config}/data
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = localhost
mydestination =
alias_maps =
smtpd_tls_security_level = may
smtpd_tls_cert_file = {tls}/tls.crt
smtpd_tls_key_file = {tls}/tls.key
""")
    (config / "master.cf").write_text(f"""
127.0.0.1:{port} inet n - n - - smtpd
tlsmgr unix - - n 1000? 1 tlsmgr
anvil unix - - n - 1 anvil
rewrite unix - - n - - trivial-rewrite
proxymap unix - - n - - proxymap
""")
    # `postfix start` checks the whole installation first, for seconds.
    command = ["/usr/lib/postfix/sbin/master", "-d", "-c", str(config)]
    with running(command, env={"MAIL_CONFIG": str(config)}):
        yield


@contextmanager
def running_dovecot(folder: Path, port: int, tls: Path) -> Iterator[None]:
    """Dovecot with the pair in `tls`. By default it ends all sessions 5 s after a reload."""
    _require_root()
    program, config, home = require("dovecot"), folder / "dovecot.conf", folder / "mail"
    home.mkdir()
    shutil.chown(home, "nobody", "nogroup")
    config.write_text(f"""
base_dir = {folder}/dovecot
state_dir = {folder}/dovecot-state
log_path = {folder}/dovecot.log
protocols = imap
shutdown_clients = no
listen = 127.0.0.1
ssl = yes
ssl_cert = <{tls}/tls.crt
ssl_key = <{tls}/tls.key
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
passdb {{
  driver = static
  args = nopassword=y
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={folder}/mail
}}
mail_location = maildir:~/mail
first_valid_uid = 1
first_valid_gid = 1
""")
    with running([program, "-F", "-c", str(config)]):
        yield


def _require_root() -> None:
    if os.geteuid() != 0:
        missing("Postfix and Dovecot are started by root only")


_ENVOY = """
node: {{id: one, cluster: one}}
static_resources:
  listeners:
    - name: web
      address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
      filter_chains:
        - transport_socket:
            name: envoy.transport_sockets.tls
            typed_config:
              "@type": {types}.transport_sockets.tls.v3.DownstreamTlsContext
              common_tls_context:
                tls_certificate_sds_secret_configs:
                  - name: web
                    sds_config: {{path_config_source: {{path: {folder}/sds.yaml}}}}
          filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": {types}.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: web
                route_config:
                  virtual_hosts:
                    - name: web
                      domains: ["*"]
                      routes: [{{match: {{prefix: "/"}}, direct_response: {{status: 200}}}}]
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: {{"@type": {types}.filters.http.router.v3.Router}}
"""
_SECRET = """
resources:
  - "@type": {types}.transport_sockets.tls.v3.Secret
    name: web
    tls_certificate:
      certificate_chain: {{filename: {tls}/tls.crt}}
      private_key: {{filename: {tls}/tls.key}}
      watched_directory: {{path: {tls}}}
"""
_TYPES = "type.googleapis.com/envoy.extensions"


def caddy_reload(folder: Path) -> str:
    """The hook. Without `--force` a Caddyfile that is the same is not read again."""
    return f"{_caddy()} reload {_config(folder)} --force --address unix/{folder}/caddy.sock"


@contextmanager
def running_caddy(folder: Path, port: int, tls: Path) -> Iterator[None]:
    """Caddy with the pair in `tls`."""
    (folder / "Caddyfile").write_text(f"""
{{
    admin unix/{folder}/caddy.sock
    auto_https off
    persist_config off
    storage file_system {folder}/caddy
    default_sni web.example.com
}}
https://web.example.com:{port} {{
    bind 127.0.0.1
    tls {tls}/tls.crt {tls}/tls.key
    respond ok
}}
""")
    with running([_caddy(), "run", *_config(folder).split()]):
        yield


@contextmanager
def running_envoy(folder: Path, port: int, tls: Path) -> Iterator[None]:
    """Envoy, which reads the pair in `tls` when that directory's link changes."""
    config = folder / "envoy.yaml"
    config.write_text(_ENVOY.format(port=port, folder=folder, types=_TYPES))
    (folder / "sds.yaml").write_text(_SECRET.format(tls=tls, types=_TYPES))
    program = str(environment_of("servers") / "bin/envoy")
    with running([program, "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1"]):
        yield


def _caddy() -> str:
    return str(environment_of("servers") / "bin/caddy")


def _config(folder: Path) -> str:
    return f"--config {folder}/Caddyfile --adapter caddyfile"

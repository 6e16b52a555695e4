"""Caddy and Envoy on loopback, of `make servers`, for certificates that change meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.programs import environment_of
from support.tls_servers import running

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

"""The servers that `certwright setup` knows: their files, how they are reloaded, and where they present a
certificate.

Sources: the packages of Debian 12 and 13; nginx's ngx_http_ssl_module; Apache's mod_ssl; HAProxy's
configuration
manual, "bind"; Caddyfile's tls; PostgreSQL's "Secure TCP/IP Connections with SSL"; postconf(5); Dovecot's
"SSL
configuration".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from certwright.cli.setup.plan import Host, Link, Step, TextFile
from certwright.resources.delivery import DeliveryOutput

_IPV6: Final = Path("/proc/net/if_inet6")
_CONFIGURATION: Final = (
    *("*.conf", "*.cfg", "*.cf", "Caddyfile"),
    *(f"{folder}/*" for folder in ("conf.d", "sites-enabled", "conf-enabled", "snippets")),
)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate for one server. `slug`: its name in file names; `tls`: the directory of its files;
    `http01`: the address that answers HTTP-01 challenges, or empty; `config`: the server's configuration."""

    slug: str
    names: Sequence[str]
    tls: Path
    config: Path
    http01: str = ""


Files = Callable[[Site], Sequence[Step]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server program. `before` makes the steps before the certificate exists; `after` makes the steps that
    present it; without `after`, the user adds `lines` to the file `into`. `reload` is the command without
    systemd. `is_single`: it presents one certificate."""

    name: str
    title: str
    unit: str
    config: Path
    below: str = ""
    program: str
    test: Sequence[str] = ()
    reload: str
    port: int = 443
    start_tls: str = ""
    group: str = ""
    owner: str = ""
    outputs: Sequence[DeliveryOutput] = ()
    snippet: Callable[[Site], TextFile] | None = None
    before: Files = lambda _site: ()
    after: Files | None = None
    lines: Callable[[Site], str]
    into: str
    names: re.Pattern[str] | None = None
    is_single: bool = False

    def config_on(self, host: Host) -> Path:
        """Its directory of configuration: of several clusters the `main` one of the newest version."""
        if not self.below:
            return self.config
        found = [path for path in host.at(self.config).glob(self.below) if path.is_dir()]
        newest = max(found, key=lambda path: (len(path.parent.name), path.parent.name), default=None)
        return self.config if newest is None else self.config / newest.relative_to(host.at(self.config))

    @property
    def tls(self) -> Path:
        """The root directory of its Deliveries."""
        return self.config / "tls"

    def files_of(self, host: Host, site: Site) -> list[Path]:
        """The files of the server's configuration that may name certificates."""
        config = host.at(site.config)
        return sorted({path for pattern in _CONFIGURATION for path in config.glob(pattern) if path.is_file()})

    def texts(self, host: Host, site: Site) -> list[tuple[Path, str]]:
        """Those files with their texts, without comments."""
        texts = []
        for path in self.files_of(host, site):
            try:
                text = path.read_text(errors="replace")
            except OSError:
                continue
            texts.append((path, re.sub(r"(?m)^\s*#.*$", "", text)))
        return texts

    def presents(self, host: Host, site: Site) -> bool:
        """Whether the server's configuration names the certificate's files, or the snippet with them."""
        marks, snippet = [f"{site.tls}/"], None
        if self.snippet is not None:
            snippet = self.snippet(site).path
            marks.append(snippet.name)
        texts = [text for path, text in self.texts(host, site) if snippet is None or path != host.at(snippet)]
        return any(mark in text for text in texts for mark in marks)

    def has_site(self, host: Host, site: Site) -> bool:
        """Whether a file not written by setup configures one of the names already."""
        if self.names is None:
            return False
        ours = {host.at(step.made.what) for step in (*self.before(site), *(self.after or self.before)(site))}
        return any(
            set(site.names) & {name for match in self.names.findall(text) for name in match.split()}
            for path, text in self.texts(host, site)
            if path not in ours and path.resolve() not in ours
        )


def _nginx_listen(port: str) -> str:
    more = f"    listen [::]:{port};\n" if _IPV6.exists() else ""
    return f"    listen {port};\n{more}"


def _nginx_snippet(site: Site) -> TextFile:
    body = f"ssl_certificate     {site.tls}/tls.crt;\nssl_certificate_key {site.tls}/tls.key;\n"
    return TextFile(site.config / f"snippets/certwright-{site.slug}.conf", body, owner=site.slug)


def _nginx_http01(site: Site) -> TextFile:
    body = f"location ^~ /.well-known/acme-challenge/ {{\n    proxy_pass http://{site.http01};\n}}\n"
    return TextFile(site.config / "snippets/certwright-http01.conf", body)


def _nginx_before(site: Site) -> Sequence[Step]:
    if not site.http01:
        return ()
    body = (
        f"server {{\n{_nginx_listen('80')}"
        f"    server_name {' '.join(site.names)};\n"
        f"    include {site.config}/snippets/certwright-http01.conf;\n"
        "    location / { return 301 https://$host$request_uri; }\n}\n"
    )
    path = site.config / f"conf.d/certwright-{site.slug}-http.conf"
    return (_nginx_http01(site), TextFile(path, body, owner=site.slug))


def _nginx_after(site: Site) -> Sequence[Step]:
    body = (
        f"server {{\n{_nginx_listen('443 ssl')}"
        f"    server_name {' '.join(site.names)};\n"
        f"    include {_nginx_snippet(site).path};\n"
        "    root /var/www/html;\n}\n"
    )
    return (TextFile(site.config / f"conf.d/certwright-{site.slug}.conf", body, owner=site.slug),)


def _nginx_lines(site: Site) -> str:
    challenges = (
        f"\n# in the server of port 80, for HTTP-01\ninclude {_nginx_http01(site).path};"
        if site.http01
        else ""
    )
    return f"# in the server of port 443\ninclude {_nginx_snippet(site).path};{challenges}"


def _apache_snippet(site: Site) -> TextFile:
    body = f"SSLEngine on\nSSLCertificateFile {site.tls}/tls.crt\nSSLCertificateKeyFile {site.tls}/tls.key\n"
    return TextFile(site.config / f"certwright-{site.slug}.conf", body, owner=site.slug)


def _apache_names(site: Site) -> str:
    first, *others = site.names
    alias = f"    ServerAlias {' '.join(others)}\n" if others else ""
    return f"    ServerName {first}\n{alias}"


def _apache_proxy(site: Site) -> str:
    path = "/.well-known/acme-challenge/"
    return f'ProxyPass "{path}" "http://{site.http01}{path}"'


def _apache_site(site: Site, suffix: str, body: str) -> Sequence[Step]:
    name = f"certwright-{site.slug}{suffix}.conf"
    return (
        TextFile(site.config / f"sites-available/{name}", body, owner=site.slug),
        Link(site.config / f"sites-enabled/{name}", f"../sites-available/{name}", site.slug),
    )


def _apache_modules(site: Site, *names: str) -> list[Step]:
    enabled = site.config / "mods-enabled"
    return [Link(enabled / name, f"../mods-available/{name}") for name in names]


def _apache_before(site: Site) -> Sequence[Step]:
    if not site.http01:
        return ()
    body = (
        f"<VirtualHost *:80>\n{_apache_names(site)}    {_apache_proxy(site)}\n"
        f'    RedirectMatch permanent "^(?!/\\.well-known/acme-challenge/)(.*)" "https://{site.names[0]}$1"\n'
        "</VirtualHost>\n"
    )
    modules = _apache_modules(site, "proxy.load", "proxy.conf", "proxy_http.load", "alias.load", "alias.conf")
    return (*modules, *_apache_site(site, "-http", body))


def _apache_after(site: Site) -> Sequence[Step]:
    body = (
        f"<VirtualHost *:443>\n{_apache_names(site)}    Include {_apache_snippet(site).path}\n"
        "    DocumentRoot /var/www/html\n</VirtualHost>\n"
    )
    modules = _apache_modules(site, "socache_shmcb.load", "ssl.load", "ssl.conf")
    return (*modules, *_apache_site(site, "", body))


def _apache_lines(site: Site) -> str:
    challenges = (
        f"\n# in the <VirtualHost> of port 80, for HTTP-01\n{_apache_proxy(site)}" if site.http01 else ""
    )
    return f"# in the <VirtualHost> of port 443\nInclude {_apache_snippet(site).path}{challenges}"


def _haproxy_lines(site: Site) -> str:
    challenges = (
        (
            "# in the frontend of port 80, for HTTP-01, before a redirect to https\n"
            "    use_backend certwright if { path_beg /.well-known/acme-challenge/ }\n"
            f"# at the end\nbackend certwright\n    server certwright {site.http01}\n"
        )
        if site.http01
        else ""
    )
    return f"# in the frontend for HTTPS\n    bind :443 ssl crt {site.tls}/all.pem\n{challenges}".rstrip()


def _caddy_lines(site: Site) -> str:
    names = ", ".join(site.names) or "www.example.com"
    return f"{names} {{\n    tls {site.tls}/tls.crt {site.tls}/tls.key\n    # your site\n}}"


def _postgresql_body(site: Site) -> str:
    return f"ssl = on\nssl_cert_file = '{site.tls}/tls.crt'\nssl_key_file = '{site.tls}/tls.key'\n"


def _postgresql_after(site: Site) -> Sequence[Step]:
    return (TextFile(site.config / "conf.d/certwright.conf", _postgresql_body(site), owner=site.slug),)


def _postfix_lines(site: Site) -> str:
    return (
        f"smtpd_tls_security_level = may\nsmtpd_tls_cert_file = {site.tls}/tls.crt\n"
        f"smtpd_tls_key_file = {site.tls}/tls.key"
    )


def _dovecot_body(site: Site) -> str:
    # Without the last line a reload ends all sessions after 5 s.
    return (
        f"ssl = yes\nssl_cert = <{site.tls}/tls.crt\nssl_key = <{site.tls}/tls.key\nshutdown_clients = no\n"
    )


def _dovecot_after(site: Site) -> Sequence[Step]:
    return (TextFile(site.config / "conf.d/99-certwright.conf", _dovecot_body(site), owner=site.slug),)


# Not `ca.crt`: certificates of ACME servers have none, and a Delivery needs all its outputs.
_CHAIN: Final = DeliveryOutput(name="tls.crt", format="CertificateChain")


_KEY: Final = DeliveryOutput(name="tls.key", format="PrivateKey")


SERVERS: Final = {
    server.name: server
    for server in (
        Server(
            name="nginx",
            title="nginx",
            unit="nginx",
            config=Path("/etc/nginx"),
            program="nginx",
            test=("nginx", "-t", "-q"),
            reload="nginx -s reload",
            snippet=_nginx_snippet,
            before=_nginx_before,
            after=_nginx_after,
            lines=_nginx_lines,
            into="the `server` blocks of your site",
            names=re.compile(r"\bserver_name\s+([^;]+);"),
        ),
        Server(
            name="apache",
            title="Apache",
            unit="apache2",
            config=Path("/etc/apache2"),
            program="apache2",
            test=("apache2ctl", "configtest"),
            reload="apache2ctl graceful",
            snippet=_apache_snippet,
            before=_apache_before,
            after=_apache_after,
            lines=_apache_lines,
            into="the site",
            names=re.compile(r"(?im)^\s*Server(?:Name|Alias)\s+(.+)$"),
        ),
        Server(
            name="haproxy",
            title="HAProxy",
            unit="haproxy",
            config=Path("/etc/haproxy"),
            program="haproxy",
            test=("haproxy", "-c", "-q", "-f", "/etc/haproxy/haproxy.cfg"),
            reload="service haproxy reload",
            outputs=(DeliveryOutput(name="all.pem", format="Combined"),),
            lines=_haproxy_lines,
            into="/etc/haproxy/haproxy.cfg (keep its `global` section)",
        ),
        Server(
            name="caddy",
            title="Caddy",
            unit="caddy",
            config=Path("/etc/caddy"),
            program="caddy",
            reload="caddy reload --config /etc/caddy/Caddyfile --force",
            group="caddy",
            outputs=(_CHAIN, replace(_KEY, group="caddy", mode="0640")),
            lines=_caddy_lines,
            into="/etc/caddy/Caddyfile",
        ),
        Server(
            name="postgresql",
            title="PostgreSQL",
            unit="postgresql",
            config=Path("/etc/postgresql"),
            below="*/main",
            program="psql",
            reload="service postgresql reload",
            port=5432,
            start_tls="postgres",
            owner="postgres",
            outputs=(_CHAIN, replace(_KEY, owner="postgres", mode="0600")),
            after=_postgresql_after,
            lines=_postgresql_body,
            into="postgresql.conf",
            is_single=True,
        ),
        Server(
            name="postfix",
            title="Postfix",
            unit="postfix",
            config=Path("/etc/postfix"),
            program="postfix",
            test=("postfix", "check"),
            reload="postfix reload",
            port=25,
            start_tls="smtp",
            lines=_postfix_lines,
            into="/etc/postfix/main.cf, in place of the lines with these names",
            is_single=True,
        ),
        Server(
            name="dovecot",
            title="Dovecot",
            unit="dovecot",
            config=Path("/etc/dovecot"),
            program="dovecot",
            test=("doveconf", "-n"),
            reload="doveadm reload",
            port=143,
            start_tls="imap",
            after=_dovecot_after,
            lines=_dovecot_body,
            into="a file below /etc/dovecot/conf.d",
            is_single=True,
        ),
    )
}
"""The servers by the name of their command."""

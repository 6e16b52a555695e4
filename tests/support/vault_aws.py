"""Vault with its AWS method, which OpenBao lacks: written from Vault's documentation of `auth/aws/login`.

`POST /v1/auth/aws/login` follows that documentation: the signed request for the caller's identity is checked
and sent to the STS of an emulator that checks signatures, and its answer decides about the login. The token
is a real one of an OpenBao, to which every other request is forwarded.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen
from xml.etree import ElementTree

from support.openbao import Bao

_SERVER_ID = "x-vault-aws-iam-server-id"


class _Refused(Exception):
    """What Vault answers with 400, or 403 for a role that is bound to others."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class VaultWithAws:
    """A running server. `roles` are the ARNs of the principals that may log in, by role; `server_id` is
    `iam_server_id_header_value` of its configuration. `logins` are the ARNs that have logged in."""

    url: str
    bao: Bao
    sts_url: str
    roles: dict[str, str]
    server_id: str = ""
    logins: list[str] = field(default_factory=list)

    def log_in(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a login. Raises `_Refused`."""
        bound = self.roles.get(body.get("role", ""))
        if bound is None:
            raise _Refused(f"entry for role {body.get('role')} not found")
        if body.get("iam_http_request_method") != "POST":
            raise _Refused("invalid iam_http_request_method; currently only POST is supported")
        url = urlsplit(base64.b64decode(body["iam_request_url"]).decode())
        content = base64.b64decode(body["iam_request_body"])
        if parse_qs(content.decode()) != {"Action": ["GetCallerIdentity"], "Version": ["2011-06-15"]}:
            raise _Refused("iam_request_body must be GetCallerIdentity")
        signed = json.loads(base64.b64decode(body["iam_request_headers"]))
        headers = {name.lower(): values[0] for name, values in signed.items()}
        self._check_server_id(headers)
        arn = self._identity(url.path, content, headers)
        # Vault compares the role of an assumed one, without its session.
        principal = arn.replace(":sts:", ":iam:").replace(":assumed-role/", ":role/")
        if bound not in (principal, principal.rpartition("/")[0]):
            raise _Refused(f'IAM Principal "{arn}" does not belong to the role', 403)
        self.logins.append(arn)
        return self.bao.call("POST", "auth/token/create", {"policies": ["sign-web"], "ttl": "20m"})

    def _check_server_id(self, headers: Mapping[str, str]) -> None:
        if not self.server_id:
            return
        if headers.get(_SERVER_ID) != self.server_id:
            raise _Refused(f"error validating {_SERVER_ID} header: missing header or another value")
        signed = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
        if _SERVER_ID not in signed:
            raise _Refused(f"error validating {_SERVER_ID} header: not signed")

    def _identity(self, path: str, body: bytes, headers: Mapping[str, str]) -> str:
        request = Request(f"{self.sts_url}{path}", body, dict(headers), method="POST")  # noqa: S310
        try:
            with urlopen(request, timeout=30) as answer:  # noqa: S310
                document = ElementTree.fromstring(answer.read())  # noqa: S314
        except HTTPError as error:
            with error:
                code = ElementTree.fromstring(error.read()).findtext("{*}Error/{*}Code")  # noqa: S314
            raise _Refused(
                f"error making upstream request: received error code {error.code} from STS: {code}"
            ) from None
        return document.findtext("{*}GetCallerIdentityResult/{*}Arn") or ""

    def forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """OpenBao's answer."""
        kept = {name: value for name, value in headers.items() if name.lower().startswith("x-vault")}
        request = Request(f"{self.bao.url}{path}", body or None, kept, method=method)  # noqa: S310
        context = ssl.create_default_context(cadata=self.bao.ca_pem.decode())
        try:
            with urlopen(request, context=context, timeout=60) as answer:  # noqa: S310
                return answer.status, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()


def _handler(server: VaultWithAws) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("content-length") or 0)))

        def _answer(self, body: bytes) -> None:
            if self.path == "/v1/auth/aws/login":
                try:
                    status, content = 200, json.dumps(server.log_in(json.loads(body))).encode()
                except _Refused as refused:
                    status, content = refused.status, json.dumps({"errors": [str(refused)]}).encode()
            else:
                status, content = server.forward(self.command, self.path, dict(self.headers), body)
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Handler


@contextlib.contextmanager
def vault_with_aws(bao: Bao, sts_url: str, roles: dict[str, str]) -> Iterator[VaultWithAws]:
    """A server in front of `bao`, with a certificate of the same CA."""
    vault = VaultWithAws("", bao, sts_url, roles)
    listener = ThreadingHTTPServer(("127.0.0.1", 0), _handler(vault))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    bao.authority.issue_cert("127.0.0.1").configure_cert(context)
    listener.socket = context.wrap_socket(listener.socket, server_side=True)
    vault.url = f"https://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield vault
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()

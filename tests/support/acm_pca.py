"""A stand-in for AWS Private CA, and for the call of STS by which a client checks its credentials. The
signatures of requests are ignored.

Source: AWS Private CA API reference (DescribeCertificateAuthority, IssueCertificate, GetCertificate), AWS STS
API reference (GetCallerIdentity).
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from certwright.pki.csr import read_csr
from certwright.pki.signing import sign
from issuers.authority import Authority

ARN: Final = "arn:aws:acm-pca:eu-central-1:000000000000:certificate-authority/example"


_IDENTITY: Final = b"""\
<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <GetCallerIdentityResult>
    <Arn>arn:aws:iam::000000000000:user/issuer</Arn><UserId>issuer</UserId><Account>000000000000</Account>
  </GetCallerIdentityResult>
  <ResponseMetadata><RequestId>0</RequestId></ResponseMetadata>
</GetCallerIdentityResponse>
"""


class PrivateCa:
    """The CA. While `refusal` is set, IssueCertificate is answered by an error with that message. `issued`
    has the certificates by their ARN, one for each idempotency token."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.refusal = ""
        self.issued: dict[str, bytes] = {}
        self.url = ""

    def answer(self, action: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body of the response to a call."""
        match action:
            case "DescribeCertificateAuthority":
                configuration = {"KeyAlgorithm": "EC_prime256v1", "SigningAlgorithm": "SHA256WITHECDSA"}
                authority = {
                    "Arn": ARN,
                    "Status": "ACTIVE",
                    "CertificateAuthorityConfiguration": configuration,
                }
                return 200, {"CertificateAuthority": authority}
            case "IssueCertificate" if self.refusal:
                return 400, {"__type": "InvalidStateException", "message": self.refusal}
            case "IssueCertificate":
                arn = f"{ARN}/certificate/{body['IdempotencyToken']}"
                if arn not in self.issued:
                    self.issued[arn] = self._sign(body)
                return 200, {"CertificateArn": arn}
            case "GetCertificate":
                pem = self.issued[body["CertificateArn"]].decode().strip()
                return 200, {"Certificate": pem, "CertificateChain": self.authority.pem.decode().strip()}
            case _:
                return 400, {"__type": "UnknownOperationException", "message": action}

    def _sign(self, body: dict[str, Any]) -> bytes:
        request = base64.b64decode(body["Csr"])
        now = datetime.now(UTC)
        end = datetime.fromtimestamp(body["Validity"]["Value"], UTC)
        return sign(
            request,
            ca_cert=self.authority.facts,
            ca_key=self.authority.key,
            duration=max(end - now, timedelta(minutes=1)),
            is_ca=False,
            usages=read_csr(request).usages or (),
            now=now,
        )


@contextmanager
def private_ca(authority: Authority) -> Iterator[PrivateCa]:
    """A running stand-in; `url` is its endpoint."""
    ca = PrivateCa(authority)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if b"Action=GetCallerIdentity" in body:
                self._respond(200, "text/xml", _IDENTITY)
                return
            action = self.headers["X-Amz-Target"].rpartition(".")[2]
            status, content = ca.answer(action, json.loads(body))
            self._respond(status, "application/x-amz-json-1.1", json.dumps(content).encode())

        def _respond(self, status: int, content_type: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    ca.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield ca
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

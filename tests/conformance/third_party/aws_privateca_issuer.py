"""aws-privateca-issuer, an external issuer, with the rights of its chart: it signs for our controllers by AWS
Private CA, in whose place this module answers."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from certwright.pki.certificates import read_chain
from certwright.pki.csr import read_csr
from certwright.pki.signing import sign
from conformance.daemon import running_daemon
from conformance.third_party.chart import (
    Chart,
    Check,
    Cluster,
    decoded,
    install,
    kubeconfig_of,
    wait_until,
)
from issuers.authority import Authority
from support.programs import free_port, running, tool

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


CHART: Final = Chart(
    module="github.com/cert-manager/aws-privateca-issuer@v1.12.0",
    folder="charts/aws-pca-issuer",
    name="aws-privateca-issuer",
)
_GROUP: Final = "awspca.cert-manager.io"


def run(folder: Path) -> list[Check]:
    """Install it, and have Certificates issued."""
    program = tool("aws-privateca-issuer", made_by="third-party")
    probe_port = free_port()
    authority = Authority.fresh("Private CA", now=datetime.now(UTC))
    with running_daemon(folder) as daemon, private_ca(authority) as ca:
        cluster = Cluster(daemon)
        install(cluster, CHART, webhook_port=0)
        command = [
            str(program),
            f"--kubeconfig={kubeconfig_of(cluster, CHART.name)}",
            "--metrics-bind-address=0",
            f"--health-probe-bind-address=127.0.0.1:{probe_port}",
        ]
        environment = {"AWS_ENDPOINT_URL": ca.url, "AWS_EC2_METADATA_DISABLED": "true"}
        with running(command, folder / "issuer.log", probe_port, env=environment):
            return _checks(cluster, ca)


def _checks(cluster: Cluster, ca: PrivateCa) -> list[Check]:
    cluster.apply(_certificate("early"), _credentials())
    waits = wait_until(lambda: "issuer could not be found" in _issuing(cluster, "early"))
    cluster.apply(_issuer())
    ready = wait_until(lambda: _status(cluster, f"awspcaissuer.{_GROUP}", "aws", "Ready") == "True")
    early = wait_until(lambda: _status(cluster, "certificate", "early", "Ready") == "True")
    secret = cluster.get("secret", "early")
    if not early:
        return [Check(f"the Certificate is issued: {_issuing(cluster, 'early')}", False)]
    (leaf, *_), (root, *_) = (read_chain(decoded(secret, name)) for name in ("tls.crt", "ca.crt"))
    ca.refusal = "the CA is disabled"
    cluster.apply(_certificate("refused"))
    refused = wait_until(lambda: ca.refusal in _issuing(cluster, "refused"))
    shown = _issuing(cluster, "refused")
    ca.refusal = ""
    done = cluster.daemon.run(sys.executable, "-m", "certwright", "renew", "refused")
    renewed = wait_until(lambda: _status(cluster, "certificate", "refused", "Ready") == "True")
    return [
        Check("a Certificate waits for its AWSPCAIssuer, and says so", waits),
        Check("the AWSPCAIssuer is Ready", ready),
        Check(f"the Certificate is issued: {leaf.subject_text or leaf.dns_names[0]}", early),
        Check(f"by {leaf.issuer_text}, which is in ca.crt", root.der == ca.authority.facts.der),
        Check(f"a refusal of the CA is shown: {shown}", refused),
        Check("`certwright renew` succeeds when the CA works again", not done.returncode and renewed),
        Check(f"{len(ca.issued)} certificates ordered for 2 Certificates", len(ca.issued) == 2),
    ]


def _status(cluster: Cluster, kind: str, name: str, type_: str) -> str:
    return str(cluster.condition(kind, name, type_).get("status", ""))


def _issuing(cluster: Cluster, name: str) -> str:
    return str(cluster.condition("certificate", name, "Issuing").get("message", ""))


def _credentials() -> dict[str, Any]:
    meta = {"name": "aws", "namespace": "default"}
    data = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data}


def _issuer() -> dict[str, Any]:
    spec = {"arn": ARN, "region": "eu-central-1", "secretRef": {"name": "aws", "namespace": "default"}}
    meta = {"name": "aws", "namespace": "default"}
    return {"apiVersion": f"{_GROUP}/v1beta1", "kind": "AWSPCAIssuer", "metadata": meta, "spec": spec}


def _certificate(name: str) -> dict[str, Any]:
    spec = {
        "secretName": name,
        "dnsNames": [f"{name}.example.com"],
        "issuerRef": {"group": _GROUP, "kind": "AWSPCAIssuer", "name": "aws"},
        "privateKey": {"algorithm": "ECDSA"},
        "usages": ["server auth", "client auth"],
    }
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": meta, "spec": spec}

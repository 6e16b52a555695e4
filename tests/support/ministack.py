"""ministack: an emulator of AWS (Route 53, STS, IAM) on loopback that checks signatures and IAM policies.

`make servers` installs it. `Aws` calls it as the root user of the account, whose key it knows.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen
from xml.etree import ElementTree

from certwright.kit.aws.service import AwsCredentials, AwsRequest, SigningScope, sign
from support.programs import environment_of, free_port, running

ACCOUNT: Final = "000000000000"
_ROOT: Final = AwsCredentials("test", "test")
_REGION: Final = "us-east-1"
_TRUST_ALL: Final = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}


@dataclass(frozen=True, slots=True)
class Aws:
    """A running emulator."""

    url: str

    def call(self, service: str, method: str, path: str, body: bytes = b"") -> ElementTree.Element:
        """A request of the root user. Raises `RuntimeError` with the answer."""
        headers = (("content-type", "application/x-www-form-urlencoded"),) if body else ()
        request = AwsRequest(method, f"{self.url}{path}", headers, body)
        signed = sign(request, _ROOT, SigningScope(service, _REGION), datetime.now(UTC))
        sent = Request(signed.url, body or None, dict(signed.headers), method=method)  # noqa: S310
        try:
            with urlopen(sent, timeout=60) as answer:  # noqa: S310
                content = answer.read()
        except HTTPError as error:
            with error:
                raise RuntimeError(f"{method} {path}: {error.code} {error.read()!r}") from None
        return ElementTree.fromstring(content)  # noqa: S314

    def iam(self, action: str, **parameters: str) -> ElementTree.Element:
        """An action of IAM."""
        form = {"Action": action, "Version": "2010-05-08", **parameters}
        return self.call("iam", "POST", "/", urlencode(form).encode())

    def make_zone(self, name: str, *, is_private: bool = False) -> str:
        """Make a hosted zone; returns its ID."""
        namespace = "https://route53.amazonaws.com/doc/2013-04-01/"
        body = (
            f'<CreateHostedZoneRequest xmlns="{namespace}"><Name>{name}.</Name>'
            f"<CallerReference>{name}{is_private}</CallerReference><HostedZoneConfig>"
            f"<PrivateZone>{str(is_private).lower()}</PrivateZone></HostedZoneConfig></CreateHostedZoneRequest>"
        )
        answer = self.call("route53", "POST", "/2013-04-01/hostedzone", body.encode())
        return (answer.findtext("{*}HostedZone/{*}Id") or "").rpartition("/")[2]

    def make_user(self, name: str, *actions: str) -> AwsCredentials:
        """Make a user who may do these actions; returns an access key."""
        self.iam("CreateUser", UserName=name)
        if actions:
            self.iam("PutUserPolicy", UserName=name, PolicyName="p", PolicyDocument=policy(*actions))
        made = self.iam("CreateAccessKey", UserName=name)
        key = "{*}CreateAccessKeyResult/{*}AccessKey"
        return AwsCredentials(
            made.findtext(f"{key}/{{*}}AccessKeyId") or "", made.findtext(f"{key}/{{*}}SecretAccessKey") or ""
        )

    def make_role(self, name: str, *actions: str, trust: Mapping[str, Any] = _TRUST_ALL) -> str:
        """Make a role that may do these actions, and that all identities of the account may assume unless
        `trust` says otherwise; returns its ARN."""
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        self.iam("CreateRole", RoleName=name, AssumeRolePolicyDocument=document)
        self.iam("PutRolePolicy", RoleName=name, PolicyName="p", PolicyDocument=policy(*actions))
        return f"arn:aws:iam::{ACCOUNT}:role/{name}"

    def make_federated_role(self, name: str, issuer: str, subject: str, *actions: str) -> str:
        """Make a role for the tokens that `issuer` (a URL) gives to `subject`; returns its ARN."""
        provider = issuer.removeprefix("https://")
        self.iam("CreateOpenIDConnectProvider", Url=issuer, **{"ClientIDList.member.1": "sts.amazonaws.com"})
        trust = {
            "Effect": "Allow",
            "Principal": {"Federated": f"arn:aws:iam::{ACCOUNT}:oidc-provider/{provider}"},
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {"StringEquals": {f"{provider}:sub": subject}},
        }
        return self.make_role(name, *actions, trust=trust)


def policy(*actions: str) -> str:
    """A policy that allows these actions on all resources."""
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@contextlib.contextmanager
def running_ministack() -> Iterator[Aws]:
    """An emulator of its own."""
    program = environment_of("servers") / "bin" / "ministack"
    with tempfile.TemporaryDirectory(prefix="ministack") as name:
        port = free_port()
        environment = {
            "AUTH": "true",
            "AWS_ACCESS_KEY_ID": _ROOT.access_key_id,
            "AWS_SECRET_ACCESS_KEY": _ROOT.secret_access_key,
            "BIND_HOST": "127.0.0.1",
            "EDGE_PORT": str(port),
            "GATEWAY_PORT": str(port),
            "IOT_MTLS_ENABLED": "0",
            "SERVICES": "route53,sts,iam",
            "SFTP_ENABLED": "0",
            "TMPDIR": name,  # for its PID file, which it leaves behind
        }
        with running([str(program)], Path(name) / "log", port, env=environment):
            yield Aws(f"http://127.0.0.1:{port}")

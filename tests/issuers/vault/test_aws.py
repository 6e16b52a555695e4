"""The AWS method: STS is ministack, which checks signatures; what it signs for logs in to a real OpenBao."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen
from xml.etree import ElementTree

import msgspec
import pytest
from msgspec.structs import replace

from certwright.issuers.vault.settings import aws_login
from certwright.kit.aws.service import AwsCredentials
from certwright.resources.causes import Cause
from certwright.resources.issuer import VaultAuth, VaultAWS
from certwright.resources.references import ServiceAccountRef
from issuers.vault.conftest import MakeSetup, VaultSetup
from issuers.vault.test_vault import PLAN
from kit.aws.test_sts import ISSUER, token_of
from support.ministack import ACCOUNT, Aws, running_ministack
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


USER_ARN = f"arn:aws:iam::{ACCOUNT}:user/pod"


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with running_ministack() as running:
        yield running


@pytest.fixture(scope="module")
def pod(aws: Aws) -> AwsCredentials:
    """The key of the user `pod`."""
    return aws.make_user("pod", "sts:AssumeRole")


@pytest.fixture(scope="module")
def federated(aws: Aws) -> str:
    """A role for the ServiceAccount `default/signer`."""
    subject = "system:serviceaccount:default:signer"
    return aws.make_federated_role("federated", f"https://{ISSUER}", subject)


@pytest.fixture
def vault(bao: Bao, aws: Aws, federated: str) -> Iterator[VaultWithAws]:
    """A server whose role `web` is for the user and `irsa` for the role."""
    with vault_with_aws(bao, aws.url, {"web": USER_ARN, "irsa": federated}) as running:
        yield running


@pytest.fixture
def ambient(make: MakeSetup, vault: VaultWithAws, aws: Aws, pod: AwsCredentials) -> VaultSetup:
    """An Issuer that may use the user's key, which the environment has."""
    setup = make(VaultAuth(aws=VaultAWS(role="web")))
    setup.change(msgspec.structs.replace(setup.spec, server=vault.url))
    setup.environment = {
        "AWS_ACCESS_KEY_ID": pod.access_key_id,
        "AWS_SECRET_ACCESS_KEY": pod.secret_access_key,
        "AWS_ENDPOINT_URL_STS": aws.url,
    }
    setup.ambient_kinds = ("Issuer",)
    setup.now = datetime.now(UTC)
    return setup


def with_method(setup: VaultSetup, **fields: object) -> None:
    assert setup.spec.auth.aws is not None
    method = msgspec.structs.replace(setup.spec.auth.aws, **fields)
    setup.change(msgspec.structs.replace(setup.spec, auth=VaultAuth(aws=method)))


async def refused(setup: VaultSetup) -> str:
    """The message of a request that waits because the login fails; no key is in it."""
    outcome = await setup.pending(setup.request(PLAN))
    assert outcome.cause is Cause.UNAVAILABLE
    assert setup.environment.get("AWS_SECRET_ACCESS_KEY", "no key") not in outcome.message
    return outcome.message


async def test_ambient_credentials_log_in_once_for_a_lease(ambient: VaultSetup, vault: VaultWithAws) -> None:
    checked = await ambient.issuer.check(ambient.view, ambient.tools)
    assert (checked.ready, checked.reason) == (True, "VaultVerified")
    for _ in range(3):
        await ambient.signed(ambient.request(PLAN))
    assert vault.logins == [USER_ARN]


async def test_ambient_credentials_need_the_operators_consent(
    ambient: VaultSetup, vault: VaultWithAws
) -> None:
    ambient.ambient_kinds = ("ClusterIssuer",)
    assert "start certwright with --issuer-ambient-credentials" in await refused(ambient)
    assert vault.logins == []
    ambient.view = replace(ambient.view, kind="ClusterIssuer", namespace="")
    await ambient.signed(ambient.request(PLAN))


async def test_the_token_of_a_service_account_is_exchanged_for_a_role(
    ambient: VaultSetup, vault: VaultWithAws, federated: str
) -> None:
    ambient.ambient_kinds = ()
    ambient.token = token_of("system:serviceaccount:default:signer")
    account = ServiceAccountRef(name="signer")
    with_method(ambient, role="irsa", iam_role_arn=federated, service_account_ref=account)
    await ambient.signed(ambient.request(PLAN))
    assert ambient.tokens == [("signer", ("sts.amazonaws.com",))]
    assert vault.logins == [f"arn:aws:sts::{ACCOUNT}:assumed-role/federated/certwright"]
    # The lease is over: another token is exchanged.
    ambient.now += timedelta(minutes=21)
    await ambient.sign(ambient.request(PLAN))
    assert len(ambient.tokens) == 2


async def test_a_role_is_assumed_with_ambient_credentials(
    ambient: VaultSetup, vault: VaultWithAws, aws: Aws
) -> None:
    vault.roles["assumed"] = aws.make_role("assumed")
    with_method(ambient, role="assumed", iam_role_arn=vault.roles["assumed"])
    await ambient.signed(ambient.request(PLAN))
    assert vault.logins == [f"arn:aws:sts::{ACCOUNT}:assumed-role/assumed/certwright"]


async def test_the_servers_id_is_signed(ambient: VaultSetup, vault: VaultWithAws) -> None:
    vault.server_id = "vault.example.org"
    assert "missing header or another value" in await refused(ambient)
    with_method(ambient, vault_header_value="vault.example.org")
    await ambient.signed(ambient.request(PLAN))


async def test_a_wrong_key_is_refused_by_sts(ambient: VaultSetup) -> None:
    ambient.environment["AWS_SECRET_ACCESS_KEY"] = "wrong" * 8
    message = await refused(ambient)
    assert "Vault refuses the login: " in message
    assert "received error code 403 from STS: SignatureDoesNotMatch" in message


async def test_another_principal_is_refused(ambient: VaultSetup) -> None:
    with_method(ambient, role="irsa")
    assert f'IAM Principal "{USER_ARN}" does not belong to the role' in await refused(ambient)


async def test_a_role_that_trusts_another_service_account_is_named(
    ambient: VaultSetup, federated: str
) -> None:
    ambient.token = token_of("system:serviceaccount:default:other")
    account = ServiceAccountRef(name="other")
    with_method(ambient, role="irsa", iam_role_arn=federated, service_account_ref=account)
    message = await refused(ambient)
    assert f"AWS STS refused to assume the role {federated} as ServiceAccount other" in message
    assert ambient.token not in message


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"region": "no region"}, 'spec.vault.auth.aws.region: "no region" is not an AWS region'),
        (
            {"service_account_ref": ServiceAccountRef(name="signer")},
            "Vault AWS auth requires both serviceAccountRef.name and iamRoleArn",
        ),
        ({"role": ""}, "Vault AWS auth requires a role to be set"),
    ],
)
async def test_a_wrong_setting_is_named_by_the_check(
    ambient: VaultSetup, method: dict[str, object], message: str
) -> None:
    with_method(ambient, **method)
    checked = await ambient.issuer.check(ambient.view, ambient.tools)
    assert not checked.ready
    assert message in checked.message


async def test_without_any_credentials_the_sources_are_named(ambient: VaultSetup) -> None:
    ambient.environment = {"AWS_EC2_METADATA_DISABLED": "true"}
    assert "the environment has no AWS credentials" in await refused(ambient)


@pytest.mark.parametrize(
    ("region", "environment", "host"),
    [
        ("", {}, "sts.amazonaws.com"),
        ("", {"AWS_REGION": "eu-central-1"}, "sts.eu-central-1.amazonaws.com"),
        ("cn-north-1", {"AWS_REGION": "eu-central-1"}, "sts.cn-north-1.amazonaws.com.cn"),
    ],
)
async def test_the_request_is_signed_for_the_region(
    ambient: VaultSetup, region: str, environment: dict[str, str], host: str
) -> None:
    del ambient.environment["AWS_ENDPOINT_URL_STS"]
    ambient.environment |= environment
    servers = ambient.tools.servers
    assert servers is not None
    login = aws_login(ambient.view, VaultAWS(role="web", region=region), "/v1/auth/aws/login", servers)
    fields = dict((await login.call(servers, ambient.now)).fields)
    headers = json.loads(base64.b64decode(fields["iam_request_headers"]))
    assert headers["host"] == [host]
    assert f"/{region or environment.get('AWS_REGION', 'us-east-1')}/sts/" in headers["authorization"][0]
    assert base64.b64decode(fields["iam_request_url"]).decode() == f"https://{host}/"

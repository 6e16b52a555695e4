"""The AWS method: STS is ministack, which checks signatures; what it signs for logs in to a real OpenBao."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from certwright.issuers.contract import Pending, Signed
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
from support.vault_aws import VaultWithAws, vault_with_aws

USER_ARN = f"arn:aws:iam::{ACCOUNT}:user/pod"


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    """STS and IAM."""
    with running_ministack() as running:
        yield running


@pytest.fixture(scope="module")
def pod(aws: Aws) -> AwsCredentials:
    """The key of the user `pod`."""
    return aws.make_user("pod", "sts:AssumeRole")


@pytest.fixture(scope="module")
def federated(aws: Aws) -> str:
    """A role for the ServiceAccount `default/signer`."""
    provider = {"Url": f"https://{ISSUER}", "ClientIDList.member.1": "sts.amazonaws.com"}
    aws.iam("CreateOpenIDConnectProvider", **provider)
    trust = {
        "Effect": "Allow",
        "Principal": {"Federated": f"arn:aws:iam::{ACCOUNT}:oidc-provider/{ISSUER}"},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {"StringEquals": {f"{ISSUER}:sub": "system:serviceaccount:default:signer"}},
    }
    return aws.make_role("federated", trust=trust)


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
    """Change the method."""
    assert setup.spec.auth.aws is not None
    method = msgspec.structs.replace(setup.spec.auth.aws, **fields)
    setup.change(msgspec.structs.replace(setup.spec, auth=VaultAuth(aws=method)))


async def refused(setup: VaultSetup) -> str:
    """The message of a request that waits because the login fails; no key is in it."""
    outcome = await setup.sign(setup.request(PLAN))
    assert isinstance(outcome, Pending)
    assert outcome.cause is Cause.UNAVAILABLE
    assert setup.environment.get("AWS_SECRET_ACCESS_KEY", "no key") not in outcome.message
    return outcome.message


async def test_ambient_credentials_log_in_once_for_a_lease(ambient: VaultSetup, vault: VaultWithAws) -> None:
    checked = await ambient.issuer.check(ambient.view, ambient.tools)
    assert (checked.ready, checked.reason) == (True, "VaultVerified")
    for _ in range(3):
        assert isinstance(await ambient.sign(ambient.request(PLAN)), Signed)
    assert vault.logins == [USER_ARN]


async def test_ambient_credentials_need_the_operators_consent(
    ambient: VaultSetup, vault: VaultWithAws
) -> None:
    ambient.ambient_kinds = ("ClusterIssuer",)
    assert "start certwright with --issuer-ambient-credentials" in await refused(ambient)
    assert vault.logins == []
    ambient.view = replace(ambient.view, kind="ClusterIssuer", namespace="")
    assert isinstance(await ambient.sign(ambient.request(PLAN)), Signed)


async def test_the_token_of_a_service_account_is_exchanged_for_a_role(
    ambient: VaultSetup, vault: VaultWithAws, federated: str
) -> None:
    ambient.ambient_kinds = ()
    ambient.token = token_of("system:serviceaccount:default:signer")
    account = ServiceAccountRef(name="signer")
    with_method(ambient, role="irsa", iam_role_arn=federated, service_account_ref=account)
    assert isinstance(await ambient.sign(ambient.request(PLAN)), Signed)
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
    assert isinstance(await ambient.sign(ambient.request(PLAN)), Signed)
    assert vault.logins == [f"arn:aws:sts::{ACCOUNT}:assumed-role/assumed/certwright"]


async def test_the_servers_id_is_signed(ambient: VaultSetup, vault: VaultWithAws) -> None:
    vault.server_id = "vault.example.org"
    assert "missing header or another value" in await refused(ambient)
    with_method(ambient, vault_header_value="vault.example.org")
    assert isinstance(await ambient.sign(ambient.request(PLAN)), Signed)


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

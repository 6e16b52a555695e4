"""STS on ministack, which checks signatures, trust policies and permissions."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest

from certwright.kit.aws.credentials import AssumedRole, WebIdentity, caller_identity_request
from certwright.kit.aws.errors import AwsDenied, AwsError, AwsUnreachable
from certwright.kit.aws.service import AwsCredentials, AwsEndpoint, AwsRequest, AwsTools, StaticKeys
from certwright.kit.outgoing import ServerRules
from support.ministack import ACCOUNT, Aws

HTTP = ServerRules(allow_http=True)
ISSUER = "oidc.example.org"


def endpoint(aws: Aws) -> AwsEndpoint:
    return AwsEndpoint(aws.url, "us-east-1", HTTP)


def keys(credentials: AwsCredentials) -> StaticKeys:
    return StaticKeys(credentials.access_key_id, credentials.secret_access_key)


async def test_a_role_is_assumed_for_an_hour(aws: Aws, tools: AwsTools) -> None:
    user, role = aws.make_user("assumes", "sts:AssumeRole"), aws.make_role("assumed", "route53:*")
    credentials = await AssumedRole(role=role, base=keys(user), endpoint=endpoint(aws)).fetch(tools)
    assert credentials.session_token
    assert credentials.expires_at is not None
    assert timedelta(minutes=50) < credentials.expires_at - tools.now() <= timedelta(hours=1)
    assert (
        await identity_of(aws, tools, credentials)
        == f"arn:aws:sts::{ACCOUNT}:assumed-role/assumed/certwright"
    )


async def test_a_role_is_assumed_by_a_session(aws: Aws, tools: AwsTools) -> None:
    # A role in the account of the zones, assumed by the role of the pod.
    user, first = aws.make_user("chains", "sts:AssumeRole"), aws.make_role("first", "sts:AssumeRole")
    base = AssumedRole(role=first, base=keys(user), endpoint=endpoint(aws))
    second = AssumedRole(role=aws.make_role("second"), base=base, endpoint=endpoint(aws))
    credentials = await second.fetch(tools)
    assert (await identity_of(aws, tools, credentials)).endswith("assumed-role/second/certwright")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"secret_access_key": "wrong"}, "SignatureDoesNotMatch"),
        ({"access_key_id": "AKIAUNKNOWN"}, "InvalidClientTokenId"),
    ],
)
async def test_a_wrong_key_is_refused_and_not_shown(
    aws: Aws, tools: AwsTools, change: dict[str, str], message: str
) -> None:
    user = aws.make_user(f"wrong-{message}", "sts:AssumeRole")
    given = {"access_key_id": user.access_key_id, "secret_access_key": user.secret_access_key, **change}
    source = AssumedRole(
        role=f"arn:aws:iam::{ACCOUNT}:role/any", base=StaticKeys(**given), endpoint=endpoint(aws)
    )
    with pytest.raises(
        AwsDenied, match=f"refused to assume the role .*/any: status 403, {message}"
    ) as caught:
        await source.fetch(tools)
    assert given["secret_access_key"] not in str(caught.value)


async def test_a_user_without_the_permission_is_refused(aws: Aws, tools: AwsTools) -> None:
    trust = {
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
        "Action": "sts:AssumeRole",
    }
    user, role = aws.make_user("may-nothing"), aws.make_role("closed", trust=trust)
    with pytest.raises(AwsDenied, match=r"AccessDenied.*is not authorized to perform: sts:AssumeRole"):
        await AssumedRole(role=role, base=keys(user), endpoint=endpoint(aws)).fetch(tools)


async def test_a_token_is_exchanged_for_the_role_that_trusts_its_subject(aws: Aws, tools: AwsTools) -> None:
    right = "system:serviceaccount:default:right"
    role = aws.make_federated_role("federated", f"https://{ISSUER}", right, "route53:*")

    async def fetch(subject: str) -> AwsCredentials:
        async def get_token() -> str:
            return token_of(subject)

        source = WebIdentity(role=role, identity=subject, get_token=get_token, endpoint=endpoint(aws))
        return await source.fetch(tools)

    credentials = await fetch(right)
    assert (
        await identity_of(aws, tools, credentials)
        == f"arn:aws:sts::{ACCOUNT}:assumed-role/federated/certwright"
    )
    with pytest.raises(AwsDenied, match="AccessDenied"):
        await fetch("system:serviceaccount:default:another")


async def test_whoever_sends_the_request_learns_the_identity(aws: Aws, tools: AwsTools) -> None:
    user = aws.make_user("prover")
    headers = (("x-vault-aws-iam-server-id", "vault.example.org"),)
    request = caller_identity_request(endpoint(aws), user, datetime.now(UTC), headers)
    assert "x-vault-aws-iam-server-id" in dict(request.headers)["authorization"]
    assert await identity(tools, request) == f"arn:aws:iam::{ACCOUNT}:user/prover"


async def test_a_server_that_is_not_aws_is_named(tools: AwsTools) -> None:
    closed = AwsEndpoint("http://127.0.0.1:1", "us-east-1", HTTP)
    source = AssumedRole(role="arn:x", base=StaticKeys("a", "b"), endpoint=closed)
    with pytest.raises(AwsUnreachable, match="AWS STS cannot be asked to assume the role arn:x: "):
        await source.fetch(tools)


async def test_the_token_is_missing(aws: Aws, tools: AwsTools) -> None:
    async def get_token() -> str:
        raise AwsError("no token")

    source = WebIdentity(role="arn:x", identity="i", get_token=get_token, endpoint=endpoint(aws))
    with pytest.raises(AwsError, match="no token"):
        await source.fetch(tools)


async def identity_of(aws: Aws, tools: AwsTools, credentials: AwsCredentials) -> str:
    """The ARN of the identity that these credentials belong to."""
    return await identity(tools, caller_identity_request(endpoint(aws), credentials, tools.now()))


async def identity(tools: AwsTools, request: AwsRequest) -> str:
    """The ARN in the answer to a signed request."""
    sent = await tools.client(HTTP).send(
        request.method, request.url, body=request.body, headers=request.headers
    )
    return sent.body.decode().partition("<Arn>")[2].partition("</Arn>")[0]


def token_of(subject: str) -> str:
    """A token as Kubernetes issues them; ministack does not check its signature."""
    parts: list[dict[str, object]] = [
        {"alg": "RS256", "typ": "JWT"},
        {
            "iss": f"https://{ISSUER}",
            "sub": subject,
            "aud": ["sts.amazonaws.com"],
            "exp": int(datetime.now(UTC).timestamp()) + 600,
        },
    ]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJl"])

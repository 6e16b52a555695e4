"""Ambient credentials, from servers that answer as AWS documents it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from certwright.kit.aws.credentials import WebIdentity, ambient_source, sts_in
from certwright.kit.aws.errors import AwsError, NoCredentials
from certwright.kit.aws.service import (
    AwsCredentials,
    AwsTools,
    CredentialCache,
    StaticKeys,
    check_region,
    region_of,
    sts_endpoint,
)

STS = sts_in("eu-central-1")
EXPIRES = datetime(2030, 1, 1, 6, tzinfo=UTC)


@dataclass
class Machine:
    """The metadata service of EC2 and the agents of ECS and EKS, written from AWS's documentation."""

    url: str = ""
    role: str = "machine-role"
    token: str = ""
    answers: list[web.Response] = field(default_factory=list)

    def routes(self) -> list[web.RouteDef]:
        """The paths of all three."""
        return [
            web.put("/latest/api/token", self._session),
            web.get("/latest/meta-data/iam/security-credentials/", self._roles),
            web.get("/latest/meta-data/iam/security-credentials/{role}", self._keys),
            web.get("/v1/credentials", self._agent),
        ]

    async def _session(self, request: web.Request) -> web.Response:
        assert request.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "21600"
        return web.Response(text="the-session")

    async def _roles(self, request: web.Request) -> web.Response:
        assert request.headers["X-aws-ec2-metadata-token"] == "the-session"
        return web.Response(text=f"{self.role}\n") if self.role else web.Response(status=404)

    async def _keys(self, request: web.Request) -> web.Response:
        assert request.headers["X-aws-ec2-metadata-token"] == "the-session"
        assert request.match_info["role"] == self.role
        return self._answer()

    async def _agent(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization", "") != self.token:
            return web.Response(status=401)
        return self._answer()

    def _answer(self) -> web.Response:
        if self.answers:
            return self.answers.pop(0)
        body = {
            "Code": "Success",
            "AccessKeyId": "ASIA",
            "SecretAccessKey": "secret",
            "Token": "session",
            "Expiration": "2030-01-01T06:00:00Z",
        }
        return web.Response(text=json.dumps(body), content_type="text/plain")


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    running, app = Machine(), web.Application()
    app.add_routes(running.routes())
    async with TestServer(app) as server:
        running.url = str(server.make_url("")).rstrip("/")
        yield running


FOUND = AwsCredentials("ASIA", "secret", "session", EXPIRES)


async def test_the_environment_comes_first(machine: Machine, tools: AwsTools) -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_SESSION_TOKEN": "t",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{machine.url}/v1/credentials",
    }
    assert await ambient_source(environment, STS).fetch(tools) == AwsCredentials("AKIA", "s", "t")


async def test_the_metadata_service_of_the_machine(machine: Machine, tools: AwsTools) -> None:
    source = ambient_source({"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{machine.url}/"}, STS)
    assert await source.fetch(tools) == FOUND


async def test_the_agent_of_eks_reads_the_token_file_each_time(
    machine: Machine, tools: AwsTools, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    environment = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{machine.url}/v1/credentials",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
    }
    source = ambient_source(environment, STS)
    for machine.token in ("first", "second"):
        token.write_text(machine.token)
        assert await source.fetch(tools) == FOUND
    token.unlink()
    with pytest.raises(
        NoCredentials, match="the file of AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE cannot be read"
    ):
        await source.fetch(tools)


def test_a_web_identity_of_the_environment() -> None:
    environment = {
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/token",
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/pod",
        "AWS_ROLE_SESSION_NAME": "pod-1",
    }
    source = ambient_source(environment, STS)
    assert isinstance(source, WebIdentity)
    assert (source.role, source.session_name, source.endpoint) == ("arn:aws:iam::1:role/pod", "pod-1", STS)
    # The settings of two challenges are equal, so that both use the same credentials.
    assert source == ambient_source(environment, STS)
    assert hash(source) == hash(ambient_source(environment, STS))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"AWS_ACCESS_KEY_ID": "AKIA"}, "without AWS_SECRET_ACCESS_KEY; set both"),
        ({"AWS_WEB_IDENTITY_TOKEN_FILE": "/t"}, "without AWS_ROLE_ARN; set both"),
        ({"AWS_EC2_METADATA_DISABLED": "true"}, "AWS_EC2_METADATA_DISABLED forbids"),
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.org/"}, "neither https nor an address of"),
    ],
)
def test_an_incomplete_environment_is_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(NoCredentials, match=message):
        ambient_source(environment, STS)


def test_the_agents_of_aws_are_allowed() -> None:
    for url in ("http://169.254.170.23/v1/credentials", "http://[fd00:ec2::23]/v1", "https://example.org/"):
        ambient_source({"AWS_CONTAINER_CREDENTIALS_FULL_URI": url}, STS)


async def test_a_machine_without_a_role(machine: Machine, tools: AwsTools) -> None:
    machine.role = ""
    source = ambient_source({"AWS_EC2_METADATA_SERVICE_ENDPOINT": machine.url}, STS)
    with pytest.raises(
        NoCredentials, match="the metadata service of EC2 gave no AWS credentials: status 404"
    ):
        await source.fetch(tools)


@pytest.mark.parametrize("body", ["<html>", "{}", '{"AccessKeyId": "the-secret"}'])
async def test_a_strange_answer_is_not_quoted(machine: Machine, tools: AwsTools, body: str) -> None:
    machine.answers.append(web.Response(text=body))
    source = ambient_source({"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{machine.url}/v1/credentials"}, STS)
    with pytest.raises(NoCredentials, match="did not answer as documented") as caught:
        await source.fetch(tools)
    assert "the-secret" not in str(caught.value)


async def test_no_machine_of_aws(tools: AwsTools) -> None:
    source = ambient_source({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}, STS)
    with pytest.raises(NoCredentials, match=r"no ambient AWS credentials: .* or name them in the manifest"):
        await source.fetch(tools)


class Renewing:
    """A source whose credentials last an hour; it fails while `error` is set."""

    def __init__(self, now: list[datetime]) -> None:
        self.now = now
        self.fetched = 0
        self.error: AwsError | None = None

    async def fetch(self, tools: AwsTools) -> AwsCredentials:
        self.fetched += 1
        if self.error is not None:
            raise self.error
        return AwsCredentials("ASIA", "s", f"session-{self.fetched}", self.now[0] + timedelta(hours=1))


async def test_temporary_credentials_are_renewed_before_they_expire(tools: AwsTools) -> None:
    now = [datetime(2030, 1, 1, tzinfo=UTC)]
    source = Renewing(now)
    cache = CredentialCache(source, AwsTools(tools.client, lambda: now[0]))
    first = await cache.get()
    now[0] += timedelta(minutes=49)
    assert await cache.get() is first
    now[0] += timedelta(minutes=2)
    source.error = AwsError("STS is down")
    assert await cache.get() is first  # They still work.
    now[0] += timedelta(minutes=8, seconds=30)
    with pytest.raises(AwsError, match="STS is down"):
        await cache.get()
    source.error = None
    second = await cache.get()
    assert second.session_token == "session-4"
    cache.forget(first)
    assert await cache.get() is second
    cache.forget(second)
    assert await cache.get() is not second


async def test_an_access_key_is_not_renewed(tools: AwsTools) -> None:
    cache = CredentialCache(StaticKeys("AKIA", "s"), tools)
    assert await cache.get() is await cache.get()


@pytest.mark.parametrize(
    "region", ["evil.example/", "us-east-1.evil.example", "", "US-EAST-1", "us-east-1\n"]
)
def test_a_region_that_is_none_is_refused(region: str) -> None:
    with pytest.raises(AwsError, match=r"spec.region: .* is not an AWS region"):
        check_region(region, "spec.region")


def test_regions_and_their_endpoints() -> None:
    assert region_of({"AWS_REGION": "eu-central-1", "AWS_DEFAULT_REGION": "us-west-2"}) == "eu-central-1"
    assert region_of({"AWS_DEFAULT_REGION": "us-west-2"}) == "us-west-2"
    assert sts_endpoint("") == "https://sts.us-east-1.amazonaws.com"
    assert sts_endpoint("cn-north-1") == "https://sts.cn-north-1.amazonaws.com.cn"
    assert sts_endpoint(check_region("us-gov-west-1", "f")) == "https://sts.us-gov-west-1.amazonaws.com"

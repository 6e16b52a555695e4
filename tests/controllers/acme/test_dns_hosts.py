"""From the fields of `dns01` to the settings of DNS hosts: Secrets, endpoints, ambient credentials, options
of `lexicon` and `plugin`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.child.messages import Provider
from certwright.acme.solvers.dns01.hosts.in_child import ChildSettings
from certwright.controllers.acme.dns_hosts import HOSTS, HostValues, host_of, settings_of
from certwright.issuers.contract import GetToken
from certwright.kit.aws.credentials import AssumedRole, InstanceMetadata
from certwright.kit.aws.errors import AwsError
from certwright.kit.aws.service import StaticKeys
from certwright.kit.outgoing import ServerRules
from certwright.kube.api.errors import Unreachable
from certwright.resources.references import secret_names
from certwright.resources.solver import DNS01_ENDPOINTS, DNS01Solver
from support.dns.clouddns import FakeCloudDns

SECRET = "a-secret-value"
KEY_FILE = FakeCloudDns().key_file
ACCOUNTS = {
    "example.org": {"username": "u", "password": SECRET, "fulldomain": "x.auth.test", "subdomain": "x"}
}


def ref(key: str = "key") -> dict[str, str]:
    return {"name": "credentials", "key": key}


SOLVERS: dict[str, dict[str, Any]] = {
    "acmeDNS": {"host": "https://auth.test", "accountSecretRef": ref("accounts")},
    "akamai": {
        "serviceConsumerDomain": "akab.example",
        "clientTokenSecretRef": ref(),
        "clientSecretSecretRef": ref(),
        "accessTokenSecretRef": ref(),
    },
    "azureDNS": {
        "clientID": "c",
        "tenantID": "t",
        "clientSecretSecretRef": ref(),
        "subscriptionID": "s",
        "resourceGroupName": "g",
    },
    "cloudDNS": {"project": "p", "serviceAccountSecretRef": ref("key.json")},
    "cloudflare": {"apiTokenSecretRef": ref()},
    "digitalocean": {"tokenSecretRef": ref()},
    "powerDNS": {"host": "https://pdns.test", "apiKeySecretRef": ref()},
    "route53": {"accessKeyID": "AKIA", "secretAccessKeySecretRef": ref()},
}
CHILDREN: dict[str, dict[str, Any]] = {
    "lexicon": {
        "provider": "powerdns",
        "credentialsSecretRef": {"name": "dns"},
        "options": {"pdns_server_id": "main", "ttl": "300"},
    },
    "plugin": {
        "name": "mine",
        "config": {"b": 1, "a": [True]},
        "secretRefs": {"token": {"name": "dns", "key": "auth_token"}},
    },
}
AMBIENT = {
    "azureDNS": {"subscriptionID": "s", "resourceGroupName": "g"},
    "cloudDNS": {"project": "p"},
    "route53": {"role": "arn:aws:iam::1:role/dns"},
}


async def made(
    name: str,
    spec: dict[str, Any],
    data: Mapping[str, bytes] | None = None,
    *,
    endpoints: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    ambient: bool = False,
    namespace: str = "default",
    get_token: GetToken | None = None,
    lexicon_options: Mapping[str, str] | None = None,
) -> Any:
    async def get_secret(_name: str) -> Mapping[str, bytes] | None:
        return data

    solver = msgspec.convert({name: spec}, DNS01Solver)
    field = host_of(solver)
    assert HOSTS[field] == name
    values = HostValues(
        path=f"dns01.{name}",
        get_secret=get_secret,
        namespace=namespace,
        get_token=get_token,
        endpoints=endpoints or {},
        environment=environment or {},
        ambient=ambient,
        lexicon_options={"powerdns": lexicon_options or {}},
    )
    return await settings_of(solver, field, values)


def secrets(**entries: bytes) -> dict[str, bytes]:
    files = {"key.json": json.dumps(KEY_FILE).encode(), "accounts": json.dumps(ACCOUNTS).encode()}
    return {"key": SECRET.encode(), **files, **entries}


@pytest.mark.parametrize("name", SOLVERS)
async def test_settings_are_values_that_show_no_secret(name: str) -> None:
    first, second = await made(name, SOLVERS[name], secrets()), await made(name, SOLVERS[name], secrets())
    assert first == second
    assert hash(first) == hash(second)
    assert SECRET not in repr(first)
    assert "PRIVATE KEY" not in repr(first)
    assert first.endpoint.rules == ServerRules(allow_http=False)


@pytest.mark.parametrize("name", SOLVERS)
async def test_a_missing_secret_and_a_missing_entry_are_named(name: str) -> None:
    with pytest.raises(SolverError, match=rf'dns01\.{name}\.\w+Ref: Secret "credentials" does not exist'):
        await made(name, SOLVERS[name], None)
    with pytest.raises(SolverError, match=rf'dns01\.{name}\.\w+Ref: Secret "credentials" has no entry'):
        await made(name, SOLVERS[name], {})


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("content", [b"two\r\nlines", b"\xff\xfelines"], ids=["two lines", "bytes"])
async def test_nonsense_is_a_sentence_that_does_not_quote_it(name: str, content: bytes) -> None:
    with pytest.raises(SolverError, match=rf"^dns01\.{name}\.\w+Ref: [^\n]+$") as caught:
        await made(name, SOLVERS[name], dict.fromkeys(("key", "key.json", "accounts"), content))
    assert "lines" not in str(caught.value)


@pytest.mark.parametrize("name", SOLVERS)
async def test_the_operator_moves_the_endpoint(name: str) -> None:
    assert name in DNS01_ENDPOINTS
    moved = await made(name, SOLVERS[name], secrets(), endpoints={name: "http://127.0.0.1:1"})
    assert moved.endpoint.url == "http://127.0.0.1:1"
    assert moved.endpoint.rules.allow_http


async def test_vendors_variables_move_endpoints_too() -> None:
    variables = {"CLOUDFLARE_BASE_URL": "http://proxy/cf", "DIGITALOCEAN_API_URL": "http://proxy/do"}
    for name, url in (("cloudflare", "http://proxy/cf"), ("digitalocean", "http://proxy/do")):
        settings = await made(name, SOLVERS[name], secrets(), environment=variables)
        assert settings.endpoint.url == url


async def test_credentials_go_where_the_api_is_or_where_the_operator_says() -> None:
    moved = {"azureDNS": "http://fake", "cloudDNS": "http://fake/"}
    azure = await made("azureDNS", SOLVERS["azureDNS"], secrets(), endpoints=moved)
    assert azure.login.authority.url == "http://fake"
    google = await made("cloudDNS", SOLVERS["cloudDNS"], secrets(), endpoints=moved)
    assert google.login.tokens.url == "http://fake/token"
    named = {**moved, "azureDNS-login": "http://login", "cloudDNS-token": "http://tokens"}
    azure = await made("azureDNS", SOLVERS["azureDNS"], secrets(), endpoints=named)
    assert azure.login.authority.url == "http://login"
    google = await made("cloudDNS", SOLVERS["cloudDNS"], secrets(), endpoints=named)
    assert google.login.tokens.url == "http://tokens"


async def test_the_token_uri_of_a_key_file_is_not_followed() -> None:
    assert KEY_FILE["token_uri"] == "https://attacker.example/token"
    google = await made("cloudDNS", SOLVERS["cloudDNS"], secrets())
    assert google.login.tokens.url == "https://oauth2.googleapis.com/token"


@pytest.mark.parametrize("name", AMBIENT)
async def test_ambient_credentials_need_the_operators_consent(name: str) -> None:
    with pytest.raises(SolverError, match="--issuer-ambient-credentials"):
        await made(name, AMBIENT[name], {})
    assert await made(name, AMBIENT[name], {}, ambient=True)


async def test_the_environment_chooses_the_ambient_credentials(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("federated\n")
    variables = {
        "AZURE_FEDERATED_TOKEN_FILE": str(token),
        "AZURE_CLIENT_ID": "client",
        "AZURE_TENANT_ID": "tenant",
    }
    azure = await made("azureDNS", AMBIENT["azureDNS"], {}, environment=variables, ambient=True)
    assert (azure.login.client_id, azure.login.tenant) == ("client", "tenant")
    assert azure.login.assertion == "federated"
    identity = {**AMBIENT["azureDNS"], "managedIdentity": {"clientID": "own", "tenantID": "other"}}
    azure = await made("azureDNS", identity, {}, environment=variables, ambient=True)
    assert (azure.login.client_id, azure.login.tenant) == ("own", "other")
    key_file = tmp_path / "key.json"
    key_file.write_text(json.dumps(KEY_FILE))
    variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(key_file)}
    google = await made("cloudDNS", AMBIENT["cloudDNS"], {}, environment=variables, ambient=True)
    assert google.login.email == KEY_FILE["client_email"]
    metadata = {"GCE_METADATA_HOST": "127.0.0.1:1"}
    google = await made("cloudDNS", AMBIENT["cloudDNS"], {}, environment=metadata, ambient=True)
    assert google.login.metadata.url == "http://127.0.0.1:1"


ROLE = "arn:aws:iam::1:role/dns"
ACCOUNT: dict[str, Any] = {"auth": {"kubernetes": {"serviceAccountRef": {"name": "dns"}}}}


async def test_each_way_to_aws_credentials() -> None:
    both = {"accessKeyIDSecretRef": ref(), "secretAccessKeySecretRef": ref()}
    keys = await made("route53", both, {"key": b"AKIA\n"})
    assert keys.source == StaticKeys("AKIA", "AKIA")
    plain = {
        "accessKeyID": "AKIA1",
        "secretAccessKeySecretRef": ref(),
        "role": ROLE,
        "region": "eu-central-1",
    }
    role = (await made("route53", plain, secrets())).source
    assert isinstance(role, AssumedRole)
    assert (role.role, role.base) == (ROLE, StaticKeys("AKIA1", SECRET))
    assert role.endpoint.url == "https://sts.eu-central-1.amazonaws.com"
    ambient = await made("route53", {}, {}, ambient=True)
    assert isinstance(ambient.source, InstanceMetadata)
    variables = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "cn-north-1"}
    china = await made("route53", {}, {}, ambient=True, environment=variables)
    assert china.source == StaticKeys("AKIA", SECRET)
    assert china.endpoint.url == "https://route53.amazonaws.com.cn"


async def test_a_service_accounts_token_is_requested_when_it_is_needed() -> None:
    requested = []

    async def get_token(name: str, audiences: Sequence[str]) -> str:
        requested.append((name, tuple(audiences)))
        if len(requested) > 1:
            raise Unreachable("the API server is down")
        return "the-token"

    solver = await made("route53", {**ACCOUNT, "role": ROLE}, {}, get_token=get_token)
    assert requested == []
    assert await solver.source.get_token() == "the-token"
    assert requested == [("dns", ("sts.amazonaws.com",))]
    with pytest.raises(
        AwsError, match=r'serviceAccountRef: no token of ServiceAccount "dns": the API server'
    ):
        await solver.source.get_token()
    # Another namespace's ServiceAccount of that name is another identity.
    again = await made("route53", {**ACCOUNT, "role": ROLE}, {}, get_token=get_token)
    other = await made("route53", {**ACCOUNT, "role": ROLE}, {}, get_token=get_token, namespace="other")
    assert solver == again
    assert solver != other


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"accessKeyID": "AKIA"}, "an access key ID without secretAccessKeySecretRef; give both"),
        ({"secretAccessKeySecretRef": ref()}, "without accessKeyID or accessKeyIDSecretRef; give both"),
        ({"region": "evil.example/"}, r'dns01\.route53\.region: "evil\.example/" is not an AWS region'),
        (ACCOUNT, r"a ServiceAccount needs a role; give dns01\.route53\.role"),
        ({**ACCOUNT, "role": ROLE}, "this process cannot request tokens of ServiceAccounts"),
    ],
)
async def test_settings_of_route_53_that_cannot_work(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(SolverError, match=message):
        await made("route53", spec, secrets(), ambient=True)


async def test_the_environment_and_the_operator_move_the_endpoints_of_aws() -> None:
    spec = {"accessKeyID": "AKIA", "secretAccessKeySecretRef": ref(), "role": ROLE}

    async def urls(environment: Mapping[str, str], endpoints: Mapping[str, str]) -> tuple[str, str]:
        solver = await made("route53", spec, secrets(), environment=environment, endpoints=endpoints)
        return solver.endpoint.url, solver.source.endpoint.url

    both = {"AWS_ENDPOINT_URL": "http://aws"}
    assert await urls(both, {}) == ("http://aws", "http://aws")
    each = {**both, "AWS_ENDPOINT_URL_ROUTE_53": "http://dns/", "AWS_ENDPOINT_URL_STS": "http://sts"}
    assert await urls(each, {}) == ("http://dns", "http://sts")
    assert await urls({}, {"route53": "http://flag"}) == ("http://flag", "http://flag")
    assert await urls(each, {"route53": "http://flag", "route53-sts": "http://s"}) == (
        "http://flag",
        "http://s",
    )


def provider_of(settings: ChildSettings) -> Provider:
    """What the process with the provider's code is told."""
    return msgspec.json.decode(settings.provider, type=Provider)


@pytest.mark.parametrize("name", CHILDREN)
async def test_settings_of_a_child_are_values_that_show_no_secret(name: str) -> None:
    spec, data = CHILDREN[name], {"auth_token": SECRET.encode()}
    first, second = await made(name, spec, data), await made(name, spec, data)
    assert first == second
    assert hash(first) == hash(second)
    assert SECRET not in repr(first)
    assert first != await made(name, spec, {"auth_token": b"another"})
    assert secret_names(msgspec.convert({name: spec}, DNS01Solver)) == {"dns"}
    with pytest.raises(
        SolverError, match=r'^dns01\.\w+\.\w+Refs?[.\w]*: Secret "dns" does not exist; create it$'
    ):
        await made(name, spec, None)


async def test_options_of_the_secret_and_of_the_operator_are_passed() -> None:
    data = {"auth_token": b"a-secret-value\n"}
    operator = {"pdns_server": "https://dns", "pdns_server_id": "localhost"}
    settings = await made("lexicon", CHILDREN["lexicon"], data, lexicon_options=operator)
    assert provider_of(settings) == Provider(
        kind="lexicon",
        name="powerdns",
        options={"ttl": "300", "auth_token": SECRET, **operator},
        servers=("https://dns",),
    )


async def test_a_secret_sets_no_option_of_the_operator() -> None:
    data = {"auth_token": SECRET.encode(), "pdns_server": b"http://169.254.169.254/"}
    with pytest.raises(
        SolverError, match=r'entry "pdns_server" of Secret "dns": only the operator'
    ) as caught:
        await made("lexicon", CHILDREN["lexicon"], data)
    assert "169.254" not in str(caught.value)
    with pytest.raises(SolverError, match=r'entry "auth_key" of Secret "dns": must not begin with file::'):
        await made("lexicon", CHILDREN["lexicon"], {"auth_key": b" file::/etc/passwd"})


async def test_options_that_were_stored_without_validation_are_refused() -> None:
    spec = {"provider": "powerdns", "options": {"pdns_server": "http://internal"}}
    with pytest.raises(SolverError, match=r"dns01\.lexicon\.options\.pdns_server: only the operator may set"):
        await made("lexicon", spec, {})


async def test_a_plugin_is_passed_its_configuration_and_bytes() -> None:
    settings = await made("plugin", CHILDREN["plugin"], {"auth_token": b"\xff\x00binary"})
    assert provider_of(settings) == Provider(
        kind="plugin", name="mine", config={"b": 1, "a": [True]}, secrets={"token": b"\xff\x00binary"}
    )

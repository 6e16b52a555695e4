"""Settings of DNS hosts from the fields of `dns01`: Secrets, endpoints and ambient credentials.

Loaded with the solvers, for the first challenge that needs a DNS host. Each function below makes the settings
of one host, and raises `SolverError` with a sentence that names the field.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.child.messages import Provider
from certwright.acme.solvers.dns01.hosts import (
    acmedns,
    akamai,
    azure,
    clouddns,
    cloudflare,
    digitalocean,
    in_child,
    powerdns,
    route53,
)
from certwright.acme.solvers.dns01.hosts.api import Endpoint, Login
from certwright.acme.solvers.dns01.hosts.contract import HostedZone, HostSettings
from certwright.acme.solvers.dns01.hosts.in_child import ChildSettings
from certwright.issuers.contract import GetSecret, GetToken
from certwright.kit.aws.credentials import AssumedRole, WebIdentity, ambient_source, sts_in
from certwright.kit.aws.errors import AwsError
from certwright.kit.aws.service import (
    AwsEndpoint,
    CredentialSource,
    StaticKeys,
    check_region,
    endpoint_variables,
    region_of,
)
from certwright.kit.outgoing import HTTPS_ONLY, ServerRules
from certwright.kube.api.errors import ApiError, Unreachable
from certwright.kube.util.decoders import json_decoder
from certwright.resources.lexicon import LexiconDNS, option_problem
from certwright.resources.references import SecretKeySelector, ServiceAccountRef
from certwright.resources.solver import (
    AcmeDNS,
    AkamaiDNS,
    AzureDNS,
    AzureManagedIdentity,
    CloudDNS,
    CloudflareDNS,
    DigitalOceanDNS,
    DNS01Solver,
    PluginDNS,
    PowerDNS,
    Route53DNS,
)

MakeSettings = Callable[[Any, "HostValues"], Awaitable[HostSettings]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostValues:
    """The sources of one solver's settings.

    `path`: the provider's field, for errors. `endpoints`: the operator's, by provider (`--dns01-endpoint`).
    `environment`: of this process. `namespace`: of the issuer's Secrets and ServiceAccounts. `get_token`
    requests a token of a ServiceAccount; None: this process cannot. `ambient`: whether this issuer may use
    the credentials of this process (environment, metadata server, workload identity). `rules`: for servers
    that a manifest names.
    """

    path: str
    get_secret: GetSecret
    namespace: str = ""
    get_token: GetToken | None = None
    endpoints: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    ambient: bool = False
    rules: ServerRules = HTTPS_ONLY
    lexicon_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    async def secret(self, reference: SecretKeySelector, name: str) -> bytes:
        """The entry of the Secret that the field `name` refers to. Raises `SolverError` if it is missing or
        empty."""
        data = await self.get_secret(reference.name)
        where = f"{self.path}.{name}"
        if data is None:
            raise SolverError(f'{where}: Secret "{reference.name}" does not exist; create it')
        value = data.get(reference.key, b"")
        if not value:
            raise SolverError(
                f'{where}: Secret "{reference.name}" has no entry "{reference.key}"; add it, or '
                f"correct {where}.key"
            )
        return value

    async def word(self, reference: SecretKeySelector, name: str) -> str:
        """The same as one line of text, without the spaces around it, as tokens and keys are. Raises
        `SolverError`."""
        value = await self.secret(reference, name)
        try:
            text = value.decode("ascii").strip()
        except UnicodeDecodeError:
            text = ""
        if not text or not text.isprintable():
            where = f"{self.path}.{name}"
            raise SolverError(
                f'{where}: entry "{reference.key}" of Secret "{reference.name}" is not a line of ASCII text'
            )
        return text

    def endpoint(self, provider: str, default: Endpoint, *variables: str) -> Endpoint:
        """The URL of the API: from the operator's flag, from the first of these environment variables (the
        vendor's own), or the default. Only the operator's URL may be `http`."""
        url = self.endpoints.get(provider) or next(
            (self.environment[variable] for variable in variables if self.environment.get(variable)), ""
        )
        return self.replaced(url, default)

    def replaced(self, url: str, default: Endpoint) -> Endpoint:
        """The operator's URL, http allowed; the default if it is empty."""
        return Endpoint(url, ServerRules(allow_http=True)) if url else default

    def require_ambient(self, fields: str) -> None:
        """Raises `SolverError` unless this process's own credentials may be used in place of `fields`."""
        if not self.ambient:
            raise SolverError(
                f"{self.path}: no credentials are given, and ambient ones are not allowed for this issuer; "
                f"give {fields}, or start certwright with --issuer-ambient-credentials (for a ClusterIssuer "
                "--cluster-issuer-ambient-credentials)"
            )

    def named_endpoint(self, provider: str, url: str) -> Endpoint:
        """The endpoint that the manifest names, by the operator's general rules; the operator's flag replaces
        it."""
        return self.endpoint(provider, Endpoint(url, self.rules))


async def _akamai(spec: AkamaiDNS, values: HostValues) -> akamai.AkamaiSettings:
    host = spec.service_consumer_domain.removeprefix("https://").rstrip("/")
    return akamai.AkamaiSettings(
        endpoint=values.named_endpoint("akamai", f"https://{host}"),
        client_token=await values.word(spec.client_token_secret_ref, "clientTokenSecretRef"),
        access_token=await values.word(spec.access_token_secret_ref, "accessTokenSecretRef"),
        client_secret=await values.word(spec.client_secret_secret_ref, "clientSecretSecretRef"),
    )


async def _acme_dns(spec: AcmeDNS, values: HostValues) -> acmedns.AcmeDnsSettings:
    content = await values.secret(spec.account_secret_ref, "accountSecretRef")
    try:
        accounts = json_decoder(dict[str, acmedns.Account]).decode(content)
    except msgspec.DecodeError:
        # The reason could quote a password.
        raise SolverError(
            f"{values.path}.accountSecretRef: the entry is not a JSON object of accounts by domain; write "
            '{"DOMAIN": {"username": …, "password": …, "fulldomain": …, "subdomain": …}}'
        ) from None
    endpoint = values.named_endpoint("acmeDNS", spec.host)
    return acmedns.AcmeDnsSettings(endpoint=endpoint, accounts=tuple(sorted(accounts.items())))


class _AzureCloud(msgspec.Struct, frozen=True):
    """The identity service and the resource manager of a cloud."""

    authority: str
    manager: str


_AZURE_CLOUDS: Final = {
    "AzurePublicCloud": _AzureCloud("https://login.microsoftonline.com", "https://management.azure.com"),
    "AzureChinaCloud": _AzureCloud("https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn"),
    "AzureGermanCloud": _AzureCloud(
        "https://login.microsoftonline.de", "https://management.microsoftazure.de"
    ),
    "AzureUSGovernmentCloud": _AzureCloud(
        "https://login.microsoftonline.us", "https://management.usgovcloudapi.net"
    ),
}


async def _azure_dns(spec: AzureDNS, values: HostValues) -> azure.AzureSettings:
    cloud = _AZURE_CLOUDS[spec.environment or "AzurePublicCloud"]
    zone = spec.hosted_zone_name.rstrip(".").lower()
    return azure.AzureSettings(
        subscription=spec.subscription_id,
        resource_group=spec.resource_group_name,
        login=await _azure_login(spec, cloud, values),
        endpoint=values.endpoint("azureDNS", Endpoint(cloud.manager)),
        is_private=spec.zone_type == "AzurePrivateZone",
        zone=HostedZone(zone, zone) if zone else None,
    )


async def _azure_login(spec: AzureDNS, cloud: _AzureCloud, values: HostValues) -> Login:
    # A manager elsewhere means credentials elsewhere, too, unless the operator names their place.
    elsewhere = values.endpoints.get("azureDNS", "")
    authority = values.endpoint(
        "azureDNS-login", values.replaced(elsewhere, Endpoint(cloud.authority)), "AZURE_AUTHORITY_HOST"
    )
    if spec.client_secret_secret_ref is not None:
        return azure.ServicePrincipal(
            authority=authority,
            tenant=spec.tenant_id,
            client_id=spec.client_id,
            resource=cloud.manager,
            secret=await values.word(spec.client_secret_secret_ref, "clientSecretSecretRef"),
        )
    values.require_ambient("clientID, clientSecretSecretRef and tenantID")
    identity = spec.managed_identity or AzureManagedIdentity()
    if path := values.environment.get("AZURE_FEDERATED_TOKEN_FILE"):
        return azure.ServicePrincipal(
            authority=authority,
            tenant=identity.tenant_id or values.environment.get("AZURE_TENANT_ID", ""),
            client_id=identity.client_id or values.environment.get("AZURE_CLIENT_ID", ""),
            resource=cloud.manager,
            assertion=(await _file_of("AZURE_FEDERATED_TOKEN_FILE", path)).strip(),
        )
    metadata = values.endpoint(
        "azureDNS-metadata",
        values.replaced(elsewhere, azure.METADATA),
        "AZURE_POD_IDENTITY_AUTHORITY_HOST",
    )
    return azure.ManagedIdentity(
        resource=f"{cloud.manager}/",
        client_id=identity.client_id,
        resource_id=identity.resource_id,
        metadata=metadata,
    )


async def _file_of(variable: str, path: str) -> str:
    """The text of the file that an environment variable names."""
    try:
        return await asyncio.to_thread(Path(path).read_text)
    except (OSError, UnicodeDecodeError) as error:
        words = getattr(error, "strerror", None) or "it is not text"
        raise SolverError(f"the file of {variable} cannot be read: {words}") from error


class _GoogleKeyFile(msgspec.Struct):
    """The fields of a service account's key file that are used. Its URLs are not."""

    client_email: str
    private_key: str
    private_key_id: str = ""
    type: str = "service_account"


async def _cloud_dns(spec: CloudDNS, values: HostValues) -> clouddns.CloudDnsSettings:
    name = spec.hosted_zone_name
    return clouddns.CloudDnsSettings(
        project=spec.project,
        login=await _google_login(spec, values),
        endpoint=values.endpoint("cloudDNS", clouddns.ENDPOINT),
        # The name of the DNS zone is not needed: Cloud DNS takes whole names.
        zone=HostedZone("", name) if name else None,
    )


async def _google_login(spec: CloudDNS, values: HostValues) -> Login:
    # An API elsewhere means credentials elsewhere, too, unless the operator names their place.
    elsewhere = values.endpoints.get("cloudDNS", "").rstrip("/")
    tokens = values.endpoint(
        "cloudDNS-token", values.replaced(elsewhere and f"{elsewhere}/token", clouddns.TOKENS)
    )
    if spec.service_account_secret_ref is not None:
        content = await values.secret(spec.service_account_secret_ref, "serviceAccountSecretRef")
        return _google_key(content, f"{values.path}.serviceAccountSecretRef", tokens)
    values.require_ambient("serviceAccountSecretRef")
    if path := values.environment.get("GOOGLE_APPLICATION_CREDENTIALS"):
        content = (await _file_of("GOOGLE_APPLICATION_CREDENTIALS", path)).encode()
        return _google_key(content, "GOOGLE_APPLICATION_CREDENTIALS", tokens)
    host = values.environment.get("GCE_METADATA_HOST", "")
    metadata = values.replaced(elsewhere or (host and f"http://{host}"), clouddns.METADATA)
    return clouddns.MetadataServer(metadata=values.endpoint("cloudDNS-metadata", metadata))


def _google_key(content: bytes, where: str, tokens: Endpoint) -> clouddns.ServiceAccountKey:
    try:
        key_file = json_decoder(_GoogleKeyFile).decode(content)
    except msgspec.DecodeError:
        # The reason could quote the key.
        key_file = None
    if key_file is None or key_file.type != "service_account":
        raise SolverError(f"{where}: the content is not the key file (JSON) of a service account")
    return clouddns.ServiceAccountKey(
        email=key_file.client_email,
        key_id=key_file.private_key_id,
        key_pem=key_file.private_key,
        tokens=tokens,
    )


async def _cloudflare(spec: CloudflareDNS, values: HostValues) -> cloudflare.CloudflareSettings:
    endpoint = values.endpoint("cloudflare", cloudflare.ENDPOINT, "CLOUDFLARE_BASE_URL")
    if spec.api_token_secret_ref is not None:
        token = await values.word(spec.api_token_secret_ref, "apiTokenSecretRef")
        return cloudflare.CloudflareSettings(token=token, endpoint=endpoint)
    assert spec.api_key_secret_ref is not None, "admission requires one of the two"
    key = await values.word(spec.api_key_secret_ref, "apiKeySecretRef")
    return cloudflare.CloudflareSettings(key=key, email=spec.email, endpoint=endpoint)


async def _digitalocean(spec: DigitalOceanDNS, values: HostValues) -> digitalocean.DigitalOceanSettings:
    token = await values.word(spec.token_secret_ref, "tokenSecretRef")
    endpoint = values.endpoint("digitalocean", digitalocean.ENDPOINT, "DIGITALOCEAN_API_URL")
    return digitalocean.DigitalOceanSettings(token=token, endpoint=endpoint)


async def _lexicon(spec: LexiconDNS, values: HostValues) -> ChildSettings:
    secret: dict[str, str] = {}
    if spec.credentials_secret_ref is not None:
        secret = await _lexicon_credentials(spec.provider, spec.credentials_secret_ref.name, values)
    for name, value in spec.options.items():
        if problem := option_problem(spec.provider, name, value):
            raise SolverError(f"{values.path}.options.{name}: {problem}")
    operators = values.lexicon_options.get(spec.provider, {})
    provider = Provider(
        kind="lexicon",
        name=spec.provider,
        options={**spec.options, **secret, **operators},
        # The others select something within an account: their values are no names of servers.
        servers=tuple(v for name, v in operators.items() if option_problem(spec.provider, name, v)),
    )
    return in_child.settings_of(provider, [*secret.values(), *operators.values()])


async def _lexicon_credentials(provider: str, name: str, values: HostValues) -> dict[str, str]:
    data = await values.get_secret(name)
    where = f"{values.path}.credentialsSecretRef"
    if data is None:
        raise SolverError(f'{where}: Secret "{name}" does not exist; create it')
    credentials: dict[str, str] = {}
    for option, content in data.items():
        value = content.decode(errors="replace").strip()
        if problem := option_problem(provider, option, value):
            raise SolverError(f'{where}: entry "{option}" of Secret "{name}": {problem}')
        credentials[option] = value
    return credentials


async def _plugin(spec: PluginDNS, values: HostValues) -> ChildSettings:
    secrets = {
        name: await values.secret(reference, f"secretRefs.{name}")
        for name, reference in spec.secret_refs.items()
    }
    provider = Provider(kind="plugin", name=spec.name, config=spec.config, secrets=secrets)
    return in_child.settings_of(provider, list(secrets.values()))


async def _power_dns(spec: PowerDNS, values: HostValues) -> powerdns.PowerDnsSettings:
    key = await values.word(spec.api_key_secret_ref, "apiKeySecretRef")
    endpoint = values.named_endpoint("powerDNS", spec.host)
    return powerdns.PowerDnsSettings(endpoint=endpoint, key=key, server_id=spec.server_id or "localhost")


_AWS_AUDIENCE = "sts.amazonaws.com"


async def _route53(spec: Route53DNS, values: HostValues) -> route53.Route53Settings:
    try:
        region = check_region(spec.region, f"{values.path}.region") if spec.region else ""
        region = region or region_of(values.environment)
        endpoint = _aws_endpoint(values, "route53", route53.endpoint_in(region), "ROUTE_53")
        # An API elsewhere means credentials elsewhere, too, unless the operator names their place.
        default = sts_in(region)
        elsewhere = values.replaced(values.endpoints.get("route53", ""), Endpoint(default.url))
        default = AwsEndpoint(elsewhere.url, default.region, elsewhere.rules)
        sts = _aws_endpoint(values, "route53-sts", default, "STS")
        source: CredentialSource
        if spec.auth is not None and spec.auth.kubernetes is not None:
            account = spec.auth.kubernetes.service_account_ref
            source = _aws_web_identity(account, spec.role, values, sts)
        else:
            base: CredentialSource | None = await _aws_keys(spec, values)
            if base is None:
                values.require_ambient("accessKeyID and secretAccessKeySecretRef")
                base = ambient_source(values.environment, sts)
            source = AssumedRole(role=spec.role, base=base, endpoint=sts) if spec.role else base
    except AwsError as error:
        raise SolverError(str(error)) from error
    zone = spec.hosted_zone_id.rpartition("/")[2]
    return route53.Route53Settings(
        source=source, endpoint=endpoint, zone=HostedZone("", zone) if zone else None
    )


def _aws_endpoint(values: HostValues, provider: str, default: AwsEndpoint, service: str) -> AwsEndpoint:
    endpoint = values.endpoint(provider, Endpoint(default.url, default.rules), *endpoint_variables(service))
    return AwsEndpoint(endpoint.url.rstrip("/"), default.region, endpoint.rules)


async def _aws_keys(spec: Route53DNS, values: HostValues) -> StaticKeys | None:
    has_id = bool(spec.access_key_id) or spec.access_key_id_secret_ref is not None
    reference = spec.secret_access_key_secret_ref
    if reference is None:
        if has_id:
            raise SolverError(f"{values.path}: an access key ID without secretAccessKeySecretRef; give both")
        return None
    if not has_id:
        raise SolverError(
            f"{values.path}: secretAccessKeySecretRef without accessKeyID or accessKeyIDSecretRef; give both"
        )
    key = spec.access_key_id
    if spec.access_key_id_secret_ref is not None:
        key = await values.word(spec.access_key_id_secret_ref, "accessKeyIDSecretRef")
    return StaticKeys(key, await values.word(reference, "secretAccessKeySecretRef"))


def _aws_web_identity(
    account: ServiceAccountRef, role: str, values: HostValues, sts: AwsEndpoint
) -> WebIdentity:
    where = f"{values.path}.auth.kubernetes.serviceAccountRef"
    if not role:
        raise SolverError(f"{where}: a ServiceAccount needs a role; give {values.path}.role")
    request = values.get_token
    if request is None:
        raise SolverError(f"{where}: this process cannot request tokens of ServiceAccounts")
    audiences = tuple(account.audiences) or (_AWS_AUDIENCE,)

    async def get_token() -> str:
        try:
            return await request(account.name, audiences)
        except (ApiError, Unreachable) as error:
            raise AwsError(f'{where}: no token of ServiceAccount "{account.name}": {error}') from error

    identity = f"ServiceAccount {values.namespace}/{account.name} ({', '.join(audiences)})"
    return WebIdentity(role=role, identity=identity, get_token=get_token, endpoint=sts)


_SETTINGS: Final[Mapping[str, tuple[str, MakeSettings]]] = {
    "acme_dns": ("acmeDNS", _acme_dns),
    "akamai": ("akamai", _akamai),
    "azure_dns": ("azureDNS", _azure_dns),
    "cloud_dns": ("cloudDNS", _cloud_dns),
    "cloudflare": ("cloudflare", _cloudflare),
    "digitalocean": ("digitalocean", _digitalocean),
    "lexicon": ("lexicon", _lexicon),
    "plugin": ("plugin", _plugin),
    "power_dns": ("powerDNS", _power_dns),
    "route53": ("route53", _route53),
}

HOSTS: Final = {field: name for field, (name, _) in _SETTINGS.items()}
"""Fields of `DNS01Solver` whose provider is a DNS host, and their YAML names."""


def host_of(solver: DNS01Solver) -> str:
    """The field of the DNS host that a solver names; empty: it names none of this table."""
    return next((name for name in HOSTS if getattr(solver, name) is not None), "")


async def settings_of(solver: DNS01Solver, field: str, values: HostValues) -> HostSettings:
    """The settings of the host in that field. Raises `SolverError`."""
    _, make = _SETTINGS[field]
    return await make(getattr(solver, field), values)

"""Settings of Route 53."""

from __future__ import annotations

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts import route53
from certwright.acme.solvers.dns01.hosts.api import Endpoint
from certwright.acme.solvers.dns01.hosts.contract import HostedZone
from certwright.controllers.acme.dns_hosts.values import HostValues
from certwright.kit.aws.credentials import CredentialSource, StaticKeys, ambient_source
from certwright.kit.aws.errors import AwsError
from certwright.kit.aws.service import AwsEndpoint, check_region, endpoint_variables, region_of
from certwright.kit.aws.sts import AssumedRole, WebIdentity, sts_in
from certwright.kube.api.errors import ApiError, Unreachable
from certwright.resources.references import ServiceAccountRef
from certwright.resources.solver import Route53DNS

_AUDIENCE = "sts.amazonaws.com"


async def settings(spec: Route53DNS, values: HostValues) -> route53.Route53Settings:
    """Raises `SolverError`."""
    try:
        region = check_region(spec.region, f"{values.path}.region") if spec.region else ""
        region = region or region_of(values.environment)
        endpoint = _endpoint(values, "route53", route53.endpoint_in(region), "ROUTE_53")
        source = await _source(spec, values, _sts(values, region))
    except AwsError as error:
        raise SolverError(str(error)) from error
    zone = spec.hosted_zone_id.rpartition("/")[2]
    return route53.Route53Settings(
        source=source, endpoint=endpoint, zone=HostedZone("", zone) if zone else None
    )


def _sts(values: HostValues, region: str) -> AwsEndpoint:
    # An API elsewhere means credentials elsewhere, too, unless the operator names their place.
    default = sts_in(region)
    elsewhere = values.replaced(values.endpoints.get("route53", ""), Endpoint(default.url))
    default = AwsEndpoint(elsewhere.url, default.region, elsewhere.rules)
    return _endpoint(values, "route53-sts", default, "STS")


def _endpoint(values: HostValues, provider: str, default: AwsEndpoint, service: str) -> AwsEndpoint:
    endpoint = values.endpoint(provider, Endpoint(default.url, default.rules), *endpoint_variables(service))
    return AwsEndpoint(endpoint.url.rstrip("/"), default.region, endpoint.rules)


async def _source(spec: Route53DNS, values: HostValues, sts: AwsEndpoint) -> CredentialSource:
    kubernetes = spec.auth.kubernetes if spec.auth is not None else None
    if kubernetes is not None:
        return _web_identity(kubernetes.service_account_ref, spec.role, values, sts)
    base = await _keys(spec, values) or _ambient(values, sts)
    return AssumedRole(role=spec.role, base=base, endpoint=sts) if spec.role else base


def _ambient(values: HostValues, sts: AwsEndpoint) -> CredentialSource:
    values.require_ambient("accessKeyID and secretAccessKeySecretRef")
    return ambient_source(values.environment, sts)


async def _keys(spec: Route53DNS, values: HostValues) -> StaticKeys | None:
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


def _web_identity(account: ServiceAccountRef, role: str, values: HostValues, sts: AwsEndpoint) -> WebIdentity:
    where = f"{values.path}.auth.kubernetes.serviceAccountRef"
    if not role:
        raise SolverError(f"{where}: a ServiceAccount needs a role; give {values.path}.role")
    request = values.get_token
    if request is None:
        raise SolverError(f"{where}: this process cannot request tokens of ServiceAccounts")
    audiences = tuple(account.audiences) or (_AUDIENCE,)

    async def get_token() -> str:
        try:
            return await request(account.name, audiences)
        except (ApiError, Unreachable) as error:
            raise AwsError(f'{where}: no token of ServiceAccount "{account.name}": {error}') from error

    identity = f"ServiceAccount {values.namespace}/{account.name} ({', '.join(audiences)})"
    return WebIdentity(role=role, identity=identity, get_token=get_token, endpoint=sts)

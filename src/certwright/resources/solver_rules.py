"""Validation of an ACME solver.

Source: cert-manager `internal/apis/certmanager/validation/issuer.go`; table of DNS providers in its
`pkg/apis/acme/v1/types_issuer.go`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from certwright.kube.api.errors import FieldError, forbidden, not_supported, required
from certwright.kube.api.naming import check_labels
from certwright.resources import checks
from certwright.resources.lexicon import FORBIDDEN_PROVIDERS, LexiconDNS, option_problem
from certwright.resources.references import given
from certwright.resources.solver import (
    AZURE_ENVIRONMENTS,
    AZURE_ZONE_TYPES,
    CNAME_STRATEGIES,
    DNS01_TYPES,
    RFC2136DNS,
    TSIG_ALGORITHMS,
    AcmeDNS,
    AkamaiDNS,
    AzureDNS,
    AzureManagedIdentity,
    CloudDNS,
    CloudflareDNS,
    DigitalOceanDNS,
    DNS01Solver,
    HTTP01Ingress,
    HTTP01Solver,
    PluginDNS,
    PowerDNS,
    Route53DNS,
    Solver,
    WebhookDNS,
)

_PROVIDERS: Final = {
    "akamai": "akamai",
    "cloud_dns": "cloudDNS",
    "cloudflare": "cloudflare",
    "route53": "route53",
    "azure_dns": "azureDNS",
    "digitalocean": "digitalocean",
    "acme_dns": "acmeDNS",
    "power_dns": "powerDNS",
    "rfc2136": "rfc2136",
    "webhook": "webhook",
    "lexicon": "lexicon",
    "plugin": "plugin",
}
"""The fields of `DNS01Solver` of which exactly one is required, and their YAML names."""


def validate_solver(solver: Solver, path: str) -> list[FieldError]:
    """All errors in the solver at `path`."""
    errors: list[FieldError] = []
    choices = (solver.http01, solver.dns01, solver.dns_persist01, solver.tls_alpn01, solver.exec)
    count = sum(choice is not None for choice in choices)
    if count != 1:
        make = required if count == 0 else forbidden
        errors.append(make(path, "give exactly one of http01, dns01, dnsPersist01, tlsALPN01 and exec"))
    wait = f"{path}.waitInsteadOfSelfCheck"
    errors += checks.check_duration(solver.wait_instead_of_self_check, wait, minimum=timedelta(0))
    if solver.selector is not None:
        errors += check_labels(solver.selector.match_labels, f"{path}.selector.matchLabels")
    if solver.http01 is not None:
        errors += _http01(solver.http01, f"{path}.http01")
    if solver.dns01 is not None:
        errors += _dns01(solver.dns01, f"{path}.dns01")
    return errors


def _http01(solver: HTTP01Solver, path: str) -> list[FieldError]:
    ingress, gateway = solver.ingress, solver.gateway_http_route
    count = sum(choice is not None for choice in (ingress, gateway, solver.webroot))
    if count != 1:
        make = required if count == 0 else forbidden
        return [make(path, "give exactly one of ingress, gatewayHTTPRoute and webroot")]
    if ingress is not None:
        return _ingress(ingress, f"{path}.ingress")
    if gateway is None:
        return []
    here = f"{path}.gatewayHTTPRoute"
    return _service_type(gateway.service_type, here) + check_labels(gateway.labels, f"{here}.labels")


def _ingress(ingress: HTTP01Ingress, path: str) -> list[FieldError]:
    errors = _service_type(ingress.service_type, path)
    given = [ingress.ingress_class_name is not None, ingress.class_ is not None, bool(ingress.name)]
    if sum(given) > 1:
        errors.append(forbidden(path, "give at most one of ingressClassName, class and name"))
    if ingress.ingress_class_name is not None:
        name = ingress.ingress_class_name
        errors += checks.check_object_name(name, f"{path}.ingressClassName", "the IngressClass")
    return errors


def _service_type(value: str, path: str) -> list[FieldError]:
    return checks.check_one_of(value, f"{path}.serviceType", ("ClusterIP", "NodePort"))


def _dns01(solver: DNS01Solver, path: str) -> list[FieldError]:
    errors = checks.check_one_of(solver.type, f"{path}.type", DNS01_TYPES)
    errors += checks.check_one_of(solver.cname_strategy, f"{path}.cnameStrategy", CNAME_STRATEGIES)
    given = [name for name in _PROVIDERS if getattr(solver, name) is not None]
    if len(given) != 1:
        shown = ", ".join(_PROVIDERS.values())
        make = forbidden if given else required
        return [*errors, make(path, f"give exactly one of {shown}")]
    return errors + _provider(getattr(solver, given[0]), f"{path}.{_PROVIDERS[given[0]]}")


def _provider(provider: object, path: str) -> list[FieldError]:
    match provider:
        case AkamaiDNS():
            return _akamai(provider, path)
        case CloudDNS():
            errors = checks.check_secret_key(
                provider.service_account_secret_ref, f"{path}.serviceAccountSecretRef"
            )
            return errors + _needs(provider.project, f"{path}.project", "name the project")
        case CloudflareDNS():
            return _cloudflare(provider, path)
        case Route53DNS():
            return _route53(provider, path)
        case AzureDNS():
            return _azure(provider, path)
        case DigitalOceanDNS():
            return checks.check_secret_key(provider.token_secret_ref, f"{path}.tokenSecretRef")
        case AcmeDNS():
            errors = checks.check_secret_key(provider.account_secret_ref, f"{path}.accountSecretRef")
            return errors + _needs(provider.host, f"{path}.host", "give the URL of the server")
        case PowerDNS():
            errors = checks.check_secret_key(provider.api_key_secret_ref, f"{path}.apiKeySecretRef")
            return errors + _needs(provider.host, f"{path}.host", "give the URL of the server")
        case RFC2136DNS():
            return _rfc2136(provider, path)
        case WebhookDNS():
            return _needs(provider.solver_name, f"{path}.solverName", "name the solver")
        case LexiconDNS():
            return _lexicon(provider, path)
        case PluginDNS():
            return _plugin(provider, path)
        case _:
            raise TypeError(f"{type(provider).__name__} has no rules")


def _needs(value: str, path: str, fix: str) -> list[FieldError]:
    return [] if value else [required(path, fix)]


def _akamai(provider: AkamaiDNS, path: str) -> list[FieldError]:
    return [
        *_needs(
            provider.service_consumer_domain, f"{path}.serviceConsumerDomain", "give the API's host name"
        ),
        *checks.check_secret_key(provider.client_token_secret_ref, f"{path}.clientTokenSecretRef"),
        *checks.check_secret_key(provider.client_secret_secret_ref, f"{path}.clientSecretSecretRef"),
        *checks.check_secret_key(provider.access_token_secret_ref, f"{path}.accessTokenSecretRef"),
    ]


def _cloudflare(provider: CloudflareDNS, path: str) -> list[FieldError]:
    key, token = provider.api_key_secret_ref, provider.api_token_secret_ref
    if (key is None) == (token is None):
        make = required if key is None else forbidden
        return [make(path, "give exactly one of apiTokenSecretRef and apiKeySecretRef")]
    errors = checks.check_secret_key(key, f"{path}.apiKeySecretRef")
    errors += checks.check_secret_key(token, f"{path}.apiTokenSecretRef")
    if key is not None and not provider.email:
        errors.append(required(f"{path}.email", "an API key needs the account's email address"))
    return errors


def _route53(provider: Route53DNS, path: str) -> list[FieldError]:
    if provider.access_key_id and provider.access_key_id_secret_ref is not None:
        return [forbidden(f"{path}.accessKeyIDSecretRef", "not with accessKeyID; keep one of them")]
    errors = checks.check_secret_key(provider.access_key_id_secret_ref, f"{path}.accessKeyIDSecretRef")
    secret = given(provider.secret_access_key_secret_ref)
    errors += checks.check_secret_key(secret, f"{path}.secretAccessKeySecretRef")
    kubernetes = provider.auth.kubernetes if provider.auth is not None else None
    if kubernetes is not None:
        ref = f"{path}.auth.kubernetes.serviceAccountRef.name"
        errors += _needs(kubernetes.service_account_ref.name, ref, "name the ServiceAccount")
    return errors


def _azure(provider: AzureDNS, path: str) -> list[FieldError]:
    errors = _needs(provider.subscription_id, f"{path}.subscriptionID", "give the subscription")
    errors += _needs(provider.resource_group_name, f"{path}.resourceGroupName", "name the resource group")
    errors += checks.check_one_of(provider.environment, f"{path}.environment", AZURE_ENVIRONMENTS)
    errors += checks.check_one_of(provider.zone_type, f"{path}.zoneType", AZURE_ZONE_TYPES)
    client = {
        "clientID": bool(provider.client_id),
        "clientSecretSecretRef": provider.client_secret_secret_ref is not None,
        "tenantID": bool(provider.tenant_id),
    }
    if any(client.values()) and provider.managed_identity is not None:
        detail = "not with clientID, clientSecretSecretRef and tenantID; keep one way"
        return [*errors, forbidden(f"{path}.managedIdentity", detail)]
    if any(client.values()):
        errors += [
            required(f"{path}.{name}", "clientID, clientSecretSecretRef and tenantID go together")
            for name, given in client.items()
            if not given
        ]
        return errors + checks.check_secret_key(
            provider.client_secret_secret_ref, f"{path}.clientSecretSecretRef"
        )
    return errors + _azure_identity(provider.managed_identity, f"{path}.managedIdentity")


def _azure_identity(identity: AzureManagedIdentity | None, path: str) -> list[FieldError]:
    if identity is None:
        return []
    errors: list[FieldError] = []
    if identity.client_id and identity.resource_id:
        errors.append(forbidden(f"{path}.resourceID", "not with clientID; keep one of them"))
    if identity.tenant_id and identity.resource_id:
        errors.append(forbidden(f"{path}.tenantID", "not with resourceID"))
    if identity.tenant_id and not identity.client_id:
        errors.append(required(f"{path}.clientID", "a tenantID needs it"))
    return errors


def _rfc2136(provider: RFC2136DNS, path: str) -> list[FieldError]:
    errors = _needs(provider.nameserver, f"{path}.nameserver", "give the name server's address")
    errors += checks.check_one_of(provider.protocol, f"{path}.protocol", ("TCP", "UDP"))
    algorithm = provider.tsig_algorithm
    if algorithm and algorithm.upper() not in TSIG_ALGORITHMS:
        errors.append(not_supported(f"{path}.tsigAlgorithm", algorithm, TSIG_ALGORITHMS))
    secret = given(provider.tsig_secret_secret_ref)
    if bool(provider.tsig_key_name) != (secret is not None):
        missing = "tsigSecretSecretRef" if provider.tsig_key_name else "tsigKeyName"
        errors.append(required(f"{path}.{missing}", "tsigKeyName and tsigSecretSecretRef go together"))
    return errors + checks.check_secret_key(secret, f"{path}.tsigSecretSecretRef")


def _lexicon(provider: LexiconDNS, path: str) -> list[FieldError]:
    errors = _needs(provider.provider, f"{path}.provider", "name the provider of dns-lexicon, e.g. hetzner")
    if why := FORBIDDEN_PROVIDERS.get(provider.provider):
        errors.append(forbidden(f"{path}.provider", f"{provider.provider} cannot be used: {why}"))
    credentials = provider.credentials_secret_ref
    if credentials is not None:
        errors += checks.check_object_name(
            credentials.name, f"{path}.credentialsSecretRef.name", "the Secret"
        )
    return errors + [
        forbidden(f"{path}.options.{name}", problem)
        for name, value in provider.options.items()
        if (problem := option_problem(provider.provider, name, value))
    ]


def _plugin(provider: PluginDNS, path: str) -> list[FieldError]:
    errors = _needs(provider.name, f"{path}.name", "name the plug-in")
    for name, ref in provider.secret_refs.items():
        errors += checks.check_secret_key(ref, f"{path}.secretRefs.{name}")
    return errors

"""Validation of an Issuer or ClusterIssuer and of its ACME solvers, by their own content only.

Source: cert-manager `internal/apis/certmanager/validation/issuer.go`; table of DNS providers in its
`pkg/apis/acme/v1/types_issuer.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from msgspec import structs

from certwright.kube.api.errors import FieldError, forbidden, invalid, not_supported, required
from certwright.kube.api.meta import Struct
from certwright.kube.api.naming import check_labels
from certwright.resources import checks
from certwright.resources.issuer import (
    HMAC_ALGORITHMS,
    ISSUER_TYPES,
    ACMEIssuer,
    IssuerSpec,
    VaultIssuer,
    VenafiIssuer,
)
from certwright.resources.lexicon import FORBIDDEN_PROVIDERS, LexiconDNS, option_problem
from certwright.resources.references import SecretKeySelector, given
from certwright.resources.solver import (
    AZURE_ENVIRONMENTS,
    AZURE_ZONE_TYPES,
    CNAME_STRATEGIES,
    DNS01_PROVIDERS,
    DNS01_TYPES,
    RFC2136DNS,
    TSIG_ALGORITHMS,
    AzureDNS,
    CloudflareDNS,
    DNS01Solver,
    HTTP01Solver,
    PluginDNS,
    Route53DNS,
    Solver,
)


def configured_types(spec: IssuerSpec) -> tuple[str, ...]:
    """The issuer types that `spec` configures, by their YAML names."""
    given = (spec.acme, spec.ca, spec.vault, spec.self_signed, spec.venafi)
    return tuple(name for name, part in zip(ISSUER_TYPES, given, strict=True) if part is not None)


def validate(spec: IssuerSpec) -> list[FieldError]:
    """All errors in the spec; empty if it is valid."""
    types = configured_types(spec)
    if not types:
        return [required("spec", f"configure one of {', '.join(ISSUER_TYPES)}")]
    if len(types) > 1:
        return [forbidden(f"spec.{name}", f"there is {types[0]} already; keep one") for name in types[1:]]
    errors: list[FieldError] = []
    if (self_signed := spec.self_signed) is not None:
        errors += checks.check_no_empty(
            self_signed.crl_distribution_points, "spec.selfSigned.crlDistributionPoints"
        )
    if (ca := spec.ca) is not None:
        what = "the Secret with tls.crt and tls.key"
        errors += checks.check_object_name(ca.secret_name, "spec.ca.secretName", what)
        errors += checks.check_no_empty(ca.crl_distribution_points, "spec.ca.crlDistributionPoints")
        errors += checks.check_no_empty(ca.ocsp_servers, "spec.ca.ocspServers")
        errors += checks.check_no_empty(ca.issuing_certificate_urls, "spec.ca.issuingCertificateURLs")
    if spec.acme is not None:
        errors += _acme(spec.acme)
    if spec.vault is not None:
        errors += _vault(spec.vault)
    if spec.venafi is not None:
        errors += _venafi(spec.venafi)
    return errors


def _acme(issuer: ACMEIssuer) -> Iterator[FieldError]:
    path = "spec.acme"
    yield from checks.check_given(issuer.server, f"{path}.server", "give the URL of the server's directory")
    yield from checks.check_secret_key(
        issuer.private_key_secret_ref, f"{path}.privateKeySecretRef", key=False
    )
    if issuer.ca_bundle and issuer.skip_tls_verify:
        yield forbidden(f"{path}.skipTLSVerify", "not with caBundle; keep one of them")
    yield from checks.check_ca_bundle(issuer.ca_bundle, f"{path}.caBundle")
    if (binding := issuer.external_account_binding) is not None:
        here = f"{path}.externalAccountBinding"
        yield from checks.check_given(binding.key_id, f"{here}.keyID", "give the ID that the CA has given")
        yield from checks.check_one_of(binding.key_algorithm, f"{here}.keyAlgorithm", HMAC_ALGORITHMS)
        yield from checks.check_secret_key(binding.key_secret_ref, f"{here}.keySecretRef")
    for number, solver in enumerate(issuer.solvers):
        yield from validate_solver(solver, f"{path}.solvers[{number}]")


def _vault(issuer: VaultIssuer) -> Iterator[FieldError]:
    path = "spec.vault"
    yield from checks.check_given(issuer.server, f"{path}.server", "give the URL of the server")
    if not issuer.path:
        yield required(f"{path}.path", "give the path of the sign endpoint, such as pki/sign/my-role")
    elif ".." in issuer.path.split("/"):
        yield invalid(f"{path}.path", issuer.path, "must not contain ..")
    yield from _trust(issuer.ca_bundle, issuer.ca_bundle_secret_ref, path)
    if (issuer.client_cert_secret_ref is None) != (issuer.client_key_secret_ref is None):
        missing = "clientCertSecretRef" if issuer.client_cert_secret_ref is None else "clientKeySecretRef"
        yield required(f"{path}.{missing}", "a client certificate and its key go together")
    yield from _vault_auth(issuer)


def _trust(bundle: bytes, ref: SecretKeySelector | None, path: str) -> Iterator[FieldError]:
    if bundle and ref is not None:
        # The words of cert-manager; the bundle itself would make the message unreadable.
        own, other, rule = f"{path}.caBundle", f"{path}.caBundleSecretRef", "cannot be used together"
        yield invalid(own, "<snip>", f"specified caBundle and caBundleSecretRef {rule}")
        yield invalid(other, ref.name, f"specified caBundleSecretRef and caBundle {rule}")
        return
    yield from checks.check_ca_bundle(bundle, f"{path}.caBundle")
    yield from checks.check_secret_key(ref, f"{path}.caBundleSecretRef", key=False)


def _vault_auth(issuer: VaultIssuer) -> Iterator[FieldError]:
    auth, path = issuer.auth, "spec.vault.auth"
    methods = (auth.token_secret_ref, auth.app_role, auth.client_certificate, auth.kubernetes, auth.aws)
    # More than one is accepted here, as in cert-manager, and refused by the issuer's check.
    if all(method is None for method in methods):
        detail = "choose one of tokenSecretRef, appRole, clientCertificate, kubernetes, aws"
        yield required(path, detail)
        return
    yield from checks.check_secret_key(auth.token_secret_ref, f"{path}.tokenSecretRef", key=False)
    if auth.app_role is not None:
        yield from checks.check_given(auth.app_role.role_id, f"{path}.appRole.roleId", "give the role's ID")
        yield from checks.check_secret_key(auth.app_role.secret_ref, f"{path}.appRole.secretRef", key=False)
    if (kubernetes := auth.kubernetes) is not None:
        here, account = f"{path}.kubernetes", kubernetes.service_account_ref
        secret = given(kubernetes.secret_ref)
        yield from checks.check_given(kubernetes.role, f"{here}.role", "name the role in Vault")
        yield from checks.check_one_given((secret, account), here, "secretRef and serviceAccountRef")
        if account is not None and not account.name:
            yield required(f"{here}.serviceAccountRef.name", "name the ServiceAccount")
        yield from checks.check_secret_key(secret, f"{here}.secretRef", key=False)
    if (aws := auth.aws) is not None:
        here = f"{path}.aws"
        yield from checks.check_given(aws.role, f"{here}.role", "name the role in Vault")
        if aws.service_account_ref is not None and not aws.service_account_ref.name:
            yield required(f"{here}.serviceAccountRef.name", "name the ServiceAccount")
        if aws.service_account_ref is not None and not aws.iam_role_arn:
            yield required(f"{here}.iamRoleArn", "a ServiceAccount needs the role to take on")


def _venafi(issuer: VenafiIssuer) -> Iterator[FieldError]:
    path = "spec.venafi"
    yield from checks.check_given(issuer.zone, f"{path}.zone", "name the policy zone")
    yield from checks.check_one_given((issuer.tpp, issuer.cloud, issuer.ngts), path, "tpp, cloud, ngts")
    if (tpp := issuer.tpp) is not None:
        yield from checks.check_given(tpp.url, f"{path}.tpp.url", "give the URL of the server")
        yield from checks.check_given(
            tpp.credentials_ref.name, f"{path}.tpp.credentialsRef.name", "name the Secret"
        )
        yield from _trust(tpp.ca_bundle, tpp.ca_bundle_secret_ref, f"{path}.tpp")
    if issuer.cloud is not None:
        ref = issuer.cloud.api_token_secret_ref
        yield from checks.check_secret_key(ref, f"{path}.cloud.apiTokenSecretRef", key=False)
    if issuer.ngts is not None and not issuer.ngts.tsg_id:
        yield required(f"{path}.ngts.tsgID", "give the ID of the tenant service group")


def validate_solver(solver: Solver, path: str) -> Iterator[FieldError]:
    """All errors in the solver at `path`."""
    choices = (solver.http01, solver.dns01, solver.dns_persist01, solver.tls_alpn01, solver.exec)
    yield from checks.check_one_given(choices, path, "http01, dns01, dnsPersist01, tlsALPN01 and exec")
    wait = f"{path}.waitInsteadOfSelfCheck"
    yield from checks.check_duration(solver.wait_instead_of_self_check, wait, minimum=timedelta(0))
    if solver.selector is not None:
        yield from check_labels(solver.selector.match_labels, f"{path}.selector.matchLabels")
    if solver.http01 is not None:
        yield from _http01(solver.http01, f"{path}.http01")
    if solver.dns01 is not None:
        yield from _dns01(solver.dns01, f"{path}.dns01")


def _http01(solver: HTTP01Solver, path: str) -> Iterator[FieldError]:
    ingress, gateway = solver.ingress, solver.gateway_http_route
    choices, names = (ingress, gateway, solver.webroot), "ingress, gatewayHTTPRoute and webroot"
    if wrong := checks.check_one_given(choices, path, names):
        yield from wrong
        return
    types = ("ClusterIP", "NodePort")
    if gateway is not None:
        here = f"{path}.gatewayHTTPRoute"
        yield from checks.check_one_of(gateway.service_type, f"{here}.serviceType", types)
        yield from check_labels(gateway.labels, f"{here}.labels")
        return
    if ingress is None:
        return
    here, name = f"{path}.ingress", ingress.ingress_class_name
    yield from checks.check_one_of(ingress.service_type, f"{here}.serviceType", types)
    if sum((name is not None, ingress.class_ is not None, bool(ingress.name))) > 1:
        yield forbidden(here, "give at most one of ingressClassName, class and name")
    if name is not None:
        yield from checks.check_object_name(name, f"{here}.ingressClassName", "the IngressClass")


def _dns01(solver: DNS01Solver, path: str) -> Iterator[FieldError]:
    yield from checks.check_one_of(solver.type, f"{path}.type", DNS01_TYPES)
    yield from checks.check_one_of(solver.cname_strategy, f"{path}.cnameStrategy", CNAME_STRATEGIES)
    providers = {name: part for name in DNS01_PROVIDERS if (part := getattr(solver, name)) is not None}
    if wrong := checks.check_one_given(providers.values(), path, ", ".join(DNS01_PROVIDERS.values())):
        yield from wrong
        return
    for name, provider in providers.items():
        yield from _provider(provider, f"{path}.{DNS01_PROVIDERS[name]}")


def _provider(provider: Struct, path: str) -> Iterator[FieldError]:
    """Rules of all DNS providers: required texts are not empty, references to Secrets are complete; and those
    that single providers have besides."""
    for item in structs.fields(provider):
        value, here = getattr(provider, item.name), f"{path}.{item.encode_name}"
        if isinstance(value, SecretKeySelector):
            yield from checks.check_secret_key(value if item.required else given(value), here)
        elif item.required and value == "" and item.name != "group_name":
            # cert-manager accepts a webhook without groupName.
            yield required(here, f"must be specified: {item.type.__metadata__[0].description}")
    match provider:
        case CloudflareDNS():
            yield from _cloudflare(provider, path)
        case Route53DNS():
            yield from _route53(provider, path)
        case AzureDNS():
            yield from _azure(provider, path)
        case RFC2136DNS():
            yield from _rfc2136(provider, path)
        case LexiconDNS():
            yield from _lexicon(provider, path)
        case PluginDNS():
            for name, ref in provider.secret_refs.items():
                yield from checks.check_secret_key(ref, f"{path}.secretRefs.{name}")


def _cloudflare(provider: CloudflareDNS, path: str) -> Iterator[FieldError]:
    key, token = provider.api_key_secret_ref, provider.api_token_secret_ref
    yield from checks.check_one_given((key, token), path, "apiTokenSecretRef and apiKeySecretRef")
    if key is not None and token is None and not provider.email:
        yield required(f"{path}.email", "an API key needs the account's email address")


def _route53(provider: Route53DNS, path: str) -> Iterator[FieldError]:
    if provider.access_key_id and provider.access_key_id_secret_ref is not None:
        yield forbidden(f"{path}.accessKeyIDSecretRef", "not with accessKeyID; keep one of them")
        return
    kubernetes = provider.auth.kubernetes if provider.auth is not None else None
    if kubernetes is not None and not kubernetes.service_account_ref.name:
        yield required(f"{path}.auth.kubernetes.serviceAccountRef.name", "name the ServiceAccount")


def _azure(provider: AzureDNS, path: str) -> Iterator[FieldError]:
    yield from checks.check_one_of(provider.environment, f"{path}.environment", AZURE_ENVIRONMENTS)
    yield from checks.check_one_of(provider.zone_type, f"{path}.zoneType", AZURE_ZONE_TYPES)
    client = {
        "clientID": bool(provider.client_id),
        "clientSecretSecretRef": provider.client_secret_secret_ref is not None,
        "tenantID": bool(provider.tenant_id),
    }
    if any(client.values()) and provider.managed_identity is not None:
        detail = "not with clientID, clientSecretSecretRef and tenantID; keep one way"
        yield forbidden(f"{path}.managedIdentity", detail)
        return
    if any(client.values()):
        for name, is_given in client.items():
            if not is_given:
                yield required(f"{path}.{name}", "clientID, clientSecretSecretRef and tenantID go together")
        return
    if (identity := provider.managed_identity) is None:
        return
    here = f"{path}.managedIdentity"
    if identity.client_id and identity.resource_id:
        yield forbidden(f"{here}.resourceID", "not with clientID; keep one of them")
    if identity.tenant_id and identity.resource_id:
        yield forbidden(f"{here}.tenantID", "not with resourceID")
    if identity.tenant_id and not identity.client_id:
        yield required(f"{here}.clientID", "a tenantID needs it")


def _rfc2136(provider: RFC2136DNS, path: str) -> Iterator[FieldError]:
    yield from checks.check_one_of(provider.protocol, f"{path}.protocol", ("TCP", "UDP"))
    algorithm = provider.tsig_algorithm
    if algorithm and algorithm.upper() not in TSIG_ALGORITHMS:
        yield not_supported(f"{path}.tsigAlgorithm", algorithm, TSIG_ALGORITHMS)
    secret = given(provider.tsig_secret_secret_ref)
    if bool(provider.tsig_key_name) != (secret is not None):
        missing = "tsigSecretSecretRef" if provider.tsig_key_name else "tsigKeyName"
        yield required(f"{path}.{missing}", "tsigKeyName and tsigSecretSecretRef go together")


def _lexicon(provider: LexiconDNS, path: str) -> Iterator[FieldError]:
    if why := FORBIDDEN_PROVIDERS.get(provider.provider):
        yield forbidden(f"{path}.provider", f"{provider.provider} cannot be used: {why}")
    credentials = provider.credentials_secret_ref
    if credentials is not None:
        yield from checks.check_object_name(
            credentials.name, f"{path}.credentialsSecretRef.name", "the Secret"
        )
    for name, value in provider.options.items():
        if problem := option_problem(provider.provider, name, value):
            yield forbidden(f"{path}.options.{name}", problem)

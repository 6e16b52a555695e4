"""ACME solvers: HTTP, DNS, TLS or a program; and the DNS providers.

Source: cert-manager `pkg/apis/acme/v1/types_issuer.go`; field texts are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from msgspec import field

from certwright.kube.api.meta import Struct, doc
from certwright.resources.lexicon import LexiconDNS
from certwright.resources.pod import SolverPodTemplate, TemplateMeta
from certwright.resources.references import SecretKeySelector, ServiceAccountRef

AZURE_ENVIRONMENTS: Final = (
    "AzurePublicCloud",
    "AzureChinaCloud",
    "AzureGermanCloud",
    "AzureUSGovernmentCloud",
)
AZURE_ZONE_TYPES: Final = ("AzurePublicZone", "AzurePrivateZone")
CNAME_STRATEGIES: Final = ("None", "Follow")
CHALLENGE_TYPES: Final = ("HTTP-01", "DNS-01", "TLS-ALPN-01", "DNS-ACCOUNT-01", "DNS-PERSIST-01")
DNS01_TYPES: Final = ("DNS-01", "DNS-ACCOUNT-01")
EXEC_TYPES: Final = ("DNS-01", "HTTP-01", "TLS-ALPN-01", "DNS-ACCOUNT-01")
TSIG_ALGORITHMS: Final = ("HMACMD5", "HMACSHA1", "HMACSHA256", "HMACSHA512")

_DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_NAME: Final = rf"^{_DNS_LABEL}(\.{_DNS_LABEL})*$"
_KIND: Final = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"


class Selector(Struct, frozen=True, kw_only=True):
    """Which certificates and names a solver is for; all parts that are given must match."""

    match_labels: Annotated[Mapping[str, str], doc("Labels that the certificate must have.")] = field(
        default_factory=dict
    )
    dns_names: Annotated[tuple[str, ...], doc("Names that the solver is for, exactly as written.")] = ()
    dns_zones: Annotated[tuple[str, ...], doc("Zones that the solver is for; the longest match wins.")] = ()


class ParentRef(Struct, frozen=True, kw_only=True):
    """A Gateway (or another parent) that an HTTPRoute is attached to."""

    group: Annotated[
        str | None,
        doc(
            "API group of the parent.",
            default="gateway.networking.k8s.io",
            maxLength=253,
            pattern=rf"^$|{_DNS_NAME}",
        ),
    ] = None
    kind: Annotated[
        str | None, doc("Kind of the parent.", default="Gateway", maxLength=63, minLength=1, pattern=_KIND)
    ] = None
    namespace: Annotated[
        str | None,
        doc("Namespace of the parent.", maxLength=63, minLength=1, pattern=rf"^{_DNS_LABEL}$"),
    ] = None
    name: Annotated[str, doc("Name of the parent.", maxLength=253, minLength=1)]
    section_name: Annotated[
        str | None,
        doc("Section (listener) of the parent.", maxLength=253, minLength=1, pattern=_DNS_NAME),
    ] = None
    port: Annotated[int | None, doc("Port of the parent.", format="int32", maximum=65535, minimum=1)] = None


class IngressTemplate(Struct, frozen=True, kw_only=True):
    """Changes to the solver's Ingress."""

    metadata: Annotated[TemplateMeta | None, doc("Labels and annotations added to the Ingress.")] = None


class HTTP01Ingress(Struct, frozen=True, kw_only=True):
    """HTTP-01 by an Ingress that leads to certwright's listener."""

    service_type: Annotated[
        str, doc("Type of the solver's Service: NodePort (the default) or ClusterIP.")
    ] = ""
    ingress_class_name: Annotated[
        str | None, doc("`spec.ingressClassName` of the Ingress that is made. Not with `class` or `name`.")
    ] = None
    class_: Annotated[
        str | None, doc("Value of the old annotation kubernetes.io/ingress.class of the Ingress.")
    ] = field(default=None, name="class")
    name: Annotated[str, doc("Name of an existing Ingress that is edited instead of making one.")] = ""
    pod_template: Annotated[SolverPodTemplate | None, doc("Has no effect: there is no pod.")] = None
    ingress_template: Annotated[IngressTemplate | None, doc("Changes to the solver's Ingress.")] = None


class HTTP01Gateway(Struct, frozen=True, kw_only=True):
    """HTTP-01 by an HTTPRoute that leads to certwright's listener."""

    service_type: Annotated[
        str, doc("Type of the solver's Service: NodePort (the default) or ClusterIP.")
    ] = ""
    labels: Annotated[Mapping[str, str], doc("Labels of the HTTPRoute that is made.")] = field(
        default_factory=dict
    )
    parent_refs: Annotated[tuple[ParentRef, ...], doc("Gateways that the HTTPRoute is attached to.")] = ()
    pod_template: Annotated[SolverPodTemplate | None, doc("Has no effect: there is no pod.")] = None


class HTTP01WebRoot(Struct, frozen=True, kw_only=True):
    """HTTP-01 by a web server that serves files. Not in cert-manager."""

    path: Annotated[str, doc("Directory that the web server serves at `/`.", minLength=1)]


class HTTP01Solver(Struct, frozen=True, kw_only=True):
    """Answers HTTP-01 challenges: the token is served at a well-known path on port 80.

    certwright's own listener responds. With --http01-cluster-address, `ingress` and `gatewayHTTPRoute` make
    objects that lead there; without it, your network must.
    """

    ingress: Annotated[HTTP01Ingress | None, doc("By an Ingress.")] = None
    gateway_http_route: Annotated[HTTP01Gateway | None, doc("By an HTTPRoute of a Gateway.")] = field(
        default=None, name="gatewayHTTPRoute"
    )
    webroot: Annotated[
        HTTP01WebRoot | None, doc("By files that a web server of yours serves. Not in cert-manager.")
    ] = None


class TLSALPN01Solver(Struct, frozen=True, kw_only=True):
    """Answers TLS-ALPN-01 challenges (RFC 8737) by certwright's own listener. Not in cert-manager."""


class DNSPersist01Solver(Struct, frozen=True, kw_only=True):
    """Relies on a TXT record under _validation-persist that you create once. Not in cert-manager."""


class ExecSolver(Struct, frozen=True, kw_only=True):
    """Answers challenges by a program of yours. Not in cert-manager."""

    command: Annotated[
        tuple[str, ...],
        doc("The program and its first arguments; `present` or `cleanup` is added.", minItems=1),
    ]
    type: Annotated[
        str,
        doc(
            "Type of the challenges: DNS-01 (the default), HTTP-01, TLS-ALPN-01 or DNS-ACCOUNT-01.",
            enum=EXEC_TYPES,
        ),
    ] = ""


class AkamaiDNS(Struct, frozen=True, kw_only=True):
    """Akamai Edge DNS."""

    service_consumer_domain: Annotated[str, doc("Host name of the API.")]
    client_token_secret_ref: Annotated[SecretKeySelector, doc("Where the client token is found.")]
    client_secret_secret_ref: Annotated[SecretKeySelector, doc("Where the client secret is found.")]
    access_token_secret_ref: Annotated[SecretKeySelector, doc("Where the access token is found.")]


class CloudDNS(Struct, frozen=True, kw_only=True):
    """Google Cloud DNS."""

    service_account_secret_ref: Annotated[
        SecretKeySelector | None,
        doc("Where the service account's JSON key is found; the surroundings' credentials when left out."),
    ] = None
    project: Annotated[str, doc("Project that the zone is in.")]
    hosted_zone_name: Annotated[str, doc("Name of the zone in Cloud DNS; looked up when it is left out.")] = (
        ""
    )


class CloudflareDNS(Struct, frozen=True, kw_only=True):
    """Cloudflare."""

    email: Annotated[str, doc("Email address of the account; needed with an API key.")] = ""
    api_key_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where the global API key is found. Not with `apiTokenSecretRef`.")
    ] = None
    api_token_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where the API token is found. Not with `apiKeySecretRef`.")
    ] = None


class Route53KubernetesAuth(Struct, frozen=True, kw_only=True):
    """A ServiceAccount's token in exchange for AWS credentials."""

    service_account_ref: Annotated[ServiceAccountRef, doc("The ServiceAccount.")]


class Route53Auth(Struct, frozen=True, kw_only=True):
    """How to authenticate to AWS."""

    kubernetes: Annotated[Route53KubernetesAuth | None, doc("With a ServiceAccount's token.")] = None


class Route53DNS(Struct, frozen=True, kw_only=True):
    """AWS Route 53."""

    auth: Annotated[Route53Auth | None, doc("How to authenticate to AWS.")] = None
    access_key_id: Annotated[
        str,
        doc("Access key ID. Not with `accessKeyIDSecretRef`; the surroundings' credentials without both."),
    ] = field(default="", name="accessKeyID")
    access_key_id_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where the access key ID is found.")
    ] = field(default=None, name="accessKeyIDSecretRef")
    secret_access_key_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where the secret access key is found.")
    ] = None
    role: Annotated[str, doc("ARN of a role to take on.")] = ""
    hosted_zone_id: Annotated[str, doc("ID of the zone; looked up when it is left out.")] = field(
        default="", name="hostedZoneID"
    )
    region: Annotated[str, doc("AWS region.")] = ""


class AzureManagedIdentity(Struct, frozen=True, kw_only=True):
    """The identity that Azure gives to the machine or the pod."""

    client_id: Annotated[str, doc("Client ID of the identity. Not with `resourceID`.")] = field(
        default="", name="clientID"
    )
    resource_id: Annotated[str, doc("Resource ID of the identity. Not with `clientID`.")] = field(
        default="", name="resourceID"
    )
    tenant_id: Annotated[str, doc("Tenant of the identity. Only with `clientID`.")] = field(
        default="", name="tenantID"
    )


class AzureDNS(Struct, frozen=True, kw_only=True):
    """Azure DNS."""

    client_id: Annotated[str, doc("Client ID; with `clientSecretSecretRef` and `tenantID`.")] = field(
        default="", name="clientID"
    )
    client_secret_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where the client secret is found; with `clientID` and `tenantID`.")
    ] = None
    subscription_id: Annotated[str, doc("Subscription that the zone is in.")] = field(name="subscriptionID")
    tenant_id: Annotated[str, doc("Tenant; with `clientID` and `clientSecretSecretRef`.")] = field(
        default="", name="tenantID"
    )
    resource_group_name: Annotated[str, doc("Resource group that the zone is in.")]
    hosted_zone_name: Annotated[str, doc("Name of the zone; looked up when it is left out.")] = ""
    environment: Annotated[
        str, doc("Azure cloud; AzurePublicCloud when it is left out.", enum=AZURE_ENVIRONMENTS)
    ] = ""
    managed_identity: Annotated[
        AzureManagedIdentity | None, doc("The identity of the machine. Not with the three client fields.")
    ] = None
    zone_type: Annotated[
        str, doc("Kind of zone; AzurePublicZone when it is left out.", enum=AZURE_ZONE_TYPES)
    ] = ""


class DigitalOceanDNS(Struct, frozen=True, kw_only=True):
    """DigitalOcean."""

    token_secret_ref: Annotated[SecretKeySelector, doc("Where the access token is found.")]


class AcmeDNS(Struct, frozen=True, kw_only=True):
    """An acme-dns server."""

    host: Annotated[str, doc("URL of the server.")]
    account_secret_ref: Annotated[SecretKeySelector, doc("Where the accounts (JSON) are found.")]


class PowerDNS(Struct, frozen=True, kw_only=True):
    """A PowerDNS Authoritative Server, by its HTTP API. Not in cert-manager."""

    host: Annotated[str, doc("URL of the server, without /api/v1.", minLength=1)]
    api_key_secret_ref: Annotated[SecretKeySelector, doc("Where the API key is found.")]
    server_id: Annotated[str, doc("ID of the server; localhost when it is left out.")] = field(
        default="", name="serverID"
    )


class RFC2136DNS(Struct, frozen=True, kw_only=True):
    """Dynamic updates (RFC 2136), signed with TSIG (RFC 8945)."""

    nameserver: Annotated[str, doc("Address of the name server, with or without a port (53).")]
    tsig_secret_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where the TSIG key is found; with `tsigKeyName`.")
    ] = None
    tsig_key_name: Annotated[str, doc("Name of the TSIG key; with `tsigSecretSecretRef`.")] = ""
    tsig_algorithm: Annotated[
        str, doc("TSIG algorithm: HMACMD5 (the default), HMACSHA1, HMACSHA256, HMACSHA512.")
    ] = ""
    protocol: Annotated[str, doc("UDP (the default) or TCP.", enum=("TCP", "UDP"))] = ""


class WebhookDNS(Struct, frozen=True, kw_only=True):
    """A solver of another program, called by HTTP."""

    group_name: Annotated[str, doc("API group that the solver is served under.")]
    solver_name: Annotated[str, doc("Name of the solver in that group.")]
    config: Annotated[Any, doc("Whatever the solver wants to know, any JSON.")] = None


class PluginDNS(Struct, frozen=True, kw_only=True):
    """A provider of an installed Python package, which the operator has to allow. Not in cert-manager."""

    name: Annotated[str, doc("Name of the plug-in (entry point of the group certwright.dns01).", minLength=1)]
    config: Annotated[Any, doc("Settings of the plug-in, any JSON.")] = None
    secret_refs: Annotated[
        Mapping[str, SecretKeySelector],
        doc("Entries of Secrets that the plug-in is passed, by the name that it knows them by."),
    ] = field(default_factory=dict)


class DNS01Solver(Struct, frozen=True, kw_only=True):
    """Answers DNS-01 challenges: a TXT record under _acme-challenge. Exactly one provider."""

    type: Annotated[
        str,
        doc(
            "Type of the challenges: DNS-01 (the default), or DNS-ACCOUNT-01, whose record has a label of "
            "the account before _acme-challenge. Not in cert-manager.",
            enum=DNS01_TYPES,
        ),
    ] = ""
    cname_strategy: Annotated[
        str,
        doc(
            "Whether CNAME records of _acme-challenge are followed: None (the default) or Follow.",
            enum=CNAME_STRATEGIES,
        ),
    ] = ""
    akamai: Annotated[AkamaiDNS | None, doc("Akamai Edge DNS.")] = None
    cloud_dns: Annotated[CloudDNS | None, doc("Google Cloud DNS.")] = field(default=None, name="cloudDNS")
    cloudflare: Annotated[CloudflareDNS | None, doc("Cloudflare.")] = None
    route53: Annotated[Route53DNS | None, doc("AWS Route 53.")] = None
    azure_dns: Annotated[AzureDNS | None, doc("Azure DNS.")] = field(default=None, name="azureDNS")
    digitalocean: Annotated[DigitalOceanDNS | None, doc("DigitalOcean.")] = None
    acme_dns: Annotated[AcmeDNS | None, doc("An acme-dns server.")] = field(default=None, name="acmeDNS")
    power_dns: Annotated[PowerDNS | None, doc("PowerDNS's HTTP API. Not in cert-manager.")] = field(
        default=None, name="powerDNS"
    )
    rfc2136: Annotated[RFC2136DNS | None, doc("Dynamic updates (RFC 2136).")] = None
    webhook: Annotated[WebhookDNS | None, doc("A solver of another provider.")] = None
    lexicon: Annotated[LexiconDNS | None, doc("A provider of dns-lexicon. Not in cert-manager.")] = None
    plugin: Annotated[PluginDNS | None, doc("A provider of a Python package. Not in cert-manager.")] = None
    nameservers: Annotated[
        tuple[str, ...], doc("Recursive name servers to use instead of the default ones, host:port.")
    ] = ()


DNS01_PROVIDERS: Final[Mapping[str, str]] = {
    name: encoded
    for name, encoded in zip(DNS01Solver.__struct_fields__, DNS01Solver.__struct_encode_fields__, strict=True)
    if name not in ("type", "cname_strategy", "nameservers")
}
"""The fields of `DNS01Solver` of which exactly one is required, and their YAML names."""
DNS01_ENDPOINTS: Final = (
    *(name for name in DNS01_PROVIDERS.values() if name not in ("rfc2136", "webhook", "lexicon", "plugin")),
    "azureDNS-login",
    "azureDNS-metadata",
    "cloudDNS-metadata",
    "cloudDNS-token",
    "route53-sts",
)
"""Endpoints that the operator can replace: of the providers with an HTTP API, and of the services that
exchange their credentials for tokens."""


class Solver(Struct, frozen=True, kw_only=True):
    """Answers challenges for the names that it is for. Exactly one of http01, dns01, dnsPersist01, tlsALPN01
    and exec."""

    selector: Annotated[
        Selector | None, doc("Which certificates and names the solver is for; all when it is left out.")
    ] = None
    wait_instead_of_self_check: Annotated[
        str | None,
        doc("Wait this long (a Go duration) after showing the proof, instead of looking for it ourselves."),
    ] = None
    http01: Annotated[HTTP01Solver | None, doc("By HTTP.")] = None
    dns01: Annotated[DNS01Solver | None, doc("By DNS.")] = None
    tls_alpn01: Annotated[TLSALPN01Solver | None, doc("By TLS. Not in cert-manager.")] = field(
        default=None, name="tlsALPN01"
    )
    dns_persist01: Annotated[
        DNSPersist01Solver | None,
        doc("By a TXT record that you create once for each domain. Not in cert-manager."),
    ] = field(default=None, name="dnsPersist01")
    exec: Annotated[ExecSolver | None, doc("By a program of yours. Not in cert-manager.")] = None

    @property
    def challenge_type(self) -> str:
        """The challenge type that it solves, as in `spec.type` of a Challenge; empty for none."""
        if self.http01 is not None:
            return "HTTP-01"
        if self.dns01 is not None:
            return self.dns01.type or "DNS-01"
        if self.dns_persist01 is not None:
            return "DNS-PERSIST-01"
        if self.tls_alpn01 is not None:
            return "TLS-ALPN-01"
        return (self.exec.type or "DNS-01") if self.exec is not None else ""

"""Issuer and ClusterIssuer: the signer and its settings. Exactly one type per issuer. IssuerSet and
ClusterIssuerSet: issuers in order of preference, and the annotation that records the member of a request.

Rules over these fields are in `issuer_rules.py`; ACME solvers in `solver.py`.

Source: cert-manager `pkg/apis/certmanager/v1/types_issuer.go`, `pkg/apis/acme/v1/types_issuer.go`;
field texts are ours. Sets are not in cert-manager.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import field

from certwright.kube.api.meta import Condition, ObjectMeta, Struct, doc
from certwright.kube.util.decoders import json_decoder
from certwright.resources.names import GROUP, ISSUER_SET_MEMBER
from certwright.resources.references import (
    IssuerReference,
    LocalObjectReference,
    SecretKeySelector,
    ServiceAccountRef,
)
from certwright.resources.solver import Solver

HMAC_ALGORITHMS: Final = ("HS256", "HS384", "HS512")
RENEWAL_INFORMATION_SOURCES: Final = ("ARI", "None")
ISSUER_TYPES: Final = ("acme", "ca", "vault", "selfSigned", "venafi")
MOST_MEMBERS: Final = 16
"""Members of a set, at most: each is checked for each request."""


class SelfSignedIssuer(Struct, frozen=True, kw_only=True):
    """Signs each certificate with its own key."""

    crl_distribution_points: Annotated[
        tuple[str, ...], doc("URLs of revocation lists, written into each certificate.")
    ] = ()


class CAIssuer(Struct, frozen=True, kw_only=True):
    """Signs with a CA's key from a Secret."""

    secret_name: Annotated[str, doc("Name of the Secret with the CA's tls.crt and tls.key.")]
    crl_distribution_points: Annotated[
        tuple[str, ...], doc("URLs of revocation lists, written into each certificate.")
    ] = ()
    ocsp_servers: Annotated[tuple[str, ...], doc("URLs of OCSP servers, written into each certificate.")] = ()
    issuing_certificate_urls: Annotated[
        tuple[str, ...], doc("URLs of the CA's certificate, written into each certificate.")
    ] = field(default=(), name="issuingCertificateURLs")


class ExternalAccountBinding(Struct, frozen=True, kw_only=True):
    """Ties the ACME account to an account that exists already (RFC 8555 §7.3.4)."""

    key_id: Annotated[str, doc("ID of the key that the CA has given.")] = field(name="keyID")
    key_secret_ref: Annotated[
        SecretKeySelector, doc("Where the key is found: a MAC key in unpadded base64url.")
    ]
    key_algorithm: Annotated[str, doc("Out of use and ignored: always HS256.", enum=HMAC_ALGORITHMS)] = ""


class ACMEIssuer(Struct, frozen=True, kw_only=True):
    """An ACME server (RFC 8555), such as Let's Encrypt."""

    email: Annotated[str, doc("Contact address of the account; the CA may warn it.")] = ""
    server: Annotated[str, doc("URL of the server's directory.")]
    preferred_chain: Annotated[
        str,
        doc(
            "Common name of the topmost issuer of the chain to choose, where there are several.", maxLength=64
        ),
    ] = ""
    ca_bundle: Annotated[
        bytes, doc("CA certificates (PEM, base64-encoded) to trust the server by. Not with `skipTLSVerify`.")
    ] = field(default=b"", name="caBundle")
    skip_tls_verify: Annotated[
        bool, doc("Whether the server's certificate is not checked. Only for tests.")
    ] = field(default=False, name="skipTLSVerify")
    external_account_binding: Annotated[
        ExternalAccountBinding | None, doc("Ties the account to one that exists already.")
    ] = None
    private_key_secret_ref: Annotated[
        SecretKeySelector,
        doc("Where the account's key is kept (default key tls.key); created if missing."),
    ]
    solvers: Annotated[tuple[Solver, ...], doc("How challenges are answered.")] = ()
    disable_account_key_generation: Annotated[
        bool, doc("Whether the account's key must be there already.")
    ] = False
    enable_duration_feature: Annotated[
        bool, doc("Whether orders request the lifetime; many servers refuse that.")
    ] = False
    profile: Annotated[str, doc("Certificate profile of the server to choose.")] = ""
    renewal_information_source: Annotated[
        str,
        doc(
            "Whether the server schedules the renewal (RFC 9773): ARI (the default) or None.",
            enum=RENEWAL_INFORMATION_SOURCES,
            default="ARI",
        ),
    ] = ""


class VaultAppRole(Struct, frozen=True, kw_only=True):
    """Vault's AppRole method."""

    path: Annotated[str, doc("Where the method is mounted: approle.")]
    role_id: Annotated[str, doc("ID of the role.")]
    secret_ref: Annotated[SecretKeySelector, doc("Where the role's secret ID is found.")]


class VaultClientCertificate(Struct, frozen=True, kw_only=True):
    """Vault's TLS certificate method."""

    mount_path: Annotated[str, doc("Where the method is mounted; /v1/auth/cert when left out.")] = ""
    secret_name: Annotated[str, doc("Name of the Secret with the client's tls.crt and tls.key.")] = ""
    name: Annotated[str, doc("Name of the certificate role; any that matches when left out.")] = ""


class VaultKubernetes(Struct, frozen=True, kw_only=True):
    """Vault's Kubernetes method."""

    mount_path: Annotated[str, doc("Where the method is mounted; /v1/auth/kubernetes when left out.")] = ""
    secret_ref: Annotated[
        SecretKeySelector | None,
        doc("Where a ServiceAccount's token is found. Better is `serviceAccountRef`."),
    ] = None
    service_account_ref: Annotated[
        ServiceAccountRef | None, doc("ServiceAccount for which a token is requested.")
    ] = None
    role: Annotated[str, doc("Role in Vault.")]


class VaultAWS(Struct, frozen=True, kw_only=True):
    """Vault's AWS IAM method."""

    mount_path: Annotated[str, doc("Where the method is mounted; /v1/auth/aws when left out.")] = ""
    role: Annotated[str, doc("Role in Vault.", minLength=1)]
    region: Annotated[str, doc("AWS region; from the surroundings, then us-east-1, when left out.")] = ""
    service_account_ref: Annotated[
        ServiceAccountRef | None, doc("ServiceAccount whose token is exchanged; with `iamRoleArn`.")
    ] = None
    iam_role_arn: Annotated[str, doc("ARN of the IAM role to take on; with `serviceAccountRef`.")] = ""
    vault_header_value: Annotated[str, doc("Value of the header X-Vault-AWS-IAM-Server-ID.")] = ""


class VaultAuth(Struct, frozen=True, kw_only=True):
    """How to log in to Vault: exactly one method."""

    token_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where a Vault token is found (default key token).")
    ] = None
    app_role: Annotated[VaultAppRole | None, doc("AppRole.")] = None
    client_certificate: Annotated[VaultClientCertificate | None, doc("TLS client certificate.")] = None
    kubernetes: Annotated[VaultKubernetes | None, doc("A ServiceAccount of Kubernetes.")] = None
    aws: Annotated[VaultAWS | None, doc("AWS IAM.")] = None


class VaultIssuer(Struct, frozen=True, kw_only=True):
    """The PKI engine of HashiCorp Vault or OpenBao."""

    auth: Annotated[VaultAuth, doc("How to log in.")]
    server: Annotated[str, doc("URL of the server: https://vault.example.com:8200.")]
    server_name: Annotated[str, doc("Name to check the server's certificate against, if not the URL's.")] = ""
    path: Annotated[str, doc("Path of the sign endpoint: pki/sign/my-role.")]
    namespace: Annotated[str, doc("Namespace in Vault.")] = ""
    ca_bundle: Annotated[
        bytes,
        doc("CA certificates (PEM, base64-encoded) to trust the server by. Not with `caBundleSecretRef`."),
    ] = field(default=b"", name="caBundle")
    ca_bundle_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where the CA certificates are found (default key ca.crt).")
    ] = field(default=None, name="caBundleSecretRef")
    client_cert_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where a client certificate is found; with `clientKeySecretRef`.")
    ] = None
    client_key_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where the client certificate's key is found.")
    ] = None


class VenafiTPP(Struct, frozen=True, kw_only=True):
    """The self-hosted server."""

    url: Annotated[str, doc("URL of the server's vedsdk endpoint.")]
    credentials_ref: Annotated[
        LocalObjectReference, doc("Secret with access-token, or with username and password.")
    ]
    ca_bundle: Annotated[
        bytes,
        doc("CA certificates (PEM, base64-encoded) to trust the server by. Not with `caBundleSecretRef`."),
    ] = field(default=b"", name="caBundle")
    ca_bundle_secret_ref: Annotated[SecretKeySelector | None, doc("Where the CA certificates are found.")] = (
        field(default=None, name="caBundleSecretRef")
    )


class VenafiCloud(Struct, frozen=True, kw_only=True):
    """The hosted service."""

    url: Annotated[str, doc("URL of the service; https://api.venafi.cloud/ when left out.")] = ""
    api_token_secret_ref: Annotated[
        SecretKeySelector, doc("Where the API key is found (default key api-key).")
    ]


class VenafiNGTS(Struct, frozen=True, kw_only=True):
    """Next-generation trust security."""

    url: Annotated[str, doc("URL of the service.")] = ""
    token_endpoint: Annotated[str, doc("URL that gives out access tokens.")] = ""
    tsg_id: Annotated[str, doc("ID of the tenant service group.")] = field(name="tsgID")
    credentials_ref: Annotated[LocalObjectReference, doc("Secret with client-id and client-secret.")]


class VenafiIssuer(Struct, frozen=True, kw_only=True):
    """CyberArk Certificate Manager (once Venafi): exactly one of tpp, cloud and ngts."""

    zone: Annotated[str, doc("Policy zone that certificates are requested in.")]
    tpp: Annotated[VenafiTPP | None, doc("The self-hosted server.")] = None
    cloud: Annotated[VenafiCloud | None, doc("The hosted service.")] = None
    ngts: Annotated[VenafiNGTS | None, doc("Next-generation trust security.")] = None


class IssuerSpec(Struct, frozen=True, kw_only=True):
    """Who signs: exactly one of these."""

    acme: Annotated[ACMEIssuer | None, doc("An ACME server.")] = None
    ca: Annotated[CAIssuer | None, doc("A CA whose key lies in a Secret.")] = None
    vault: Annotated[VaultIssuer | None, doc("HashiCorp Vault or OpenBao.")] = None
    self_signed: Annotated[SelfSignedIssuer | None, doc("Each certificate signs itself.")] = None
    venafi: Annotated[VenafiIssuer | None, doc("CyberArk Certificate Manager.")] = None


class PersistentRecord(Struct, frozen=True, kw_only=True):
    """The TXT record that lets this account issue for a domain (DNS-PERSIST-01). Not in cert-manager."""

    name: Annotated[str, doc("Name of the record to create for each DOMAIN.")] = ""
    value: Annotated[str, doc("Its value, for the domain itself.")] = ""
    wildcard_value: Annotated[str, doc("Its value, for the domain and its wildcard name.")] = ""
    issuer_domain_names: Annotated[
        tuple[str, ...], doc("Names of the CA that a value may begin with (`caaIdentities`).")
    ] = ()


class IssuerACMEStatus(Struct, frozen=True, kw_only=True):
    """The account at the ACME server."""

    uri: Annotated[str, doc("URL of the account.")] = ""
    last_registered_email: Annotated[str, doc("Contact address last sent to the server.")] = ""
    last_private_key_hash: Annotated[str, doc("Hash of the account's key last used (SHA-256, base64).")] = ""
    persistent_record: Annotated[
        PersistentRecord | None,
        doc("The record to create once for each domain, if a solver is dnsPersist01. Not in cert-manager."),
    ] = None


class IssuerStatus(Struct, frozen=True, kw_only=True):
    """Whether the issuer can sign."""

    conditions: Annotated[tuple[Condition, ...], doc("Ready: the issuer can sign.")] = ()
    acme: Annotated[IssuerACMEStatus | None, doc("The account at the ACME server.")] = None


class Issuer(Struct, frozen=True, kw_only=True):
    """Signs certificates of its own namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[IssuerSpec, doc("The issuer.")]
    status: Annotated[IssuerStatus, doc("Whether the issuer can sign; written by the controllers.")] = (
        IssuerStatus()
    )


class ClusterIssuer(Struct, frozen=True, kw_only=True):
    """Signs certificates of all namespaces; its Secrets lie in the cluster resource namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[IssuerSpec, doc("The issuer.")]
    status: Annotated[IssuerStatus, doc("Whether the issuer can sign; written by the controllers.")] = (
        IssuerStatus()
    )


class IssuerSetSpec(Struct, frozen=True, kw_only=True):
    """The members of the set."""

    issuers: Annotated[
        tuple[IssuerReference, ...],
        doc(
            "Issuers and ClusterIssuers of cert-manager.io, the preferred one first. An IssuerSet names "
            "Issuers of its own namespace and ClusterIssuers; a ClusterIssuerSet names ClusterIssuers only.",
            minItems=1,
            maxItems=MOST_MEMBERS,
        ),
    ]


class IssuerSetStatus(Struct, frozen=True, kw_only=True):
    """Which member signs now."""

    active: Annotated[
        IssuerReference | None,
        doc("The member that new requests are sent to first; none while none can sign."),
    ] = None
    return_time: Annotated[
        datetime | None,
        doc("When the set returns to the preferred member, if that works until then."),
    ] = None
    conditions: Annotated[tuple[Condition, ...], doc("Ready: at least one member can sign.")] = ()


class IssuerSet(Struct, frozen=True, kw_only=True):
    """An ordered list of issuers. Each request of the namespace goes to the first member that can sign it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[IssuerSetSpec, doc("The members of the set.")]
    status: Annotated[IssuerSetStatus, doc("Which member signs now; written by the controllers.")] = (
        IssuerSetStatus()
    )


class ClusterIssuerSet(Struct, frozen=True, kw_only=True):
    """An ordered list of ClusterIssuers. Each request goes to the first member that can sign it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[IssuerSetSpec, doc("The members of the set.")]
    status: Annotated[IssuerSetStatus, doc("Which member signs now; written by the controllers.")] = (
        IssuerSetStatus()
    )


def read_member(annotations: Mapping[str, str]) -> IssuerReference | None:
    """The member that the annotations name; None without one, or for anything else. The owner of a request
    may write the annotation: a member counts only while the set has it."""
    text = annotations.get(ISSUER_SET_MEMBER, "")
    try:
        return json_decoder(IssuerReference).decode(text) if text else None
    except msgspec.DecodeError:
        return None


def write_member(member: IssuerReference) -> dict[str, str]:
    """The annotation for that member, with its defaults filled in."""
    value = {"name": member.name, "kind": member.kind_or_default, "group": GROUP}
    return {ISSUER_SET_MEMBER: msgspec.json.encode(value).decode()}

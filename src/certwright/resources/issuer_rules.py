"""Validation of an Issuer or ClusterIssuer, by its own content only.

Source: cert-manager `internal/apis/certmanager/validation/issuer.go`; solvers are in `solver_rules.py`.
"""

from __future__ import annotations

from certwright.kube.api.errors import FieldError, forbidden, invalid, required
from certwright.resources import checks
from certwright.resources.issuer import (
    HMAC_ALGORITHMS,
    ISSUER_TYPES,
    ACMEIssuer,
    CAIssuer,
    ExternalAccountBinding,
    IssuerSpec,
    SelfSignedIssuer,
    VaultAWS,
    VaultIssuer,
    VaultKubernetes,
    VenafiIssuer,
    VenafiTPP,
)
from certwright.resources.references import SecretKeySelector, given
from certwright.resources.solver_rules import validate_solver


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
    if spec.self_signed is not None:
        errors += _self_signed(spec.self_signed)
    if spec.ca is not None:
        errors += _ca(spec.ca)
    if spec.acme is not None:
        errors += _acme(spec.acme)
    if spec.vault is not None:
        errors += _vault(spec.vault)
    if spec.venafi is not None:
        errors += _venafi(spec.venafi)
    return errors


def _self_signed(issuer: SelfSignedIssuer) -> list[FieldError]:
    return checks.check_no_empty(issuer.crl_distribution_points, "spec.selfSigned.crlDistributionPoints")


def _ca(issuer: CAIssuer) -> list[FieldError]:
    path = "spec.ca"
    return [
        *checks.check_object_name(
            issuer.secret_name, f"{path}.secretName", "the Secret with tls.crt and tls.key"
        ),
        *checks.check_no_empty(issuer.crl_distribution_points, f"{path}.crlDistributionPoints"),
        *checks.check_no_empty(issuer.ocsp_servers, f"{path}.ocspServers"),
        *checks.check_no_empty(issuer.issuing_certificate_urls, f"{path}.issuingCertificateURLs"),
    ]


def _acme(issuer: ACMEIssuer) -> list[FieldError]:
    path = "spec.acme"
    errors: list[FieldError] = []
    if not issuer.server:
        errors.append(required(f"{path}.server", "give the URL of the server's directory"))
    errors += checks.check_secret_key(issuer.private_key_secret_ref, f"{path}.privateKeySecretRef", key=False)
    if issuer.ca_bundle and issuer.skip_tls_verify:
        errors.append(forbidden(f"{path}.skipTLSVerify", "not with caBundle; keep one of them"))
    errors += checks.check_ca_bundle(issuer.ca_bundle, f"{path}.caBundle")
    if issuer.external_account_binding is not None:
        errors += _binding(issuer.external_account_binding, f"{path}.externalAccountBinding")
    for number, solver in enumerate(issuer.solvers):
        errors += validate_solver(solver, f"{path}.solvers[{number}]")
    return errors


def _binding(binding: ExternalAccountBinding, path: str) -> list[FieldError]:
    errors = [] if binding.key_id else [required(f"{path}.keyID", "give the ID that the CA has given")]
    errors += checks.check_one_of(binding.key_algorithm, f"{path}.keyAlgorithm", HMAC_ALGORITHMS)
    return errors + checks.check_secret_key(binding.key_secret_ref, f"{path}.keySecretRef")


def _vault(issuer: VaultIssuer) -> list[FieldError]:
    path = "spec.vault"
    errors: list[FieldError] = []
    if not issuer.server:
        errors.append(required(f"{path}.server", "give the URL of the server"))
    if not issuer.path:
        errors.append(
            required(f"{path}.path", "give the path of the sign endpoint, such as pki/sign/my-role")
        )
    elif ".." in issuer.path.split("/"):
        errors.append(invalid(f"{path}.path", issuer.path, "must not contain .."))
    errors += _trust(issuer.ca_bundle, issuer.ca_bundle_secret_ref, path)
    if (issuer.client_cert_secret_ref is None) != (issuer.client_key_secret_ref is None):
        missing = "clientCertSecretRef" if issuer.client_cert_secret_ref is None else "clientKeySecretRef"
        errors.append(required(f"{path}.{missing}", "a client certificate and its key go together"))
    return errors + _vault_auth(issuer)


def _trust(bundle: bytes, ref: SecretKeySelector | None, path: str) -> list[FieldError]:
    if bundle and ref is not None:
        # The words of cert-manager; the bundle itself would make the message unreadable.
        own, other, rule = f"{path}.caBundle", f"{path}.caBundleSecretRef", "cannot be used together"
        return [
            invalid(own, "<snip>", f"specified caBundle and caBundleSecretRef {rule}"),
            invalid(other, ref.name, f"specified caBundleSecretRef and caBundle {rule}"),
        ]
    errors = checks.check_ca_bundle(bundle, f"{path}.caBundle")
    return errors + checks.check_secret_key(ref, f"{path}.caBundleSecretRef", key=False)


def _vault_auth(issuer: VaultIssuer) -> list[FieldError]:
    auth, path = issuer.auth, "spec.vault.auth"
    methods = (auth.token_secret_ref, auth.app_role, auth.client_certificate, auth.kubernetes, auth.aws)
    # More than one is accepted here, as in cert-manager, and refused by the issuer's check.
    if all(method is None for method in methods):
        detail = "choose one of tokenSecretRef, appRole, clientCertificate, kubernetes, aws"
        return [required(path, detail)]
    errors = checks.check_secret_key(auth.token_secret_ref, f"{path}.tokenSecretRef", key=False)
    if auth.app_role is not None:
        if not auth.app_role.role_id:
            errors.append(required(f"{path}.appRole.roleId", "give the role's ID"))
        errors += checks.check_secret_key(auth.app_role.secret_ref, f"{path}.appRole.secretRef", key=False)
    if auth.kubernetes is not None:
        errors += _vault_kubernetes(auth.kubernetes, f"{path}.kubernetes")
    if auth.aws is not None:
        errors += _vault_aws(auth.aws, f"{path}.aws")
    return errors


def _vault_kubernetes(method: VaultKubernetes, path: str) -> list[FieldError]:
    errors = [] if method.role else [required(f"{path}.role", "name the role in Vault")]
    secret = given(method.secret_ref)
    if (secret is None) == (method.service_account_ref is None):
        make = required if secret is None else forbidden
        errors.append(make(path, "give exactly one of secretRef and serviceAccountRef"))
    if method.service_account_ref is not None and not method.service_account_ref.name:
        errors.append(required(f"{path}.serviceAccountRef.name", "name the ServiceAccount"))
    return errors + checks.check_secret_key(secret, f"{path}.secretRef", key=False)


def _vault_aws(method: VaultAWS, path: str) -> list[FieldError]:
    errors = [] if method.role else [required(f"{path}.role", "name the role in Vault")]
    if method.service_account_ref is not None:
        if not method.service_account_ref.name:
            errors.append(required(f"{path}.serviceAccountRef.name", "name the ServiceAccount"))
        if not method.iam_role_arn:
            errors.append(required(f"{path}.iamRoleArn", "a ServiceAccount needs the role to take on"))
    return errors


def _venafi(issuer: VenafiIssuer) -> list[FieldError]:
    path = "spec.venafi"
    errors = [] if issuer.zone else [required(f"{path}.zone", "name the policy zone")]
    given = {"tpp": issuer.tpp, "cloud": issuer.cloud, "ngts": issuer.ngts}
    names = [name for name, part in given.items() if part is not None]
    if len(names) != 1:
        make = forbidden if names else required
        errors.append(make(path, "give exactly one of tpp, cloud, ngts"))
    if issuer.tpp is not None:
        errors += _tpp(issuer.tpp, f"{path}.tpp")
    if issuer.cloud is not None:
        ref = issuer.cloud.api_token_secret_ref
        errors += checks.check_secret_key(ref, f"{path}.cloud.apiTokenSecretRef", key=False)
    if issuer.ngts is not None and not issuer.ngts.tsg_id:
        errors.append(required(f"{path}.ngts.tsgID", "give the ID of the tenant service group"))
    return errors


def _tpp(server: VenafiTPP, path: str) -> list[FieldError]:
    errors = [] if server.url else [required(f"{path}.url", "give the URL of the server")]
    if not server.credentials_ref.name:
        errors.append(required(f"{path}.credentialsRef.name", "name the Secret"))
    return errors + _trust(server.ca_bundle, server.ca_bundle_secret_ref, path)

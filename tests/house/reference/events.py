"""docs/reference/events.md: the Events that the controllers record; a test compares them with the calls."""

from __future__ import annotations

from typing import NamedTuple

from house.reference.tables import GENERATED, table


class About(NamedTuple):
    """An Event: the kinds that it is about (commas between), its type, its meaning."""

    kinds: str
    type: str
    meaning: str


ISSUERS = "Issuer, ClusterIssuer"
SETS = "IssuerSet, ClusterIssuerSet"
SHIMS = "Ingress, Gateway, ListenerSet"
INJECTED = (
    "ValidatingWebhookConfiguration, MutatingWebhookConfiguration, CustomResourceDefinition, APIService"
)
REQUEST = "CertificateRequest"
SIGNING_REQUEST = "CertificateSigningRequest"

EVENTS: tuple[tuple[str, About], ...] = (
    (
        "Issuing",
        About("Certificate", "Normal", "An issuance has begun, or its certificate is in the Secret."),
    ),
    ("Requested", About("Certificate", "Normal", "The CertificateRequest was created.")),
    (
        "Failed",
        About(
            "Certificate", "Warning", "The issuance failed; the message has the cause and the next attempt."
        ),
    ),
    (
        "InvalidRequest",
        About("Certificate", "Warning", "As `Failed`: the request can never succeed as it is."),
    ),
    (
        "IssuerUnavailable",
        About("Certificate", "Warning", "As `Failed`: the issuer is unreachable or overloaded."),
    ),
    ("RateLimited", About("Certificate", "Warning", "As `Failed`: a rate limit of the issuer is exhausted.")),
    ("Denied", About("Certificate", "Warning", "As `Failed`: the request was denied.")),
    ("RequestFailed", About("Certificate", "Warning", "No CSR can be made from the spec.")),
    (
        "DecodeFailed",
        About(
            "Certificate", "Warning", "The private key in the Secret cannot be used; a new one is generated."
        ),
    ),
    (
        "CannotRegenerateKey",
        About("Certificate", "Warning", "The key must change, but `rotationPolicy` is `Never`."),
    ),
    ("NotAllowed", About("Certificate", "Warning", "The key's algorithm needs a feature gate.")),
    ("WindowError", About("Certificate", "Warning", "The renewal windows or the time zone cannot be used.")),
    (
        "ChangedByAdmission",
        About("Certificate", "Warning", "An admission webhook has changed what an issuance has created."),
    ),
    (
        "FailureCleared",
        About("Certificate", "Normal", "Nothing is to be issued any more; the last failure is over."),
    ),
    (
        "StatusRepaired",
        About("Certificate", "Warning", "The status contradicted the Secret and was corrected."),
    ),
    (
        "ReservedSecret",
        About(
            "Certificate", "Warning", "The Secret has a type that is never written ([why](../secrets.md))."
        ),
    ),
    (
        "NotExported",
        About(
            "Certificate",
            "Warning",
            "`serve --export`: the key in the Secret is not that of its certificate; the files stay as they are.",
        ),
    ),
    (
        "NotVerified",
        About(
            "Certificate",
            "Warning",
            "Some clients refuse the certificate ([why](../requests.md#verification)).",
        ),
    ),
    (
        "CAKeyReplacement",
        About("Certificate", "Warning", "The renewal, a tenth of its life from now, replaces a CA's key."),
    ),
    ("SecretAdopted", About("Certificate", "Warning", "A Secret that existed before was adopted.")),
    (
        "SecretConflict",
        About("Certificate", "Warning", "Another writer changes the same fields of the Secret."),
    ),
    (
        "SecretOverwritten",
        About("Certificate", "Warning", "Another writer replaces the key or the certificate."),
    ),
    ("SecretDeleted", About("Certificate", "Warning", "The Secret is deleted again and again.")),
    ("SecretRefused", About("Certificate", "Warning", "The API server rejects the write of the Secret.")),
    (
        "KeystorePasswordSecretNotFound",
        About("Certificate", "Warning", "The password of the key store is missing."),
    ),
    ("KeystoreFailed", About("Certificate", "Warning", "The key store cannot be made.")),
    ("Invalid", About("Certificate", "Warning", "The API server rejects an object made from the spec.")),
    ("Forbidden", About("Certificate", "Warning", "The controllers may not write an object.")),
    ("cert-manager.io", About(REQUEST, "Normal", "Approved automatically.")),
    ("WaitingForApproval", About(REQUEST, "Normal", "Waits for an approver.")),
    ("CertificateIssued", About(f"{REQUEST}, {SIGNING_REQUEST}", "Normal", "The request is signed.")),
    ("RequestParsingError", About(REQUEST, "Warning", "The CSR cannot be read.")),
    ("IssuerNotFound", About(REQUEST, "Normal", "The issuer does not exist yet.")),
    ("IssuerNotReady", About(REQUEST, "Normal", "The issuer is not Ready.")),
    ("IssuerTypeMissing", About(REQUEST, "Normal", "The issuer configures no type.")),
    ("IssuerFailing", About(REQUEST, "Normal", "The circuit breaker of the issuer is open.")),
    ("OrderChanged", About(REQUEST, "Normal", "An admission webhook has made the new Order useless.")),
    ("OrderPending", About(f"{REQUEST}, {SIGNING_REQUEST}", "Normal", "The Order is in progress.")),
    ("OrderFailed", About(f"{REQUEST}, {SIGNING_REQUEST}", "Warning", "The Order failed.")),
    (
        "BadConfig",
        About(f"{REQUEST}, {SIGNING_REQUEST}", "Warning", "Signed, but clients may refuse the certificate."),
    ),
    ("WaitingApproval", About(SIGNING_REQUEST, "Normal", "Waits for an approver.")),
    ("IssuerNotFound", About(SIGNING_REQUEST, "Warning", "The issuer of the signer name does not exist.")),
    ("IssuerNotReady", About(SIGNING_REQUEST, "Warning", "The issuer is not Ready.")),
    ("IssuerTypeMissing", About(SIGNING_REQUEST, "Warning", "The issuer configures no type.")),
    ("IssuerFailing", About(SIGNING_REQUEST, "Warning", "The circuit breaker of the issuer is open.")),
    ("DeniedReference", About(SIGNING_REQUEST, "Warning", "The requester may not reference this Issuer.")),
    ("InvalidDuration", About(SIGNING_REQUEST, "Warning", "The requested duration is too short.")),
    ("ErrorParseDuration", About(SIGNING_REQUEST, "Warning", "The requested duration cannot be read.")),
    ("OrderFailed", About("Order", "Warning", "The ACME server rejected the order, or made it invalid.")),
    ("Solver", About("Order", "Warning", "No solver of the issuer fits a name of the order.")),
    ("PreferredChainMissing", About("Order", "Warning", "The CA offers no chain to `preferredChain`.")),
    ("Complete", About("Order", "Normal", "The certificate was downloaded.")),
    ("PresentError", About("Challenge", "Warning", "The solver could not present the proof.")),
    ("Refused", About("Challenge", "Warning", "The challenge may not be solved by this process.")),
    (
        "Superseded",
        About("Challenge", "Normal", "The issuer or the Order has changed; another challenge takes over."),
    ),
    ("Failed", About("Challenge", "Warning", "The CA did not accept the proof.")),
    (
        "PodTemplateIgnored",
        About("Challenge", "Normal", "`podTemplate` of the solver has no effect: there is no pod."),
    ),
    ("CleanUpError", About("Challenge", "Warning", "The solver could not remove the proof.")),
    ("CleanUpSkipped", About("Challenge", "Warning", "No solver was run to remove the proof.")),
    ("KeyPairVerified", About(ISSUERS, "Normal", "The key pair of the `ca` issuer can sign.")),
    ("ACMEAccountRegistered", About(ISSUERS, "Normal", "The ACME account is registered.")),
    ("VaultVerified", About(ISSUERS, "Normal", "Vault is reachable and accepts the login.")),
    ("Ready", About(ISSUERS, "Normal", "The Venafi server is reachable and accepts the login.")),
    ("ErrInitIssuer", About(ISSUERS, "Warning", "The issuer is not Ready; the message has the reason.")),
    ("BadAnnotation", About(ISSUERS, "Warning", "An annotation of the issuer cannot be used.")),
    ("ActiveMemberChanged", About(SETS, "Normal", "Another member signs now.")),
    ("CreateCertificate", About(SHIMS, "Normal", "A Certificate was created.")),
    ("UpdateCertificate", About(SHIMS, "Normal", "A Certificate was changed.")),
    ("DeleteCertificate", About(SHIMS, "Normal", "A Certificate that is no longer wanted was deleted.")),
    ("BadConfig", About(SHIMS, "Warning", "Annotations or spec cannot be used; the message has the fix.")),
    ("IssuerNotFound", About(SHIMS, "Warning", "The issuer of the annotation does not exist.")),
    ("Delivered", About("Delivery", "Normal", "The files were replaced, and the hook has succeeded.")),
    ("Invalid", About("Delivery", "Warning", "The spec, or a file made from the Secret, is invalid.")),
    ("NotAllowed", About("Delivery", "Warning", "The operator's flags do not allow it.")),
    ("PathInUse", About("Delivery", "Warning", "Another Delivery writes to the same path.")),
    ("NotFound", About("Delivery", "Warning", "The Certificate or a Secret does not exist.")),
    ("NotIssued", About("Delivery", "Warning", "The Secret has no certificate and key yet.")),
    ("WriteFailed", About("Delivery", "Warning", "The files cannot be written.")),
    ("HookFailed", About("Delivery", "Warning", "The hook failed; it is repeated.")),
    ("NoProcess", About("Delivery", "Warning", "No running process offers the root.")),
    ("Outdated", About("Delivery", "Warning", "The process does not deliver the Secret's certificate.")),
    ("CAInjectionFailed", About(INJECTED, "Warning", "The CA bundle cannot be injected.")),
)
"""Reason -> about, in the order of the page. A reason may be in it for several kinds."""

PAGE = f"""# Events

{GENERATED} Events explain what the controllers did, newest last: `certwright status`, `certwright describe`,
or `kubectl get events`. They expire after an hour (`--event-ttl`). CertificateRequests and CertificateSigningRequests
also have Warnings with the reason of their issuer, e.g. `SecretMissing`, `VaultInitError` ([vault.md](../vault.md),
[venafi.md](../venafi.md)).
"""


def page() -> str:
    """The text of the page: a table for each group of kinds."""
    groups: dict[str, list[tuple[str, About]]] = {}
    for reason, row in EVENTS:
        for kinds in (row.kinds,) if row.kinds in (SHIMS, INJECTED) else row.kinds.split(", "):
            groups.setdefault(kinds, []).append((reason, row))
    parts = [PAGE]
    for kinds, rows in groups.items():
        lines = [(f"`{reason}`", row.type, row.meaning) for reason, row in rows]
        parts += [f"## {kinds}\n", table(("reason", "type", "meaning"), lines) + "\n"]
    return "\n".join(parts)

"""Reasons of conditions whose constants are private to a controller or issuer; a test compares them with the code."""

from __future__ import annotations

ISSUING: dict[str, str] = {
    "WaitingForIssuer": "No attempt is made while the issuer fails ([circuit breaker]"
    "(../backoff.md#the-circuit-breaker-of-an-issuer)).",
    "SecretConflict": "Another writer keeps changing labels, annotations or formats of the Secret.",
    "SecretRefused": "The API server rejects the write of the Secret.",
    "KeystorePasswordSecretNotFound": "The Secret with the password of the key store is missing.",
    "KeystoreFailed": "The key store cannot be made.",
}
"""Of a Certificate's condition `Issuing=False`, beside the causes of failures."""

ISSUERS: dict[str, tuple[str, str]] = {
    "IsReady": ("`selfSigned`", "The issuer can sign."),
    "KeyPairVerified": ("`ca`", "The key pair of the CA can sign."),
    "ErrGetKeyPair": ("`ca`", "The Secret of the CA is missing, or one of its entries cannot be read."),
    "ErrInvalidKeyPair": (
        "`ca`",
        "The certificate is no CA's or has expired, or the key does not belong to it.",
    ),
    "ACMEAccountRegistered": ("`acme`", "The account is registered."),
    "ErrRegisterACMEAccount": ("`acme`", "The account cannot be registered."),
    "ErrVerifyACMEAccount": ("`acme`", "The account or its key cannot be used; the message has the action."),
    "ErrUpdateACMEAccount": ("`acme`", "The mail address of the account cannot be changed."),
    "ErrVerifySolvers": ("`acme`", "The account is ready, but none of the solvers can be used."),
    "InvalidURL": ("`acme`", "`spec.acme.server` is not a URL."),
    "InvalidConfig": ("`acme`", "`spec.acme` has a value that cannot be used."),
    "VaultVerified": ("`vault`", "The server is reachable and accepts the login."),
    "VaultError": ("`vault`", "The server, the login or the path cannot be used; the message has the field."),
    "Certificate Manager issuer started": ("`venafi`", "The server is reachable and accepts the login."),
    "ErrorSetup": ("`venafi`", "The server, its CA or the zone cannot be used; the message has the field."),
    "AuthFailed": ("`venafi`", "The server rejects the credentials."),
    "NotAllowed": ("all", "A field needs a flag of the operator; the message names it."),
    "IssuerTypeMissing": ("all", "The spec configures no issuer type."),
}
"""Of the condition `Ready` of Issuers and ClusterIssuers: the types of issuers, and the meaning."""

SETS: dict[str, str] = {
    "AllMembersReady": "All members can sign.",
    "SomeMembersReady": "At least one member can sign, and at least one cannot; the message names the cause.",
    "NoMemberReady": "No member can sign; the message names each cause.",
}
"""Of the condition `Ready` of issuer sets."""

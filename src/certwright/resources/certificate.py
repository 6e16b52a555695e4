"""Certificate: the desired certificate, its issuer, and its Secret.

Rules over these fields are in `certificate_rules.py`.

Source: cert-manager `pkg/apis/certmanager/v1/types_certificate.go`; field texts are ours. FIPS 204 and
RFC 9881 for ML-DSA, which cert-manager does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Final

from msgspec import field

from certwright.kube.api.meta import Condition, ObjectMeta, Struct, doc
from certwright.kube.util.durations import parse_duration
from certwright.resources.references import IssuerReference, SecretKeySelector

ML_DSA: Final = "ML-DSA"
ML_DSA_SIZES: Final = (44, 65, 87)
"""The parameter sets of FIPS 204."""
ML_DSA_ALIASES: Final[Mapping[str, int]] = {f"MLDSA{size}": size for size in ML_DSA_SIZES}
"""Algorithm names that include the parameter set."""

KEY_ALGORITHMS: Final = ("RSA", "ECDSA", "Ed25519", ML_DSA, *ML_DSA_ALIASES)
KEY_ENCODINGS: Final = ("PKCS1", "PKCS8")
DEFAULT_KEY_SIZES: Final[Mapping[str, int]] = {"RSA": 2048, "ECDSA": 256, ML_DSA: 65}
"""In bits; of ML-DSA, the parameter set."""
SIGNATURE_ALGORITHMS: Final[Mapping[str, str]] = {
    "SHA256WithRSA": "RSA",
    "SHA384WithRSA": "RSA",
    "SHA512WithRSA": "RSA",
    "ECDSAWithSHA256": "ECDSA",
    "ECDSAWithSHA384": "ECDSA",
    "ECDSAWithSHA512": "ECDSA",
    "PureEd25519": "Ed25519",
    **{f"Pure{alias}": alias for alias in ML_DSA_ALIASES},
}
"""Each signature algorithm, and its key algorithm; of ML-DSA, with the parameter set."""
ENCRYPTION_USAGES: Final = (
    "key encipherment",
    "data encipherment",
    "key agreement",
    "encipher only",
    "decipher only",
)
"""Key usages that an ML-DSA key cannot have (RFC 9881 §5)."""

DEFAULT_DURATION: Final = timedelta(days=90)
MINIMUM_DURATION: Final = timedelta(hours=1)
MINIMUM_RENEW_BEFORE: Final = timedelta(minutes=5)

KEY_USAGES: Final = (
    "signing",
    "digital signature",
    "content commitment",
    "key encipherment",
    "key agreement",
    "data encipherment",
    "cert sign",
    "crl sign",
    "encipher only",
    "decipher only",
    "any",
    "server auth",
    "client auth",
    "code signing",
    "email protection",
    "s/mime",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "timestamping",
    "ocsp signing",
    "microsoft sgc",
    "netscape sgc",
)

ROTATION_POLICIES: Final = ("Never", "Always")
OUTPUT_FORMATS: Final = ("DER", "CombinedPEM")
PKCS12_PROFILES: Final = ("LegacyRC2", "LegacyDES", "Modern2023", "Modern2026")
RENEWAL_POLICIES: Final = ("RenewBefore", "Disabled")
# Written with [0-9] and non-capturing-free groups only: RE2 and every JSON Schema engine read it alike.
WINDOW_DURATION_PATTERN: Final = r"^([0-9]+(\.[0-9]+)?(s|m|h))+$"


class X509Subject(Struct, frozen=True, kw_only=True):
    """Attributes of the X.509 subject besides the common name (RFC 5280 §4.1.2.6)."""

    organizations: Annotated[tuple[str, ...], doc("Organizations (O).")] = ()
    countries: Annotated[tuple[str, ...], doc("Countries (C), two letters each.")] = ()
    organizational_units: Annotated[tuple[str, ...], doc("Organizational units (OU).")] = ()
    localities: Annotated[tuple[str, ...], doc("Cities or other localities (L).")] = ()
    provinces: Annotated[tuple[str, ...], doc("States or provinces (ST).")] = ()
    street_addresses: Annotated[tuple[str, ...], doc("Street addresses (STREET).")] = ()
    postal_codes: Annotated[tuple[str, ...], doc("Postal codes.")] = ()
    serial_number: Annotated[str, doc("Serial number of the subject (not of the certificate).")] = ""


class OtherName(Struct, frozen=True, kw_only=True):
    """A subject alternative name of a type that is named by an object identifier (RFC 5280 §4.2.1.6)."""

    oid: Annotated[str, doc("Object identifier of the name's type, with dots: 1.3.6.1.4.1.311.20.2.3.")] = ""
    utf8_value: Annotated[str, doc("The name itself; encoded as UTF8String.")] = field(
        default="", name="utf8Value"
    )


class SecretTemplate(Struct, frozen=True, kw_only=True):
    """Labels and annotations for the target Secret."""

    annotations: Annotated[Mapping[str, str], doc("Annotations put on the target Secret.")] = field(
        default_factory=dict
    )
    labels: Annotated[Mapping[str, str], doc("Labels put on the target Secret.")] = field(
        default_factory=dict
    )


class PrivateKeySpec(Struct, frozen=True, kw_only=True):
    """The private key: algorithm, size, encoding, and when it is replaced."""

    rotation_policy: Annotated[
        str,
        doc(
            "Whether each issuance makes a new key (Always, the default) or keeps the one it finds (Never).",
            enum=ROTATION_POLICIES,
        ),
    ] = ""
    encoding: Annotated[
        str,
        doc(
            "PEM form of the key: PKCS1 (the default) or PKCS8. Ed25519 and ML-DSA keys are always PKCS8.",
            enum=KEY_ENCODINGS,
        ),
    ] = ""
    algorithm: Annotated[
        str,
        doc(
            "Algorithm of the key: RSA (the default), ECDSA or Ed25519; ML-DSA (post-quantum, FIPS 204) with "
            "the feature gate PostQuantum. MLDSA44, MLDSA65 and MLDSA87 are ML-DSA with that size.",
            enum=KEY_ALGORITHMS,
        ),
    ] = ""
    size: Annotated[
        int,
        doc(
            "Size in bits: RSA 2048 (the default) to 8192; ECDSA 256 (the default), 384 or 521. Parameter "
            "set of ML-DSA: 44, 65 (the default) or 87."
        ),
    ] = 0

    @property
    def is_ml_dsa(self) -> bool:
        """Whether it is a key of ML-DSA."""
        return self.algorithm_or_default == ML_DSA

    @property
    def algorithm_or_default(self) -> str:
        """The algorithm, `RSA` by default; `ML-DSA` for its aliases."""
        if self.algorithm in ML_DSA_ALIASES:
            return ML_DSA
        return self.algorithm or "RSA"

    @property
    def size_or_default(self) -> int:
        """The size in bits, or the parameter set of ML-DSA: by default 2048 for RSA, 256 for ECDSA and 65 for
        ML-DSA; 0 for Ed25519."""
        default = DEFAULT_KEY_SIZES.get(self.algorithm_or_default, 0)
        default = ML_DSA_ALIASES.get(self.algorithm, default)
        return (self.size or default) if default else 0

    @property
    def encoding_or_default(self) -> str:
        """The encoding, `PKCS1` by default; always `PKCS8` for Ed25519 and ML-DSA, which have no other."""
        return "PKCS8" if self.algorithm == "Ed25519" or self.is_ml_dsa else self.encoding or "PKCS1"

    @property
    def rotation_policy_or_default(self) -> str:
        """The rotation policy, `Always` by default (cert-manager since v1.18)."""
        return self.rotation_policy or "Always"


class AdditionalOutputFormat(Struct, frozen=True, kw_only=True):
    """One more form in which the Secret holds key and chain."""

    type: Annotated[
        str,
        doc(
            "DER: the key in binary as key.der. CombinedPEM: key and chain in one file, tls-combined.pem.",
            enum=OUTPUT_FORMATS,
        ),
    ]


class NameConstraintItem(Struct, frozen=True, kw_only=True):
    """Names that a CA may or may not sign for, by kind of name."""

    dns_domains: Annotated[tuple[str, ...], doc("DNS domains, with all names below them.")] = ()
    ip_ranges: Annotated[tuple[str, ...], doc("IP ranges in CIDR form, 10.0.0.0/8.")] = ()
    email_addresses: Annotated[tuple[str, ...], doc("Email addresses, or domains of them.")] = ()
    uri_domains: Annotated[tuple[str, ...], doc("Domains of URIs.")] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it contains no names."""
        return not (self.dns_domains or self.ip_ranges or self.email_addresses or self.uri_domains)


class NameConstraints(Struct, frozen=True, kw_only=True):
    """The name constraints extension of a CA certificate (RFC 5280 §4.2.1.10)."""

    critical: Annotated[bool, doc("Whether the extension is marked critical.")] = False
    permitted: Annotated[NameConstraintItem | None, doc("Names that the CA may sign for.")] = None
    excluded: Annotated[NameConstraintItem | None, doc("Names that the CA must not sign for.")] = None


class RenewalWindow(Struct, frozen=True, kw_only=True):
    """A time of the week or the day in which renewals may happen."""

    cron: Annotated[str, doc("When the window opens, as a cron expression of five fields.", minLength=1)]
    window_duration: Annotated[
        str, doc("How long the window stays open: 4h, 90m.", pattern=WINDOW_DURATION_PATTERN)
    ]
    timezone: Annotated[
        str | None,
        doc("Time zone of `cron` by its IANA name, Europe/Berlin; UTC when it is left out.", minLength=1),
    ] = None


class Renewal(Struct, frozen=True, kw_only=True):
    """When the certificate is renewed by itself, beyond `renewBefore`."""

    policy: Annotated[
        str,
        doc(
            "RenewBefore (the default): renew some time before the end. Disabled: never because of the time.",
            enum=RENEWAL_POLICIES,
        ),
    ] = ""
    windows: Annotated[
        tuple[RenewalWindow, ...], doc("Maintenance windows that renewals are moved into.")
    ] = ()

    @property
    def is_disabled(self) -> bool:
        """Whether scheduled renewal is disabled."""
        return self.policy == "Disabled"


class KeystorePassword(Struct, frozen=True, kw_only=True):
    """The password of a keystore."""

    password_secret_ref: Annotated[
        SecretKeySelector | None, doc("Where the keystore's password is found; or give it in `password`.")
    ] = None
    password: Annotated[
        str | None, doc("The keystore's password in plain text; better is `passwordSecretRef`.")
    ] = None


class JKSKeystore(KeystorePassword, frozen=True, kw_only=True):
    """A Java keystore beside the PEM files."""

    create: Annotated[bool, doc("Whether keystore.jks (and truststore.jks, if the CA is known) is written.")]
    alias: Annotated[str | None, doc("Alias of the key's entry; `certificate` when it is left out.")] = None

    @property
    def alias_or_default(self) -> str:
        """The alias, `certificate` by default."""
        return self.alias or "certificate"


class PKCS12Keystore(KeystorePassword, frozen=True, kw_only=True):
    """A PKCS#12 keystore beside the PEM files."""

    create: Annotated[bool, doc("Whether keystore.p12 (and truststore.p12, if the CA is known) is written.")]
    profile: Annotated[
        str,
        doc(
            "Encryption of the keystore: LegacyRC2 (the default, readable by old programs), LegacyDES, or "
            "the secure Modern2023 and Modern2026.",
            enum=PKCS12_PROFILES,
        ),
    ] = ""

    @property
    def profile_or_default(self) -> str:
        """The profile, `LegacyRC2` by default."""
        return self.profile or "LegacyRC2"


class Keystores(Struct, frozen=True, kw_only=True):
    """Further forms of key and certificate for programs that do not read PEM."""

    jks: Annotated[JKSKeystore | None, doc("Java keystore.")] = None
    pkcs12: Annotated[PKCS12Keystore | None, doc("PKCS#12 keystore.")] = None


class CertificateSpec(Struct, frozen=True, kw_only=True):
    """What the certificate shall be."""

    subject: Annotated[
        X509Subject | None, doc("Subject attributes besides the common name. Not with `literalSubject`.")
    ] = None
    literal_subject: Annotated[
        str,
        doc(
            "The whole subject in the form of RFC 4514, in the order written: "
            "CN=web,OU=it,DC=example,DC=com. Not with `subject` or `commonName`."
        ),
    ] = ""
    common_name: Annotated[
        str, doc("Common name (CN) of the subject, at most 64 bytes. TLS clients look at `dnsNames` instead.")
    ] = ""
    duration: Annotated[
        str | None, doc("Requested lifetime, as a Go duration: 2160h (the default, 90 days). At least 1h.")
    ] = None
    renew_before: Annotated[
        str | None,
        doc(
            "How long before its end the certificate is renewed, as a Go duration of at least 5m and less "
            "than the lifetime. When it is left out: a third of the lifetime. Not with "
            "`renewBeforePercentage`."
        ),
    ] = None
    renew_before_percentage: Annotated[
        int | None,
        doc(
            "The same as a part of the lifetime: 25 renews when a quarter of it is left.",
            format="int32",
        ),
    ] = None
    renewal: Annotated[
        Renewal | None, doc("Whether and in which time windows renewal happens automatically.")
    ] = None
    dns_names: Annotated[tuple[str, ...], doc("DNS names (subject alternative names).")] = ()
    ip_addresses: Annotated[tuple[str, ...], doc("IP addresses (subject alternative names).")] = ()
    uris: Annotated[tuple[str, ...], doc("URIs (subject alternative names).")] = ()
    other_names: Annotated[
        tuple[OtherName, ...], doc("Subject alternative names of other types, such as a user principal name.")
    ] = ()
    email_addresses: Annotated[tuple[str, ...], doc("Email addresses (subject alternative names).")] = ()
    secret_name: Annotated[str, doc("Name of the Secret that key and certificate are stored in.")]
    secret_template: Annotated[
        SecretTemplate | None,
        doc("Labels and annotations that the Secret is given; removed when they go here."),
    ] = None
    keystores: Annotated[Keystores | None, doc("Keystores written into the Secret as well.")] = None
    issuer_ref: Annotated[IssuerReference, doc("The issuer that signs the certificate.")]
    is_ca: Annotated[bool, doc("Whether the certificate may sign others. Adds the usage `cert sign`.")] = (
        field(default=False, name="isCA")
    )
    usages: Annotated[
        tuple[str, ...],
        doc(
            "Key usages and extended key usages; digital signature and key encipherment when left out, of "
            "ML-DSA keys digital signature.",
            items={"enum": KEY_USAGES},
        ),
    ] = ()
    private_key: Annotated[
        PrivateKeySpec | None, doc("Algorithm, size, encoding and rotation of the key.")
    ] = None
    signature_algorithm: Annotated[
        str,
        doc(
            "Algorithm that the request, and a self-signed certificate, is signed with; fits the key by "
            "itself when it is left out.",
            enum=tuple(SIGNATURE_ALGORITHMS),
        ),
    ] = ""
    encode_usages_in_request: Annotated[
        bool | None, doc("Whether the usages are written into the signing request; true when left out.")
    ] = None
    revision_history_limit: Annotated[
        int | None, doc("How many CertificateRequests are kept; 1 when left out.", format="int32")
    ] = None
    additional_output_formats: Annotated[
        tuple[AdditionalOutputFormat, ...], doc("Further forms of key and certificate in the Secret.")
    ] = ()
    name_constraints: Annotated[
        NameConstraints | None, doc("Which names a CA certificate may sign for. Only with `isCA`.")
    ] = None

    @property
    def requested_duration(self) -> timedelta:
        """The requested lifetime, 90 days by default. Raises `ValueError` for an invalid duration."""
        return parse_duration(self.duration) if self.duration is not None else DEFAULT_DURATION

    @property
    def renew_before_duration(self) -> timedelta | None:
        """`renewBefore`, if given. Raises `ValueError` for an invalid duration."""
        return parse_duration(self.renew_before) if self.renew_before is not None else None

    @property
    def key(self) -> PrivateKeySpec:
        """The private key's spec; its `…_or_default` properties apply the defaults."""
        return self.private_key or _DEFAULT_KEY

    @property
    def encodes_usages(self) -> bool:
        """Whether the usages are written into the signing request; True by default."""
        return self.encode_usages_in_request is not False

    @property
    def revisions_kept(self) -> int:
        """How many CertificateRequests are kept: 1 by default (cert-manager since v1.18)."""
        return 1 if self.revision_history_limit is None else self.revision_history_limit


_DEFAULT_KEY = PrivateKeySpec()


class ARIWindow(Struct, frozen=True, kw_only=True):
    """The time in which the ACME server suggests to renew (RFC 9773 §4.2)."""

    start: Annotated[datetime | None, doc("Begin of the window.")] = None
    end: Annotated[datetime | None, doc("End of the window.")] = None


class ARIStatus(Struct, frozen=True, kw_only=True):
    """What the ACME server said about renewal, and when it is asked again."""

    suggested_window: Annotated[ARIWindow | None, doc("The window that the server suggests.")] = None
    explanation_url: Annotated[str, doc("A page that explains the suggestion.")] = field(
        default="", name="explanationURL"
    )
    last_checked: Annotated[datetime | None, doc("When the server was last queried.")] = None
    next_check: Annotated[datetime | None, doc("When the server is queried next.")] = None
    last_error: Annotated[str, doc("Why the last question was not answered.")] = ""
    account: Annotated[
        str, doc("URL of the ACME account of the issuer whose server was asked; empty: unknown.")
    ] = ""


class CertificateACMEStatus(Struct, frozen=True, kw_only=True):
    """What is known from the ACME server."""

    ari: Annotated[ARIStatus | None, doc("Renewal information (RFC 9773).")] = None


class CertificateStatus(Struct, frozen=True, kw_only=True):
    """What the certificate is."""

    conditions: Annotated[
        tuple[Condition, ...],
        doc("Ready: the Secret holds what the spec requests. Issuing: a new certificate is on its way."),
    ] = ()
    last_failure_time: Annotated[
        datetime | None, doc("When issuing last failed; the wait before the next attempt counts from here.")
    ] = None
    not_before: Annotated[datetime | None, doc("Begin of validity of the certificate in the Secret.")] = None
    not_after: Annotated[datetime | None, doc("End of validity of the certificate in the Secret.")] = None
    renewal_time: Annotated[datetime | None, doc("When the certificate is renewed next.")] = None
    revision: Annotated[int | None, doc("How many times this certificate has been issued.")] = None
    next_private_key_secret_name: Annotated[
        str | None, doc("Name of the Secret that holds the key of the issuance in progress.")
    ] = None
    failed_issuance_attempts: Annotated[int | None, doc("How many attempts have failed in a row.")] = None
    acme: Annotated[CertificateACMEStatus | None, doc("What is known from the ACME server.")] = None


class Certificate(Struct, frozen=True, kw_only=True):
    """A certificate that is kept valid: issued, stored in a Secret, and renewed before its end."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[CertificateSpec, doc("What the certificate shall be.", needed=False)]
    status: Annotated[CertificateStatus, doc("What the certificate is; written by the controllers.")] = (
        CertificateStatus()
    )

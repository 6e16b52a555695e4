"""Validation of a Certificate, by its own content only.

Source: cert-manager `internal/apis/certmanager/validation/certificate.go`. We are stricter about values
that are certainly mistakes, such as an empty name.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from certwright.kit import rfc4514
from certwright.kit.cron import check_cron
from certwright.kube.api.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from certwright.kube.api.naming import check_annotations, check_labels
from certwright.kube.util.durations import format_duration, parse_duration
from certwright.resources import certificate_size, checks, private_key_rules
from certwright.resources.certificate import (
    DEFAULT_DURATION,
    KEY_USAGES,
    MINIMUM_DURATION,
    MINIMUM_RENEW_BEFORE,
    OUTPUT_FORMATS,
    PKCS12_PROFILES,
    RENEWAL_POLICIES,
    Certificate,
    CertificateSpec,
    JKSKeystore,
    NameConstraintItem,
    PKCS12Keystore,
    Renewal,
    RenewalWindow,
    SecretTemplate,
    X509Subject,
)
from certwright.resources.names import ALLOW_DIRECT_INJECTION, GROUP
from certwright.resources.references import given

# RFC 5280 Appendix A.1: "ub-common-name INTEGER ::= 64".
MAX_COMMON_NAME_BYTES: Final = 64

# fmt: off
SUBJECT_TYPES: Final = frozenset({
    "CN", "L", "ST", "O", "OU", "C", "STREET", "DC", "UID",
    "SERIALNUMBER", "POSTALCODE", "SN", "GIVENNAME", "TITLE",
    "INITIALS", "GENERATIONQUALIFIER", "DNQUALIFIER", "EMAILADDRESS", "ORGANIZATIONIDENTIFIER",
})
# fmt: on
"""Attribute types that `literalSubject` may name; others are given as OIDs."""

_IDENTITIES: Final = (
    "commonName (from the commonName field or from a literalSubject), dnsNames, uris, emailAddresses, "
    "ipAddresses, otherNames"
)


def validate(certificate: Certificate) -> list[FieldError]:
    """All errors in the spec; empty if it is valid.

    Rules that cert-manager has too use its messages, because clients match on them.
    """
    spec = certificate.spec
    if errors := certificate_size.check_size(spec):
        return errors
    return [
        *checks.check_issuer_ref(spec.issuer_ref, "spec.issuerRef"),
        *checks.check_object_name(spec.secret_name, "spec.secretName", "the Secret for key and certificate"),
        *_secret_template(spec.secret_template),
        *_subject(spec),
        *_identities(spec),
        *_lifetime(spec),
        *_renewal(spec.renewal),
        *_usages(spec.usages),
        *private_key_rules.validate(spec),
        *_keystores(spec),
        *_output_formats(spec),
        *_name_constraints(spec),
        *_revision_limit(spec),
    ]


def _secret_template(template: SecretTemplate | None) -> list[FieldError]:
    if template is None:
        return []
    path = "spec.secretTemplate"
    errors = check_labels(template.labels, f"{path}.labels")
    errors += check_annotations(template.annotations, f"{path}.annotations")
    for key in template.annotations:
        # These state the Secret's content, and only the controllers write them.
        if key.startswith(f"{GROUP}/") and key != ALLOW_DIRECT_INJECTION:
            errors.append(
                invalid(f"{path}.annotations", key, f"{GROUP}/* annotations are not allowed; remove it")
            )
    return errors


def _subject(spec: CertificateSpec) -> list[FieldError]:
    errors = _literal_subject(spec) if spec.literal_subject else []
    if len(spec.common_name.encode()) > MAX_COMMON_NAME_BYTES:
        errors.append(too_long("spec.commonName", MAX_COMMON_NAME_BYTES))
    if spec.subject is not None:
        errors += _attributes(spec.subject)
    return errors


def _attributes(subject: X509Subject) -> list[FieldError]:
    path = "spec.subject"
    errors: list[FieldError] = []
    for name in ("countries", "organizations", "localities", "provinces"):
        errors += checks.check_no_empty(getattr(subject, name), f"{path}.{name}")
    errors += checks.check_no_empty(subject.organizational_units, f"{path}.organizationalUnits")
    errors += checks.check_no_empty(subject.street_addresses, f"{path}.streetAddresses")
    errors += checks.check_no_empty(subject.postal_codes, f"{path}.postalCodes")
    return errors


def _literal_subject(spec: CertificateSpec) -> list[FieldError]:
    path = "spec.literalSubject"
    errors = []
    if spec.subject not in (None, X509Subject()):
        errors.append(
            forbidden(
                "spec.subject", "When providing a `LiteralSubject` no `Subject` properties may be provided."
            )
        )
    if spec.common_name:
        errors.append(
            forbidden("spec.commonName", "When providing a `LiteralSubject` no `commonName` may be provided.")
        )
    try:
        names = rfc4514.parse(spec.literal_subject)
    except ValueError as error:
        return [*errors, invalid(path, spec.literal_subject, str(error))]
    for attribute in (attribute for rdn in names for attribute in rdn):
        if not attribute.type[0].isdigit() and attribute.type.upper() not in SUBJECT_TYPES:
            # The first words are cert-manager's.
            detail = f"Literal subject contains unrecognized key with value [{attribute.value}]: "
            detail += f"{attribute.type} is not a known attribute; write its number with dots"
            errors.append(invalid(path, spec.literal_subject, detail))
        if attribute.type.upper() == "CN" and len(attribute.value.encode()) > MAX_COMMON_NAME_BYTES:
            errors.append(too_long(path, MAX_COMMON_NAME_BYTES))
        if attribute.hex_value is not None:
            detail = f"{attribute.type}: values in hexadecimal form (#…) are not supported"
            errors.append(invalid(path, spec.literal_subject, detail))
        elif not attribute.value:
            errors.append(invalid(path, spec.literal_subject, f"{attribute.type} is empty"))
    return errors


def _has_literal_common_name(text: str) -> bool:
    try:
        names = rfc4514.parse(text)
    except ValueError:
        # Another rule reports the parse error; one report is enough.
        return True
    return any(attribute.type.upper() == "CN" for rdn in names for attribute in rdn)


def _identities(spec: CertificateSpec) -> list[FieldError]:
    errors: list[FieldError] = []
    for number, name in enumerate(spec.dns_names):
        path = f"spec.dnsNames[{number}]"
        if wrong := checks.check_visible(name, path, "www.example.com"):
            errors += wrong
        elif name != "." and "" in name.removesuffix(".").split("."):
            # One final dot is a warning: some CAs remove it.
            errors.append(invalid(path, name, "has an empty label; write e.g. www.example.com"))
    for number, address in enumerate(spec.ip_addresses):
        errors += checks.check_ip_address(address, f"spec.ipAddresses[{number}]")
    for number, uri in enumerate(spec.uris):
        errors += checks.check_uri(uri, f"spec.uris[{number}]")
    for number, email in enumerate(spec.email_addresses):
        errors += checks.check_email(email, f"spec.emailAddresses[{number}]")
    for number, other in enumerate(spec.other_names):
        errors += checks.check_oid(other.oid, f"spec.otherNames[{number}].oid")
        if not other.utf8_value:
            errors.append(
                required(
                    f"spec.otherNames[{number}].utf8Value", "must be set to a valid non-empty UTF8 string"
                )
            )
    names = (spec.dns_names, spec.uris, spec.email_addresses, spec.ip_addresses, spec.other_names)
    if not (spec.common_name or any(names) or _has_literal_common_name(spec.literal_subject)):
        errors.append(
            FieldError(
                "spec", "FieldValueInvalid", f"Invalid value: at least one of {_IDENTITIES} must be set"
            )
        )
    return errors


def _lifetime(spec: CertificateSpec) -> list[FieldError]:
    errors = checks.check_duration(spec.duration, "spec.duration", minimum=MINIMUM_DURATION)
    if spec.renew_before is not None and spec.renew_before_percentage is not None:
        errors.append(
            forbidden(
                "spec.renewBeforePercentage",
                "renewBefore and renewBeforePercentage are mutually exclusive and cannot both be set",
            )
        )
    early = checks.check_duration(spec.renew_before, "spec.renewBefore", minimum=MINIMUM_RENEW_BEFORE)
    if errors or early:
        return errors + early
    return _renew_before(spec, spec.requested_duration)


def _renew_before(spec: CertificateSpec, lifetime: timedelta) -> list[FieldError]:
    if spec.renew_before is not None and parse_duration(spec.renew_before) >= lifetime:
        detail = (
            f"certificate duration {_duration_of(spec)} must be greater than renewBefore {spec.renew_before}"
        )
        return [invalid("spec.renewBefore", spec.renew_before, detail)]
    percentage, path = spec.renew_before_percentage, "spec.renewBeforePercentage"
    if percentage is None:
        return []
    if not 0 < percentage < 100:
        return [invalid(path, percentage, "must be between 1 and 99")]
    # Percent of the remaining lifetime, not of the elapsed one: cert-manager's webhook checks 100 - p here,
    # but its controller renews at p, and so do we.
    before = lifetime * percentage / 100
    if before < MINIMUM_RENEW_BEFORE:
        detail = (
            f"makes {format_duration(before)} of a duration of {_duration_of(spec)}, but must make at "
            "least 5m"
        )
        return [invalid(path, percentage, detail)]
    return []


def _duration_of(spec: CertificateSpec) -> str:
    return spec.duration or format_duration(DEFAULT_DURATION)


def _renewal(renewal: Renewal | None) -> list[FieldError]:
    if renewal is None:
        return []
    errors = checks.check_one_of(renewal.policy, "spec.renewal.policy", RENEWAL_POLICIES)
    if renewal.is_disabled and renewal.windows:
        errors.append(
            forbidden("spec.renewal.windows", "there is nothing to move while the policy is Disabled")
        )
    for number, window in enumerate(renewal.windows):
        errors += _window(window, f"spec.renewal.windows[{number}]")
    return errors


def _window(window: RenewalWindow, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if problem := check_cron(window.cron):
        errors.append(invalid(f"{path}.cron", window.cron, problem))
    long = checks.check_duration(window.window_duration, f"{path}.windowDuration")
    if not long and parse_duration(window.window_duration) <= timedelta(0):
        long = [invalid(f"{path}.windowDuration", window.window_duration, "must be longer than 0s")]
    errors += long
    if window.timezone is not None and not _is_time_zone(window.timezone):
        detail = "is not a time zone; write its IANA name, e.g. Europe/Berlin"
        errors.append(invalid(f"{path}.timezone", window.timezone, detail))
    return errors


def _is_time_zone(name: str) -> bool:
    # Imported here because few certificates have windows, and startup should be fast.
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return False
    return True


def _usages(usages: tuple[str, ...]) -> list[FieldError]:
    return [
        not_supported(f"spec.usages[{number}]", usage, KEY_USAGES)
        for number, usage in enumerate(usages)
        if usage not in KEY_USAGES
    ]


def _keystores(spec: CertificateSpec) -> list[FieldError]:
    if spec.keystores is None:
        return []
    errors: list[FieldError] = []
    if (jks := spec.keystores.jks) is not None:
        errors += _keystore(jks, "spec.keystores.jks")
    if (pkcs12 := spec.keystores.pkcs12) is not None:
        errors += _keystore(pkcs12, "spec.keystores.pkcs12")
        errors += checks.check_one_of(pkcs12.profile, "spec.keystores.pkcs12.profile", PKCS12_PROFILES)
    return errors


def _keystore(store: JKSKeystore | PKCS12Keystore, path: str) -> list[FieldError]:
    ref = given(store.password_secret_ref)
    if ref is not None and store.password is not None:
        return [forbidden(f"{path}.password", "not with passwordSecretRef; keep one of them")]
    if not store.create:
        return []
    if ref is None and not store.password:
        return [required(f"{path}.passwordSecretRef", "a keystore needs a password that is not empty")]
    return checks.check_secret_key(ref, f"{path}.passwordSecretRef")


def _output_formats(spec: CertificateSpec) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for number, output in enumerate(spec.additional_output_formats):
        path = f"spec.additionalOutputFormats[{number}].type"
        errors += checks.check_one_of(output.type, path, OUTPUT_FORMATS)
        if output.type in seen:
            errors.append(duplicate(path, output.type))
        seen.add(output.type)
    return errors


def _name_constraints(spec: CertificateSpec) -> list[FieldError]:
    constraints, path = spec.name_constraints, "spec.nameConstraints"
    if constraints is None:
        return []
    errors: list[FieldError] = []
    if not spec.is_ca:
        errors.append(forbidden(path, "isCa should be true when nameConstraints is set"))
    parts = {"permitted": constraints.permitted, "excluded": constraints.excluded}
    if all(item is None or item.is_empty for item in parts.values()):
        errors.append(required(path, "either permitted or excluded must be set"))
    for name, item in parts.items():
        if item is not None:
            errors += _constraint(item, f"{path}.{name}")
    return errors


def _constraint(item: NameConstraintItem, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for number, text in enumerate(item.ip_ranges):
        errors += checks.check_cidr(text, f"{path}.ipRanges[{number}]")
    for number, text in enumerate(item.dns_domains):
        errors += checks.check_visible(text, f"{path}.dnsDomains[{number}]", "example.com")
    for number, text in enumerate(item.email_addresses):
        errors += checks.check_visible(text, f"{path}.emailAddresses[{number}]", "example.com")
    for number, text in enumerate(item.uri_domains):
        errors += checks.check_visible(text, f"{path}.uriDomains[{number}]", "example.com")
    return errors


def _revision_limit(spec: CertificateSpec) -> list[FieldError]:
    limit = spec.revision_history_limit
    return (
        [invalid("spec.revisionHistoryLimit", limit, "must not be less than 1")]
        if spec.revisions_kept < 1
        else []
    )

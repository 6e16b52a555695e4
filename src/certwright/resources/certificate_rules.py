"""Validation of a Certificate, by its own content only: names, lifetime, key, and size.

Source: cert-manager `internal/apis/certmanager/validation/certificate.go`; RFC 9881 for ML-DSA. We are
stricter about values that are certainly mistakes, such as an empty name.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    too_many,
)
from certwright.kube.api.naming import check_annotations, check_labels
from certwright.kube.util.durations import format_duration, parse_duration
from certwright.resources import checks
from certwright.resources.certificate import (
    DEFAULT_DURATION,
    ENCRYPTION_USAGES,
    KEY_ALGORITHMS,
    KEY_ENCODINGS,
    KEY_USAGES,
    MINIMUM_DURATION,
    MINIMUM_RENEW_BEFORE,
    ML_DSA_ALIASES,
    ML_DSA_SIZES,
    OUTPUT_FORMATS,
    PKCS12_PROFILES,
    RENEWAL_POLICIES,
    ROTATION_POLICIES,
    SIGNATURE_ALGORITHMS,
    Certificate,
    CertificateSpec,
    NameConstraintItem,
    PrivateKeySpec,
    Renewal,
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

MAX_REQUEST_BYTES: Final = 64 * 1024
"""Of a signing request, DER; `pki.csr.MAX_BYTES`."""
_LEAST_BYTES: Final = 6
"""Of a name in it: tag, length, and four bytes of an IPv4 address."""
_IDENTITIES: Final = (
    "commonName (from the commonName field or from a literalSubject), dnsNames, uris, emailAddresses, "
    "ipAddresses, otherNames"
)


def validate(certificate: Certificate) -> list[FieldError]:
    """All errors in the spec; empty if it is valid.

    Rules that cert-manager has too use its messages, because clients match on them.
    """
    spec = certificate.spec
    if errors := check_size(spec):
        return errors
    return [
        *checks.check_issuer_ref(spec.issuer_ref, "spec.issuerRef"),
        *checks.check_object_name(spec.secret_name, "spec.secretName", "the Secret for key and certificate"),
        *_secret_template(spec.secret_template),
        *_subject(spec),
        *_identities(spec),
        *_lifetime(spec),
        *_renewal(spec.renewal),
        *checks.check_usages(spec.usages, "spec.usages"),
        *_private_key(spec.key),
        *_signature_algorithm(spec),
        *_ml_dsa(spec),
        *_keystores(spec),
        *_output_formats(spec),
        *_name_constraints(spec),
        *_revision_limit(spec),
    ]


def check_size(spec: CertificateSpec) -> list[FieldError]:
    """The error of a spec whose names cannot fit into a signing request; empty if they may.

    A request beyond the limit is neither built nor read (`pki/csr.py`), and every write of such a
    Certificate's status would take a hundred times as long as another's. cert-manager reads no certificate of
    more than 36,500 bytes of PEM (`--max-certificate-size`).
    """
    if len(spec.usages) > 2 * len(KEY_USAGES):
        return [too_many("spec.usages", len(spec.usages), 2 * len(KEY_USAGES))]
    lists = {
        "spec.dnsNames": spec.dns_names,
        "spec.ipAddresses": spec.ip_addresses,
        "spec.uris": spec.uris,
        "spec.emailAddresses": spec.email_addresses,
        "spec.otherNames": tuple(other.utf8_value for other in spec.other_names),
        **dict(_subject_lists(spec)),
        **dict(_constraint_lists(spec)),
    }
    # At least: each text takes its tag and length too, and a DNS name in Unicode is longer when encoded.
    # An address is shorter in a request than in its text.
    sizes = {
        path: len(texts) * _LEAST_BYTES
        if path.endswith((".ipAddresses", ".ipRanges"))
        else sum(max(len(text) + 2, _LEAST_BYTES) for text in texts)
        for path, texts in lists.items()
    }
    if sum(sizes.values()) <= MAX_REQUEST_BYTES:
        return []
    largest = max(sizes, key=sizes.__getitem__)
    detail = (
        f"Too many: {len(lists[largest])}: a signing request may have {MAX_REQUEST_BYTES} bytes, some 3000 "
        "names; distribute them over several Certificates"
    )
    return [FieldError(largest, "FieldValueTooMany", detail)]


def _secret_template(template: SecretTemplate | None) -> Iterator[FieldError]:
    if template is None:
        return
    path = "spec.secretTemplate"
    yield from check_labels(template.labels, f"{path}.labels")
    yield from check_annotations(template.annotations, f"{path}.annotations")
    for key in template.annotations:
        # These state the Secret's content, and only the controllers write them.
        if key.startswith(f"{GROUP}/") and key != ALLOW_DIRECT_INJECTION:
            yield invalid(f"{path}.annotations", key, f"{GROUP}/* annotations are not allowed; remove it")


def _subject(spec: CertificateSpec) -> Iterator[FieldError]:
    if spec.literal_subject:
        yield from _literal_subject(spec)
    if len(spec.common_name.encode()) > MAX_COMMON_NAME_BYTES:
        yield too_long("spec.commonName", MAX_COMMON_NAME_BYTES)
    for path, values in _subject_lists(spec):
        yield from checks.check_no_empty(values, path)


def _subject_lists(spec: CertificateSpec) -> Iterator[tuple[str, tuple[str, ...]]]:
    subject = spec.subject or X509Subject()
    yield "spec.subject.countries", subject.countries
    yield "spec.subject.organizations", subject.organizations
    yield "spec.subject.localities", subject.localities
    yield "spec.subject.provinces", subject.provinces
    yield "spec.subject.organizationalUnits", subject.organizational_units
    yield "spec.subject.streetAddresses", subject.street_addresses
    yield "spec.subject.postalCodes", subject.postal_codes


def _literal_subject(spec: CertificateSpec) -> Iterator[FieldError]:
    path = "spec.literalSubject"
    if spec.subject not in (None, X509Subject()):
        yield forbidden(
            "spec.subject", "When providing a `LiteralSubject` no `Subject` properties may be provided."
        )
    if spec.common_name:
        yield forbidden(
            "spec.commonName", "When providing a `LiteralSubject` no `commonName` may be provided."
        )
    try:
        names = rfc4514.parse(spec.literal_subject)
    except ValueError as error:
        yield invalid(path, spec.literal_subject, str(error))
        return
    for attribute in (attribute for rdn in names for attribute in rdn):
        if not attribute.type[0].isdigit() and attribute.type.upper() not in SUBJECT_TYPES:
            # The first words are cert-manager's.
            detail = f"Literal subject contains unrecognized key with value [{attribute.value}]: "
            detail += f"{attribute.type} is not a known attribute; write its number with dots"
            yield invalid(path, spec.literal_subject, detail)
        if attribute.type.upper() == "CN" and len(attribute.value.encode()) > MAX_COMMON_NAME_BYTES:
            yield too_long(path, MAX_COMMON_NAME_BYTES)
        if attribute.hex_value is not None:
            detail = f"{attribute.type}: values in hexadecimal form (#…) are not supported"
            yield invalid(path, spec.literal_subject, detail)
        elif not attribute.value:
            yield invalid(path, spec.literal_subject, f"{attribute.type} is empty")


def _identities(spec: CertificateSpec) -> Iterator[FieldError]:
    for number, name in enumerate(spec.dns_names):
        path = f"spec.dnsNames[{number}]"
        if wrong := checks.check_visible(name, path, "www.example.com"):
            yield from wrong
        elif name != "." and "" in name.removesuffix(".").split("."):
            # One final dot is a warning: some CAs remove it.
            yield invalid(path, name, "has an empty label; write e.g. www.example.com")
    for number, address in enumerate(spec.ip_addresses):
        yield from checks.check_ip_address(address, f"spec.ipAddresses[{number}]")
    for number, uri in enumerate(spec.uris):
        yield from checks.check_uri(uri, f"spec.uris[{number}]")
    for number, email in enumerate(spec.email_addresses):
        yield from checks.check_email(email, f"spec.emailAddresses[{number}]")
    for number, other in enumerate(spec.other_names):
        yield from checks.check_oid(other.oid, f"spec.otherNames[{number}].oid")
        path, fix = f"spec.otherNames[{number}].utf8Value", "must be set to a valid non-empty UTF8 string"
        yield from checks.check_given(other.utf8_value, path, fix)
    has_common_name = bool(spec.common_name)
    try:
        names = rfc4514.parse(spec.literal_subject)
        has_common_name |= any(attribute.type.upper() == "CN" for rdn in names for attribute in rdn)
    except ValueError:
        has_common_name = True  # The parse error is reported above; one report is enough.
    sans = (spec.dns_names, spec.uris, spec.email_addresses, spec.ip_addresses, spec.other_names)
    if not (has_common_name or any(sans)):
        yield FieldError(
            "spec", "FieldValueInvalid", f"Invalid value: at least one of {_IDENTITIES} must be set"
        )


def _lifetime(spec: CertificateSpec) -> Iterator[FieldError]:
    errors = checks.check_duration(spec.duration, "spec.duration", minimum=MINIMUM_DURATION)
    if spec.renew_before is not None and spec.renew_before_percentage is not None:
        detail = "renewBefore and renewBeforePercentage are mutually exclusive and cannot both be set"
        errors.append(forbidden("spec.renewBeforePercentage", detail))
    errors += checks.check_duration(spec.renew_before, "spec.renewBefore", minimum=MINIMUM_RENEW_BEFORE)
    if errors:
        yield from errors
        return
    lifetime, shown = spec.requested_duration, spec.duration or format_duration(DEFAULT_DURATION)
    if spec.renew_before is not None and parse_duration(spec.renew_before) >= lifetime:
        detail = f"certificate duration {shown} must be greater than renewBefore {spec.renew_before}"
        yield invalid("spec.renewBefore", spec.renew_before, detail)
        return
    percentage, path = spec.renew_before_percentage, "spec.renewBeforePercentage"
    if percentage is None:
        return
    if not 0 < percentage < 100:
        yield invalid(path, percentage, "must be between 1 and 99")
        return
    # Percent of the remaining lifetime, not of the elapsed one: cert-manager's webhook checks 100 - p here,
    # but its controller renews at p, and so do we.
    before = lifetime * percentage / 100
    if before < MINIMUM_RENEW_BEFORE:
        detail = f"makes {format_duration(before)} of a duration of {shown}, but must make at least 5m"
        yield invalid(path, percentage, detail)


def _renewal(renewal: Renewal | None) -> Iterator[FieldError]:
    if renewal is None:
        return
    yield from checks.check_one_of(renewal.policy, "spec.renewal.policy", RENEWAL_POLICIES)
    if renewal.is_disabled and renewal.windows:
        yield forbidden("spec.renewal.windows", "there is nothing to move while the policy is Disabled")
    for number, window in enumerate(renewal.windows):
        path = f"spec.renewal.windows[{number}]"
        if problem := check_cron(window.cron):
            yield invalid(f"{path}.cron", window.cron, problem)
        if wrong := checks.check_duration(window.window_duration, f"{path}.windowDuration"):
            yield from wrong
        elif parse_duration(window.window_duration) <= timedelta(0):
            yield invalid(f"{path}.windowDuration", window.window_duration, "must be longer than 0s")
        if window.timezone is not None and not _is_time_zone(window.timezone):
            detail = "is not a time zone; write its IANA name, e.g. Europe/Berlin"
            yield invalid(f"{path}.timezone", window.timezone, detail)


def _is_time_zone(name: str) -> bool:
    # Imported here because few certificates have windows, and startup should be fast.
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return False
    return True


def _private_key(key: PrivateKeySpec) -> Iterator[FieldError]:
    path = "spec.privateKey"
    yield from checks.check_one_of(key.algorithm, f"{path}.algorithm", KEY_ALGORITHMS)
    yield from checks.check_one_of(key.encoding, f"{path}.encoding", KEY_ENCODINGS)
    yield from checks.check_one_of(key.rotation_policy, f"{path}.rotationPolicy", ROTATION_POLICIES)
    if key.size and key.algorithm_or_default == "RSA" and not 2048 <= key.size <= 8192:
        yield invalid(f"{path}.size", key.size, "must be between 2048 and 8192 for rsa keyAlgorithm")
    if key.size and key.algorithm == "ECDSA" and key.size not in (256, 384, 521):
        yield not_supported(f"{path}.size", key.size, ("256", "384", "521"))
    if key.is_ml_dsa and key.size_or_default not in ML_DSA_SIZES:
        yield not_supported(f"{path}.size", key.size, tuple(map(str, ML_DSA_SIZES)))
    elif key.size and key.size != ML_DSA_ALIASES.get(key.algorithm, key.size):
        detail = f"contradicts privateKey.algorithm {key.algorithm}; leave it out"
        yield invalid(f"{path}.size", key.size, detail)


def _ml_dsa(spec: CertificateSpec) -> Iterator[FieldError]:
    """What an ML-DSA key cannot do."""
    if not spec.key.is_ml_dsa:
        return
    for number, usage in enumerate(spec.usages):
        if usage in ENCRYPTION_USAGES:
            yield invalid(
                f"spec.usages[{number}]", usage, "an ML-DSA key only signs (RFC 9881 section 5); leave it out"
            )
    stores = spec.keystores
    if stores is not None and stores.pkcs12 is not None and stores.pkcs12.create:
        detail = "this version cannot write an ML-DSA key into a PKCS#12 file; use keystores.jks or tls.key"
        yield forbidden("spec.keystores.pkcs12", detail)


def _signature_algorithm(spec: CertificateSpec) -> Iterator[FieldError]:
    requested, path = spec.signature_algorithm, "spec.signatureAlgorithm"
    if wrong := checks.check_one_of(requested, path, tuple(SIGNATURE_ALGORITHMS)):
        yield from wrong
        return
    key = f"MLDSA{spec.key.size_or_default}" if spec.key.is_ml_dsa else spec.key.algorithm_or_default
    if not requested or SIGNATURE_ALGORITHMS[requested] == key:
        return
    fitting = " ".join(name for name, algorithm in SIGNATURE_ALGORITHMS.items() if algorithm == key)
    yield invalid(
        path, requested, f"for key algorithm {key} the allowed signature algorithms are [{fitting}]"
    )


def _keystores(spec: CertificateSpec) -> Iterator[FieldError]:
    if spec.keystores is None:
        return
    for name, store in (("jks", spec.keystores.jks), ("pkcs12", spec.keystores.pkcs12)):
        if store is None:
            continue
        path, ref = f"spec.keystores.{name}", given(store.password_secret_ref)
        if ref is not None and store.password is not None:
            yield forbidden(f"{path}.password", "not with passwordSecretRef; keep one of them")
        elif store.create and ref is None and not store.password:
            detail = "a keystore needs a password that is not empty"
            yield required(f"{path}.passwordSecretRef", detail)
        elif store.create:
            yield from checks.check_secret_key(ref, f"{path}.passwordSecretRef")
    if (pkcs12 := spec.keystores.pkcs12) is not None:
        yield from checks.check_one_of(pkcs12.profile, "spec.keystores.pkcs12.profile", PKCS12_PROFILES)


def _output_formats(spec: CertificateSpec) -> Iterator[FieldError]:
    seen: set[str] = set()
    for number, output in enumerate(spec.additional_output_formats):
        path = f"spec.additionalOutputFormats[{number}].type"
        yield from checks.check_one_of(output.type, path, OUTPUT_FORMATS)
        if output.type in seen:
            yield duplicate(path, output.type)
        seen.add(output.type)


def _name_constraints(spec: CertificateSpec) -> Iterator[FieldError]:
    constraints, path = spec.name_constraints, "spec.nameConstraints"
    if constraints is None:
        return
    if not spec.is_ca:
        yield forbidden(path, "isCa should be true when nameConstraints is set")
    if all(item is None or item.is_empty for item in (constraints.permitted, constraints.excluded)):
        yield required(path, "either permitted or excluded must be set")
    for where, texts in _constraint_lists(spec):
        for number, text in enumerate(texts):
            if where.endswith(".ipRanges"):
                yield from checks.check_cidr(text, f"{where}[{number}]")
            else:
                yield from checks.check_visible(text, f"{where}[{number}]", "example.com")


def _constraint_lists(spec: CertificateSpec) -> Iterator[tuple[str, tuple[str, ...]]]:
    for part in ("permitted", "excluded"):
        path = f"spec.nameConstraints.{part}"
        items = getattr(spec.name_constraints, part, None) or NameConstraintItem()
        yield f"{path}.ipRanges", items.ip_ranges
        yield f"{path}.dnsDomains", items.dns_domains
        yield f"{path}.emailAddresses", items.email_addresses
        yield f"{path}.uriDomains", items.uri_domains


def _revision_limit(spec: CertificateSpec) -> Iterator[FieldError]:
    if spec.revisions_kept >= 1:
        return
    yield invalid("spec.revisionHistoryLimit", spec.revision_history_limit, "must not be less than 1")

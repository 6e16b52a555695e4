"""cert-manager's own rules, on objects as they lie in the API: what would it do with them?

Written from its facts (policy chains, key manager, request manager, ACME set-up), with nothing of our code: a
rule that we have misunderstood must not be judged by that misunderstanding. A verdict is a reason and a word;
none at all means that it would leave the object alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import NameOID

Json = dict[str, Any]
MANAGER = "cert-manager-certificates-issuing"
PREFIX = "cert-manager.io/"
FAO = "controller.cert-manager.io/fao"
_ISSUER_NOTES = ("certificate-name", "issuer-name", "issuer-kind", "issuer-group")
_STORES = ("keystore.jks", "truststore.jks", "keystore.p12", "truststore.p12")
_SUBJECT = {
    "organizations": (NameOID.ORGANIZATION_NAME, "subject-organizations"),
    "organizationalUnits": (NameOID.ORGANIZATIONAL_UNIT_NAME, "subject-organizationalunits"),
    "countries": (NameOID.COUNTRY_NAME, "subject-countries"),
    "localities": (NameOID.LOCALITY_NAME, "subject-localities"),
    "provinces": (NameOID.STATE_OR_PROVINCE_NAME, "subject-provinces"),
    "streetAddresses": (NameOID.STREET_ADDRESS, "subject-streetaddresses"),
    "postalCodes": (NameOID.POSTAL_CODE, "subject-postalcodes"),
}


def _public(key: Any) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    encoded: bytes = key.public_bytes(serialization.Encoding.DER, form)
    return encoded


def _texts(name: x509.Name, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(attribute.value) for attribute in name.get_attributes_for_oid(oid)]


@dataclass
class _Names:
    """The names of a certificate or request."""

    subject: x509.Name
    dns: list[str] = field(default_factory=list)
    ips: list[str] = field(default_factory=list)
    uris: list[str] = field(default_factory=list)
    emails: list[str] = field(default_factory=list)

    @property
    def common_name(self) -> str:
        return next(iter(_texts(self.subject, NameOID.COMMON_NAME)), "")

    @property
    def serial_number(self) -> str:
        return next(iter(_texts(self.subject, NameOID.SERIAL_NUMBER)), "")


def _names(parsed: x509.Certificate | x509.CertificateSigningRequest) -> _Names:
    try:
        alt_names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return _Names(parsed.subject)
    return _Names(
        parsed.subject,
        alt_names.get_values_for_type(x509.DNSName),
        [str(address) for address in alt_names.get_values_for_type(x509.IPAddress)],
        alt_names.get_values_for_type(x509.UniformResourceIdentifier),
        alt_names.get_values_for_type(x509.RFC822Name),
    )


@dataclass
class Case:
    """One Certificate with its Secret and its requests, as JSON."""

    certificate: Json
    secret: Json | None
    requests: list[Json]
    now: datetime

    @property
    def spec(self) -> Json:
        body: Json = self.certificate["spec"]
        return body

    @property
    def status(self) -> Json:
        body: Json = self.certificate.get("status", {})
        return body

    def data(self, entry: str) -> bytes:
        """An entry of the Secret."""
        assert self.secret is not None
        return base64.b64decode(self.secret.get("data", {}).get(entry, ""))

    @property
    def notes(self) -> Json:
        assert self.secret is not None
        notes: Json = self.secret["metadata"].get("annotations", {})
        return notes

    @property
    def leaf(self) -> x509.Certificate:
        """The certificate in the Secret."""
        return x509.load_pem_x509_certificate(self.data("tls.crt"))

    @property
    def key(self) -> PrivateKeyTypes:
        """The key in the Secret."""
        return serialization.load_pem_private_key(self.data("tls.key"), None)

    def of_revision(self, revision: int) -> list[Json]:
        """The requests that the gatherer takes for that revision."""
        text = str(revision)
        return [
            request
            for request in self.requests
            if request["metadata"]["annotations"].get(f"{PREFIX}certificate-revision") == text
        ]

    @property
    def current(self) -> Json | None:
        """The request of the current revision. The gatherer gives an error where there are two."""
        request = self.of_revision(self.status.get("revision", 0))
        assert len(request) <= 1, "more than one request of the current revision"
        assert len(self.of_revision(self.status.get("revision", 0) + 1)) <= 1, "more than one of the next"
        return request[0] if request else None


def trigger(case: Case) -> list[str]:
    """Why a new certificate would be issued; the first reason counts."""
    violations = _shared(case)
    if not violations and case.now >= renewal_time(case):
        violations.append("Renewing")
    return violations


def readiness(case: Case) -> list[str]:
    """Why it would not be called ready."""
    violations = _shared(case)
    if not violations and case.now > case.leaf.not_valid_after_utc:
        violations.append("Expired")
    return violations


def _shared(case: Case) -> list[str]:
    if case.secret is None:
        return ["DoesNotExist"]
    if not case.data("tls.key") or not case.data("tls.crt"):
        return ["MissingData"]
    if _public(case.key.public_key()) != _public(case.leaf.public_key()):
        return ["InvalidKeyPair"]
    violations = _wrong_owner(case) + [f"SecretMismatch: {violation}" for violation in _wrong_key(case)]
    current = case.current
    if current is None:
        return violations + [f"SecretMismatch: {violation}" for violation in _loosely(case)]
    csr = x509.load_pem_x509_csr(base64.b64decode(current["spec"]["request"]))
    if _public(csr.public_key()) != _public(case.key.public_key()):
        violations.append("SecretMismatch: key of the request")
    return violations + [
        f"RequestChanged: {violation}" for violation in request_violations(current, case.spec)
    ]


def _wrong_owner(case: Case) -> list[str]:
    notes, reference = case.notes, case.spec["issuerRef"]
    was = [notes.get(f"{PREFIX}issuer-{part}") for part in ("name", "kind", "group")]
    is_same = (
        was[0] == reference["name"]
        and (was[1] or "Issuer") == (reference.get("kind") or "Issuer")
        and (was[2] or "cert-manager.io") == (reference.get("group") or "cert-manager.io")
    )
    violations = [] if is_same or was == [None, None, None] else ["IncorrectIssuer"]
    name = notes.get(f"{PREFIX}certificate-name", case.certificate["metadata"]["name"])
    return violations + (["IncorrectCertificate"] if name != case.certificate["metadata"]["name"] else [])


def _wrong_key(case: Case) -> list[str]:
    desired = case.spec.get("privateKey", {})
    algorithm, size, key = desired.get("algorithm", "RSA"), desired.get("size", 0), case.key
    if isinstance(key, rsa.RSAPrivateKey):
        actual, bits, default = "RSA", key.key_size, 2048
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        actual, bits, default = "ECDSA", key.key_size, 256
    else:
        actual, bits, default = "Ed25519", size, size
    if actual != algorithm:
        return ["spec.privateKey.algorithm"]
    return ["spec.privateKey.size"] if bits != (size or default) else []


def _unequal(actual: Iterable[str], expected: Iterable[str]) -> bool:
    return sorted(actual) != sorted(expected)


def _address_violations(names: _Names, spec: Json) -> list[str]:
    lists = {"ipAddresses": names.ips, "uris": names.uris, "emailAddresses": names.emails}
    return [f"spec.{entry}" for entry, values in lists.items() if _unequal(values, spec.get(entry, []))]


def request_violations(request: Json, spec: Json) -> list[str]:
    """Where a request is not what the spec asks for."""
    names = _names(x509.load_pem_x509_csr(base64.b64decode(request["spec"]["request"])))
    violations = _address_violations(names, spec)
    if _unequal(names.dns, spec.get("dnsNames", [])):
        violations.append("spec.dnsNames")
    if not spec.get("literalSubject"):
        subject = spec.get("subject", {})
        violations += ["spec.commonName"] if names.common_name != spec.get("commonName", "") else []
        violations += ["spec.subject"] if names.serial_number != subject.get("serialNumber", "") else []
        for entry, (oid, _) in _SUBJECT.items():
            if _unequal(_texts(names.subject, oid), subject.get(entry, [])):
                violations.append(f"spec.subject.{entry}")
    asked = request["spec"]
    violations += ["spec.isCA"] if asked.get("isCA", False) != spec.get("isCA", False) else []
    violations += ["spec.usages"] if _unequal(asked.get("usages", []), spec.get("usages", [])) else []
    both = asked.get("duration") and spec.get("duration")
    violations += ["spec.duration"] if both and _duration(asked["duration"]) != _duration(both) else []
    # To the letter: a default that is written out is another reference.
    return violations + (["spec.issuerRef"] if asked["issuerRef"] != spec["issuerRef"] else [])


def _loosely(case: Case) -> list[str]:
    names, spec = _names(case.leaf), case.spec
    actual = {*names.dns, names.common_name} - {""}
    expected = {*spec.get("dnsNames", []), spec.get("commonName", "")} - {""}
    return _address_violations(names, spec) + (["spec.dnsNames"] if actual != expected else [])


def renewal_time(case: Case) -> datetime:
    """To the second, downwards."""
    leaf, spec = case.leaf, case.spec
    begin, end = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    before = (end - begin) / 3
    if (text := spec.get("renewBefore")) is not None and _duration(text) < end - begin:
        before = _duration(text)
    elif percentage := spec.get("renewBeforePercentage"):
        before = (end - begin) * percentage / 100
    return (end - before).replace(microsecond=0)


def _duration(text: str) -> timedelta:
    hours, _, rest = text.partition("h")
    assert rest in ("", "0m0s"), "these tests write whole hours"
    return timedelta(hours=int(hours))


def after_issuance(case: Case, *, owner_references: bool = False) -> list[str]:
    """What would be mended in the Secret."""
    return [
        *_metadata_mismatch(case),
        *_template_mismatch(case),
        *_format_mismatch(case),
        *_keystore_mismatch(case),
        *_owner_mismatch(case, is_wanted=owner_references),
    ]


def _managed(case: Case, *path: str) -> set[str]:
    """The names below a path that the issuing controller manages."""
    assert case.secret is not None
    fields: set[str] = set()
    for entry in case.secret["metadata"].get("managedFields", []):
        tree = entry["fieldsV1"] if entry["manager"] == MANAGER else {}
        for step in path:
            tree = tree.get(f"f:{step}", {})
        fields |= {line[2:] for line in tree if line != "."}
    return fields


def _is_own(key: str) -> bool:
    return key.startswith((PREFIX, "controller.cert-manager.io/"))


def _expected_notes(case: Case) -> dict[str, str]:
    names = _names(case.leaf)
    subject = {note: ",".join(_texts(names.subject, oid)) for oid, note in _SUBJECT.values()}
    optional = {**subject, "subject-serialnumber": names.serial_number, "email-sans": ",".join(names.emails)}
    expected = {
        "common-name": names.common_name,
        "alt-names": ",".join(names.dns),
        "ip-sans": ",".join(names.ips),
        "uri-sans": ",".join(names.uris),
        **{key: value for key, value in optional.items() if value},
    }
    return {f"{PREFIX}{key}": value for key, value in expected.items()}


def _metadata_mismatch(case: Case) -> list[str]:
    assert case.secret is not None
    expected = _expected_notes(case)
    violations = [] if case.secret["metadata"].get("labels", {}).get(FAO) == "true" else ["label"]
    if {key for key in _managed(case, "metadata", "labels") if _is_own(key)} != {FAO}:
        violations.append("managed labels")
    managed = {key for key in _managed(case, "metadata", "annotations") if _is_own(key)}
    if managed - {f"{PREFIX}{note}" for note in _ISSUER_NOTES} != set(expected):
        violations.append("managed annotations")
    return violations + [key for key, value in expected.items() if case.notes.get(key) != value]


def _template_mismatch(case: Case) -> list[str]:
    assert case.secret is not None
    template, violations = case.spec.get("secretTemplate", {}), []
    for section in ("labels", "annotations"):
        expected, actual = template.get(section, {}), case.secret["metadata"].get(section, {})
        if any(actual.get(key) != value for key, value in expected.items()):
            violations.append(f"template's {section}")
        if {key for key in _managed(case, "metadata", section) if not _is_own(key)} != set(expected):
            violations.append(f"managed {section} of the template")
    return violations


def _format_mismatch(case: Case) -> list[str]:
    expected = {output_format["type"] for output_format in case.spec.get("additionalOutputFormats", [])}
    managed = _managed(case, "data")
    violations = []
    if ("CombinedPEM" in expected) != ("tls-combined.pem" in managed):
        violations.append("managed tls-combined.pem")
    if ("DER" in expected) != ("key.der" in managed):
        violations.append("managed key.der")
    combined = case.data("tls.key") + b"\n" + case.data("tls.crt")
    if "CombinedPEM" in expected and case.data("tls-combined.pem") != combined:
        violations.append("tls-combined.pem")
    block = b"".join(line for line in case.data("tls.key").splitlines() if not line.startswith(b"-----"))
    if "DER" in expected and case.data("key.der") != base64.b64decode(block):
        violations.append("key.der")
    return violations


def _keystore_mismatch(case: Case) -> list[str]:
    asked, has_ca = case.spec.get("keystores", {}), bool(case.data("ca.crt"))
    expected = set()
    for kind, ending in (("jks", "jks"), ("pkcs12", "p12")):
        if asked.get(kind, {}).get("create"):
            expected |= {f"keystore.{ending}"} | ({f"truststore.{ending}"} if has_ca else set())
    return [entry for entry in _STORES if bool(case.data(entry)) != (entry in expected)]


def _owner_mismatch(case: Case, *, is_wanted: bool) -> list[str]:
    assert case.secret is not None
    uid = case.certificate["metadata"]["uid"]
    key = json.dumps({"uid": uid}, separators=(",", ":"))
    # `k:{…}` in place of `f:…`.
    is_managed = key in _managed(case, "metadata", "ownerReferences")
    owners = case.secret["metadata"].get("ownerReferences", [])
    references = [reference for reference in owners if reference["uid"] == uid]
    if is_managed != is_wanted:
        return ["managed owner reference"]
    is_good = not is_wanted or (references and references[0].get("controller") is True)
    return [] if is_good else ["owner reference"]


def goes_on_with(case: Case, next_keys: list[Json]) -> list[str]:
    """Why the key manager and the request manager would throw away what has been begun."""
    name = case.status.get("nextPrivateKeySecretName")
    names = [secret["metadata"]["name"] for secret in next_keys]
    violations = [] if names == [name] else ["next-key Secrets"]
    for next_key in next_keys:
        meta = next_key["metadata"]
        if meta.get("labels", {}).get(f"{PREFIX}next-private-key") != "true":
            violations.append("label of the next key")
        if meta["ownerReferences"][0]["uid"] != case.certificate["metadata"]["uid"]:
            violations.append("owner of the next key")
        key = serialization.load_pem_private_key(base64.b64decode(next_key["data"]["tls.key"]), None)
        for request in case.of_revision(case.status.get("revision", 0) + 1):
            csr = x509.load_pem_x509_csr(base64.b64decode(request["spec"]["request"]))
            if _public(csr.public_key()) != _public(key.public_key()):
                violations.append("key of the request")
            if request["metadata"]["annotations"].get(f"{PREFIX}private-key-secret-name") != name:
                violations.append("name of the key's Secret")
            violations += request_violations(request, case.spec)
    return violations


def order_name(request: str, spec: Json) -> str:
    """How cert-manager looks for the Order of a request: FNV-1 over Go's JSON of the spec without its CSR."""
    order = ("request", "issuerRef", "commonName", "dnsNames", "ipAddresses", "duration", "profile")
    reference = {key: spec["issuerRef"][key] for key in ("name", "kind", "group") if key in spec["issuerRef"]}
    plain = {**spec, "request": None, "issuerRef": reference}
    text = json.dumps({key: plain[key] for key in order if key in plain}, separators=(",", ":"))
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value * 0x01000193) % 2**32 ^ byte
    return f"{request[:52]}-{value}"


def account_needs_the_server(issuer: Json, account_key: bytes) -> list[str]:
    """Why the ACME account would be registered or looked up again."""
    spec, status = issuer["spec"]["acme"], issuer["status"].get("acme", {})
    ready = next(condition for condition in issuer["status"]["conditions"] if condition["type"] == "Ready")
    form = serialization.PrivateFormat.TraditionalOpenSSL
    key = serialization.load_pem_private_key(account_key, None)
    assert isinstance(key, rsa.RSAPrivateKey), "cert-manager takes RSA keys only"
    der = key.private_bytes(serialization.Encoding.DER, form, serialization.NoEncryption())
    violations = []
    if ready["status"] != "True" or ready.get("observedGeneration") != issuer["metadata"]["generation"]:
        violations.append("not ready at this generation")
    if status.get("uri", "").split("/")[2:3] != spec["server"].split("/")[2:3]:
        violations.append("another server")
    if status.get("lastRegisteredEmail", "") != spec.get("email", ""):
        violations.append("another address")
    if status.get("lastPrivateKeyHash") != base64.b64encode(hashlib.sha256(der).digest()).decode():
        violations.append("another key")
    return violations


def parse_time(text: str) -> datetime:
    """A time as Kubernetes writes it."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)

"""A spec in the words of X.509: nothing is forgotten, and what was made from a spec matches it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from certwright import admission
from certwright.controllers.certificates import desired
from certwright.controllers.certificates.parsed import Facts, KeyFacts
from certwright.issuers.csr_plan import csr_plan
from certwright.pki import keys, match, mldsa, usages
from certwright.pki.csr import CsrPlan, build_csr, read_csr
from certwright.pki.errors import PkiError
from certwright.resources import certificate as api
from certwright.resources.certificate import CertificateSpec, JKSKeystore, Keystores, PrivateKeySpec
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequestSpec
from controllers.scene import make_certificate

ECDSA_KEY = keys.generate(keys.KeyPlan(keys.KeyAlgorithm.ECDSA))

# Where each field of a spec goes. A new field must be put into one of these.
IN_THE_CSR = {
    "subject",
    "literal_subject",
    "common_name",
    "dns_names",
    "ip_addresses",
    "uris",
    "other_names",
    "email_addresses",
    "is_ca",
    "usages",
    "signature_algorithm",
    "encode_usages_in_request",
    "name_constraints",
}
IN_THE_REQUEST = {"duration", "issuer_ref"}
IN_THE_KEY = {"private_key"}
IN_THE_SECRET = {"secret_name", "secret_template", "keystores", "additional_output_formats"}
ABOUT_TIME_AND_HISTORY = {"renew_before", "renew_before_percentage", "renewal", "revision_history_limit"}


def test_every_field_of_a_spec_has_its_place() -> None:
    placed = IN_THE_CSR | IN_THE_REQUEST | IN_THE_KEY | IN_THE_SECRET | ABOUT_TIME_AND_HISTORY
    assert {field.name for field in msgspec.structs.fields(CertificateSpec)} == placed


def test_every_field_of_a_csr_plan_comes_from_the_spec() -> None:
    renamed = {"encode_usages_in_request": "encode_usages"}
    assert {renamed.get(name, name) for name in IN_THE_CSR} == set(CsrPlan.__struct_fields__)


@pytest.mark.parametrize("algorithm", api.KEY_ALGORITHMS)
def test_every_key_algorithm_has_a_plan(algorithm: str) -> None:
    spec = make_certificate("web", "ca", private_key=PrivateKeySpec(algorithm=algorithm)).spec
    plan = desired.key_plan(spec.key)
    if algorithm in api.ML_DSA_ALIASES:
        assert str(plan) == f"ML-DSA-{algorithm.removeprefix('MLDSA')}"
    else:
        assert plan.algorithm == algorithm


def test_what_both_sides_know_of_ml_dsa_is_the_same() -> None:
    assert set(api.ML_DSA_SIZES) == set(mldsa.PARAMETER_SETS)
    assert {name for name in api.KEY_USAGES if not _may_sign_with_ml_dsa(name)} == set(api.ENCRYPTION_USAGES)


def _may_sign_with_ml_dsa(usage: str) -> bool:
    try:
        usages.complete((usage,), is_ca=False, only_signs=True)
    except PkiError:
        return False
    return True


def test_every_usage_is_known_to_both_sides() -> None:
    assert set(api.KEY_USAGES) == set(usages.USAGES)


def test_every_signature_algorithm_goes_with_its_key() -> None:
    for name, algorithm in api.SIGNATURE_ALGORITHMS.items():
        spec = make_certificate("web", "ca", private_key=PrivateKeySpec(algorithm=algorithm)).spec
        keys.request_hash(keys.generate(desired.key_plan(spec.key)), name)


@pytest.mark.parametrize(
    ("have", "want", "differing"),
    [
        (("ECDSA", 256), ("ECDSA", 0), ()),
        (("ECDSA", 256), ("ECDSA", 384), ("spec.privateKey.size",)),
        (("ECDSA", 256), ("Ed25519", 0), ("spec.privateKey.algorithm",)),
        (("Ed25519", 0), ("Ed25519", 999), ()),
        (("ML-DSA", 65), ("MLDSA65", 0), ()),
        (("ML-DSA", 65), ("ML-DSA", 87), ("spec.privateKey.size",)),
        (("ECDSA", 256), ("ML-DSA", 44), ("spec.privateKey.algorithm",)),
    ],
)
def test_a_key_is_compared_with_the_spec(
    have: tuple[str, int], want: tuple[str, int], differing: tuple[str, ...]
) -> None:
    key = KeyFacts.of(keys.generate(keys.KeyPlan.of(*have)))
    spec = make_certificate("web", "ca", private_key=PrivateKeySpec(algorithm=want[0], size=want[1])).spec
    assert desired.key_differences(key, spec) == differing


SPECS: dict[str, dict[str, Any]] = {
    "every kind of name": {
        "common_name": "web",
        "dns_names": ("b.example.com", "a.example.com", "*.example.com", "straße.example"),
        "ip_addresses": ("10.0.0.1", "2001:DB8::1", "::ffff:10.0.0.2"),
        "uris": ("spiffe://example.com/web",),
        "email_addresses": ("a@example.com",),
        "other_names": (api.OtherName(oid="1.3.6.1.4.1.311.20.2.3", utf8_value="user@example.com"),),
    },
    "a whole subject": {
        "subject": api.X509Subject(
            organizations=("Example, Inc.", "Other"),
            countries=("DE",),
            organizational_units=("it",),
            localities=("Köln",),
            provinces=("NRW",),
            street_addresses=("Weg 1",),
            postal_codes=("50667",),
            serial_number="42",
        )
    },
    "a literal subject": {"literal_subject": "CN=web,OU=it,DC=example,DC=com", "dns_names": ()},
    "a CA with constraints": {
        "is_ca": True,
        "usages": ("cert sign", "crl sign"),
        "name_constraints": api.NameConstraints(
            critical=True,
            permitted=api.NameConstraintItem(dns_domains=("example.com",), ip_ranges=("10.0.0.0/8",)),
        ),
    },
    "two names for one usage": {"usages": ("signing", "s/mime", "server auth")},
    "usages left out of the request": {"encode_usages_in_request": False, "usages": ("any",)},
    "doubled names": {"dns_names": ("a.example.com", "a.example.com")},
}


@pytest.mark.parametrize("fields", SPECS.values(), ids=SPECS.keys())
def test_a_request_made_from_a_spec_matches_it(fields: dict[str, Any]) -> None:
    spec = make_certificate("web", "ca", **fields).spec
    csr = build_csr(csr_plan(spec), ECDSA_KEY)
    request = CertificateRequestSpec(
        issuer_ref=spec.issuer_ref, request=csr, is_ca=spec.is_ca, usages=spec.usages, duration=spec.duration
    )
    assert desired.request_differences(request, read_csr(csr), spec) == ()


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "names": ({"dns_names": ("other.example.com",)}, "spec.dnsNames"),
    "addresses": ({"ip_addresses": ("10.0.0.1",)}, "spec.ipAddresses"),
    "common name": ({"common_name": "other"}, "spec.commonName"),
    "subject": ({"subject": api.X509Subject(organizations=("x",))}, "spec.subject.organizations"),
    "usages": ({"usages": ("client auth",)}, "spec.usages"),
    "lifetime": ({"duration": "1h"}, "spec.duration"),
    "CA or not": ({"is_ca": True}, "spec.isCA"),
    "the same subject, written literally": ({"literal_subject": "CN=web"}, "spec.literalSubject"),
    "URIs": ({"uris": ("spiffe://a/b",)}, "spec.uris"),
    "mailboxes": ({"email_addresses": ("a@example.com",)}, "spec.emailAddresses"),
    "names of other kinds": (
        {"other_names": (api.OtherName(oid="1.3.6.1.4.1.311.20.2.3", utf8_value="u"),)},
        "spec.otherNames",
    ),
    "name constraints": (
        {
            "is_ca": True,
            "name_constraints": api.NameConstraints(
                permitted=api.NameConstraintItem(dns_domains=("example.com",))
            ),
        },
        "spec.nameConstraints",
    ),
    "no usages in the request": ({"encode_usages_in_request": False}, "spec.encodeUsagesInRequest"),
    "the algorithm of the signature": (
        {"signature_algorithm": "ECDSAWithSHA512"},
        "spec.signatureAlgorithm",
    ),
    "another issuer": ({"issuer_ref": IssuerReference(name="other")}, "spec.issuerRef"),
    "another kind of issuer": (
        {"issuer_ref": IssuerReference(name="ca", kind="ClusterIssuer")},
        "spec.issuerRef",
    ),
    "another group of issuers": (
        {"issuer_ref": IssuerReference(name="ca", group="example.com")},
        "spec.issuerRef",
    ),
}

OLD = make_certificate("web", "ca").spec
REQUEST = CertificateRequestSpec(issuer_ref=OLD.issuer_ref, request=build_csr(csr_plan(OLD), ECDSA_KEY))
SAME: dict[str, dict[str, Any]] = {
    "usages in another order": {"usages": ("key encipherment", "digital signature")},
    "an older name of a usage": {"usages": ("signing", "key encipherment")},
    "the default lifetime, written out": {"duration": "2160h"},
    "the defaults of an issuer, written out": {
        "issuer_ref": IssuerReference(name="ca", kind="Issuer", group="cert-manager.io")
    },
    "usages in the request, written out": {"encode_usages_in_request": True},
    "the algorithm that is the default": {"signature_algorithm": "ECDSAWithSHA256"},
    "another Secret": {"secret_name": "other"},
    "a template": {"secret_template": api.SecretTemplate(labels={"a": "b"})},
    "keystores": {"keystores": Keystores(jks=JKSKeystore(create=True, password="x"))},
    "further output formats": {"additional_output_formats": (api.AdditionalOutputFormat(type="DER"),)},
    "another form of the key": {"private_key": PrivateKeySpec(algorithm="ECDSA", encoding="PKCS8")},
    "how the key is rotated": {"private_key": PrivateKeySpec(algorithm="ECDSA", rotation_policy="Never")},
    "when it is renewed": {"renew_before": "24h", "renewal": api.Renewal(policy="Disabled")},
    "another percentage": {"renew_before_percentage": 10},
    "a longer history": {"revision_history_limit": 5},
}


@pytest.mark.parametrize("fields", SAME.values(), ids=SAME.keys())
def test_what_is_not_in_a_certificate_or_means_the_same_issues_nothing(fields: dict[str, Any]) -> None:
    changed = make_certificate("web", "ca", **fields).spec
    assert desired.request_differences(REQUEST, read_csr(REQUEST.request), changed) == ()
    assert desired.key_differences(KeyFacts.of(ECDSA_KEY), changed) == ()


def test_every_field_is_among_those_that_were_tried() -> None:
    tried = {field for fields, _ in CHANGES.values() for field in fields}
    tried |= {field for fields in SAME.values() for field in fields}
    assert {field.name for field in msgspec.structs.fields(CertificateSpec)} <= tried | {"secret_name"}


@pytest.mark.parametrize(("fields", "named"), CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_field_is_named(fields: dict[str, Any], named: str) -> None:
    changed = make_certificate("web", "ca", **fields).spec
    assert named in desired.request_differences(REQUEST, read_csr(REQUEST.request), changed)


def test_a_key_that_was_written_is_not_read_again() -> None:
    facts = Facts()
    key = KeyFacts.of(ECDSA_KEY)
    assert facts.key(facts.encode(key, "PKCS1")) is key
    assert isinstance(facts.key(b"rubbish"), str)


def test_no_private_key_shows_in_what_is_printed() -> None:
    assert "PrivateKey" not in repr(KeyFacts.of(ECDSA_KEY))


def constrained(**permitted: Any) -> dict[str, Any]:
    """The spec of a CA that permits only these names."""
    return {"isCA": True, "commonName": "x", "nameConstraints": {"permitted": permitted}}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"emailAddresses": ["a@b.example", "me@bücher.example"]}, "spec.emailAddresses[1]"),
        ({"dnsNames": ["ü" * 60 + ".example"]}, "spec.dnsNames[0]"),
        ({"dnsNames": ["a.example"], "usages": ["encipher only"]}, "spec.usages"),
        (
            {"dnsNames": ["a.example"], "usages": ["encipher only"], "encodeUsagesInRequest": False},
            "spec.usages",
        ),
        ({"dnsNames": ["a。.example"]}, "spec.dnsNames[0]"),
        ({"commonName": "a\0.evil.example"}, "spec.commonName"),
        ({"literalSubject": "CN=a,O=b\0"}, "spec.literalSubject"),
        ({"commonName": "a", "subject": {"organizations": ["b\0"]}}, "spec.subject"),
        (constrained(dnsDomains=["*.example.com"]), "spec.nameConstraints.permitted.dnsDomains[0]"),
        (constrained(uriDomains=["bücher.example"]), "spec.nameConstraints.permitted.uriDomains[0]"),
        (constrained(emailAddresses=["bücher.example"]), "spec.nameConstraints.permitted.emailAddresses[0]"),
    ],
)
def test_what_no_signing_request_can_have_is_refused_at_admission(spec: dict[str, Any], field: str) -> None:
    certificate = {"spec": {"secretName": "x", "issuerRef": {"name": "ca"}, **spec}}
    (error,) = admission.check_certificate(certificate, None)
    assert error.field == field


@pytest.mark.parametrize(
    "spec",
    [
        constrained(ipRanges=["2001:DB8::/32", "fd00:0:0:0:0:0:0:0/8"]),
        constrained(ipRanges=["10.0.0.1/8", "fd00::1/8"]),
        constrained(dnsDomains=["bücher.example", "EXAMPLE.com"]),
        {"dnsNames": ["Bücher.example", "A.example."], "ipAddresses": ["2001:DB8::1", "::ffff:1.2.3.4"]},
        {"commonName": "x", "subject": {"organizations": ["b", "a", "a"], "countries": ["DE"]}},
        {"literalSubject": "CN=x,DC=b,DC=a,OU=ü+O=y"},
    ],
)
def test_what_admission_accepts_is_read_back_from_the_signing_request(spec: dict[str, Any]) -> None:
    content = {"secretName": "x", "issuerRef": {"name": "ca"}, **spec}
    assert admission.check_certificate({"spec": content}, None) == []
    plan = csr_plan(msgspec.convert(content, CertificateSpec))
    assert match.request_differences(read_csr(build_csr(plan, ECDSA_KEY)), plan) == ()


def test_a_spec_whose_names_did_not_change_is_not_encoded() -> None:
    spec = {"secretName": "x", "issuerRef": {"name": "ca"}, "dnsNames": ["ü" * 60 + ".example"]}
    assert admission.check_certificate({"spec": {**spec, "secretName": "y"}}, {"spec": spec}) == []

"""The rules of each kind, through the one entry that the API server uses."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from certwright.kit.cron import check_cron
from certwright.kube.api.codec import from_dict
from certwright.kube.api.errors import Invalid
from certwright.pki import csr
from certwright.pki import names as pki_names
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from certwright.resources import certificate_rules
from certwright.resources.certificate_rules import SUBJECT_TYPES
from certwright.resources.certificate_warnings import warnings
from certwright.resources.table import CERTIFICATES
from certwright.resources.validation import validate
from controllers.scene import make_certificate
from support.world import make_world

GROUP, ACME = "cert-manager.io", "acme.cert-manager.io"
PEM = (
    b"-----BEGIN CERTIFICATE-----\n"
    + base64.b64encode(b"\x30\x82\x01\x00" + b"\0" * 256)
    + b"\n-----END CERTIFICATE-----\n"
)
KEY = {"name": "n", "key": "k"}
VAULT = {"server": "https://v", "path": "pki/sign/x", "auth": {"tokenSecretRef": {"name": "t"}}}
BUNDLE = base64.b64encode(PEM).decode()
NAMES = [f"a{number}.example.com" for number in range(100_000)]
TOO_MANY = "Too many: 100000: a signing request may have 65536 bytes, some 3000 names; distribute them over"


def _certificate(**spec: Any) -> dict[str, Any]:
    base = {"secretName": "web-tls", "issuerRef": {"name": "ca"}, "dnsNames": ["web.example.com"]}
    merged = {name: value for name, value in (base | spec).items() if value is not None}
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": merged}


def _errors(
    kind: str, new: dict[str, Any], old: dict[str, Any] | None = None, group: str = GROUP
) -> list[str]:
    return [str(error) for error in validate(kind, group, new, old)]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"dnsNames": ["*.example.com", "_dmarc.example.com", "straße.example"]},
        {"dnsNames": None, "commonName": "only a name"},
        {"literalSubject": "O=x", "subject": {}},
        {"dnsNames": None, "literalSubject": "CN=a\\,b,OU=x+O=y,DC=example,UID=u,2.5.4.97=z"},
        {"dnsNames": None, "uris": ["spiffe://example.org/web"]},
        {
            "dnsNames": None,
            "otherNames": [{"oid": "1.3.6.1.4.1.311.20.2.3", "utf8Value": "user@example.com"}],
        },
        {
            "ipAddresses": ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"],
            "emailAddresses": ["a.b+c@example.com"],
        },
        {"duration": "1h", "renewBefore": "5m"},
        {"duration": "1h", "renewBeforePercentage": 99},
        {"renewBeforePercentage": 1},
        {"privateKey": {"algorithm": "RSA", "size": 8192, "encoding": "PKCS8", "rotationPolicy": "Never"}},
        {"privateKey": {"algorithm": "Ed25519", "size": 17}, "signatureAlgorithm": "PureEd25519"},
        {"privateKey": {"algorithm": "ECDSA", "size": 521}, "signatureAlgorithm": "ECDSAWithSHA256"},
        {
            "privateKey": {"algorithm": "ML-DSA"},
            "signatureAlgorithm": "PureMLDSA65",
            "usages": ["server auth"],
        },
        {"privateKey": {"algorithm": "ML-DSA", "size": 87}, "signatureAlgorithm": "PureMLDSA87"},
        {"privateKey": {"algorithm": "MLDSA44", "size": 44, "encoding": "PKCS8"}},
        {"usages": ["s/mime", "any", "netscape sgc"], "isCA": True, "revisionHistoryLimit": 1},
        {"isCA": True, "nameConstraints": {"permitted": {"ipRanges": ["10.0.0.0/8", "2001:db8::/32"]}}},
        {"keystores": {"jks": {"create": True, "password": "x"}, "pkcs12": {"create": False}}},
        {"keystores": {"pkcs12": {"create": True, "passwordSecretRef": {"name": "a", "key": "b"}}}},
        {"keystores": {"jks": {"create": True, "password": "x", "passwordSecretRef": {"name": ""}}}},
        {"issuerRef": {"name": "x", "kind": "AWSPCAIssuer", "group": "awspca.cert-manager.io"}},
        {"secretTemplate": {"annotations": {"cert-manager.io/allow-direct-injection": "true"}}},
        {
            "renewal": {
                "windows": [{"cron": "0 2 * * SAT,0", "windowDuration": "4h", "timezone": "Europe/Berlin"}]
            }
        },
        {"subject": {"countries": ["DE"], "organizations": ["Ä & Co"]}},
        {"subject": {"countries": ["Spain", "España", "D"], "organizations": ["x" * 65]}},
    ],
)
def test_good_certificates_are_accepted(spec: dict[str, Any]) -> None:
    assert _errors("Certificate", _certificate(**spec)) == []


IDENTITIES = (
    "commonName (from the commonName field or from a literalSubject), dnsNames, uris, emailAddresses, "
    "ipAddresses, otherNames"
)


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"issuerRef": {"name": ""}}, "spec.issuerRef.name", "Required value"),
        ({"issuerRef": {"name": "x" * 254}}, "spec.issuerRef.name", "Too long"),
        ({"issuerRef": {"name": "x", "group": "x" * 254}}, "spec.issuerRef.group", "Too long"),
        (
            {"privateKey": {"algorithm": "ML-DSA", "size": 256}},
            "spec.privateKey.size",
            'Unsupported value: 256: supported values: "44", "65", "87"',
        ),
        (
            {"privateKey": {"algorithm": "MLDSA44", "size": 65}},
            "spec.privateKey.size",
            "65: contradicts privateKey.algorithm MLDSA44; leave it out",
        ),
        (
            {"privateKey": {"algorithm": "ML-DSA"}, "signatureAlgorithm": "PureMLDSA44"},
            "spec.signatureAlgorithm",
            "for key algorithm MLDSA65 the allowed signature algorithms are [PureMLDSA65]",
        ),
        (
            {"privateKey": {"algorithm": "ML-DSA"}, "usages": ["client auth", "key agreement"]},
            "spec.usages[1]",
            '"key agreement": an ML-DSA key only signs (RFC 9881 section 5); leave it out',
        ),
        (
            {
                "privateKey": {"algorithm": "ML-DSA"},
                "keystores": {"pkcs12": {"create": True, "password": "x"}},
            },
            "spec.keystores.pkcs12",
            "Forbidden: this version cannot write an ML-DSA key into a PKCS#12 file; use keystores.jks",
        ),
        (
            {"issuerRef": {"name": "x", "kind": "Foo"}},
            "spec.issuerRef.kind",
            '"Foo": must be one of Issuer or Cl',
        ),
        ({"secretName": ""}, "spec.secretName", "Required value: must be specified; name the Secret"),
        ({"secretName": "Web_TLS"}, "spec.secretName", '"Web_TLS": a lowercase RFC 1123 subdomain'),
        ({"dnsNames": None}, "spec", f"at least one of {IDENTITIES} must be set"),
        ({"dnsNames": None, "literalSubject": "O=x"}, "spec", "at least one of commonName"),
        ({"dnsNames": ["a..example.org"]}, "spec.dnsNames[0]", "has an empty label"),
        ({"dnsNames": [""]}, "spec.dnsNames[0]", "must not contain spaces"),
        ({"dnsNames": ["a", "b c"]}, "spec.dnsNames[1]", '"b c": must not contain spaces'),
        ({"commonName": "ä" * 33}, "spec.commonName", "Too long: may not be more than 64 bytes"),
        ({"literalSubject": "CN=x,"}, "spec.literalSubject", "expected an attribute such as CN=name"),
        (
            {"literalSubject": "CN=x,FOO=y"},
            "spec.literalSubject",
            "Literal subject contains unrecognized key with value [y]: FOO is not a known attribute",
        ),
        (
            {"literalSubject": f"cn={'ä' * 33}"},
            "spec.literalSubject",
            "Too long: may not be more than 64 bytes",
        ),
        ({"literalSubject": "CN=#0c01"}, "spec.literalSubject", "hexadecimal form"),
        ({"literalSubject": "CN=x,O="}, "spec.literalSubject", "O is empty"),
        (
            {"literalSubject": "CN=x", "commonName": "x"},
            "spec.commonName",
            "Forbidden: When providing a `LiteralSubject` no `",
        ),
        (
            {"literalSubject": "CN=x", "subject": {"serialNumber": "1"}},
            "spec.subject",
            "Forbidden: When providing a `LiteralSubject` no `",
        ),
        ({"subject": {"countries": [""]}}, "spec.subject.countries[0]", "must not be empty"),
        ({"subject": {"organizations": [""]}}, "spec.subject.organizations[0]", "must not be empty"),
        ({"ipAddresses": ["1.2.3"]}, "spec.ipAddresses[0]", '"1.2.3": invalid IP address; write'),
        ({"ipAddresses": ["fe80::1%eth0"]}, "spec.ipAddresses[0]", "must not have a zone"),
        ({"emailAddresses": ["A <a@b.c>"]}, "spec.emailAddresses[0]", "invalid email address: write only"),
        ({"uris": ["https://ä.example"]}, "spec.uris[0]", "must be ASCII"),
        ({"otherNames": [{"oid": "1.2"}]}, "spec.otherNames[0].utf8Value", "Required value"),
        (
            {"otherNames": [{"oid": "1.40", "utf8Value": "x"}]},
            "spec.otherNames[0].oid",
            "invalid oid syntax; write",
        ),
        (
            {"otherNames": [{"oid": "1.2.03", "utf8Value": "x"}]},
            "spec.otherNames[0].oid",
            "invalid oid syntax; write",
        ),
        ({"otherNames": [{"utf8Value": "x"}]}, "spec.otherNames[0].oid", "Required value"),
        ({"duration": "90d"}, "spec.duration", "'90d' is not a duration; write e.g."),
        ({"duration": "59m"}, "spec.duration", '"59m": must be at least 1h'),
        ({"renewBefore": "4m59s"}, "spec.renewBefore", "must be at least 5m"),
        ({"renewBefore": "2160h"}, "spec.renewBefore", "2160h0m0s must be greater than renewBefore 2160h"),
        (
            {"duration": "2h", "renewBefore": "3h"},
            "spec.renewBefore",
            "2h must be greater than renewBefore 3h",
        ),
        (
            {"renewBefore": "1h", "renewBeforePercentage": 5},
            "spec.renewBeforePercentage",
            "Forbidden: renewBefore and renewBeforePercentage are mutually",
        ),
        ({"renewBeforePercentage": 0}, "spec.renewBeforePercentage", "0: must be between 1 and 99"),
        ({"renewBeforePercentage": 100}, "spec.renewBeforePercentage", "100: must be between 1 and 99"),
        # cert-manager's webhook has it the wrong way round: it refuses 99 here, and takes 1.
        (
            {"duration": "1h", "renewBeforePercentage": 1},
            "spec.renewBeforePercentage",
            "makes 36s of a duration",
        ),
        (
            {"renewal": {"policy": "Never"}},
            "spec.renewal.policy",
            'supported values: "RenewBefore", "Disabled"',
        ),
        (
            {"renewal": {"policy": "Disabled", "windows": [{"cron": "0 2 * * *", "windowDuration": "1h"}]}},
            "spec.renewal.windows",
            "Forbidden",
        ),
        (
            {"renewal": {"windows": [{"cron": "0 2 * *", "windowDuration": "1h"}]}},
            "spec.renewal.windows[0].cron",
            "must have five fields, not 4",
        ),
        (
            {"renewal": {"windows": [{"cron": "0 2 * * *", "windowDuration": "0h"}]}},
            "spec.renewal.windows[0].windowDuration",
            "longer than 0s",
        ),
        (
            {"renewal": {"windows": [{"cron": "0 2 * * *", "windowDuration": "1h", "timezone": "../x"}]}},
            "spec.renewal.windows[0].timezone",
            "is not a time zone",
        ),
        ({"usages": ["server auth", "tls"]}, "spec.usages[1]", 'Unsupported value: "tls"'),
        ({"privateKey": {"algorithm": "DSA"}}, "spec.privateKey.algorithm", 'Unsupported value: "DSA"'),
        ({"privateKey": {"size": 1024}}, "spec.privateKey.size", "must be between 2048 and 8192"),
        (
            {"privateKey": {"algorithm": "ECDSA", "size": 2048}},
            "spec.privateKey.size",
            "Unsupported value: 2048",
        ),
        (
            {"signatureAlgorithm": "ECDSAWithSHA256"},
            "spec.signatureAlgorithm",
            "for key algorithm RSA the allowed signature algorithms are [",
        ),
        ({"revisionHistoryLimit": 0}, "spec.revisionHistoryLimit", "must not be less than 1"),
        (
            {"additionalOutputFormats": [{"type": "DER"}, {"type": "DER"}]},
            "spec.additionalOutputFormats[1].type",
            'Duplicate value: "DER"',
        ),
        (
            {"keystores": {"jks": {"create": True}}},
            "spec.keystores.jks.passwordSecretRef",
            "needs a password",
        ),
        (
            {"keystores": {"jks": {"create": True, "password": ""}}},
            "spec.keystores.jks.passwordSecretRef",
            "not empty",
        ),
        (
            {"keystores": {"pkcs12": {"create": True, "password": "x", "passwordSecretRef": {"name": "a"}}}},
            "spec.keystores.pkcs12.password",
            "Forbidden",
        ),
        (
            {"keystores": {"pkcs12": {"create": True, "passwordSecretRef": {"name": "a"}}}},
            "spec.keystores.pkcs12.passwordSecretRef.key",
            "Required value",
        ),
        (
            {"nameConstraints": {"permitted": {"dnsDomains": ["a"]}}},
            "spec.nameConstraints",
            "isCa should be true",
        ),
        ({"isCA": True, "nameConstraints": {"permitted": {}}}, "spec.nameConstraints", "Required value"),
        (
            {"isCA": True, "nameConstraints": {"excluded": {"ipRanges": ["10.0.0.1"]}}},
            "spec.nameConstraints.excluded.ipRanges[0]",
            "10.0.0.0/8",
        ),
        (
            {"secretTemplate": {"labels": {"a b": "c"}}},
            "spec.secretTemplate.labels",
            "name part must consist",
        ),
        (
            {"secretTemplate": {"annotations": {"cert-manager.io/x": "y"}}},
            "spec.secretTemplate.annotations",
            "annotations are not allowed; remove it",
        ),
    ],
)
def test_each_wrong_field_of_a_certificate_is_named_with_its_fix(
    spec: dict[str, Any], field: str, words: str
) -> None:
    (error,) = _errors("Certificate", _certificate(**spec))
    assert error.startswith(f"{field}: ")
    assert words in error


def test_all_wrong_fields_are_named_at_once() -> None:
    errors = validate("Certificate", GROUP, _certificate(duration="1m", secretName="-", usages=["x"]), None)
    assert [error.field for error in errors] == ["spec.secretName", "spec.duration", "spec.usages[0]"]


def test_an_object_without_spec_is_refused() -> None:
    assert _errors("Certificate", {"metadata": {}}) == [
        "spec: Required value: say what the Certificate shall be"
    ]


def test_a_password_is_never_shown() -> None:
    spec = {"keystores": {"jks": {"create": True, "password": "hunter2", "passwordSecretRef": {"name": "a"}}}}
    assert "hunter2" not in str(_errors("Certificate", _certificate(**spec)))


def test_an_unchanged_spec_is_not_judged_again() -> None:
    old = _certificate(duration="1m")
    new = old | {"status": {"revision": 1}}
    assert _errors("Certificate", new, old) == []
    assert _errors("Certificate", _certificate(duration="2m"), old) != []


def test_kinds_of_others_have_no_rules_here() -> None:
    assert _errors("Secret", {"data": 1}, group="") == []
    assert _errors("Certificate", {"spec": 1}, group="networking.internal.knative.dev") == []


def test_the_attributes_of_a_subject_are_those_that_pki_knows() -> None:
    assert set(pki_names.ATTRIBUTE_TYPES) == SUBJECT_TYPES


@pytest.mark.parametrize(
    "text", ["* * * * *", "*/5 0-23/2 1,15 JAN-mar ?", "0 0 31 12 7", "59 23 * * sun,1-5"]
)
def test_cron_expressions_of_five_fields_are_accepted(text: str) -> None:
    assert check_cron(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "five fields, not 0"),
        ("@daily", "five fields, not 1"),
        ("CRON_TZ=UTC 0 2 * * *", "five fields, not 6"),
        ("60 * * * *", 'minute: "60" is not between 0 and 59'),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of the month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of the week"),
        ("* * * * mon-foo", "day of the week"),
        ("*/0 * * * *", "above 0"),
        ("*/x * * * *", "above 0"),
        ("5-1 * * * *", "begins after its end"),
        ("1,,2 * * * *", "not between"),
        ("٣ * * * *", "not between"),
    ],
)
def test_other_cron_expressions_are_refused(text: str, words: str) -> None:
    assert words in (check_cron(text) or "")


def _request(**spec: Any) -> dict[str, Any]:
    base = {"issuerRef": {"name": "ca"}, "request": base64.b64encode(b"csr").decode()}
    return {
        "metadata": {"name": "web-1", "annotations": {"cert-manager.io/a": "1", "x": "1"}},
        "spec": base | spec,
    }


def _decided(*conditions: tuple[str, str]) -> dict[str, Any]:
    return _request() | {
        "status": {"conditions": [{"type": t, "status": s, "reason": "r"} for t, s in conditions]}
    }


def test_a_request_never_changes() -> None:
    assert _errors("CertificateRequest", _request()) == []
    (error,) = _errors("CertificateRequest", _request(isCA=True), _request())
    assert error.startswith("spec: Forbidden: cannot change spec after creation")


def test_only_our_annotations_of_a_request_are_fixed() -> None:
    new = copy.deepcopy(_request())
    new["metadata"]["annotations"] = {"x": "2", "venafi.cert-manager.io/pickup-id": "p"}
    (error,) = _errors("CertificateRequest", new, _request())
    words = "Forbidden: cannot change cert-manager annotation after creation"
    assert error == f"metadata.annotations.cert-manager.io/a: {words}"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ([], [("Approved", "True")], None),
        ([], [("Denied", "True")], None),
        ([("Approved", "True")], [("Approved", "True"), ("Ready", "False")], None),
        ([], [("Approved", "False")], "may only be set to True"),
        ([], [("Approved", "True"), ("Denied", "True")], "cannot coexist"),
        ([("Approved", "True")], [], "'Approved' condition may not be modified once set"),
        ([("Denied", "True")], [("Approved", "True")], "'Denied' condition may not be modified once set"),
    ],
)
def test_a_request_is_approved_or_denied_once(
    old: list[tuple[str, str]], new: list[tuple[str, str]], words: str | None
) -> None:
    errors = _errors("CertificateRequest", _decided(*new), _decided(*old))
    assert [words in error for error in errors if words] == ([True] if words else [])
    assert bool(errors) == bool(words)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"request": ""}, "spec.request"),
        ({"usages": ["x"]}, "spec.usages[0]"),
        ({"duration": "x"}, "spec.duration"),
        ({"issuerRef": {"name": "a", "kind": "Foo"}}, "spec.issuerRef.kind"),
    ],
)
def test_each_wrong_field_of_a_request_is_named(spec: dict[str, Any], field: str) -> None:
    assert [error.field for error in validate("CertificateRequest", GROUP, _request(**spec), None)] == [field]


def _acme(**changes: Any) -> dict[str, Any]:
    return {"acme": {"server": "https://a/dir", "privateKeySecretRef": {"name": "k"}} | changes}


def _dns01(**provider: Any) -> dict[str, Any]:
    return _acme(solvers=[{"dns01": provider}])


@pytest.mark.parametrize(
    "spec",
    [
        {"selfSigned": {}},
        {"ca": {"secretName": "ca", "ocspServers": ["http://o"]}},
        _acme(),
        _acme(caBundle=BUNDLE, externalAccountBinding={"keyID": "i", "keySecretRef": KEY}),
        _acme(solvers=[{"http01": {"ingress": {}}, "waitInsteadOfSelfCheck": "0s"}]),
        _acme(solvers=[{"http01": {"gatewayHTTPRoute": {"parentRefs": [{"name": "g"}]}}}]),
        _dns01(cloudflare={"apiTokenSecretRef": KEY}),
        _dns01(route53={"region": "eu-west-1", "secretAccessKeySecretRef": {"name": ""}}),
        _dns01(
            azureDNS={"subscriptionID": "s", "resourceGroupName": "r", "managedIdentity": {"clientID": "c"}}
        ),
        _dns01(
            rfc2136={
                "nameserver": "::1",
                "tsigKeyName": "k",
                "tsigSecretSecretRef": KEY,
                "tsigAlgorithm": "HmacSha256",
            }
        ),
        _dns01(rfc2136={"nameserver": "192.0.2.1", "tsigSecretSecretRef": {"name": ""}}),
        _dns01(webhook={"groupName": "g", "solverName": "s", "config": {"a": 1}}),
        _dns01(digitalocean={"tokenSecretRef": KEY}),
        _dns01(cloudDNS={"project": "p"}),
        _dns01(acmeDNS={"host": "https://h", "accountSecretRef": KEY}),
        {"vault": VAULT | {"caBundle": BUNDLE}},
        {"vault": VAULT | {"auth": {"kubernetes": {"role": "r", "serviceAccountRef": {"name": "s"}}}}},
        {
            "vault": VAULT
            | {
                "auth": {
                    "kubernetes": {"role": "r", "secretRef": {"name": ""}, "serviceAccountRef": {"name": "s"}}
                }
            }
        },
        {"venafi": {"zone": "z", "cloud": {"apiTokenSecretRef": {"name": "t"}}}},
    ],
)
def test_good_issuers_are_accepted(spec: dict[str, Any]) -> None:
    for kind in ("Issuer", "ClusterIssuer"):
        assert _errors(kind, {"metadata": {"name": "i"}, "spec": spec}) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec"),
        ({"ca": {"secretName": "a"}, "selfSigned": {}}, "spec.selfSigned"),
        ({"ca": {"secretName": ""}}, "spec.ca.secretName"),
        ({"ca": {"secretName": "a", "ocspServers": [""]}}, "spec.ca.ocspServers[0]"),
        (
            {"ca": {"secretName": "a", "issuingCertificateURLs": ["x", ""]}},
            "spec.ca.issuingCertificateURLs[1]",
        ),
        (_acme(server=""), "spec.acme.server"),
        (_acme(privateKeySecretRef={"name": ""}), "spec.acme.privateKeySecretRef.name"),
        (_acme(caBundle=BUNDLE, skipTLSVerify=True), "spec.acme.skipTLSVerify"),
        (_acme(caBundle="aGFsbG8="), "spec.acme.caBundle"),
        (
            _acme(externalAccountBinding={"keyID": "", "keySecretRef": KEY}),
            "spec.acme.externalAccountBinding.keyID",
        ),
        (_acme(solvers=[{}]), "spec.acme.solvers[0]"),
        (_acme(solvers=[{"http01": {}}]), "spec.acme.solvers[0].http01"),
        (
            _acme(solvers=[{"http01": {"ingress": {"class": "a", "name": "b"}}}]),
            "spec.acme.solvers[0].http01.ingress",
        ),
        (
            _acme(solvers=[{"http01": {"ingress": {"serviceType": "LoadBalancer"}}}]),
            "spec.acme.solvers[0].http01.ingress.serviceType",
        ),
        (
            _acme(solvers=[{"http01": {"ingress": {}}, "waitInsteadOfSelfCheck": "-1s"}]),
            "spec.acme.solvers[0].waitInsteadOfSelfCheck",
        ),
        (_dns01(), "spec.acme.solvers[0].dns01"),
        (
            _dns01(cloudDNS={"project": "p"}, webhook={"groupName": "g", "solverName": "s"}),
            "spec.acme.solvers[0].dns01",
        ),
        (_dns01(cloudDNS={"project": ""}), "spec.acme.solvers[0].dns01.cloudDNS.project"),
        (_dns01(cloudflare={}), "spec.acme.solvers[0].dns01.cloudflare"),
        (_dns01(cloudflare={"apiKeySecretRef": KEY}), "spec.acme.solvers[0].dns01.cloudflare.email"),
        (
            _dns01(route53={"accessKeyID": "a", "accessKeyIDSecretRef": KEY}),
            "spec.acme.solvers[0].dns01.route53.accessKeyIDSecretRef",
        ),
        (
            _dns01(
                azureDNS={"subscriptionID": "s", "resourceGroupName": "r", "clientID": "c", "tenantID": "t"}
            ),
            "spec.acme.solvers[0].dns01.azureDNS.clientSecretSecretRef",
        ),
        (
            _dns01(
                azureDNS={
                    "subscriptionID": "s",
                    "resourceGroupName": "r",
                    "managedIdentity": {"tenantID": "t"},
                }
            ),
            "spec.acme.solvers[0].dns01.azureDNS.managedIdentity.clientID",
        ),
        (
            _dns01(rfc2136={"nameserver": "a", "tsigKeyName": "k"}),
            "spec.acme.solvers[0].dns01.rfc2136.tsigSecretSecretRef",
        ),
        (
            _dns01(rfc2136={"nameserver": "a", "tsigAlgorithm": "MD5"}),
            "spec.acme.solvers[0].dns01.rfc2136.tsigAlgorithm",
        ),
        (_dns01(acmeDNS={"host": "", "accountSecretRef": KEY}), "spec.acme.solvers[0].dns01.acmeDNS.host"),
        (
            _dns01(webhook={"groupName": "g", "solverName": ""}),
            "spec.acme.solvers[0].dns01.webhook.solverName",
        ),
        ({"vault": VAULT | {"path": "pki/../sys"}}, "spec.vault.path"),
        ({"vault": VAULT | {"auth": {}}}, "spec.vault.auth"),
        ({"vault": VAULT | {"clientKeySecretRef": KEY}}, "spec.vault.clientCertSecretRef"),
        ({"vault": VAULT | {"auth": {"kubernetes": {"role": "r"}}}}, "spec.vault.auth.kubernetes"),
        (
            {"vault": VAULT | {"auth": {"aws": {"role": "r", "serviceAccountRef": {"name": "s"}}}}},
            "spec.vault.auth.aws.iamRoleArn",
        ),
        ({"venafi": {"zone": "z"}}, "spec.venafi"),
        ({"venafi": {"zone": "", "cloud": {"apiTokenSecretRef": {"name": "t"}}}}, "spec.venafi.zone"),
    ],
)
def test_each_wrong_field_of_an_issuer_is_named(spec: dict[str, Any], field: str) -> None:
    assert [error.field for error in validate("Issuer", GROUP, {"spec": spec}, None)] == [field]


def test_two_bundles_are_refused_in_cert_managers_words() -> None:
    spec = {"vault": VAULT | {"caBundle": BUNDLE, "caBundleSecretRef": {"name": "a"}}}
    assert _errors("Issuer", {"spec": spec}, None) == [
        'spec.vault.caBundle: Invalid value: "<snip>": '
        "specified caBundle and caBundleSecretRef cannot be used together",
        'spec.vault.caBundleSecretRef: Invalid value: "a": '
        "specified caBundleSecretRef and caBundle cannot be used together",
    ]


def _order(**status: Any) -> dict[str, Any]:
    return {
        "spec": {"request": "Y3Ny", "issuerRef": {"name": "a"}},
        "metadata": {"name": "o"},
        "status": status,
    }


def test_what_the_acme_server_said_once_stays() -> None:
    old = _order(url="u", authorizations=[{"url": "1"}])
    filled = _order(
        url="u",
        finalizeURL="f",
        authorizations=[
            {"url": "1", "identifier": "a", "challenges": [{"url": "c", "token": "t", "type": "http-01"}]}
        ],
    )
    assert _errors("Order", filled, old, ACME) == []
    changed = _order(url="v", authorizations=[{"url": "2"}])
    assert [error.field for error in validate("Order", ACME, changed, old)] == [
        "status.url",
        "status.authorizations[0].url",
    ]
    emptied = _order(url="u", finalizeURL="f")
    assert _errors("Order", emptied, filled, ACME) == [
        "status.authorizations: Forbidden: field is immutable once set"
    ]
    other = copy.deepcopy(old)
    other["spec"]["request"] = "eA=="
    assert _errors("Order", other, old, ACME) == ["spec.request: Forbidden: field is immutable once set"]


def test_a_challenge_never_changes() -> None:
    spec = {
        "url": "u",
        "authorizationURL": "a",
        "dnsName": "d",
        "type": "HTTP-01",
        "token": "t",
        "key": "k",
        "solver": {},
        "issuerRef": {"name": "a"},
    }
    old = {"spec": spec}
    assert _errors("Challenge", old | {"status": {"state": "valid"}}, old, ACME) == []
    assert _errors("Challenge", {"spec": spec | {"key": "other"}}, old, ACME) == [
        "spec: Forbidden: challenge spec is immutable after creation"
    ]


def errors(**spec: Any) -> list[str]:
    base = {"secretName": "web-tls", "issuerRef": {"name": "ca"}, "commonName": "web"}
    new = {"metadata": {"name": "web", "namespace": "default"}, "spec": base | spec}
    return [str(error) for error in validate("Certificate", "cert-manager.io", new, None)]


def test_the_limit_is_that_of_signing_requests() -> None:
    assert certificate_rules.MAX_REQUEST_BYTES == csr.MAX_BYTES


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"dnsNames": NAMES}, "spec.dnsNames"),
        ({"uris": [f"https://{name}" for name in NAMES], "dnsNames": NAMES}, "spec.uris"),
        ({"emailAddresses": [f"a@{name}" for name in NAMES]}, "spec.emailAddresses"),
        ({"ipAddresses": ["10.0.0.1"] * 100_000}, "spec.ipAddresses"),
        ({"otherNames": [{"oid": "1.2.3", "utf8Value": name} for name in NAMES]}, "spec.otherNames"),
        ({"subject": {"organizations": NAMES}}, "spec.subject.organizations"),
        (
            {"isCA": True, "nameConstraints": {"excluded": {"dnsDomains": NAMES}}},
            "spec.nameConstraints.excluded.dnsDomains",
        ),
    ],
)
def test_names_that_fit_into_no_request_are_refused_with_one_error(spec: dict[str, Any], path: str) -> None:
    (error,) = errors(**spec)
    assert error.startswith(f"{path}: {TOO_MANY}")


def test_a_list_of_usages_that_repeats_them_is_refused() -> None:
    assert errors(usages=["server auth"] * 150_000) == [
        "spec.usages: Too many: 150000: must have at most 46 items"
    ]


def test_whatever_a_request_can_hold_is_accepted() -> None:
    names = tuple(f"a{number}.example.com" for number in range(3400))
    addresses = ("255.255.255.255",) * 50
    plan = CsrPlan(dns_names=names, ip_addresses=addresses)
    build_csr(plan, generate(KeyPlan.of("ECDSA")))
    assert errors(dnsNames=list(names), ipAddresses=list(addresses)) == []


async def test_a_client_gets_an_error_with_the_field() -> None:
    async with make_world(controllers=False) as world:
        with pytest.raises(Invalid) as caught:
            await world.client.create(CERTIFICATES, make_certificate("web", "ca", dns_names=tuple(NAMES)))
        assert caught.value.details is not None
        assert [cause.field for cause in caught.value.details.causes] == ["spec.dnsNames"]


def of(**spec: Any) -> list[str]:
    """The warnings about a Certificate with that spec."""
    content = {"spec": {"secretName": "s", "issuerRef": {"name": "i"}, **spec}}
    return warnings(from_dict(CERTIFICATES, content))


def constraints(**permitted: list[str]) -> dict[str, Any]:
    """The spec of a CA that permits only these names."""
    return {"isCA": True, "nameConstraints": {"permitted": permitted}}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"dnsNames": ["*.*.com"]}, 'spec.dnsNames[0]: "*.*.com" has a * that is not its whole first label'),
        ({"dnsNames": ["a.com", "w*.com"]}, 'spec.dnsNames[1]: "w*.com" has a *'),
        ({"dnsNames": ["exämple.com"]}, 'spec.dnsNames[0]: "exämple.com" is not ASCII'),
        ({"dnsNames": ["a..com"]}, 'spec.dnsNames[0]: "a..com" is not a host name'),
        ({"dnsNames": ["-a.com"]}, 'spec.dnsNames[0]: "-a.com" is not a host name'),
        ({"dnsNames": ["10.0.0.1"]}, 'spec.dnsNames[0]: "10.0.0.1" is an IP address, which clients do not'),
        ({"dnsNames": ["[::1]"]}, "put it under ipAddresses"),
        ({"dnsNames": ["2001:db8::f"]}, "put it under ipAddresses"),
        ({"dnsNames": ["https://a.com"]}, 'spec.dnsNames[0]: "https://a.com" is a URL'),
        ({"dnsNames": ["a.com:443"]}, 'spec.dnsNames[0]: "a.com:443" has a port'),
        ({"dnsNames": ["a." * 127]}, "is longer than 253 characters"),
        ({"dnsNames": ["a.com"] * 2000}, 'spec.dnsNames: "a.com" is listed 2000 times'),
        ({"dnsNames": ["a.com."]}, 'spec.dnsNames[0]: "a.com." ends with a dot, which no client matches'),
        ({"dnsNames": ["a.com", "A.com"]}, 'spec.dnsNames: "a.com" is listed 2 times'),
        ({"ipAddresses": ["::1", "::1"]}, 'spec.ipAddresses: "::1" is listed 2 times'),
        ({"commonName": "a\nb"}, 'spec.commonName: "a\\nb" has characters that are not shown'),
        ({"commonName": "a\u202eb"}, 'spec.commonName: "a\\u202eb" has characters'),
        ({"subject": {"organizations": ["ok", "x\u200b"]}}, "spec.subject.organizations[1]:"),
        (
            {"dnsNames": ["*.b.com", "b.com", "A.b.com"]},
            'spec.dnsNames[2]: "a.b.com" is covered by "*.b.com"',
        ),
        (
            {"duration": "1h", "renewBefore": "59m59s"},
            "spec.renewBefore: each certificate of 1h0m0s",
        ),
        (
            {"renewBeforePercentage": 99},
            "spec.renewBeforePercentage: each certificate of 2160h0m0s",
        ),
        (
            constraints(dnsDomains=["a.com", "http://x.com"]),
            'permitted.dnsDomains[1]: "http://x.com" constrains',
        ),
        (constraints(dnsDomains=["."]), "is not a domain"),
        (constraints(dnsDomains=["10.0.0.1"]), "it is an IP address"),
        (constraints(uriDomains=["example.com:443"]), "it has a port"),
        (constraints(uriDomains=["[::1]"]), "it is an IP address"),
        (constraints(emailAddresses=["@a.com"]), 'matches no address: write "a.com"'),
        (constraints(emailAddresses=["*@a.com"]), "matches no address"),
    ],
)
def test_what_looks_wrong_is_warned_of(spec: dict[str, Any], sentence: str) -> None:
    (warning,) = of(**spec)
    assert sentence in warning


def test_ordinary_constraints_are_not_warned_of() -> None:
    spec = constraints(
        dnsDomains=["example.com", ".example.com", "local", "bücher.example"],
        uriDomains=["a.example.com"],
        emailAddresses=["me@example.com", ".example.com", "example.com"],
    )
    assert of(**spec, duration="1h", renewBefore="50m") == []


@pytest.mark.parametrize("name", ["a.com", "*.a.com", "A.COM", "_acme.a.com", "localhost", "1.a.com"])
def test_ordinary_names_are_not_warned_of(name: str) -> None:
    assert of(dnsNames=[name], commonName="Jörg Müller", ipAddresses=["::1"]) == []


def test_no_more_than_ten_warnings_are_given() -> None:
    messages = of(dnsNames=[f"a..{number}" for number in range(50)])
    assert (len(messages), messages[-1]) == (11, "and 40 more warnings")

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
from support.tables import table
from support.world import make_world

GROUP, ACME = "cert-manager.io", "acme.cert-manager.io"
PEM = (
    b"-----BEGIN CERTIFICATE-----\n"
    + base64.b64encode(b"\x30\x82\x01\x00" + b"\0" * 256)
    + b"\n-----END CERTIFICATE-----\n"
)
BUNDLE = base64.b64encode(PEM).decode()
NAMES = [f"a{number}.example.com" for number in range(100_000)]
TOO_MANY = "Too many: 100000: a signing request may have 65536 bytes, some 3000 names; distribute them over"


def _certificate(**spec: Any) -> dict[str, Any]:
    base = {"secretName": "web-tls", "issuerRef": {"name": "ca"}, "dnsNames": ["web.example.com"]}
    merged = {name: value for name, value in (base | spec).items() if value is not None}
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": merged}


def _path(field: str) -> str:
    return f"spec.{field}" if field else "spec"


def errors(**spec: Any) -> list[str]:
    """What is wrong with a Certificate of this spec."""
    return _errors("Certificate", _certificate(**spec))


def _errors(
    kind: str, new: dict[str, Any], old: dict[str, Any] | None = None, group: str = GROUP
) -> list[str]:
    return [str(error) for error in validate(kind, group, new, old)]


GOOD_CERTIFICATES = """
dnsNames: ["*.example.com", _dmarc.example.com, "straße.example"]
dnsNames: null, commonName: only a name
literalSubject: "O=x", subject: {}
dnsNames: null, uris: ["spiffe://example.org/web"]
dnsNames: null, otherNames: [{oid: "1.3.6.1.4.1.311.20.2.3", utf8Value: "user@example.com"}]
ipAddresses: ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"], emailAddresses: ["a.b+c@example.com"]
duration: "1h", renewBefore: "5m"
duration: "1h", renewBeforePercentage: 99
renewBeforePercentage: 1
privateKey: {algorithm: RSA, size: 8192, encoding: PKCS8, rotationPolicy: Never}
privateKey: {algorithm: Ed25519, size: 17}, signatureAlgorithm: PureEd25519
privateKey: {algorithm: ECDSA, size: 521}, signatureAlgorithm: ECDSAWithSHA256
privateKey: {algorithm: ML-DSA}, signatureAlgorithm: PureMLDSA65, usages: [server auth]
privateKey: {algorithm: ML-DSA, size: 87}, signatureAlgorithm: PureMLDSA87
privateKey: {algorithm: MLDSA44, size: 44, encoding: PKCS8}
usages: [s/mime, any, netscape sgc], isCA: true, revisionHistoryLimit: 1
isCA: true, nameConstraints: {permitted: {ipRanges: ["10.0.0.0/8", "2001:db8::/32"]}}
keystores: {jks: {create: true, password: x}, pkcs12: {create: false}}
keystores: {pkcs12: {create: true, passwordSecretRef: {name: a, key: b}}}
keystores: {jks: {create: true, password: x, passwordSecretRef: {name: ""}}}
issuerRef: {name: x, kind: AWSPCAIssuer, group: awspca.cert-manager.io}
secretTemplate: {annotations: {cert-manager.io/allow-direct-injection: "true"}}
renewal: {windows: [{cron: "0 2 * * SAT,0", windowDuration: "4h", timezone: Europe/Berlin}]}
subject: {countries: [DE], organizations: ["Ä & Co"]}
"""


@pytest.mark.parametrize(
    "spec",
    [
        *table(GOOD_CERTIFICATES),
        {},
        {"dnsNames": None, "literalSubject": "CN=a\\,b,OU=x+O=y,DC=example,UID=u,2.5.4.97=z"},
        {"subject": {"countries": ["Spain", "España", "D"], "organizations": ["x" * 65]}},
    ],
)
def test_good_certificates_are_accepted(spec: dict[str, Any]) -> None:
    assert errors(**spec) == []


IDENTITIES = (
    "commonName (from the commonName field or from a literalSubject), dnsNames, uris, emailAddresses, "
    "ipAddresses, otherNames"
)


WRONG_CERTIFICATES = """
issuerRef: {name: ""} | issuerRef.name | Required value
privateKey: {algorithm: ML-DSA, size: 256} | privateKey.size
  | Unsupported value: 256: supported values: "44", "65", "87"
privateKey: {algorithm: MLDSA44, size: 65} | privateKey.size
  | 65: contradicts privateKey.algorithm MLDSA44; leave it out
privateKey: {algorithm: ML-DSA}, signatureAlgorithm: PureMLDSA44 | signatureAlgorithm
  | for key algorithm MLDSA65 the allowed signature algorithms are [PureMLDSA65]
privateKey: {algorithm: ML-DSA}, usages: [client auth, key agreement] | usages[1]
  | "key agreement": an ML-DSA key only signs (RFC 9881 section 5); leave it out
privateKey: {algorithm: ML-DSA}, keystores: {pkcs12: {create: true, password: x}} | keystores.pkcs12
  | Forbidden: this version cannot write an ML-DSA key into a PKCS#12 file; use keystores.jks
issuerRef: {name: x, kind: Foo} | issuerRef.kind | "Foo": must be one of Issuer or Cl
secretName: "" | secretName | Required value: must be specified; name the Secret
secretName: Web_TLS | secretName | "Web_TLS": a lowercase RFC 1123 subdomain
dnsNames: null, literalSubject: "O=x" |  | at least one of commonName
dnsNames: [a..example.org] | dnsNames[0] | has an empty label
dnsNames: [""] | dnsNames[0] | must not contain spaces
dnsNames: [a, b c] | dnsNames[1] | "b c": must not contain spaces
literalSubject: "CN=x," | literalSubject | expected an attribute such as CN=name
literalSubject: "CN=x,FOO=y" | literalSubject
  | Literal subject contains unrecognized key with value [y]: FOO is not a known attribute
literalSubject: "CN=#0c01" | literalSubject | hexadecimal form
literalSubject: "CN=x,O=" | literalSubject | O is empty
literalSubject: "CN=x", commonName: x | commonName | Forbidden: When providing a `LiteralSubject` no `
literalSubject: "CN=x", subject: {serialNumber: "1"} | subject
  | Forbidden: When providing a `LiteralSubject` no `
subject: {countries: [""]} | subject.countries[0] | must not be empty
subject: {organizations: [""]} | subject.organizations[0] | must not be empty
ipAddresses: ["1.2.3"] | ipAddresses[0] | "1.2.3": invalid IP address; write
ipAddresses: ["fe80::1%eth0"] | ipAddresses[0] | must not have a zone
emailAddresses: ["A <a@b.c>"] | emailAddresses[0] | invalid email address: write only
uris: ["https://ä.example"] | uris[0] | must be ASCII
otherNames: [{oid: "1.2"}] | otherNames[0].utf8Value | Required value
otherNames: [{oid: "1.40", utf8Value: x}] | otherNames[0].oid | invalid oid syntax; write
otherNames: [{oid: "1.2.03", utf8Value: x}] | otherNames[0].oid | invalid oid syntax; write
otherNames: [{utf8Value: x}] | otherNames[0].oid | Required value
duration: "90d" | duration | '90d' is not a duration; write e.g.
duration: "59m" | duration | "59m": must be at least 1h
renewBefore: "4m59s" | renewBefore | must be at least 5m
renewBefore: "2160h" | renewBefore | 2160h0m0s must be greater than renewBefore 2160h
duration: "2h", renewBefore: "3h" | renewBefore | 2h must be greater than renewBefore 3h
renewBefore: "1h", renewBeforePercentage: 5 | renewBeforePercentage
  | Forbidden: renewBefore and renewBeforePercentage are mutually
renewBeforePercentage: 0 | renewBeforePercentage | 0: must be between 1 and 99
renewBeforePercentage: 100 | renewBeforePercentage | 100: must be between 1 and 99
duration: "1h", renewBeforePercentage: 1 | renewBeforePercentage | makes 36s of a duration
renewal: {policy: Never} | renewal.policy | supported values: "RenewBefore", "Disabled"
renewal: {policy: Disabled, windows: [{cron: "0 2 * * *", windowDuration: "1h"}]} | renewal.windows
  | Forbidden
renewal: {windows: [{cron: "0 2 * *", windowDuration: "1h"}]} | renewal.windows[0].cron
  | must have five fields, not 4
renewal: {windows: [{cron: "0 2 * * *", windowDuration: "0h"}]} | renewal.windows[0].windowDuration
  | longer than 0s
renewal: {windows: [{cron: "0 2 * * *", windowDuration: "1h", timezone: "../x"}]}
  | renewal.windows[0].timezone | is not a time zone
usages: [server auth, tls] | usages[1] | Unsupported value: "tls"
privateKey: {algorithm: DSA} | privateKey.algorithm | Unsupported value: "DSA"
privateKey: {size: 1024} | privateKey.size | must be between 2048 and 8192
privateKey: {algorithm: ECDSA, size: 2048} | privateKey.size | Unsupported value: 2048
signatureAlgorithm: ECDSAWithSHA256 | signatureAlgorithm
  | for key algorithm RSA the allowed signature algorithms are [
revisionHistoryLimit: 0 | revisionHistoryLimit | must not be less than 1
additionalOutputFormats: [{type: DER}, {type: DER}] | additionalOutputFormats[1].type | Duplicate value: "DER"
keystores: {jks: {create: true}} | keystores.jks.passwordSecretRef | needs a password
keystores: {jks: {create: true, password: ""}} | keystores.jks.passwordSecretRef | not empty
keystores: {pkcs12: {create: true, password: x, passwordSecretRef: {name: a}}} | keystores.pkcs12.password
  | Forbidden
keystores: {pkcs12: {create: true, passwordSecretRef: {name: a}}} | keystores.pkcs12.passwordSecretRef.key
  | Required value
nameConstraints: {permitted: {dnsDomains: [a]}} | nameConstraints | isCa should be true
isCA: true, nameConstraints: {permitted: {}} | nameConstraints | Required value
isCA: true, nameConstraints: {excluded: {ipRanges: ["10.0.0.1"]}} | nameConstraints.excluded.ipRanges[0]
  | 10.0.0.0/8
secretTemplate: {labels: {a b: c}} | secretTemplate.labels | name part must consist
secretTemplate: {annotations: {cert-manager.io/x: "y"}} | secretTemplate.annotations
  | annotations are not allowed; remove it
"""


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        *table(WRONG_CERTIFICATES),
        ({"issuerRef": {"name": "x" * 254}}, "issuerRef.name", "Too long"),
        ({"issuerRef": {"name": "x", "group": "x" * 254}}, "issuerRef.group", "Too long"),
        ({"dnsNames": None}, "", f"at least one of {IDENTITIES} must be set"),
        ({"commonName": "ä" * 33}, "commonName", "Too long: may not be more than 64 bytes"),
        (
            {"literalSubject": f"cn={'ä' * 33}"},
            "literalSubject",
            "Too long: may not be more than 64 bytes",
        ),
    ],
)
def test_each_wrong_field_of_a_certificate_is_named_with_its_fix(
    spec: dict[str, Any], field: str, words: str
) -> None:
    (error,) = errors(**spec)
    assert error.startswith(f"{_path(field)}: ")
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
    assert "hunter2" not in str(errors(**spec))


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


ACME_ISSUER = {"server": "https://a/dir", "privateKeySecretRef": {"name": "k"}}
VAULT_ISSUER = {"server": "https://v", "path": "pki/sign/x", "auth": {"tokenSecretRef": {"name": "t"}}}


def _issuer(spec: dict[str, Any]) -> dict[str, Any]:
    """The object of these fields: those of `acme` and `vault` beside the required ones, `dns01` those of the
    only solver."""
    spec = {"acme": {"solvers": [{"dns01": spec["dns01"]}]}} if "dns01" in spec else spec
    for kind, required in (("acme", ACME_ISSUER), ("vault", VAULT_ISSUER)):
        spec = spec | {kind: required | spec[kind]} if kind in spec else spec
    return {"metadata": {"name": "i"}, "spec": spec}


GOOD_ISSUERS = """
selfSigned: {}
ca: {secretName: ca, ocspServers: ["http://o"]}
acme: {}
acme: {externalAccountBinding: {keyID: i, keySecretRef: {name: s, key: k}}}
acme: {solvers: [{http01: {ingress: {}}, waitInsteadOfSelfCheck: "0s"}]}
acme: {solvers: [{http01: {gatewayHTTPRoute: {parentRefs: [{name: g}]}}}]}
dns01: {cloudflare: {apiTokenSecretRef: {name: s, key: k}}}
dns01: {route53: {region: eu-west-1, secretAccessKeySecretRef: {name: ""}}}
dns01: {azureDNS: {subscriptionID: s, resourceGroupName: r, managedIdentity: {clientID: c}}}
dns01: {rfc2136: {nameserver: "::1", tsigKeyName: k, tsigSecretSecretRef: {name: s, key: k},
  tsigAlgorithm: HmacSha256}}
dns01: {rfc2136: {nameserver: "192.0.2.1", tsigSecretSecretRef: {name: ""}}}
dns01: {webhook: {groupName: g, solverName: s, config: {a: 1}}}
dns01: {digitalocean: {tokenSecretRef: {name: s, key: k}}}
dns01: {cloudDNS: {project: p}}
dns01: {acmeDNS: {host: "https://h", accountSecretRef: {name: s, key: k}}}
vault: {auth: {kubernetes: {role: r, serviceAccountRef: {name: s}}}}
vault: {auth: {kubernetes: {role: r, secretRef: {name: ""}, serviceAccountRef: {name: s}}}}
venafi: {zone: z, cloud: {apiTokenSecretRef: {name: t}}}
"""


@pytest.mark.parametrize(
    "spec",
    [
        *table(GOOD_ISSUERS),
        {"acme": {"caBundle": BUNDLE}},
        {"vault": {"caBundle": BUNDLE}},
    ],
)
def test_good_issuers_are_accepted(spec: dict[str, Any]) -> None:
    for kind in ("Issuer", "ClusterIssuer"):
        assert _errors(kind, _issuer(spec)) == []


WRONG_ISSUERS = """
ca: {secretName: a}, selfSigned: {} | selfSigned
ca: {secretName: ""} | ca.secretName
ca: {secretName: a, ocspServers: [""]} | ca.ocspServers[0]
ca: {secretName: a, issuingCertificateURLs: [x, ""]} | ca.issuingCertificateURLs[1]
acme: {server: ""} | acme.server
acme: {privateKeySecretRef: {name: ""}} | acme.privateKeySecretRef.name
acme: {caBundle: "aGFsbG8="} | acme.caBundle
acme: {externalAccountBinding: {keyID: "", keySecretRef: {name: s, key: k}}}
  | acme.externalAccountBinding.keyID
acme: {solvers: [{}]} | acme.solvers[0]
acme: {solvers: [{http01: {}}]} | acme.solvers[0].http01
acme: {solvers: [{http01: {ingress: {class: a, name: b}}}]} | acme.solvers[0].http01.ingress
acme: {solvers: [{http01: {ingress: {serviceType: LoadBalancer}}}]}
  | acme.solvers[0].http01.ingress.serviceType
acme: {solvers: [{http01: {ingress: {}}, waitInsteadOfSelfCheck: "-1s"}]}
  | acme.solvers[0].waitInsteadOfSelfCheck
dns01: {} | acme.solvers[0].dns01
dns01: {cloudDNS: {project: p}, webhook: {groupName: g, solverName: s}} | acme.solvers[0].dns01
dns01: {cloudDNS: {project: ""}} | acme.solvers[0].dns01.cloudDNS.project
dns01: {cloudflare: {}} | acme.solvers[0].dns01.cloudflare
dns01: {cloudflare: {apiKeySecretRef: {name: s, key: k}}} | acme.solvers[0].dns01.cloudflare.email
dns01: {route53: {accessKeyID: a, accessKeyIDSecretRef: {name: s, key: k}}}
  | acme.solvers[0].dns01.route53.accessKeyIDSecretRef
dns01: {azureDNS: {subscriptionID: s, resourceGroupName: r, clientID: c, tenantID: t}}
  | acme.solvers[0].dns01.azureDNS.clientSecretSecretRef
dns01: {azureDNS: {subscriptionID: s, resourceGroupName: r, managedIdentity: {tenantID: t}}}
  | acme.solvers[0].dns01.azureDNS.managedIdentity.clientID
dns01: {rfc2136: {nameserver: a, tsigKeyName: k}} | acme.solvers[0].dns01.rfc2136.tsigSecretSecretRef
dns01: {rfc2136: {nameserver: a, tsigAlgorithm: MD5}} | acme.solvers[0].dns01.rfc2136.tsigAlgorithm
dns01: {acmeDNS: {host: "", accountSecretRef: {name: s, key: k}}} | acme.solvers[0].dns01.acmeDNS.host
dns01: {webhook: {groupName: g, solverName: ""}} | acme.solvers[0].dns01.webhook.solverName
vault: {path: pki/../sys} | vault.path
vault: {auth: {}} | vault.auth
vault: {clientKeySecretRef: {name: s, key: k}} | vault.clientCertSecretRef
vault: {auth: {kubernetes: {role: r}}} | vault.auth.kubernetes
vault: {auth: {aws: {role: r, serviceAccountRef: {name: s}}}} | vault.auth.aws.iamRoleArn
venafi: {zone: z} | venafi
venafi: {zone: "", cloud: {apiTokenSecretRef: {name: t}}} | venafi.zone
"""


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        *table(WRONG_ISSUERS),
        ({}, ""),
        ({"acme": {"caBundle": BUNDLE, "skipTLSVerify": True}}, "acme.skipTLSVerify"),
    ],
)
def test_each_wrong_field_of_an_issuer_is_named(spec: dict[str, Any], field: str) -> None:
    assert [error.field for error in validate("Issuer", GROUP, _issuer(spec), None)] == [_path(field)]


def test_two_bundles_are_refused_in_cert_managers_words() -> None:
    spec = {"vault": {"caBundle": BUNDLE, "caBundleSecretRef": {"name": "a"}}}
    assert _errors("Issuer", _issuer(spec), None) == [
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


LOOKS_WRONG = """
dnsNames: ["*.*.com"] | spec.dnsNames[0]: "*.*.com" has a * that is not its whole first label
dnsNames: [a.com, w*.com] | spec.dnsNames[1]: "w*.com" has a *
dnsNames: ["exämple.com"] | spec.dnsNames[0]: "exämple.com" is not ASCII
dnsNames: [a..com] | spec.dnsNames[0]: "a..com" is not a host name
dnsNames: ["-a.com"] | spec.dnsNames[0]: "-a.com" is not a host name
dnsNames: ["10.0.0.1"] | spec.dnsNames[0]: "10.0.0.1" is an IP address, which clients do not
dnsNames: ["[::1]"] | put it under ipAddresses
dnsNames: ["2001:db8::f"] | put it under ipAddresses
dnsNames: ["https://a.com"] | spec.dnsNames[0]: "https://a.com" is a URL
dnsNames: ["a.com:443"] | spec.dnsNames[0]: "a.com:443" has a port
dnsNames: [a.com.] | spec.dnsNames[0]: "a.com." ends with a dot, which no client matches
dnsNames: [a.com, A.com] | spec.dnsNames: "a.com" is listed 2 times
ipAddresses: ["::1", "::1"] | spec.ipAddresses: "::1" is listed 2 times
subject: {organizations: [ok, "x\u200b"]} | spec.subject.organizations[1]:
dnsNames: ["*.b.com", b.com, A.b.com] | spec.dnsNames[2]: "a.b.com" is covered by "*.b.com"
duration: "1h", renewBefore: "59m59s" | spec.renewBefore: each certificate of 1h0m0s
renewBeforePercentage: 99 | spec.renewBeforePercentage: each certificate of 2160h0m0s
isCA: true, nameConstraints: {permitted: {dnsDomains: [a.com, "http://x.com"]}}
  | permitted.dnsDomains[1]: "http://x.com" constrains
isCA: true, nameConstraints: {permitted: {dnsDomains: ["."]}} | is not a domain
isCA: true, nameConstraints: {permitted: {dnsDomains: ["10.0.0.1"]}} | it is an IP address
isCA: true, nameConstraints: {permitted: {uriDomains: ["example.com:443"]}} | it has a port
isCA: true, nameConstraints: {permitted: {uriDomains: ["[::1]"]}} | it is an IP address
isCA: true, nameConstraints: {permitted: {emailAddresses: ["@a.com"]}} | matches no address: write "a.com"
isCA: true, nameConstraints: {permitted: {emailAddresses: ["*@a.com"]}} | matches no address
"""


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        *table(LOOKS_WRONG),
        ({"dnsNames": ["a." * 127]}, "is longer than 253 characters"),
        ({"dnsNames": ["a.com"] * 2000}, 'spec.dnsNames: "a.com" is listed 2000 times'),
        ({"commonName": "a\nb"}, 'spec.commonName: "a\\nb" has characters that are not shown'),
        ({"commonName": "a\u202eb"}, 'spec.commonName: "a\\u202eb" has characters'),
    ],
)
def test_what_looks_wrong_is_warned_of(spec: dict[str, Any], sentence: str) -> None:
    (warning,) = of(**spec)
    assert sentence in warning


def test_ordinary_constraints_are_not_warned_of() -> None:
    permitted = {
        "dnsDomains": ["example.com", ".example.com", "local", "bücher.example"],
        "uriDomains": ["a.example.com"],
        "emailAddresses": ["me@example.com", ".example.com", "example.com"],
    }
    spec = {"isCA": True, "nameConstraints": {"permitted": permitted}}
    assert of(**spec, duration="1h", renewBefore="50m") == []


@pytest.mark.parametrize("name", ["a.com", "*.a.com", "A.COM", "_acme.a.com", "localhost", "1.a.com"])
def test_ordinary_names_are_not_warned_of(name: str) -> None:
    assert of(dnsNames=[name], commonName="Jörg Müller", ipAddresses=["::1"]) == []


def test_no_more_than_ten_warnings_are_given() -> None:
    messages = of(dnsNames=[f"a..{number}" for number in range(50)])
    assert (len(messages), messages[-1]) == (11, "and 40 more warnings")

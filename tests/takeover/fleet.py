"""A cluster on which cert-manager has worked for years: every kind of issuer, every form of a Secret."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

from cryptography.hazmat.primitives import serialization

from certwright.pki import keystores
from support.world import START
from takeover.go_x509 import Names, key_pem, new_key
from takeover.objects import (
    BORN,
    INTERMEDIATE,
    ROOT,
    Issued,
    Json,
    approved,
    b64,
    condition,
    failed,
    issuer,
    meta,
    owner,
    secret,
    stamp,
)

CA = {"name": "ca"}
WEB = Names(dns=["web.example.org"])
FULL = {"name": "ca", "kind": "Issuer", "group": "cert-manager.io"}
CLUSTER_CA = {"name": "ca", "kind": "ClusterIssuer"}
ACME = {"name": "letsencrypt", "kind": "ClusterIssuer", "group": "cert-manager.io"}
ACCOUNT_KEY = new_key("RSA")
ACME_SERVER = "https://acme-v02.api.example.org/directory"
ISSUERS = "kube-system"
"""Where the Secrets of ClusterIssuers lie."""


def account_hash() -> str:
    """`status.acme.lastPrivateKeyHash`: of the key as PKCS#1 DER."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    der = ACCOUNT_KEY.private_bytes(serialization.Encoding.DER, form, serialization.NoEncryption())
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


def acme_spec(**more: Any) -> Json:
    """The spec of an ACME issuer."""
    return {
        "server": ACME_SERVER,
        "email": "admin@example.org",
        "privateKeySecretRef": {"name": "letsencrypt-account"},
        "solvers": [{"http01": {"ingress": {"ingressClassName": "nginx"}}}],
        **more,
    }


def acme_status() -> Json:
    """What cert-manager keeps of the account."""
    return {
        "uri": "https://acme-v02.api.example.org/acme/acct/1234",
        "lastRegisteredEmail": "admin@example.org",
        "lastPrivateKeyHash": account_hash(),
    }


def issuers() -> list[Json]:
    """One of each kind that needs no server to be ready; that of the ACME account is not asked."""
    verified = ("KeyPairVerified", "Signing CA verified")
    registered = ("ACMEAccountRegistered", "The ACME account was registered with the ACME server")
    return [
        issuer("self", {"selfSigned": {}}, "IsReady", ""),
        issuer("ca", {"ca": {"secretName": "ca-pair"}}, *verified),
        issuer("ca", {"ca": {"secretName": "cluster-ca"}}, *verified, kind="ClusterIssuer"),
        issuer("letsencrypt", {"acme": acme_spec()}, *registered, kind="ClusterIssuer", acme=acme_status()),
    ]


def issuer_secrets() -> list[Json]:
    """Made by people (no labels, no `ca.crt`), but for the account key, which cert-manager made."""
    pair = {"tls.crt": INTERMEDIATE.pem + ROOT.pem, "tls.key": key_pem(INTERMEDIATE.key)}
    alone = {"tls.crt": ROOT.pem, "tls.key": key_pem(ROOT.key)}
    return [
        secret("ca-pair", pair),
        secret("cluster-ca", alone, namespace=ISSUERS),
        # Made before accounts had labels (1.12).
        secret("letsencrypt-account", {"tls.key": key_pem(ACCOUNT_KEY)}, namespace=ISSUERS),
        secret("keystore-password", {"password": b"changeit"}),
    ]


FORMATS = [{"type": "DER"}, {"type": "CombinedPEM"}]
_PASSWORD = {"create": True, "passwordSecretRef": {"name": "keystore-password", "key": "password"}}


def with_all_outputs() -> Issued:
    """Template, further formats and both key stores."""
    plain = Issued("outputs", FULL, Names(dns=["outputs.example.org"]), authority=INTERMEDIATE)
    pem = key_pem(plain.key)
    contents = keystores.Contents(pem, plain.chain, ROOT.pem, "changeit")
    jks, jks_trust = keystores.jks_files(contents, alias="", now=BORN)
    p12, p12_trust = keystores.pkcs12_files(contents, profile="Modern2023")
    assert jks_trust is not None
    assert p12_trust is not None
    der = plain.key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    template = {"labels": {"team": "web"}, "annotations": {"reflector.example.org/allowed": "true"}}
    renewal = replace(
        plain,
        spec={
            "secretTemplate": template,
            "additionalOutputFormats": FORMATS,
            "keystores": {"jks": _PASSWORD, "pkcs12": {**_PASSWORD, "profile": "Modern2023"}},
        },
        secret_labels=template["labels"],
        secret_annotations=template["annotations"],
        secret_data={
            "keystore.jks": jks,
            "truststore.jks": jks_trust,
            "keystore.p12": p12,
            "truststore.p12": p12_trust,
            "key.der": der,
            "tls-combined.pem": pem + b"\n" + plain.chain,
        },
    )
    # The same certificate, not another one for the same key.
    renewal.__dict__["chain"] = plain.chain
    return renewal


def every_name() -> Issued:
    """All kinds of names, a subject, usages, a duration and a time to renew."""
    names = Names(
        common_name="all.example.org",
        subject={
            "organizations": ["Example"],
            "organizationalUnits": ["Web"],
            "countries": ["DE"],
            "localities": ["Berlin"],
            "provinces": ["BE"],
            "streetAddresses": ["Street 1"],
            "postalCodes": ["10115"],
        },
        serial_number="42",
        dns=["all.example.org", "*.all.example.org"],
        ips=["192.0.2.1", "2001:db8::1"],
        uris=["spiffe://example.org/all"],
        emails=["all@example.org"],
    )
    return Issued(
        "every-name",
        CLUSTER_CA,
        names,
        encoding="PKCS8",
        spec={
            "privateKey": {"algorithm": "ECDSA", "size": 256, "encoding": "PKCS8", "rotationPolicy": "Never"},
            "duration": "2160h0m0s",
            "renewBefore": "360h0m0s",
            "usages": ["digital signature", "key encipherment", "server auth", "client auth"],
        },
        client=True,
        renewal=BORN + timedelta(days=75),
    )


def changed_unnoticed() -> list[Issued]:
    """The spec has changed in what cert-manager does not compare: it waits for the next renewal."""
    names = Names(dns=["later.example.org"])
    constraints = {"critical": True, "permitted": {"dnsDomains": ["example.org"]}}
    ca = Names(common_name="Team CA", is_ca=True)
    return [
        Issued("duration-later", CA, names, spec={"duration": "8760h"}, request_spec={"duration": None}),
        Issued("usages-later", CA, names, spec={"encodeUsagesInRequest": False}),
        Issued("hash-later", CA, names, spec={"signatureAlgorithm": "ECDSAWithSHA384"}),
        Issued("constraints-later", CA, ca, spec={"nameConstraints": constraints}),
    ]


def plain() -> list[Issued]:
    """In the steady state, one for each thing that can differ."""
    web, second = WEB, timedelta(seconds=1)
    from_shim = {
        "labels": {"app": "shop"},
        "ownerReferences": [owner("Ingress", "shop", api="networking.k8s.io/v1")],
    }
    inject = {"cert-manager.io/allow-direct-injection": "true"}
    return [
        Issued("by-ca", CA, web, key=new_key("RSA"), spec={"privateKey": None}, authority=INTERMEDIATE),
        Issued("by-full-reference", FULL, web, authority=INTERMEDIATE),
        Issued("by-itself", {"name": "self"}, Names(common_name="self", dns=["self.example.org"])),
        Issued("ed25519", CA, web, key=new_key("Ed25519"), spec={"privateKey": {"algorithm": "Ed25519"}}),
        Issued("by-vault", {"name": "vault", "kind": "Issuer"}, web),
        Issued("by-venafi", {"name": "venafi", "kind": "Issuer"}, web),
        # As those of Let's Encrypt: a second less than 90 days, a third of which is no whole second.
        Issued("by-acme", ACME, web, has_ca=False, life=timedelta(days=90) - second),
        Issued("by-stranger", {"name": "x", "kind": "AWSPCAIssuer", "group": "awspca.example.org"}, web),
        Issued(
            "percentage",
            CA,
            web,
            spec={"renewBeforePercentage": 25},
            renewal=BORN + timedelta(days=67, hours=12),
        ),
        Issued(
            "team-ca", CA, Names(common_name="Team", is_ca=True), spec={"isCA": True, "duration": "2160h0m0s"}
        ),
        Issued(
            "literal",
            CA,
            Names(common_name="literal"),
            spec={"literalSubject": "CN=literal", "commonName": None},
        ),
        Issued("shop", CA, web, certificate_meta=from_shim, notes_of_others=inject),
        every_name(),
        with_all_outputs(),
        *changed_unnoticed(),
    ]


def old_versions() -> list[Issued]:
    """Of cert-manager 1.1: without the label, without applied fields, without some annotations."""
    return [
        Issued("ancient", CA, Names(dns=["ancient.example.org"]), modern=False),
        Issued(
            "ancient-team",
            CLUSTER_CA,
            Names(common_name="Team", subject={"organizations": ["Example"]}, emails=["team@example.org"]),
            modern=False,
        ),
    ]


def failed_one() -> list[Json]:
    """Its third attempt to renew has failed an hour ago; the certificate is still good."""
    made = Issued(
        "failing", ACME, Names(dns=["failing.example.org"]), begin=START - timedelta(days=70), has_ca=False
    )
    why = 'Failed to wait for order resource "failing-2-1234" to become ready: order is in "invalid" state: '
    text = f"The certificate request has failed to complete and will be retried: {why}"
    hour = START - timedelta(hours=1)
    status = {"lastFailureTime": stamp(hour), "failedIssuanceAttempts": 3}
    ended = condition("Issuing", "False", "Failed", text, generation=1)
    request = made.request(approved(), failed(why), revision=2, failureTime=stamp(hour))
    order = {
        "apiVersion": "acme.cert-manager.io/v1",
        "kind": "Order",
        "metadata": meta(
            "Order", "failing-2-1234", ownerReferences=[owner("CertificateRequest", "failing-2")]
        ),
        "spec": {
            "request": request["spec"]["request"],
            "issuerRef": ACME,
            "dnsNames": ["failing.example.org"],
        },
        "status": {
            "state": "errored",
            "reason": "429 urn:ietf:params:acme:error:rateLimited",
            "failureTime": stamp(hour),
        },
    }
    return [made.certificate(ended, **status), made.secret(), made.request(), request, order]


def with_history() -> list[Json]:
    """Three revisions are kept."""
    made = Issued(
        "history", CA, Names(dns=["history.example.org"]), revision=3, spec={"revisionHistoryLimit": 3}
    )
    others = [replace(made, key=new_key(), revision=number).request() for number in (1, 2)]
    # Before 1.9 names were random.
    others[0]["metadata"]["name"] = "history-9xk2p"
    return [made.certificate(), made.secret(), made.request(), *others]


def order_of(made: Issued) -> Json:
    """The Order that gave the current certificate; its Challenges are gone."""
    request = made.request()
    base = "https://acme-v02.api.example.org/acme"
    return {
        "apiVersion": "acme.cert-manager.io/v1",
        "kind": "Order",
        "metadata": meta(
            "Order",
            f"{made.name}-1-2745722290",
            annotations=request["metadata"]["annotations"],
            ownerReferences=[owner("CertificateRequest", f"{made.name}-1")],
        ),
        "spec": {"request": request["spec"]["request"], "issuerRef": ACME, "dnsNames": list(made.names.dns)},
        "status": {
            "authorizations": [
                {
                    "url": f"{base}/authz/1",
                    "identifier": made.names.dns[0],
                    "wildcard": False,
                    "initialState": "pending",
                    "challenges": [{"type": "http-01", "url": f"{base}/chall/1", "token": "abc"}],
                }
            ],
            "certificate": b64(made.chain),
            "finalizeURL": f"{base}/finalize/1",
            "state": "valid",
            "url": f"{base}/order/1",
        },
    }


def shop() -> Json:
    """The Ingress that a Certificate was made for."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": meta("Ingress", "shop"),
        "spec": {},
    }


def settled() -> list[Json]:
    """Everything that is at rest, as a current cert-manager leaves it."""
    objects = [shop(), *issuers(), *issuer_secrets(), *with_history()]
    for made in plain():
        objects += made.all()
        if made.name == "by-acme":
            objects.append(order_of(made))
    return objects

"""One valid object of every kind that the API server lets clients create."""

from __future__ import annotations

import base64
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Json = dict[str, Any]

_ISSUER = {"name": "i"}
_OURS = "certwright.io"
_RBAC = "rbac.authorization.k8s.io"
_ACCOUNT = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
_HOOK = {
    "name": "h.test.dev",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "failurePolicy": "Ignore",
    "clientConfig": {"url": "https://127.0.0.1:1/"},
    "rules": [
        {"apiGroups": ["test.dev"], "apiVersions": ["v1"], "resources": ["nothing"], "operations": ["*"]}
    ],
}
_WORKLOAD = {
    "selector": {"matchLabels": {"app": "a"}},
    "template": {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
    },
}
_MOMENT = "2026-01-01T00:00:00.000000Z"


def _signing_request() -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a.example.com")])
    key = ec.generate_private_key(ec.SECP256R1())
    signed = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


_REQUEST = _signing_request()

_SPECS: dict[tuple[str, str], Json] = {
    ("cert-manager.io", "certificates"): {
        "spec": {"secretName": "s", "dnsNames": ["a.example.com"], "issuerRef": _ISSUER}
    },
    ("cert-manager.io", "certificaterequests"): {"spec": {"request": _REQUEST, "issuerRef": _ISSUER}},
    ("cert-manager.io", "issuers"): {"spec": {"ca": {"secretName": "s"}}},
    ("cert-manager.io", "clusterissuers"): {"spec": {"selfSigned": {}}},
    ("acme.cert-manager.io", "orders"): {
        "spec": {"request": _REQUEST, "dnsNames": ["a.example.com"], "issuerRef": _ISSUER}
    },
    ("acme.cert-manager.io", "challenges"): {
        "spec": {
            "url": "https://ca.test/c",
            "authorizationURL": "https://ca.test/a",
            "dnsName": "a.example.com",
            "type": "HTTP-01",
            "token": "t",
            "key": "t.k",
            "solver": {"http01": {"ingress": {}}},
            "issuerRef": _ISSUER,
        }
    },
    (_OURS, "issuersets"): {"spec": {"issuers": [_ISSUER, {"name": "j"}]}},
    (_OURS, "clusterissuersets"): {"spec": {"issuers": [_ISSUER | {"kind": "ClusterIssuer"}]}},
    (_OURS, "deliveries"): {
        "spec": {
            "root": "r",
            "path": "a",
            "secretRef": {"name": "s"},
            "outputs": [{"name": "tls.crt", "format": "CertificateChain"}],
        }
    },
    ("", "configmaps"): {"data": {"a": "b"}},
    ("", "endpoints"): {},
    ("", "events"): {
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "R",
        "type": "Normal",
    },
    ("", "nodes"): {},
    ("apps", "deployments"): {"spec": _WORKLOAD},
    ("apps", "daemonsets"): {"spec": _WORKLOAD},
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): {
        "spec": {
            "matchConstraints": {"resourceRules": _HOOK["rules"]},
            "validations": [{"expression": "true"}],
        }
    },
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): {
        "spec": {"policyName": "p", "validationActions": ["Deny"]}
    },
    ("", "limitranges"): {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}},
    ("", "namespaces"): {},
    ("", "pods"): {"spec": {"containers": [{"name": "c", "image": "nginx:1"}]}},
    ("", "resourcequotas"): {"spec": {"hard": {"pods": "1"}}},
    ("", "secrets"): {"stringData": {"a": "b"}},
    ("", "serviceaccounts"): {},
    ("", "services"): {"spec": {"ports": [{"port": 80}]}},
    ("coordination.k8s.io", "leases"): {"spec": {"holderIdentity": "h"}},
    ("discovery.k8s.io", "endpointslices"): {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
    },
    ("events.k8s.io", "events"): {
        "eventTime": _MOMENT,
        "reportingController": "test.dev/c",
        "reportingInstance": "c-1",
        "action": "A",
        "reason": "R",
        "type": "Normal",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    },
    ("networking.k8s.io", "ingressclasses"): {"spec": {"controller": "test.dev/c"}},
    ("networking.k8s.io", "ingresses"): {
        "spec": {"defaultBackend": {"service": {"name": "w", "port": {"number": 80}}}}
    },
    (_RBAC, "clusterroles"): {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    (_RBAC, "roles"): {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    (_RBAC, "clusterrolebindings"): {
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [_ACCOUNT],
    },
    (_RBAC, "rolebindings"): {
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [_ACCOUNT],
    },
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {"webhooks": [_HOOK]},
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): {"webhooks": [_HOOK]},
    ("certificates.k8s.io", "certificatesigningrequests"): {
        "spec": {"signerName": "example.com/a", "usages": ["client auth"], "request": _REQUEST}
    },
    ("authentication.k8s.io", "selfsubjectreviews"): {},
    ("authentication.k8s.io", "tokenreviews"): {"spec": {"token": "t"}},
    ("authorization.k8s.io", "localsubjectaccessreviews"): {
        "spec": {
            "user": "u",
            "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"},
        }
    },
    ("authorization.k8s.io", "selfsubjectaccessreviews"): {
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    },
    ("authorization.k8s.io", "selfsubjectrulesreviews"): {"spec": {"namespace": "default"}},
    ("authorization.k8s.io", "subjectaccessreviews"): {
        "spec": {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    },
}


def resources() -> list[tuple[str, str]]:
    """The groups and plurals of all of them, cert-manager's first."""
    own = [("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")]
    return [*_SPECS, *own]


def valid_object(group: str, plural: str, kind: str, number: int) -> Json:
    """A valid object of that kind, with a name that no other number has."""
    fields = _SPECS.get((group, plural))
    metadata: Json = {"name": f"{group.partition('.')[0] or 'core'}-{number}"}
    if plural == "customresourcedefinitions":
        metadata, fields = {"name": f"things{number}.test.dev"}, _definition(number)
    elif plural == "apiservices":
        metadata = {"name": f"v{number + 1}.absent.test.dev"}
        fields = {"spec": {"group": "absent.test.dev", "version": f"v{number + 1}"}}
        fields["spec"] |= {"groupPriorityMinimum": 1000, "versionPriority": 15}
    assert fields is not None, f"{group}/{plural} has no object in this table"
    return {"apiVersion": api_version_of(group), "kind": kind, "metadata": metadata, **fields}


def api_version_of(group: str) -> str:
    """The only version of a group that is served."""
    return "v1" if not group else f"{group}/v1alpha1" if group == _OURS else f"{group}/v1"


def root_of(group: str) -> str:
    """The path of that version."""
    return f"/apis/{api_version_of(group)}" if group else "/api/v1"


def _definition(number: int) -> Json:
    plural = f"things{number}"
    spec = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "spec": {
            "group": "test.dev",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": f"thing{number}", "kind": f"Thing{number}"},
            "versions": [version],
        }
    }

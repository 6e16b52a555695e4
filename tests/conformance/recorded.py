"""What kubectl, cert-manager's controller and cmctl were seen to ask a server of Kubernetes' own code.

And how it answered: cert-manager 1.21.1 (client-go 0.36), kubectl 1.36, cmctl, against Kubernetes 1.36.

`…` stands for what differs from request to request, `{ns}` and `{name}` for a namespace and a name.
"""

from __future__ import annotations

from typing import NamedTuple


class Recorded(NamedTuple):
    """One shape of a request, and all statuses that answered it. `body` is the end of its content type."""

    who: str
    method: str
    path: str
    query: str
    accept: str
    body: str
    statuses: tuple[int, ...]


ACCEPT = {
    "A1": "",
    "A2": "application/vnd.kubernetes.protobuf,application/json",
    "A3": "application/json, */*",
    "A4": (
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
        "application/json"
    ),
    "A5": (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
        "application/json"
    ),
    "A6": "application/json",
    "A7": (
        "application/json;as=Table;v=v1;g=meta.k8s.io,"
        "application/json;as=Table;v=v1beta1;g=meta.k8s.io,"
        "application/json"
    ),
    "A8": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
}

REQUESTS = (
    Recorded("cm informers", "HEAD", "/livez/ping", "", "A1", "", (200,)),
    Recorded(
        "cm leader-election",
        "GET",
        "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/{name}",
        "",
        "A2",
        "",
        (200,),
    ),
    Recorded(
        "cm leader-election",
        "PUT",
        "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/{name}",
        "",
        "A2",
        "vnd.kubernetes.protobuf",
        (200,),
    ),
    Recorded("cm leader-election", "POST", "/api/v1/namespaces/{ns}/events", "", "A3", "json", (201,)),
    Recorded(
        "cm informers",
        "GET",
        "/api/v1/services",
        "allowWatchBookmarks=true&labelSelector=acme.cert-manager.io/http-domain&"
        "resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeout=…&timeoutSeconds=…&"
        "watch=true",
        "A4",
        "",
        (200,),
    ),
    Recorded(
        "cm informers",
        "GET",
        "/apis/acme.cert-manager.io/v1/orders",
        "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&"
        "timeout=…&timeoutSeconds=…&watch=true",
        "A3",
        "",
        (200,),
    ),
    Recorded(
        "cm informers",
        "GET",
        "/api/v1/pods",
        "allowWatchBookmarks=true&labelSelector=acme.cert-manager.io/http-domain&"
        "resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeout=…&timeoutSeconds=…&"
        "watch=true",
        "A4",
        "",
        (200,),
    ),
    Recorded(
        "cm informers",
        "GET",
        "/apis/cert-manager.io/v1/certificaterequests",
        "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&"
        "timeout=…&timeoutSeconds=…&watch=true",
        "A3",
        "",
        (200,),
    ),
    Recorded(
        "cm informers",
        "GET",
        "/apis/acme.cert-manager.io/v1/challenges",
        "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&"
        "timeout=…&timeoutSeconds=…&watch=true",
        "A3",
        "",
        (200,),
    ),
    Recorded(
        "cm informers",
        "GET",
        "/apis/cert-manager.io/v1/certificates",
        "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&"
        "timeout=…&timeoutSeconds=…&watch=true",
        "A3",
        "",
        (200,),
    ),
    Recorded(
        "cm informers",
        "GET",
        "/apis/networking.k8s.io/v1/ingresses",
        "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&"
        "timeout=…&timeoutSeconds=…&watch=true",
        "A2",
        "",
        (200,),
    ),
    Recorded(
        "cm informers",
        "GET",
        "/apis/cert-manager.io/v1/issuers",
        "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&"
        "timeout=…&timeoutSeconds=…&watch=true",
        "A3",
        "",
        (200,),
    ),
    Recorded(
        "cm informers",
        "GET",
        "/api/v1/secrets",
        "allowWatchBookmarks=true&labelSelector=controller.cert-manager.io/fao=true&"
        "resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeout=…&timeoutSeconds=…&"
        "watch=true",
        "A2",
        "",
        (200,),
    ),
    Recorded(
        "cm informers",
        "GET",
        "/api/v1/secrets",
        "allowWatchBookmarks=true&labelSelector=!controller.cert-manager.io/fao&"
        "resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeout=…&timeoutSeconds=…&"
        "watch=true",
        "A4",
        "",
        (200,),
    ),
    Recorded(
        "cm informers",
        "GET",
        "/apis/cert-manager.io/v1/clusterissuers",
        "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&"
        "timeout=…&timeoutSeconds=…&watch=true",
        "A3",
        "",
        (200,),
    ),
    Recorded("kubectl", "GET", "/version", "timeout=…", "A3", "", (200,)),
    Recorded("kubectl", "GET", "/openapi/v3", "timeout=…", "A3", "", (304,)),
    Recorded("kubectl", "GET", "/api", "timeout=…", "A5", "", (200, 304)),
    Recorded("kubectl", "GET", "/apis", "timeout=…", "A5", "", (200,)),
    Recorded("kubectl", "GET", "/apis/{group}/{version}", "timeout=…", "A3", "", (200,)),
    Recorded("kubectl", "GET", "/api/v1", "timeout=…", "A3", "", (200,)),
    Recorded(
        "kubectl", "GET", "/apis/cert-manager.io/v1/namespaces/{ns}/issuers/{name}", "", "A6", "", (200, 404)
    ),
    Recorded(
        "kubectl",
        "POST",
        "/apis/cert-manager.io/v1/namespaces/{ns}/issuers",
        "fieldManager=…&fieldValidation=Strict",
        "A6",
        "json",
        (201,),
    ),
    Recorded(
        "kubectl",
        "GET",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates/{name}",
        "",
        "A6",
        "",
        (200, 404),
    ),
    Recorded(
        "cm controller",
        "PUT",
        "/apis/cert-manager.io/v1/namespaces/{ns}/issuers/{name}/status",
        "",
        "A3",
        "json",
        (200,),
    ),
    Recorded(
        "kubectl",
        "POST",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates",
        "fieldManager=…&fieldValidation=Strict",
        "A6",
        "json",
        (201,),
    ),
    Recorded(
        "cm controller",
        "PUT",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates/{name}/status",
        "",
        "A3",
        "json",
        (200, 409),
    ),
    Recorded("cm controller", "POST", "/api/v1/namespaces/{ns}/events", "", "A3", "json", (201,)),
    Recorded(
        "kubectl",
        "GET",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates",
        "fieldSelector=metadata.name=c&limit=500&resourceVersion=0",
        "A6",
        "",
        (200,),
    ),
    Recorded(
        "kubectl",
        "GET",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates",
        "allowWatchBookmarks=true&fieldSelector=metadata.name=c&resourceVersion=…&"
        "timeoutSeconds=…&watch=true",
        "A6",
        "",
        (200,),
    ),
    Recorded(
        "cm controller",
        "GET",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates/{name}",
        "",
        "A3",
        "",
        (200,),
    ),
    Recorded(
        "cm controller",
        "POST",
        "/api/v1/namespaces/{ns}/secrets",
        "",
        "A2",
        "vnd.kubernetes.protobuf",
        (201,),
    ),
    Recorded(
        "cm controller",
        "POST",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificaterequests",
        "fieldManager=…",
        "A3",
        "json",
        (201,),
    ),
    Recorded(
        "cm controller",
        "PUT",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificaterequests/{name}/status",
        "",
        "A3",
        "json",
        (200,),
    ),
    Recorded(
        "cm controller",
        "PATCH",
        "/api/v1/namespaces/{ns}/secrets/{name}",
        "fieldManager=…&force=true",
        "A2",
        "apply-patch+yaml",
        (200, 201),
    ),
    Recorded(
        "cm controller",
        "DELETE",
        "/api/v1/namespaces/{ns}/secrets/{name}",
        "",
        "A2",
        "vnd.kubernetes.protobuf",
        (200,),
    ),
    Recorded("kubectl", "GET", "/apis/cert-manager.io/v1/certificates", "limit=500", "A7", "", (200,)),
    Recorded(
        "kubectl",
        "GET",
        "/api/v1/namespaces/{ns}/events",
        ""
        "fieldSelector=involvedObject.namespace=default,involvedObject.kind=Certificate,involvedObject.uid=…,involvedObject.name=c&"
        "limit=500",
        "A2",
        "",
        (200,),
    ),
    Recorded(
        "kubectl",
        "GET",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates",
        "limit=500&timeout=…",
        "A7",
        "",
        (200,),
    ),
    Recorded(
        "kubectl",
        "GET",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates",
        "resourceVersion=…&timeout=…&watch=true",
        "A7",
        "",
        (200,),
    ),
    Recorded("kubectl", "GET", "/openapi/v2", "timeout=…", "A8", "", (200, 304)),
    Recorded(
        "kubectl",
        "PATCH",
        "/apis/cert-manager.io/v1/namespaces/{ns}/issuers/{name}",
        "fieldManager=…&fieldValidation=Strict&force=true",
        "A6",
        "apply-patch+yaml",
        (200,),
    ),
    Recorded(
        "kubectl",
        "PATCH",
        "/apis/cert-manager.io/v1/namespaces/{ns}/issuers/{name}",
        "fieldManager=…&fieldValidation=Strict",
        "A6",
        "apply-patch+yaml",
        (200,),
    ),
    Recorded(
        "kubectl",
        "PATCH",
        "/apis/cert-manager.io/v1/namespaces/{ns}/issuers/{name}",
        "fieldManager=…&fieldValidation=Strict",
        "A6",
        "json-patch+json",
        (200,),
    ),
    Recorded(
        "kubectl",
        "PATCH",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates/{name}",
        "fieldManager=…&fieldValidation=Strict&force=true",
        "A6",
        "apply-patch+yaml",
        (200,),
    ),
    Recorded(
        "kubectl",
        "PATCH",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates/{name}",
        "fieldManager=…&fieldValidation=Strict",
        "A6",
        "apply-patch+yaml",
        (200,),
    ),
    Recorded(
        "kubectl",
        "PATCH",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates/{name}",
        "fieldManager=…&fieldValidation=Strict",
        "A6",
        "json-patch+json",
        (200,),
    ),
    Recorded(
        "kubectl",
        "POST",
        "/api/v1/namespaces/{ns}/configmaps",
        "fieldManager=…&fieldValidation=Strict",
        "A2",
        "vnd.kubernetes.protobuf",
        (409,),
    ),
    Recorded("kubectl", "GET", "/api/v1/namespaces/{ns}/configmaps/{name}", "", "A6", "", (200, 404)),
    Recorded(
        "kubectl",
        "PATCH",
        "/api/v1/namespaces/{ns}/configmaps/{name}",
        "fieldManager=…",
        "A6",
        "merge-patch+json",
        (200,),
    ),
    Recorded(
        "kubectl",
        "PATCH",
        "/api/v1/namespaces/{ns}/configmaps/{name}",
        "fieldManager=…",
        "A6",
        "strategic-merge-patch+json",
        (200,),
    ),
    Recorded("kubectl", "GET", "/api/v1", "", "A3", "", (200,)),
    Recorded(
        "kubectl",
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "",
        "A2",
        "vnd.kubernetes.protobuf",
        (201,),
    ),
    Recorded(
        "kubectl",
        "POST",
        "/api/v1/namespaces/{ns}/serviceaccounts/{name}/token",
        "",
        "A2",
        "vnd.kubernetes.protobuf",
        (201,),
    ),
    Recorded("kubectl", "GET", "/api/v1/namespaces/{ns}/events", "limit=500", "A7", "", (200,)),
    Recorded("kubectl", "DELETE", "/api/v1/namespaces/{ns}/configmaps/{name}", "", "A6", "json", (200,)),
    Recorded("kubectl", "GET", "/api/v1/namespaces/{ns}/secrets", "limit=1", "A7", "", (200,)),
    Recorded(
        "kubectl",
        "PATCH",
        "/apis/cert-manager.io/v1/namespaces/{ns}/issuers/{name}",
        "fieldManager=…&fieldValidation=Strict",
        "A6",
        "merge-patch+json",
        (200,),
    ),
    Recorded(
        "kubectl",
        "PATCH",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates/{name}",
        "fieldManager=…&fieldValidation=Strict",
        "A6",
        "merge-patch+json",
        (200,),
    ),
    Recorded(
        "kubectl",
        "DELETE",
        "/apis/cert-manager.io/v1/namespaces/{ns}/issuers/{name}",
        "",
        "A6",
        "json",
        (200,),
    ),
    Recorded(
        "kubectl",
        "DELETE",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates/{name}",
        "",
        "A6",
        "json",
        (200,),
    ),
    Recorded(
        "kubectl",
        "PUT",
        "/apis/cert-manager.io/v1/namespaces/{ns}/issuers/{name}",
        "fieldManager=…&fieldValidation=Strict",
        "A6",
        "json",
        (200,),
    ),
    Recorded(
        "kubectl",
        "PUT",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates/{name}",
        "fieldManager=…&fieldValidation=Strict",
        "A6",
        "json",
        (200,),
    ),
    Recorded(
        "cmctl", "GET", "/apis/cert-manager.io/v1/namespaces/{ns}/certificates/{name}", "", "A3", "", (200,)
    ),
    Recorded(
        "cmctl",
        "PUT",
        "/apis/cert-manager.io/v1/namespaces/{ns}/certificates/{name}/status",
        "",
        "A3",
        "json",
        (200,),
    ),
    Recorded(
        "cmctl",
        "GET",
        "/api/v1/namespaces/{ns}/events",
        "fieldSelector=involvedObject.name=c,involvedObject.namespace=default,"
        "involvedObject.kind=Certificate,involvedObject.uid=…",
        "A2",
        "",
        (200,),
    ),
    Recorded("cmctl", "GET", "/apis/cert-manager.io/v1/namespaces/{ns}/issuers/{name}", "", "A3", "", (200,)),
    Recorded(
        "cmctl",
        "GET",
        "/api/v1/namespaces/{ns}/events",
        "fieldSelector=involvedObject.name=s,involvedObject.namespace=default,"
        "involvedObject.kind=Issuer,involvedObject.uid=…",
        "A2",
        "",
        (200,),
    ),
    Recorded("cmctl", "GET", "/api/v1/namespaces/{ns}/secrets/{name}", "", "A2", "", (200,)),
    Recorded(
        "cmctl",
        "GET",
        "/api/v1/namespaces/{ns}/events",
        "fieldSelector=involvedObject.name=c,involvedObject.namespace=default,"
        "involvedObject.kind=Secret,involvedObject.uid=…",
        "A2",
        "",
        (200,),
    ),
    Recorded(
        "cmctl", "GET", "/apis/cert-manager.io/v1/namespaces/{ns}/certificaterequests", "", "A3", "", (200,)
    ),
)

"""The built-in kinds behind the server: defaults, rules, subresources, columns."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from certwright.pki import der
from certwright.pki.pem import join
from kube.apiserver.callers import ADMIN, MERGE, STRATEGIC, TABLE, Api, Json
from kube.apiserver.callers import signing_request as request

DEFAULT = "/api/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def request_of_rsa_key(modulus: int, exponent: int) -> str:
    """A request with that key, whose signature is wrong."""
    numbers = der.sequence(der.integer(modulus), der.integer(exponent))
    algorithm = der.sequence(der.oid("1.2.840.113549.1.1.1"), der.null())
    key = der.sequence(algorithm, der.element(der.BIT_STRING, b"\0", numbers))
    info = der.sequence(der.integer(0), der.sequence(), key, der.element(der.CONTEXT_0))
    signed_with = der.sequence(der.oid("1.2.840.113549.1.1.11"), der.null())
    signed = der.sequence(info, signed_with, der.element(der.BIT_STRING, b"\0", bytes(256)))
    return base64.b64encode(join([(b"CERTIFICATE REQUEST", signed)])).decode()


def signing_request(**spec: Any) -> Json:
    return {
        "metadata": {"name": "r"},
        "spec": {
            "signerName": "example.com/a",
            "usages": ["client auth"],
            "request": request(),
            **spec,
        },
    }


async def causes(api: Api, path: str, body: Json) -> list[str]:
    answer = await api.call("POST", path, body)
    assert answer.status == 422, answer.body
    return [f"{cause['field']}: {cause['message']}" for cause in answer.json["details"]["causes"]]


async def test_a_service_gets_what_clients_rely_on(api: Api) -> None:
    body = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    service = await api.ok("POST", f"{DEFAULT}/services", body)
    assert service["spec"] == {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    }
    assert service["status"] == {"loadBalancer": {}}
    ports = [{"port": 80}, {"port": 0, "name": "b"}]
    assert await causes(
        api, f"{DEFAULT}/services", {"metadata": {"name": "b"}, "spec": {"ports": ports}}
    ) == [
        "spec.ports[0].name: Required value",
        "spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        "spec.ports[1].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
    ]


async def test_a_patch_finds_the_port_of_a_service(api: Api) -> None:
    ports = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]
    await api.ok("POST", f"{DEFAULT}/services", {"metadata": {"name": "web"}, "spec": {"ports": ports}})
    patch = {"spec": {"ports": [{"port": 81, "targetPort": 8081}]}}
    media = "application/strategic-merge-patch+json"
    service = await api.ok("PATCH", f"{DEFAULT}/services/web", patch, content_type=media)
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(80, 80), (81, 8081)]


async def test_two_writers_of_conditions_of_a_node_keep_both(api: Api) -> None:
    """kubelet and node-problem-detector each patch their own conditions."""
    await api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    for condition in ("Ready", "KernelDeadlock"):
        patch = {"status": {"conditions": [{"type": condition, "status": "True"}]}}
        node = await api.ok("PATCH", "/api/v1/nodes/n/status", patch, content_type=STRATEGIC)
    assert sorted(c["type"] for c in node["status"]["conditions"]) == ["KernelDeadlock", "Ready"]


async def test_a_pod_is_stored_pending(api: Api) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}
    pod = await api.ok("POST", f"{DEFAULT}/pods", body)
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert pod["spec"]["restartPolicy"] == "Always"
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    await api.ok("PATCH", f"{DEFAULT}/pods/p/status", {"status": {"phase": "Running"}}, content_type=MERGE)
    listing = await api.ok("GET", f"{DEFAULT}/pods?fieldSelector=status.phase=Running,spec.hostNetwork=false")
    assert [item["metadata"]["name"] for item in listing["items"]] == ["p"]
    row = (await api.ok("GET", f"{DEFAULT}/pods/p", accept=TABLE))["rows"][0]
    assert row["cells"][:4] == ["p", "0/1", "Running", "0"]


async def test_an_ingress_is_judged(api: Api) -> None:
    rule = {"host": "*.x", "http": {"paths": [{"path": "x", "backend": {"service": {"name": "w"}}}]}}
    body = {"metadata": {"name": "i"}, "spec": {"rules": [rule]}}
    assert [cause.partition(":")[0] for cause in await causes(api, INGRESSES, body)] == [
        "spec.rules[0].http.paths[0].pathType",
        "spec.rules[0].http.paths[0].path",
        "spec.rules[0].http.paths[0].backend",
    ]
    path = rule["http"]["paths"][0]  # type: ignore[index] # a literal of mixed types
    path |= {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "w", "port": {"number": 80}}}}
    ingress = await api.ok("POST", INGRESSES, body)
    assert (ingress["metadata"]["generation"], ingress["status"]) == (1, {"loadBalancer": {}})


async def test_roles_and_bindings_are_judged(api: Api) -> None:
    rules: list[Json] = [{"verbs": []}, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]
    assert await causes(
        api, f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "r"}, "rules": rules}
    ) == [
        "rules[0].verbs: Required value: verbs must contain at least one value",
        "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        "rules[0].resources: Required value: resource rules must supply at least one resource",
        'rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
    ]
    binding: Json = {
        "metadata": {"name": "a:b"},
        "roleRef": {"kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "name": "jane"}],
    }
    made = await api.ok("POST", f"{RBAC}/clusterrolebindings", binding)
    assert made["roleRef"]["apiGroup"] == made["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"
    made["roleRef"]["name"] = "edit"
    answer = await api.call("PUT", f"{RBAC}/clusterrolebindings/a:b", made)
    assert answer.status == 422
    assert "cannot change roleRef" in answer.message


async def test_a_cluster_role_collects_the_rules_of_others(api: Api) -> None:
    selector = {"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]}
    await api.ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "all"}, "aggregationRule": selector})
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    other = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    for name, rules in (("b", [other, rule]), ("a", [rule])):
        body = {"metadata": {"name": name, "labels": {"to": "all"}}, "rules": rules}
        await api.ok("POST", f"{RBAC}/clusterroles", body)
    await api.settle()
    assert (await api.ok("GET", f"{RBAC}/clusterroles/all"))["rules"] == [rule, other]
    await api.ok("DELETE", f"{RBAC}/clusterroles/b")
    await api.settle()
    assert (await api.ok("GET", f"{RBAC}/clusterroles/all"))["rules"] == [rule]


async def test_a_signing_request_says_who_asked(api: Api) -> None:
    made = await api.ok("POST", CSRS, signing_request(username="somebody", groups=["x"]))
    assert made["spec"]["username"] == ADMIN.name
    assert made["spec"]["groups"] == list(ADMIN.groups)
    made["spec"]["usages"] = ["server auth"]
    changed = await api.ok("PUT", f"{CSRS}/r", made)
    assert changed["spec"]["usages"] == ["client auth"]
    listing = await api.ok("GET", f"{CSRS}?fieldSelector=spec.signerName=example.com/a")
    assert len(listing["items"]) == 1


async def test_a_signing_request_is_approved_and_signed_at_different_doors(api: Api) -> None:
    made = await api.ok("POST", CSRS, signing_request())
    approved = {"type": "Approved", "status": "True", "reason": "R", "message": "m"}
    made["status"] = {"conditions": [approved], "certificate": "bm8="}
    by_status = await api.call("PUT", f"{CSRS}/r/status", made)
    assert (by_status.status, "PEM block" in by_status.message) == (422, True)
    decided = await api.ok("PUT", f"{CSRS}/r/approval", made)
    assert "certificate" not in decided["status"]
    assert decided["status"]["conditions"][0]["lastUpdateTime"]
    decided["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    signed = await api.ok("PUT", f"{CSRS}/r/status", decided)
    assert [condition["type"] for condition in signed["status"]["conditions"]] == ["Approved", "Failed"]
    signed["status"]["conditions"] = []
    answer = await api.call("PUT", f"{CSRS}/r/approval", signed)
    assert 'updates may not remove a condition of type "Approved"' in answer.message


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"signerName": "plain"}, "must be a fully qualified domain and path of the form"),
        ({"usages": []}, "spec.usages: Required value"),
        ({"usages": ["fly"]}, 'spec.usages[0]: Unsupported value: "fly"'),
        ({"request": "bm8="}, "PEM block type must be CERTIFICATE REQUEST"),
        ({"request": request_of_rsa_key(2**9000 + 1, 65537)}, "more than 8192 bits"),
        ({"request": request_of_rsa_key(2**2047 + 1, 2**2046 + 1)}, "an exponent of more than 31 bits"),
        ({"request": request_of_rsa_key(2**2047 + 1, 65537)}, "the signature of the request is wrong"),
        ({"request": base64.b64encode(b"-----BEGIN CERTIFICATE REQUEST-----\n" * 5000).decode()}, "at most"),
        ({"expirationSeconds": 5}, "may not specify a duration less than 600 seconds (10 minutes)"),
    ],
)
async def test_rules_of_signing_requests(api: Api, spec: Json, text: str) -> None:
    [cause] = await causes(api, CSRS, signing_request(**spec))
    assert text in cause


HOOK: Json = {
    "name": "a.b.c",
    "clientConfig": {"url": "https://x"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}


async def test_a_webhook_configuration_is_filled_and_judged(api: Api) -> None:
    made = await api.ok("POST", HOOKS, {"metadata": {"name": "h"}, "webhooks": [HOOK]})
    [kept] = made["webhooks"]
    assert (kept["failurePolicy"], kept["matchPolicy"], kept["timeoutSeconds"]) == ("Fail", "Equivalent", 10)
    assert kept["namespaceSelector"] == kept["objectSelector"] == {}
    bad = {"name": "short", "clientConfig": {}}
    assert await causes(api, HOOKS, {"metadata": {"name": "i"}, "webhooks": [bad]}) == [
        'webhooks[0].name: Invalid value: "short": should be a domain with at least three segments separated '
        "by dots",
        "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
        "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
    ]


async def test_a_selector_with_an_unknown_operator_is_refused(api: Api) -> None:
    """Otherwise the webhook would silently not be called."""
    selector = {"matchExpressions": [{"key": "a", "operator": "Is"}]}
    hook = {**HOOK, "namespaceSelector": selector}
    [cause] = await causes(api, HOOKS, {"metadata": {"name": "h"}, "webhooks": [hook]})
    assert cause.startswith("webhooks[0].namespaceSelector.matchExpressions[0].operator: Invalid value")


async def test_an_api_service_says_whether_it_is_served(api: Api) -> None:
    spec = {"group": "x.dev", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
    local = await api.ok("POST", API_SERVICES, {"metadata": {"name": "v1.x.dev"}, "spec": spec})
    assert local["status"]["conditions"][0]["reason"] == "Local"
    [cause] = await causes(api, API_SERVICES, {"metadata": {"name": "other"}, "spec": spec})
    assert cause.startswith('metadata.name: Invalid value: "other"')


async def test_an_event_has_two_names(api: Api) -> None:
    body = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reportingController": "x.dev/c",
        "reportingInstance": "c-1",
        "action": "Do",
        "reason": "Done",
        "type": "Normal",
        "note": "hello",
    }
    made = await api.ok("POST", NEW_EVENTS, body)
    assert (made["apiVersion"], made["note"]) == ("events.k8s.io/v1", "hello")
    core = await api.ok("GET", f"{DEFAULT}/events/e")
    assert (core["apiVersion"], core["message"]) == ("v1", "hello")
    assert core["involvedObject"]["name"] == "p"
    assert core["reportingComponent"] == "x.dev/c"
    for path, field in ((NEW_EVENTS, "regarding.name"), (f"{DEFAULT}/events", "involvedObject.name")):
        assert len((await api.ok("GET", f"{path}?fieldSelector={field}=p"))["items"]) == 1
        assert (await api.ok("GET", f"{path}?fieldSelector={field}=q"))["items"] == []
    core |= {"count": 2}
    await api.ok("PUT", f"{DEFAULT}/events/e", core)
    assert (await api.ok("GET", f"{NEW_EVENTS}/e"))["deprecatedCount"] == 2
    stream = await api.watch(f"{NEW_EVENTS}?resourceVersion={made['metadata']['resourceVersion']}")
    assert (await stream.next())["object"]["deprecatedCount"] == 2
    await stream.close()


async def test_a_namespace_is_finalized_at_its_own_door(api: Api) -> None:
    path = "/api/v1/namespaces/a"
    made = await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "a"}})
    made["spec"] = {"finalizers": ["x.dev/own"]}
    assert (await api.ok("PUT", path, made))["spec"] == {"finalizers": ["kubernetes"]}
    assert (await api.ok("PUT", f"{path}/finalize", made))["spec"] == {"finalizers": ["x.dev/own"]}


async def test_a_quantity_may_be_applied_as_a_number(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
    body |= {"spec": {"hard": {"limits.cpu": 4}}}
    path = f"{DEFAULT}/resourcequotas/q?fieldManager=me"
    made = await api.ok("PATCH", path, body, content_type="application/apply-patch+yaml")
    assert made["spec"] == {"hard": {"limits.cpu": "4"}}


SERVICES, SLICES = f"{DEFAULT}/services", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
ENDPOINTS, CORE_EVENTS = f"{DEFAULT}/endpoints", f"{DEFAULT}/events"
CLASS = "kubernetes.io/ingress.class"
EVENT = {
    "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    "reportingController": "example.com/c",
    "reportingInstance": "c-1",
    "action": "Act",
    "reason": "Because",
    "type": "Normal",
    "eventTime": "2026-11-27T00:00:00.000000Z",
}


def service(**spec: Any) -> Json:
    return {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], **spec}}


def address_slice(kind: str, *addresses: str, **more: Any) -> Json:
    endpoints = [{"addresses": list(addresses)}]
    return {"metadata": {"name": "s"}, "addressType": kind, "endpoints": endpoints, **more}


def subsets(ip: str, *ports: Json) -> Json:
    return {"metadata": {"name": "s"}, "subsets": [{"addresses": [{"ip": ip}], "ports": list(ports)}]}


def ingress(older: str | None = None, **spec: Any) -> Json:
    about = {"name": "i", "annotations": {CLASS: older} if older is not None else {}}
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    return {"metadata": about, "spec": {"defaultBackend": backend, **spec}}


REFUSED: dict[str, tuple[str, Json, list[str]]] = {
    "a Service with one port twice": (
        SERVICES,
        service(ports=[{"name": "a", "port": 80}, {"name": "b", "port": 80}]),
        ['spec.ports[1]: Duplicate value: {"protocol":"TCP","port":80}'],
    ),
    "a target port with a name that is too long": (
        SERVICES,
        service(ports=[{"port": 80, "targetPort": "a-name-of-20-letters"}]),
        ['spec.ports[0].targetPort: Invalid value: "a-name-of-20-letters": must be no more than 15 ch'],
    ),
    "an IPv4 slice with a host name": (
        SLICES,
        address_slice("IPv4", "a.b"),
        ["endpoints[0].addresses[0]: Invalid value"],
    ),
    "an IPv4 slice with an IPv6 address": (
        SLICES,
        address_slice("IPv4", "2001:db8::1"),
        ["endpoints[0].addresses: Invalid value"],
    ),
    "a slice with a link-local address": (
        SLICES,
        address_slice("IPv6", "fe80::1"),
        ["endpoints[0].addresses[0]: Invalid value"],
    ),
    "a host name of one label": (
        SLICES,
        address_slice("FQDN", "localhost"),
        ["endpoints[0].addresses[0]: Invalid value"],
    ),
    "a slice with two unnamed ports": (
        SLICES,
        address_slice("IPv4", "10.0.0.1", ports=[{"port": 1}, {"port": 2}]),
        ['ports[1].name: Duplicate value: ""'],
    ),
    "Endpoints without an address": (
        ENDPOINTS,
        subsets("bad", {"port": 1}),
        ["subsets[0].addresses[0].ip: Invalid value"],
    ),
    "Endpoints with two unnamed ports": (
        ENDPOINTS,
        subsets("10.0.0.1", {"port": 1}, {"port": 2}),
        ["subsets[0].ports[0].name: Required value", "subsets[0].ports[1].name: Required value"],
    ),
    "an Ingress with two classes": (
        INGRESSES,
        ingress("traefik", ingressClassName="nginx"),
        [f"annotations.{CLASS}: Invalid value: "],
    ),
    "an event of the new group without required fields": (
        NEW_EVENTS,
        {"metadata": {"name": "e"}, "regarding": EVENT["regarding"]},
        ["eventTime: Required value", 'type: Invalid value: "": has invalid value: '],
    ),
    "an event of the new group with fields of the old one": (
        NEW_EVENTS,
        {"metadata": {"name": "e"}, **EVENT, "deprecatedCount": 3, "series": {"count": 1}},
        ["series.count: ", "series.lastObservedTime: Required value", "count: "],
    ),
    "an event of the old group with a time of the new one": (
        CORE_EVENTS,
        {
            "metadata": {"name": "e"},
            "involvedObject": EVENT["regarding"],
            "eventTime": EVENT["eventTime"],
        },
        [
            "reportingComponent: Required value",
            'reportingComponent: Invalid value: "": name part must be non-empty',
            'reportingComponent: Invalid value: "": name part must consist of',
            "reportingInstance: Required value",
            "action: Required value",
            "reason: Required value",
        ],
    ),
    "a ConfigMap that is too large": (
        f"{DEFAULT}/configmaps",
        {"metadata": {"name": "big"}, "data": {"a": "x" * (1 << 20), "b": "y"}},
        ["[]: Too long"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_built_in_kinds_refuse_what_kubernetes_refuses(api: Api, case: str) -> None:
    path, body, expected = REFUSED[case]
    found = await causes(api, path, body)
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


async def test_the_address_of_a_service_is_kept_and_cannot_be_changed(api: Api) -> None:
    await api.ok("POST", SERVICES, service(clusterIP="None"))
    kept = await api.ok("PUT", f"{SERVICES}/s", service(selector={"a": "b"}))
    assert kept["spec"]["clusterIP"] == "None"
    answer = await api.call("PUT", f"{SERVICES}/s", service(clusterIP="10.0.0.1"))
    assert (answer.status, "may not change once set" in answer.message) == (422, True)


async def test_the_annotation_for_an_ingress_class_is_deprecated(api: Api) -> None:
    path = f"{INGRESSES}?dryRun=All"
    answer = await api.call("POST", path, ingress("traefik"))
    assert "please use 'spec.ingressClassName' instead" in answer.headers["warning"]
    answer = await api.call("POST", path, ingress("traefik", ingressClassName="traefik"))
    assert (answer.status, "warning" in answer.headers) == (201, False)


async def test_an_event_of_the_new_group_changes_only_in_its_series(api: Api) -> None:
    event = await api.ok("POST", NEW_EVENTS, {"metadata": {"name": "e"}, **EVENT})
    series = {"count": 2, "lastObservedTime": EVENT["eventTime"]}
    event = await api.ok("PUT", f"{NEW_EVENTS}/e", {**event, "series": series})
    answer = await api.call("PUT", f"{NEW_EVENTS}/e", {**event, "reason": "Other"})
    assert (answer.status, "reason: Invalid value" in answer.message) == (422, True)


@pytest.mark.parametrize("metadata", [{"name": "other"}, {"name": "default", "namespace": "kube-system"}])
async def test_a_token_is_for_the_account_of_the_path(api: Api, metadata: Json) -> None:
    path = f"{DEFAULT}/serviceaccounts/default/token"
    answer = await api.call("POST", path, {"metadata": metadata, "spec": {}})
    assert (answer.status, "if specified" in answer.message) == (422, True)


async def test_a_review_has_a_raw_selector_or_requirements(api: Api) -> None:
    requirement = {"key": "a", "operator": "In", "values": ["b"]}
    selector = {"rawSelector": "a=b", "requirements": [requirement]}
    spec = {"user": "u", "resourceAttributes": {"verb": "list", "labelSelector": selector}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    [cause] = await causes(api, path, {"spec": spec})
    assert cause.startswith("spec.resourceAttributes.labelSelector.rawSelector: Invalid value")

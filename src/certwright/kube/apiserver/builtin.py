"""Built-in kinds of the API server.

Source: Kubernetes API reference; what `kubectl api-resources` prints of a Kubernetes cluster.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType

from certwright.kube.apiserver.base import object_names
from certwright.kube.apiserver.crds import definitions
from certwright.kube.apiserver.crds import rules as crd
from certwright.kube.apiserver.kinds import (
    columns,
    core_services,
    core_strategies,
    network_kinds,
    policy_kinds,
    rbac_kinds,
    registration_kinds,
    signing_requests,
)
from certwright.kube.apiserver.kinds import core_strategies as strategies
from certwright.kube.apiserver.kinds.native import native_kind
from certwright.kube.apiserver.model.definitions import Extensions, ResourceDefinition, Subresource
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.apiserver.verbs import scale
from certwright.kube.util.clock import Clock

_ABOUT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
)


def make_registry(clock: Clock, extensions: Extensions = MappingProxyType({})) -> Registry:
    """A registry of the built-in kinds that accepts CustomResourceDefinitions.

    A written CustomResourceDefinition gets its status (names accepted, established) from the content of the
    registry at that time.
    """
    registry = Registry(partial(definitions.make_definitions, extensions=extensions))
    registry.set_builtin(
        (
            *_core(),
            *_reviews(),
            *_networking(),
            *_roles(),
            *registration(clock),
            *workloads(),
            native_kind(
                "certificates.k8s.io/v1",
                "CertificateSigningRequest",
                "certificatesigningrequests",
                short_names=("csr",),
                namespaced=False,
                columns=columns.SIGNING_REQUEST,
                status_subresource=True,
                subresources=(Subresource(name="approval", shape=partial(signing_requests.approve, clock)),),
                selectable_fields=("spec.signerName",),
                strategy=signing_requests.strategy(clock),
            ),
            native_kind(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                "customresourcedefinitions",
                short_names=("crd", "crds"),
                categories=("api-extensions",),
                namespaced=False,
                schema=crd.DefinitionSchema(extensions),
                columns=columns.CUSTOM_RESOURCE_DEFINITION,
                status_subresource=True,
                has_generation=True,
                unconditional_update=False,
                strategy=crd.STRATEGY,
                stored_version="v1beta1",  # as Kubernetes announces
                is_crd=True,
            ),
        )
    )
    return registry


# --- the core group ---------------------------------------------------------------------------------------


def _core() -> tuple[ResourceDefinition, ...]:
    kind = partial(native_kind, "v1")
    return (
        kind(
            "ConfigMap",
            "configmaps",
            short_names=("cm",),
            columns=columns.CONFIG_MAP,
            strategy=strategies.CONFIG_MAP,
        ),
        kind(
            "Endpoints",
            "endpoints",
            short_names=("ep",),
            columns=columns.ENDPOINTS,
            strategy=core_services.ENDPOINTS,
        ),
        kind(
            "Event",
            "events",
            short_names=("ev",),
            columns=columns.EVENT,
            selectable_fields=(
                *(f"involvedObject.{name}" for name in _ABOUT),
                "reason",
                "reportingComponent",
                "source",
                "type",
            ),
            field_readers={"source": core_strategies.source},
            strategy=strategies.EVENT,
        ),
        kind("LimitRange", "limitranges", short_names=("limits",), columns=columns.CREATED),
        kind(
            "Namespace",
            "namespaces",
            short_names=("ns",),
            namespaced=False,
            # A collection of namespaces cannot be deleted in one request.
            verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
            columns=columns.NAMESPACE,
            status_subresource=True,
            subresources=(Subresource(name="finalize", verbs=("update",), shape=strategies.finalize),),
            selectable_fields=("status.phase",),
            name_rule=object_names.dns_label,
            strategy=strategies.NAMESPACE,
        ),
        kind(
            "Pod",
            "pods",
            short_names=("po",),
            categories=("all",),
            columns=columns.POD,
            status_subresource=True,
            selectable_fields=_POD_FIELDS,
            field_readers={
                "spec.hostNetwork": lambda pod: "true" if pod["spec"].get("hostNetwork") else "false",
                "status.podIPs": lambda pod: ",".join(ip["ip"] for ip in pod["status"].get("podIPs") or ()),
            },
            strategy=core_services.POD,
        ),
        kind(
            "ResourceQuota",
            "resourcequotas",
            short_names=("quota",),
            columns=columns.RESOURCE_QUOTA,
            status_subresource=True,
            strategy=core_services.RESOURCE_QUOTA,
        ),
        kind(
            "Secret",
            "secrets",
            columns=columns.SECRET,
            selectable_fields=("type",),
            strategy=strategies.SECRET,
        ),
        kind(
            "ServiceAccount",
            "serviceaccounts",
            short_names=("sa",),
            columns=columns.SERVICE_ACCOUNT,
            subresources=(
                Subresource(
                    name="token", verbs=("create",), kind=("authentication.k8s.io", "v1", "TokenRequest")
                ),
            ),
        ),
        kind(
            "Service",
            "services",
            short_names=("svc",),
            categories=("all",),
            columns=columns.SERVICE,
            status_subresource=True,
            selectable_fields=("spec.clusterIP", "spec.type"),
            name_rule=object_names.dns_1035_label,
            strategy=core_services.SERVICE,
        ),
    )


# --- authorization ----------------------------------------------------------------------------------------


def _reviews() -> tuple[ResourceDefinition, ...]:
    """Reviews, which are answered and never stored."""
    ask = {"namespaced": False, "virtual": True, "verbs": ("create",), "strategic": None}
    who, may = "authentication.k8s.io/v1", "authorization.k8s.io/v1"
    return (
        native_kind(who, "SelfSubjectReview", "selfsubjectreviews", **ask),
        native_kind(who, "TokenReview", "tokenreviews", **ask),
        native_kind(
            may, "LocalSubjectAccessReview", "localsubjectaccessreviews", **{**ask, "namespaced": True}
        ),
        native_kind(may, "SelfSubjectAccessReview", "selfsubjectaccessreviews", **ask),
        native_kind(may, "SelfSubjectRulesReview", "selfsubjectrulesreviews", **ask),
        native_kind(may, "SubjectAccessReview", "subjectaccessreviews", **ask),
    )


def _roles() -> tuple[ResourceDefinition, ...]:
    kind = partial(native_kind, f"{rbac_kinds.GROUP}/v1", name_rule=object_names.path_segment)
    binding = {"columns": columns.BINDING, "strategy": rbac_kinds.BINDING}
    role = {"columns": columns.CREATED, "strategy": rbac_kinds.ROLE}
    return (
        kind("ClusterRoleBinding", "clusterrolebindings", namespaced=False, **binding),
        kind("ClusterRole", "clusterroles", namespaced=False, **role),
        kind("RoleBinding", "rolebindings", **binding),
        kind("Role", "roles", **role),
    )


# --- the other groups -------------------------------------------------------------------------------------


def _networking() -> tuple[ResourceDefinition, ...]:
    return (
        native_kind(
            "coordination.k8s.io/v1",
            "Lease",
            "leases",
            columns=columns.LEASE,
            strategy=strategies.LEASE,
            unconditional_update=False,
        ),
        native_kind(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "endpointslices",
            columns=columns.ENDPOINT_SLICE,
            has_generation=True,
            strategy=network_kinds.ENDPOINT_SLICE,
        ),
        _new_event(),
        native_kind(
            "networking.k8s.io/v1",
            "IngressClass",
            "ingressclasses",
            namespaced=False,
            columns=columns.INGRESS_CLASS,
            has_generation=True,
            strategy=network_kinds.INGRESS_CLASS,
        ),
        native_kind(
            "networking.k8s.io/v1",
            "Ingress",
            "ingresses",
            short_names=("ing",),
            columns=columns.INGRESS,
            status_subresource=True,
            has_generation=True,
            strategy=network_kinds.INGRESS,
        ),
    )


def _new_event() -> ResourceDefinition:
    """The same Events in their newer form."""
    readers = core_strategies.field_readers()
    return native_kind(
        "events.k8s.io/v1",
        "Event",
        "events",
        short_names=("ev",),
        columns=columns.NEW_EVENT,
        selectable_fields=(*readers, "reason", "type"),
        field_readers=readers,
        stored_as="events",
        body_out=lambda row: core_strategies.to_new(row.body),
        body_in=core_strategies.to_stored,
        strategy=strategies.NEW_EVENT,
    )


_SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def registration(clock: Clock) -> tuple[ResourceDefinition, ...]:
    """What registers webhooks, policies and APIs at the server."""
    kind = partial(
        native_kind,
        "admissionregistration.k8s.io/v1",
        namespaced=False,
        categories=("api-extensions",),
        has_generation=True,
        unconditional_update=False,
    )
    hooks = {"columns": columns.WEBHOOKS, "strategy": registration_kinds.WEBHOOKS}
    return (
        kind("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", **hooks),
        kind("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", **hooks),
        kind(
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            columns=columns.POLICY,
            status_subresource=True,
            strategy=policy_kinds.POLICY,
        ),
        kind(
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            columns=columns.POLICY_BINDING,
            strategy=policy_kinds.BINDING,
        ),
        native_kind(
            "apiregistration.k8s.io/v1",
            "APIService",
            "apiservices",
            namespaced=False,
            categories=("api-extensions",),
            columns=columns.API_SERVICE,
            status_subresource=True,
            unconditional_update=False,
            name_rule=object_names.path_segment,
            strategy=registration_kinds.api_service(clock),
        ),
    )


def workloads() -> tuple[ResourceDefinition, ...]:
    """What programs look for in a cluster, and nothing here acts on: no workload runs."""
    apps = partial(native_kind, "apps/v1", categories=("all",), status_subresource=True, has_generation=True)
    return (
        native_kind(
            "v1",
            "Node",
            "nodes",
            short_names=("no",),
            namespaced=False,
            columns=columns.CREATED,
            status_subresource=True,
        ),
        apps(
            "Deployment",
            "deployments",
            short_names=("deploy",),
            columns=columns.DEPLOYMENT,
            subresources=(scale.subresource(_SCALE),),
            strategy=core_services.DEPLOYMENT,
        ),
        apps(
            "DaemonSet",
            "daemonsets",
            short_names=("ds",),
            columns=columns.DAEMON_SET,
            strategy=core_services.DAEMON_SET,
        ),
    )

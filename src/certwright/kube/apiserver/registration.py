"""Built-in kinds that register webhooks, policies and APIs, and those of workloads.

Source: Kubernetes API reference.
"""

from __future__ import annotations

from functools import partial

from certwright.kube.apiserver.base import object_names
from certwright.kube.apiserver.kinds import kind_columns, policy_kinds, registration_kinds, workload_kinds
from certwright.kube.apiserver.kinds.native_kind import native_kind
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.verbs import scale
from certwright.kube.util.clock import Clock

_SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def registration(clock: Clock) -> tuple[ResourceDefinition, ...]:
    """What registers webhooks, policies and APIs at the server."""
    hooks = partial(
        native_kind,
        "admissionregistration.k8s.io/v1",
        namespaced=False,
        categories=("api-extensions",),
        columns=kind_columns.WEBHOOKS,
        has_generation=True,
        unconditional_update=False,
        strategy=registration_kinds.WEBHOOKS,
    )
    return (
        hooks("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        hooks("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        native_kind(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            namespaced=False,
            categories=("api-extensions",),
            columns=kind_columns.POLICY,
            status_subresource=True,
            has_generation=True,
            unconditional_update=False,
            strategy=policy_kinds.POLICY,
        ),
        native_kind(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            namespaced=False,
            categories=("api-extensions",),
            columns=kind_columns.POLICY_BINDING,
            has_generation=True,
            unconditional_update=False,
            strategy=policy_kinds.BINDING,
        ),
        native_kind(
            "apiregistration.k8s.io/v1",
            "APIService",
            "apiservices",
            namespaced=False,
            categories=("api-extensions",),
            columns=kind_columns.API_SERVICE,
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
            columns=kind_columns.CREATED,
            status_subresource=True,
        ),
        apps(
            "Deployment",
            "deployments",
            short_names=("deploy",),
            columns=kind_columns.DEPLOYMENT,
            subresources=(scale.subresource(_SCALE),),
            strategy=workload_kinds.DEPLOYMENT,
        ),
        apps(
            "DaemonSet",
            "daemonsets",
            short_names=("ds",),
            columns=kind_columns.DAEMON_SET,
            strategy=workload_kinds.DAEMON_SET,
        ),
    )

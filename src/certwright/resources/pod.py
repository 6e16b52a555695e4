"""The fields of a Kubernetes pod that can be set for an HTTP-01 solver's pod.

Source: Kubernetes API reference, PodSpec v1 core; cert-manager `pkg/apis/acme/v1/types_issuer.go`.
Field texts are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import field

from certwright.kube.api.meta import Struct, doc

QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$"
)
"""Kubernetes' own pattern accepts exponents with a point, which its decoder refuses, and those of ten digits,
which keep it busy: one such object would stop every list of a Go client."""


class TemplateMeta(Struct, frozen=True, kw_only=True):
    """Labels and annotations of a made object."""

    annotations: Annotated[Mapping[str, str], doc("Annotations added to the object.")] = field(
        default_factory=dict
    )
    labels: Annotated[Mapping[str, str], doc("Labels added to the object.")] = field(default_factory=dict)


class SelectorRequirement(Struct, frozen=True, kw_only=True):
    """A test of one label."""

    key: Annotated[str, doc("The label's key.")]
    operator: Annotated[str, doc("In, NotIn, Exists, DoesNotExist; for nodes also Gt and Lt.")]
    values: Annotated[tuple[str, ...], doc("Values to compare with; empty for Exists and DoesNotExist.")] = ()


class LabelSelector(Struct, frozen=True, kw_only=True):
    """Chooses objects by their labels; all tests must hold."""

    match_expressions: Annotated[tuple[SelectorRequirement, ...], doc("Tests of labels.")] = ()
    match_labels: Annotated[Mapping[str, str], doc("Labels that must be there with these values.")] = field(
        default_factory=dict
    )


class NodeSelectorTerm(Struct, frozen=True, kw_only=True):
    """Chooses nodes; all tests must hold."""

    match_expressions: Annotated[tuple[SelectorRequirement, ...], doc("Tests of the node's labels.")] = ()
    match_fields: Annotated[tuple[SelectorRequirement, ...], doc("Tests of the node's fields.")] = ()


class NodeSelector(Struct, frozen=True, kw_only=True):
    """Chooses nodes; one of the terms must hold."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], doc("Terms, of which one must hold.")]


class PreferredSchedulingTerm(Struct, frozen=True, kw_only=True):
    """A wish for nodes, with a weight."""

    weight: Annotated[int, doc("Weight of the wish, 1 to 100.", format="int32")]
    preference: Annotated[NodeSelectorTerm, doc("The nodes wished for.", atomic=True)]


class NodeAffinity(Struct, frozen=True, kw_only=True):
    """Which nodes the pod is drawn to."""

    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredSchedulingTerm, ...], doc("Wishes for nodes.")
    ] = ()
    required_during_scheduling_ignored_during_execution: Annotated[
        NodeSelector | None, doc("Nodes that the pod must run on.", atomic=True)
    ] = None


class PodAffinityTerm(Struct, frozen=True, kw_only=True):
    """Other pods that the pod is to be near to, or far from."""

    topology_key: Annotated[str, doc("Label of nodes that says what near means: the host, the zone.")]
    label_selector: Annotated[LabelSelector | None, doc("The other pods.", atomic=True)] = None
    namespace_selector: Annotated[LabelSelector | None, doc("The other pods' namespaces.", atomic=True)] = (
        None
    )
    namespaces: Annotated[tuple[str, ...], doc("The other pods' namespaces by name.")] = ()
    match_label_keys: Annotated[
        tuple[str, ...], doc("Keys of labels whose values must be equal to this pod's.")
    ] = ()
    mismatch_label_keys: Annotated[
        tuple[str, ...], doc("Keys of labels whose values must differ from this pod's.")
    ] = ()


class WeightedPodAffinityTerm(Struct, frozen=True, kw_only=True):
    """A wish for the neighbourhood of other pods, with a weight."""

    weight: Annotated[int, doc("Weight of the wish, 1 to 100.", format="int32")]
    pod_affinity_term: Annotated[PodAffinityTerm, doc("The other pods.")]


class PodAffinity(Struct, frozen=True, kw_only=True):
    """Which pods the pod is drawn to, or repelled from."""

    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[WeightedPodAffinityTerm, ...], doc("Wishes.")
    ] = ()
    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[PodAffinityTerm, ...], doc("What must hold.")
    ] = ()


class Affinity(Struct, frozen=True, kw_only=True):
    """Where the pod may and should run."""

    node_affinity: Annotated[NodeAffinity | None, doc("Which nodes the pod is drawn to.")] = None
    pod_affinity: Annotated[PodAffinity | None, doc("Which pods the pod is drawn to.")] = None
    pod_anti_affinity: Annotated[PodAffinity | None, doc("Which pods the pod keeps away from.")] = None


class Toleration(Struct, frozen=True, kw_only=True):
    """A taint of nodes that the pod puts up with."""

    key: Annotated[str, doc("Key of the taint; empty with operator Exists means all.")] = ""
    operator: Annotated[str, doc("Equal (the default) or Exists.")] = ""
    value: Annotated[str, doc("Value of the taint.")] = ""
    effect: Annotated[str, doc("NoSchedule, PreferNoSchedule or NoExecute; empty means all.")] = ""
    toleration_seconds: Annotated[
        int | None, doc("For how long NoExecute is put up with.", format="int64")
    ] = None


class SELinuxOptions(Struct, frozen=True, kw_only=True):
    """The SELinux context."""

    user: Annotated[str, doc("SELinux user.")] = ""
    role: Annotated[str, doc("SELinux role.")] = ""
    type: Annotated[str, doc("SELinux type.")] = ""
    level: Annotated[str, doc("SELinux level.")] = ""


class SeccompProfile(Struct, frozen=True, kw_only=True):
    """The seccomp profile."""

    type: Annotated[str, doc("RuntimeDefault, Unconfined or Localhost.")]
    localhost_profile: Annotated[str | None, doc("File of the profile on the node, for Localhost.")] = None


class Sysctl(Struct, frozen=True, kw_only=True):
    """A kernel parameter."""

    name: Annotated[str, doc("Name of the parameter.")]
    value: Annotated[str, doc("Value of the parameter.")]


class PodSecurityContext(Struct, frozen=True, kw_only=True):
    """As whom the pod runs, and with what rights."""

    se_linux_options: Annotated[SELinuxOptions | None, doc("SELinux context of the containers.")] = None
    run_as_user: Annotated[int | None, doc("User ID of the processes.", format="int64")] = None
    run_as_group: Annotated[int | None, doc("Group ID of the processes.", format="int64")] = None
    run_as_non_root: Annotated[bool | None, doc("Whether root is refused.")] = None
    supplemental_groups: Annotated[
        tuple[int, ...], doc("Further group IDs of the processes.", items={"format": "int64"})
    ] = ()
    fs_group: Annotated[int | None, doc("Group ID that owns the volumes.", format="int64")] = None
    sysctls: Annotated[tuple[Sysctl, ...], doc("Kernel parameters.")] = ()
    fs_group_change_policy: Annotated[
        str | None, doc("When owners of volumes are changed: OnRootMismatch or Always.")
    ] = None
    seccomp_profile: Annotated[SeccompProfile | None, doc("Seccomp profile of the containers.")] = None


class ImagePullSecret(Struct, frozen=True, kw_only=True):
    """The Secret with the credentials for an image registry."""

    name: Annotated[str, doc("Name of the Secret.", default="")] = ""


class Resources(Struct, frozen=True, kw_only=True):
    """Processor time and memory."""

    limits: Annotated[Mapping[str, int | str], doc("The most that the pod may use.")] = field(
        default_factory=dict
    )
    requests: Annotated[Mapping[str, int | str], doc("What is set aside for the pod.")] = field(
        default_factory=dict
    )


class SolverPodSpec(Struct, frozen=True, kw_only=True):
    """What may be said about the solver's pod."""

    node_selector: Annotated[Mapping[str, str], doc("Labels that the node must have.")] = field(
        default_factory=dict
    )
    affinity: Annotated[Affinity | None, doc("Where the pod may and should run.")] = None
    tolerations: Annotated[tuple[Toleration, ...], doc("Taints that the pod puts up with.")] = ()
    priority_class_name: Annotated[str, doc("Priority class of the pod.")] = ""
    service_account_name: Annotated[str, doc("ServiceAccount that the pod runs as.")] = ""
    image_pull_secrets: Annotated[
        tuple[ImagePullSecret, ...], doc("Credentials for the image registry.", map_keys=("name",))
    ] = ()
    security_context: Annotated[PodSecurityContext | None, doc("As whom the pod runs.")] = None
    resources: Annotated[Resources | None, doc("Processor time and memory.")] = None


class SolverPodTemplate(Struct, frozen=True, kw_only=True):
    """Changes to the solver's pod."""

    metadata: Annotated[TemplateMeta | None, doc("Labels and annotations added to the pod.")] = None
    spec: Annotated[SolverPodSpec | None, doc("Parts of the pod's spec that are replaced.")] = None

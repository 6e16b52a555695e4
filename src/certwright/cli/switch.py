"""What will work, change or stop when certwright takes over a cluster from cert-manager. No I/O.

docs/takeover.md describes each of these.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from certwright.diagnosis.related import CERTIFICATES
from certwright.kube.api.errors import ApiError, NotFound
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.names import GROUP, SETS_GROUP
from certwright.resources.operator_policy import OperatorPolicy, issuer_violations
from certwright.resources.table import CLUSTER_ISSUERS, ISSUERS

Json = dict[str, Any]
Verdict = Literal["works", "changes", "unread", "stops"]

WEBHOOK: Final = "cert-manager-webhook"
"""The name of cert-manager's webhook configurations."""
_CONTROLLER: Final = "controller"
_IMAGE: Final = re.compile(r"cert-manager-(controller|cainjector|webhook)\b")
UNUSED_FLAGS: Final = (
    "acme-http01-solver-image",
    "acme-http01-solver-resource-",
    "acme-http01-solver-run-as-non-root",
    "acme-http01-solver-runtime-class-name",
    "concurrent-workers",
    "enable-profiling",
    "profiler-address",
    "internal-healthz-",
    "vmodule",
    "v",
    "log-",
    "max-certificate-",
    "max-private-key-size",
    "kubeconfig",
    "master",
)
"""Flags of cert-manager's controller that are not needed here, or their beginnings (`…-`): there are no
solver pods, no workers to count, no profiler; logging and the API server are the operator's choice."""
REPLACED_FLAGS: Final = ("config", "logging-format")
"""Flags that certwright does not have although they may matter, in the same form."""
KNOWN_GATES: Final = ("SecretsFilteredCaching", "ACMEHTTP01IngressPathTypeExact")
"""cert-manager's feature gates that certwright has too."""
_INJECT: Final = f"{GROUP}/inject-"


class Finding(NamedTuple):
    """One statement about an object or the cluster, and the fix."""

    verdict: Verdict
    about: str
    text: str


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a cluster. `missing` names what could not be read, with the reason."""

    issuers: Sequence[Issuer] = ()
    cluster_issuers: Sequence[ClusterIssuer] = ()
    certificates: Sequence[Json] = ()
    ingresses: Sequence[Json] = ()
    gateways: Sequence[Json] = ()
    listener_sets: Sequence[Json] = ()
    deployments: Sequence[Json] = ()
    webhooks: Sequence[Json] = ()
    injected: Sequence[Json] = ()
    missing: Mapping[str, str] = msgspec.field(default_factory=dict)


def findings(cluster: Cluster) -> list[Finding]:
    """All statements about the cluster: first what stops or is unknown, then what changes, then what
    works."""
    results = [
        *(
            Finding("unread", what, f"could not be read and was not checked: {why}")
            for what, why in cluster.missing.items()
        ),
        *_of_issuers((*cluster.issuers, *cluster.cluster_issuers)),
        *_of_certificates(cluster.certificates),
        *_of_annotated("Ingress", cluster.ingresses, cluster.certificates),
        *_of_annotated("Gateway", cluster.gateways, cluster.certificates),
        *_of_annotated("ListenerSet", cluster.listener_sets, cluster.certificates),
        *_of_deployments(cluster.deployments),
        *_of_webhooks(cluster),
        *_of_injected(cluster.injected),
    ]
    order = ("stops", "unread", "changes", "works")
    return sorted(results, key=lambda finding: order.index(finding.verdict))


def _of_issuers(issuers: Sequence[Issuer | ClusterIssuer]) -> Iterator[Finding]:
    working = Counter[str]()
    for issuer in issuers:
        meta = issuer.metadata
        kind = "ClusterIssuer" if isinstance(issuer, ClusterIssuer) else "Issuer"
        about = f"{kind} {meta.key}"
        problems = [
            Finding("stops", about, str(violation))
            for violation in issuer_violations(issuer.spec, OperatorPolicy())
        ]
        problems += _of_solvers(about, issuer)
        yield from problems
        if not problems:
            working[kind] += 1
    for kind, number in sorted(working.items()):
        yield Finding("works", f"{number} {kind}s", "sign as before")


def _of_solvers(about: str, issuer: Issuer | ClusterIssuer) -> list[Finding]:
    acme = issuer.spec.acme
    if acme is None:
        return []
    results = []
    for number, solver in enumerate(acme.solvers):
        path = f"spec.acme.solvers[{number}]"
        http01 = solver.http01
        if http01 is not None and (http01.ingress is not None or http01.gateway_http_route is not None):
            text = (
                f"{path}: HTTP-01 is answered by the controllers instead of solver pods: proxies must be "
                "able to connect to port 8089 of certwright's pods; podTemplate has no effect"
            )
            results.append(Finding("changes", about, text))
    return results


def _of_certificates(certificates: Sequence[Json]) -> Iterator[Finding]:
    external, ready, failing = Counter[str](), 0, []
    for certificate in certificates:
        reference = certificate["spec"].get("issuerRef") or {}
        group = reference.get("group") or GROUP
        if group not in (GROUP, SETS_GROUP):
            external[f"{reference.get('kind') or 'Issuer'}.{group}"] += 1
        conditions = (certificate.get("status") or {}).get("conditions") or ()
        is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        ready += is_ready
        if not is_ready:
            meta = certificate["metadata"]
            failing.append(f"{meta['namespace']}/{meta['name']}")
    if ready:
        yield Finding("works", f"{ready} Certificates", "are Ready: nothing is issued again")
    if failing:
        text = "are not Ready: their backoff, request or order is continued"
        yield Finding("changes", _some(failing, "Certificates"), text)
    for issuer, number in sorted(external.items()):
        text = f"belong to {issuer}: its own controller goes on to sign them"
        yield Finding("works", f"{number} Certificates", text)


def _of_annotated(kind: str, objects: Sequence[Json], certificates: Sequence[Json]) -> Iterator[Finding]:
    keys = (f"{GROUP}/issuer", f"{GROUP}/cluster-issuer", "kubernetes.io/tls-acme")
    owners = set(_owners(kind, certificates))
    automatic, served, new = 0, 0, []
    for resource in objects:
        annotations = _annotations(resource)
        if not any(key in annotations for key in keys):
            continue
        name = f"{resource['metadata']['namespace']}/{resource['metadata']['name']}"
        automatic += not any(key in annotations for key in keys[:2])
        if name in owners:
            served += 1
        else:
            new.append(name)
    if served:
        yield Finding("works", f"{served} {_plural(kind)}", "are annotated: their Certificates are kept")
    if new:
        text = "are annotated and have no Certificate: each gets one, or an Event with the reason why not"
        yield Finding("changes", _some(new, _plural(kind)), text)
    if automatic:
        text = "have kubernetes.io/tls-acme and name no issuer: start certwright with --default-issuer-name"
        yield Finding("changes", f"{automatic} {_plural(kind)}", text)


def _owners(kind: str, certificates: Sequence[Json]) -> Iterator[str]:
    for certificate in certificates:
        for owner in certificate["metadata"].get("ownerReferences") or ():
            if owner["kind"] == kind:
                yield f"{certificate['metadata']['namespace']}/{owner['name']}"


def _plural(kind: str) -> str:
    return "Ingresses" if kind == "Ingress" else f"{kind}s"


def _component(deployment: Json) -> str | None:
    """The component of cert-manager that a Deployment runs, by its image, else by its chart's labels."""
    for container in deployment["spec"]["template"]["spec"].get("containers") or ():
        if match := _IMAGE.search(container.get("image") or ""):
            return match[1]
    labels = deployment["metadata"].get("labels") or {}
    if labels.get("app.kubernetes.io/name") == "cert-manager":
        return _CONTROLLER
    if str(labels.get("helm.sh/chart")).startswith("cert-manager-v"):
        return str(labels.get("app.kubernetes.io/component"))
    return None


def _of_deployments(deployments: Sequence[Json]) -> Iterator[Finding]:
    for deployment in deployments:
        component = _component(deployment)
        if component is None:
            continue
        about = f"Deployment {deployment['metadata']['namespace']}/{deployment['metadata']['name']}"
        if deployment["spec"].get("replicas", 1):
            text = "is running: scale it to 0 before certwright is started, or upgrade the Helm release"
            yield Finding("changes", about, text)
        if component == _CONTROLLER:
            yield from _of_flags(about, deployment)


def _of_flags(about: str, deployment: Json) -> Iterator[Finding]:
    containers = deployment["spec"]["template"]["spec"].get("containers") or ()
    flags = [flag for container in containers for flag in container.get("args") or ()]
    kept, unused, replaced = [], [], []
    for flag in flags:
        name = flag.lstrip("-").partition("=")[0]
        if name == "feature-gates":
            yield from _of_gates(about, flag.partition("=")[2])
        elif _is_one_of(name, REPLACED_FLAGS):
            replaced.append(flag)
        elif _is_one_of(name, UNUSED_FLAGS):
            unused.append(flag)
        else:
            kept.append(flag)
    if kept:
        text = f"its flags go to certwright, unless they are defaults: {' '.join(kept)}"
        yield Finding("changes", about, text)
    if unused:
        yield Finding("changes", about, f"these flags are not needed here: {' '.join(unused)}")
    if replaced:
        text = "certwright has no such flags, see the README of its chart for what replaces them"
        yield Finding("changes", about, f"{text}: {' '.join(replaced)}")


def _is_one_of(flag: str, names: Sequence[str]) -> bool:
    return any(flag == name or (name.endswith("-") and flag.startswith(name)) for name in names)


def _of_gates(about: str, text: str) -> Iterator[Finding]:
    gates = [gate.strip() for gate in text.split(",") if gate.strip()]
    others = [gate for gate in gates if gate.partition("=")[0] not in KNOWN_GATES]
    if others:
        text = "remove these feature gates, or let the chart translate them"
        yield Finding("changes", about, f"{text}: {','.join(others)}")


def _of_webhooks(cluster: Cluster) -> Iterator[Finding]:
    runs = any(
        _component(deployment) == "webhook" and deployment["spec"].get("replicas", 1)
        for deployment in cluster.deployments
    )
    for webhook in cluster.webhooks:
        if not webhook["metadata"]["name"].endswith(WEBHOOK):
            continue
        about = f"{webhook['kind']} {webhook['metadata']['name']}"
        checks = "(the definitions of `certwright crds` check the same)"
        if runs:
            text = (
                "refuses every write of cert-manager's kinds once its Deployment is at 0: delete it then, or "
                f"upgrade the Helm release {checks}"
            )
            yield Finding("changes", about, text)
        else:
            text = f"refuses every write of cert-manager's kinds, because no webhook runs: delete it {checks}"
            yield Finding("stops", about, text)


def _of_injected(objects: Sequence[Json]) -> Iterator[Finding]:
    number = sum(any(key.startswith(_INJECT) for key in _annotations(resource)) for resource in objects)
    if number:
        yield Finding("works", f"{number} objects", "with a CA to be injected keep it")


def _annotations(resource: Json) -> Mapping[str, str]:
    return resource["metadata"].get("annotations") or {}


def _some(names: Sequence[str], what: str) -> str:
    shown = ", ".join(names[:3])
    return f"{len(names)} {what} ({shown}{', …' if len(names) > 3 else ''})"


T = TypeVar("T")


def _kind(group: str, kind: str, plural: str, *, namespaced: bool) -> Kind[Json]:
    return Kind(group, "v1", kind, plural, kind.lower(), namespaced, Json)


_INGRESSES: Final = _kind("networking.k8s.io", "Ingress", "ingresses", namespaced=True)
_GATEWAYS: Final = _kind("gateway.networking.k8s.io", "Gateway", "gateways", namespaced=True)
_LISTENER_SETS: Final = _kind("gateway.networking.k8s.io", "ListenerSet", "listenersets", namespaced=True)
_DEPLOYMENTS: Final = _kind("apps", "Deployment", "deployments", namespaced=True)
_VALIDATING: Final = _kind(
    "admissionregistration.k8s.io",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
_MUTATING: Final = _kind(
    "admissionregistration.k8s.io",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)
_SERVICES: Final = _kind("apiregistration.k8s.io", "APIService", "apiservices", namespaced=False)
_DEFINITIONS: Final = _kind(
    "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
_OPTIONAL: Final = (_GATEWAYS, _LISTENER_SETS)
"""Kinds that a cluster need not have."""


async def read(client: Client) -> Cluster:
    """The relevant facts of a cluster. Unreadable facts are in `missing`. Raises `Unreachable`."""
    missing: dict[str, str] = {}

    async def listed(kind: Kind[T]) -> list[T]:
        try:
            objects = (await client.list(kind)).items
        except ApiError as error:
            if not (isinstance(error, NotFound) and kind in _OPTIONAL):
                missing[kind.resource] = str(error)
            return []
        for item in objects:
            if isinstance(item, dict):
                item.setdefault("kind", kind.kind)
        return objects

    webhooks = [*await listed(_VALIDATING), *await listed(_MUTATING)]
    return Cluster(
        issuers=await listed(ISSUERS),
        cluster_issuers=await listed(CLUSTER_ISSUERS),
        certificates=await listed(CERTIFICATES),
        ingresses=await listed(_INGRESSES),
        gateways=await listed(_GATEWAYS),
        listener_sets=await listed(_LISTENER_SETS),
        deployments=await listed(_DEPLOYMENTS),
        webhooks=webhooks,
        injected=[*webhooks, *await listed(_SERVICES), *await listed(_DEFINITIONS)],
        missing=missing,
    )

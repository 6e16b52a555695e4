"""What will work, change or stop when certwright takes over a cluster from cert-manager. No I/O.

docs/takeover.md describes each of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.names import GROUP, SETS_GROUP
from certwright.resources.operator_policy import OperatorPolicy, issuer_violations
from certwright.resources.solver import Solver

Json = dict[str, Any]
Verdict = Literal["works", "changes", "stops"]

WEBHOOK: Final = "cert-manager-webhook"
"""The name of cert-manager's webhook configurations."""
_COMPONENTS: Final = ("cert-manager", "cainjector", "webhook")
_NAME_LABEL: Final = "app.kubernetes.io/name"
_UNUSED_FLAGS: Final = ("acme-http01-solver-image", "acme-http01-solver-resource", "acme-http01-solver-run")
_INJECT: Final = f"{GROUP}/inject-"


class Finding(NamedTuple):
    """One statement, about an object or about the cluster, and what to do."""

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
    deployments: Sequence[Json] = ()
    webhooks: Sequence[Json] = ()
    injected: Sequence[Json] = ()
    missing: Mapping[str, str] = msgspec.field(default_factory=dict)


def findings(cluster: Cluster) -> list[Finding]:
    """All statements about the cluster: what stops, then what changes, then what works."""
    found = [
        *_of_missing(cluster),
        *_of_issuers((*cluster.issuers, *cluster.cluster_issuers)),
        *_of_certificates(cluster.certificates),
        *_of_annotated("Ingress", cluster.ingresses),
        *_of_annotated("Gateway", cluster.gateways),
        *_of_deployments(cluster.deployments),
        *_of_webhooks(cluster.webhooks),
        *_of_injected(cluster.injected),
    ]
    order = ("stops", "changes", "works")
    return sorted(found, key=lambda one: order.index(one.verdict))


def _of_missing(cluster: Cluster) -> Iterator[Finding]:
    for what, why in cluster.missing.items():
        yield Finding("changes", what, f"could not be read and was not checked: {why}")


def _of_issuers(issuers: Sequence[Issuer | ClusterIssuer]) -> Iterator[Finding]:
    working = Counter[str]()
    for issuer in issuers:
        meta = issuer.metadata
        kind = "ClusterIssuer" if isinstance(issuer, ClusterIssuer) else "Issuer"
        about = f"{kind} {meta.key}"
        problems = [
            Finding("stops", about, f"{one}; start certwright with {one.flag}" if one.flag else str(one))
            for one in issuer_violations(issuer.spec, OperatorPolicy())
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
    found = []
    for number, solver in enumerate(acme.solvers):
        path = f"spec.acme.solvers[{number}]"
        if _uses_cluster(solver):
            text = (
                f"{path}: HTTP-01 is answered by the controllers instead of solver pods: proxies must be "
                "able to connect to port 8089 of certwright's pods; podTemplate has no effect"
            )
            found.append(Finding("changes", about, text))
    return found


def _uses_cluster(solver: Solver) -> bool:
    http01 = solver.http01
    return http01 is not None and (http01.ingress is not None or http01.gateway_http_route is not None)


def _of_certificates(certificates: Sequence[Json]) -> Iterator[Finding]:
    external, ready, failing = Counter[str](), 0, []
    for one in certificates:
        reference = one["spec"].get("issuerRef") or {}
        group = reference.get("group") or GROUP
        if group not in (GROUP, SETS_GROUP):
            external[f"{reference.get('kind') or 'Issuer'}.{group}"] += 1
        conditions = (one.get("status") or {}).get("conditions") or ()
        is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        ready += is_ready
        if not is_ready:
            meta = one["metadata"]
            failing.append(f"{meta['namespace']}/{meta['name']}")
    if ready:
        yield Finding("works", f"{ready} Certificates", "are Ready: nothing is issued again")
    if failing:
        text = "are not Ready: their backoff, request or order is continued"
        yield Finding("changes", _some(failing, "Certificates"), text)
    for issuer, number in sorted(external.items()):
        text = f"belong to {issuer}: its own controller goes on to sign them"
        yield Finding("works", f"{number} Certificates", text)


def _of_annotated(kind: str, objects: Sequence[Json]) -> Iterator[Finding]:
    keys = (f"{GROUP}/issuer", f"{GROUP}/cluster-issuer", "kubernetes.io/tls-acme")
    annotated = [one for one in objects if any(key in _annotations(one) for key in keys)]
    if not annotated:
        return
    text = "are annotated: their Certificates are kept"
    yield Finding("works", f"{len(annotated)} {_plural(kind)}", text)
    automatic = [one for one in annotated if not any(key in _annotations(one) for key in keys[:2])]
    if automatic:
        text = "have kubernetes.io/tls-acme and name no issuer: start certwright with --default-issuer-name"
        yield Finding("changes", f"{len(automatic)} {_plural(kind)}", text)


def _plural(kind: str) -> str:
    return "Ingresses" if kind == "Ingress" else f"{kind}s"


def _of_deployments(deployments: Sequence[Json]) -> Iterator[Finding]:
    for one in deployments:
        name = (one["metadata"].get("labels") or {}).get(_NAME_LABEL)
        if name not in _COMPONENTS:
            continue
        about = f"Deployment {one['metadata']['namespace']}/{one['metadata']['name']}"
        if one["spec"].get("replicas", 1):
            yield Finding("changes", about, "is running: scale it to 0 before certwright is started")
        if name == "cert-manager":
            yield from _of_flags(about, one)


def _of_flags(about: str, deployment: Json) -> Iterator[Finding]:
    containers = deployment["spec"]["template"]["spec"].get("containers") or ()
    flags = [flag for container in containers for flag in container.get("args") or ()]
    kept = [flag for flag in flags if flag.startswith("--") and not flag.startswith(_ignored())]
    if kept:
        text = f"its flags go to certwright, unless they are defaults: {' '.join(kept)}"
        yield Finding("changes", about, text)
    unused = [flag for flag in flags if flag.startswith(_ignored(_UNUSED_FLAGS))]
    if unused:
        text = f"these flags have no meaning here, since there are no solver pods: {' '.join(unused)}"
        yield Finding("changes", about, text)


def _ignored(names: Iterable[str] = (*_UNUSED_FLAGS, "v=", "leader-election-namespace")) -> tuple[str, ...]:
    return tuple(f"--{name}" for name in names)


def _of_webhooks(webhooks: Sequence[Json]) -> Iterator[Finding]:
    for one in webhooks:
        if one["metadata"]["name"].endswith(WEBHOOK):
            text = (
                "refuses every write of cert-manager's kinds once its Deployment is at 0: delete it then "
                "(the definitions of `certwright crds` check the same)"
            )
            yield Finding("stops", f"{one['kind']} {one['metadata']['name']}", text)


def _of_injected(objects: Sequence[Json]) -> Iterator[Finding]:
    number = sum(any(key.startswith(_INJECT) for key in _annotations(one)) for one in objects)
    if number:
        yield Finding("works", f"{number} objects", "with a CA to be injected keep it")


def _annotations(one: Json) -> Mapping[str, str]:
    return one["metadata"].get("annotations") or {}


def _some(names: Sequence[str], what: str) -> str:
    shown = ", ".join(names[:3])
    return f"{len(names)} {what} ({shown}{', …' if len(names) > 3 else ''})"

"""Servers that decide about CertificateRequests: ours by itself and by policies, the reference by policies.

The reference has no core kinds: it reads policies and namespaces from a server of ours, and asks that one for
permission, as an extension server of Kubernetes asks kube-apiserver.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from certwright.admission import certificate_kinds
from certwright.kube.apiserver.auth.authentication import ClientCertificates
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import SystemClock
from conformance.daemon import Daemon
from conformance.peers import Caller, HttpPeer, LocalPeer
from conformance.servers import until_answered
from support.connections import all_closed
from support.oracle import Oracle, running_oracle

Json = dict[str, Any]
NAMESPACE = "team"
GROUP = "/apis/cert-manager.io/v1"
REQUESTS = f"{GROUP}/namespaces/{NAMESPACE}/certificaterequests"
RBAC = "rbac.authorization.k8s.io"
OURS_SERVED = (REQUESTS, f"{GROUP}/clusterissuers")
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OFF = "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook"


def reference_beside(daemon: Daemon) -> AbstractContextManager[Oracle]:
    """The reference server, which reads policies from `daemon` and asks it who may do what."""
    policies = "--feature-gates=MutatingAdmissionPolicy=true"
    return running_oracle(kubeconfig=daemon.kubeconfig, disabled=_OFF, flags=[policies])


@asynccontextmanager
async def caller_of(
    reference: Oracle, definitions: Iterable[Json], served: Iterable[str] = OURS_SERVED
) -> AsyncIterator[Caller]:
    """Asks the reference, once it serves these collections."""
    connector = aiohttp.TCPConnector(ssl=reference.client_tls)
    async with all_closed(), aiohttp.ClientSession(connector=connector) as session:
        caller = Caller(HttpPeer(session, reference.url))
        await _define(caller, definitions, served)
        yield caller


@asynccontextmanager
async def ours(
    definitions: Iterable[Json],
    objects: Iterable[Json],
    *,
    built_in: bool,
    served: Iterable[str] = OURS_SERVED,
) -> AsyncIterator[Caller]:
    """Asks a server of ours with these objects. `built_in`: it has the admission of our kinds;
    otherwise it is a general server."""
    store = MemoryStore()
    extensions = certificate_kinds() if built_in else {}
    server = ApiServer(store, SystemClock(), authenticator=ClientCertificates(), extensions=extensions)
    try:
        await server.start([])
        caller = Caller(LocalPeer(server))
        await _define(caller, definitions, served)
        for obj in objects:
            made = await caller.post(_collection(obj), obj)
            assert made.status == 201, made.body
        yield caller
    finally:
        await server.close()
        await store.close()


async def _define(caller: Caller, definitions: Iterable[Json], served: Iterable[str]) -> None:
    for obj in definitions:
        # The reference refuses everything until it has read the policies.
        post = partial(caller.post, _DEFINITIONS, obj, quiet=True)
        await until_answered(post, lambda answer: b"not yet ready" not in answer.body)
    for path in served:
        await until_answered(partial(caller.get, path, quiet=True), lambda answer: answer.status == 200)


def _collection(obj: Json) -> str:
    group, _, version = obj["apiVersion"].rpartition("/")
    start = f"/apis/{group}/{version}" if group else f"/api/{version}"
    plural = obj["kind"].lower() + "s"
    plural = plural.replace("policys", "policies")
    namespace = obj["metadata"].get("namespace")
    return f"{start}/namespaces/{namespace}/{plural}" if namespace else f"{start}/{plural}"


def loaded(path: Path) -> list[Json]:
    """The objects of a YAML file."""
    return [obj for obj in yaml.load_all(path.read_text(), _LOADER) if obj]


def granted(name: str, rules: list[Json], subject: Json) -> Iterator[Json]:
    """A ClusterRole, and its binding to the subject."""
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    version = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}}
    yield {**version, "kind": "ClusterRole", "rules": rules}
    yield {
        **version,
        "kind": "ClusterRoleBinding",
        "roleRef": role,
        "subjects": [subject],
    }


def mutating_kinds() -> list[Json]:
    """MutatingAdmissionPolicies as the reference reads them; our server has no such kind of its own."""
    definitions = []
    for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"):
        plural = kind.lower().removesuffix("y") + "ies" if kind.endswith("y") else kind.lower() + "s"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
        group = "admissionregistration.k8s.io"
        definitions.append(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": f"{plural}.{group}",
                    "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
                },
                "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
            }
        )
    return definitions


def apply(daemon: Daemon, objects: list[Json]) -> None:
    """Apply objects to the server that the reference reads."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    done = daemon.run("kubectl", "apply", "--server-side", "-f", "-", stdin=text)
    assert done.returncode == 0, done.stderr

"""Our server and Kubernetes' own decide alike by the same ValidatingAdmissionPolicies, in the same words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from conformance.daemon import running_daemon
from conformance.peers import Answer, Caller
from conformance.policy_cases import (
    ACTIONS,
    AUTHORIZER,
    COMPOSITION,
    FAILURES,
    GROUP,
    MATCHES,
    MESSAGES,
    NAMESPACE,
    NOTHING_ELSE,
    PARAMETERS,
    VALUES,
    Case,
    Step,
)
from conformance.policy_servers import (
    RBAC,
    apply,
    caller_of,
    granted,
    mutating_kinds,
    ours,
    reference_beside,
)
from support.oracle import Oracle
from support.real import require

Json = dict[str, Any]
_CLUSTER = f"/apis/{GROUP}/v1/worlds"
_THINGS = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/things"
_SERVED = (_CLUSTER, _THINGS, _THINGS.replace("v1", "v2"))

CASES = {
    f"case-{number}": case
    for number, case in enumerate(
        (*VALUES, *MESSAGES, *FAILURES, *ACTIONS, *COMPOSITION, *PARAMETERS, *MATCHES, *AUTHORIZER)
    )
}


def definitions() -> list[Json]:
    """`things` in namespaces, in two versions, and `worlds` in none."""
    spec = {
        "type": "object",
        "properties": {"size": {"type": "integer"}, "colour": {"type": "string", "default": "red"}},
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}, "size": {"type": "integer"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    version = {"served": True, "schema": schema, "subresources": {"status": {}, "scale": scale}}
    versions = [{"name": "v1", "storage": True, **version}, {"name": "v2", "storage": False, **version}]
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": scope,
                "versions": versions,
                "names": {
                    "plural": plural,
                    "singular": kind.lower(),
                    "kind": kind,
                    "listKind": f"{kind}List",
                },
            },
        }
        for plural, kind, scope in (("things", "Thing", "Namespaced"), ("worlds", "World", "Cluster"))
    ]


def surroundings() -> list[Json]:
    """Namespaces, parameters, and roles: alice may write things and read ConfigMaps, as may all users; the
    service account `robot` reads Secrets."""
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in ((NAMESPACE, {"stage": "test"}), (NOTHING_ELSE, {}))
    ]
    many = {"limits": "many"}
    limits = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "data": {"limit": limit},
        }
        for name, limit, labels in (
            ("limit", "3", {"limits": "one"}),
            ("limit-a", "5", many),
            ("limit-b", "2", many),
        )
    ]
    writes = [
        {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["get", "create", "update", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]
    reads = [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    ]
    robot = {"kind": "ServiceAccount", "name": "robot", "namespace": NAMESPACE}
    metrics = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    return [
        *namespaces,
        *limits,
        *granted("writers", writes, {"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}),
        *granted("readers", reads, robot),
        *granted("metrics", metrics, {"apiGroup": RBAC, "kind": "User", "name": "bob"}),
    ]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """A reference that reads policies and parameters from a server of ours, and asks it for permission."""
    require("kubectl")
    with running_daemon(tmp_path_factory.mktemp("semantics"), "--controllers", "") as daemon:
        apply(daemon, [*surroundings(), *mutating_kinds(), *definitions(), *_policies()])
        with reference_beside(daemon) as pair:
            yield pair


def _policies() -> list[Json]:
    return [obj for name, case in CASES.items() for obj in case.objects(name)]


@pytest.fixture
async def servers(reference: Oracle) -> AsyncIterator[dict[str, Caller]]:
    """Our server and the reference."""
    async with AsyncExitStack() as stack:
        objects = [*surroundings(), *_policies()]
        yield {
            "reference": await stack.enter_async_context(caller_of(reference, definitions(), _SERVED)),
            "ours": await stack.enter_async_context(
                ours(definitions(), objects, built_in=False, served=_SERVED)
            ),
        }


async def _run(caller: Caller, case: Case, step: Step, name: str) -> Answer:
    within = f"namespaces/{step.namespace}/" if case.plural == "things" else ""
    collection = f"/apis/{GROUP}/{step.version}/{within}{case.plural}"
    body: Json = {
        "apiVersion": f"{GROUP}/{step.version}",
        "kind": "Thing" if case.plural == "things" else "World",
        "metadata": {"name": name, "labels": step.labels},
        "spec": {"size": step.size},
    }
    part = f"/{step.subresource}" if step.subresource else ""
    target = f"{collection}/{name}{part}{step.query}"
    more = {"impersonate_user": step.user} if step.user else {}
    match step.method:
        case "POST":
            return await caller.post(f"{collection}{step.query}", body, quiet=True, **more)
        case "PATCH":
            parts = {"status": {"status": {"phase": "x"}}, "scale": {"spec": {"replicas": step.size}}}
            return await caller.patch(target, parts.get(step.subresource, body), quiet=True, **more)
        case "APPLY":
            return await caller.patch(f"{target}?fieldManager=me", body, "apply", quiet=True, **more)
        case "PUT":
            answer = await caller.get(target, quiet=True)
            return await caller.put(target, {**answer.json, "spec": {"size": 9}}, quiet=True, **more)
        case "DELETE-ALL":
            return await caller.delete(f"{collection}?labelSelector=several=yes", quiet=True)
        case "DELETE":
            return await caller.delete(target, quiet=True, **more)
        case other:
            raise AssertionError(other)


def _facts(answer: Answer) -> Json:
    """What a client learns of the decision."""
    body = answer.json
    facts: Json = {"status": answer.status, "warnings": sorted(answer.warnings)}
    if answer.status >= 400:
        facts |= {name: body.get(name) for name in ("message", "reason", "details")}
    return facts


async def test_each_policy_has_the_same_effect(servers: dict[str, Caller]) -> None:
    assert len({case.sentence for case in CASES.values()}) == len(CASES)
    different = []
    for name, case in CASES.items():
        for number, step in enumerate(case.steps):
            facts = {
                server: _facts(await _run(caller, case, step, name)) for server, caller in servers.items()
            }
            if facts["ours"] != facts["reference"]:
                different.append((case.sentence, number, facts))
    assert not different, json.dumps(different, indent=1, ensure_ascii=False)

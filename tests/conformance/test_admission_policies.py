"""Our admission, our policies on our server, and our policies on Kubernetes' own decide alike."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from conformance.daemon import Daemon, running_daemon
from conformance.peers import Answer, Caller
from conformance.policy_servers import (
    NAMESPACE,
    RBAC,
    REQUESTS,
    apply,
    caller_of,
    granted,
    loaded,
    mutating_kinds,
    ours,
    reference_beside,
)
from conformance.servers import until_answered
from deploy.rights import DEPLOY, helm
from support.oracle import Oracle
from support.real import require

Json = dict[str, Any]
Verdict = Literal["accepted", "refused"]
ALL = "system:authenticated"
POLICIES = DEPLOY / "admission-policies.yaml"
_PLAN = CsrPlan(dns_names=("a.example.org",))
CSR = base64.b64encode(build_csr(_PLAN, generate(KeyPlan.of("ECDSA", 256)))).decode()
SIGNERS = {
    "approver": "issuers.cert-manager.io/*",
    "narrow": f"issuers.cert-manager.io/{NAMESPACE}.mine",
    "elsewhere": "issuers.cert-manager.io/other.mine",
    "wide": "clusterissuers.cert-manager.io/shared",
}
"""Users, and the signers whose requests they may approve."""
APPROVED = {"type": "Approved", "status": "True", "reason": "test", "message": "yes"}
DENIED = APPROVED | {"type": "Denied"}
READY = {"type": "Ready", "status": "True", "reason": "Issued", "message": "done"}
MINE = {"name": "mine", "kind": "Issuer", "group": "cert-manager.io"}
SHARED = {"name": "shared", "kind": "ClusterIssuer", "group": "cert-manager.io"}


@dataclass(frozen=True, slots=True)
class Case:
    """One request of `user`, about a CertificateRequest that `alice` has created, or creates."""

    sentence: str
    verdict: Verdict
    user: str = "alice"
    issuer: Json = field(default_factory=lambda: dict(MINE))
    spec: Json = field(default_factory=dict)
    annotations: Json = field(default_factory=lambda: {"cert-manager.io/certificate-name": "web"})
    before: tuple[Json, ...] = ()
    conditions: tuple[Json, ...] | None = None
    patch: Json | None = None


CREATES = (
    Case("a request without its author", "accepted"),
    Case(
        "a request with its author",
        "accepted",
        spec={"username": "alice", "groups": [ALL]},
    ),
)
FORGED = (
    Case("the name of another user", "refused", spec={"username": "eve"}),
    Case("another UID", "refused", spec={"uid": "0"}),
    Case("another group", "refused", spec={"username": "alice", "groups": ["system:masters"]}),
    Case("further groups", "refused", spec={"groups": [ALL, "system:masters"]}),
    Case("further facts", "refused", spec={"extra": {"scopes": ["all"]}}),
)
UPDATES = (
    Case("a label", "accepted", patch={"metadata": {"labels": {"a": "b"}}}),
    Case("an annotation of another program", "accepted", patch={"metadata": {"annotations": {"a/b": "c"}}}),
    Case("the author", "refused", patch={"spec": {"username": "eve"}}),
    Case("the lifetime", "refused", patch={"spec": {"duration": "9h"}}),
    Case(
        "another certificate's name",
        "refused",
        patch={"metadata": {"annotations": {"cert-manager.io/certificate-name": "other"}}},
    ),
    Case(
        "no certificate's name",
        "refused",
        patch={"metadata": {"annotations": {"cert-manager.io/certificate-name": None}}},
    ),
    Case(
        "a further annotation of ACME",
        "refused",
        patch={"metadata": {"annotations": {"acme.cert-manager.io/http01-override-ingress-name": "x"}}},
    ),
)
DECISIONS = (
    Case("Ready by a signer", "accepted", conditions=(READY,)),
    Case("Ready after the approval", "accepted", before=(APPROVED,), conditions=(APPROVED, READY)),
    Case("approval without permission", "refused", conditions=(APPROVED,)),
    Case("denial without permission", "refused", conditions=(DENIED,)),
    Case("approval", "accepted", user="approver", conditions=(APPROVED,)),
    Case("denial", "accepted", user="approver", conditions=(DENIED,)),
    Case("approval and denial", "refused", user="approver", conditions=(APPROVED, DENIED)),
    Case(
        "denial after approval", "refused", user="approver", before=(APPROVED,), conditions=(APPROVED, DENIED)
    ),
    Case("Approved False", "refused", user="approver", conditions=(APPROVED | {"status": "False"},)),
    Case("Approved removed", "refused", user="approver", before=(APPROVED,), conditions=()),
    Case(
        "another reason for the approval",
        "refused",
        user="approver",
        before=(APPROVED,),
        conditions=(APPROVED | {"message": "no"},),
    ),
    Case("approval of this issuer", "accepted", user="narrow", conditions=(APPROVED,)),
    Case(
        "an issuer without kind and group",
        "accepted",
        user="narrow",
        issuer={"name": "mine"},
        conditions=(APPROVED,),
    ),
    Case(
        "approval of another issuer",
        "refused",
        user="narrow",
        issuer=MINE | {"name": "other"},
        conditions=(APPROVED,),
    ),
    Case("the issuer of another namespace", "refused", user="elsewhere", conditions=(APPROVED,)),
    Case(
        "a ClusterIssuer by a right on Issuers",
        "refused",
        user="approver",
        issuer=SHARED,
        conditions=(APPROVED,),
    ),
    Case("a ClusterIssuer", "accepted", user="wide", issuer=SHARED, conditions=(APPROVED,)),
    Case(
        "a ClusterIssuer with the name of an Issuer",
        "refused",
        user="narrow",
        issuer=SHARED | {"name": f"{NAMESPACE}.mine"},
        conditions=(APPROVED,),
    ),
)


def roles() -> list[Json]:
    """All may write CertificateRequests, and `SIGNERS` may approve."""
    rules = [
        {
            "apiGroups": ["cert-manager.io"],
            "resources": ["certificaterequests", "certificaterequests/status"],
            "verbs": ["get", "create", "update", "patch"],
        }
    ]
    grants = [*granted("everyone", rules, {"apiGroup": RBAC, "kind": "Group", "name": ALL})]
    for user, signer in SIGNERS.items():
        rule = {
            "apiGroups": ["cert-manager.io"],
            "resources": ["signers"],
            "verbs": ["approve"],
            "resourceNames": [signer],
        }
        grants += granted(f"approve-{user}", [rule], {"apiGroup": RBAC, "kind": "User", "name": user})
    return grants


def definitions() -> list[Json]:
    """Of the kinds that the cases need, without rules, as cert-manager's own definitions are: the policies
    decide alone."""
    names = {f"{name}.cert-manager.io" for name in ("certificaterequests", "issuers", "clusterissuers")}
    selected = [obj for obj in loaded(DEPLOY / "crds.yaml") if obj["metadata"]["name"] in names]
    return [_without_rules(definition) for definition in selected]


def _without_rules(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_rules(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_rules(item) for key, item in value.items() if key != "x-kubernetes-validations"}
    return value


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The server that the reference reads policies from and asks for permission."""
    require("kubectl")
    with running_daemon(tmp_path_factory.mktemp("policies"), "--controllers", "") as process:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        apply(process, [namespace, *mutating_kinds(), *roles(), *loaded(POLICIES)])
        yield process


@pytest.fixture(scope="module")
def reference(daemon: Daemon) -> Iterator[Oracle]:
    """A reference server that is running."""
    with reference_beside(daemon) as pair:
        yield pair


@pytest.fixture
async def servers(reference: Oracle) -> AsyncIterator[dict[str, Caller]]:
    """Our server by itself, our server by policies, the reference by policies."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    async with AsyncExitStack() as stack:
        objects = [namespace, *roles()]
        yield {
            "built in": await stack.enter_async_context(ours(definitions(), objects, built_in=True)),
            "our policies": await stack.enter_async_context(
                ours(definitions(), [*objects, *loaded(POLICIES)], built_in=False)
            ),
            "reference": await stack.enter_async_context(caller_of(reference, definitions())),
        }


async def run(caller: Caller, case: Case, name: str) -> Answer:
    """Do what the case says; the answer to its request."""
    body = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "CertificateRequest",
        "metadata": {"name": name, "annotations": case.annotations},
        "spec": {"request": CSR, "issuerRef": case.issuer, **case.spec},
    }
    made = await caller.post(REQUESTS, body, quiet=True, impersonate_user="alice")
    if case.conditions is None and case.patch is None:
        return made
    assert made.status == 201, made.body
    target = f"{REQUESTS}/{name}"
    if case.patch is not None:
        return await caller.patch(target, case.patch, quiet=True, impersonate_user=case.user)
    if case.before:
        decided = made.json | {"status": {"conditions": list(case.before)}}
        made = await caller.put(f"{target}/status", decided, quiet=True, impersonate_user="approver")
        assert made.status == 200, made.body
    changed = made.json | {"status": {"conditions": list(case.conditions or ())}}
    return await caller.put(f"{target}/status", changed, quiet=True, impersonate_user=case.user)


def verdict_of(answer: Answer) -> str:
    """`accepted` or `refused`; the answer itself where it is neither."""
    if answer.status in (200, 201):
        return "accepted"
    return "refused" if answer.status in (403, 406, 422) else repr(answer)


async def check_that_refusals_name_the_permission(servers: dict[str, Caller]) -> None:
    """What to grant is in the message, except for our own admission, which has cert-manager's."""
    case = Case("approval", "refused", conditions=(APPROVED,))
    for server, caller in servers.items():
        message = (await run(caller, case, "named")).json["message"]
        assert 'user "alice" does not have permissions to set approved/denied conditions' in message
        if server != "built in":
            assert "signers.cert-manager.io with the name issuers.cert-manager.io/* or" in message


async def test_the_same_requests_are_decided_alike(servers: dict[str, Caller]) -> None:
    cases = (*CREATES, *UPDATES, *DECISIONS)
    assert len({case.sentence for case in cases}) == len(cases)
    for number, case in enumerate(cases):
        verdicts = {
            server: verdict_of(await run(caller, case, f"case-{number}"))
            for server, caller in servers.items()
        }
        assert verdicts == dict.fromkeys(servers, case.verdict), case.sentence
    await check_that_refusals_name_the_permission(servers)


async def test_no_request_is_stored_with_another_author(servers: dict[str, Caller]) -> None:
    for number, case in enumerate(FORGED):
        for server, caller in servers.items():
            answer = await run(caller, case, f"forged-{number}")
            if server == "built in":
                # As cert-manager's webhook: the author replaces what was sent.
                assert answer.json["spec"]["username"] == "alice"
                assert answer.json["spec"]["groups"] == [ALL]
                assert not {"uid", "extra"} & answer.json["spec"].keys()
            else:
                assert verdict_of(answer) == "refused", (server, case.sentence)
                assert "of the user who creates the request; leave it out" in answer.json["message"]


async def test_on_kubernetes_the_author_is_recorded_by_a_policy(daemon: Daemon, reference: Oracle) -> None:
    served = ("v1/ValidatingAdmissionPolicy", "v1beta1/MutatingAdmissionPolicy")
    versions = [
        word for version in served for word in ("--api-versions", f"admissionregistration.k8s.io/{version}")
    ]
    show = ("--show-only", "templates/admission-policies.yaml", "--kube-version", "1.35.0")
    text = helm("template", "certwright", "deploy/helm/certwright", *versions, *show)
    done = daemon.run("kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    assert done.returncode == 0, done.stderr
    async with caller_of(reference, ()) as caller:
        case = Case("the name of another user", "accepted", spec={"username": "eve", "extra": {"a": ["b"]}})
        target = f"{REQUESTS}?dryRun=All"
        body = {
            "apiVersion": "cert-manager.io/v1",
            "kind": "CertificateRequest",
            "metadata": {"name": "authored"},
            "spec": {"request": CSR, "issuerRef": MINE, **case.spec},
        }
        # The reference reads the new policy in its own time.
        await until_answered(
            lambda: caller.post(target, body, quiet=True, impersonate_user="alice"),
            lambda answer: answer.status == 201,
        )
        spec = (await caller.post(REQUESTS, body, quiet=True, impersonate_user="alice")).json["spec"]
        assert spec["username"] == "alice"
        assert spec["groups"] == [ALL]
        assert not {"uid", "extra"} & spec.keys()

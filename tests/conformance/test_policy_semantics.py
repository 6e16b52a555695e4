"""Our server and Kubernetes' own decide alike by the same ValidatingAdmissionPolicies, in the same words."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from certwright.kube.api import conditions, errors
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.pki.certificates import CertificateFacts, read_chain
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import CAIssuer, IssuerSpec, SelfSignedIssuer
from certwright.resources.references import IssuerReference
from certwright.resources.table import (
    CERTIFICATE_REQUESTS,
    CERTIFICATE_SIGNING_REQUESTS,
    CERTIFICATES,
    CLUSTER_ISSUERS,
    ISSUERS,
)
from conformance import test_certificate_shapes
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
    Reference,
    apply,
    caller_of,
    granted,
    mutating_kinds,
    ours,
    reference_beside,
)
from controllers.scene import make_certificate, make_cluster_issuer, make_issuer
from issuers.authority import new_root
from support.real import require
from support.world import World, make_world

SUITES: Final = ("CA, Issuer", "CA, ClusterIssuer", "SelfSigned, Issuer", "SelfSigned, ClusterIssuer")
CLUSTER_NAMESPACE: Final = "kube-system"
ISSUER: Final = "signer"
DOMAIN: Final = "web.example.com"
# The labels of PEM: of PKCS#8, and of what came before it for each algorithm.
_LABELS: Final = {"": "PRIVATE KEY", "RSA": "RSA PRIVATE KEY", "ECDSA": "EC PRIVATE KEY"}


@dataclass(frozen=True, slots=True)
class Suite:
    """A world with one issuer that is ready."""

    world: World
    reference: IssuerReference
    is_ca: bool

    @property
    def secrets_in(self) -> str:
        """The namespace where the issuer's Secrets lie."""
        return CLUSTER_NAMESPACE if self.reference.kind == "ClusterIssuer" else "default"

    async def issue(self, **spec: Any) -> None:
        """Create the Certificate `web` and let everything run."""
        made = make_certificate("web", ISSUER, **{**spec, "issuer_ref": self.reference})
        await self.world.create(CERTIFICATES, made)
        await self.world.settle()

    async def clean(self) -> None:
        """Take away what a test has made, so that the next one can use the same world."""
        client = self.world.client
        for kind, name in ((CERTIFICATES, "web"), (SECRETS, "web"), (SECRETS, "key")):
            namespace = self.secrets_in if name == "key" else "default"
            with contextlib.suppress(errors.NotFound):
                await client.delete(kind, name, namespace)
        with contextlib.suppress(errors.NotFound):
            await client.delete(CERTIFICATE_SIGNING_REQUESTS, "r")
        await self.world.settle()
        for request in (await client.list(CERTIFICATE_REQUESTS)).items:
            await client.delete(CERTIFICATE_REQUESTS, request.metadata.name, request.metadata.namespace)
        await self.world.settle()


@contextlib.asynccontextmanager
async def open_suite(name: str, *, enabled: str = "*") -> AsyncIterator[Suite]:
    """The suite of that name, one of `SUITES`, with these controllers."""
    what, kind = name.split(", ")
    specs = {
        "CA": IssuerSpec(ca=CAIssuer(secret_name="ca")),
        "SelfSigned": IssuerSpec(self_signed=SelfSignedIssuer()),
    }
    is_cluster = kind == "ClusterIssuer"
    async with make_world(cluster_resource_namespace=CLUSTER_NAMESPACE, enabled=enabled) as world:
        meta = SecretMeta(name="ca", namespace=CLUSTER_NAMESPACE if is_cluster else "default")
        secret = Secret(metadata=meta, type="kubernetes.io/tls", data=new_root("Root").secret())
        await world.create(SECRETS, secret)
        if is_cluster:
            await world.create(CLUSTER_ISSUERS, make_cluster_issuer(ISSUER, specs[what]))
        else:
            await world.create(ISSUERS, make_issuer(ISSUER, specs[what]))
        await world.settle()
        yield Suite(world, IssuerReference(name=ISSUER, kind=kind), what == "CA")


async def validate(suite: Suite) -> CertificateFacts:
    """Check all that cert-manager's helpers check; the leaf."""
    certificate, secret = await suite.world.certificate("web"), await suite.world.secret("web")
    leaf = read_chain(secret.data["tls.crt"])[0]
    check_status(certificate, leaf)
    check_secret(certificate, secret, leaf)
    check_key(certificate, secret, leaf)
    check_names(certificate, leaf)
    check_terms(certificate, leaf)
    await check_trust(suite, secret)
    return leaf


def check_status(certificate: Certificate, leaf: CertificateFacts) -> None:
    """Ready, of this generation, with the dates that the certificate has."""
    ready = conditions.find(certificate.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("True", "Ready"), certificate.status.conditions
    assert ready.observed_generation == certificate.metadata.generation
    assert conditions.find(certificate.status.conditions, "Issuing") is None
    assert certificate.status.not_after == leaf.not_after
    assert certificate.status.not_before == leaf.not_before
    assert certificate.status.renewal_time is not None
    assert leaf.not_before < certificate.status.renewal_time < leaf.not_after


def check_secret(certificate: Certificate, secret: Secret, leaf: CertificateFacts) -> None:
    """The keys of its data, its label, whose it is and from which issuer."""
    reference = certificate.spec.issuer_ref
    assert set(secret.data) == {"tls.crt", "tls.key", "ca.crt"}
    assert secret.type == "kubernetes.io/tls"
    assert secret.metadata.labels["controller.cert-manager.io/fao"] == "true"
    expected = {
        "certificate-name": "web",
        "issuer-name": reference.name,
        "issuer-kind": reference.kind,
        "issuer-group": "cert-manager.io",
        "common-name": certificate.spec.common_name or leaf.common_name,
        "alt-names": ",".join(certificate.spec.dns_names),
        "ip-sans": ",".join(certificate.spec.ip_addresses),
        "uri-sans": ",".join(certificate.spec.uris),
    }
    for name, value in expected.items():
        assert secret.metadata.annotations[f"cert-manager.io/{name}"] == value


def check_key(certificate: Certificate, secret: Secret, leaf: CertificateFacts) -> None:
    """The key is as the spec wants it, in the encoding wanted, and the certificate's."""
    key, spec = load_private_key(secret.data["tls.key"]), certificate.spec.key
    assert public_key_der(key) == leaf.public_key_der
    label = "" if spec.encoding_or_default == "PKCS8" else spec.algorithm_or_default
    assert secret.data["tls.key"].startswith(f"-----BEGIN {_LABELS[label]}-----".encode())
    match spec.algorithm_or_default:
        case "RSA":
            assert isinstance(key, rsa.RSAPrivateKey)
            assert key.key_size == spec.size_or_default
        case "ECDSA":
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            assert key.curve.key_size == spec.size_or_default
        case _:
            assert isinstance(key, ed25519.Ed25519PrivateKey)


def check_names(certificate: Certificate, leaf: CertificateFacts) -> None:
    """Subject and alternative names."""
    spec = certificate.spec
    assert set(leaf.dns_names) == set(spec.dns_names)
    assert set(leaf.ip_addresses) == set(spec.ip_addresses)
    assert set(leaf.uris) == set(spec.uris)
    assert set(leaf.email_addresses) == set(spec.email_addresses)
    assert [(name.oid, name.utf8_value) for name in leaf.other_names] == [
        (name.oid, name.utf8_value) for name in spec.other_names
    ]
    if spec.literal_subject:
        return
    assert leaf.common_name == spec.common_name
    # Several of one kind are one set in the name, and DER sorts it.
    assert set(leaf.subject.organizations) == set(spec.subject.organizations if spec.subject else ())


def check_terms(certificate: Certificate, leaf: CertificateFacts) -> None:
    """How long, what for, and whether it may sign."""
    spec = certificate.spec
    assert leaf.is_ca == spec.is_ca
    assert abs(leaf.not_after - leaf.not_before - spec.requested_duration) <= timedelta(seconds=30)
    usages = set(spec.usages) or {"digital signature", "key encipherment"}
    same = {"signing": "digital signature"}
    usages = {same.get(usage, usage) for usage in usages} | ({"cert sign"} if spec.is_ca else set())
    assert set(leaf.usages) == usages
    basic = leaf.parsed.extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical


async def check_trust(suite: Suite, secret: Secret) -> None:
    """`ca.crt` is a root, and the chain leads to it: OpenSSL says so too."""
    chain, (ca, *more) = read_chain(secret.data["tls.crt"]), read_chain(secret.data["ca.crt"])
    assert not more
    assert ca.subject_text == ca.issuer_text
    if suite.is_ca:
        assert ca.subject_text == "CN=Root"
        assert chain[-1].issuer_text == "CN=Root"
    else:
        assert secret.data["ca.crt"] == secret.data["tls.crt"]
    await test_certificate_shapes.verify(
        secret.data["tls.crt"], secret.data["ca.crt"], suite.world.clock.now()
    )


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
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    """A reference that reads policies and parameters from a server of ours, and asks it for permission."""
    require("kubectl")
    with running_daemon(tmp_path_factory.mktemp("semantics"), "--controllers", "") as daemon:
        apply(daemon, [*surroundings(), *mutating_kinds(), *definitions(), *_policies()])
        with reference_beside(daemon) as pair:
            yield pair


def _policies() -> list[Json]:
    return [obj for name, case in CASES.items() for obj in case.objects(name)]


@pytest.fixture
async def servers(reference: Reference) -> AsyncIterator[dict[str, Caller]]:
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

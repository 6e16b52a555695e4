"""The policy of docs/ingress.md that decides by who writes an Ingress."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from certwright.kube.api.errors import ApiError
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Identity
from controllers.shims.shim_scene import INGRESSES, ShimScene, shim_scene

Json = dict[str, Any]
PAGE = Path(__file__).parents[3] / "docs" / "ingress.md"
GROUP = "admissionregistration.k8s.io"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
CLUSTER_ISSUER = "cert-manager.io/cluster-issuer"


def ingress(name: str, **annotations: str) -> Json:
    spec = {
        "tls": [{"hosts": ["web.example.com"], "secretName": name}],
        "rules": [{"host": "web.example.com"}],
    }
    return {"metadata": {"name": name, "namespace": "default", "annotations": annotations}, "spec": spec}


async def apply_policy(scene: ShimScene) -> None:
    (text,) = re.findall(r"```yaml\n(apiVersion: admissionregistration.*?)```", PAGE.read_text(), re.DOTALL)
    for content in yaml.safe_load_all(text):
        kind = content["kind"]
        served: Kind[Json] = Kind(GROUP, "v1", kind, PLURALS[kind], kind.lower(), False, dict)
        await scene.world.client.create(served, content)
    await scene.world.settle()


def client_of(scene: ShimScene, name: str, group: str) -> Client:
    user = Identity(name, groups=("system:masters", group))
    return Client(LocalTransport(scene.world.recording.handle, user), user_agent="test")


async def test_the_author_of_an_ingress_decides_about_cluster_issuers() -> None:
    async with shim_scene() as scene:
        await apply_policy(scene)
        alice, bob = client_of(scene, "alice", "web"), client_of(scene, "bob", "platform")
        with pytest.raises(ApiError, match="alice is not in the group platform"):
            await alice.create(INGRESSES, ingress("first", **{CLUSTER_ISSUER: "ca"}))
        by_kind = {"cert-manager.io/issuer": "ca", "cert-manager.io/issuer-kind": "ClusterIssuer"}
        with pytest.raises(ApiError, match="alice is not in the group platform"):
            await alice.create(INGRESSES, ingress("first", **by_kind))
        await alice.create(INGRESSES, ingress("own", **{"cert-manager.io/issuer": "ca"}))
        await bob.create(INGRESSES, ingress("first", **{CLUSTER_ISSUER: "ca"}))
        more_names = {
            "spec": {"tls": [{"hosts": ["web.example.com", "x.example.com"], "secretName": "first"}]}
        }
        with pytest.raises(ApiError, match="alice is not in the group platform"):
            await alice.patch(INGRESSES, "first", "default", more_names)
        # As an edit in place.
        await alice.patch(INGRESSES, "first", "default", {"spec": {"rules": [{"host": "x.example.com"}]}})
        await scene.world.settle()
        assert set(await scene.certificates()) == {"own", "first"}

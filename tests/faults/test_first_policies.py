"""The first request that a process decides by policies and match conditions, whose compilation takes long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from faults.server import CONFIG_MAPS, config_map, running

Json = dict[str, Any]
GROUP = "/apis/admissionregistration.k8s.io/v1"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
DEMANDS = [{"expression": f"object.data.all(k, size(object.data[k]) < {size})"} for size in range(9, 30)]
POLICY: Json = {
    "metadata": {"name": "sizes"},
    "spec": {"matchConstraints": {"resourceRules": [RULE]}, "validations": DEMANDS},
}
BINDING: Json = {
    "metadata": {"name": "sizes"},
    "spec": {"policyName": "sizes", "validationActions": ["Deny"]},
}
HOOK: Json = {
    "name": "absent.example.org",
    "clientConfig": {"service": {"name": "none", "namespace": "default"}},
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "rules": [RULE],
    "matchConditions": [{"name": "large", "expression": "!object.data.all(k, size(object.data[k]) < 9)"}],
}


async def test_the_first_request_after_a_start_is_decided_as_the_second_is(tmp_path: Path) -> None:
    objects = (
        ("validatingadmissionpolicies", POLICY),
        ("validatingadmissionpolicybindings", BINDING),
        ("validatingwebhookconfigurations", {"metadata": {"name": "hooks"}, "webhooks": [HOOK]}),
    )
    async with running(tmp_path) as server:
        for plural, obj in objects:
            assert (await server.ask("POST", f"{GROUP}/{plural}", obj)).status == 201
        server.kill()
        await server.start()
        for number in range(2):
            answer = await server.ask("POST", CONFIG_MAPS, config_map(f"small-{number}", a="b"))
            assert answer.status == 201, answer.text
        answer = await server.ask("POST", CONFIG_MAPS, config_map("large", a="0123456789"))
        assert answer.status == 422, answer.text

"""ValidatingAdmissionPolicies and bindings for tests."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{GROUP}/validatingadmissionpolicies"
BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"
NAMESPACES = "/api/v1/namespaces"
CONFIG_MAP_RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps"],
    "operations": ["CREATE", "UPDATE"],
}
SMALL = {"expression": "size(object.data) < 2", "message": "too many entries"}


def policy(name: str = "small", **spec: Any) -> Json:
    """A policy for ConfigMaps."""
    full_spec = {"matchConstraints": {"resourceRules": [CONFIG_MAP_RULE]}, "validations": [SMALL], **spec}
    return {"metadata": {"name": name}, "spec": full_spec}


def binding(name: str = "everywhere", of: str = "small", **spec: Any) -> Json:
    """A binding of a policy."""
    return {
        "metadata": {"name": name},
        "spec": {"policyName": of, "validationActions": ["Deny"], **spec},
    }

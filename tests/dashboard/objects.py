"""Objects of the dashboard's tests, as the API has them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def delivery(name: str, source: str = "web", *, of: str = "certificateRef", **states: str) -> Json:
    """A Delivery of a Certificate, or by `of` of a Secret; `states`: of its conditions, by type."""
    conditions = [
        {"type": kind, "status": state, "reason": "R", "message": f"{kind} of {name}"}
        for kind, state in states.items()
        if state
    ]
    served = {"hook": "reload", "servedAt": [{"address": "www.example.com:443"}]}
    return {
        "apiVersion": "certwright.io/v1alpha1",
        "kind": "Delivery",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"root": "nginx", "path": f"sites/{name}", of: {"name": source}, **served},
        "status": {"current": {"fingerprint": "ab" * 32}, "conditions": conditions},
    }

"""Webhook configurations, compiled: which requests each webhook matches, and how it is called.

Source: Kubernetes documentation, "Dynamic Admission Control"; API reference, ValidatingWebhookConfiguration
and MutatingWebhookConfiguration v1 admissionregistration.k8s.io.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.definitions import ResourceDefinition, WebhookTarget
from certwright.kube.apiserver.requests.selectors import Requirement, selector_of

GROUP = "admissionregistration.k8s.io"
_DEFAULT_TIMEOUT_S = 10


class Rule(msgspec.Struct, frozen=True):
    """One rule: a request matches when each of the parts does. `*` stands for anything."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str

    def matches(self, definition: ResourceDefinition, subresource: str, operation: str) -> bool:
        """Whether the rule matches a request for that resource."""
        return (
            _any_or(self.operations, operation)
            and _any_or(self.groups, definition.group)
            and _any_or(self.versions, definition.version)
            and (self.scope == "*" or (self.scope == "Namespaced") is definition.namespaced)
            and any(
                resource in ("*", definition.plural) and sub in ("*", subresource)
                for resource, sub in self.resources
            )
        )


def _any_or(allowed: frozenset[str], value: str) -> bool:
    return value in allowed or "*" in allowed


class Hook(msgspec.Struct, frozen=True):
    """One webhook. `key` is unique among all; `fails_closed`: a failed call refuses the request."""

    key: str
    name: str
    target: WebhookTarget
    rules: tuple[Rule, ...]
    equivalent: bool
    fails_closed: bool
    timeout_s: int
    side_effects: str
    reinvoke: bool
    review_versions: tuple[str, ...]
    namespace_labels: tuple[Requirement, ...]
    object_labels: tuple[Requirement, ...]
    conditions: tuple[tuple[str, str], ...]

    def matches(self, definition: ResourceDefinition, subresource: str, operation: str) -> bool:
        """Whether a rule matches the request."""
        return any(rule.matches(definition, subresource, operation) for rule in self.rules)


def compile_configuration(configuration: Json) -> tuple[Hook, ...]:
    """The valid webhooks of a configuration, in their order."""
    name = configuration["metadata"]["name"]
    hooks = configuration.get("webhooks") or ()
    return tuple(_hook(f"{name}/{index}", hook) for index, hook in enumerate(hooks))


def _hook(key: str, hook: Json) -> Hook:
    return Hook(
        key=key,
        name=hook["name"],
        target=target_of(hook["clientConfig"]),
        rules=tuple(rule_of(rule) for rule in hook.get("rules") or ()),
        equivalent=hook.get("matchPolicy", "Equivalent") == "Equivalent",
        fails_closed=hook.get("failurePolicy", "Fail") == "Fail",
        timeout_s=hook.get("timeoutSeconds") or _DEFAULT_TIMEOUT_S,
        side_effects=hook.get("sideEffects", ""),
        reinvoke=hook.get("reinvocationPolicy", "Never") == "IfNeeded",
        review_versions=tuple(hook.get("admissionReviewVersions") or ()),
        namespace_labels=selector_of(hook.get("namespaceSelector") or {}),
        object_labels=selector_of(hook.get("objectSelector") or {}),
        conditions=tuple((item["name"], item["expression"]) for item in hook.get("matchConditions") or ()),
    )


def rule_of(rule: Json) -> Rule:
    """A rule of a webhook, or of a policy."""
    resources = [resource.partition("/") for resource in rule.get("resources") or ()]
    return Rule(
        operations=frozenset(rule.get("operations") or ()),
        groups=frozenset(rule.get("apiGroups") or ()),
        versions=frozenset(rule.get("apiVersions") or ()),
        resources=tuple((name, sub) for name, _, sub in resources),
        scope=rule.get("scope") or "*",
    )


def target_of(config: Json) -> WebhookTarget:
    """The address in a `clientConfig` of a webhook, or in the spec of an APIService."""
    try:
        ca_pem = base64.b64decode(config.get("caBundle") or "").decode("ascii", "replace")
    except ValueError:
        ca_pem = ""
    service: dict[str, Any] | None = config.get("service")
    if service is None:
        return WebhookTarget(config.get("url") or "", ca_pem)
    port, path = service.get("port") or 443, service.get("path") or "/"
    host = f"{service['name']}.{service['namespace']}.svc"
    path = path if path.startswith("/") else f"/{path}"
    url = f"https://{host}:{port}{path}"
    skip_verify = config.get("insecureSkipTLSVerify") is True
    return WebhookTarget(url, ca_pem, (service["namespace"], service["name"]), port, path, skip_verify)

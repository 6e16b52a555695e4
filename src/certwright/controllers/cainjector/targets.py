"""The objects that CA bundles are injected into: their kinds, and where their bundles are. No I/O.

Source: Kubernetes API reference, WebhookClientConfig v1 admissionregistration.k8s.io, WebhookConversion v1
apiextensions.k8s.io, APIServiceSpec v1 apiregistration.k8s.io.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from msgspec import field

from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectKey, ObjectMeta, Struct
from certwright.resources.names import INJECT_API_SERVER_CA, INJECT_CA_FROM, INJECT_CA_FROM_SECRET

Json = dict[str, Any]
Merge = Callable[[bytes], bytes]
"""Makes the new CA bundle (PEM) of the old one."""


class Sources(Struct, frozen=True):
    """The annotations that name the source of a CA bundle; the first one present counts."""

    secret: str = field(default="", name=INJECT_CA_FROM_SECRET)
    certificate: str = field(default="", name=INJECT_CA_FROM)
    api_server: str = field(default="", name=INJECT_API_SERVER_CA)

    @property
    def is_given(self) -> bool:
        """Whether a bundle shall be injected."""
        return bool(self.secret or self.certificate or self.api_server == "true")


class TargetMeta(Struct, frozen=True):
    """What is cached of an object: CustomResourceDefinitions are large."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: datetime | None = None
    annotations: Sources = Sources()

    @property
    def key(self) -> ObjectKey:
        """Namespace, which is empty, and name."""
        return ObjectKey(self.namespace, self.name)


class Target(Struct, frozen=True):
    """An object with these annotations."""

    metadata: TargetMeta = TargetMeta()

    @property
    def for_events(self) -> Reported:
        """The object as Events name it."""
        meta = self.metadata
        return Reported(
            metadata=ObjectMeta(name=meta.name, uid=meta.uid, resource_version=meta.resource_version)
        )


class Reported(Struct, frozen=True):
    """An object that an Event is about."""

    metadata: ObjectMeta = ObjectMeta()


_HOOKS: Final = "admissionregistration.k8s.io"
VALIDATING_WEBHOOKS: Final = Kind(
    _HOOKS,
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    "validatingwebhookconfiguration",
    False,
    Target,
)
MUTATING_WEBHOOKS: Final = Kind(
    _HOOKS,
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    "mutatingwebhookconfiguration",
    False,
    Target,
)
DEFINITIONS: Final = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "customresourcedefinition",
    False,
    Target,
)
API_SERVICES: Final = Kind(
    "apiregistration.k8s.io", "v1", "APIService", "apiservices", "apiservice", False, Target
)
KINDS: Final = (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS, DEFINITIONS, API_SERVICES)


def untyped(kind: Kind[Target]) -> Kind[Json]:
    """The kind, its objects as JSON."""
    return Kind(kind.group, kind.version, kind.kind, kind.plural, kind.singular, kind.namespaced, Json)


def injected(kind: Kind[Target], obj: Json, merge: Merge) -> Json | None:
    """The fields to apply so that each client configuration of the object has the bundle that `merge`
    computes from its present bundle; None if all have it already."""
    if kind is DEFINITIONS:
        conversion = (obj.get("spec") or {}).get("conversion") or {}
        webhook = conversion.get("webhook") or {}
        if conversion.get("strategy") != "Webhook" or "clientConfig" not in webhook:
            return None
        changed = _merged(webhook["clientConfig"], merge)
        return changed and {"spec": {"conversion": {"webhook": {"clientConfig": changed}}}}
    if kind is API_SERVICES:
        spec = obj.get("spec") or {}
        changed = _merged(spec, merge) if spec.get("service") else None
        return changed and {"spec": changed}
    hooks = [(hook["name"], hook.get("clientConfig") or {}) for hook in obj.get("webhooks") or ()]
    bundles = [{"name": name, "clientConfig": _bundle(client, merge)} for name, client in hooks]
    is_same = all(
        new["clientConfig"]["caBundle"] == old.get("caBundle")
        for new, (_, old) in zip(bundles, hooks, strict=True)
    )
    return None if is_same else {"webhooks": bundles}


def _merged(client: Json, merge: Merge) -> Json | None:
    new = _bundle(client, merge)
    return None if new["caBundle"] == client.get("caBundle") else new


def _bundle(client: Json, merge: Merge) -> Json:
    try:
        existing = b64decode(client.get("caBundle") or "")
    except (BadBase64, ValueError):
        existing = b""
    return {"caBundle": b64encode(merge(existing)).decode()}

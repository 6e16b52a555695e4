"""The parameters of a ValidatingAdmissionPolicy's binding.

Source: Kubernetes documentation, "Validating Admission Policy", parameter resources.
"""

from __future__ import annotations

from certwright.kube.apiserver.crds.conversion import Conversions
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Backend
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import Json, decode_json, encode_json
from certwright.kube.apiserver.policies.config import Binding, ParamRef, Policy
from certwright.kube.apiserver.requests.selectors import labels_match
from certwright.kube.apiserver.verbs.deletes import every_row
from certwright.kube.store.contract import Key


class BadConfiguration(Exception):
    """A policy or binding that cannot be enforced; the text says why."""


def plain(obj: Json) -> Json:
    """The same through JSON: an object may contain parts that are kept as bytes, which CEL cannot see."""
    found: Json = decode_json(encode_json(obj))
    return found


class Params:
    """Reads the parameters of bindings."""

    def __init__(self, backend: Backend, conversions: Conversions) -> None:
        self._backend = backend
        self._conversions = conversions

    async def find(self, policy: Policy, binding: Binding, namespace: str) -> list[Json | None]:
        """The parameters for a request about an object in this namespace; None: evaluate without any. Raises
        `BadConfiguration`."""
        ref = binding.params
        if policy.param_kind is None or ref is None:
            return [None]
        api_version, kind = policy.param_kind
        group = api_version.rpartition("/")[0]
        definition = self._backend.registry.by_kind(group, kind)
        if definition is None:
            text = f"failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'"
            raise BadConfiguration(f"failed to configure policy: {text}")
        if definition.namespaced:
            namespace = ref.namespace or namespace
            if not namespace:
                text = (
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                )
                raise BadConfiguration(f"failed to configure binding: {text}")
        elif ref.namespace:
            text = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            raise BadConfiguration(f"failed to configure binding: {text}")
        found = await self._read(definition, namespace if definition.namespaced else "", ref)
        if not found and ref.denies_without:
            text = "no params found for policy binding with `Deny` parameterNotFoundAction"
            raise BadConfiguration(f"failed to configure binding: {text}")
        return [plain(one) for one in found]

    async def _read(self, definition: ResourceDefinition, namespace: str, ref: ParamRef) -> list[Json]:
        if ref.name:
            row = await self._backend.store.latest(Key(definition.bucket, namespace, ref.name))
            rows = [row] if row is not None else []
        else:
            rows = await every_row(self._backend, definition, namespace)
            rows = [row for row in rows if labels_match(ref.labels, objects.labels_of(row.meta))]
        found = [objects.to_object(definition, row) for row in rows]
        if definition.conversion is not None:
            found = [await self._conversions.shown(definition, one) for one in found]
        return found

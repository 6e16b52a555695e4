"""The parameters of a ValidatingAdmissionPolicy's binding.

Source: Kubernetes documentation, "Validating Admission Policy", parameter resources.
"""

from __future__ import annotations

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.crds.conversion import Conversions
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Backend
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.policies.config import Binding, ParamRef, Policy
from certwright.kube.apiserver.requests.selectors import labels_match
from certwright.kube.apiserver.verbs.deletes import every_row
from certwright.kube.store.contract import Key


class BadConfiguration(Exception):
    """A policy or binding that cannot be enforced; the text says why. `of_policy`: with any binding."""

    def __init__(self, text: str, *, of_policy: bool = False) -> None:
        super().__init__(f"failed to configure {'policy' if of_policy else 'binding'}: {text}")
        self.of_policy = of_policy


def plain(obj: Json) -> Json:
    """The same through JSON: an object may contain parts that are kept as bytes, which CEL cannot see."""
    plain_object: Json = decode_json(encode_json(obj))
    return plain_object


class Params:
    """Reads the parameters of bindings."""

    def __init__(self, backend: Backend, conversions: Conversions) -> None:
        self._backend = backend
        self._conversions = conversions

    async def find(self, policy: Policy, binding: Binding, namespace: str) -> list[Json | None]:
        """The parameters for a request about an object in this namespace; None: evaluate without any. Raises
        `BadConfiguration`."""
        ref = binding.params
        if policy.param_kind is None:
            return [None]
        definition = self._definition(*policy.param_kind)
        if ref is None:
            return [None]
        if definition.namespaced:
            namespace = ref.namespace or namespace
            if not namespace:
                text = (
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                )
                raise BadConfiguration(text)
        elif ref.namespace:
            text = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            raise BadConfiguration(text)
        parameters = await self._read(definition, namespace if definition.namespaced else "", ref)
        if not parameters and ref.denies_without:
            text = "no params found for policy binding with `Deny` parameterNotFoundAction"
            raise BadConfiguration(text)
        return [plain(parameter) for parameter in parameters]

    def _definition(self, api_version: str, kind: str) -> ResourceDefinition:
        group, _, version = api_version.rpartition("/")
        for definition in self._backend.registry.all():
            if (definition.group, definition.version, definition.kind) == (group, version, kind):
                return definition
        text = f"failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"
        raise BadConfiguration(text, of_policy=True)

    async def _read(self, definition: ResourceDefinition, namespace: str, ref: ParamRef) -> list[Json]:
        if ref.name:
            row = await self._backend.store.latest(Key(definition.bucket, namespace, ref.name))
            rows = [row] if row is not None else []
        else:
            rows = await every_row(self._backend, definition, namespace)
            rows = [row for row in rows if labels_match(ref.labels, objects.labels_of(row.meta))]
        parameters = [objects.to_object(definition, row) for row in rows]
        if definition.conversion is not None:
            parameters = [await self._conversions.shown(definition, parameter) for parameter in parameters]
        return parameters

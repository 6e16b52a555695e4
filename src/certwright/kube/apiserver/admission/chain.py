"""The admission chain: what every write passes between decoding and storage.

First mutation (our own rules, then mutating webhooks), then, once nothing changes any more, validation (our
own rules, privileges and approvals, then policies and validating webhooks). Mutation runs once per request;
validation again for each generated name that was taken (KEP-4420).

Source: Kubernetes documentation, "Admission Control", phases.
"""

from __future__ import annotations

from certwright.kube.api.errors import Details, Forbidden, denied_object
from certwright.kube.apiserver.admission.policies import Policies
from certwright.kube.apiserver.admission.webhooks import Webhooks
from certwright.kube.apiserver.auth import privileges
from certwright.kube.apiserver.auth.rbac import Rbac
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.crds import rules
from certwright.kube.apiserver.model import objects, offload
from certwright.kube.apiserver.model.backend import Backend, Call
from certwright.kube.apiserver.model.definitions import Access, ResourceDefinition
from certwright.kube.apiserver.verbs import scale
from certwright.kube.apiserver.verbs.shaping import raise_if_invalid
from certwright.kube.store.contract import Row


class AdmissionChain:
    """The chain of one server (`backend.Admission`)."""

    def __init__(self, backend: Backend, webhooks: Webhooks, policies: Policies, rbac: Rbac) -> None:
        self._backend = backend
        self._webhooks = webhooks
        self._policies = policies
        self._rbac = rbac

    async def mutate(self, call: Call, new: Json, old: Json | None, *, operation: str) -> bool:
        """Mutate `new` in place. True: a webhook changed it; then the caller must check its shape again.

        Raises `ApiError`: the refusal of a webhook, or `InternalError` where the call failed.
        """
        if operation == "CREATE" and call.definition.terminating:
            name = new["metadata"].get("name", "")
            text = "create not allowed while custom resource definition is terminating"
            raise Forbidden(
                f'{call.definition.resource} "{name}" is forbidden: {text}',
                details=Details(name=name, group=call.definition.group, kind=call.definition.plural),
            )
        extension = call.definition.extension
        if extension is not None:
            extension.mutate(call.user, new, old)
        hooks = self._webhooks.matching("mutating", call, operation)
        if not hooks or not await self._webhooks.mutate(call, hooks, new, old, operation):
            return False
        if extension is not None:
            # A webhook must not change the requesting user.
            extension.mutate(call.user, new, old)
        return True

    async def validate(self, call: Call, new: Json, old: Json | None, *, operation: str) -> None:
        """Raise `Invalid`, `Forbidden`, or the refusal of a webhook."""
        definition, backend = call.definition, self._backend
        await offload.run(call, _validate, definition, new, old)
        call.warnings += definition.strategy.warnings(new, old)
        if definition.extension is not None:
            call.warnings += definition.extension.warnings(new, old)
        if definition.is_crd:
            call.warnings += await offload.run(call, rules.warnings, new, old)
        compare = privileges.to_compare(
            backend.authorizer, self._rbac, privileges.Write(call.user, definition, new, old)
        )
        if compare is not None:
            await offload.in_thread(call, compare)
        if privileges.concerns(definition):
            privileges.check(backend.authorizer, call.user, call.route.subresource, new, old)
        if definition.extension is not None and definition.extension.authorize is not None:
            access = Access(backend.authorizer, backend.registry.by_kind)
            definition.extension.authorize(access, call.user, new, old)
        part = definition.subresource(call.route.subresource)
        if part is not None and part.scale:
            new, old = scale.shown(call, new), old and scale.shown(call, old)
        await self._review(call, new, old, operation)

    async def requesting(self, call: Call, new: Json) -> None:
        """Apply policies and validating webhooks to a request for something that is not stored."""
        await self._review(call, new, None, "CREATE")

    async def _review(self, call: Call, new: Json, old: Json | None, operation: str) -> None:
        await self._policies.validate(call, new, old, operation)
        hooks = self._webhooks.matching("validating", call, operation)
        if hooks:
            await self._webhooks.validate(call, hooks, new, old, operation)

    async def deleting(self, call: Call, row: Row) -> None:
        """Apply policies and webhooks to a deletion. Raises the refusal of one of them."""
        mutating = self._webhooks.matching("mutating", call, "DELETE")
        validating = self._webhooks.matching("validating", call, "DELETE")
        if not mutating and not validating and not self._policies.concern(call, "DELETE"):
            return
        old = objects.to_object(call.definition, row)
        if mutating:
            await self._webhooks.mutate(call, mutating, None, old, "DELETE")
        await self._policies.validate(call, None, old, "DELETE")
        if validating:
            await self._webhooks.validate(call, validating, None, old, "DELETE")


def _validate(definition: ResourceDefinition, new: Json, old: Json | None) -> None:
    """Raise `Invalid` for violations of the kind's own rules, `Denied` for those of its extension."""
    raise_if_invalid(definition, new, definition.strategy.validate(new, old))
    if definition.extension is not None and (errors := definition.extension.validate(new, old)):
        raise denied_object(definition.group, definition.kind, new["metadata"].get("name", ""), errors)

"""Admission webhooks: which of them match a request, in which order, and how their responses apply.

Without a configuration this costs one comparison per write. The webhooks that match a kind of request are
computed once and cached until a configuration or the set of served resources changes. Webhook configurations
themselves are never sent to webhooks: otherwise a broken one could not be deleted.

Source: Kubernetes documentation, "Dynamic Admission Control".
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal

import msgspec

from certwright.kube.api import naming
from certwright.kube.api.errors import ApiError, BadRequest, Details, NotFound
from certwright.kube.apiserver.admission.review import (
    BadReview,
    Verdict,
    attributes,
    internal,
    part_kind,
    question,
    read_answer,
    review_version,
)
from certwright.kube.apiserver.base import metadata
from certwright.kube.apiserver.base.json_values import Json, same
from certwright.kube.apiserver.crds.conversion import Conversions
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import NAMESPACES, Backend, Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.requests.patch import PatchFailed, PatchMalformed, json_patch
from certwright.kube.apiserver.requests.selectors import labels_match
from certwright.kube.apiserver.webhooks.client import CallFailed, WebhookClient
from certwright.kube.apiserver.webhooks.config import GROUP, Hook, compile_configuration
from certwright.kube.apiserver.webhooks.match_conditions import Conditions
from certwright.kube.store.contract import Key, Row

_log = logging.getLogger(__name__)

Side = Literal["mutating", "validating"]
_BUCKETS: dict[str, Side] = {
    f"{GROUP}/mutatingwebhookconfigurations": "mutating",
    f"{GROUP}/validatingwebhookconfigurations": "validating",
}
_DRY = ("None", "NoneOnDryRun")
_AT_ONCE = 32
"""Webhooks that are matched, and validating ones that are called, before other requests run."""


class Invocation(msgspec.Struct, frozen=True):
    """A webhook that may match a request, and the version of the resource that it expects."""

    hook: Hook
    definition: ResourceDefinition


class Webhooks:
    """All configured webhooks of a server; an observer of their configurations."""

    observed_buckets = _BUCKETS.keys()

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.client = WebhookClient(self._external_name)
        """The client that calls them, also for webhooks of other kinds."""
        self._conversions = Conversions(self.client)
        self._conditions = Conditions(lambda: backend.authorizer)
        self._configured: dict[Side, dict[str, tuple[Hook, ...]]] = {"mutating": {}, "validating": {}}
        self._matching: dict[tuple[Side, ResourceDefinition, str, str], tuple[Invocation, ...]] = {}
        self._generation = -1

    def wrote(self, definition: ResourceDefinition, row: Row, _previous: Row | None) -> None:
        """Apply a committed configuration."""
        try:
            hooks = compile_configuration(objects.to_object(definition, row))
        except (KeyError, TypeError, AttributeError) as error:
            # The schema refuses such a configuration; one written to the store directly must not stop the
            # server.
            _log.error("webhook configuration %s is not understood and not used: %r", row.key.name, error)
            hooks = ()
        self._configured[_BUCKETS[row.key.bucket]][row.key.name] = hooks
        self._matching.clear()

    def removed(self, _definition: ResourceDefinition, row: Row) -> None:
        """Remove a deleted configuration."""
        self._configured[_BUCKETS[row.key.bucket]].pop(row.key.name, None)
        self._matching.clear()

    def matching(self, side: Side, call: Call, operation: str) -> tuple[Invocation, ...]:
        """The webhooks of a side that may match a request, in order: configurations by name, each one's
        webhooks in its own order."""
        configured, definition = self._configured[side], call.definition
        if not configured or definition.group == GROUP:
            return ()
        if self._generation != self._backend.registry.generation:
            self._generation = self._backend.registry.generation
            self._matching.clear()
        at = (side, definition, call.route.subresource, operation)
        invocations = self._matching.get(at)
        if invocations is None:
            invocations = self._matching[at] = tuple(
                Invocation(hook, version)
                for name in sorted(configured)
                for hook in configured[name]
                if (version := self._version_for(hook, definition, call.route.subresource, operation))
            )
        return invocations

    def _version_for(
        self, hook: Hook, definition: ResourceDefinition, subresource: str, operation: str
    ) -> ResourceDefinition | None:
        """The resource that the webhook's rules match: the requested resource, or (matchPolicy) another
        version of it."""
        if hook.matches(definition, subresource, operation):
            return definition
        if not hook.equivalent:
            return None
        others = [other for other in self._backend.registry.all() if other.bucket == definition.bucket]
        for rule in hook.rules:
            for other in others:
                if rule.matches(other, subresource, operation):
                    return other
        return None

    async def mutate(
        self, call: Call, hooks: tuple[Invocation, ...], new: Json | None, old: Json | None, operation: str
    ) -> bool:
        """Let the webhooks change `new` in place, one after the other; returns whether any did.

        After a change, earlier webhooks with the `reinvocationPolicy` IfNeeded are called again.
        """
        again: set[str] = set()
        called: set[str] = set()
        changed = False
        for second_round in (False, True):
            for number, invocation in enumerate(hooks, 1):
                if number % _AT_ONCE == 0:
                    # Webhooks that do not match are skipped without a wait, and there may be thousands.
                    await asyncio.sleep(0)
                hook = invocation.hook
                if second_round and hook.key not in again:
                    continue
                asked, patched = await self._invoke_mutating(call, invocation, new, old, operation)
                if patched:
                    changed = True
                    again |= called
                    called.clear()
                if asked and hook.reinvoke:
                    called.add(hook.key)
        return changed

    async def _invoke_mutating(
        self, call: Call, invocation: Invocation, new: Json | None, old: Json | None, operation: str
    ) -> tuple[bool, bool]:
        """Whether the webhook matched, and whether it changed the object."""
        request = await self._request(call, invocation, new, old, operation)
        if request is None:
            return False, False
        verdict = await self._call_webhook(call, invocation.hook, request, mutating=True)
        if verdict is None or not verdict.patch:
            return True, False
        if new is None:
            raise internal(
                f'admission webhook "{invocation.hook.name}" attempted to modify the object, '
                "which is not supported for this operation"
            )
        patched = apply_patch(invocation.hook, request["object"], verdict.patch)
        if patched is None:
            return True, False
        if invocation.definition.conversion is not None:
            patched = await self._conversions.shown(call.definition, patched)
        _reshape(call, invocation.hook, patched)
        new.clear()
        new.update(patched)
        return True, True

    async def validate(
        self, call: Call, hooks: tuple[Invocation, ...], new: Json | None, old: Json | None, operation: str
    ) -> None:
        """Call the webhooks, `_AT_ONCE` at a time. Raises the refusal of the first in order that has one."""
        for begin in range(0, len(hooks), _AT_ONCE):
            asked = []
            for invocation in hooks[begin : begin + _AT_ONCE]:
                request = await self._request(call, invocation, new, old, operation)
                if request is not None:
                    asked.append((invocation.hook, request))
            answers = (self._call_webhook(call, hook, request, mutating=False) for hook, request in asked)
            for outcome in await asyncio.gather(*answers, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
            await asyncio.sleep(0)  # as above

    async def _request(
        self, call: Call, invocation: Invocation, new: Json | None, old: Json | None, operation: str
    ) -> Json | None:
        """The request to the webhook; None where selectors or conditions exclude the request."""
        hook, definition = invocation.hook, invocation.definition
        if hook.namespace_labels and not await self._namespace_matches(call, hook, new, operation):
            return None
        if hook.object_labels and not any(
            obj is not None and labels_match(hook.object_labels, obj["metadata"].get("labels") or {})
            for obj in (new, old)
        ):
            return None
        if definition.conversion is not None and part_kind(call, new) is None:
            new = new and await self._conversions.shown(definition, new)
            old = old and await self._conversions.shown(definition, old)
        request = attributes(call, definition, new, old, operation)
        if hook.conditions and not await self._conditions.check(hook, call, request):
            return None
        return request

    async def _namespace_matches(self, call: Call, hook: Hook, new: Json | None, operation: str) -> bool:
        definition, route = call.definition, call.route
        name = route.namespace
        if definition.bucket == NAMESPACES:
            if operation != "DELETE" and not route.subresource and new is not None:
                return labels_match(hook.namespace_labels, new["metadata"].get("labels") or {})
            name = route.name
        if not name:
            return True
        row = await self._backend.store.latest(Key(NAMESPACES, "", name))
        if row is None:
            raise NotFound(f'namespaces "{name}" not found', details=Details(name=name, kind="namespaces"))
        return labels_match(hook.namespace_labels, objects.labels_of(row.meta))

    async def _call_webhook(self, call: Call, hook: Hook, request: Json, *, mutating: bool) -> Verdict | None:
        """The webhook's response; None where the call failed and the failure policy ignores that.

        Raises its refusal, and `InternalError` in Kubernetes' words where the failure policy is Fail.
        """
        if call.dry_run and hook.side_effects not in _DRY:
            raise BadRequest(f'admission webhook "{hook.name}" does not support dry run')
        try:
            verdict = await self._call(hook, request, mutating=mutating)
        except BadReview as error:
            failure = f'failed calling webhook "{hook.name}": {error}'
            if hook.fails_closed:
                _log.warning("%s; failing closed", failure)
                raise internal(failure) from None
            _log.warning("%s; failing open", failure)
            return None
        call.warnings += [text for text in verdict.warnings if text not in call.warnings]
        if verdict.refusal is not None:
            raise verdict.refusal
        return verdict

    async def _call(self, hook: Hook, request: Json, *, mutating: bool) -> Verdict:
        version, uid = review_version(hook), naming.new_uid()
        try:
            body = await self.client.post(
                hook.target, question(version, uid, request), timeout_s=hook.timeout_s
            )
        except CallFailed as error:
            raise BadReview(f"failed to call webhook: {error}") from None
        return read_answer(hook, version, uid, body, mutating=mutating)

    async def _external_name(self, namespace: str, name: str) -> str:
        """The host behind a Service. Raises `CallFailed` where it has no externalName, because this server
        routes nothing else."""
        row = await self._backend.store.get(Key("services", namespace, name))
        if row is None:
            raise CallFailed(f'service "{name}" not found')
        spec = msgspec.json.decode(b"{" + row.body + b"}").get("spec") or {}
        host = spec.get("externalName")
        if not host:
            raise CallFailed(
                f'service "{name}" in namespace "{namespace}" has no endpoints, for no Pods run here; '
                "set its type to ExternalName and spec.externalName to a host, or give the webhook a url"
            )
        return str(host)


def apply_patch(hook: Hook, seen: Json, operations: list[Any]) -> Json | None:
    """The object that the webhook received, after the webhook's patch; None without a change. Raises
    `ApiError`."""
    try:
        # A separate document: patching changes its input, and may fail half-way.
        patched = json_patch(objects.decode_json(objects.encode_json(seen)), operations)
        if type(patched) is not dict:
            raise PatchFailed("the result is not an object")
    except (PatchFailed, PatchMalformed) as error:
        raise _unfit(hook, error) from None
    return None if same(patched, seen) else patched


def _reshape(call: Call, hook: Hook, obj: Json) -> None:
    """Decode an object changed by a webhook as a client's object: version, known members, defaults."""
    definition = call.definition
    obj["apiVersion"], obj["kind"] = definition.api_version, definition.kind
    try:
        metadata.clean(definition, obj)
        definition.schema.process(obj)
    except ApiError as error:
        raise _unfit(hook, error) from None


def _unfit(hook: Hook, error: Exception) -> ApiError:
    return internal(f'the patch of webhook "{hook.name}" cannot be applied: {error}')

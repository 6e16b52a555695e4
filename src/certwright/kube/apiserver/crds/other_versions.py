"""Converted versions of one object, for synchronous work: field management.

That work is synchronous and has no side effects on the store. When it needs an object in a version that only
a webhook can make, it stops with `Unconverted`; the verb is run again from its beginning once the webhook has
answered, and finds the object here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from certwright.kube.api.errors import InternalError
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.base.metadata import MANAGED
from certwright.kube.apiserver.fieldmanager.versions import NotConvertible
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.util.http_messages import Response

MAX_REVIEWS = 64
"""How many objects one request may have converted for field management."""

Convert = Callable[[ResourceDefinition, str, list[Json], str], Awaitable[list[Json]]]
"""Converts objects of a definition from one version to another. Raises `InternalError`."""


class Unconverted(Exception):
    """An object is needed in a version that it has not been converted to yet."""

    def __init__(self, definition: ResourceDefinition, obj: Json) -> None:
        super().__init__(definition.api_version)
        self.definition = definition
        self.obj = obj


class OtherVersions:
    """The webhook's answers in the course of one request."""

    def __init__(self, convert: Convert) -> None:
        self._convert = convert
        self._outcomes: dict[tuple[str, bytes], Json | str] = {}

    def of(self, definition: ResourceDefinition, obj: Json) -> Json:
        """The object in the version of `definition`, without its managed fields.

        Raises `Unconverted` when it is unknown yet, `NotConvertible` when the webhook has refused.
        """
        if obj["apiVersion"] == definition.api_version:
            return obj
        bare = _bare(obj)
        outcome = self._outcomes.get(_key(definition, bare))
        if outcome is None:
            raise Unconverted(definition, bare)
        if isinstance(outcome, str):
            raise NotConvertible(outcome)
        return outcome

    async def run(self, call: Call, verb: Callable[[], Awaitable[Response]]) -> Response:
        """The answer of a verb, which is run again for each missing object. Raises `InternalError`."""
        warnings = list(call.warnings)
        for _ in range(MAX_REVIEWS):
            try:
                return await verb()
            except Unconverted as missing:
                await self._learn(missing.definition, missing.obj)
                call.warnings[:] = warnings
        raise InternalError("the object never stayed the same long enough to be converted")

    async def _learn(self, definition: ResourceDefinition, obj: Json) -> None:
        source = obj["apiVersion"].rpartition("/")[2]
        outcome: Json | str
        try:
            (outcome,) = await self._convert(definition, source, [obj], definition.version)
        except InternalError as error:
            outcome = error.message
        self._outcomes[_key(definition, obj)] = outcome


def _bare(obj: Json) -> Json:
    meta = {name: value for name, value in obj["metadata"].items() if name != MANAGED}
    return {**obj, "metadata": meta}


def _key(definition: ResourceDefinition, bare: Json) -> tuple[str, bytes]:
    return (definition.version, encode_json(bare))

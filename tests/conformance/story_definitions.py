"""Stories about CustomResourceDefinitions themselves."""

from __future__ import annotations

from typing import Any

from conformance.kinds import CRDS, STRING, Json, an_object, crd
from conformance.peers import Caller
from conformance.stories import story

_SCHEMA = an_object(spec=an_object(a=STRING))


def _definition(**changes: Any) -> Json:
    return crd("bars", _SCHEMA, group="definitions.dev", **changes)


@story
async def definitions_are_judged(c: Caller) -> None:
    await c.post(f"{CRDS}?dryRun=All", {"metadata": {"name": "x"}})
    await c.post(f"{CRDS}?dryRun=All", {**_definition(), "spec": {}})
    await c.post(f"{CRDS}?dryRun=All", {**_definition(), "spec": None})
    await c.post(f"{CRDS}?dryRun=All", {**_definition(), "spec": 5})
    await c.post(f"{CRDS}?dryRun=All", {**_definition(), "zzz": 5})
    await c.post(f"{CRDS}?dryRun=All&fieldValidation=Strict", {**_definition(), "zzz": 5})
    await c.post(f"{CRDS}?dryRun=All", {**_definition(), "metadata": {"name": "wrong"}})
    await c.post(f"{CRDS}?dryRun=All", {**_definition(), "metadata": {"name": "foos.other.dev"}})
    for name in ("group", "scope", "names", "versions"):
        body = _definition()
        del body["spec"][name]
        await c.post(f"{CRDS}?dryRun=All", body)

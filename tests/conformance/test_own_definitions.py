"""Our CustomResourceDefinitions at the reference server, which also estimates the cost of their rules."""

from __future__ import annotations

import pytest

from certwright.resources.crds import custom_resource_definitions
from conformance.kinds import CRDS, Json
from conformance.peers import Caller
from conformance.servers import reference
from support.oracle import Oracle

OURS = {definition["metadata"]["name"]: definition for definition in custom_resource_definitions()}


@pytest.mark.parametrize("name", sorted(OURS))
async def test_kubernetes_accepts_our_definitions(oracle: Oracle, name: str) -> None:
    definition: Json = OURS[name]
    async with reference(oracle) as peer:
        answer = await Caller(peer).post(f"{CRDS}?dryRun=All&fieldValidation=Strict", definition)
    assert answer.status == 201, answer.body

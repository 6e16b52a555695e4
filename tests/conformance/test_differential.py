"""The same stories told to the reference server and to ours: both must answer alike."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from conformance import (
    story_apply,
    story_bodies,
    story_cel,
    story_conversion,
    story_definitions,
    story_deletes,
    story_discovery,
    story_forms,
    story_metadata,
    story_openapi,
    story_owners,
    story_patches,
    story_reads,
    story_schemas,
    story_watches,
    story_writes,
)
from conformance.compare import STORIES, compare, namespaces, tell, told_in_vain
from conformance.differences import compared
from conformance.servers import forms_of, ours, reference
from support.oracle import Oracle

TOLD_BY = (
    story_writes,
    story_metadata,
    story_bodies,
    story_deletes,
    story_reads,
    story_patches,
    story_apply,
    story_cel,
    story_conversion,
    story_discovery,
    story_forms,
    story_openapi,
    story_owners,
    story_watches,
    story_definitions,
    story_schemas,
)
"""The modules whose stories are told."""


@pytest.mark.parametrize("name", STORIES)
async def test_both_servers_answer_alike(oracle: Oracle, tmp_path: Path, name: str) -> None:
    async with reference(oracle) as peer:
        theirs = await tell(name, peer)
    assert theirs
    assert not told_in_vain(theirs)
    forms = forms_of(STORIES[name])

    async def differences(form: str) -> list[str]:
        async with ours(form, oracle, tmp_path, namespaces(name)) as peer:
            answers = await tell(name, peer)
        compared[form] += len(theirs)
        different = compare(theirs, answers)
        return [f"{len(different)} answers differ ({form})", *different] if different else []

    # At the same time, because many stories wait for the end of a watch.
    lines = [line for form_lines in await asyncio.gather(*map(differences, forms)) for line in form_lines]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)

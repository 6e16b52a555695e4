"""The first writes to a process, by several connections together: nothing is prepared by earlier requests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from faults.every_kind import resources, root_of, valid_object
from faults.server import Server, running

_CONNECTIONS = 4


@pytest.mark.parametrize("controllers", ["", "*"], ids=["no controllers", "controllers"])
async def test_every_kind_is_first_written_by_several_connections(
    tmp_path: Path, store: tuple[str, ...], controllers: str
) -> None:
    async with running(tmp_path, *store, "--controllers", controllers) as server:
        await connect(server)
        for group, plural in resources():
            assert await create(server, group, plural) == [201] * _CONNECTIONS, (group, plural)
        assert await served(server) == set(resources())
        await create_first_objects_of_new_kinds(server)
        assert server.process is not None
        assert server.process.poll() is None


async def connect(server: Server) -> None:
    """Open the connections, so that later requests meet in the server."""
    await asyncio.gather(*(server.ask("GET", "/version") for _ in range(_CONNECTIONS)))


async def create(server: Server, group: str, plural: str) -> list[int]:
    """The status codes of several creates that are sent together."""
    resource = (await resources_of(server, group))[plural]
    root = root_of(group)
    path = f"{root}/namespaces/default/{plural}" if resource["namespaced"] else f"{root}/{plural}"
    bodies = [valid_object(group, plural, resource["kind"], number) for number in range(_CONNECTIONS)]
    answers = await asyncio.gather(*(server.ask("POST", path, body) for body in bodies))
    assert {answer.status for answer in answers} == {201}, answers[0].text
    return [answer.status for answer in answers]


async def create_first_objects_of_new_kinds(server: Server) -> None:
    """The types of a new kind are built when its CustomResourceDefinition is stored."""
    for number in range(_CONNECTIONS):
        path = f"/apis/test.dev/v1/namespaces/default/things{number}"
        body = {"apiVersion": "test.dev/v1", "kind": f"Thing{number}", "metadata": {"generateName": "x-"}}
        sent = (server.ask("POST", path, body | {"spec": {"a": ["x"]}}) for _ in range(_CONNECTIONS))
        assert {answer.status for answer in await asyncio.gather(*sent)} == {201}


async def resources_of(server: Server, group: str) -> dict[str, dict[str, Any]]:
    """The resources of a group that can be created, by plural."""
    document = (await server.ask("GET", root_of(group))).json
    creatable = [
        resource
        for resource in document["resources"]
        if "create" in resource["verbs"] and "/" not in resource["name"]
    ]
    return {resource["name"]: resource for resource in creatable}


async def served(server: Server) -> set[tuple[str, str]]:
    """Everything that the server lets clients create."""
    groups = [group["name"] for group in (await server.ask("GET", "/apis")).json["groups"]]
    known = [group for group in ("", *groups) if group != "test.dev"]
    return {(group, plural) for group in known for plural in await resources_of(server, group)}

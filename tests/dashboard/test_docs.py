"""What docs/dashboard.md says about rights and about status.json."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from certwright.diagnosis import related
from certwright.kube.util.http_messages import Identity
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.scene import make_ca_issuer, make_certificate, make_issuer
from support.visitor import post, visitor
from support.world import World, make_world

PAGE = (Path(__file__).parents[2] / "docs" / "dashboard.md").read_text()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """shop/web and bank/vault, each signed, and others that wait; and the roles of the page."""
    async with make_world() as world:
        await _fill(world)
        yield world


async def _fill(world: World) -> None:
    for namespace in ("shop", "bank"):
        await world.client.create(related.NAMESPACES, {"metadata": {"name": namespace}})
        await world.create(ISSUERS, make_issuer("root", namespace=namespace))
    await world.create(CERTIFICATES, make_certificate("web", "root", namespace="shop"))
    await world.create(CERTIFICATES, make_certificate("vault", "root", namespace="bank"))
    await world.create(ISSUERS, make_ca_issuer("broken", "nothing"))
    await world.create(CERTIFICATES, make_certificate("stuck", "broken"))
    await world.create(CERTIFICATES, make_certificate("alone", "absent", namespace="shop"))
    await world.settle()
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.S):
        for obj in yaml.safe_load_all(block):
            await _create(world, obj)


async def _create(world: World, obj: dict[str, Any]) -> None:
    where = f"/namespaces/{obj['metadata']['namespace']}" if "namespace" in obj["metadata"] else ""
    await post(world, f"/apis/{obj['apiVersion']}{where}/{obj['kind'].lower()}s", obj)


async def test_the_roles_show_what_the_page_says(world: World) -> None:
    rows = {
        "anna": (("shop/web", "bank/vault"), True, False),
        "berta": (("shop/web",), True, True),
        "carla": (("shop/web", "bank/vault"), False, False),
    }
    for name, (seen, has_events, may_renew) in rows.items():
        user = await visitor(world, Identity(name, groups=("system:authenticated",)))
        facts = await user.facts()
        found = {f"{each['namespace']}/{each['name']}" for each in facts["certificates"]}
        assert {each for each in found if each in ("shop/web", "bank/vault")} == set(seen), name
        page = await user.get("/ui/certificates/shop/web")
        assert page.status == 200
        assert ("Request web-1" in page.text) is has_events, name
        assert any(address.endswith("/renew") for address in (*page.links, *page.forms)) is may_renew, name
        assert "PRIVATE KEY" not in page.html
        other = await user.get("/ui/certificates/bank/vault")
        assert (other.status == 200) is ("bank/vault" in seen)
        events = (await user.get("/ui/stream")).text
        assert ("The certificate has been successfully issued" in events) is has_events, name


def _keys(value: Any, path: str = "") -> Iterator[str]:
    match value:
        case dict():
            for key, each in value.items():
                yield from _keys(each, f"{path}.{key}".strip("."))
        case list() if value and isinstance(value[0], dict):
            for each in value:
                yield from _keys(each, f"{path}[]")
        case _:
            yield path


async def test_every_key_of_status_json_is_in_the_table_and_the_other_way_round(world: World) -> None:
    facts = await (await visitor(world)).facts()
    served = {re.sub(r"^(incidents\[\]|nextRenewal)\..*", r"\1", key) for key in _keys(facts)}
    rows = PAGE.partition("## status.json")[2].partition("\n## ")[0]
    documented = {
        key
        for first in re.findall(r"^\| (`[^|]*) \|", rows, flags=re.M)
        for key in re.findall(r"`([^`]+)`", first)
    }
    assert served == documented
    for name in ("incidents[]", "nextRenewal"):
        row = next(line for line in rows.splitlines() if line.startswith(f"| `{name}`"))
        value = facts["incidents"][0] if name == "incidents[]" else facts["nextRenewal"]
        assert [key for key in value if f"`{key}`" not in row] == []

"""What a tenant of one namespace can do to the pages of others, and what a user sees who may see one kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from certwright.diagnosis import related
from certwright.kube.util.http_messages import close_stream
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.scene import make_certificate, make_issuer
from support.visitor import changes_of, grant, patch, visitor
from support.world import World, make_world

Json = dict[str, Any]
CERTIFICATE = "/apis/cert-manager.io/v1/namespaces/shop/certificates/web"
ISSUER = "/apis/cert-manager.io/v1/namespaces/shop/issuers/root"
PAGES = (
    *("", "stream", "stream?namespace=shop", "issuers", "elsewhere", "status.json", "cas/shop/web"),
    *("certificates/shop/web", "certificates/shop/web/renew"),
)
LARGEST = 150_000
"""Bytes of a page that shows what one tenant has written."""
WORDS = "word " * 200_000
TIMES = (
    *("9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59Z"),
    *("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """shop/web, signed by shop/root, and no controllers that would mend what the tenant writes."""
    async with make_world() as world:
        await world.client.create(related.NAMESPACES, {"metadata": {"name": "shop"}})
        await world.create(ISSUERS, make_issuer("root", namespace="shop"))
        await world.create(CERTIFICATES, make_certificate("web", "root", namespace="shop"))
        await world.settle()
        await world.stop_controllers()
        yield world


def failing(message: str) -> Json:
    condition = {"type": "Ready", "status": "False", "reason": "Failed", "message": message}
    return {"status": {"conditions": [condition], "lastFailureTime": "2026-01-01T00:00:00Z"}}


async def events(world: World, number: int, message: str) -> None:
    uid = (await world.certificate("web", "shop")).metadata.uid
    about = {"kind": "Certificate", "name": "web", "namespace": "shop", "uid": uid}
    times = {"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"}
    said = {"reason": "Said", "message": message, "type": "Warning", **times}
    for count in range(number):
        meta = {"name": f"web.{count}", "namespace": "shop"}
        await world.client.create(related.EVENTS, {"metadata": meta, "involvedObject": about, **said})


async def set_broken(world: World, issuer: str, message: str) -> None:
    conditions = failing(message)["status"]["conditions"]
    await patch(world, f"{ISSUER.replace('root', issuer)}/status", {"status": {"conditions": conditions}})


async def broken_issuers(world: World, number: int) -> None:
    for count in range(number):
        name = f"broken-{count}"
        await world.create(ISSUERS, make_issuer(name, namespace="shop"))
        await set_broken(world, name, "no Secret")
        await world.create(CERTIFICATES, make_certificate(name, name, namespace="shop"))


Attack = Callable[[World], Any]
ATTACKS: dict[str, Attack] = {
    "a certificate's message of a megabyte": lambda world: patch(
        world, f"{CERTIFICATE}/status", failing(WORDS)
    ),
    "an issuer's message of a megabyte": lambda world: set_broken(world, "root", WORDS),
    "an annotation of all that is allowed": lambda world: patch(
        world, CERTIFICATE, {"metadata": {"annotations": {"a": WORDS[:250_000]}}}
    ),
    "Events of a megabyte": lambda world: events(world, 12, WORDS),
    "many Events": lambda world: events(world, 1_100, "no"),
    "many broken issuers": lambda world: broken_issuers(world, 40),
} | {
    f"{field}: {time}": lambda world, field=field, time=time: patch(
        world, f"{CERTIFICATE}/status", {"status": {field: time}}
    )
    for time in TIMES
    for field in ("notAfter", "notBefore", "renewalTime", "lastFailureTime")
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_no_object_of_a_tenant_breaks_a_page_or_makes_it_large(world: World, attack: Attack) -> None:
    await attack(world)
    admin = await visitor(world)
    for path in PAGES:
        page = await admin.get(f"/ui/{path}")
        assert page.status == (404 if path == "cas/shop/web" else 200), (path, page.text[:200])
        assert len(page.response.body) < LARGEST, path
    facts = await admin.facts()
    assert len(facts["incidents"]) <= 20
    named = sum(len(each["certificates"]) for each in facts["incidents"]) + len(facts["attention"])
    assert named + facts["attentionMore"] == facts["counts"]["attention"]


@pytest.fixture
async def audited(world: World) -> World:
    """What a user who may see certificates only must not see: a broken issuer, a request, an Event, a
    Secret."""
    await world.create(ISSUERS, make_issuer("broken", namespace="shop"))
    await set_broken(world, "broken", "broken-issuer-message")
    for name, issuer in (("waits", "broken"), ("orphan", "absent")):
        await world.create(CERTIFICATES, make_certificate(name, issuer, namespace="shop"))
    await events(world, 1, "event-message")
    await world.advance(timedelta(minutes=2))
    return world


RIGHTS = {
    "certificates": (("get list", "cert-manager.io", "certificates", ""), ()),
    "issuers": (
        ("get list", "cert-manager.io", "issuers", ""),
        ("broken-issuer-message", "Issuer shop/broken"),
    ),
    "certificaterequests": (("get list", "cert-manager.io", "certificaterequests", ""), ('"row">web-1<',)),
    "secrets": (("get list", "", "secrets", ""), ("tls.crt, tls.key",)),
    "events": (("get list", "", "events", ""), ("event-message",)),
}
"""By kind: the rule for it, and what only users with it see."""


@pytest.mark.parametrize("kind", RIGHTS)
async def test_a_right_to_certificates_and_one_more_kind_shows_no_other_kind(
    audited: World, kind: str
) -> None:
    rules = {RIGHTS["certificates"][0], RIGHTS[kind][0]}
    user = await visitor(audited, await grant(audited, "carla", *sorted(rules), namespace="shop"))
    shown = []
    for path in (*PAGES, "certificates/shop/waits", "certificates/shop/orphan"):
        page = await user.get(f"/ui/{path}")
        assert page.status in (200, 403, 404), path
        shown.append(page.html)
        response = await user.ask("GET", f"/ui/live?at={path}")
        if response.stream is not None:
            shown.append(str(await anext(changes_of(response))))
            await close_stream(response.stream)
    whole = "\n".join(shown)
    for other, (_, words) in RIGHTS.items():
        assert [word for word in words if word in whole] == (list(words) if other == kind else []), other
    facts = await user.facts()
    states = {each["name"]: each["state"] for each in facts["certificates"]}
    known = kind == "issuers"
    assert [each["name"] for each in facts["incidents"]] == known * ["broken"]
    assert states == {
        "web": "ready",
        "waits": "issuer down" if known else "waiting",
        "orphan": "no issuer" if known else "waiting",
    }
    assert [each["name"] for each in facts["attention"]] == ["orphan", *(not known) * ["waits"]]

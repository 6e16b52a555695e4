"""The stream of Events and log lines: what users may see of it, and its filters."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from certwright.dashboard import live
from certwright.dashboard.access import ProcessorShare
from certwright.dashboard.log_lines import LogLines
from certwright.dashboard.stream import certificate_name
from certwright.diagnosis import related
from certwright.kit import logs
from certwright.kube.api.errors import Unreachable
from certwright.kube.util.http_messages import Identity
from certwright.resources.table import CERTIFICATES
from controllers.scene import make_certificate
from support.visitor import Visitor, grant, post, visitor
from support.world import World

CERTIFICATES_OF = ("get list", "cert-manager.io", "certificates", "")
EVENTS_OF = ("get list", "", "events", "")
_log = logging.getLogger("certwright.test")


async def happen(world: World, about: str, message: str, at: int, kind: str = "Normal") -> None:
    """An Event about `namespace/kind/name`."""
    namespace, of, name = about.split("/")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{at}", "namespace": namespace},
        "involvedObject": {"kind": of, "name": name, "namespace": namespace},
        "reason": "Tested",
        "message": message,
        "type": kind,
        "lastTimestamp": f"2026-01-01T00:00:{at:02}Z",
    }
    await post(world, f"/api/v1/namespaces/{namespace}/events", event)


@pytest.fixture
async def busy(world: World) -> World:
    """Events and log lines about certificates of two namespaces, and of none."""
    for namespace in ("shop", "bank"):
        await world.client.create(related.NAMESPACES, {"metadata": {"name": namespace}})
        await world.create(CERTIFICATES, make_certificate("web", "root", namespace=namespace))
    await happen(world, "shop/Certificate/web", "first of shop", 1)
    await happen(world, "shop/Challenge/web-1-12-345", "third of shop", 3, "Warning")
    await happen(world, "bank/CertificateRequest/web-1", "second of bank", 2)
    return world


def log(visitor: Visitor) -> None:
    """Write lines, once the dashboard listens."""
    assert visitor.site is not None
    for namespace in ("shop", "bank"):
        key = f"{namespace}/web"
        words = f"line of {namespace}"
        logs.event(_log, logging.WARNING, words, subject=f"Certificate/{key}", certificate=key)
    _log.warning("line of the process about shop/web")
    # A value says nothing about whose line it is.
    logs.event(_log, logging.WARNING, "line of the server", subject="server", certificate="shop/web")


TENANT = (CERTIFICATES_OF, EVENTS_OF)
BY_NAME = ("get list", "cert-manager.io", "certificates", "web")
ALL = ["third of shop", "second of bank", "first of shop"]
LINES = ["line of the server", "line of the process", "line of bank", "line of shop"]


@pytest.mark.parametrize(
    ("rights", "namespace", "query", "expected"),
    [
        pytest.param((), "", "", [*ALL, *LINES], id="an administrator"),
        pytest.param((), "", "?namespace=bank", ["second of bank", "line of bank"], id="of a namespace"),
        pytest.param((), "", "?type=Warning", ["third of shop", *LINES], id="of a type"),
        pytest.param((), "", "?name=web-1-12", ["third of shop"], id="of an object"),
        pytest.param((), "", "?namespace=..%2F..", [], id="of no namespace"),
        pytest.param(TENANT, "shop", "", ["third of shop", "first of shop", "line of shop"], id="a tenant"),
        pytest.param(TENANT, "shop", "?namespace=bank", [], id="a tenant who looks elsewhere"),
        pytest.param((CERTIFICATES_OF,), "shop", "", ["line of shop"], id="a tenant without Events"),
        pytest.param((EVENTS_OF,), "shop", "?namespace=shop", [ALL[0], ALL[2]], id="Events only"),
        pytest.param(TENANT, "", "", [*ALL, "line of bank", "line of shop"], id="all certificates"),
        pytest.param((BY_NAME,), "bank", "", ["line of bank"], id="by name"),
    ],
)
async def test_users_see_what_is_about_objects_that_they_may_see(
    busy: World, rights: Any, namespace: str, query: str, expected: list[str]
) -> None:
    user = [await grant(busy, "ann", *rights, namespace=namespace)] if rights else []
    ann = await visitor(busy, *user)
    log(ann)
    text = (await ann.get(f"/ui/stream{query}")).text
    found = sorted((text.index(words), words) for words in (*ALL, *LINES) if words in text)
    assert [words for _, words in found] == expected


async def test_events_and_lines_link_to_their_certificate(busy: World) -> None:
    admin = await visitor(busy)
    log(admin)
    links = (await admin.get("/ui/stream")).links
    assert links.count("https://certwright.example/ui/certificates/shop/web") == 3
    assert links.count("https://certwright.example/ui/certificates/bank/web") == 2
    page = await admin.get("/ui/certificates/bank/web")
    assert "line of bank" in page.text
    assert "line of shop" not in page.text


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("Certificate", "web-1", "web-1"),
        ("CertificateRequest", "web-1-2", "web-1"),
        ("CertificateRequest", "by-hand", ""),
        ("Order", "web-2-345", "web"),
        ("Order", "web-2-345-68f2e8d7", "web"),
        ("CertificateRequest", "web-2-68f2e8d7", "web"),
        ("Challenge", "a.b-2-345-6", "a.b"),
        ("Challenge", "2-345-6", ""),
        ("Secret", "web-1", ""),
    ],
)
def test_the_certificate_of_an_object_is_known_by_its_name(kind: str, name: str, expected: str) -> None:
    assert certificate_name(kind, name) == expected


async def test_events_and_lines_are_sent_while_the_page_is_open(busy: World) -> None:
    admin = await visitor(busy)
    async with admin.following("stream") as changes:
        assert "fourth of bank" not in (await anext(changes))["events"]
        await happen(busy, "bank/Certificate/web", "fourth of bank", 4)
        assert "fourth of bank" in (await anext(changes))["events"]
        log(admin)
        assert "line of shop" in (await anext(changes))["lines"]


async def test_an_open_page_goes_on_when_the_api_is_reached_again(
    busy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = await visitor(busy)
    assert admin.access is not None
    identify, failures = admin.access.identify, [Unreachable("connection refused"), Unreachable("the same")]

    async def fail(*arguments: Any) -> Identity:
        if failures:
            raise failures.pop()
        return await identify(*arguments)

    async with admin.following("stream") as changes:
        await anext(changes)
        monkeypatch.setattr(admin.access, "identify", fail)
        monkeypatch.setattr(live, "_AGAIN_S", 0.01)
        await happen(busy, "bank/Certificate/web", "fourth of bank", 4)
        assert "fourth of bank" in (await anext(changes))["events"]
    assert failures == []


def test_a_line_that_cannot_be_written_does_not_stop_its_writer(capsys: pytest.CaptureFixture[str]) -> None:
    kept = LogLines()
    kept.close()
    for text, given in (("a number: %d", ("none",)), ("many\nlines \x1b[31m" + 5_000 * "x", ())):
        kept.emit(logging.LogRecord("certwright.test", logging.WARNING, "", 0, text, given, None))
    (line,) = kept.lines
    assert "\n" not in line.text
    assert "\x1b" not in line.text
    assert len(line.text) <= 2_100
    assert "Traceback" in capsys.readouterr().err


def test_time_that_was_not_used_is_saved_up() -> None:
    share = ProcessorShare(0.01, saved_s=0.1)
    assert [share.spend(0.05, now=0.0) for _ in range(3)] == pytest.approx([0.0, 0.0, 5.0])
    assert not share.is_unused(5.0)
    assert share.spend(0.05, now=10.0) == pytest.approx(0.0)
    assert share.is_unused(20.0)

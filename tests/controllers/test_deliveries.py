"""Deliveries: files below the operator's roots, with the real API server and real files."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from certwright.controllers import wiring
from certwright.controllers.deliveries.outputs import make_files, read_source
from certwright.controllers.deliveries.permissions import DeliveryOptions, Root
from certwright.controllers.deliveries.reconcile import DeliveryReconciler
from certwright.kit.tls_scan import TlsAddress
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import ApiError
from certwright.kube.api.meta import Condition, ObjectMeta
from certwright.pki import jks, pkcs12
from certwright.pki.certificates import read_certificate
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources.delivery import Delivery, DeliveryOutput, DeliverySpec, ServedAt
from certwright.resources.references import LocalObjectReference, SecretKeySelector
from certwright.resources.table import DELIVERIES
from controllers.scene import Scene, make_secret
from support.programs import free_port
from support.world import World, make_world

ROOT = "web"


@asynccontextmanager
async def delivering(
    directory: Path, *, roots: Mapping[str, Root] | None = None, checked: Sequence[str] = (), **root: Any
) -> AsyncIterator[Scene]:
    """A world with a CA, a Certificate `web`, and one root, or several."""
    options = DeliveryOptions(
        roots={ROOT: Root(directory=str(directory), **root), **(roots or {})},
        hooks={"fails": 'echo "the operator\'s secret"; exit 1', "ok": "true"},
        checked=checked,
    )
    async with make_world(deliveries=options) as world:
        scene = Scene(world)
        await scene.add_ca()
        await scene.issue("web")
        yield scene


def delivery(name: str = "web", *, namespace: str = "default", **spec: Any) -> Delivery:
    spec = {
        "root": ROOT,
        "path": name,
        "certificate_ref": LocalObjectReference(name="web"),
        **spec,
    }
    return Delivery(metadata=ObjectMeta(name=name, namespace=namespace), spec=DeliverySpec(**spec))


async def condition_of(world: World, name: str = "web", kind: str = "Delivered") -> Condition | None:
    stored = await world.get(DELIVERIES, name)
    return next((condition for condition in stored.status.conditions if condition.type == kind), None)


async def until(world: World, true: Callable[[], Awaitable[bool]], *, tick_s: float = 0) -> None:
    """Return when it is so. Files are written in threads, which the world does not see; meanwhile the clock
    moves by `tick_s` again and again."""
    async with asyncio.timeout(20):
        while not await true():
            await world.advance(timedelta(seconds=tick_s))
            await asyncio.sleep(0.01)


async def has_replaced(world: World) -> bool:
    """Whether a second certificate was delivered."""
    return (await world.get(DELIVERIES, "web")).status.previous is not None


async def reason(world: World, expected: str, name: str = "web", *, tick_s: float = 0) -> str:
    """The message of the condition when it has that reason."""
    await world.settle()

    async def has_it() -> bool:
        condition = await condition_of(world, name)
        return condition is not None and condition.reason == expected

    await until(world, has_it, tick_s=tick_s)
    condition = await condition_of(world, name)
    assert condition is not None
    return condition.message


async def test_the_files_contain_the_secret_and_follow_its_renewal(tmp_path: Path) -> None:
    async with delivering(tmp_path) as scene:
        world = scene.world
        await world.create(DELIVERIES, delivery(path="nginx/web"))
        await reason(world, "Delivered")
        folder, secret = tmp_path / "nginx" / "web", await world.secret("web")
        for name in ("tls.crt", "tls.key", "ca.crt"):
            assert (folder / name).read_bytes().strip() == secret.data[name].strip()
        assert stat.S_IMODE((folder / "tls.key").stat().st_mode) == 0o600
        (folder / "tls.key").chmod(0o640)
        before = (await world.get(DELIVERIES, "web")).status.current
        assert before is not None

        await world.advance(timedelta(days=80))
        await reason(world, "Delivered")
        secret = await world.secret("web")
        await until(world, lambda: has_replaced(world))
        status = (await world.get(DELIVERIES, "web")).status
        assert (folder / "tls.key").read_bytes() == secret.data["tls.key"]
        assert stat.S_IMODE((folder / "tls.key").stat().st_mode) == 0o640
        assert (status.previous, status.failed_attempts) == (before, None)


async def test_the_condition_is_a_metric_and_a_deleted_file_is_written_again(tmp_path: Path) -> None:
    async with delivering(tmp_path) as scene:
        await scene.world.create(DELIVERIES, delivery())
        await reason(scene.world, "Delivered")
        text = scene.world.manager.metrics.take()().decode()
        name = 'certwright_delivery_delivered_status{name="web",namespace="default",condition="True"} 1'
        assert name in text
        (tmp_path / "web" / "tls.crt").unlink()

        async def is_back() -> bool:
            return "tls.crt" in os.listdir(tmp_path / "web")

        await until(scene.world, is_back, tick_s=30)


async def test_all_formats(tmp_path: Path) -> None:
    password = SecretKeySelector(name="password", key="p")
    outputs = (
        DeliveryOutput(name="all.pem", format="Combined", mode="0640"),
        DeliveryOutput(name="store.p12", format="PKCS12", password_secret_ref=password),
        DeliveryOutput(name="store.jks", format="JKS", password_secret_ref=password),
    )
    async with delivering(tmp_path) as scene:
        world = scene.world
        await world.create(DELIVERIES, delivery(outputs=outputs))
        assert "Secret password does not exist yet" in await reason(world, "NotFound")
        await world.create(SECRETS, make_secret("password", {"p": b"changeit"}))
        await reason(world, "Delivered")
        folder, secret = tmp_path / "web", await world.secret("web")
        combined = (folder / "all.pem").read_bytes()
        assert combined == secret.data["tls.crt"].strip() + b"\n" + secret.data["tls.key"].strip() + b"\n"
        assert pkcs12.open_store((folder / "store.p12").read_bytes(), password="changeit").leaf is not None
        assert jks.open_store((folder / "store.jks").read_bytes(), password="changeit").keys
        # The same content in a new key store would only differ in its salt.
        stores = ("store.p12", "store.jks")
        before = [(folder / name).read_bytes() for name in stores]
        await world.stop_controllers()
        await world.start_controllers(deliveries=DeliveryOptions(roots={ROOT: Root(directory=str(tmp_path))}))
        more = DeliveryOutput(name="more.pem", format="CertificateChain")
        spec = {"outputs": msgspec.to_builtins([*outputs, more])}
        await world.client.patch(DELIVERIES, "web", "default", {"spec": spec})
        async with asyncio.timeout(20):
            while not (folder / "more.pem").exists():
                await world.settle()
                await asyncio.sleep(0.01)
        assert [(folder / name).read_bytes() for name in stores] == before
        # One that this process may not read, because it has another owner, is known by its digest.
        digests = []
        for word in ("changeit", "changeit", "another"):
            source = read_source(secret, dict.fromkeys(stores, word))
            files = make_files(outputs, source, lambda _name: None, datetime.now(UTC))
            assert all(files[name].content not in before for name in stores)
            digests.append([files[name].digest for name in stores])
        assert digests[0] == digests[1]
        assert len({digest for named in digests[1:] for digest in named}) == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"path": "../etc"}, "spec.path"),
        ({"path": "/etc/nginx"}, "spec.path"),
        ({"path": "web/..data"}, "spec.path"),
        ({"path": "a//b"}, "spec.path"),
        ({"secret_ref": LocalObjectReference(name="web")}, "spec.secretRef"),
        ({"certificate_ref": None}, "spec.certificateRef"),
        ({"outputs": (DeliveryOutput(name="..data", format="CA"),)}, "name"),
        ({"outputs": (DeliveryOutput(name="a/b", format="CA"),)}, "name"),
        ({"outputs": (DeliveryOutput(name="a", format="PrivateKey", mode="4755"),)}, "mode"),
        ({"outputs": (DeliveryOutput(name="a", format="PrivateKey", mode="0644"),)}, "private key"),
        ({"outputs": (DeliveryOutput(name="a", format="JKS"),)}, "passwordSecretRef"),
        ({"outputs": (DeliveryOutput(name="a", format="CA"),) * 2}, "spec.outputs"),
    ],
)
async def test_the_server_refuses_what_no_operator_can_allow(changes: dict[str, Any], words: str) -> None:
    async with make_world(controllers=False) as world:
        with pytest.raises(ApiError, match=words):
            await world.create(DELIVERIES, delivery(**changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hook": "restart"}, "'restart' is not a hook of the operator.*--hook NAME='COMMAND'"),
        (
            {"outputs": (DeliveryOutput(name="a", format="CA", owner="root"),)},
            "does not allow 'root'.*owners=root",
        ),
        ({"outputs": (DeliveryOutput(name="a", format="CA", group="daemon"),)}, "groups=daemon"),
        ({"outputs": (DeliveryOutput(name="a", format="CA", mode="0755"),)}, "modes=0755"),
        pytest.param({}, "namespaces=", id="a root that is for other namespaces"),
    ],
)
async def test_what_the_operator_does_not_allow_is_not_written(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    namespaces = () if changes else ("shop",)
    async with delivering(tmp_path, namespaces=namespaces) as scene:
        await scene.world.create(DELIVERIES, delivery(**changes))
        message = await reason(scene.world, "NotAllowed")
        assert re.search(words, message)
        assert os.listdir(tmp_path) == []


async def test_roots_of_other_processes_are_left_to_them(tmp_path: Path) -> None:
    async with delivering(tmp_path) as scene:
        await scene.world.add(DELIVERIES, delivery(root="another"))
        assert await condition_of(scene.world) is None


async def test_of_two_deliveries_to_one_path_the_older_has_it(tmp_path: Path) -> None:
    async with delivering(tmp_path) as scene:
        world = scene.world
        await scene.issue("api")
        await world.create(DELIVERIES, delivery(path="one"))
        await world.advance(timedelta(seconds=1))
        later = delivery("api", path="one", certificate_ref=LocalObjectReference(name="api"))
        await world.create(DELIVERIES, later)
        assert "Delivery web delivers to web:one" in await reason(world, "PathInUse", "api")
        await reason(world, "Delivered")
        assert (tmp_path / "one" / "tls.crt").read_bytes() == (await world.secret("web")).data["tls.crt"]
        await world.client.delete(DELIVERIES, "web", "default")
        await reason(world, "Delivered", "api")


@pytest.mark.parametrize(
    ("never", "why"),
    [
        pytest.param({"hook": "none"}, "NotAllowed", id="a hook that the operator does not offer"),
        pytest.param(
            {"certificate_ref": LocalObjectReference(name="none")}, "NotFound", id="no such Certificate"
        ),
    ],
)
async def test_a_delivery_that_has_never_delivered_keeps_no_other_from_its_path(
    tmp_path: Path, never: dict[str, Any], why: str
) -> None:
    async with delivering(tmp_path) as scene:
        world = scene.world
        await world.create(DELIVERIES, delivery("never", path="one", **never))
        await reason(world, why, "never")
        await world.advance(timedelta(seconds=1))
        await world.create(DELIVERIES, delivery(path="one"))
        await reason(world, "Delivered")
        # Once it may deliver, the path belongs to the other one.
        await world.patch(DELIVERIES, "never", {"spec": {"hook": None, "certificateRef": {"name": "web"}}})
        assert "Delivery web delivers to web:one" in await reason(world, "PathInUse", "never")
        await world.client.delete(DELIVERIES, "web", "default")
        await reason(world, "Delivered", "never")


@pytest.mark.parametrize("place", ["web", "web/deep"])
async def test_links_below_the_root_are_not_followed(tmp_path: Path, place: str) -> None:
    root, victim = tmp_path / "root", tmp_path / "victim"
    root.mkdir()
    (victim / "deep").mkdir(parents=True)
    (root / "web").symlink_to(victim)
    async with delivering(root) as scene:
        await scene.world.create(DELIVERIES, delivery(path=place))
        message = await reason(scene.world, "WriteFailed")
        assert "symbolic links are not followed" in message
        assert str(tmp_path) not in message
        assert [path.name for path in victim.rglob("*")] == ["deep"]


async def test_a_file_of_the_operator_is_not_replaced(tmp_path: Path) -> None:
    own = tmp_path / "web" / "tls.key"
    own.parent.mkdir()
    own.write_text("the operator's")
    async with delivering(tmp_path) as scene:
        await scene.world.create(DELIVERIES, delivery())
        assert "tls.key exists there and is not from a Delivery" in await reason(scene.world, "NotAllowed")
    assert own.read_text() == "the operator's"


async def test_a_removed_root_is_reported_and_retried_with_backoff(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    async with delivering(root) as scene:
        world = scene.world
        os.rmdir(root)
        await world.create(DELIVERIES, delivery())
        assert "No such file or directory" in await reason(world, "WriteFailed")
        first = (await world.get(DELIVERIES, "web")).status
        assert (first.failed_attempts, first.next_attempt is not None) == (1, True)
        os.mkdir(root)
        await world.advance(timedelta(minutes=5))
        await reason(world, "Delivered")
        assert (await world.get(DELIVERIES, "web")).status.failed_attempts is None


async def test_a_failing_hook_is_a_condition_without_its_output(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "certwright.controllers.deliveries")
    async with delivering(tmp_path) as scene:
        world = scene.world
        await world.create(DELIVERIES, delivery(hook="fails"))
        message = await reason(world, "HookFailed", tick_s=0.1)
        assert message == (
            "files in web:web are current, but hook fails failed; the log of certwright has its output"
        )
        assert (tmp_path / "web" / "tls.crt").exists()
    written, failed = [record.__dict__["values"] for record in caplog.records][:2]
    assert (caplog.messages[:2], written["delivery"], written["path"]) == (
        ["files delivered", "delivery failed"],
        "default/web",
        "web:web",
    )
    assert (failed["reason"], failed["attempts"]) == ("HookFailed", 1)
    assert failed["cause"] == "hook fails failed: it ended with status 1: the operator's secret"


async def test_the_private_key_of_a_ca_is_not_delivered_unless_it_is_named(tmp_path: Path) -> None:
    async with delivering(tmp_path) as scene:
        secret = LocalObjectReference(name="ca")
        await scene.world.create(DELIVERIES, delivery(certificate_ref=None, secret_ref=secret))
        await reason(scene.world, "Delivered")
        assert sorted(path.name for path in (tmp_path / "web").glob("[!.]*")) == ["ca.crt", "tls.crt"]


async def test_without_a_root_a_process_that_only_delivers_watches_nothing() -> None:
    async with make_world(enabled="deliveries") as world:
        assert world.manager.wiring.deliveries is None


async def test_a_path_is_one_directory_by_whatever_root_it_is_reached(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    other = Root(directory=str(tmp_path / "link"))
    async with delivering(tmp_path, roots={"other": other}) as scene:
        world = scene.world
        await world.create(DELIVERIES, delivery(path="one"))
        await world.advance(timedelta(seconds=1))
        await world.create(DELIVERIES, delivery("later", root="other", path="one"))
        assert "Delivery web delivers to other:one" in await reason(world, "PathInUse", "later")
        await world.client.delete(DELIVERIES, "web", "default")
        await reason(world, "Delivered", "later")


async def test_a_delivery_that_the_root_does_not_allow_takes_no_path(tmp_path: Path) -> None:
    async with delivering(tmp_path, namespaces=("default",)) as scene:
        world = scene.world
        await world.create(DELIVERIES, delivery("early", namespace="kube-system", path="one"))
        await world.advance(timedelta(seconds=1))
        await world.create(DELIVERIES, delivery(path="one"))
        await reason(world, "Delivered")


NOT_A_PAIR = {"tls.key": b"other", "ca.crt": b"-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----"}


@pytest.mark.parametrize("name", ["tls.key", "ca.crt", "tls.crt"])
async def test_files_that_a_server_could_not_read_are_not_delivered(tmp_path: Path, name: str) -> None:
    async with delivering(tmp_path) as scene:
        world = scene.world
        data = {**(await world.secret("web")).data, "tls.crt": (await world.secret("ca")).data["tls.crt"]}
        if name != "tls.crt":
            data = {**(await world.secret("web")).data, name: NOT_A_PAIR[name]}
        await world.create(SECRETS, make_secret("bad", data))
        bad = LocalObjectReference(name="bad")
        await world.create(DELIVERIES, delivery(certificate_ref=None, secret_ref=bad))
        message = await reason(world, "Invalid")
        assert "of Secret bad" in message
        assert os.listdir(tmp_path) == []


async def test_text_beside_the_pem_is_left_out(tmp_path: Path) -> None:
    async with delivering(tmp_path) as scene:
        world = scene.world
        plain = (await world.secret("web")).data
        data = {name: b"\xffa text\n\n" + plain[name] + b"\n\nset ssl" for name in ("tls.crt", "ca.crt")}
        data["tls.key"] = plain["tls.key"] + b"-----BEGIN X"
        await world.create(SECRETS, make_secret("odd", data))
        odd = LocalObjectReference(name="odd")
        await world.create(DELIVERIES, delivery(certificate_ref=None, secret_ref=odd))
        await reason(world, "Delivered")
        for name in ("tls.crt", "ca.crt"):
            assert (tmp_path / "web" / name).read_bytes() == plain[name]
        key = (tmp_path / "web" / "tls.key").read_bytes()
        assert public_key_der(load_private_key(key)) == public_key_der(load_private_key(plain["tls.key"]))
        assert b"-----BEGIN X" not in key


async def deployed(world: World, words: str, *, tick_s: float = 0.1) -> None:
    """Return when the message of the condition `Deployed` contains `words`."""

    async def is_shown() -> bool:
        condition = await condition_of(world, kind="Deployed")
        return condition is not None and words in condition.message

    await until(world, is_shown, tick_s=tick_s)


async def test_other_addresses_are_checked_immediately_and_none_leave_no_condition(tmp_path: Path) -> None:
    first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
    async with delivering(tmp_path, checked=("127.0.0.1:*",)) as scene:
        world = scene.world
        await world.create(DELIVERIES, delivery(served_at=(ServedAt(address=first),)))
        await deployed(world, f"{first} cannot be reached")
        await world.patch(DELIVERIES, "web", {"spec": {"servedAt": [{"address": second}]}})
        await deployed(world, f"{second} cannot be reached", tick_s=0)
        await world.patch(DELIVERIES, "web", {"spec": {"servedAt": None}})
        async with asyncio.timeout(20):
            while await condition_of(world, kind="Deployed") is not None:
                await world.settle()
                await asyncio.sleep(0.01)


async def test_a_server_that_reloads_is_no_problem_for_three_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    presented = b""

    async def present(_address: TlsAddress) -> bytes:
        return presented

    reconciler = partial(DeliveryReconciler, probe=present)
    monkeypatch.setattr(wiring, "DeliveryReconciler", reconciler)
    async with delivering(tmp_path, checked=("127.0.0.1:443",)) as scene:
        world = scene.world
        presented = read_certificate((await world.secret("web")).data["tls.crt"]).der
        await world.create(DELIVERIES, delivery(served_at=(ServedAt(address="127.0.0.1:443"),)))
        await deployed(world, "serves the current certificate")
        await world.advance(timedelta(days=80))
        await until(world, lambda: has_replaced(world))
        async with asyncio.timeout(20):
            while (
                condition := await condition_of(world, kind="Deployed")
            ) is None or condition.status != "False":
                await world.advance(timedelta(seconds=0.25))
                await asyncio.sleep(0.01)
        assert condition.reason == "OldCertificateServed"
        delivered = (await world.get(DELIVERIES, "web")).status.current
        assert delivered is not None
        assert delivered.time is not None
        assert condition.last_transition_time is not None
        assert condition.last_transition_time - delivered.time >= timedelta(seconds=3)


async def test_the_servers_are_checked_although_the_hook_fails(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with delivering(tmp_path, checked=(address,)) as scene:
        world = scene.world
        served = (ServedAt(address=address),)
        await world.create(DELIVERIES, delivery(hook="fails", served_at=served))
        await deployed(world, f"stored and delivered, but {address} cannot be reached")
        status = (await world.get(DELIVERIES, "web")).status
        assert status.current is not None
        assert status.failed_attempts is not None

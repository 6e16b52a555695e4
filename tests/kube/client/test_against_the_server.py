"""The client and our own API server, in one process and over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from certwright.admission import certificate_kinds
from certwright.kube.api.core import CONFIG_MAPS, ConfigMap
from certwright.kube.api.errors import AlreadyExists, Conflict, NotFound, Unreachable
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.kube.apiserver.http.https import serve_https
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client import discovery, kubeconfig
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.client.throttle import Throttle, lift_where_fair
from certwright.kube.client.transport import LocalTransport
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import TestClock
from certwright.kube.util.http_messages import Handler, Identity, Request, Response, close_stream
from certwright.resources.certificate import Certificate, CertificateSpec, CertificateStatus
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATES
from support.waiting import turns, until

ADMIN = Identity("kubernetes-admin", groups=("system:masters", "system:authenticated"))


class Wire:
    """A transport with a plug: `cut` breaks what is open and refuses what comes, until `mend`."""

    def __init__(self, handler: Handler) -> None:
        self._inner = LocalTransport(handler, ADMIN)
        self._broken = asyncio.Event()
        self.requests = 0
        self.lists = 0

    def cut(self) -> None:
        self._broken.set()

    def mend(self) -> None:
        self._broken = asyncio.Event()

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        self.requests += 1
        self.lists += method == "GET" and "watch=" not in target
        if self._broken.is_set():
            raise Unreachable("the wire is cut")
        answer = await self._inner.request(method, target, headers=headers, body=body)
        if answer.stream is not None:
            answer.stream = self._breakable(answer.stream, self._broken)
        return answer

    async def _breakable(self, stream: AsyncIterator[bytes], broken: asyncio.Event) -> AsyncIterator[bytes]:
        fuse = asyncio.ensure_future(broken.wait())
        try:
            while True:
                chunk = asyncio.ensure_future(_next(stream))
                await asyncio.wait({chunk, fuse}, return_when=asyncio.FIRST_COMPLETED)
                if fuse.done():
                    chunk.cancel()
                    await asyncio.gather(chunk, return_exceptions=True)
                    raise Unreachable("the wire was cut")
                if (content := await chunk) is None:
                    return
                yield content
        finally:
            fuse.cancel()
            await close_stream(stream)

    async def close(self) -> None:
        await self._inner.close()


async def _next(stream: AsyncIterator[bytes]) -> bytes | None:
    return await anext(stream, None)


@dataclass
class Scene:
    """A server, a client, and the clock of both."""

    server: ApiServer
    client: Client
    clock: TestClock

    async def follow(
        self, tasks: list[asyncio.Task[None]], *, labels: str = "", page: int = 500
    ) -> Informer[ConfigMap]:
        """An informer of ConfigMaps at work, after its first list."""
        informer = Informer(self.client, CONFIG_MAPS, self.clock, labels=labels, page=page)
        tasks.append(asyncio.ensure_future(informer.run()))
        await informer.synced.wait()
        return informer


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    clock = TestClock()
    # A window of a few dozen events, so that being away for longer means 410.
    server = ApiServer(
        MemoryStore(window_bytes=20_000),
        clock,
        authenticator=lambda _: None,
        bookmark_every_s=None,
        extensions=certificate_kinds(),
    )
    await server.start(custom_resource_definitions())
    yield Scene(server, Client(LocalTransport(server.handle, ADMIN), user_agent="test"), clock)
    await server.close()


@pytest.fixture
async def tasks() -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks: list[asyncio.Task[None]] = []
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def config_map(name: str, *, label: str = "", **data: str) -> ConfigMap:
    meta = ObjectMeta(name=name, namespace="default", labels={"app": label} if label else {})
    return ConfigMap(metadata=meta, data=data)


async def test_the_verbs(scene: Scene) -> None:
    client = scene.client
    made = await client.create(CONFIG_MAPS, config_map("a", k="1"))
    assert made.metadata.uid
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, config_map("a"))
    patched = await client.patch(CONFIG_MAPS, "a", "default", {"data": {"k": None, "l": "2"}})
    assert patched.data == {"l": "2"}
    with pytest.raises(Conflict):
        await client.update(CONFIG_MAPS, made)
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", "default", uid="another")
    await client.delete(CONFIG_MAPS, "a", "default", uid=made.metadata.uid)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", "default")


async def test_a_dry_run_leaves_nothing_behind(scene: Scene) -> None:
    await scene.client.create(CONFIG_MAPS, config_map("a"), dry_run=True)
    with pytest.raises(NotFound):
        await scene.client.get(CONFIG_MAPS, "a", "default")


async def test_a_status_is_written_apart(scene: Scene) -> None:
    spec = CertificateSpec(secret_name="s", dns_names=("a.example",), issuer_ref=IssuerReference(name="i"))
    meta = ObjectMeta(name="web", namespace="default")
    made = await scene.client.create(CERTIFICATES, Certificate(metadata=meta, spec=spec))
    version = made.metadata.resource_version
    patch = {"metadata": {"resourceVersion": version}, "status": {"revision": 3}}
    written = await scene.client.patch(CERTIFICATES, "web", "default", patch, subresource="status")
    assert written.status == CertificateStatus(revision=3)
    with pytest.raises(Conflict):
        await scene.client.patch(CERTIFICATES, "web", "default", patch, subresource="status")


async def test_a_list_in_pages_is_the_list(scene: Scene) -> None:
    for number in range(7):
        await scene.client.create(CONFIG_MAPS, config_map(f"c{number}", label="x" if number % 2 else "y"))
    listing = await scene.client.list(CONFIG_MAPS, "default", labels="app=y")
    paged = await scene.client.list(CONFIG_MAPS, "default", labels="app=y", limit=2)
    assert [c.metadata.name for c in paged.items] == ["c0", "c2", "c4", "c6"]
    assert paged == listing


async def test_an_informer_follows(scene: Scene, tasks: list[asyncio.Task[None]]) -> None:
    for number in range(5):
        await scene.client.create(CONFIG_MAPS, config_map(f"c{number}"))
    informer = await scene.follow(tasks, page=2)
    assert len(informer.cache) == 5
    changes: list[tuple[bool, bool]] = []
    informer.add_handler(lambda old, new: changes.append((old is not None, new is not None)))
    changes.clear()
    await scene.client.create(CONFIG_MAPS, config_map("new"))
    await scene.client.patch(CONFIG_MAPS, "c0", "default", {"data": {"x": "y"}})
    await scene.client.delete(CONFIG_MAPS, "c1", "default")
    await turns()
    assert changes == [(False, True), (True, True), (True, False)]
    cached = informer.cache.get(ObjectKey("default", "c0"))
    assert cached == await scene.client.get(CONFIG_MAPS, "c0", "default")


async def test_an_object_that_loses_its_label_is_gone_for_who_selects_by_it(
    scene: Scene, tasks: list[asyncio.Task[None]]
) -> None:
    await scene.client.create(CONFIG_MAPS, config_map("a", label="x"))
    informer = await scene.follow(tasks, labels="app=x")
    await scene.client.patch(CONFIG_MAPS, "a", "default", {"metadata": {"labels": {"app": "y"}}})
    await turns()
    assert len(informer.cache) == 0
    await scene.client.patch(CONFIG_MAPS, "a", "default", {"metadata": {"labels": {"app": "x"}}})
    await turns()
    assert len(informer.cache) == 1


async def test_own_writes_and_the_watch_agree(scene: Scene, tasks: list[asyncio.Task[None]]) -> None:
    informer = await scene.follow(tasks)
    notified: list[str] = []
    informer.add_handler(lambda old, new: notified.append(new.metadata.resource_version if new else "gone"))
    versions = []
    for number in range(10):
        name = f"c{number % 3}"
        made = (
            await scene.client.create(CONFIG_MAPS, config_map(name))
            if number < 3
            else await scene.client.patch(CONFIG_MAPS, name, "default", {"data": {"n": str(number)}})
        )
        informer.put(made)
        versions.append(made.metadata.resource_version)
    await turns()
    assert notified == versions


async def test_words_of_our_own_server(scene: Scene) -> None:
    for word, kind in (
        ("cert", "Certificate"),
        ("issuers", "Issuer"),
        ("cm", "ConfigMap"),
        ("crd", "CustomR"),
    ):
        assert (await discovery.resolve(scene.client, word)).kind.startswith(kind)
    kinds = {kind.kind for kind in await discovery.all_resources(scene.client)}
    assert {"Certificate", "Order", "Lease", "Secret", "Event"} <= kinds


@pytest.mark.parametrize("writes", [3, 300], ids=["resumes", "lists again"])
async def test_nothing_is_lost_while_the_server_is_away(
    scene: Scene, tasks: list[asyncio.Task[None]], writes: int
) -> None:
    for name in ("stays", "goes", "changes"):
        await scene.client.create(CONFIG_MAPS, config_map(name))
    wire = Wire(scene.server.handle)
    informer = Informer(Client(wire, user_agent="test"), CONFIG_MAPS, scene.clock)
    latest: dict[str, ConfigMap | None] = {}

    def hear(old: ConfigMap | None, new: ConfigMap | None) -> None:
        obj = new or old
        assert obj is not None
        latest[obj.metadata.name] = new

    informer.add_handler(hear)
    tasks.append(asyncio.ensure_future(informer.run()))
    await informer.synced.wait()
    await turns()

    wire.cut()
    await turns()
    await scene.client.delete(CONFIG_MAPS, "goes", "default")
    for number in range(writes):
        await scene.client.patch(CONFIG_MAPS, "changes", "default", {"data": {"n": str(number)}})
    for _ in range(10):
        scene.clock.advance(timedelta(seconds=30))
        await turns()
    # A list, a watch, and one more try each time.
    assert wire.requests <= 12
    wire.mend()
    scene.clock.advance(timedelta(seconds=30))
    await turns()

    expected = {c.metadata.name: c for c in (await scene.client.list(CONFIG_MAPS, "default")).items}
    assert {c.metadata.name: c for c in informer.cache.values() if c.metadata.name in expected} == expected
    assert {name: obj for name, obj in latest.items() if name in expected} == expected
    assert latest["goes"] is None
    assert (wire.lists == 1) == (writes == 3)


async def test_the_same_over_tls(scene: Scene, tasks: list[asyncio.Task[None]], tmp_path: Path) -> None:
    ca = trustme.CA()
    leaf = ca.issue_cert("127.0.0.1")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    leaf.private_key_pem.write_to_path(tmp_path / "tls.key")

    async def handle(request: Request) -> Response:
        if request.headers.get("authorization") == "Bearer s3cret":
            request.user = ADMIN
        return await scene.server.handle(request)

    face = await serve_https(
        handle,
        host="127.0.0.1",
        port=0,
        certfile=tmp_path / "tls.crt",
        keyfile=tmp_path / "tls.key",
        client_ca_file=None,
    )
    address = f"https://127.0.0.1:{face.port}"
    (tmp_path / "kubeconfig").write_bytes(kubeconfig.render(address, ca.cert_pem.bytes(), "s3cret"))
    transport = kubeconfig.connect(kubeconfig.load(tmp_path / "kubeconfig"))
    informer = Informer(Client(transport, user_agent="test"), CONFIG_MAPS, scene.clock)
    try:
        tasks.append(asyncio.ensure_future(informer.run()))
        await informer.synced.wait()
        made = await Client(transport, user_agent="test").create(CONFIG_MAPS, config_map("a", k="v"))
        await until(lambda: informer.cache.get(ObjectKey("default", "a")) == made)
        throttle = Throttle(scene.clock, qps=20, burst=50)
        await lift_where_fair(transport, throttle, scene.clock, "test")
        assert throttle.lifted
        await face.close()
        with pytest.raises(Unreachable, match="connection refused by"):
            await Client(transport, user_agent="test").get(CONFIG_MAPS, "a", "default")
    finally:
        await transport.close()
        await face.close()

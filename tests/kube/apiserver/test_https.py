"""The face: TLS, limits, disconnects, closing; and kubectl through it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from certwright.kube.apiserver.auth.authentication import ClientCertificates
from certwright.kube.apiserver.http.https import serve_https
from certwright.kube.apiserver.http.protocol import MAX_BODY
from certwright.kube.util.http_messages import Request
from kube.apiserver.callers import ADMIN, CERTIFICATES, CONFIG_MAPS, SECRETS, StartApi, certificate
from kube.apiserver.over_tls import Served, served
from support.real import require
from support.waiting import until


async def test_tls_1_2_is_offered_without_cbc(server: Served) -> None:
    async def shaken_hands(ciphers: str) -> str:
        context = server.tls()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(ciphers)
        _, writer = await asyncio.open_connection("127.0.0.1", server.face.port, ssl=context)
        name = str(writer.get_extra_info("cipher")[0])
        writer.close()
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()
        return name

    assert await shaken_hands("ECDHE+AESGCM") == "ECDHE-ECDSA-AES256-GCM-SHA384"
    for cbc in ("ECDHE-ECDSA-AES256-SHA", "ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA384"):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await shaken_hands(f"{cbc}:@SECLEVEL=0")


async def test_requests_go_through_tls(server: Served) -> None:
    async with server.session.post(server.url + CERTIFICATES, json=certificate("web")) as made:
        assert made.status == 201
    async with server.session.get(f"{server.url}{CERTIFICATES}/web?x=%20y") as got:
        assert (await got.json())["metadata"]["name"] == "web"
        assert got.headers["content-type"] == "application/json"
    async with server.session.get(
        server.url + CERTIFICATES, headers={"authorization": "Bearer x"}
    ) as refused:
        assert refused.status == 401
    async with server.session.head(server.url + "/livez/ping") as alive:
        assert alive.status == 200


async def test_bodies_are_limited(server: Served) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY // 100_000 + 2):
            yield b"x" * 100_000

    for body in (io.BytesIO(b"x" * (MAX_BODY + 1)), endless()):
        async with server.session.post(server.url + SECRETS, data=body) as answer:
            assert answer.status == 413
            assert (await answer.json())["reason"] == "RequestEntityTooLarge"
    async with server.session.get(server.url + SECRETS) as after:
        assert after.status == 200


async def test_headers_are_limited(server: Served) -> None:
    async with server.session.get(server.url + SECRETS, headers={"x-large": "x" * 70_000}) as answer:
        assert answer.status == 400
    async with server.session.get(server.url + SECRETS) as after:
        assert after.status == 200


async def test_large_answers_are_compressed_for_who_takes_it(server: Served) -> None:
    body = {"metadata": {"name": "big"}, "data": {"x": "y" * 200_000}}
    async with server.session.post(server.url + CONFIG_MAPS, json=body) as made:
        assert made.status == 201
    target = f"{server.url}{CONFIG_MAPS}/big"
    async with server.session.get(target, auto_decompress=False, headers={"accept-encoding": "gzip"}) as got:
        assert got.headers["content-encoding"] == "gzip"
        assert json.loads(gzip.decompress(await got.read()))["data"] == body["data"]
    async with server.session.get(target, headers={"accept-encoding": "identity"}) as plain:
        assert "content-encoding" not in plain.headers


async def test_a_long_list_arrives_whole(server: Served) -> None:
    for number in range(700):
        await server.api.config_map(f"c{number}", {"x": "y" * 100})
    for encoding in ("gzip", "identity"):
        async with server.session.get(server.url + CONFIG_MAPS, headers={"accept-encoding": encoding}) as got:
            assert len((await got.json())["items"]) == 700


async def test_a_watcher_that_goes_is_forgotten(server: Served) -> None:
    target = f"{server.url}{SECRETS}?watch=true&resourceVersion={server.api.store.revision}"
    async with server.session.get(target) as watch:
        await server.api.secret("a")
        assert json.loads(await watch.content.readline())["object"]["metadata"]["name"] == "a"
        assert server.api.server.open_watches == 1
        watch.close()
    await until(lambda: not server.api.server.open_watches)
    async with server.session.get(f"{server.url}/livez") as alive:
        assert alive.status == 200


async def test_closing_does_not_wait_for_those_who_watch(server: Served) -> None:
    watches = [await server.session.get(f"{server.url}{SECRETS}?watch=true") for _ in range(3)]
    async with asyncio.timeout(60):
        await server.face.close(grace_s=3600)
        for watch in watches:
            assert await watch.content.read() == b""


async def test_a_port_in_use_is_an_os_error(server: Served) -> None:
    with pytest.raises(OSError, match="in use"):
        await serve_https(
            server.api.server.handle,
            host="127.0.0.1",
            port=server.face.port,
            certfile=server.identity.cert_path,
            keyfile=server.identity.key_path,
            client_ca_file=None,
        )


async def test_a_client_certificate_opens_the_door(start_api: StartApi, tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    async with served(
        start_api, tmp_path, authenticator=ClientCertificates(), client_ca_file=authority
    ) as server:
        key, pair, csr = tmp_path / "client.key", tmp_path / "client.crt", tmp_path / "csr"
        _openssl(f"req -newkey rsa:2048 -nodes -keyout {key} -out {csr} -subj /O=system:masters/CN=admin")
        ca = f"-CA {authority} -CAkey {tmp_path}/ca.key -CAcreateserial"
        _openssl(f"x509 -req -in {csr} -out {pair} -days 1 {ca}")
        assert [await _status(server, pair), await _status(server, None)] == [200, 401]
        # Kubernetes would answer 401: Go checks the chain after the handshake, Python's TLS within it.
        stranger = tmp_path / "stranger.crt"
        key = stranger.with_suffix(".key")
        _openssl(f"req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {stranger} -days 1 -subj /CN=x")
        with pytest.raises(aiohttp.ClientConnectionError):
            await _status(server, stranger)


async def _status(server: Served, certificate_file: Path | None) -> int:
    """What a client with this certificate is answered."""
    context = server.tls()
    if certificate_file is not None:
        context.load_cert_chain(certificate_file, certificate_file.with_suffix(".key"))
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context))
    async with session, session.get(server.url + SECRETS) as answer:
        return answer.status


async def test_any_method_reaches_the_handler(server: Served) -> None:
    for method, status in (("FOO", 405), ("PROPFIND", 405), ("GET", 200), ("x-y", 405), ("GET", 200)):
        async with server.session.request(method, server.url + SECRETS) as answer:
            assert answer.status == status, method
            await answer.read()
    async with server.session.request("FOO", server.url + "/healthz") as answer:
        assert (answer.status, await answer.text()) == (200, "ok")


def _openssl(arguments: str) -> None:
    subprocess.run([require("openssl"), *arguments.split()], check=True, capture_output=True)


async def test_every_answer_carries_what_clients_look_for(server: Served) -> None:
    seen = []
    for target in ("/livez/ping", SECRETS, SECRETS + "/missing", "/nowhere", SECRETS + "?watch=true"):
        async with server.session.get(server.url + target) as answer:
            assert answer.headers["cache-control"] == "no-cache, private"
            assert answer.headers["x-kubernetes-pf-prioritylevel-uid"]
            seen.append((answer.headers["x-kubernetes-pf-flowschema-uid"], answer.headers["audit-id"]))
    assert len({flow for flow, _ in seen}) == 1
    assert len({audit for _, audit in seen}) == len(seen)
    async with server.session.get(server.url + SECRETS, headers={"audit-id": "from-a-proxy"}) as answer:
        assert answer.headers["audit-id"] == "from-a-proxy"


async def test_a_server_without_fairness_does_not_speak_of_it(start_api: StartApi, tmp_path: Path) -> None:
    async with (
        served(start_api, tmp_path, is_fair=False) as it,
        it.session.get(it.url + "/livez/ping") as got,
    ):
        assert got.status == 200
        assert not [name for name in got.headers if name.lower().startswith("x-kubernetes-pf-")]


@pytest.mark.parametrize(
    ("query", "agent", "pretty"),
    [
        ("", "curl/8.5", True),
        ("?pretty=false", "curl/8.5", False),
        ("?pretty=true", "kubectl", True),
        ("?limit=1", "kubectl", False),
        ("?pretty=%zz&limit=%ff", "kubectl", False),
    ],
)
async def test_people_get_indented_answers(server: Served, query: str, agent: str, *, pretty: bool) -> None:
    url = URL(server.url + SECRETS + query, encoded=True)
    async with server.session.get(url, headers={"user-agent": agent}) as answer:
        text = await answer.text()
    assert text.startswith("{\n  ") is pretty


async def test_a_stream_of_events_is_not_compressed(server: Served) -> None:
    await server.api.server.handle(Request("POST", SECRETS, body=b'{"metadata":{"name":"a"}}', user=ADMIN))
    for target in (f"{SECRETS}?watch=true", "/api/v1/watch/namespaces/default/secrets"):
        async with server.session.get(server.url + target, headers={"accept-encoding": "gzip"}) as answer:
            assert "content-encoding" not in answer.headers
            assert json.loads(await answer.content.readline())["object"]["metadata"]["name"] == "a"


async def test_a_watcher_that_reads_late_gets_each_event_once_and_in_order(server: Served) -> None:
    await server.api.call("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"n": "0"}})
    url = f"{server.url}{CONFIG_MAPS}?watch=true&resourceVersion={server.api.store.revision}"
    async with server.session.get(url) as watch:
        # More than the socket and the server's buffer hold, so that writing stops and goes on.
        for number in range(1, 120):
            data = {"n": str(number), "text": "x" * 100_000}
            answer = await server.api.call(
                "PUT", f"{CONFIG_MAPS}/a", {"metadata": {"name": "a"}, "data": data}
            )
            assert answer.status == 200
        seen: list[int] = []
        buffer = b""
        while len(seen) < 119:
            piece = await asyncio.wait_for(watch.content.readany(), 60)
            assert piece, "the stream has ended"
            *lines, buffer = (buffer + piece).split(b"\n")
            seen += [int(json.loads(line)["object"]["data"]["n"]) for line in lines]
        assert seen == list(range(1, 120))

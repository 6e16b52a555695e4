"""The header fields of answers over HTTPS, beside the reference's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from conformance.kinds import in_namespace, widget
from conformance.peers import HttpPeer, Peer
from conformance.servers import ours, reference
from support.oracle import Oracle

_PATH = in_namespace("headers")
_BIG = {**widget("big"), "metadata": {"name": "big", "annotations": {"a": "x" * 130_000}}}
_ASKED: list[tuple[str, str, dict[str, str], Any]] = [
    ("POST", _PATH, {}, widget("a")),
    ("POST", _PATH, {}, widget("b", nonsense=1)),
    ("POST", _PATH, {}, _BIG),
    ("PUT", f"{_PATH}/a", {}, widget("a", size=0)),
    ("GET", _PATH, {}, None),
    ("GET", _PATH, {"accept-encoding": "gzip"}, None),
    ("GET", f"{_PATH}/a", {"accept-encoding": "gzip"}, None),
    ("GET", f"{_PATH}/big", {"accept-encoding": "gzip"}, None),
    ("GET", f"{_PATH}/big", {"accept-encoding": "deflate"}, None),
    ("GET", f"{_PATH}/missing", {}, None),
    ("GET", f"{_PATH}/a", {"accept": "application/yaml"}, None),
    ("GET", f"{_PATH}/a", {"accept": "text/html"}, None),
    ("GET", f"{_PATH}/a", {"audit-id": "of-a-proxy"}, None),
    ("GET", f"{_PATH}/a", {"audit-id": "x" * 80}, None),
    ("GET", f"{_PATH}/a", {"origin": "https://example.org"}, None),
    ("GET", f"{_PATH}?watch=1&timeoutSeconds=1", {}, None),
    ("GET", f"{_PATH}?watch=1&timeoutSeconds=1", {"accept-encoding": "gzip"}, None),
    ("GET", f"{_PATH}?watch=1&timeoutSeconds=x", {}, None),
    ("HEAD", f"{_PATH}/a", {}, None),
    ("OPTIONS", _PATH, {}, None),
    ("FOO", _PATH, {}, None),
    ("GET", "/apis/test.dev/v1", {}, None),
    ("GET", "/apis/apiextensions.k8s.io/v1", {}, None),
    ("GET", "/apis/nothing.dev/v1/x", {}, None),
    ("GET", "/version", {}, None),
    ("GET", "/healthz", {}, None),
    ("FOO", "/healthz", {}, None),
    ("DELETE", f"{_PATH}/a", {}, None),
    ("DELETE", _PATH, {}, None),
]
_BY_CHANCE = {"date": ".*", "audit-id": "[0-9a-f-]{36}"}
_NOT_COMPARED = (
    # How a body is framed is between the two ends of a connection.
    "content-length",
    "transfer-encoding",
    # The reference runs without priority and fairness; a whole server sends these.
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
)


def _shown(headers: dict[str, str]) -> dict[str, str]:
    return {
        name: "…" if name in _BY_CHANCE and re.fullmatch(_BY_CHANCE[name], value) else value
        for name, value in headers.items()
        if name not in _NOT_COMPARED
    }


async def _ask(peer: Peer) -> dict[str, tuple[int, dict[str, str]]]:
    assert isinstance(peer, HttpPeer)
    answers = {}
    for number, (method, target, headers, body) in enumerate(_ASKED):
        async with peer.session.request(
            method,
            peer.url + target,
            headers={"accept": "application/json", "accept-encoding": "identity", **headers},
            data=json.dumps(body) if body is not None else None,
            skip_auto_headers=("Content-Type",),
        ) as answer:
            await answer.read()
            shown = _shown({name.lower(): value for name, value in answer.headers.items()})
            answers[f"{number} {method} {target} {headers}"] = (answer.status, shown)
    return answers


async def test_header_fields_are_the_references(oracle: Oracle, tmp_path: Path) -> None:
    async with reference(oracle) as peer:
        theirs = await _ask(peer)
    async with ours("https", oracle, tmp_path, ["headers"]) as peer:
        said = await _ask(peer)
    differing = {
        asked: (
            theirs[asked][0],
            said[asked][0],
            sorted(set(theirs[asked][1].items()) ^ set(said[asked][1].items())),
        )
        for asked in theirs
        if said[asked] != theirs[asked]
    }
    assert not differing, "\n".join(f"{asked}: {how}" for asked, how in differing.items())

"""Heartbeats of watches: empty lines, for clients that request them."""

from __future__ import annotations

from pathlib import Path

import pytest

from certwright.kube.util.http_messages import HEARTBEAT
from kube.apiserver.callers import SECRETS, StartApi
from kube.apiserver.over_tls import head, served

WATCH = f"{SECRETS}?watch=true&resourceVersion=1"


async def test_a_watch_has_the_heartbeats_that_it_requests(start_api: StartApi, tmp_path: Path) -> None:
    async with served(start_api, tmp_path) as it:
        reader, writer = await it.connect()
        writer.write(head("GET", WATCH, **{HEARTBEAT: "1"}))
        assert f"{HEARTBEAT}: 1".encode() in (await reader.readuntil(b"\r\n\r\n")).lower()
        assert await reader.readexactly(12) == 2 * b"1\r\n\n\r\n"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {HEARTBEAT: "0"},
        {HEARTBEAT: "61"},
        {HEARTBEAT: "-1"},
        {HEARTBEAT: "often"},
        {HEARTBEAT: "2", "accept": "application/vnd.kubernetes.protobuf"},
    ],
    ids=["none", "zero", "rare", "negative", "no number", "not of lines"],
)
async def test_other_watches_are_promised_none(
    start_api: StartApi, tmp_path: Path, fields: dict[str, str]
) -> None:
    async with served(start_api, tmp_path) as it:
        reader, writer = await it.connect()
        writer.write(head("GET", WATCH, **fields))
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in answer
        assert HEARTBEAT.encode() not in answer.lower()

"""A server that stands still, behind a load balancer that does not notice."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from certwright.cli import access
from certwright.kube.api.core import NAMESPACES
from certwright.kube.api.errors import Unreachable
from certwright.kube.client.rest import Client
from cli.calls import Process
from support.balancer import balancing
from support.etcd import Etcd, running_etcd
from support.programs import free_port

Start = Callable[..., Process]


def served(start: Start, etcd: Etcd, name: str) -> tuple[Process, int]:
    """A server that is ready, and its port."""
    port = free_port()
    listen = ("--listen", f"127.0.0.1:{port}", "--controllers", "", "--encryption-key-file", "shared.key")
    process = start("serve", "--data-dir", name, "--store", etcd.url, *listen)
    assert process.line().startswith("certwright is ready"), process.rest().err
    return process, port


@pytest.mark.real("etcd")
async def test_its_watches_are_continued_at_another_server(start: Start, tmp_path: Path) -> None:
    with running_etcd(tmp_path) as etcd:
        (first, port), (_, other) = served(start, etcd, "one"), served(start, etcd, "two")
        address = free_port()
        kubeconfig = tmp_path / "kubeconfig"
        text = (tmp_path / "one" / "kubeconfig").read_text()
        kubeconfig.write_text(re.sub(rf":{port}\b", f":{address}", text))
        choice = access.choose(kubeconfig, os.environ, tmp_path)
        async with balancing(address, [port, other]), AsyncExitStack() as stack:
            client = Client(access.connect(choice, access.load(choice, None)), user_agent="test")
            stack.push_async_callback(client.close)
            watch = await stack.enter_async_context(aclosing(client.watch(NAMESPACES, resource_version="")))
            assert await anext(watch)
            first.kill(signal.SIGSTOP)
            with pytest.raises(Unreachable, match="did not answer in time"):
                await anext(watch)
            again = await stack.enter_async_context(aclosing(client.watch(NAMESPACES, resource_version="")))
            assert await anext(again)
        first.kill(signal.SIGCONT)

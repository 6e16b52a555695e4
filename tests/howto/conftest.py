"""One machine and one certwright for all pages of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.calls import Process
from howto.host import Host, Ports
from support.pebble import running_pebble
from support.programs import free_port


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """With certwright running, as the pages start it."""
    root = tmp_path_factory.mktemp("machine")
    ports = Ports(free_port(), free_port(), free_port())
    profiles = {"default": {"description": "90 days", "validityPeriod": 7776000}}
    with running_pebble(http_port=ports.http, profiles=profiles) as pebble:
        host = Host(root, ports, pebble)
        process = Process("serve", *host.flags(), cwd=root)
        try:
            line = process.line()
            assert line.startswith("certwright is ready at https://127.0.0.1:"), process.rest().err
            host.started(process.pid, line)
            yield host
        finally:
            process.close()


@pytest.fixture
def host(machine: Host) -> Iterator[Host]:
    """The machine; the servers that a page has started end with its test."""
    try:
        yield machine
    finally:
        machine.clear()

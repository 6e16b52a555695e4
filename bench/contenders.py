"""The servers that `bench/apiserver.py` compares: ours over each store, and the reference server over etcd.

All are processes of their own, ask for the same client certificate and serve the same kind: a
CustomResourceDefinition whose objects hold about 2 KB, since the reference serves nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load import Target, meta
from support.oracle import client_context, oracle_flags, write_credentials, write_kubeconfig
from support.programs import TOOLS, free_port, spawn, stop, wait_for_port

GROUP = "bench.certwright.test"
KINDS = ("things", "small", "large", "huge", "notes", "watched")
"""Plurals of the kinds that are made in each server; each has the same schema."""
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class Contender:
    """A server that runs. `pids`: its own process first, then its etcd's, if it has one to itself."""

    name: str
    url: str
    pids: tuple[int, ...]
    certificate: Path

    @property
    def tls(self) -> ssl.SSLContext:
        """A context that shows the administrator's certificate."""
        return client_context(self.certificate)

    def target(self, plural: str = "things", size: int = 2_048) -> Target:
        """The collection of that kind, with objects of so many bytes."""
        return Target(
            self.url, self.tls, path=collection(plural), make=lambda name: thing(name, plural, size)
        )

    def definitions(self) -> Target:
        """Where the kinds are made."""
        return Target(self.url, self.tls, path=CRDS, make=definition)


def collection(plural: str) -> str:
    """The path of that kind's objects."""
    return f"/apis/{GROUP}/v1/namespaces/default/{plural}"


def thing(name: str, plural: str, size: int) -> dict[str, Any]:
    """An object whose data cannot be pressed, and whose `spec.at` says when it was made."""
    spec = {"data": os.urandom(size // 2).hex(), "at": str(time.monotonic_ns())}
    kind = plural.capitalize()
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": meta(name), "spec": spec}


def definition(name: str) -> dict[str, Any]:
    """The CustomResourceDefinition `<plural>.<group>`."""
    plural = name.partition(".")[0]
    text = {"type": "string"}
    spec = {"type": "object", "properties": {"data": text, "at": text}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": plural.capitalize()},
            "versions": [version],
        },
    }


@contextmanager
def ours(store: str) -> Iterator[Contender]:
    """`certwright serve` without controllers, over `sqlite`, `memory` or `etcd`."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name:
        folder = Path(name)
        ca, certificate = write_credentials(folder)
        command = [sys.executable, "-m", "certwright", "serve", "--listen", "127.0.0.1:0"]
        command += ["--controllers", "", "--data-dir", str(folder / "data"), "--client-ca-file", str(ca)]
        if store == "etcd":
            with _etcd(folder) as (pid, address):
                yield from _serving(f"ours, {store}", [*command, "--store", address], (pid,), certificate)
        else:
            more = ["--store", "memory"] if store == "memory" else []
            yield from _serving(f"ours, {store}", [*command, *more], (), certificate)


def _serving(
    name: str, command: list[str], beside: tuple[int, ...], certificate: Path
) -> Iterator[Contender]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"https://[^\s;,]+", line)
        if match is None:
            raise SystemExit(f"the server did not start; it said: {line!r}")
        try:
            yield Contender(name, match[0], (process.pid, *beside), certificate)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


@contextmanager
def reference() -> Iterator[Contender]:
    """Kubernetes' own API server code, over an etcd that syncs its log to disk."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name:
        folder = Path(name)
        ca, certificate = write_credentials(folder)
        with _etcd(folder) as (pid, address):
            port, log = free_port(), folder / "server.log"
            kubeconfig = write_kubeconfig(folder, port, certificate)
            flags = oracle_flags(folder, address.replace("etcd://", "http://"), port, ca, kubeconfig)
            with log.open("wb") as out:
                process = spawn([str(TOOLS / "apiextensions-apiserver"), *flags], out)
                try:
                    wait_for_port(port, process, log)
                    url = f"https://127.0.0.1:{port}"
                    yield Contender("reference, etcd", url, (process.pid, pid), certificate)
                finally:
                    stop(process)


def is_reference_there() -> bool:
    """Whether `make oracle` was run and an etcd is installed."""
    return (TOOLS / "apiextensions-apiserver").exists() and is_etcd_there()


def is_etcd_there() -> bool:
    """Whether Debian's etcd-server, or another, is installed. (The tests' own never syncs to disk.)"""
    return shutil.which("etcd") is not None


@contextmanager
def _etcd(folder: Path) -> Iterator[tuple[int, str]]:
    port, peers, log = free_port(), free_port(), folder / "etcd.log"
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    command = ["etcd", "--data-dir", str(folder / "etcd"), "--name", "bench"]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    with log.open("wb") as out:
        process = spawn([*command, "--initial-cluster", f"bench={peer}"], out)
        try:
            wait_for_port(port, process, log)
            yield process.pid, f"etcd://127.0.0.1:{port}"
        finally:
            stop(process)

"""The servers that `bench/apiserver.py` compares: ours over each store, and Kubernetes' own over etcd.

All are processes of their own, ask for the same client certificate and serve the same kind, a
CustomResourceDefinition whose objects hold about 2 KB.
"""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load import Target, meta
from bench.rig import daemon
from support.etcd import running_etcd
from support.oracle import client_context, running_kubernetes, write_credentials
from support.programs import TOOLS

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
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="certwright-bench-")))
        ca, certificate = write_credentials(folder)
        flags = ["--controllers", "", "--client-ca-file", str(ca)]
        beside: tuple[int, ...] = ()
        if store == "etcd":
            etcd = stack.enter_context(running_etcd(folder))
            flags, beside = [*flags, "--store", etcd.url], (etcd.pid,)
        elif store == "memory":
            flags += ["--store", "memory"]
        server = stack.enter_context(daemon(*flags, data_dir=folder / "data"))
        yield Contender(f"ours, {store}", server.address, (server.pid, *beside), certificate)


@contextmanager
def kubernetes() -> Iterator[Contender]:
    """Kubernetes' kube-apiserver, over an etcd that syncs its log to disk."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name:
        folder = Path(name)
        with running_etcd(folder) as etcd, running_kubernetes(folder, f"http://{etcd.member}") as server:
            pids = (server.pid, etcd.pid)
            yield Contender("kube-apiserver, etcd", server.url, pids, folder / "admin.pem")


def is_kubernetes_there() -> bool:
    """Whether `make kubernetes` was run and an etcd is installed."""
    return (TOOLS / "kube-apiserver").exists() and is_etcd_there()


def is_etcd_there() -> bool:
    """Whether Debian's etcd-server, or another, is installed. (The tests' own never syncs to disk.)"""
    return shutil.which("etcd") is not None

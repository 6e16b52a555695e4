"""A real server process, its administrator, and tenants: users with `edit` in one namespace and nothing
else."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from certwright.kube.api.errors import ApiError, NotFound
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from certwright.kube.util.http_messages import whole_body
from cli.calls import Process

_WITHIN_S = 120.0
_TENANTS = {"team-a": "token-of-a", "team-b": "token-of-b"}
_GROUPS = {
    "Certificate": "cert-manager.io/v1",
    "CertificateRequest": "cert-manager.io/v1",
    "Issuer": "cert-manager.io/v1",
    "ClusterIssuer": "cert-manager.io/v1",
    "Order": "acme.cert-manager.io/v1",
    "Challenge": "acme.cert-manager.io/v1",
    "Secret": "v1",
    "Namespace": "v1",
    "Event": "v1",
    "ConfigMap": "v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
}

Json = dict[str, Any]


def path_of(kind: str, namespace: str = "", name: str = "") -> str:
    """Where the API serves objects of a kind."""
    version = _GROUPS[kind]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{within}/{kind.lower()}s" + (f"/{name}" if name else "")


@dataclass(slots=True)
class User:
    """Somebody who talks to the API, with the rights that RBAC gives."""

    client: Client
    namespace: str = ""

    async def create(self, kind: str, name: str, **parts: Any) -> Json:
        """Create an object in the user's namespace. Raises `ApiError`."""
        meta: Json = {"name": name, **parts.pop("metadata", {})}
        body = {"apiVersion": _GROUPS[kind], "kind": kind, "metadata": meta, **parts}
        path = path_of(kind, "" if kind in ("Namespace", "ClusterIssuer") else self.namespace)
        return await self._send("POST", path, body)

    async def patch(self, kind: str, name: str, change: Json, *, part: str = "") -> Json:
        """Merge `change` into an object, or into a part of it. Raises `ApiError`."""
        path = path_of(kind, "" if kind == "ClusterIssuer" else self.namespace, name)
        return await self._send("PATCH", path + (f"/{part}" if part else ""), change)

    async def get(self, kind: str, name: str) -> Json:
        """Read an object. Raises `ApiError`."""
        path = path_of(kind, "" if kind == "ClusterIssuer" else self.namespace, name)
        return await self._send("GET", path)

    async def list(self, kind: str) -> list[Json]:
        """The objects of a kind in the user's namespace. Raises `ApiError`."""
        items: list[Json] = (await self._send("GET", path_of(kind, self.namespace)))["items"]
        return items

    async def delete(self, kind: str, name: str) -> None:
        """Delete an object. Raises `ApiError`."""
        await self._send("DELETE", path_of(kind, self.namespace, name))

    async def until(self, kind: str, name: str, true_of: Callable[[Json], bool]) -> Json:
        """The object as soon as it is as expected."""
        last: Json = {}
        try:
            async with asyncio.timeout(_WITHIN_S):
                while True:
                    with contextlib.suppress(NotFound):
                        last = await self.get(kind, name)
                        if true_of(last):
                            return last
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{kind} {name} is not as expected: {json.dumps(last)}") from None

    async def until_gone(self, kind: str, name: str) -> None:
        """Return when the object no longer exists."""
        async with asyncio.timeout(_WITHIN_S):
            while True:
                try:
                    await self.get(kind, name)
                except NotFound:
                    return
                await asyncio.sleep(0.02)

    async def _send(self, method: str, path: str, body: Json | None = None) -> Json:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = json.dumps(body).encode() if body is not None else b""
        response = await self.client.raw(method, path, body=data, headers={"content-type": kind})
        document: Json = json.loads(await whole_body(response))
        return document


def ready(obj: Json) -> Json:
    """The condition Ready of an object; empty where there is none."""
    conditions = obj.get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == "Ready"), {})


def acme(server: str, ca_bundle: bytes = b"", *solvers: Json) -> Json:
    """The spec of an ACME issuer."""
    bundle = {"caBundle": base64.b64encode(ca_bundle).decode()} if ca_bundle else {}
    return {
        "acme": {
            "server": server,
            "privateKeySecretRef": {"name": "account"},
            "solvers": list(solvers) or [{"http01": {"ingress": {}}}],
            **bundle,
        }
    }


@dataclass(slots=True)
class Server:
    """`certwright serve` as a process; `words` are its flags beside those that it needs."""

    folder: Path
    words: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    _process: Process | None = None
    _clients: list[Client] = field(default_factory=list)

    async def start(self, *words: str) -> None:
        """Start it, with these flags instead of those before."""
        self.words = words or self.words
        tokens = self.folder / "tokens.csv"
        tokens.write_text("".join(f"{token},{name},{name}\n" for name, token in _TENANTS.items()))
        fixed = ("serve", "--data-dir", "data", "--listen", "127.0.0.1:0", "--token-auth-file", str(tokens))
        self._process = Process(*fixed, *self.words, cwd=self.folder)
        line = await asyncio.to_thread(self._process.line)
        assert line.startswith("certwright is ready at "), self._process.rest().err

    async def stop(self) -> str:
        """End it; what it has written to standard error."""
        for client in self._clients:
            await client.close()
        self._clients.clear()
        process, self._process = self._process, None
        assert process is not None
        process.kill(signal.SIGTERM)
        outcome = await asyncio.to_thread(process.rest)
        assert outcome.status == 0, outcome.err
        return outcome.err

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "data" / "kubeconfig"

    @property
    def admin_token(self) -> str:
        """The administrator's token, which no tenant may see."""
        return (self.folder / "data" / "pki" / "admin.token").read_text().strip()

    def admin(self, namespace: str = "") -> User:
        """The administrator, who works in that namespace."""
        return self._user(self.kubeconfig, namespace)

    def tenant(self, namespace: str = "team-a") -> User:
        """A user with `edit` in that namespace and nothing else."""
        text = self.kubeconfig.read_text().replace(self.admin_token, _TENANTS[namespace])
        path = self.folder / f"{namespace}.kubeconfig"
        path.write_text(text)
        path.chmod(0o600)
        return self._user(path, namespace)

    def _user(self, kubeconfig: Path, namespace: str) -> User:
        client = Client(connect(load(kubeconfig)), user_agent="test")
        self._clients.append(client)
        return User(client, namespace)

    async def make_tenants(self) -> None:
        """Make the namespaces, and give each user `edit` in its own."""
        for name in _TENANTS:
            admin = self.admin(name)
            await admin.create("Namespace", name)
            await self._bind(name, "ClusterRole", "edit")

    async def allow_challenges(self) -> None:
        """Let tenants write Challenges, as `edit` did in older versions."""
        verbs = ["create", "patch", "update"]
        rule = {"apiGroups": ["acme.cert-manager.io"], "resources": ["challenges"], "verbs": verbs}
        for name in _TENANTS:
            await self.admin(name).create("Role", "challenges", rules=[rule])
            await self._bind(name, "Role", "challenges")

    async def _bind(self, user: str, kind: str, role: str) -> None:
        group = "rbac.authorization.k8s.io"
        await self.admin(user).create(
            "RoleBinding",
            role,
            roleRef={"apiGroup": group, "kind": kind, "name": role},
            subjects=[{"apiGroup": group, "kind": "User", "name": user}],
        )


@asynccontextmanager
async def running_server(folder: Path, *words: str) -> AsyncIterator[Server]:
    """A server with two tenants."""
    made = Server(folder)
    try:
        await made.start(*words)
        await made.make_tenants()
        yield made
        await made.stop()
    finally:
        made.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A server without any of the flags that allow something."""
    async with running_server(tmp_path) as made:
        yield made


async def refusal(attempt: Awaitable[object]) -> str:
    """The text of the refusal that the attempt must meet."""
    with pytest.raises(ApiError) as caught:
        await attempt
    return str(caught.value)

"""Users at the door of the daemon: tokens, client certificates, kubectl as somebody else."""

from __future__ import annotations

import asyncio
import base64
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from certwright import app
from support.real import require

LIST = "/api/v1/namespaces/default/secrets"
PASSED = "token-of-eve"


@dataclass(slots=True)
class Daemon:
    """The whole program on a free port, and its directory."""

    server: app.RunningServer
    folder: Path

    async def get(self, path: str, *, certificate: Path | None = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON of what a client without kubeconfig is answered."""
        context = ssl.create_default_context(cafile=str(self.folder / "pki" / "ca.crt"))
        if certificate is not None:
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), headers=headers)
        async with session, session.get(self.server.address + path) as answer:
            return answer.status, await answer.json(content_type=None)

    def certificate(self, subject: str) -> Path:
        """A client certificate of the daemon's own CA."""
        pair, ca = self.folder / "client.crt", self.folder / "pki" / "ca"
        key, csr = pair.with_suffix(".key"), pair.with_suffix(".csr")
        _openssl(f"req -newkey rsa:2048 -nodes -keyout {key} -out {csr} -subj {subject}")
        _openssl(f"x509 -req -in {csr} -out {pair} -days 1 -CA {ca}.crt -CAkey {ca}.key -CAcreateserial")
        return pair

    async def kubectl(self, *arguments: str) -> tuple[int, str]:
        """Exit status, and all that it printed."""
        process = await asyncio.create_subprocess_exec(
            require("kubectl"),
            f"--kubeconfig={self.server.kubeconfig}",
            f"--cache-dir={self.folder / 'cache'}",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 90)
        return process.returncode or 0, output.decode().strip()

    async def does(self, *arguments: str) -> str:
        """What kubectl prints when all goes well."""
        status, output = await self.kubectl(*arguments)
        assert status == 0, output
        return output


def _openssl(arguments: str) -> None:
    subprocess.run([require("openssl"), *arguments.split()], check=True, capture_output=True)


@asynccontextmanager
async def daemon(folder: Path, **options: Any) -> AsyncIterator[Daemon]:
    none = app.ControllerOptions(controllers="")
    server = await app.start_server(
        app.ServeOptions(data_dir=folder, port=0, store="memory", controllers=none, **options)
    )
    try:
        yield Daemon(server, folder)
    finally:
        await server.close()


async def test_a_token_of_the_file_and_a_client_certificate_open_the_door(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text(f'{PASSED},eve,7,"system:masters"\n')
    async with daemon(tmp_path / "data", token_auth_file=tokens) as it:
        assert (await it.get(LIST))[0] == 401
        assert (await it.get(LIST, authorization="Bearer wrong"))[0] == 401
        assert (await it.get(LIST, authorization=f"Bearer {PASSED}"))[0] == 200
        status, refused = await it.get(LIST, certificate=it.certificate("/O=staff/CN=ann"))
        assert (status, refused["message"]) == (
            403,
            'secrets is forbidden: User "ann" cannot list resource "secrets" in API group "" '
            'in the namespace "default"',
        )
        masters = it.certificate("/O=system:masters/CN=root")
        assert (await it.get(LIST, certificate=masters))[0] == 200
        # What the daemon shows to its clients is no credential of a client.
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await it.get(LIST, certificate=it.folder / "pki" / "server.crt")
        acting = {"impersonate-user": "jane"}
        status, refused = await it.get(LIST, certificate=masters, **acting)
        assert 'User "jane" cannot list' in refused["message"]


async def test_what_is_wrong_with_the_files_is_said_without_their_secrets(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text(f"{PASSED},eve\n")
    for options, sentence in (
        ({"token_auth_file": tokens}, "a line needs at least 3 columns"),
        ({"token_auth_file": tmp_path / "gone"}, "No such file"),
        ({"client_ca_file": tokens}, "holds no CA certificates"),
        ({"client_ca_file": tmp_path / "gone"}, "does not exist"),
    ):
        with pytest.raises(app.StartError, match=sentence) as caught:
            async with daemon(tmp_path / "data", **options):
                pass
        assert PASSED not in str(caught.value)


@pytest.mark.real("kubectl")
async def test_kubectl_grants_rights_and_makes_tokens(tmp_path: Path) -> None:
    async with daemon(tmp_path) as it:
        await it.does("create", "serviceaccount", "robot")
        await it.does("create", "role", "reader", "--verb=get,list", "--resource=secrets")
        await it.does("create", "rolebinding", "robots", "--role=reader", "--serviceaccount=default:robot")
        token = await it.does("create", "token", "robot", "--duration=10m")
        assert token.count(".") == 2
        assert (await it.does("create", "token", "default", "--audience=vault")).count(".") == 2
        # kubectl prefers what the kubeconfig says of its user, so this one has a user of its own.
        await it.does("config", "set-credentials", "robot", f"--token={token}")
        assert "No resources found" in await it.does("--user=robot", "get", "secrets")
        status, refused = await it.kubectl("--user=robot", "get", "configmaps")
        assert status == 1
        assert 'User "system:serviceaccount:default:robot" cannot list resource "configmaps"' in refused
        assert "robot" in await it.does("--user=robot", "auth", "whoami")
        await it.does("delete", "serviceaccount", "robot")
        status, refused = await it.kubectl("--user=robot", "get", "secrets")
        assert "Unauthorized" in refused or "logged in" in refused


SECRET_FOR_A_TOKEN = """
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata:
  name: robot-token
  annotations: {kubernetes.io/service-account.name: robot}
"""


@pytest.mark.real("kubectl")
async def test_kubectl_makes_a_secret_that_is_given_a_token(tmp_path: Path) -> None:
    manifest = tmp_path / "secret.yaml"
    manifest.write_text(SECRET_FOR_A_TOKEN)
    async with daemon(tmp_path) as it:
        await it.does("create", "serviceaccount", "robot")
        await it.does("apply", "-f", str(manifest))
        await it.does("wait", "secret/robot-token", "--for=jsonpath={.data.token}", "--timeout=60s")
        coded = await it.does("get", "secret", "robot-token", "-o", "jsonpath={.data.token}")
        token = base64.b64decode(coded).decode()
        assert "system:serviceaccount:default:robot" in await it.does(f"--token={token}", "auth", "whoami")
        authority = await it.does("get", "secret", "robot-token", "-o", r"jsonpath={.data.ca\.crt}")
        assert base64.b64decode(authority) == (tmp_path / "pki" / "ca.crt").read_bytes()
        # What is applied again has no data, and takes none away.
        assert "unchanged" in await it.does("apply", "-f", str(manifest))
        await it.does("delete", "serviceaccount", "robot")
        status, refused = await it.kubectl(f"--token={token}", "auth", "whoami")
        assert (status, "Unauthorized" in refused or "logged in" in refused) == (1, True)
        await it.does("wait", "secret/robot-token", "--for=delete", "--timeout=60s")


@pytest.mark.real("kubectl")
async def test_kubectl_gives_people_the_roles_that_are_there_from_the_start(tmp_path: Path) -> None:
    async with daemon(tmp_path) as it:
        await it.does("create", "rolebinding", "jane", "--clusterrole=view", "--user=jane")
        for verb, resource, answer in (
            ("list", "certificates.cert-manager.io", "yes"),
            ("create", "certificates.cert-manager.io", "no"),
            ("list", "configmaps", "yes"),
            ("list", "secrets", "no"),
        ):
            outcome = await it.kubectl("--as=jane", "auth", "can-i", verb, resource)
            assert outcome[1].splitlines()[-1] == answer, (verb, resource)
        await it.does("create", "rolebinding", "bob", "--clusterrole=admin", "--user=bob")
        for resource in ("certificates.cert-manager.io", "secrets", "roles.rbac.authorization.k8s.io"):
            assert await it.does("--as=bob", "auth", "can-i", "create", resource) == "yes"
        status, refused = await it.kubectl(
            "--as=bob", "create", "role", "more", "--verb=delete", "--resource=customresourcedefinitions"
        )
        assert status == 1
        assert "attempting to grant RBAC permissions not currently held" in refused

"""Credentials that change: files that others replace, programs that log us in."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web

from certwright.kube.api.errors import Unreachable
from certwright.kube.client import kubeconfig
from certwright.kube.client.exec_plugin import PluginLogin
from certwright.kube.client.https import HttpsTransport
from certwright.kube.client.kubeconfig import load
from certwright.kube.client.login import Credential, FileLogin, LoginFailed, LoginFiles, Plugin

V1 = "client.authentication.k8s.io/v1"
CA = trustme.CA()
SERVER = CA.issue_cert("127.0.0.1")

# Counts its runs in a file, and prints what the file `answer` says (`RUN` becomes the number of the run).
PROGRAM = """#!{python}
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
runs = here / "runs"
with runs.open("a") as file:
    told = os.environ["KUBERNETES_EXEC_INFO"], os.environ.get("REGION")
    file.write(json.dumps([sys.argv[1:], *told]) + "\\n")
print((here / "answer").read_text().replace("RUN", str(len(runs.read_text().splitlines()))))
sys.exit(int((here / "code").read_text()) if (here / "code").exists() else 0)
"""


class Program:
    """A plugin that is a script of the test's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "bin").mkdir()
        self.path = folder / "bin/log-in"
        self.path.write_text(PROGRAM.format(python=sys.executable))
        self.path.chmod(0o755)
        self.now = 1_800_000_000.0

    def answers(self, *, api_version: str = V1, **status: Any) -> None:
        answer = {"apiVersion": api_version, "kind": "ExecCredential", "status": status}
        self.prints(json.dumps(answer))

    def prints(self, text: str) -> None:
        (self.path.parent / "answer").write_text(text)

    def login(self, **options: Any) -> PluginLogin:
        given = {"place": "config: exec", "api_version": V1, "command": str(self.path)} | options
        return PluginLogin(Plugin(**given), now=lambda: self.now, has_terminal=lambda: False)

    @property
    def runs(self) -> list[list[Any]]:
        file = self.path.parent / "runs"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def write(path: Path, user: dict[str, Any], server: str = "https://127.0.0.1:1", **cluster: Any) -> Path:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": server} | cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(content))
    return path


async def test_a_token_file_is_read_again_after_a_minute_and_when_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    now = 1000.0
    login = FileLogin(LoginFiles(token=path), Credential("unused"), now=lambda: now)
    first = await login.credential()
    assert first.token == "one"
    path.write_text("two")
    assert (await login.credential()).token == "one"
    now += 60
    assert (await login.credential()).token == "two"
    assert login.refused(first)
    assert not login.refused(Credential("two"))
    path.write_text("three")
    assert login.refused(Credential("two"))
    assert (await login.credential()).token == "three"
    path.unlink()
    now += 60
    assert (await login.credential()).token == "three"


async def test_a_token_that_never_could_be_read_is_said_with_its_path(tmp_path: Path) -> None:
    login = FileLogin(LoginFiles(token=tmp_path / "no"), Credential())
    with pytest.raises(LoginFailed, match=r"the token cannot be read: .*/no: No such file"):
        await login.credential()


async def test_a_certificate_that_is_half_replaced_is_not_taken_yet(tmp_path: Path) -> None:
    old, new = CA.issue_cert("alice"), CA.issue_cert("alice")
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    cert.write_bytes(old.cert_chain_pems[0].bytes())
    key.write_bytes(old.private_key_pem.bytes())
    access = load(write(tmp_path / "config", {"client-certificate": "tls.crt", "client-key": "tls.key"}))

    def fits(credential: Credential) -> bool:
        pair = trustme.Blob(credential.key_pem + credential.cert_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with pair.tempfile() as path:
            try:
                context.load_cert_chain(path)
            except ssl.SSLError:
                return False
        return True

    login = kubeconfig.login_for(access, fits)
    before = await login.credential()
    cert.write_bytes(new.cert_chain_pems[0].bytes())
    assert not login.refused(before)
    key.write_bytes(new.private_key_pem.bytes())
    assert login.refused(before)
    assert (await login.credential()).cert_pem == new.cert_chain_pems[0].bytes()


async def test_a_program_is_run_once_until_what_it_gave_expires(program: Program) -> None:
    program.answers(token="t-RUN", expirationTimestamp="2027-01-15T08:10:00Z")
    login = program.login(args=("token", "-x"), env=(("REGION", "here"),))
    assert [c.token for c in await asyncio.gather(*(login.credential() for _ in range(5)))] == ["t-1"] * 5
    arguments, info, region = program.runs[0]
    assert (arguments, region) == (["token", "-x"], "here")
    assert json.loads(info) == {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False}}
    program.now = 1_800_000_600.0
    assert (await login.credential()).token == "t-2"


async def test_a_program_whose_credential_is_refused_runs_again_but_not_for_every_request(
    program: Program,
) -> None:
    program.answers(token="t-RUN")
    login = program.login()
    first = await login.credential()
    assert not login.refused(first)
    program.now += 10
    assert login.refused(first)
    assert (await login.credential()).token == "t-2"
    assert login.refused(first)


@pytest.mark.parametrize("expiry", [{}, {"expirationTimestamp": "2099-01-01T00:00:00Z"}])
async def test_a_clock_that_was_ahead_when_a_program_ran_does_not_keep_its_credential(
    program: Program, expiry: dict[str, str]
) -> None:
    program.answers(token="t-RUN", **expiry)
    login = program.login()
    program.now += 100_000_000
    first = await login.credential()
    program.now -= 100_000_000
    assert login.refused(first)
    assert (await login.credential()).token == "t-2"


async def test_a_program_learns_about_the_server_where_the_kubeconfig_says_so(
    tmp_path: Path, program: Program
) -> None:
    program.answers(token="t", api_version="client.authentication.k8s.io/v1beta1")
    exec_config = {
        "command": "./bin/log-in",
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "provideClusterInfo": True,
    }
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    path = write(
        tmp_path / "config", {"exec": exec_config}, extensions=[extension], **{"tls-server-name": "api"}
    )
    assert (await kubeconfig.login_for(load(path)).credential()).token == "t"
    assert json.loads(program.runs[0][1])["spec"]["cluster"] == {
        "server": "https://127.0.0.1:1",
        "tls-server-name": "api",
        "config": {"audience": "a"},
    }


async def test_a_token_in_the_file_comes_before_a_program(tmp_path: Path, program: Program) -> None:
    exec_config = {"command": "./bin/log-in", "apiVersion": V1, "interactiveMode": "Never"}
    path = write(tmp_path / "config", {"exec": exec_config, "token": "mine"})
    assert (await kubeconfig.login_for(load(path)).credential()).token == "mine"
    assert program.runs == []


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("hello", "log-in did not print an ExecCredential: JSON is malformed"),
        ("{}", "log-in printed something of no version, not ExecCredential of client"),
        (
            '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1"}',
            "printed ExecCredential of client.authentication.k8s.io/v1beta1, not ExecCredential of",
        ),
        (f'{{"kind": "ExecCredential", "apiVersion": "{V1}"}}', "with neither a token nor a client cert"),
        (
            f'{{"kind":"ExecCredential","apiVersion":"{V1}","status":{{"clientCertificateData":"x"}}}}',
            "printed a client certificate without its key",
        ),
    ],
)
async def test_what_a_program_prints_wrongly_is_said(program: Program, printed: str, sentence: str) -> None:
    program.prints(printed)
    with pytest.raises(LoginFailed, match=sentence) as caught:
        await program.login().credential()
    assert str(caught.value).startswith("config: exec: ")


async def test_a_program_that_fails_is_not_run_by_every_request(program: Program) -> None:
    program.prints("")
    (program.path.parent / "code").write_text("3")
    login = program.login()
    for _ in range(3):
        with pytest.raises(LoginFailed, match="failed with exit code 3"):
            await login.credential()
    assert len(program.runs) == 1


async def test_a_program_that_is_missing_is_said_with_how_to_install_it(program: Program) -> None:
    login = program.login(command="no-such-program-anywhere", install_hint="Get it from the shop.")
    with pytest.raises(LoginFailed, match=r"is not installed \(not found in PATH\); Get it from the shop"):
        await login.credential()
    with pytest.raises(LoginFailed, match="cannot be run: No such file"):
        await program.login(command="./nowhere").credential()
    with pytest.raises(LoginFailed, match="standard input is none"):
        await program.login(interactive="Always").credential()


@asynccontextmanager
async def _serving(accepts: list[str], seen: list[str]) -> AsyncIterator[str]:
    """A server at the address, for whom these tokens and names will do; it notes what it was shown."""

    async def handle(request: web.Request) -> web.Response:
        peer = request.transport.get_extra_info("peercert") if request.transport else None
        names = [value for _, value in (peer or {}).get("subjectAltName", ())]
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        seen.append(names[0] if names else token)
        return web.Response(status=200 if seen[-1] in accepts else 401)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    SERVER.configure_cert(context)
    CA.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _connected(path: Path) -> AsyncIterator[HttpsTransport]:
    (path.parent / "ca.crt").write_bytes(CA.cert_pem.bytes())
    transport = kubeconfig.connect(load(path))
    try:
        yield transport
    finally:
        await transport.close()


async def test_a_refused_request_is_made_again_with_the_new_token(tmp_path: Path) -> None:
    seen: list[str] = []
    (tmp_path / "token").write_text("one")
    async with _serving(["two"], seen) as address:
        authority = {"certificate-authority": "ca.crt"}
        config = write(tmp_path / "config", {"tokenFile": "token"}, address, **authority)
        async with _connected(config) as transport:
            assert (await transport.request("GET", "/x", headers={})).status == 401
            (tmp_path / "token").write_text("two")
            assert (await transport.request("PUT", "/x", headers={}, body=b"{}")).status == 200
    assert seen == ["one", "one", "two"]


async def test_a_program_may_give_a_client_certificate(tmp_path: Path, program: Program) -> None:
    seen: list[str] = []
    exec_config = {"command": "./bin/log-in", "apiVersion": V1, "interactiveMode": "Never"}
    leaf = CA.issue_cert("bob@example.com")
    program.answers(
        clientCertificateData=leaf.cert_chain_pems[0].bytes().decode(),
        clientKeyData=leaf.private_key_pem.bytes().decode(),
    )
    async with _serving(["bob@example.com"], seen) as address:
        config = write(
            tmp_path / "config", {"exec": exec_config}, address, **{"certificate-authority": "ca.crt"}
        )
        async with _connected(config) as transport:
            assert (await transport.request("GET", "/x", headers={})).status == 200
    assert seen == ["bob@example.com"]


async def test_a_login_that_fails_is_no_answer_and_names_the_server(tmp_path: Path) -> None:
    exec_config = {"command": "no-such-program-anywhere", "apiVersion": V1, "interactiveMode": "Never"}
    async with _connected(write(tmp_path / "config", {"exec": exec_config})) as transport:
        with pytest.raises(
            Unreachable, match=r'no credentials for https://127\.0.0.1:1: .*user "u": exec: no'
        ):
            await transport.request("GET", "/x", headers={})


def test_the_text_of_a_credential_contains_no_secret() -> None:
    assert "s3cret" not in repr(Credential("s3cret", b"", b"s3cret"))

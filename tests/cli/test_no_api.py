"""Commands whose kubeconfig names another program than an API server."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from certwright.cli.main import program
from support.pairs import server_pair

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://localhost:{port}", certificate-authority-data: {ca}}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
COMMANDS = (
    "get certificates",
    "status web",
    "renew web",
    "create certificate web --dns a.example --issuer ca",
    "inspect web",
    "expiring",
    "check api",
    "user list",
    "explain certificate",
)


class WebSite(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>Hello</html>")

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A command closes its other connections after the first such answer."""


@pytest.fixture(params=["https", "http"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web site, and a kubeconfig that names it with https."""
    certificate, key = server_pair("localhost")
    (tmp_path / "pair.pem").write_bytes(certificate + key)
    server = Server(("127.0.0.1", 0), WebSite)
    if request.param == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "pair.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    path = tmp_path / "kubeconfig"
    ca = base64.b64encode(certificate).decode()
    path.write_text(KUBECONFIG.format(port=server.server_address[1], ca=ca))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield request.param, path
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_command_says_what_answered(site: tuple[str, Path]) -> None:
    scheme, path = site
    expected = "does not answer as a Kubernetes API does: " if scheme == "https" else "does not speak TLS"
    for words in COMMANDS:
        result = CliRunner().invoke(program, [*words.split(), "--kubeconfig", str(path)])
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.stderr
        assert expected in result.stderr, words


@pytest.mark.long  # the timeout of a request
def test_a_server_that_does_not_answer_is_named_while_it_is_waited_for(tmp_path: Path) -> None:
    path, ca = tmp_path / "kubeconfig", base64.b64encode(server_pair("localhost")[0]).decode()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        path.write_text(KUBECONFIG.format(port=port, ca=ca))
        result = CliRunner().invoke(program, ["status", "web", "--kubeconfig", str(path)])
    first, second = result.stderr.splitlines()
    assert first == f"warning: still waiting for an answer of https://localhost:{port}"
    assert second.startswith("error: the server https://localhost:")
    assert "did not answer in time" in second

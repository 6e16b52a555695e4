"""A request through the API server (docs/request.md), performed: each function, in the order of the page."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from certwright.admission import certificate_kinds
from certwright.app import tls_identity
from certwright.app.stores import check_row
from certwright.kube.apiserver.auth.authentication import StaticTokens
from certwright.kube.apiserver.base.users import MASTERS
from certwright.kube.apiserver.http.https import serve_https
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.sqlite.store import open_sqlite
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.http_messages import Identity, Request
from certwright.resources.crds import custom_resource_definitions
from support.waiting import until

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "certwright"
PAGE = (ROOT / "docs" / "request.md").read_text()
ADMIN, ALICE = Identity("admin", groups=(MASTERS,)), Identity("alice")
CERTIFICATES = "/apis/cert-manager.io/v1/namespaces/default/certificates"
BINDING = {
    "metadata": {"name": "alice"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
}

Function = tuple[str, str]


def functions(text: str) -> list[Function]:
    """The functions that a part of the page names, each with its file."""
    named: list[Function] = []
    for file, names in re.findall(r"`([a-z_0-9/]+\.py)`:((?:,? `[\w.]+`)+)", text):
        named += [(file, name) for name in re.findall(r"`([\w.]+)`", names)]
    return named


class Trace:
    """The functions that are called in any thread, in the order of their first calls."""

    def __init__(self) -> None:
        self.called: dict[Function, None] = {}
        self.is_on = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            file = frame.f_code.co_filename.removeprefix(f"{SOURCE}/")
            self.called.setdefault((file, frame.f_code.co_qualname))


async def test_the_functions_are_called_in_the_order_of_the_page(tmp_path: Path) -> None:
    trace = Trace()
    threading.setprofile(trace)  # before the thread of the store is started
    store = await open_sqlite(tmp_path / "store", check=check_row)
    server = ApiServer(
        store,
        SystemClock(),
        authenticator=StaticTokens({"token": ALICE}),
        extensions=certificate_kinds(),
    )
    await server.start(custom_resource_definitions())
    spec = {"secretName": "web", "dnsNames": ["web.example.com"], "issuerRef": {"name": "ca"}}
    certificate = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": "followed"},  # no other test has asked for it: request lines are cached
        "spec": spec,
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    for path, obj in ((bindings, BINDING), (CERTIFICATES, certificate)):
        response = await server.handle(Request("POST", path, {}, json.dumps(obj).encode(), ADMIN))
        assert response.status == 201
    identity = tls_identity.load_or_make(tls_identity.Settings(tmp_path, "127.0.0.1"), now=datetime.now(UTC))
    face = await serve_https(
        server.handle,
        host="127.0.0.1",
        port=0,
        certfile=identity.cert_path,
        keyfile=identity.key_path,
        client_ca_file=None,
    )
    try:
        tls = ssl.create_default_context(cadata=identity.ca_pem.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", face.port, ssl=tls)
        stored = json.loads(response.body)
        body = json.dumps(stored | {"spec": {**stored["spec"], "dnsNames": ["other.example.com"]}})
        await until(lambda: server.idle)  # its own writes would be in the trace
        sys.setprofile(trace)
        trace.is_on = True
        writer.write(
            f"PUT {CERTIFICATES}/followed HTTP/1.1\r\nhost: x\r\nauthorization: Bearer token\r\n"
            f"accept: application/json;q=0.75\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
        )
        status = await reader.readline()
        trace.is_on = False
        assert status == b"HTTP/1.1 200 OK\r\n"
        writer.close()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        await face.close()
        await server.close()
        await store.close()
    page = functions(PAGE.partition("## Other verbs")[0].rpartition("|\n")[0])
    named = set(page)
    assert [function for function in trace.called if function in named] == page


def test_everything_that_the_page_names_exists() -> None:
    files = set(re.findall(r"`(kube/[a-z_0-9/]+\.py)`", PAGE))
    assert [file for file in files if not (SOURCE / file).exists()] == []
    for file, name in functions(PAGE):
        assert re.search(rf"\bdef {name.rpartition('.')[2]}\(", (SOURCE / file).read_text()), (file, name)

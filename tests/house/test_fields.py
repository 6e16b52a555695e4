"""docs/fields.md: each snippet, sent as the page says, gets the answer that the page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from certwright.admission import certificate_kinds
from certwright.kube.api import conditions
from certwright.kube.api.errors import ApiError
from certwright.kube.api.manifests import DocumentError, read_documents
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import SystemClock
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from controllers.scene import make_certificate
from support.world import ADMIN, make_world

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fields.md").read_text()
SNIPPETS = re.findall(r"```yaml\n(.*?)```\n```text\n(.*?)\n```", PAGE, re.S)
MANIFEST = """\
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: default}
spec:
  secretName: web-tls
  dnsNames: [web.example.com]
  issuerRef: {name: ca}
"""
COLLECTION = "/apis/cert-manager.io/v1/namespaces/default/certificates?fieldValidation=Strict"


async def answer(text: str, *, admission: bool) -> str:
    (document,) = read_documents(text, source="web.yaml")
    if isinstance(document, DocumentError):
        return str(document)
    store = MemoryStore()
    extensions = certificate_kinds() if admission else {}
    server = ApiServer(store, SystemClock(), authenticator=lambda _: None, extensions=extensions)
    await server.start(custom_resource_definitions())
    client = Client(LocalTransport(server.handle, ADMIN), user_agent="test")
    body = json.dumps(document.content).encode()
    headers = {"content-type": "application/json"}
    try:
        return str((await client.raw("POST", COLLECTION, body=body, headers=headers)).status)
    except ApiError as error:
        return f"{error.code} {error}"
    finally:
        await server.close()
        await store.close()


@pytest.mark.parametrize(("yaml", "shown"), SNIPPETS)
async def test_the_answer_is_the_one_on_the_page(yaml: str, shown: str) -> None:
    text = MANIFEST + "".join(f"  {line}\n" for line in yaml.splitlines())
    real = await answer(text, admission="another API server" not in yaml)
    match = re.fullmatch(r"(\d{3})? ?(.*)", shown)
    assert match is not None
    status, words = match.groups()
    assert real.startswith(status or "web.yaml: ")
    assert words in real


async def test_what_only_the_controllers_can_see_becomes_a_condition() -> None:
    (shown,) = re.findall(r"^Ready=False: (.*)$", PAGE, re.M)
    async with make_world() as world:
        await world.create(CERTIFICATES, make_certificate("web", "ca"))
        await world.settle()
        (request,) = (await world.client.list(CERTIFICATE_REQUESTS, "default")).items
        ready = conditions.find(request.status.conditions, "Ready")
        assert ready is not None
        assert (ready.status, ready.reason, ready.message) == ("False", "Pending", shown)


def test_every_path_on_the_page_exists() -> None:
    named = set(re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", PAGE)) - {"src/certwright/"}
    assert len(named) > 8
    places = (ROOT, ROOT / "src" / "certwright")
    assert not [name for name in named if not any((place / name).exists() for place in places)]


def test_the_page_follows_the_field_through_every_stage_before_the_controllers() -> None:
    assert len(SNIPPETS) == 6

"""A temporary certificate bridges the time until the issuer has answered, where an annotation asks for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from certwright.kube.api.core import SECRETS
from certwright.pki.certificates import read_certificate, read_chain
from certwright.pki.keys import load_private_key, public_key_der
from certwright.pki.signing import is_temporary
from certwright.resources.certificate import Keystores, PKCS12Keystore
from certwright.resources.names import ISSUE_TEMPORARY_CERTIFICATE
from certwright.resources.table import ISSUERS
from controllers.external_issuer import mark
from controllers.scene import Scene, make_issuer

pytestmark = pytest.mark.every(3)


async def begin(scene: Scene, issuer: str = "later", **spec: Any) -> None:
    """Create a Certificate with the annotation, by default of an issuer that is not there."""
    await scene.issue(issuer=issuer, annotations={ISSUE_TEMPORARY_CERTIFICATE: "true"}, **spec)


async def events(scene: Scene) -> list[str]:
    """The events about issuing, in their order."""
    return [e.message for e in await scene.world.events() if e.reason == "Issuing"]


@pytest.mark.parametrize(
    "spec", [{}, {"literal_subject": "CN=web,O=Example"}, {"is_ca": True}, {"usages": ("client auth",)}]
)
async def test_a_temporary_certificate_is_served_until_the_real_one_comes(
    scene: Scene, spec: dict[str, Any]
) -> None:
    await begin(scene, **spec)
    secret = await scene.world.secret("web")
    leaf = read_certificate(secret.data["tls.crt"])
    assert is_temporary(leaf)
    assert leaf.dns_names == ("web.example.com",)
    assert leaf.is_ca == spec.get("is_ca", False)
    assert public_key_der(load_private_key(secret.data["tls.key"])) == leaf.public_key_der
    assert "ca.crt" not in secret.data
    ready = await scene.world.condition("web", "Ready")
    assert (ready.status, ready.reason) == ("False", "TemporaryCertificate")
    await scene.world.add(ISSUERS, make_issuer("later"))
    real = await scene.world.secret("web")
    assert not is_temporary(read_certificate(real.data["tls.crt"]))
    assert real.data["tls.key"] == secret.data["tls.key"]
    assert await scene.world.is_ready("web")
    assert (await events(scene))[-3:] == [
        "Issuing certificate as Secret does not exist",
        "Issued temporary certificate",
        "The certificate has been successfully issued",
    ]


async def test_without_the_annotation_nothing_is_written_before_the_real_one(scene: Scene) -> None:
    await scene.issue(issuer="later")
    assert (await scene.world.client.list(SECRETS, fields="metadata.name=web")).items == []


async def test_a_certificate_that_is_there_is_not_replaced_by_a_temporary_one(scene: Scene) -> None:
    await begin(scene, "ca")
    before = (await scene.world.secret("web")).data
    await scene.change_spec("web", issuerRef={"name": "nobody"})
    assert (await scene.world.secret("web")).data == before


async def test_a_temporary_certificate_has_the_keystores_too(scene: Scene) -> None:
    await begin(scene, keystores=Keystores(pkcs12=PKCS12Keystore(create=True, password="changeit")))
    assert set((await scene.world.secret("web")).data) == {"tls.crt", "tls.key", "keystore.p12"}


async def test_a_temporary_certificate_is_never_taken_for_the_real_one(scene: Scene) -> None:
    """After a failure the next attempt is made as if there was none."""
    await scene.world.start_controllers(enabled="*,-certificaterequests-approver")
    await begin(scene)
    await mark(scene.world, "web-1", "Denied")
    assert (await scene.world.condition("web", "Issuing")).status == "False"
    await scene.world.start_controllers()
    await scene.world.create(ISSUERS, make_issuer("later"))
    await scene.world.advance(timedelta(hours=1))
    assert await scene.world.is_ready("web")
    assert len(read_chain((await scene.world.secret("web")).data["tls.crt"])) == 1

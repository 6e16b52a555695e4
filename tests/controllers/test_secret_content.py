"""What the target Secret holds besides the pair: other formats, key stores, the template, an owner."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from certwright.kube.api.core import SECRETS
from certwright.pki.certificates import read_certificate
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources.certificate import (
    AdditionalOutputFormat,
    JKSKeystore,
    Keystores,
    PKCS12Keystore,
    PrivateKeySpec,
    SecretTemplate,
)
from certwright.resources.names import SECRET_FIELD_MANAGER
from certwright.resources.references import SecretKeySelector
from controllers.scene import Scene, make_secret
from support.real import require
from support.world import condition_of, make_world

PASSWORD = "pässwörd 1"
REF = SecretKeySelector(name="password", key="pw")
BOTH_FORMATS = (AdditionalOutputFormat(type="DER"), AdditionalOutputFormat(type="CombinedPEM"))


async def add_password(scene: Scene, password: str = PASSWORD) -> None:
    """The Secret that `REF` points to."""
    await scene.world.create(SECRETS, make_secret("password", {"pw": password.encode()}))


def run(*words: str, given: bytes = b"") -> str:
    """What the program prints."""
    done = subprocess.run(words, capture_output=True, input=given, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.decode()


async def test_the_secret_is_written_by_one_server_side_apply(scene: Scene) -> None:
    await scene.issue(additional_output_formats=BOTH_FORMATS)
    secret = await scene.world.secret("web")
    assert [(m.manager, m.operation) for m in secret.metadata.managed_fields] == [
        (SECRET_FIELD_MANAGER, "Apply")
    ]
    assert sum(w.path.endswith("/secrets/web") for w in scene.world.recording.object_writes()) == 1


@pytest.mark.parametrize("encoding", ["PKCS1", "PKCS8"])
async def test_the_other_formats_hold_the_same_key_and_chain(scene: Scene, encoding: str) -> None:
    key = PrivateKeySpec(algorithm="ECDSA", encoding=encoding)
    await scene.issue(private_key=key, additional_output_formats=BOTH_FORMATS)
    data = (await scene.world.secret("web")).data
    assert data["tls-combined.pem"] == data["tls.key"] + b"\n" + data["tls.crt"]
    form = "-----BEGIN PRIVATE KEY" if encoding == "PKCS8" else "-----BEGIN EC PRIVATE KEY"
    assert data["tls.key"].decode().startswith(form)
    public = run(require("openssl"), "pkey", "-inform", "DER", "-pubout", given=data["key.der"])
    assert public == run(require("openssl"), "pkey", "-pubout", given=data["tls.key"])


async def test_labels_and_annotations_of_the_template_are_there_from_the_first_write(scene: Scene) -> None:
    template = SecretTemplate(labels={"app": "shop"}, annotations={"note": "x"})
    await scene.issue(secret_template=template)
    meta = (await scene.world.secret("web")).metadata
    assert meta.labels == {"app": "shop", "controller.cert-manager.io/fao": "true"}
    assert meta.annotations["note"] == "x"


@pytest.mark.parametrize("profile", ["", "LegacyDES", "Modern2023", "Modern2026"])
async def test_a_pkcs12_keystore_opens_with_the_password_of_its_secret(scene: Scene, profile: str) -> None:
    await add_password(scene)
    p12 = PKCS12Keystore(create=True, profile=profile, password_secret_ref=REF)
    await scene.issue(keystores=Keystores(pkcs12=p12))
    data = (await scene.world.secret("web")).data
    keystore = pkcs12.load_pkcs12(data["keystore.p12"], PASSWORD.encode())
    assert keystore.cert is not None
    assert keystore.key is not None
    leaf = read_certificate(data["tls.crt"])
    assert keystore.cert.certificate == leaf.parsed
    assert public_key_der(load_private_key(data["tls.key"])) == leaf.public_key_der
    trusted = pkcs12.load_pkcs12(data["truststore.p12"], PASSWORD.encode()).additional_certs
    assert [item.certificate for item in trusted] == [read_certificate(data["ca.crt"]).parsed]


async def test_openssl_reads_the_pkcs12_keystore(scene: Scene, tmp_path: Path) -> None:
    openssl = require("openssl")
    await scene.issue(
        keystores=Keystores(pkcs12=PKCS12Keystore(create=True, profile="Modern2023", password="changeit"))
    )
    (tmp_path / "k.p12").write_bytes((await scene.world.secret("web")).data["keystore.p12"])
    text = run(openssl, "pkcs12", "-in", str(tmp_path / "k.p12"), "-passin", "pass:changeit", "-nodes")
    assert text.count("BEGIN CERTIFICATE") == 2
    assert "BEGIN PRIVATE KEY" in text


async def test_keytool_reads_the_java_keystore(scene: Scene, tmp_path: Path) -> None:
    keytool = require("keytool")
    await add_password(scene, "changeit")
    await scene.issue(keystores=Keystores(jks=JKSKeystore(create=True, alias="web", password_secret_ref=REF)))
    data = (await scene.world.secret("web")).data
    for name in ("keystore.jks", "truststore.jks"):
        (tmp_path / name).write_bytes(data[name])
    listed = run(keytool, "-list", "-keystore", str(tmp_path / "keystore.jks"), "-storepass", "changeit")
    assert "web, " in listed
    assert "PrivateKeyEntry" in listed
    trusted = run(keytool, "-list", "-keystore", str(tmp_path / "truststore.jks"), "-storepass", "changeit")
    assert "trustedCertEntry" in trusted


async def test_a_self_signed_certificate_trusts_itself_in_its_truststore(scene: Scene) -> None:
    jks = JKSKeystore(create=True, password="changeit")
    await scene.issue(issuer="root", keystores=Keystores(jks=jks))
    data = (await scene.world.secret("web")).data
    assert "keystore.jks" in data
    assert ("truststore.jks" in data) == ("ca.crt" in data)


async def test_a_missing_password_is_said_once_and_the_certificate_issued_when_it_comes(scene: Scene) -> None:
    keystores = Keystores(pkcs12=PKCS12Keystore(create=True, password_secret_ref=REF))
    certificate = await scene.issue(keystores=keystores)
    issuing = condition_of(certificate, "Issuing")
    assert issuing.message == 'The keystore is waiting for its password: Secret "password" does not exist'
    await scene.world.start_controllers()
    events = [e for e in await scene.world.events() if e.reason == "KeystorePasswordSecretNotFound"]
    assert [(e.type, e.count) for e in events] == [("Warning", 1)]
    await add_password(scene)
    await scene.world.settle()
    assert await scene.world.is_ready("web")
    assert (await scene.world.certificate("web")).status.revision == 1
    assert "keystore.p12" in (await scene.world.secret("web")).data


async def test_an_empty_entry_of_the_password_secret_is_named(scene: Scene) -> None:
    await scene.world.create(SECRETS, make_secret("password", {"other": b"x"}))
    keystores = Keystores(jks=JKSKeystore(create=True, password_secret_ref=REF))
    certificate = await scene.issue(keystores=keystores)
    issuing = condition_of(certificate, "Issuing")
    assert issuing.message.endswith('Secret "password" has nothing under "pw"')


async def test_with_owner_references_the_secret_goes_with_its_certificate() -> None:
    async with make_world(certificate_owner_references=True) as world:
        scene = Scene(world)
        await scene.add_ca()
        certificate = await scene.issue()
        owners = (await world.secret("web")).metadata.owner_references
        assert [(o.kind, o.name, o.uid, o.controller, o.block_owner_deletion) for o in owners] == [
            ("Certificate", "web", certificate.metadata.uid, True, True)
        ]

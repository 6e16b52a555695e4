"""A Secret whose certificate is sound is brought to what the spec wants, without a new certificate."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from certwright.controllers.certificates import ownership
from certwright.kube.api import conditions, errors
from certwright.kube.api.core import SECRETS, ManagedFields, Secret, SecretMeta
from certwright.kube.api.kinds import controller_reference
from certwright.kube.util.http_messages import Request, Response
from certwright.pki import jks
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources.certificate import (
    AdditionalOutputFormat,
    JKSKeystore,
    Keystores,
    SecretTemplate,
)
from certwright.resources.names import FAO_LABEL, SECRET_FIELD_MANAGER
from certwright.resources.references import SecretKeySelector
from certwright.resources.table import CERTIFICATES
from controllers.scene import Scene, make_certificate, make_secret
from support.world import CONTROLLER, World, make_world

REF = {"name": "password", "key": "pw"}
PASSWORD_REF = SecretKeySelector(name="password", key="pw")


async def set_password(world: World, password: bytes) -> None:
    """Create or change the Secret that `REF` points to."""
    secrets = await world.client.list(SECRETS, "default", fields="metadata.name=password")
    if secrets.items:
        await world.client.patch(SECRETS, "password", "default", {"data": {"pw": password}})
    else:
        await world.create(SECRETS, make_secret("password", {"pw": password}))
    await world.settle()


async def touch(world: World, patch: dict[str, Any], name: str = "web") -> None:
    """Change the target Secret as another client would."""
    await world.patch(SECRETS, name, patch)


def applies(scene: Scene) -> int:
    """How often the target Secret was written by us."""
    return sum(w.path.endswith("/secrets/web") for w in scene.world.recording.object_writes())


async def check_sound(scene: Scene) -> None:
    """The first certificate is still there, Ready, and nothing is issued or in trouble."""
    certificate = await scene.world.certificate("web")
    assert certificate.status.revision == 1
    assert await scene.world.is_ready("web")
    assert conditions.find(certificate.status.conditions, "Issuing") is None


@pytest.mark.parametrize("stays_whole", [False, True], ids=["stripped", "whole"])
async def test_a_new_encoding_of_the_key_is_applied(stays_whole: bool, scene: Scene) -> None:
    formats = (AdditionalOutputFormat(type="CombinedPEM"),) if stays_whole else ()
    await scene.issue(additional_output_formats=formats)
    before = load_private_key((await scene.world.secret("web")).data["tls.key"])
    await scene.change_spec("web", privateKey={"encoding": "PKCS8"})
    data = (await scene.world.secret("web")).data
    assert data["tls.key"].startswith(b"-----BEGIN PRIVATE KEY-----")
    assert public_key_der(load_private_key(data["tls.key"])) == public_key_der(before)
    assert data.get("tls-combined.pem", data["tls.key"]).startswith(data["tls.key"])
    await check_sound(scene)
    await scene.change_spec("web", privateKey={"encoding": "PKCS1"})
    assert b"BEGIN PRIVATE KEY" not in (await scene.world.secret("web")).data["tls.key"]
    await check_sound(scene)


async def test_a_new_template_is_applied_and_an_old_one_taken_away(scene: Scene) -> None:
    await scene.issue(secret_template=SecretTemplate(labels={"a": "1", "b": "1"}, annotations={"n": "1"}))
    await touch(scene.world, {"metadata": {"labels": {"theirs": "1"}, "annotations": {"theirs": "1"}}})
    await scene.change_spec(
        "web", secretTemplate={"labels": {"a": "2", "b": None}, "annotations": {"m": "1", "n": None}}
    )
    meta = (await scene.world.secret("web")).metadata
    assert meta.labels == {"a": "2", "theirs": "1", FAO_LABEL: "true"}
    assert (meta.annotations.get("n"), meta.annotations["m"], meta.annotations["theirs"]) == (None, "1", "1")
    await scene.change_spec("web", secretTemplate=None)
    meta = (await scene.world.secret("web")).metadata
    assert meta.labels == {"theirs": "1", FAO_LABEL: "true"}
    assert "m" not in meta.annotations
    await check_sound(scene)


async def test_what_somebody_else_set_as_well_stays_when_the_template_loses_it(scene: Scene) -> None:
    await scene.issue(secret_template=SecretTemplate(labels={"app": "shop"}))
    theirs = {"metadata": {"name": "web", "namespace": "default", "labels": {"app": "shop"}}}
    await scene.world.client.apply(SECRETS, theirs, field_manager="theirs", force=False)
    await scene.change_spec("web", secretTemplate={})
    assert (await scene.world.secret("web")).metadata.labels["app"] == "shop"
    await check_sound(scene)


async def give(world: World, meta: dict[str, Any], data: dict[str, bytes]) -> None:
    """Have `theirs` want just this of the target Secret."""
    config = {"metadata": {"name": "web", "namespace": "default", **meta}, "data": data}
    await world.client.apply(SECRETS, config, field_manager="theirs", force=False)
    await world.settle()


async def test_what_somebody_else_has_set_before_the_spec_asks_for_it_stays_without_them(
    scene: Scene,
) -> None:
    await scene.issue()
    data_before = (await scene.world.secret("web")).data
    meta = {"labels": {"app": "shop"}, "annotations": {"note": "x"}}
    await give(
        scene.world, meta, {"tls-combined.pem": data_before["tls.key"] + b"\n" + data_before["tls.crt"]}
    )
    scene.world.recording.writes.clear()
    await scene.change_spec("web", secretTemplate=meta, additionalOutputFormats=[{"type": "CombinedPEM"}])
    assert applies(scene) == 1
    await give(scene.world, {}, {})
    secret = await scene.world.secret("web")
    assert (secret.metadata.labels["app"], secret.metadata.annotations["note"]) == ("shop", "x")
    assert "tls-combined.pem" in secret.data
    assert applies(scene) == 1
    await check_sound(scene)


def test_where_the_server_does_not_note_who_has_set_what_nothing_is_asked_of_it() -> None:
    theirs = ManagedFields("theirs", "Apply", {"f:metadata": {"f:labels": {"f:app": {}}}})
    asked = ownership.parts(labels=("app",))
    assert ownership.lacking(Secret(metadata=SecretMeta(managed_fields=(theirs,))), asked) == asked
    assert ownership.lacking(Secret(), asked) == frozenset()


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {FAO_LABEL: None}}},
        {"metadata": {"labels": {FAO_LABEL: "false"}}},
        {"metadata": {"annotations": {"cert-manager.io/alt-names": "evil.example.com"}}},
        {"metadata": {"annotations": {"cert-manager.io/common-name": None}}},
        {"metadata": {"annotations": {"cert-manager.io/certificate-name": None}}},
        {
            "metadata": {
                "annotations": {
                    "cert-manager.io/issuer-name": None,
                    "cert-manager.io/issuer-kind": None,
                    "cert-manager.io/issuer-group": None,
                }
            }
        },
        {"metadata": {"labels": {"app": None}}},
        {"metadata": {"annotations": {"note": "other"}}},
        {"data": {"key.der": None}},
        {"data": {"tls-combined.pem": b"rubbish"}},
    ],
)
async def test_what_is_damaged_is_put_right_in_one_write(scene: Scene, patch: dict[str, Any]) -> None:
    await scene.issue(secret_template=SecretTemplate(labels={"app": "shop"}, annotations={"note": "x"}))
    await scene.change_spec("web", additionalOutputFormats=[{"type": "DER"}, {"type": "CombinedPEM"}])
    before = await scene.world.secret("web")
    scene.world.recording.writes.clear()
    await touch(scene.world, patch)
    after = await scene.world.secret("web")
    assert (after.data, after.metadata.labels) == (before.data, before.metadata.labels)
    assert after.metadata.annotations == before.metadata.annotations
    assert applies(scene) == 1
    await check_sound(scene)


async def test_output_formats_come_and_go_with_the_spec(scene: Scene) -> None:
    await scene.issue()
    await touch(scene.world, {"data": {"theirs": b"1"}})
    await scene.change_spec("web", additionalOutputFormats=[{"type": "DER"}, {"type": "CombinedPEM"}])
    assert {"key.der", "tls-combined.pem", "theirs"} < set((await scene.world.secret("web")).data)
    await scene.change_spec("web", additionalOutputFormats=[{"type": "DER"}])
    assert "tls-combined.pem" not in (await scene.world.secret("web")).data
    await scene.change_spec("web", additionalOutputFormats=None)
    assert set((await scene.world.secret("web")).data) == {"tls.crt", "tls.key", "ca.crt", "theirs"}
    await check_sound(scene)


async def test_a_secret_without_a_certificate_of_ours_is_left_alone(scene: Scene) -> None:
    """Its annotations name another Certificate, which is in no way to be repaired here."""
    await scene.issue("first", secret_name="shared")
    scene.world.clock.advance(timedelta(seconds=1))
    await scene.issue("second", secret_name="shared", secret_template=SecretTemplate(labels={"app": "2"}))
    meta = (await scene.world.secret("shared")).metadata
    assert "app" not in meta.labels
    assert meta.annotations["cert-manager.io/certificate-name"] == "first"


async def test_keystores_come_and_go_with_the_spec(scene: Scene) -> None:
    await scene.issue()
    await set_password(scene.world, b"one")
    jks_spec = {"create": True, "passwordSecretRef": REF}
    await scene.change_spec("web", keystores={"jks": jks_spec, "pkcs12": jks_spec})
    data = (await scene.world.secret("web")).data
    assert jks.open_store(data["keystore.jks"], password="one").keys[0].alias == "certificate"
    assert pkcs12.load_pkcs12(data["keystore.p12"], b"one").key is not None
    await scene.change_spec("web", keystores={"jks": {**jks_spec, "create": False}, "pkcs12": jks_spec})
    assert {"keystore.jks", "truststore.jks"}.isdisjoint((await scene.world.secret("web")).data)
    await scene.change_spec("web", keystores=None)
    assert set((await scene.world.secret("web")).data) == {"tls.crt", "tls.key", "ca.crt"}
    await check_sound(scene)


@pytest.mark.parametrize(
    "change", [{"profile": "Modern2026"}, {"password": "three"}], ids=["profile", "password"]
)
async def test_a_changed_form_gives_a_new_keystore(scene: Scene, change: dict[str, str]) -> None:
    spec = {"create": True, "profile": "Modern2023", "password": "one"}
    await scene.issue()
    await scene.change_spec("web", keystores={"pkcs12": spec})
    before = (await scene.world.secret("web")).data["keystore.p12"]
    await scene.change_spec("web", keystores={"pkcs12": spec | change})
    assert (await scene.world.secret("web")).data["keystore.p12"] != before
    await check_sound(scene)


async def test_a_damaged_keystore_is_made_again_and_the_sound_one_kept(scene: Scene) -> None:
    both = {"jks": {"create": True, "password": "one"}, "pkcs12": {"create": True, "password": "one"}}
    await scene.issue()
    await scene.change_spec("web", keystores=both)
    before = (await scene.world.secret("web")).data
    await touch(scene.world, {"data": {"keystore.p12": b"rubbish"}})
    after = (await scene.world.secret("web")).data
    assert pkcs12.load_pkcs12(after["keystore.p12"], b"one").key is not None
    assert after["keystore.jks"] == before["keystore.jks"]
    await check_sound(scene)


async def test_a_restart_keeps_the_keystores_that_are_there(scene: Scene) -> None:
    await set_password(scene.world, b"one")
    spec = {"create": True, "passwordSecretRef": REF}
    await scene.issue()
    await scene.change_spec("web", keystores={"jks": spec, "pkcs12": spec})
    scene.world.recording.writes.clear()
    await scene.world.start_controllers()
    await scene.world.advance(timedelta(days=1))
    assert scene.world.recording.writes == []


async def test_without_the_password_the_keystore_stays_and_the_trouble_is_said_once(scene: Scene) -> None:
    await set_password(scene.world, b"one")
    spec = {"create": True, "passwordSecretRef": REF}
    await scene.issue()
    await scene.change_spec("web", keystores={"jks": spec})
    before = (await scene.world.secret("web")).data
    await scene.world.delete(SECRETS, "password")
    await scene.world.start_controllers()
    condition = await scene.world.condition("web", "Issuing")
    assert (condition.status, condition.reason) == ("False", "KeystorePasswordSecretNotFound")
    assert (await scene.world.secret("web")).data == before
    assert await scene.world.is_ready("web")
    events = [e for e in await scene.world.events() if e.reason == "KeystorePasswordSecretNotFound"]
    assert [e.count for e in events] == [1]
    await set_password(scene.world, b"one")
    assert (await scene.world.secret("web")).data == before
    await check_sound(scene)


async def test_the_owner_reference_comes_and_goes_with_the_flag() -> None:
    async with make_world() as world:
        scene = Scene(world)
        await scene.add_ca()
        await scene.issue()
        # Somebody else has put it there already, and takes it away again.
        owner = controller_reference(CERTIFICATES, (await world.certificate("web")).metadata)
        await give(world, {"ownerReferences": [owner]}, {})
        world.recording.writes.clear()
        await world.start_controllers(certificate_owner_references=True)
        assert applies(scene) == 1
        await give(world, {}, {})
        assert applies(scene) == 1
        assert [o.name for o in (await world.secret("web")).metadata.owner_references] == ["web"]
        await world.start_controllers()
        assert (await world.secret("web")).metadata.owner_references == ()
        await check_sound(scene)


async def test_a_secret_that_cert_manager_wrote_is_taken_over_without_a_write(scene: Scene) -> None:
    await scene.issue(secret_template=SecretTemplate(labels={"app": "shop"}))
    await scene.world.stop_controllers()
    secret = await scene.world.secret("web")
    await scene.world.client.delete(SECRETS, "web", "default")
    theirs = {
        "metadata": {
            "name": "web",
            "namespace": "default",
            "labels": dict(secret.metadata.labels),
            "annotations": dict(secret.metadata.annotations),
        },
        "type": secret.type,
        "data": dict(secret.data),
    }
    await scene.world.client.apply(SECRETS, theirs, field_manager=SECRET_FIELD_MANAGER, force=True)
    scene.world.recording.writes.clear()
    await scene.world.start_controllers()
    assert scene.world.recording.object_writes() == []
    await scene.change_spec("web", secretTemplate=None)
    assert "app" not in (await scene.world.secret("web")).metadata.labels
    await check_sound(scene)


async def test_while_a_new_issuer_is_awaited_the_secret_says_who_signed_it(scene: Scene) -> None:
    await scene.issue()
    await scene.change_spec("web", issuerRef={"name": "nobody"}, secretTemplate={"labels": {"app": "2"}})
    notes = (await scene.world.secret("web")).metadata.annotations
    assert notes["cert-manager.io/issuer-name"] == "ca"


async def test_secrets_of_equal_form_share_what_they_say_of_their_writers(scene: Scene) -> None:
    await scene.issue("one")
    await scene.issue("two")
    first, second = [(await scene.world.secret(name)).metadata.managed_fields[0] for name in ("one", "two")]
    assert first.fields_v1 is second.fields_v1
    assert msgspec.json.decode(first.fields_v1)["f:type"] == {}


async def test_a_server_that_is_gone_for_a_minute_is_no_conflict(scene: Scene) -> None:
    await scene.issue(secret_template=SecretTemplate(labels={"app": "shop"}))
    handler = scene.world.recording.handler

    async def gone(request: Request) -> Response:
        if request.user == CONTROLLER and request.method != "GET":
            raise errors.Unreachable("gone")
        return await handler(request)

    scene.world.recording.handler = gone
    await touch(scene.world, {"metadata": {"labels": {"app": "theirs"}}})
    await scene.world.advance(timedelta(minutes=1))
    scene.world.recording.handler = handler
    await scene.world.advance(timedelta(minutes=1))
    assert (await scene.world.secret("web")).metadata.labels["app"] == "shop"
    await check_sound(scene)


async def test_a_repair_that_is_refused_is_said_and_tried_ever_more_slowly(scene: Scene) -> None:
    await scene.issue()
    await touch(scene.world, {"immutable": True})
    before = scene.world.recording.requests
    await scene.change_spec("web", additionalOutputFormats=[{"type": "DER"}])
    await scene.world.advance(timedelta(hours=2))
    assert scene.world.recording.requests - before < 40
    condition = await scene.world.condition("web", "Issuing")
    assert (condition.status, condition.reason) == ("False", "SecretRefused")
    assert "immutable" in condition.message
    assert await scene.world.is_ready("web")
    await scene.change_spec("web", additionalOutputFormats=None)
    await scene.world.advance(timedelta(hours=1))
    await check_sound(scene)


async def test_many_certificates_that_are_ready_cost_no_write_after_a_restart(scene: Scene) -> None:
    jks_spec = Keystores(jks=JKSKeystore(create=True, password="one"))
    for number in range(60):
        keystores = jks_spec if number % 2 else None
        made = make_certificate(f"c{number}", "ca", keystores=keystores)
        await scene.world.create(CERTIFICATES, made)
    await scene.world.settle()
    scene.world.recording.writes.clear()
    await scene.world.start_controllers()
    await scene.world.advance(timedelta(days=2))
    assert scene.world.recording.writes == []

"""What comes of a Certificate, in which writes, and what makes it be issued again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from certwright.kube.api import conditions, errors
from certwright.kube.api.core import SECRETS
from certwright.kube.api.meta import ObjectMeta
from certwright.pki.certificates import read_certificate, read_chain
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources.certificate import Certificate, PrivateKeySpec, X509Subject
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from controllers.crashes import Webhook
from controllers.scene import Scene, make_certificate, make_secret
from support.world import START, condition_of


def is_issuing(certificate: Certificate) -> bool:
    """Whether there is a condition Issuing."""
    return conditions.find(certificate.status.conditions, "Issuing") is not None


@pytest.mark.filterwarnings("ignore:Attribute's length must be")
@pytest.mark.parametrize(
    "spec",
    [
        {"subject": X509Subject(countries=("Spain",), organizations=("x" * 65,), serial_number="a_b")},
        {"literal_subject": f"SERIALNUMBER=a_b,CN=web,O={'x' * 65},C=Spain"},
    ],
)
async def test_a_subject_beyond_the_bounds_of_rfc_5280_is_issued_and_settled(
    scene: Scene, spec: dict[str, Any]
) -> None:
    await scene.issue(**spec)
    assert await scene.world.is_ready("web")
    notes = (await scene.world.secret("web")).metadata.annotations
    assert notes["cert-manager.io/subject-countries"] == "Spain"
    assert notes["cert-manager.io/subject-organizations"] == "x" * 65
    scene.world.recording.writes.clear()
    await scene.world.start_controllers()
    assert scene.world.recording.writes == []


async def test_a_new_certificate_takes_seven_writes_and_three_events(scene: Scene) -> None:
    await scene.issue()
    assert [(w.method, w.path.split("/")[-2:]) for w in scene.world.recording.object_writes()] == [
        ("PATCH", ["web", "status"]),
        ("POST", ["default", "secrets"]),
        ("POST", ["default", "certificaterequests"]),
        ("PATCH", ["web-1", "status"]),
        ("PATCH", ["secrets", "web"]),
        ("PATCH", ["web", "status"]),
        ("DELETE", ["secrets", scene.world.recording.object_writes()[-1].path.split("/")[-1]]),
    ]
    web = {
        (e.type, e.reason, e.message)
        for e in await scene.world.events()
        if e.involved_object.name.startswith("web")
    }
    assert web == {
        ("Normal", "Issuing", "Issuing certificate as Secret does not exist"),
        ("Normal", "Requested", 'Created new CertificateRequest resource "web-1"'),
        ("Normal", "Issuing", "The certificate has been successfully issued"),
    }
    assert len(scene.world.recording.event_writes()) == 3


async def test_the_secret_holds_a_matching_pair_and_says_where_it_is_from(scene: Scene) -> None:
    certificate = await scene.issue()
    secret = await scene.world.secret("web")
    leaf = read_certificate(secret.data["tls.crt"])
    assert public_key_der(load_private_key(secret.data["tls.key"])) == leaf.public_key_der
    assert leaf.dns_names == ("web.example.com",)
    assert read_chain(secret.data["ca.crt"])[0].common_name == "Test CA"
    assert secret.type == "kubernetes.io/tls"
    assert secret.metadata.labels == {"controller.cert-manager.io/fao": "true"}
    assert secret.metadata.annotations == {
        "cert-manager.io/certificate-name": "web",
        "cert-manager.io/issuer-name": "ca",
        "cert-manager.io/issuer-kind": "Issuer",
        "cert-manager.io/issuer-group": "cert-manager.io",
        "cert-manager.io/common-name": "",
        "cert-manager.io/alt-names": "web.example.com",
        "cert-manager.io/ip-sans": "",
        "cert-manager.io/uri-sans": "",
    }
    status = certificate.status
    assert (status.revision, status.next_private_key_secret_name) == (1, None)
    assert not is_issuing(certificate)
    assert (status.not_before, status.not_after) == (START, START + timedelta(days=90))
    assert status.renewal_time is not None
    assert timedelta(0) <= status.renewal_time - (START + timedelta(days=60)) <= timedelta(hours=15)
    assert await scene.next_keys() == []


@pytest.mark.parametrize(
    ("algorithm", "size", "encoding", "kind", "header"),
    [
        ("ECDSA", 0, "", ec.EllipticCurvePrivateKey, b"-----BEGIN EC PRIVATE KEY-----"),
        ("ECDSA", 384, "PKCS8", ec.EllipticCurvePrivateKey, b"-----BEGIN PRIVATE KEY-----"),
        ("Ed25519", 0, "", ed25519.Ed25519PrivateKey, b"-----BEGIN PRIVATE KEY-----"),
        ("", 0, "", rsa.RSAPrivateKey, b"-----BEGIN RSA PRIVATE KEY-----"),
    ],
)
async def test_the_key_is_as_the_spec_asks(
    scene: Scene, algorithm: str, size: int, encoding: str, kind: type, header: bytes
) -> None:
    await scene.issue(private_key=PrivateKeySpec(algorithm=algorithm, size=size, encoding=encoding))
    pem = (await scene.world.secret("web")).data["tls.key"]
    assert isinstance(load_private_key(pem), kind)
    assert pem.startswith(header)


async def test_a_certificate_is_renewed_at_its_renewal_time(scene: Scene) -> None:
    before = await scene.issue()
    key = (await scene.world.secret("web")).data["tls.key"]
    moment = before.status.renewal_time
    assert moment is not None
    await scene.world.advance_to(moment - timedelta(seconds=1))
    assert (await scene.world.certificate("web")).status == before.status
    await scene.world.advance(timedelta(seconds=1))
    status = (await scene.world.certificate("web")).status
    assert (status.revision, status.not_before) == (2, moment)
    assert status.renewal_time is not None
    assert timedelta(0) <= status.renewal_time - (moment + timedelta(days=60)) <= timedelta(hours=15)
    assert (await scene.world.secret("web")).data["tls.key"] != key
    assert f"Renewing certificate as renewal was scheduled at {moment:%Y-%m-%d %H:%M:%S} +0000 UTC" in {
        event.message for event in await scene.world.events()
    }


async def test_the_certificate_stays_ready_while_it_is_renewed(scene: Scene) -> None:
    await scene.issue()
    await scene.world.advance(timedelta(days=200))
    ready = await scene.world.condition("web", "Ready")
    assert (ready.status, ready.last_transition_time) == ("True", START)


async def test_a_changed_spec_is_issued_again(scene: Scene) -> None:
    await scene.issue()
    await scene.change_spec("web", dnsNames=["web.example.com", "www.example.com"])
    leaf = read_certificate((await scene.world.secret("web")).data["tls.crt"])
    assert leaf.dns_names == ("web.example.com", "www.example.com")
    ready = await scene.world.condition("web", "Ready")
    assert (ready.status, ready.observed_generation) == ("True", 2)
    assert "Fields on existing CertificateRequest resource not up to date: [spec.dnsNames]" in {
        event.message for event in await scene.world.events()
    }


async def test_one_revision_is_kept_where_nothing_is_said_and_more_where_it_is(scene: Scene) -> None:
    await scene.issue()
    await scene.issue("two", revision_history_limit=2)
    await scene.world.advance(timedelta(days=200))
    assert [r.metadata.name for r in await scene.requests("web")] == ["web-4"]
    assert [r.metadata.name for r in await scene.requests("two")] == ["two-3", "two-4"]


async def test_a_long_history_is_cut_short_at_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await scene.issue(revision_history_limit=60, duration="1h")
    await scene.world.advance(timedelta(hours=27))
    assert len(await scene.requests()) > 32
    await scene.change_spec("web", revisionHistoryLimit=2)
    revision = (await scene.world.certificate("web")).status.revision or 0
    assert {r.metadata.name for r in await scene.requests()} == {f"web-{revision - 1}", f"web-{revision}"}
    assert caplog.records == []


async def test_what_others_put_into_the_secret_stays(scene: Scene) -> None:
    await scene.world.create(
        SECRETS, make_secret("web", {"mine": b"3"}, labels={"mine": "1"}, annotations={"mine": "2"})
    )
    await scene.issue()
    secret = await scene.world.secret("web")
    assert secret.type == "Opaque"
    assert secret.metadata.labels["mine"] == "1"
    assert secret.metadata.annotations["mine"] == "2"
    assert secret.data["mine"] == b"3"
    assert await scene.world.is_ready("web")


async def test_two_certificates_with_one_secret_name_do_not_fight(scene: Scene) -> None:
    await scene.issue("first", secret_name="shared")
    scene.world.clock.advance(timedelta(seconds=1))
    second = await scene.issue("second", secret_name="shared")
    assert condition_of(second, "Ready").message == (
        'Secret "shared" is already used by Certificate "first"; give this Certificate another '
        "spec.secretName"
    )
    assert not is_issuing(second)
    before = await scene.world.secret("shared")
    await scene.world.renew("second")
    assert await scene.world.secret("shared") == before
    assert "already used" in (await scene.world.condition("second", "Issuing")).message
    await scene.world.delete(CERTIFICATES, "first")
    assert await scene.world.is_ready("second")


async def test_a_spec_that_x509_cannot_hold_is_refused_with_a_sentence(scene: Scene) -> None:
    with pytest.raises(errors.ApiError, match=r'spec\.usages: .* mean nothing without "key agreement"'):
        await scene.issue(usages=("encipher only",))


async def test_somebody_elses_request_of_that_name_is_left_alone(scene: Scene) -> None:
    await scene.issue("other")
    theirs = (await scene.requests("other"))[0]
    meta = ObjectMeta(name="web-1", namespace="default")
    await scene.world.create(CERTIFICATE_REQUESTS, CertificateRequest(metadata=meta, spec=theirs.spec))
    certificate = await scene.issue()
    assert await scene.world.is_ready("web")
    assert {r.metadata.name for r in await scene.requests()} == {
        "web-1",
        f"web-1-{certificate.metadata.uid[:8]}",
    }


async def test_labels_and_annotations_go_to_the_request_but_not_those_of_tools(scene: Scene) -> None:
    made = make_certificate("web", "ca")
    meta = ObjectMeta(
        name="web",
        namespace="default",
        labels={"team": "blue"},
        annotations={"note": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
    )
    await scene.world.add(CERTIFICATES, Certificate(metadata=meta, spec=made.spec))
    request = (await scene.requests())[0]
    assert request.metadata.labels == {"team": "blue"}
    assert request.metadata.annotations.keys() == {
        "note",
        "cert-manager.io/certificate-name",
        "cert-manager.io/certificate-revision",
        "cert-manager.io/private-key-secret-name",
        "certwright.io/spec-generation",
    }


async def test_an_immutable_secret_is_a_sentence_in_the_condition(scene: Scene) -> None:
    secret = msgspec.structs.replace(make_secret("web", {"mine": b"3"}), immutable=True)
    await scene.world.create(SECRETS, secret)
    writes = Webhook(scene.world, "secrets", lambda _: None)
    await scene.issue()
    assert [e.reason for e in await scene.world.events() if e.type == "Warning"][-1] == "SecretRefused"
    await scene.world.advance(timedelta(hours=2))
    assert "kubectl delete secret web -n default" in (await scene.world.condition("web", "Issuing")).message
    # The key; the Secret after 1, 2, 4, 8, 16, 32 and 60 minutes.
    assert writes.writes == 1 + 7
    await scene.world.delete(SECRETS, "web")
    assert await scene.world.is_ready("web")


async def test_a_certificate_that_nobody_renewed_is_said_to_have_expired(scene: Scene) -> None:
    await scene.issue()
    await scene.world.start_controllers(enabled="certificates-readiness")
    await scene.world.advance(timedelta(days=91))
    ready = await scene.world.condition("web", "Ready")
    assert (ready.status, ready.reason) == ("False", "Expired")
    assert ready.message == "Certificate expired on Wed, 01 Apr 2026 00:00:00 UTC"


async def test_a_ca_in_its_last_second_is_not_asked_again_and_again(scene: Scene) -> None:
    ca = await scene.world.certificate("ca")
    assert ca.status.not_after is not None
    await scene.world.start_controllers(enabled="*,-certificates-trigger")
    await scene.world.advance_to(ca.status.not_after - timedelta(milliseconds=500))
    await scene.world.start_controllers(enabled="*,-certificates-readiness")
    await scene.world.stop_controllers()
    # The CA itself is not renewed here, so that it expires.
    await scene.world.client.delete(CERTIFICATES, "ca", "default")
    await scene.world.start_controllers()
    await scene.issue()
    assert (await scene.world.certificate("web")).status.revision in (None, 1)

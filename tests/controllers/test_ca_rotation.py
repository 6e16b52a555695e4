"""A CA is replaced: no certificate outlives the one that signed it, and whoever talks to whom is trusted."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

from certwright.kube.api.core import SECRETS, Secret
from certwright.pki import chain, keys
from certwright.pki.certificates import CertificateFacts, read_certificate, read_chain
from certwright.pki.csr import CsrPlan, build_csr
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import CAIssuer, IssuerSpec
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS
from controllers.scene import Scene, make_certificate, make_cluster_issuer, make_secret
from issuers.authority import Authority
from support.real import require
from support.world import START

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def make_ca(begin: datetime, life: timedelta, *, name: str = "Other CA") -> Authority:
    """A root of these dates."""
    return Authority.fresh(name, now=begin, duration=life)


async def replace_ca(scene: Scene, ca: Authority) -> None:
    """Put another CA into the Secret of the Issuer `ca`, which no Certificate takes care of any more."""
    await scene.world.patch(SECRETS, "ca", {"data": ca.secret()})


@pytest.fixture
async def manual(scene: Scene) -> Scene:
    """The Issuer `ca` with a root that ends on day 100 and that people take care of."""
    await scene.world.client.delete(CERTIFICATES, "ca", "default")
    await replace_ca(scene, make_ca(START, 100 * DAY))
    return scene


async def secrets(scene: Scene, count: int) -> list[Secret]:
    """The Secrets of `web-0` and so on."""
    return [await scene.world.secret(f"web-{number}") for number in range(count)]


def leaf_of(secret: Secret) -> CertificateFacts:
    """The certificate in a Secret."""
    return read_certificate(secret.data["tls.crt"])


def trusts(client: Secret, server: Secret, now: datetime) -> bool:
    """Whether the holder of one Secret accepts the certificate of another."""
    served = read_chain(server.data["tls.crt"])
    if not all(certificate.not_before <= now <= certificate.not_after for certificate in served):
        return False
    anchors = [ca for ca in read_chain(client.data["ca.crt"]) if ca.not_before <= now <= ca.not_after]
    return any(chain.is_issued_by(served[-1], ca) for ca in anchors)


async def overlong(scene: Scene, ca: Authority, *, days: int, name: str = "web") -> Certificate:
    """A certificate that another controller has had signed for longer than its CA lives."""
    await scene.issue(name)
    secret = await scene.world.secret(name)
    key = keys.load_private_key(secret.data["tls.key"])
    csr = build_csr(CsrPlan(dns_names=(f"{name}.example.com",)), key)
    # Signed with the CA's key, but as if it lived longer.
    signer = Authority.fresh("Other CA", now=START, duration=10_000 * DAY, key=ca.key)
    leaf = signer.sign(csr, now=scene.world.clock.now(), duration=days * DAY)
    await scene.world.patch(SECRETS, name, {"data": {"tls.crt": leaf, "ca.crt": ca.pem}})
    return await scene.world.certificate(name)


async def test_a_certificate_ends_no_later_than_its_ca(manual: Scene) -> None:
    await manual.world.advance_to(START + 50 * DAY)
    certificate = await manual.issue()
    assert certificate.status.not_after == START + 100 * DAY
    assert certificate.status.renewal_time is not None
    assert certificate.status.renewal_time < START + 84 * DAY


async def test_one_that_would_outlive_its_ca_is_renewed_before_that_ends(manual: Scene) -> None:
    ca = make_ca(START, 100 * DAY)
    await replace_ca(manual, ca)
    certificate = await overlong(manual, ca, days=300)
    assert certificate.status.not_after == START + 300 * DAY
    moment = certificate.status.renewal_time
    assert moment is not None
    # As if it ended with its CA.
    assert timedelta(0) <= moment - (START + 100 * DAY * 2 / 3) <= DAY * 2 / 3


async def test_after_a_change_of_the_ca_they_are_renewed_over_two_thirds_of_what_is_left(
    manual: Scene,
) -> None:
    ca = make_ca(START, 100 * DAY)
    await replace_ca(manual, ca)
    for number in range(12):
        await overlong(manual, ca, days=300, name=f"web-{number}")
    await manual.world.advance_to(START + 10 * DAY)
    await replace_ca(manual, make_ca(START + 10 * DAY, 3650 * DAY))
    certificates = [await manual.world.certificate(f"web-{number}") for number in range(12)]
    moments = sorted(c.status.renewal_time for c in certificates if c.status.renewal_time)
    assert len(moments) == 12
    assert START + 10 * DAY <= moments[0] < moments[-1] <= START + 70 * DAY
    # Twelve by chance within 20 of the 60 days: once in 20,000 runs; within 10: never.
    assert moments[-1] - moments[0] > 10 * DAY
    await manual.world.advance_to(START + 70 * DAY + HOUR)
    for secret in await secrets(manual, 12):
        assert leaf_of(secret).not_after > START + 100 * DAY
        assert trusts(secret, secret, manual.world.clock.now())


async def test_those_that_end_before_their_ca_are_left_alone(manual: Scene) -> None:
    before = await manual.issue(duration="720h")
    await replace_ca(manual, make_ca(START, 3650 * DAY))
    after = await manual.world.certificate("web")
    assert after.status.renewal_time == before.status.renewal_time
    assert after.status.revision == 1


async def test_a_ca_that_has_ended_already_is_left_at_once(manual: Scene) -> None:
    ca = make_ca(START, 20 * DAY)
    await replace_ca(manual, ca)
    await overlong(manual, ca, days=300)
    await manual.world.stop_controllers()
    manual.world.clock.set_now(START + 30 * DAY)
    await manual.world.client.patch(
        SECRETS, "ca", "default", {"data": make_ca(START + 29 * DAY, 3650 * DAY).secret()}
    )
    await manual.world.start_controllers()
    await manual.world.advance(HOUR)
    secret = await manual.world.secret("web")
    assert (await manual.world.certificate("web")).status.revision == 2
    assert trusts(secret, secret, manual.world.clock.now())


async def test_the_previous_ca_stands_behind_the_new_one_until_it_expires(manual: Scene) -> None:
    first, second, third = (
        make_ca(START, 100 * DAY, name="first"),
        make_ca(START, 3650 * DAY, name="second"),
        make_ca(START, 3650 * DAY, name="third"),
    )
    await replace_ca(manual, first)
    await manual.issue(duration="240h")
    assert (await manual.world.secret("web")).data["ca.crt"] == first.pem
    await replace_ca(manual, second)
    await manual.world.advance_to(START + 10 * DAY)
    assert (await manual.world.secret("web")).data["ca.crt"] == second.pem + first.pem
    await replace_ca(manual, third)
    await manual.world.advance_to(START + 20 * DAY)
    assert (await manual.world.secret("web")).data["ca.crt"] == third.pem + second.pem + first.pem
    await manual.world.advance_to(START + 120 * DAY)
    assert (await manual.world.secret("web")).data["ca.crt"] == third.pem + second.pem


async def test_the_ca_of_another_issuer_is_not_kept(manual: Scene) -> None:
    await manual.issue()
    await manual.change_spec("web", issuerRef={"name": "root"})
    secret = await manual.world.secret("web")
    assert secret.data["ca.crt"] == secret.data["tls.crt"]


async def test_a_ca_that_somebody_took_out_does_not_come_back(manual: Scene) -> None:
    second = make_ca(START, 3650 * DAY)
    await manual.issue(duration="240h")
    await replace_ca(manual, second)
    await manual.world.advance_to(START + 10 * DAY)
    assert len(read_chain((await manual.world.secret("web")).data["ca.crt"])) == 2
    await manual.world.client.patch(SECRETS, "web", "default", {"data": {"ca.crt": second.pem}})
    await manual.world.advance_to(START + 30 * DAY)
    assert (await manual.world.secret("web")).data["ca.crt"] == second.pem


COUNT = 5


async def test_nobody_is_cut_off_while_the_ca_is_renewed_again_and_again(scene: Scene) -> None:
    world = scene.world
    # A CA that lives for 30 days and is renewed, with another key, each 20.
    await scene.change_spec("ca", duration="720h")
    for number in range(COUNT):
        await world.create(
            CERTIFICATES, make_certificate(f"web-{number}", "ca", duration=f"{(number + 1) * 150}h")
        )
    await world.settle()
    for _ in range(75 * 4):
        await world.advance(DAY / 4)
        secrets_before = await secrets(scene, COUNT)
        for client, server in product(secrets_before, secrets_before):
            assert trusts(client, server, world.clock.now()), (
                client.metadata.name,
                server.metadata.name,
                world.clock.now(),
            )
    assert ((await world.certificate("ca")).status.revision or 0) >= 4


@pytest.mark.parametrize(
    "days", [25, 29, 100], ids=["before its end", "just before its end", "after its end"]
)
async def test_a_machine_that_slept_through_the_renewal_of_its_ca(scene: Scene, days: int) -> None:
    await scene.change_spec("ca", duration="720h")
    await scene.issue_many(COUNT, duration="600h")
    scene.world.recording.writes.clear()
    scene.world.clock.set_now(scene.world.clock.now() + days * DAY)
    await scene.world.settle()
    await scene.world.advance(timedelta(minutes=5))
    secrets_before = await secrets(scene, COUNT)
    assert all(trusts(a, b, scene.world.clock.now()) for a, b in product(secrets_before, secrets_before))
    assert all([await scene.world.is_ready(f"web-{number}") for number in range(COUNT)])
    # No storm: an issuance each, two where the old CA was still there to sign the first.
    assert len(scene.world.recording.object_writes()) <= 2 * 10 * (COUNT + 1)


async def test_a_new_ca_is_one_write_for_each_secret_and_none_after_that(manual: Scene) -> None:
    before = (await manual.issue()).status
    old = (await manual.world.secret("web")).data["ca.crt"]
    manual.world.recording.writes.clear()
    new = make_ca(START, 3650 * DAY)
    await replace_ca(manual, new)
    assert [w.path.split("/")[-2:] for w in manual.world.recording.object_writes()] == [["secrets", "web"]]
    # The one that has signed its certificate stays the first.
    assert (await manual.world.secret("web")).data["ca.crt"] == old + new.pem
    assert (await manual.world.certificate("web")).status == before
    manual.world.recording.writes.clear()
    await manual.world.start_controllers()
    await manual.world.advance(10 * DAY)
    assert manual.world.recording.writes == []


async def test_the_ca_of_a_cluster_issuer_is_followed_into_all_namespaces(manual: Scene) -> None:
    world = manual.world
    first, second = make_ca(START, 100 * DAY), make_ca(START, 3650 * DAY)
    await world.create(SECRETS, make_secret("everywhere", first.secret(), namespace="kube-system"))
    spec = IssuerSpec(ca=CAIssuer(secret_name="everywhere"))
    await world.create(CLUSTER_ISSUERS, make_cluster_issuer("everywhere", spec))
    await manual.issue("far", issuer="everywhere", kind="ClusterIssuer")
    await manual.issue("near")
    near = await world.secret("near")
    await world.patch(SECRETS, "everywhere", {"data": second.secret()}, namespace="kube-system")
    assert (await world.secret("far")).data["ca.crt"] == first.pem + second.pem
    assert await world.secret("near") == near


async def test_an_issuer_that_names_another_secret_has_a_new_ca(manual: Scene) -> None:
    await manual.issue()
    old = (await manual.world.secret("web")).data["ca.crt"]
    new = make_ca(START, 3650 * DAY)
    await manual.world.create(SECRETS, make_secret("other", new.secret()))
    other = {"spec": {"ca": {"secretName": "other"}}}
    await manual.world.patch(ISSUERS, "ca", other)
    assert (await manual.world.secret("web")).data["ca.crt"] == old + new.pem


async def test_what_is_no_new_ca_writes_nothing(scene: Scene) -> None:
    await scene.issue()
    scene.world.recording.writes.clear()
    # A label on the CA's Secret is no new CA.
    await scene.world.patch(SECRETS, "ca", {"metadata": {"labels": {"mine": "1"}}})
    assert scene.world.recording.object_writes() == []


async def test_a_ca_that_keeps_its_key_is_verified_before_and_after_its_renewal(
    scene: Scene, tmp_path: Path
) -> None:
    await scene.change_spec("ca", privateKey={"rotationPolicy": "Never"}, duration="720h")
    await scene.issue("web", duration="600h")
    old = await scene.world.secret("web")
    await scene.world.advance_to(START + 21 * DAY)
    await scene.issue("shop", duration="100h")
    new = await scene.world.secret("shop")
    assert old.data["ca.crt"] != new.data["ca.crt"]
    for ca, leaf in product((old, new), (old, new)):
        assert is_verified(ca.data["ca.crt"], leaf.data["tls.crt"], START + 21 * DAY, tmp_path)


def is_verified(ca: bytes, chain: bytes, now: datetime, folder: Path) -> bool:
    """Whether openssl verifies the certificate with the CA."""
    (folder / "ca").write_bytes(ca)
    (folder / "leaf").write_bytes(chain)
    words = ["verify", "-x509_strict", "-attime", str(int(now.timestamp())), "-CAfile", "ca", "leaf"]
    done = subprocess.run(
        [require("openssl"), *words], cwd=folder, capture_output=True, text=True, check=False
    )
    return "leaf: OK" in done.stdout

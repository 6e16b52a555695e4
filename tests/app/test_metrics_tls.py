"""The certificate of the metrics endpoint: from files, and from a CA in a Secret."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import trustme

from certwright.app.controllers import Page, serve_probes
from certwright.app.metrics_tls import (
    CA_LIFE,
    CaSettings,
    CertificateFiles,
    MetricsTls,
    SecretCa,
    ServingCertificate,
)
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.api.errors import Unreachable
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.clock import TestClock
from certwright.pki.certificates import CertificateFacts, read_certificate
from support.world import START, World

WHERE = ObjectKey("default", "metrics-ca")
SETTINGS = CaSettings(secret=WHERE, dns_names=("metrics.example.org", "127.0.0.1"))
LEAF_LIFE = SETTINGS.leaf_life


async def secret_of(world: World) -> Secret:
    return await world.client.get(SECRETS, WHERE.name, WHERE.namespace)


def leaf_in(pem: bytes) -> CertificateFacts:
    return read_certificate(pem[: pem.index(b"-----BEGIN PRIVATE KEY")])


def is_signed_by(pem: bytes, ca: bytes) -> bool:
    try:
        leaf_in(pem).parsed.verify_directly_issued_by(read_certificate(ca).parsed)
    except Exception:
        return False
    return True


async def test_the_ca_is_created_as_cert_manager_creates_it_and_signs_a_certificate(world: World) -> None:
    pem = await SecretCa(world.client, SETTINGS).pem(START)
    secret = await secret_of(world)
    assert secret.metadata.annotations == {"cert-manager.io/allow-direct-injection": "true"}
    assert set(secret.data) == {"tls.crt", "tls.key", "ca.crt"}
    assert secret.data["tls.crt"] == secret.data["ca.crt"]
    ca, leaf = read_certificate(secret.data["ca.crt"]), leaf_in(pem)
    assert (ca.may_sign, ca.not_after - ca.not_before) == (True, CA_LIFE)
    assert leaf.dns_names == ("metrics.example.org",)
    assert leaf.ip_addresses == ("127.0.0.1",)
    assert leaf.not_after - leaf.not_before == LEAF_LIFE
    assert is_signed_by(pem, secret.data["ca.crt"])


async def test_replicas_share_the_ca_and_each_has_a_certificate_of_its_own(world: World) -> None:
    replicas = [SecretCa(world.client, SETTINGS) for _ in range(3)]
    pems = await asyncio.gather(*(replica.pem(START) for replica in replicas))
    ca = (await secret_of(world)).data["ca.crt"]
    assert len(set(pems)) == 3
    assert all(is_signed_by(pem, ca) for pem in pems)


async def test_certificate_and_ca_are_replaced_after_two_thirds_of_their_lifetimes(world: World) -> None:
    source = SecretCa(world.client, SETTINGS)
    first = await source.pem(START)
    assert await source.pem(START + LEAF_LIFE * 0.6) == first
    second = await source.pem(START + LEAF_LIFE * 0.7)
    ca = (await secret_of(world)).data
    assert second != first
    assert is_signed_by(second, ca["ca.crt"])
    third = await source.pem(START + CA_LIFE * 0.7)
    other = (await secret_of(world)).data
    assert other["tls.key"] != ca["tls.key"]
    assert is_signed_by(third, other["ca.crt"])


@pytest.mark.parametrize("ahead", [LEAF_LIFE, CA_LIFE])
async def test_a_certificate_that_was_issued_while_the_clock_was_ahead_is_replaced(
    world: World, ahead: timedelta
) -> None:
    source = SecretCa(world.client, SETTINGS)
    for moment in (START, START + ahead, START + timedelta(minutes=1)):
        leaf = leaf_in(await source.pem(moment))
        assert leaf.not_before <= moment < leaf.not_after


async def test_another_replicas_ca_is_followed(world: World) -> None:
    source, other = SecretCa(world.client, SETTINGS), SecretCa(world.client, SETTINGS)
    first = await source.pem(START)
    await world.client.delete(SECRETS, WHERE.name, WHERE.namespace)
    await other.pem(START)
    ca = (await secret_of(world)).data["ca.crt"]
    assert not is_signed_by(first, ca)
    assert is_signed_by(await source.pem(START), ca)


async def given(world: World, data: dict[str, bytes], annotations: dict[str, str] | None = None) -> None:
    meta = SecretMeta(name=WHERE.name, namespace=WHERE.namespace, annotations=annotations or {})
    await world.client.create(SECRETS, Secret(metadata=meta, type="Opaque", data=data))


async def test_a_secret_that_is_something_else_is_not_replaced(world: World) -> None:
    await given(world, {"password": b"x"})
    with pytest.raises(ValueError, match="default/metrics-ca exists and holds no CA that is valid now; name"):
        await SecretCa(world.client, SETTINGS).pem(START)
    assert (await secret_of(world)).data == {"password": b"x"}


async def test_a_ca_of_the_operators_own_is_used_to_its_end_and_never_replaced(world: World) -> None:
    await SecretCa(world.client, SETTINGS).pem(START)
    own = (await secret_of(world)).data
    await world.client.delete(SECRETS, WHERE.name, WHERE.namespace)
    await given(world, dict(own))
    source = SecretCa(world.client, SETTINGS)
    assert is_signed_by(await source.pem(START + CA_LIFE * 0.9), own["ca.crt"])
    # A certificate ends with its CA at the latest.
    assert leaf_in(await source.pem(START + CA_LIFE * 0.999)).not_after == START + CA_LIFE
    with pytest.raises(ValueError, match="holds no CA that is valid now"):
        await source.pem(START + CA_LIFE)
    assert (await secret_of(world)).data == own


@pytest.mark.parametrize("data", [{}, {"tls.crt": b"x", "ca.crt": b"x", "tls.key": b"y"}])
async def test_a_secret_of_this_purpose_without_a_ca_gets_one(world: World, data: dict[str, bytes]) -> None:
    await given(world, data, {"cert-manager.io/allow-direct-injection": "true", "mine": "1"})
    pem = await SecretCa(world.client, SETTINGS).pem(START)
    secret = await secret_of(world)
    assert is_signed_by(pem, secret.data["ca.crt"])
    assert secret.metadata.annotations["mine"] == "1"


# --- the endpoint ---------------------------------------------------------------------------------------


def write(folder: Path, pair: trustme.LeafCert) -> None:
    pair.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    pair.private_key_pem.write_to_path(folder / "tls.key")


async def served(port: int, authority: trustme.CA, **options: ssl.TLSVersion) -> tuple[bytes, bytes]:
    """The page, and the certificate that the server shows."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    for name, value in options.items():
        setattr(context, name, value)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    page = await reader.read()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return page, shown


class Failing(SecretCa):
    """A CA whose API server cannot be reached."""

    async def pem(self, _now: datetime) -> bytes:
        raise Unreachable("https://api.example:6443 did not answer in time")


async def page() -> Page:
    return Page("text/plain", b"hello\n")


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key")


async def test_files_are_read_again_and_bad_ones_leave_the_former_in_use(
    world: World, files: CertificateFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, clock = trustme.CA(), TestClock(START)
    certificate = ServingCertificate(MetricsTls(source=files), world.client, clock)
    await certificate.renew()
    pages = await serve_probes("127.0.0.1", 0, {"/metrics": page}, certificate.context)
    keeping = asyncio.create_task(certificate.keep())
    with pytest.raises(OSError):
        await served(pages.port, authority)
    assert "tls.crt: No such file or directory; trying again" in caplog.text

    # Another kind of key after the first: no client gets the former one any more.
    shown = []
    for key_type in (trustme.KeyType.RSA, trustme.KeyType.ECDSA, trustme.KeyType.RSA):
        write(tmp_path, authority.issue_cert("127.0.0.1", key_type=key_type))
        clock.advance(timedelta(seconds=10))
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(OSError):
                    text, der = await served(pages.port, authority)
                    if der not in shown:
                        break
                await asyncio.sleep(0.01)
        assert text.endswith(b"hello\n")
        shown.append(der)

    caplog.clear()
    (tmp_path / "tls.key").write_bytes(authority.issue_cert("127.0.0.1").private_key_pem.bytes())
    for _ in range(3):
        await certificate.renew()
    assert (await served(pages.port, authority))[1] == shown[-1]
    assert caplog.text.count("cannot be used") == 1
    assert "PRIVATE" not in caplog.text
    keeping.cancel()
    await pages.close()


async def test_a_ca_that_cannot_be_read_leaves_the_endpoint_without_a_certificate(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("certwright.app.metrics_tls.SecretCa", Failing)
    certificate = ServingCertificate(MetricsTls(source=SETTINGS), world.client, TestClock(START))
    for _ in range(3):
        await certificate.renew()
    assert caplog.text.count("https://api.example:6443 did not answer in time; trying again") == 1


async def test_the_lowest_version_and_the_cipher_suites_are_the_operators(
    files: CertificateFiles, tmp_path: Path, world: World
) -> None:
    authority = trustme.CA()
    write(tmp_path, authority.issue_cert("127.0.0.1"))
    old = {"maximum_version": ssl.TLSVersion.TLSv1_2}
    for tls, is_old_refused in (
        (MetricsTls(source=files), False),
        (MetricsTls(source=files, minimum=ssl.TLSVersion.TLSv1_3), True),
        (MetricsTls(source=files, ciphers=("ECDHE-ECDSA-CHACHA20-POLY1305",)), False),
        (MetricsTls(source=files, ciphers=("ECDHE-RSA-CHACHA20-POLY1305",)), True),
    ):
        certificate = ServingCertificate(tls, world.client, TestClock(START))
        await certificate.renew()
        pages = await serve_probes("127.0.0.1", 0, {"/metrics": page}, certificate.context)
        assert (await served(pages.port, authority))[0].endswith(b"hello\n")
        with pytest.raises(OSError) if is_old_refused else contextlib.nullcontext():
            assert (await served(pages.port, authority, **old))[0].endswith(b"hello\n")
        await pages.close()


async def test_a_client_without_tls_gets_no_page(
    files: CertificateFiles, tmp_path: Path, world: World
) -> None:
    write(tmp_path, trustme.CA().issue_cert("127.0.0.1"))
    certificate = ServingCertificate(MetricsTls(source=files), world.client, TestClock(START))
    await certificate.renew()
    pages = await serve_probes("127.0.0.1", 0, {"/metrics": page}, certificate.context)
    reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    with contextlib.suppress(OSError):
        assert b"hello" not in await reader.read()
    writer.close()
    await pages.close()

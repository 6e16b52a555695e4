"""Private keys of Secrets at rest are not held, nor what finished requests repeat; and nothing is decided
otherwise for that."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from certwright.controllers.cache import layouts
from certwright.controllers.cache.transforms import (
    NeedsFullSecret,
    UnsignedRequest,
    WithheldCertificate,
    WithheldKey,
    is_complete,
    is_for_key,
    same_certificate,
    without_answer,
    without_key,
)
from certwright.controllers.certificates.parsed import Facts, KeyFacts
from certwright.kube.api.core import SECRETS, Secret
from certwright.kube.api.meta import ObjectKey
from certwright.pki import pem
from certwright.pki.csr import read_csr
from certwright.resources import names
from certwright.resources.certificate import (
    AdditionalOutputFormat,
    PrivateKeySpec,
)
from certwright.resources.table import CERTIFICATE_REQUESTS
from controllers.crashes import LiveReads
from controllers.scene import Scene

KEYS = [
    PrivateKeySpec(algorithm="RSA", size=2048),
    PrivateKeySpec(algorithm="ECDSA", size=384),
    PrivateKeySpec(algorithm="Ed25519"),
]
A_WHILE = timedelta(days=70)


async def stored(scene: Scene, name: str = "web") -> Secret:
    return await scene.world.get(SECRETS, name)


async def cached_secret(scene: Scene, name: str = "web") -> Secret:
    secret = await scene.world.manager.wiring.caches.secrets.peek(ObjectKey("default", name))
    assert secret is not None
    return secret


@pytest.mark.parametrize("key", KEYS)
async def test_what_stands_for_a_key_says_the_same_of_it(scene: Scene, key: PrivateKeySpec) -> None:
    await scene.issue(private_key=key)
    secret = await stored(scene)
    bare = without_key(secret)
    assert not is_complete(bare)
    facts = Facts()
    full_key = facts.key(secret.data[names.TLS_PRIVATE_KEY_KEY])
    bare_key = facts.key(bare.data[names.TLS_PRIVATE_KEY_KEY])
    assert isinstance(full_key, KeyFacts)
    assert isinstance(bare_key, KeyFacts)
    assert (bare_key.public, bare_key.plan) == (full_key.public, full_key.plan)
    with pytest.raises(NeedsFullSecret):
        _ = bare_key.key


@pytest.mark.parametrize("key", KEYS)
async def test_a_request_without_its_answer_says_the_same(scene: Scene, key: PrivateKeySpec) -> None:
    await scene.issue(private_key=key)
    (request,) = await scene.requests()
    bare = without_answer(request)
    assert not is_complete(bare)
    before, after = read_csr(request.spec.request), read_csr(bare.spec.request)
    for field in before.__dataclass_fields__:
        if field not in ("der", "spki"):
            assert getattr(after, field) == getattr(before, field), field
    assert after.subject_text == before.subject_text
    assert after.parsed.signature_algorithm_oid == before.parsed.signature_algorithm_oid
    assert not after.signature_valid
    assert is_for_key(bare.spec.request, before.public_key_der)
    await scene.issue("other", private_key=key)
    (other,) = await scene.requests("other")
    assert not is_for_key(bare.spec.request, read_csr(other.spec.request).public_key_der)
    assert same_certificate(bare, request.status.certificate)
    assert not same_certificate(bare, request.status.certificate + b"\n")
    assert not same_certificate(bare, None)


@pytest.mark.parametrize("key", KEYS)
async def test_what_is_withheld_is_still_so_after_packing(scene: Scene, key: PrivateKeySpec) -> None:
    await scene.issue(private_key=key)
    secret, (request,) = await stored(scene), await scene.requests()
    pack, requests = layouts.secrets(lambda _: True), layouts.requests(lambda _: True)
    decoded, asked = pack.decode(pack.encode(secret)), requests.decode(requests.encode(request))
    kept = decoded.data[names.TLS_PRIVATE_KEY_KEY]
    assert isinstance(kept, WithheldKey)
    assert kept.chain_pem == secret.data[names.TLS_CERT_KEY]
    assert decoded.data[names.TLS_CERT_KEY] == secret.data[names.TLS_CERT_KEY]
    assert list(decoded.data) == list(secret.data)
    assert isinstance(asked.status.certificate, WithheldCertificate)
    assert isinstance(asked.spec.request, UnsignedRequest)
    assert is_for_key(asked.spec.request, read_csr(request.spec.request).public_key_der)
    assert asked == without_answer(request)
    assert pack.decode(pack.encode(decoded)) == decoded
    assert requests.decode(requests.encode(asked)) == asked


@pytest.mark.parametrize("type_", [WithheldKey, WithheldCertificate, UnsignedRequest])
def test_what_stands_for_something_cannot_be_written(type_: type[bytes]) -> None:
    with pytest.raises(TypeError):
        msgspec.json.encode({"data": type_(b"x")})


async def test_only_what_has_lost_its_key_is_a_sample_for_the_dictionary(scene: Scene) -> None:
    await scene.issue()
    secret = await stored(scene)
    more = msgspec.structs.replace(secret, data={**secret.data, "keystore.p12": b"x"})
    assert [layouts.secrets(lambda _: True).is_sample(obj) for obj in (secret, more)] == [True, False]
    assert not layouts.secrets().is_sample(secret)


async def test_a_pair_that_does_not_fit_stays_whole(scene: Scene) -> None:
    await scene.issue()
    await scene.issue("other")
    secret, other = await stored(scene), await stored(scene, "other")
    key = other.data[names.TLS_PRIVATE_KEY_KEY]
    mixed = msgspec.structs.replace(secret, data={**secret.data, names.TLS_PRIVATE_KEY_KEY: key})
    assert without_key(mixed) is mixed
    more = msgspec.structs.replace(secret, data={**secret.data, "keystore.p12": b"x"})
    assert without_key(more) is more


@pytest.mark.parametrize("key", KEYS)
async def test_a_chain_that_does_not_begin_with_a_certificate_leaves_its_key_whole(
    scene: Scene, key: PrivateKeySpec
) -> None:
    await scene.issue(private_key=key)
    (request,), secret = await scene.requests(), await stored(scene)
    chain = secret.data[names.TLS_CERT_KEY]
    ((label, der), *_) = pem.blocks(chain)
    for wrong in (
        b"subject=web\n" + chain,
        request.spec.request + chain,
        pem.join([(b"X509 CRL", der)]),
        pem.join([(label, der + b"\x00")]),
        pem.join([(label, der[:-1])]),
        pem.join([(label, b"")]),
        pem.join([(label, read_csr(request.spec.request).der)]),
    ):
        odd = msgspec.structs.replace(secret, data={**secret.data, names.TLS_CERT_KEY: wrong})
        assert without_key(odd) is odd


async def test_a_key_whose_chain_cannot_be_read_to_its_end_is_asked_for(scene: Scene) -> None:
    await scene.issue()
    secret = await stored(scene)
    chain = secret.data[names.TLS_CERT_KEY] + pem.join([(b"CERTIFICATE", b"none")])
    bare = without_key(msgspec.structs.replace(secret, data={**secret.data, names.TLS_CERT_KEY: chain}))
    assert not is_complete(bare)
    with pytest.raises(NeedsFullSecret):
        Facts().key(bare.data[names.TLS_PRIVATE_KEY_KEY])


async def test_what_is_no_request_stays_as_it_is(scene: Scene) -> None:
    await scene.issue()
    (request,) = await scene.requests()
    ((label, der),) = pem.blocks(request.spec.request)
    for wrong in (
        b"",
        request.status.certificate,
        b"odd\n" + request.spec.request,
        pem.join([(label, der[:-1])]),
        pem.join([(label, der + b"\x00")]),
    ):
        odd = msgspec.structs.replace(request, spec=msgspec.structs.replace(request.spec, request=wrong))
        assert without_answer(odd) is odd


async def test_a_request_that_has_no_answer_stays_whole(scene: Scene) -> None:
    await scene.issue(issuer="nobody")
    (request,) = await scene.requests()
    assert without_answer(request) is request


async def test_the_key_of_a_certificate_at_rest_is_not_held_and_the_api_server_has_it(scene: Scene) -> None:
    await scene.issue()
    assert not is_complete(await cached_secret(scene))
    assert is_complete(await stored(scene))


async def test_who_needs_the_key_asks_once(scene: Scene) -> None:
    await scene.issue()
    asked = LiveReads(scene.world)
    secrets = scene.world.manager.wiring.caches.secrets
    copies = [await secrets.get(ObjectKey("default", "web")) for _ in range(3)]
    assert copies == [await stored(scene)] * 3
    assert len(asked.paths) == 1


async def test_nothing_is_asked_for_at_a_renewal_nor_after_it(scene: Scene) -> None:
    before = await scene.issue()
    asked = LiveReads(scene.world)
    await scene.world.advance(A_WHILE)
    after = await scene.world.certificate("web")
    assert after.status.revision == (before.status.revision or 0) + 1
    assert asked.paths == []
    assert not is_complete(await cached_secret(scene))


async def test_a_key_that_is_to_be_kept_is_asked_for(scene: Scene) -> None:
    key = PrivateKeySpec(algorithm="ECDSA", rotation_policy="Never")
    await scene.issue(private_key=key)
    before = await stored(scene)
    asked = LiveReads(scene.world)
    await scene.world.advance(A_WHILE)
    after = await stored(scene)
    assert after.data[names.TLS_PRIVATE_KEY_KEY] == before.data[names.TLS_PRIVATE_KEY_KEY]
    assert after.data[names.TLS_CERT_KEY] != before.data[names.TLS_CERT_KEY]
    assert sum("/secrets/" in path for path in asked.paths) == 1


async def test_a_label_is_added_to_a_secret_whose_key_is_not_held(scene: Scene) -> None:
    await scene.issue()
    before = await stored(scene)
    await scene.change_spec("web", secretTemplate={"labels": {"app": "web"}})
    after = await stored(scene)
    assert after.metadata.labels["app"] == "web"
    assert after.data == before.data
    assert not is_complete(await cached_secret(scene))


async def test_a_form_that_was_wanted_from_the_beginning_costs_no_question(scene: Scene) -> None:
    asked = LiveReads(scene.world)
    await scene.issue(additional_output_formats=(AdditionalOutputFormat(type="DER"),))
    await scene.world.advance(A_WHILE)
    assert asked.paths == []


async def test_the_pair_of_a_ca_issuer_is_held_whole(scene: Scene) -> None:
    await scene.issue()
    assert is_complete(await cached_secret(scene, "ca"))
    asked = LiveReads(scene.world)
    await scene.issue("other")
    assert asked.paths == []


async def test_a_secret_that_was_deleted_unseen_is_made_again(scene: Scene) -> None:
    await scene.issue()
    await scene.world.delete(SECRETS, "web")
    assert is_complete(await stored(scene))
    assert not is_complete(await cached_secret(scene))


async def test_the_request_of_a_revision_that_is_issued_again_is_asked_for(scene: Scene) -> None:
    """Somebody has put back the status: the request that was answered is that of the next revision again."""
    await scene.issue()
    (request,) = await scene.requests()
    caches = scene.world.manager.wiring.caches
    asked = LiveReads(scene.world)
    certificate = await scene.world.certificate("web")
    status = msgspec.structs.replace(certificate.status, revision=0)
    await caches.complete_requests(msgspec.structs.replace(certificate, status=status))
    assert caches.requests.cache.get(request.metadata.key) == request
    assert len(asked.paths) == 1
    await scene.world.client.delete(CERTIFICATE_REQUESTS, request.metadata.name, "default")

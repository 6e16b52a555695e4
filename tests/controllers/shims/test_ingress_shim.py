"""Certificates of annotated Ingresses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from certwright.controllers.shims.annotations import ShimOptions
from certwright.controllers.shims.desired import size_of
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client.filtered_informer import PartialInformer
from certwright.resources.ingress import INGRESSES, Ingress
from certwright.resources.table import CERTIFICATES
from controllers.scene import make_certificate
from controllers.shims.shim_scene import ShimScene, shim_scene, untyped

TLS = {"hosts": ["web.example.com", "www.example.com"], "secretName": "web-tls"}


@pytest.fixture
async def scene() -> AsyncIterator[ShimScene]:
    """A world with the CA issuer `ca`."""
    async with shim_scene() as made:
        yield made


async def test_an_annotated_ingress_gets_its_certificate(scene: ShimScene) -> None:
    ingress = await scene.ingress(
        TLS, issuer="ca", labels={"app": "web", "applyset.kubernetes.io/part-of": "x"}
    )
    certificate = (await scene.certificates())["web-tls"]
    assert certificate["spec"] == {
        "dnsNames": ["web.example.com", "www.example.com"],
        "secretName": "web-tls",
        "issuerRef": {"name": "ca", "kind": "Issuer", "group": "cert-manager.io"},
        "usages": ["digital signature", "key encipherment"],
    }
    assert certificate["metadata"]["labels"] == {"app": "web"}
    assert certificate["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "name": "web",
            "uid": ingress["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert await scene.world.is_ready("web-tls")
    assert await scene.events_of("Ingress") == [
        ("CreateCertificate", 'Successfully created Certificate "web-tls"')
    ]


async def test_it_takes_one_write_and_one_event_more_than_the_certificate_alone(scene: ShimScene) -> None:
    await scene.issue("alone")
    alone = len(scene.world.recording.object_writes()), len(scene.world.recording.event_writes())
    scene.world.recording.writes.clear()
    await scene.ingress(TLS, issuer="ca")
    await scene.events_of("Ingress")
    recording = scene.world.recording
    assert len(recording.object_writes()) == alone[0] + 1
    assert len(recording.event_writes()) <= alone[1] + 1


async def test_an_ingress_without_annotations_is_not_even_cached(scene: ShimScene) -> None:
    await scene.ingress(TLS, **{"nginx.ingress.kubernetes.io/rewrite-target": "/"})
    informer = scene.world.manager.wiring.sources.ingresses
    assert isinstance(informer, PartialInformer)
    assert informer.synced.is_set()
    assert len(informer.cache) == 0
    assert await scene.certificates() == {}


async def test_each_tls_entry_has_a_certificate_and_addresses_are_told_apart(scene: ShimScene) -> None:
    await scene.ingress(
        TLS,
        {"hosts": ["10.0.0.1", "a.example"], "secretName": "b"},
        issuer="ca",
        ip_sans="2001:db8::1,2001:0db8::1",
    )
    certificates = await scene.certificates()
    assert set(certificates) == {"web-tls", "b"}
    assert certificates["b"]["spec"]["dnsNames"] == ["a.example"]
    assert certificates["b"]["spec"]["ipAddresses"] == ["10.0.0.1", "2001:db8::1"]


async def test_annotations_set_the_fields_of_the_certificate(scene: ShimScene) -> None:
    await scene.ingress(
        TLS,
        issuer="ca",
        common_name="web.example.com",
        duration="48h",
        renew_before="12h",
        usages="digital signature, server auth",
        revision_history_limit="3",
        private_key_algorithm="ECDSA",
        private_key_size="384",
        private_key_encoding="PKCS8",
        private_key_rotation_policy="Never",
        secret_template='{"labels": {"team": "a"}, "annotations": {"note": "b"}}',
        subject_organizations='"Example, Inc.",Other',
        subject_serialnumber="7",
        alt_names="alt.example.com, web.example.com",
        ip_sans="10.0.0.2",
        uri_sans="spiffe://a/b",
        email_sans="a@example.com",
    )
    assert (await scene.certificates())["web-tls"]["spec"] == {
        "commonName": "web.example.com",
        "dnsNames": ["web.example.com", "www.example.com", "alt.example.com"],
        "ipAddresses": ["10.0.0.2"],
        "uris": ["spiffe://a/b"],
        "emailAddresses": ["a@example.com"],
        "duration": "48h",
        "renewBefore": "12h",
        "usages": ["digital signature", "server auth"],
        "revisionHistoryLimit": 3,
        "privateKey": {"algorithm": "ECDSA", "size": 384, "encoding": "PKCS8", "rotationPolicy": "Never"},
        "secretTemplate": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        "subject": {"organizations": ["Example, Inc.", "Other"], "serialNumber": "7"},
        "secretName": "web-tls",
        "issuerRef": {"name": "ca", "kind": "Issuer", "group": "cert-manager.io"},
    }


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({"duration": "1 week"}, "annotation cert-manager.io/duration"),
        ({"usages": "server"}, "annotation cert-manager.io/usages"),
        ({"private_key_algorithm": "DSA"}, "annotation cert-manager.io/private-key-algorithm"),
        ({"private_key_size": "big"}, "cert-manager.io/private-key-size: 'big' is not a whole number"),
        ({"revision_history_limit": "0"}, "annotation cert-manager.io/revision-history-limit"),
        ({"secret_template": "{"}, "cert-manager.io/secret-template cannot be read"),
        ({"secret_template": '{"label": {"app": "web"}}'}, "unknown field `label`"),
        (
            {"secret_template": '{"annotations": {"cert-manager.io/x": "y"}}'},
            "annotation cert-manager.io/secret-template",
        ),
        ({"cluster_issuer": "x"}, "both cert-manager.io/issuer and cert-manager.io/cluster-issuer are given"),
        ({"isuer_kind": "X"}, "cert-manager.io/isuer-kind is not an annotation"),
        ({"isuer_kind": "X"}, "did you mean cert-manager.io/issuer-kind?"),
        ({"usages": " ,"}, "cert-manager.io/usages is empty"),
        ({"acme.cert-manager.io/http01-edit-in-place": "yes"}, "http01-edit-in-place: 'yes' has no effect"),
        ({"kubernetes.io/tls-acme": "on"}, "kubernetes.io/tls-acme: 'on' has no effect"),
    ],
)
async def test_what_is_wrong_with_an_annotation_is_an_event_that_names_it(
    scene: ShimScene, annotations: dict[str, str], sentence: str
) -> None:
    await scene.ingress(TLS, **{"issuer": "ca", **annotations})
    events = await scene.events_of("Ingress")
    assert [message for reason, message in events if reason == "BadConfig" and sentence in message], events


@pytest.mark.parametrize(
    ("tls", "sentence"),
    [
        ([], "spec.tls: Required value: list hosts and the Secret"),
        ([{"secretName": "web-tls"}], "spec.tls[0].hosts: Required value: list the names"),
        ([{"hosts": ["a.example"]}], "spec.tls[0].secretName: Required value: name the Secret"),
        ([TLS, TLS], 'spec.tls[1].secretName: Invalid value: "web-tls": several entries'),
    ],
)
async def test_an_incomplete_tls_entry_is_an_event(
    scene: ShimScene, tls: list[dict[str, Any]], sentence: str
) -> None:
    await scene.ingress(*tls, issuer="ca")
    assert await scene.certificates() == {}
    assert sentence in await scene.messages()


async def test_the_first_of_many_misspelt_annotations_are_events(scene: ShimScene) -> None:
    """Each search for a similar name takes milliseconds, and an object has room for thousands."""
    await scene.ingress(TLS, **{f"cluster-isuer{number:03}": "ca" for number in range(300)})
    messages = (await scene.messages()).splitlines()
    assert len(messages) == 11
    assert messages[0].endswith("did you mean cert-manager.io/cluster-issuer?")
    assert messages[-1] == ("metadata.annotations: 290 more are not annotations of cert-manager; remove them")


async def test_the_first_of_many_problems_are_events(scene: ShimScene) -> None:
    await scene.ingress(*({"hosts": ["web.example.com"]} for _ in range(100)), issuer="ca")
    messages = (await scene.messages()).splitlines()
    assert len(messages) == 21
    assert messages[-1] == "80 more problems; correct the reported ones first"


async def test_an_ingress_with_hundreds_of_hosts_gets_all_certificates(scene: ShimScene) -> None:
    """What such an object calls for is computed in an executor."""
    hosts = [f"h{number}.example.com" for number in range(250)]
    tls = [{"hosts": hosts, "secretName": "all"}]
    tls += [{"hosts": [host], "secretName": f"one-{place}"} for place, host in enumerate(hosts[:3])]
    await scene.ingress(*tls, issuer="none")
    certificates = await scene.certificates()
    assert len(certificates) == 4
    assert certificates["all"]["spec"]["dnsNames"] == hosts


def test_values_in_an_annotation_count_for_the_size_of_an_ingress() -> None:
    """A list of 80,000 values in one annotation took 0.8 s of the event loop."""
    annotations = {"cert-manager.io/subject-organizations": "a," * 1000}
    assert size_of(Ingress(metadata=ObjectMeta(name="web", annotations=annotations))) == 1000


@pytest.mark.parametrize(
    "key",
    ["cert-manger.io/issuer", "certmanager.io/issuer", "certmanager.k8s.io/issuer", "Cert-Manager.io/issuer"],
)
async def test_a_misspelt_prefix_is_an_event(scene: ShimScene, key: str) -> None:
    await scene.ingress(TLS, **{key: "ca"})
    ((reason, message),) = await scene.events_of("Ingress")
    assert reason == "BadConfig"
    assert f"{key} is not an annotation of cert-manager; did you mean cert-manager.io/issuer?" in message


async def test_annotations_of_neighbouring_programs_are_none_of_ours(scene: ShimScene) -> None:
    prefixes = ("policy.cert-manager.io", "trust.cert-manager.io", "venafi.cert-manager.io", "example.com")
    await scene.ingress(TLS, **{f"{prefix}/issuer": "ca" for prefix in prefixes})
    assert await scene.events_of("Ingress") == []


async def test_an_issuer_that_does_not_exist_is_an_event(scene: ShimScene) -> None:
    await scene.ingress(TLS, cluster_issuer="none")
    events = await scene.events_of("Ingress")
    assert (
        "IssuerNotFound",
        'there is no ClusterIssuer "none"; create it, or correct the annotation',
    ) in events
    assert set(await scene.certificates()) == {"web-tls"}


async def test_changes_of_the_ingress_are_followed(scene: ShimScene) -> None:
    await scene.ingress(TLS, issuer="ca", private_key_algorithm="ECDSA")
    await scene.change(
        INGRESSES,
        "web",
        {
            "metadata": {"annotations": {"cert-manager.io/private-key-algorithm": None}},
            "spec": {"tls": [{"hosts": ["new.example.com"], "secretName": "web-tls"}]},
        },
    )
    spec = (await scene.certificates())["web-tls"]["spec"]
    assert spec["dnsNames"] == ["new.example.com"]
    assert "privateKey" not in spec
    reasons = [reason for reason, _ in await scene.events_of("Ingress")]
    assert reasons == ["CreateCertificate", "UpdateCertificate"]


async def test_a_renamed_secret_replaces_the_certificate(scene: ShimScene) -> None:
    await scene.ingress(TLS, issuer="ca")
    await scene.change(INGRESSES, "web", {"spec": {"tls": [{**TLS, "secretName": "other"}]}})
    assert set(await scene.certificates()) == {"other"}
    assert ("DeleteCertificate", 'Successfully deleted unrequired Certificate "web-tls"') in (
        await scene.events_of("Ingress")
    )


async def test_without_the_annotation_the_certificate_stays(scene: ShimScene) -> None:
    await scene.ingress(TLS, issuer="ca")
    await scene.change(INGRESSES, "web", {"metadata": {"annotations": {"cert-manager.io/issuer": None}}})
    await scene.change(INGRESSES, "web", {"spec": {"tls": []}})
    assert set(await scene.certificates()) == {"web-tls"}


async def test_a_deleted_certificate_is_created_again_and_a_changed_one_restored(scene: ShimScene) -> None:
    await scene.ingress(TLS, issuer="ca")
    await scene.world.delete(CERTIFICATES, "web-tls")
    assert set(await scene.certificates()) == {"web-tls"}
    await scene.change_spec("web-tls", dnsNames=["evil.example.com"])
    assert (await scene.certificates())["web-tls"]["spec"]["dnsNames"] == TLS["hosts"]


async def test_the_certificate_of_another_owner_is_left_alone_until_it_is_gone(scene: ShimScene) -> None:
    await scene.world.create(CERTIFICATES, make_certificate("web-tls", "ca"))
    await scene.ingress(TLS, issuer="ca")
    await scene.ingress({"hosts": ["b.example"], "secretName": "web-tls"}, name="second", issuer="ca")
    assert (await scene.certificates())["web-tls"]["spec"]["dnsNames"] == ["web-tls.example.com"]
    left = 'Certificate "web-tls" was not made for an Ingress and is left as it is'
    assert left in await scene.messages()
    await scene.world.delete(CERTIFICATES, "web-tls")
    assert (await scene.certificates())["web-tls"]["metadata"]["ownerReferences"][0]["kind"] == "Ingress"


async def test_the_second_of_two_ingresses_with_one_secret_has_an_event(scene: ShimScene) -> None:
    await scene.ingress(TLS, issuer="ca")
    await scene.ingress({"hosts": ["b.example"], "secretName": "web-tls"}, name="second", issuer="ca")
    assert (await scene.certificates())["web-tls"]["spec"]["dnsNames"] == TLS["hosts"]
    assert 'Certificate "web-tls" belongs to Ingress web' in await scene.messages()


async def test_an_ingress_that_is_created_again_waits_for_the_end_of_its_former_certificate(
    scene: ShimScene,
) -> None:
    former = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "web", "uid": "former"}
    meta = {"name": "web-tls", "namespace": "default", "ownerReferences": [{**former, "controller": True}]}
    meta["finalizers"] = ["example.org/slow"]
    spec = {"secretName": "web-tls", "dnsNames": ["a.example"], "issuerRef": {"name": "ca"}}
    await scene.world.client.create(untyped(CERTIFICATES), {"metadata": meta, "spec": spec})
    await scene.ingress(TLS, issuer="ca")
    assert await scene.events_of("Ingress") == []
    await scene.change(CERTIFICATES, "web-tls", {"metadata": {"finalizers": None}})
    assert (await scene.certificates())["web-tls"]["spec"]["dnsNames"] == TLS["hosts"]


async def test_with_the_ingress_its_certificate_goes(scene: ShimScene) -> None:
    await scene.ingress(TLS, issuer="ca")
    await scene.world.delete(INGRESSES, "web")
    with pytest.raises(NotFound):
        await scene.world.certificate("web-tls")


async def test_annotations_for_the_solver_are_handed_on_and_taken_back(scene: ShimScene) -> None:
    solver = "acme.cert-manager.io/http01"
    await scene.ingress(
        TLS,
        issuer="ca",
        **{f"{solver}-edit-in-place": "true", f"{solver}-ingress-ingressclassname": "traefik"},
    )
    annotations = (await scene.certificates())["web-tls"]["metadata"]["annotations"]
    assert annotations[f"{solver}-override-ingress-name"] == "web"
    assert annotations[f"{solver}-override-ingress-ingressclassname"] == "traefik"
    assert annotations["cert-manager.io/issue-temporary-certificate"] == "true"
    removed = {f"{solver}-edit-in-place": None}
    await scene.change(INGRESSES, "web", {"metadata": {"annotations": removed}})
    annotations = (await scene.certificates())["web-tls"]["metadata"]["annotations"]
    assert f"{solver}-override-ingress-name" not in annotations


async def test_annotations_that_the_operator_names_are_copied_and_taken_back() -> None:
    async with shim_scene(shims=ShimOptions(extra_annotations=("example.com/team",))) as scene:
        await scene.ingress(TLS, issuer="ca", **{"example.com/team": "web", "example.com/other": "x"})
        annotations = (await scene.certificates())["web-tls"]["metadata"]["annotations"]
        assert annotations["example.com/team"] == "web"
        assert "example.com/other" not in annotations
        removed = {"example.com/team": None}
        await scene.change(INGRESSES, "web", {"metadata": {"annotations": removed}})
        metadata = (await scene.certificates())["web-tls"]["metadata"]
        assert "example.com/team" not in metadata.get("annotations", {})


async def test_the_default_issuer_is_for_ingresses_with_tls_acme() -> None:
    options = ShimOptions(issuer_name="ca")
    async with shim_scene(shims=options) as scene:
        await scene.ingress(TLS, **{"kubernetes.io/tls-acme": "true"})
        await scene.ingress({**TLS, "secretName": "no"}, name="no", **{"kubernetes.io/tls-acme": "false"})
        certificates = await scene.certificates()
    assert set(certificates) == {"web-tls"}
    assert certificates["web-tls"]["spec"]["issuerRef"]["name"] == "ca"


@pytest.mark.parametrize("key", ["issuer", "cluster_issuer"])
async def test_the_default_group_is_that_of_named_issuers_too(key: str) -> None:
    """As with cert-manager, whose Certificates would otherwise change their issuer in a switch."""
    async with shim_scene(shims=ShimOptions(issuer_group="example.com")) as scene:
        await scene.ingress(TLS, **{key: "other"})
        kind = "Issuer" if key == "issuer" else "ClusterIssuer"
        reference = (await scene.certificates())["web-tls"]["spec"]["issuerRef"]
        assert reference == {"name": "other", "kind": kind, "group": "example.com"}


async def test_without_a_default_issuer_tls_acme_is_an_event(scene: ShimScene) -> None:
    await scene.ingress(TLS, **{"kubernetes.io/tls-acme": "true"})
    ((reason, message),) = await scene.events_of("Ingress")
    assert reason == "BadConfig"
    assert "--default-issuer-name" in message


async def test_after_a_restart_nothing_is_written_again(scene: ShimScene) -> None:
    await scene.ingress(TLS, issuer="ca", private_key_algorithm="ECDSA")
    await scene.events_of("Ingress")
    scene.world.recording.writes.clear()
    await scene.world.start_controllers()
    assert scene.world.recording.writes == []


async def test_what_cert_manager_has_made_is_left_as_it_is(scene: ShimScene) -> None:
    """It writes durations in its own spelling, and no empty template."""
    expected = {"duration": "2160h", "renew_before": "1h30m", "secret_template": "{}"}
    await scene.ingress(TLS, issuer="ca", **expected)
    assert "secretTemplate" not in (await scene.certificates())["web-tls"]["spec"]
    await scene.change_spec("web-tls", duration="2160h0m0s", renewBefore="1h30m0s")
    spec = (await scene.certificates())["web-tls"]["spec"]
    assert (spec["duration"], spec["renewBefore"]) == ("2160h0m0s", "1h30m0s")
    assert [reason for reason, _ in await scene.events_of("Ingress")] == ["CreateCertificate"]


async def test_the_shim_can_be_left_out() -> None:
    async with shim_scene(enabled="*,-ingress-shim") as scene:
        await scene.ingress(TLS, issuer="ca")
        assert await scene.certificates() == {}

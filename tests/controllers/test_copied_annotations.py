"""Which annotations of a Certificate its requests, and so its Orders, get."""

from __future__ import annotations

import msgspec
import pytest

from certwright.controllers.certificates.requests import copied_annotations
from certwright.kube.api.meta import ObjectMeta
from certwright.resources.names import COPIED_ANNOTATION_PREFIXES
from certwright.resources.table import CERTIFICATES
from controllers.scene import Scene, make_certificate
from support.world import make_world

NOTES = {
    "acme.cert-manager.io/http01-override-ingress-name": "web",
    "example.com/team": "web",
    "example.com/owner": "me",
    "fluxcd.io/sync": "1",
    "kubectl.kubernetes.io/last-applied-configuration": "{}",
}
ACME, TEAM, OWNER, FLUX, KUBECTL = NOTES


@pytest.mark.parametrize(
    ("prefixes", "copied"),
    [
        (COPIED_ANNOTATION_PREFIXES, {ACME, TEAM, OWNER}),
        (("*",), set(NOTES)),
        ((), set()),
        (("example.com/",), {TEAM, OWNER}),
        (("*", "-example.com/owner", "-acme."), {TEAM, FLUX, KUBECTL}),
        (("-example.com/owner",), set()),
    ],
)
def test_prefixes_say_what_is_copied(prefixes: tuple[str, ...], copied: set[str]) -> None:
    assert set(copied_annotations(ObjectMeta(annotations=NOTES), prefixes)) == copied


async def test_the_flag_reaches_the_requests() -> None:
    async with make_world(copied_annotation_prefixes=("example.com/team",)) as world:
        scene = Scene(world)
        await scene.add_ca()
        made = make_certificate("web", "ca")
        meta = msgspec.structs.replace(made.metadata, annotations=NOTES)
        await world.create(CERTIFICATES, msgspec.structs.replace(made, metadata=meta))
        await world.settle()
        (request,) = await scene.requests()
        assert set(NOTES) & set(request.metadata.annotations) == {TEAM}

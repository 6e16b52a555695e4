"""Discovery, in both forms."""

from __future__ import annotations

import msgspec
import pytest

from certwright.kube.api.errors import MethodNotAllowed, NotAcceptable
from certwright.kube.apiserver.model.registry import Registry, version_rank
from certwright.kube.apiserver.representations import discovery
from certwright.kube.util.http_messages import Response
from kube.apiserver.callers import Json

AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


def respond(registry: Registry, path: str, accept: str, known: str = "", **options: str) -> Response:
    response = discovery.respond(registry, path, accept, known, **options)
    assert response is not None
    return response


def ask(registry: Registry, path: str, accept: str = "application/json, */*") -> Json:
    response = respond(registry, path, accept)
    assert response.status == 200
    decoded: Json = msgspec.json.decode(response.body)
    return decoded


def test_the_groups_are_listed_one_by_one(registry: Registry) -> None:
    assert ask(registry, "/api")["versions"] == ["v1"]
    groups = ask(registry, "/apis")["groups"]
    names = (
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "apps",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "networking.k8s.io",
        "rbac.authorization.k8s.io",
        "cert-manager.io",
        "acme.cert-manager.io",
    )
    assert {group["name"]: group["preferredVersion"]["groupVersion"] for group in groups} == {
        **{name: f"{name}/v1" for name in names},
        "certwright.io": "certwright.io/v1alpha1",
    }
    assert ask(registry, "/apis/cert-manager.io")["kind"] == "APIGroup"


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        (AGGREGATED, "v2"),
        ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", "v2beta1"),
        ("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io,application/json", "v2"),
    ],
)
def test_everything_is_told_at_once_to_those_who_ask_for_it(
    registry: Registry, accept: str, version: str
) -> None:
    response = respond(registry, "/apis", accept)
    media_type = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    assert response.headers["content-type"] == media_type
    assert response.headers["vary"] == "Accept"
    content = msgspec.json.decode(response.body)
    assert content["apiVersion"] == f"apidiscovery.k8s.io/{version}"
    groups = {group["metadata"]["name"]: group["versions"] for group in content["items"]}
    [resource] = [r for r in groups["cert-manager.io"][0]["resources"] if r["resource"] == "issuers"]
    kind = {"group": "cert-manager.io", "version": "v1", "kind": "Issuer"}
    assert resource == {
        "resource": "issuers",
        "responseKind": kind,
        "scope": "Namespaced",
        "singularResource": "issuer",
        "verbs": ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
        "shortNames": ["iss"],
        "categories": ["cert-manager"],
        "subresources": [
            {"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]}
        ],
    }
    assert groups["cert-manager.io"][0]["freshness"] == "Current"


def test_the_core_group_has_no_name_in_the_aggregated_form(registry: Registry) -> None:
    [group] = ask(registry, "/api", AGGREGATED)["items"]
    assert group["metadata"] == {}


@pytest.mark.parametrize(
    "path", ["/", "/apix", "/api/v2", "/apis/none", "/apis/cert-manager.io/v2", "/apis/a/b/c", "/openapi/v3"]
)
def test_other_paths_are_not_answered(registry: Registry, path: str) -> None:
    assert discovery.respond(registry, path, "application/json") is None


def test_the_version_looks_like_one_of_kubernetes(registry: Registry) -> None:
    version = ask(registry, "/version")
    assert version["major"] == "1"
    assert version["gitVersion"].startswith(f"v1.{version['minor']}.0+certwright-")


def test_versions_are_ordered_by_maturity() -> None:
    versions = ["foo10", "v1alpha1", "v1beta2", "v10", "v2", "v1beta10", "foo1", "v11alpha2"]
    assert sorted(versions, key=version_rank) == [
        "v10",
        "v2",
        "v1beta10",
        "v1beta2",
        "v11alpha2",
        "v1alpha1",
        "foo1",
        "foo10",
    ]


def test_the_aggregated_form_may_be_kept_and_asked_for_again(registry: Registry) -> None:
    for version in ("v2", "v2beta1"):
        media_type = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
        first = discovery.respond(registry, "/apis", media_type)
        assert first is not None
        assert (first.headers["cache-control"], first.headers["vary"]) == ("public", "Accept")
        assert first.headers["content-type"] == media_type
        assert len(first.headers["etag"]) == 130
        another = discovery.respond(registry, "/apis", media_type, f"W/{first.headers['etag']}")
        assert another is not None
        assert another.status == 200


def test_a_form_that_there_is_not_is_refused(registry: Registry) -> None:
    with pytest.raises(NotAcceptable):
        discovery.respond(registry, "/apis", AGGREGATED.partition(",")[0].replace("v=v2", "v=v3"))


def test_only_groups_of_custom_resources_take_any_method(registry: Registry) -> None:
    for path in ("/api", "/apis", "/api/v1", "/apis/coordination.k8s.io/v1", "/version"):
        with pytest.raises(MethodNotAllowed):
            discovery.respond(registry, path, "", method="POST")
    assert respond(registry, "/apis/cert-manager.io", "", method="POST").status == 200

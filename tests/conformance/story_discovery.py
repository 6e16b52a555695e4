"""Stories about what a client asks first: which groups, versions and resources there are."""

from __future__ import annotations

from conformance.compare import story
from conformance.peers import Caller

_PATHS = (
    "/apis/test.dev",
    "/apis/test.dev/",
    "/apis/test.dev/v1",
    "/apis/test.dev/v1/",
    "/apis/test.dev/v1beta1",
    "/apis/test.dev/v1alpha1",
    "/apis/test.dev/v9",
    "/apis/cel.test.dev/v1",
    "/apis/nobody.test.dev",
    "/apis/nobody.test.dev/v1",
    "/apis/apiextensions.k8s.io",
)
_FORMS = (
    "*/*",
    "application/*",
    "application/yaml",
    "text/html",
    "application/xml, application/json",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
    "application/json;as=Nothing;g=nobody;v=v1,application/yaml",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/json;q=0.1,application/yaml;q=0.9",
)


@story
async def what_is_there_can_be_discovered(c: Caller) -> None:
    for path in _PATHS:
        await c.get(path)
    await c.get("/version", quiet=True)


@story
async def discovery_takes_any_method_or_only_get(c: Caller) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"):
        for path in ("/apis/test.dev", "/apis/test.dev/v1", "/apis/nobody.test.dev/v1"):
            await c.call(method, path)
        for path in ("/apis/apiextensions.k8s.io", "/apis/apiextensions.k8s.io/v1", "/version"):
            await c.call(method, path)


@story
async def discovery_has_forms(c: Caller) -> None:
    for form in _FORMS:
        for path in ("/apis/test.dev", "/apis/cel.test.dev/v1", "/apis/apiextensions.k8s.io"):
            await c.get(path, accept=form)

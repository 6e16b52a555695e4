"""Stories about OpenAPI documents: how they are asked for. What they say of custom resources is compared in
`tests/kube/apiserver/test_openapi.py`: the reference, alone, has documents of its own kind only."""

from __future__ import annotations

from conformance.compare import story
from conformance.peers import Caller, Exchange

_INDEX = "/openapi/v3"
_NAME = "apis/apiextensions.k8s.io/v1"
_DOCUMENT = f"{_INDEX}/{_NAME}"
_COMPARED = ("cache-control", "content-type", "vary")


async def _ask(c: Caller, what: str, method: str, target: str, /, *, etag: str = "", **named: str) -> str:
    """Ask, and note all but the text of the document; the entity tag."""
    answer = await c.call(method, target, quiet=True, **named)
    headers = {name: answer.headers.get(name, "") for name in _COMPARED}
    tag, place = answer.headers.get("etag", ""), answer.headers.get("location", "")
    noted = {
        "status": answer.status,
        **headers,
        "empty": not answer.body,
        "tag": "as before" if etag and tag == etag else len(tag),
        "expires": "expires" in answer.headers,
        "location": place.partition("?hash=")[0],
        "leads to what the tag names": f'"{place.partition("?hash=")[2]}"' == tag,
    }
    c.transcript.append(Exchange(f"{method} {what}", noted))
    return tag


async def _address(c: Caller) -> str:
    """Where the index says that the document is."""
    index = (await c.call("GET", _INDEX, quiet=True)).json
    url: str = index["paths"][_NAME]["serverRelativeURL"]
    return url


@story
async def openapi_documents_are_kept_by_clients(c: Caller) -> None:
    address = await _address(c)
    for name, target in (("the index", _INDEX), ("a document", _DOCUMENT), ("what the index names", address)):
        etag = await _ask(c, name, "GET", target)
        for known in (etag, f"W/{etag}", f'"a", {etag}', "*", "x", '"x"'):
            shown = known.replace(etag, "TAG")
            await _ask(c, f"{name}, unless {shown}", "GET", target, etag=etag, if_none_match=known)
    hashed = address.partition("?hash=")[2]
    c.transcript.append(Exchange("the hash", {"length": len(hashed), "upper case": hashed == hashed.upper()}))


@story
async def openapi_documents_move(c: Caller) -> None:
    await _ask(c, "an old address", "GET", f"{_DOCUMENT}?hash=ABC")
    await _ask(c, "no hash", "GET", f"{_DOCUMENT}?hash=")
    await _ask(c, "another parameter", "GET", f"{_DOCUMENT}?x=ABC")
    await _ask(c, "an old address of the index", "GET", f"{_INDEX}?hash=ABC")
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        await _ask(c, "the index", method, _INDEX)
        await _ask(c, "a document", method, _DOCUMENT)


@story
async def openapi_documents_have_forms(c: Caller) -> None:
    for form in (
        "*/*",
        "application/*",
        "application/json;q=0.5",
        "application/json;as=Table",
        "application/yaml",
        "text/html",
        "text/html, application/json",
        "application/vnd.kubernetes.protobuf",
    ):
        await _ask(c, f"the index as {form}", "GET", _INDEX, accept=form)
        await _ask(c, f"a document as {form}", "GET", _DOCUMENT, accept=form)

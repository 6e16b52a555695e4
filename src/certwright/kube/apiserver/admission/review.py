"""AdmissionReview: the request to a webhook, and how its response is read.

Source: Kubernetes documentation, "Dynamic Admission Control", request and response; API reference,
AdmissionReview v1 admission.k8s.io.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from certwright.kube.api.errors import ApiError, Cause, Details
from certwright.kube.apiserver.base.json_values import Json, decode_as_go
from certwright.kube.apiserver.model.backend import NAMESPACES, Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.verbs.access_reviews import user_info
from certwright.kube.apiserver.webhooks.config import Hook
from certwright.kube.util.decoders import json_decoder

_GROUP = "admission.k8s.io"
_KNOWN_VERSIONS = ("v1", "v1beta1")
_OPTION_KINDS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
_QUERY_OPTIONS = ("fieldManager", "fieldValidation")
_NO_BODY_OPTIONS = frozenset({"apiVersion", "kind"})


class BadReview(ValueError):
    """The review cannot be sent, or the response is not a review. The text goes into the error of the
    request."""


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None


class _Response(msgspec.Struct, rename="camel"):
    uid: str = ""
    allowed: bool = False
    status: _Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: list[str] | None = None


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: _Response | None = None


_decode = json_decoder(_Review).decode


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook's response. `patch`: the operations of a JSON patch, empty for none. `refusal` None:
    allowed."""

    warnings: tuple[str, ...]
    refusal: ApiError | None
    patch: list[Any]


def review_version(hook: Hook) -> str:
    """The first version of AdmissionReview that the webhook accepts and this server knows. Raises
    `BadReview`."""
    for version in hook.review_versions or ("v1",):
        if version in _KNOWN_VERSIONS:
            return version
    raise BadReview(
        "could not create admission objects: webhook does not accept known AdmissionReview versions "
        "(v1, v1beta1)"
    )


def attributes(
    call: Call, definition: ResourceDefinition, new: Json | None, old: Json | None, operation: str
) -> Json:
    """The AdmissionRequest, less its uid. `definition`: the version of the resource that the webhook
    expects."""
    resource, sub = _resource(definition), call.route.subresource
    part = part_kind(call, new)
    kind, sent_kind = part or _kind(definition), part or _kind(call.definition)
    name = call.route.name or ((new or {}).get("metadata") or {}).get("name", "")
    namespace = name if call.definition.bucket == NAMESPACES else call.route.namespace
    request: Json = {"kind": kind, "resource": resource}
    request |= {"subResource": sub} if sub else {}
    request |= {"requestKind": sent_kind, "requestResource": _resource(call.definition)}
    request |= {"requestSubResource": sub} if sub else {}
    request |= {"name": name} if name else {}
    request |= {"namespace": namespace} if namespace else {}
    request |= {
        "operation": operation,
        "userInfo": user_info(call.user),
        "object": new if part else _in_version(new, definition),
        "oldObject": old if part else _in_version(old, definition),
        "dryRun": call.dry_run,
        "options": _options(call, operation),
    }
    return request


def part_kind(call: Call, obj: Json | None) -> Json | None:
    """The kind of the object of a subresource, if it has a kind of its own; None: the resource's kind."""
    part = call.definition.subresource(call.route.subresource)
    if part is None or part.kind is None or obj is None or obj.get("kind") != part.kind[2]:
        return None
    return dict(zip(("group", "version", "kind"), part.kind, strict=True))


def _kind(definition: ResourceDefinition) -> Json:
    return {"group": definition.group, "version": definition.version, "kind": definition.kind}


def _resource(definition: ResourceDefinition) -> Json:
    return {"group": definition.group, "version": definition.version, "resource": definition.plural}


def _in_version(obj: Json | None, definition: ResourceDefinition) -> Json | None:
    if obj is None or obj.get("apiVersion") == definition.api_version:
        return obj
    return {**obj, "apiVersion": definition.api_version, "kind": definition.kind}


def _options(call: Call, operation: str) -> Json:
    """The options that the request carried, as the kind that the operation has."""
    options: Json = {"kind": _OPTION_KINDS[operation], "apiVersion": "meta.k8s.io/v1"}
    if call.query.get("dryRun"):
        options["dryRun"] = [call.query["dryRun"]]
    if operation == "DELETE":
        if call.query.get("propagationPolicy"):
            options["propagationPolicy"] = call.query["propagationPolicy"]
        if call.request.body[:1] == b"{":
            # The verb itself has read the body in another form.
            sent: Json = decode_json(call.request.body)
            options |= {name: value for name, value in sent.items() if name not in _NO_BODY_OPTIONS}
        return options
    for name in _QUERY_OPTIONS:
        if call.query.get(name):
            options[name] = call.query[name]
    return options


def question(version: str, uid: str, request: Json) -> bytes:
    """The AdmissionReview to send."""
    review = {
        "kind": "AdmissionReview",
        "apiVersion": f"{_GROUP}/{version}",
        "request": {"uid": uid, **request},
    }
    return encode_json(review)


def read_answer(hook: Hook, version: str, uid: str, body: bytes, *, mutating: bool) -> Verdict:
    """The result of the review. Raises `BadReview` for a response that does not match the request."""
    try:
        review = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadReview(
            f"failed to call webhook: couldn't get version/kind; json parse error: {error}"
        ) from None
    response = review.response
    if response is None:
        raise _invalid("webhook response was absent")
    if version == "v1":
        _verify(review, response, uid, mutating=mutating)
    refusal = None if response.allowed else denied(hook.name, response.status)
    patch = _patch(response) if mutating and refusal is None else []
    return Verdict(warnings=tuple(response.warnings or ()), refusal=refusal, patch=patch)


def _invalid(detail: str) -> BadReview:
    return BadReview(f"received invalid webhook response: {detail}")


def _verify(review: _Review, response: _Response, uid: str, *, mutating: bool) -> None:
    if response.uid != uid:
        raise _invalid(f'expected response.uid="{uid}", got "{response.uid}"')
    if (review.api_version, review.kind) != (f"{_GROUP}/v1", "AdmissionReview"):
        raise _invalid(
            f"expected webhook response of {_GROUP}/v1, Kind=AdmissionReview, "
            f"got {review.api_version}, Kind={review.kind}"
        )
    if not mutating:
        for name, value in (("patch", response.patch), ("patchType", response.patch_type)):
            if value:
                raise _invalid(f"validating webhook may not return response.{name}")
        return
    if response.patch and response.patch_type is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    if not response.patch and response.patch_type is not None:
        raise _invalid("webhook returned response.patchType but not response.patch")
    if response.patch_type == "":
        raise _invalid('webhook returned invalid response.patchType of ""')


def _patch(response: _Response) -> list[Any]:
    if not response.patch:
        return []
    if response.patch_type not in (None, "JSONPatch"):
        raise BadReview(f'unsupported patch type "{response.patch_type}"')
    try:
        operations = decode_as_go(base64.b64decode(response.patch, validate=True))
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadReview(f"received undecodable patch in webhook response: {error}") from None
    if type(operations) is not list:
        raise BadReview("received undecodable patch in webhook response: it is not a list")
    return operations


def denied(name: str, status: _Status | None) -> ApiError:
    """The error of a request that the webhook denied."""
    status = status or _Status()
    opening = f'admission webhook "{name}" denied the request'
    why = status.message or status.reason
    code = status.code if status.code >= 400 else 400
    return _Denied(
        f"{opening}: {why}" if why else f"{opening} without explanation",
        details=status.details,
        reason=status.reason,
        code=code,
    )


class _Denied(ApiError):
    """A refusal with the webhook's message, code and reason; the reason may be empty."""


def internal(message: str) -> ApiError:
    """An internal error in Kubernetes' words: neither the client nor the object caused it."""
    return ApiError(
        f"Internal error occurred: {message}",
        details=Details(causes=(Cause(message=message),)),
        reason="InternalError",
        code=500,
    )

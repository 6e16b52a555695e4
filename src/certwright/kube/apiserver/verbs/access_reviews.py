"""Access and token reviews: creates that answer a question about a user and store nothing.

Source: Kubernetes API reference, SubjectAccessReview, LocalSubjectAccessReview, SelfSubjectAccessReview,
SelfSubjectRulesReview v1 authorization.k8s.io; TokenReview, SelfSubjectReview v1 authentication.k8s.io.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from certwright.kube.api.errors import (
    BadRequest,
    FieldError,
    Unauthorized,
    forbidden,
    invalid,
    invalid_object,
    required,
)
from certwright.kube.api.naming import label_key_problems
from certwright.kube.apiserver.auth.authentication import Authenticator, ask
from certwright.kube.apiserver.auth.rbac import ALL, RbacAuthorizer, Rule
from certwright.kube.apiserver.auth.service_accounts import ServiceAccounts
from certwright.kube.apiserver.base import metadata
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.base.users import MASTERS
from certwright.kube.apiserver.model.backend import Backend, Call
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.apiserver.model.routes import Action
from certwright.kube.apiserver.representations import responses
from certwright.kube.apiserver.requests import bodies
from certwright.kube.apiserver.requests.selectors import values_errors
from certwright.kube.apiserver.verbs.shaping import check_type
from certwright.kube.util.decoders import convert
from certwright.kube.util.http_messages import Identity, Request, Response

T = TypeVar("T")
Answer = Callable[[Call, Json], Awaitable[Json]]
"""Makes the status of a review of its spec. Raises `ApiError`."""

_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"


class _Resource(msgspec.Struct):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""

    def action(self) -> Action:
        return Action(self.verb, self.group, self.resource, self.subresource, self.namespace, self.name)


class _Path(msgspec.Struct):
    path: str = ""
    verb: str = ""


class _AccessSpec(msgspec.Struct, rename="camel"):
    resource_attributes: _Resource | None = None
    non_resource_attributes: _Path | None = None
    user: str | None = None
    groups: tuple[str, ...] | None = None
    extra: Mapping[str, tuple[str, ...]] | None = None
    uid: str | None = None

    def action(self) -> Action:
        if self.resource_attributes is not None:
            return self.resource_attributes.action()
        path = self.non_resource_attributes or _Path()
        return Action(path.verb, path=path.path)

    def identity(self) -> Identity:
        return Identity(self.user or "", uid=self.uid or "", groups=self.groups or (), extra=self.extra or {})


class _TokenSpec(msgspec.Struct):
    token: str = ""
    audiences: tuple[str, ...] | None = None


class _RulesSpec(msgspec.Struct):
    namespace: str | None = None


def user_info(user: Identity) -> Json:
    """`UserInfo` v1 authentication.k8s.io."""
    info: Json = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = user.groups
    if user.extra:
        info["extra"] = user.extra
    return info


class AccessReviews:
    """Answers the reviews. `authenticator` knows all tokens but those of ServiceAccounts."""

    def __init__(
        self, authorizer: RbacAuthorizer, authenticator: Authenticator, accounts: ServiceAccounts
    ) -> None:
        self._authorizer = authorizer
        self._authenticator = authenticator
        self._accounts = accounts
        self._answers: dict[str, Answer] = {
            f"subjectaccessreviews.{_AUTHORIZATION}": self._subject_access,
            f"localsubjectaccessreviews.{_AUTHORIZATION}": self._local_access,
            f"selfsubjectaccessreviews.{_AUTHORIZATION}": self._own_access,
            f"selfsubjectrulesreviews.{_AUTHORIZATION}": self._own_rules,
            f"tokenreviews.{_AUTHENTICATION}": self._token,
            f"selfsubjectreviews.{_AUTHENTICATION}": self._myself,
        }

    @property
    def resources(self) -> tuple[str, ...]:
        """What can be asked, as `plural.group`."""
        return tuple(self._answers)

    async def create(self, _: Backend, call: Call) -> Response:
        """POST of a review: 201 with its status."""
        definition = call.definition
        bodies.check(call)
        obj, duplicates = bodies.read_object(call)
        check_type(call, obj)
        unknown = metadata.clean(definition, obj) + definition.schema.process(obj)
        if text := bodies.strict_errors(call, unknown, duplicates):
            raise bodies.unreadable(call, definition.kind, definition.version, text)
        if errors := definition.schema.validate(obj):
            raise invalid_object(definition.group, definition.kind, "", errors)
        obj["status"] = await self._answers[definition.resource](call, obj.get("spec") or {})
        return Response(201, responses.headers(call), encode_json(obj))

    async def _subject_access(self, call: Call, spec: Json) -> Json:
        access = _read_access(call, spec, needs_user=True)
        return self._access(access.identity(), access.action())

    async def _local_access(self, call: Call, spec: Json) -> Json:
        access, namespace = _read_access(call, spec, needs_user=True), call.route.namespace
        if access.non_resource_attributes is not None:
            wrong = forbidden("spec.nonResourceAttributes", "disallowed on this kind of request")
            raise invalid_object(_AUTHORIZATION, call.definition.kind, "", [wrong])
        if access.action().namespace != namespace:
            raise BadRequest(f"spec.resourceAttributes.namespace must match namespace: {namespace}")
        return self._access(access.identity(), access.action())

    async def _own_access(self, call: Call, spec: Json) -> Json:
        return self._access(call.user, _read_access(call, spec, needs_user=False).action())

    def _access(self, user: Identity, action: Action) -> Json:
        decision = self._authorizer.explain(user, action)
        status: Json = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return status

    async def _own_rules(self, call: Call, spec: Json) -> Json:
        namespace = _read(call, spec, _RulesSpec).namespace
        if not namespace:
            raise BadRequest("no namespace on request")
        rules = self._authorizer.rbac.rules(call.user, namespace)
        if MASTERS in call.user.groups:
            rules.append(Rule((ALL,), (ALL,), (ALL,)))
            rules.append(Rule((ALL,), non_resource_urls=(ALL,)))
        plain_rules = [msgspec.to_builtins(rule) for rule in dict.fromkeys(rules)]
        return {
            "resourceRules": [rule for rule in plain_rules if "resources" in rule],
            "nonResourceRules": [rule for rule in plain_rules if "nonResourceURLs" in rule],
            "incomplete": False,
        }

    async def _token(self, call: Call, spec: Json) -> Json:
        token_spec = _read(call, spec, _TokenSpec)
        if not token_spec.token:
            raise BadRequest("token is required for TokenReview in authentication")
        ours = (self._accounts.issuer.issuer,)
        audiences = token_spec.audiences or ours
        identity, meant_for = await self._identify(token_spec.token, ours)
        shared = [audience for audience in meant_for if audience in audiences]
        if identity is None or not shared:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user_info(identity), "audiences": shared}

    async def _identify(self, token: str, ours: tuple[str, ...]) -> tuple[Identity | None, tuple[str, ...]]:
        identification = await self._accounts.check(token)
        if identification is not None:
            return identification
        request = Request("POST", "/", headers={"authorization": f"Bearer {token}"})
        try:
            return await ask(self._authenticator, request), ours
        except Unauthorized:
            return None, ()

    async def _myself(self, call: Call, _: Json) -> Json:
        return {"userInfo": user_info(call.user)}


def _read(call: Call, spec: Json, kind: type[T]) -> T:
    """The spec in our form. Raises `BadRequest`."""
    try:
        return convert(spec, kind)
    except msgspec.ValidationError as error:
        definition = call.definition
        raise bodies.unreadable(call, definition.kind, definition.version, str(error)) from None


def _selector_errors(path: str, selector: Json) -> list[FieldError]:
    raw, requirements = selector.get("rawSelector"), selector.get("requirements") or []
    errors: list[FieldError] = []
    if raw and requirements:
        text = "may not specified at the same time as requirements"
        errors.append(invalid(f"{path}.rawSelector", raw, text))
    if not raw and not requirements:
        text = f"when {path} is specified, requirements or rawSelector is required"
        errors.append(required(f"{path}.requirements", text))
    for index, requirement in enumerate(requirements):
        where = f"{path}.requirements[{index}]"
        if not requirement["key"] and path.endswith("fieldSelector"):
            errors.append(required(f"{where}.key", "must be specified"))
        errors += values_errors(f"{where}.values", requirement["operator"], requirement.get("values") or ())
        if path.endswith("labelSelector"):
            key = requirement["key"]
            errors += [invalid(f"{where}.key", key, problem) for problem in label_key_problems(key)]
    return errors


def _read_access(call: Call, spec: Json, *, needs_user: bool) -> _AccessSpec:
    """The spec. Raises `BadRequest`, and `Invalid` unless the spec asks one thing, and names a user or group
    where one is needed."""
    access, errors = _read(call, spec, _AccessSpec), list[FieldError]()
    resource, non_resource = access.resource_attributes, access.non_resource_attributes
    only = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    if resource is not None and non_resource is not None:
        errors.append(
            invalid(
                "spec.nonResourceAttributes",
                spec["nonResourceAttributes"],
                "cannot be specified in combination with resourceAttributes",
            )
        )
    if resource is None and non_resource is None:
        errors.append(invalid("spec.resourceAttributes", None, only))
    for name in ("fieldSelector", "labelSelector"):
        selector = (spec.get("resourceAttributes") or {}).get(name)
        if selector is not None:
            errors += _selector_errors(f"spec.resourceAttributes.{name}", selector)
    if needs_user and not access.user and not access.groups:
        errors.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    if errors:
        raise invalid_object(_AUTHORIZATION, call.definition.kind, "", errors)
    return access

"""ServiceAccounts as users: issues their tokens (subresource `token`), and authenticates them.

A token becomes invalid when it expires, with its ServiceAccount, and with the object that it is bound to. A
token in a Secret (type `kubernetes.io/service-account-token`) does not expire: it is valid while its Secret
contains it, and its ServiceAccount exists.

Source: Kubernetes documentation, "Managing Service Accounts", bound tokens, long-lived API tokens; API
reference, TokenRequest v1 authentication.k8s.io; `pkg/serviceaccount/claims.go`, `legacy.go`.
"""

from __future__ import annotations

import base64
import hmac
import math
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from certwright.kube.api import naming
from certwright.kube.api.errors import (
    BadRequest,
    Conflict,
    Details,
    FieldError,
    Unauthorized,
    invalid,
    invalid_object,
)
from certwright.kube.apiserver.auth.authentication import authenticated, bearer_token, digest
from certwright.kube.apiserver.auth.tokens import LEGACY_ISSUER, TokenIssuer
from certwright.kube.apiserver.base.json_values import Json, NotOfKind
from certwright.kube.apiserver.base.users import SERVICE_ACCOUNT, service_account_groups
from certwright.kube.apiserver.kinds.core_strategies import ACCOUNT_NAME, TOKEN_TYPE
from certwright.kube.apiserver.model.backend import Backend, Call, is_terminating, not_found
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import encode_json, uid_of
from certwright.kube.apiserver.representations import responses
from certwright.kube.apiserver.requests import bodies
from certwright.kube.store.contract import Key, Row
from certwright.kube.util.decoders import convert, json_decoder
from certwright.kube.util.http_messages import Identity, Request, Response

ACCOUNTS, SECRETS = "serviceaccounts", "secrets"
ACCOUNT_UID = "kubernetes.io/service-account.uid"
TOKEN, ROOT_CA, NAMESPACE = "token", "ca.crt", "namespace"
"""The keys of a Secret with a token."""
_MARK = f'"{ACCOUNT_NAME}"'.encode()
_CLAIM = "kubernetes.io/serviceaccount/"


class SecretClaims(msgspec.Struct, frozen=True):
    """The claims of a token that is stored in a Secret."""

    sub: str
    namespace: str = msgspec.field(name=f"{_CLAIM}namespace")
    secret: str = msgspec.field(name=f"{_CLAIM}secret.name")
    account: str = msgspec.field(name=f"{_CLAIM}service-account.name")
    uid: str = msgspec.field(name=f"{_CLAIM}service-account.uid")


class _Meta(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Body(msgspec.Struct):
    type: str = ""
    data: dict[str, str] | None = None


_annotations = json_decoder(_Meta).decode
_content = json_decoder(_Body).decode


def secret_claims(account: Row, secret: str) -> Json:
    """The claims to sign for the token of `account` in the Secret of that name."""
    namespace, name = account.key.namespace, account.key.name
    said = SecretClaims(f"{SERVICE_ACCOUNT}{namespace}:{name}", namespace, secret, name, uid_of(account.meta))
    return {"iss": LEGACY_ISSUER, **msgspec.to_builtins(said)}


def _read_secret_claims(payload: Json) -> SecretClaims | None:
    """The claims of a token of this kind, None for other claims."""
    try:
        said = convert(payload, SecretClaims)
    except msgspec.ValidationError:
        return None
    return said if said.sub == f"{SERVICE_ACCOUNT}{said.namespace}:{said.account}" else None


def account_of(secret: Row) -> str:
    """The ServiceAccount that a Secret names, empty for most; the row may be without its body."""
    return annotations_of(secret).get(ACCOUNT_NAME, "") if _MARK in secret.meta else ""


def annotations_of(row: Row) -> dict[str, str]:
    """Only the annotations."""
    return _annotations(row.meta).annotations or {}


def entries(secret: Row) -> dict[str, str] | None:
    """The data of a token Secret, in base64; None for a Secret of another type."""
    content = _content(b"{%b}" % secret.body)
    return (content.data or {}) if content.type == TOKEN_TYPE else None


def holds(secret: Row, token: str) -> bool:
    """Whether the Secret contains exactly this token."""
    kept = base64.b64decode((entries(secret) or {}).get(TOKEN, ""))
    return hmac.compare_digest(kept, token.encode(errors="surrogateescape"))


API_VERSION, KIND = "authentication.k8s.io/v1", "TokenRequest"
_BINDABLE = {"Pod": "pods", "Secret": SECRETS}
_ABOUT = "kubernetes.io"  # the claim
_EXTRA = "authentication.kubernetes.io/"
_SHORTEST_S, _DEFAULT_S, _LONGEST_S = 600, 3600, 1 << 32
_KEPT = 4096
_LEEWAY_S = 60
"""RFC 7519 §4.1.4: "Implementers MAY provide for some small leeway, usually no more than a few minutes, to
account for clock skew." Another server may have issued the token; go-jose's default, and so Kubernetes'."""


class _BoundTo(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    audiences: tuple[str, ...] | None = None
    expiration_seconds: int | None = None
    bound_object_ref: _BoundTo | None = None


class _TokenRequest(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Verified(NamedTuple):
    """A token that was valid when last checked; `needs`: the objects that it depends on.

    `is_kept`: the token is in a Secret, and valid only as long as the Secret contains it.
    """

    identity: Identity
    audiences: tuple[str, ...]
    until: float
    needs: tuple[tuple[Key, str], ...]  # with the required uid; empty: any
    is_kept: bool = False


class ServiceAccounts:
    """Issues and authenticates ServiceAccount tokens."""

    observed_buckets = (ACCOUNTS, *_BINDABLE.values())

    def __init__(self, backend: Backend, issuer: TokenIssuer) -> None:
        self._backend = backend
        self.issuer = issuer
        self._known: dict[bytes, _Verified] = {}
        self._needed: dict[Key, set[bytes]] = {}
        self._changes = 0  # by needed object

    def wrote(self, _definition: ResourceDefinition, row: Row, _previous: Row | None) -> None:
        """Check again the tokens that depend on the changed object."""
        self._forget(row.key)

    def removed(self, _definition: ResourceDefinition, row: Row) -> None:
        """Check again the tokens that depend on the deleted object."""
        self._forget(row.key)

    def _forget(self, needed: Key) -> None:
        for key in self._needed.pop(needed, ()):
            self._known.pop(key, None)
            self._changes += 1

    async def __call__(self, request: Request) -> Identity | None:
        """The ServiceAccount of the request's token, if this server is in the token's audience.

        None without a token. Raises `Unauthorized` for an invalid or revoked token.
        """
        token = bearer_token(request)
        if not token:
            return None
        identification = await self.check(token)
        if identification is None or self.issuer.issuer not in identification[1]:
            raise Unauthorized("Unauthorized")
        return identification[0]

    async def check(self, token: str) -> tuple[Identity, tuple[str, ...]] | None:
        """The identity of a token, and its audiences; None when it is not valid."""
        key = digest(token)
        known = self._known.get(key) or await self._verify(token, key)
        if known is None or self._backend.clock.now().timestamp() >= known.until + _LEEWAY_S:
            return None
        return known.identity, known.audiences

    async def _verify(self, token: str, key: bytes) -> _Verified | None:
        if token.count(".") != 2:
            return None
        claims = self.issuer.verify(token)
        verified = self._read(claims) if claims is not None else None
        if verified is None or claims is None:
            return None
        if self._backend.clock.now().timestamp() < claims.get("nbf", 0) - _LEEWAY_S:
            return None
        if len(self._known) >= _KEPT:
            self._known.clear()
            self._needed.clear()
            self._changes += 1
        changes = -1
        # An object that changes during the check is checked again.
        while changes != self._changes:
            changes = self._changes
            for needed, _ in verified.needs:
                self._needed.setdefault(needed, set()).add(key)
            if not await self._is_good(verified, token):
                return None
        self._known[key] = verified
        return verified

    async def _is_good(self, verified: _Verified, token: str) -> bool:
        """Whether all objects that the token depends on exist."""
        for needed, uid in verified.needs:
            row = await self._backend.store.get(needed)
            if row is None or uid not in ("", uid_of(row.meta)):
                return False
            if verified.is_kept and is_terminating(row):
                return False
            if verified.is_kept and needed.bucket == SECRETS and not holds(row, token):
                return False
        return True

    def _read(self, claims: Json) -> _Verified | None:
        """The verified claims of one of our tokens; None for other claims."""
        if _ABOUT in claims:
            return _read_bound_claims(claims)
        said = _read_secret_claims(claims)
        if said is None:
            return None
        identity = Identity(said.sub, uid=said.uid, groups=service_account_groups(said.sub))
        account = Key(ACCOUNTS, said.namespace, said.account)
        needs = ((account, said.uid), (Key(SECRETS, said.namespace, said.secret), ""))
        # It names no audience; Kubernetes takes it to be meant for the API server.
        return _Verified(authenticated(identity), (self.issuer.issuer,), math.inf, needs, is_kept=True)

    async def create_token(self, backend: Backend, call: Call) -> Response:
        """POST to the subresource `token` of a ServiceAccount: 201 with a TokenRequest that has a token."""
        spec = _read_spec(call)
        account = await backend.store.get(call.key)
        if account is None:
            raise not_found(call.definition, call.route.name)
        bound = await self._bound(call, spec.bound_object_ref) if spec.bound_object_ref else None
        audiences = spec.audiences or (self.issuer.issuer,)
        now = backend.clock.now()
        seconds = spec.expiration_seconds or _DEFAULT_S
        expires = int(now.timestamp()) + seconds
        answer: Json = {
            "kind": KIND,
            "apiVersion": API_VERSION,
            "metadata": {
                "name": call.route.name,
                "namespace": call.route.namespace,
                "creationTimestamp": backend.timestamp(),
            },
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": msgspec.to_builtins(spec.bound_object_ref),
            },
            "status": {"token": "", "expirationTimestamp": None},
        }
        await backend.admission.requesting(call, answer)
        token = ""
        if not call.dry_run:
            token = self.issuer.sign(_bound_claims(account, audiences, int(now.timestamp()), expires, bound))
        answer["status"] = {
            "token": token,
            "expirationTimestamp": datetime.fromtimestamp(expires, UTC).isoformat()[:19] + "Z",
        }
        return Response(201, responses.headers(call), encode_json(answer))

    async def _bound(self, call: Call, to: _BoundTo) -> tuple[str, str, str]:
        """Kind in lower case, name and uid of the object to which the token is to be bound."""
        plural = _BINDABLE.get(to.kind)
        if plural is None or to.api_version not in ("v1", ""):
            raise BadRequest(f"cannot bind token to object of type {to.api_version}/{to.kind}")
        definition = self._backend.registry.by_resource("", plural)
        row = await self._backend.store.get(Key(plural, call.route.namespace, to.name))
        if row is None or definition is None:
            raise not_found(definition or call.definition, to.name)
        uid = uid_of(row.meta)
        if to.uid and to.uid != uid:
            raise Conflict(
                f'Operation cannot be fulfilled on {plural} "{to.name}": the UID in the bound object '
                f"reference ({to.uid}) does not match the UID in record. The object might have been deleted "
                "and then recreated",
                details=Details(name=to.name, kind=plural),
            )
        return to.kind.lower(), to.name, uid


def _read_spec(call: Call) -> _Spec:
    """The requested token. Raises `BadRequest` and `Invalid`."""
    bodies.check(call)
    obj, _ = bodies.read_object(call)
    version, kind = obj.get("apiVersion") or API_VERSION, obj.get("kind") or KIND
    if (version, kind) != (API_VERSION, KIND):
        raise BadRequest(f"the body must be a {KIND} of {API_VERSION}, not a {kind} of {version}")
    try:
        spec = convert(obj, _TokenRequest).spec
    except msgspec.ValidationError as error:
        raise NotOfKind(KIND, "v1", str(error)) from None
    errors: list[FieldError] = []
    meta = obj.get("metadata") or {}
    for field, expected in (("name", call.route.name), ("namespace", call.route.namespace)):
        if (given := meta.get(field)) and given != expected:
            text = f"must match the service account {field} if specified"
            errors.append(invalid(f"metadata.{field}", given, text))
    seconds, field = spec.expiration_seconds, "spec.expirationSeconds"
    if seconds is not None and seconds < _SHORTEST_S:
        errors.append(invalid(field, seconds, "may not specify a duration less than 10 minutes"))
    if seconds is not None and seconds > _LONGEST_S:
        errors.append(invalid(field, seconds, "may not specify a duration larger than 2^32 seconds"))
    if errors:
        raise invalid_object("authentication.k8s.io", KIND, "", errors)
    return spec


def _bound_claims(
    account: Row, audiences: tuple[str, ...], now: int, expires: int, bound: tuple[str, str, str] | None
) -> Json:
    namespace, name = account.key.namespace, account.key.name
    about: Json = {
        "namespace": namespace,
        "serviceaccount": {"name": name, "uid": uid_of(account.meta)},
    }
    if bound is not None:
        about[bound[0]] = {"name": bound[1], "uid": bound[2]}
    return {
        "aud": list(audiences),
        "exp": expires,
        "iat": now,
        "jti": naming.new_uid(),
        _ABOUT: about,
        "nbf": now,
        "sub": f"{SERVICE_ACCOUNT}{namespace}:{name}",
    }


class _Named(msgspec.Struct):
    name: str
    uid: str


class _About(msgspec.Struct):
    namespace: str
    serviceaccount: _Named
    pod: _Named | None = None
    secret: _Named | None = None


class _Claims(msgspec.Struct):
    sub: str
    exp: float
    aud: tuple[str, ...]
    about: _About = msgspec.field(name=_ABOUT)
    jti: str = ""


def _read_bound_claims(claims: Json) -> _Verified | None:
    """The claims of a token of a TokenRequest; None for other claims."""
    try:
        typed_claims = convert(claims, _Claims)
    except msgspec.ValidationError:
        return None
    about, account = typed_claims.about, typed_claims.about.serviceaccount
    name = f"{SERVICE_ACCOUNT}{about.namespace}:{account.name}"
    if typed_claims.sub != name:
        return None
    extra = {f"{_EXTRA}credential-id": (f"JTI={typed_claims.jti}",)} if typed_claims.jti else {}
    needs = [(Key(ACCOUNTS, about.namespace, account.name), account.uid)]
    if about.secret is not None:
        needs.append((Key(SECRETS, about.namespace, about.secret.name), about.secret.uid))
    if about.pod is not None:
        needs.append((Key("pods", about.namespace, about.pod.name), about.pod.uid))
        extra[f"{_EXTRA}pod-name"] = (about.pod.name,)
        extra[f"{_EXTRA}pod-uid"] = (about.pod.uid,)
    identity = Identity(name, uid=account.uid, groups=service_account_groups(name), extra=extra)
    return _Verified(authenticated(identity), typed_claims.aud, typed_claims.exp, tuple(needs))

"""Authentication: static bearer tokens, TLS client certificates, anonymous requests, and impersonation.

Each attribute impersonated by `Impersonate-User`, `-Group`, `-Uid` and `-Extra-*` needs the verb
`impersonate` on it. Tokens of ServiceAccounts are in `service_accounts.py`, authorization is in `rbac.py`.

Source: Kubernetes documentation, "Authenticating" (static tokens; X.509 client certificates: CN is the user,
O the groups; anonymous requests), "User impersonation"; apiserver `pkg/endpoints/filters/impersonation`.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

from cryptography import x509
from cryptography.x509.oid import NameOID

from certwright.kube.api.errors import InternalError, Unauthorized
from certwright.kube.apiserver.base.users import (
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    service_account,
    service_account_groups,
)
from certwright.kube.apiserver.model.routes import Action, Authorizer
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.http_messages import Identity, Request

Authenticator = Callable[[Request], Identity | Awaitable[Identity | None] | None]
"""Authenticates a request. None: the request has no credentials for this authenticator. Raises `Unauthorized`
for credentials that are wrong."""

HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
"""Paths that need no credentials, because load balancers and probes have none: as with `anonymous.conditions`
of kube-apiserver's AuthenticationConfiguration. RBAC applies: the ClusterRole `system:public-info-viewer`."""


def authenticated(identity: Identity) -> Identity:
    """`identity` with the group of all authenticated users."""
    if AUTHENTICATED in identity.groups:
        return identity
    groups = (*identity.groups, AUTHENTICATED)
    return Identity(identity.name, uid=identity.uid, groups=groups, extra=identity.extra)


def bearer_token(request: Request) -> str:
    """The token of the Authorization header (RFC 6750 §2.1); empty without one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def digest(token: str) -> bytes:
    """The digest by which a token is looked up: the duration of a lookup reveals something about the digest
    at most, never about the token; and a memory dump does not contain the token."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


class StaticTokens:
    """Static bearer tokens."""

    def __init__(self, tokens: Mapping[str, Identity]) -> None:
        self._by_digest: dict[bytes, Identity] = {}
        self.replace(tokens)

    def replace(self, tokens: Mapping[str, Identity]) -> None:
        """Accept these tokens instead, from the next request on."""
        self._by_digest = {digest(token): authenticated(who) for token, who in tokens.items()}

    def __call__(self, request: Request) -> Identity | None:
        """The identity of the request's token. Raises `Unauthorized` for an unknown token."""
        token = bearer_token(request)
        if not token:
            return None
        identity = self._by_digest.get(digest(token))
        if identity is None:
            raise Unauthorized("Unauthorized")
        return identity


def read_token_file(path: Path) -> dict[str, Identity]:
    """The tokens of a file as kube-apiserver's `--token-auth-file` reads it: CSV lines of token, user, uid
    and, in quotes, groups separated by commas.

    Raises `OSError`, and `ValueError` with a sentence that names the line, never the token.
    """
    identities: dict[str, Identity] = {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file, skipinitialspace=True)
        try:
            for row in reader:
                if row and not row[0].lstrip().startswith("#"):
                    token, identity = _token_line(row, f"{path}, line {reader.line_num}")
                    identities[token] = identity
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
    return identities


def _token_line(row: list[str], place: str) -> tuple[str, Identity]:
    if len(row) < 3:
        raise ValueError(f"{place}: a line needs at least 3 columns (token, user name, user uid)")
    token, name, uid = (column.strip() for column in row[:3])
    if not token or not name:
        raise ValueError(f"{place}: the token and the user name must not be empty")
    groups = tuple(group.strip() for group in row[3].split(",")) if len(row) > 3 else ()
    return token, Identity(name, uid=uid, groups=tuple(group for group in groups if group))


class ClientCertificates:
    """TLS client certificates: the HTTP server has verified the chain, this class reads the subject."""

    _KEPT = 1024

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._known: dict[bytes, tuple[Identity | None, datetime]] = {}

    def __call__(self, request: Request) -> Identity | None:
        """CN as user and O as groups; None without certificate or without CN.

        Raises `Unauthorized` for a certificate that has expired since the connection was made.
        """
        der = request.peer_certificate
        if not der:
            return None
        # All requests of a connection carry the same bytes, whose hash Python computes once.
        if der not in self._known:
            if len(self._known) >= self._KEPT:
                self._known.clear()
            self._known[der] = self._read(der)
        identity, until = self._known[der]
        if self._clock.now() > until:
            raise Unauthorized("Unauthorized")
        return identity

    @staticmethod
    def _read(der: bytes) -> tuple[Identity | None, datetime]:
        try:
            certificate = x509.load_der_x509_certificate(der)
            subject = certificate.subject
        except ValueError as error:
            raise Unauthorized("Unauthorized") from error
        names = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        groups = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
        identity = authenticated(Identity(names[0], groups=tuple(groups))) if names and names[0] else None
        return identity, certificate.not_valid_after_utc


class FirstOf:
    """Union of authenticators, asked in order; the first that knows the caller wins."""

    def __init__(self, *authenticators: Authenticator) -> None:
        self._authenticators = authenticators

    async def __call__(self, request: Request) -> Identity | None:
        """The first identity found. Raises `Unauthorized` when one authenticator does and none knows the
        caller."""
        refusal: Unauthorized | None = None
        for authenticator in self._authenticators:
            try:
                identity = await ask(authenticator, request)
            except Unauthorized as error:
                refusal = error
                continue
            if identity is not None:
                return identity
        if refusal is not None:
            raise refusal
        return None


async def ask(authenticator: Authenticator, request: Request) -> Identity | None:
    """The authenticator's result, awaited if necessary."""
    result = authenticator(request)
    return result if result is None or isinstance(result, Identity) else await result


async def authenticate(request: Request, authenticator: Authenticator, *, anonymous: bool) -> Identity:
    """Authenticate `request`. Raises `Unauthorized` for wrong credentials, and without any unless
    `anonymous`, or the path is one of `HEALTH_PATHS`."""
    identity = await ask(authenticator, request)
    if identity is not None:
        return identity
    allowed = anonymous or request.target.partition("?")[0] in HEALTH_PATHS
    if allowed and "authorization" not in request.headers:
        return ANONYMOUS
    raise Unauthorized("Unauthorized")


_PREFIX = "impersonate-"
_USER, _GROUP, _UID = "impersonate-user", "impersonate-group", "impersonate-uid"
_EXTRA = "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"


def act_as(user: Identity, headers: Mapping[str, str], authorizer: Authorizer) -> Identity:
    """The effective user of the request: `user`, unless the headers name another.

    Raises `Forbidden` for attributes that `user` may not impersonate, and `InternalError` for a group, a uid
    or an extra without a user.
    """
    # All names are checked in one pass: nearly always none of them is such a header.
    if _PREFIX not in "\n".join(headers):
        return user
    name, uid = headers.get(_USER, ""), headers.get(_UID, "")
    groups = _split(headers.get(_GROUP, ""))
    extra = {
        unquote(name[len(_EXTRA) :]).lower(): _split(value)
        for name, value in headers.items()
        if name.startswith(_EXTRA)
    }
    if not name:
        if groups or uid or extra:
            raise InternalError("Internal Server Error: requested groups, uid or extra without a user")
        return user
    for action in _actions(name, uid, groups, extra):
        authorizer.require(user, action)
    if service_account(name) is not None and not groups:
        groups = service_account_groups(name)
    if not {AUTHENTICATED, UNAUTHENTICATED} & {*groups}:
        groups = (*groups, UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED)
    return Identity(name, uid=uid, groups=groups, extra=extra)


def _split(value: str) -> tuple[str, ...]:
    # The HTTP server separates fields of one name by newlines.
    return tuple(part.strip() for part in value.split("\n") if part.strip())


def _actions(
    name: str, uid: str, groups: tuple[str, ...], extra: Mapping[str, tuple[str, ...]]
) -> list[Action]:
    """The permissions to check, one by one."""
    if (named := service_account(name)) is not None:
        actions = [Action("impersonate", resource="serviceaccounts", namespace=named[0], name=named[1])]
    else:
        actions = [Action("impersonate", resource="users", name=name)]
    actions += [Action("impersonate", resource="groups", name=group) for group in groups]
    actions += [
        Action("impersonate", _AUTHENTICATION, "userextras", subresource=key, name=value)
        for key, values in extra.items()
        for value in values
    ]
    if uid:
        actions.append(Action("impersonate", _AUTHENTICATION, "uids", name=uid))
    return actions

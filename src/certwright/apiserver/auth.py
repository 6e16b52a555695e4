"""Who asks, and may they: bearer tokens, TLS client certificates, and a first authorisation.

Source: Kubernetes documentation, "Authenticating" (static tokens; X.509 client certificates: CN is the user,
O the groups) and "Authorization".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.oid import NameOID

from certwright.kit.exchange import Identity, Request
from certwright.resources.errors import Details, Forbidden, Unauthorized

Authenticator = Callable[[Request], Identity | None]
"""Says who sent the request. None: the request carries nothing that this authenticator knows of. Raises
`Unauthorized` for credentials that are wrong."""

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"


def _with_group(identity: Identity) -> Identity:
    """`identity` with the group that every authenticated user is in."""
    if AUTHENTICATED in identity.groups:
        return identity
    groups = (*identity.groups, AUTHENTICATED)
    return Identity(identity.name, uid=identity.uid, groups=groups, extra=identity.extra)


class StaticTokens:
    """Bearer tokens known beforehand."""

    def __init__(self, tokens: Mapping[str, Identity]) -> None:
        # Looked up by digest: how long a dict lookup takes says something about the digest at most, never
        # about the token.
        self._by_digest = {self._digest(token): _with_group(who) for token, who in tokens.items()}

    @staticmethod
    def _digest(token: str) -> bytes:
        return hashlib.sha256(token.encode()).digest()

    def __call__(self, request: Request) -> Identity | None:
        """The identity of the request's token. Raises `Unauthorized` for a token that is not ours."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None
        identity = self._by_digest.get(self._digest(token.strip()))
        if identity is None:
            raise Unauthorized("Unauthorized")
        return identity


class ClientCertificates:
    """TLS client certificates: the face has verified the chain, this reads the subject."""

    _KEPT = 1024

    def __init__(self) -> None:
        self._known: dict[bytes, Identity | None] = {}

    def __call__(self, request: Request) -> Identity | None:
        """CN as user and O as groups; None without certificate or without CN."""
        der = request.peer_certificate
        if not der:
            return None
        digest = hashlib.sha256(der).digest()
        if digest not in self._known:
            if len(self._known) >= self._KEPT:
                self._known.clear()
            self._known[digest] = self._read(der)
        return self._known[digest]

    @staticmethod
    def _read(der: bytes) -> Identity | None:
        try:
            subject = x509.load_der_x509_certificate(der).subject
        except ValueError as error:
            raise Unauthorized("Unauthorized") from error
        names = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        groups = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
        return _with_group(Identity(names[0], groups=tuple(groups))) if names and names[0] else None


class FirstOf:
    """Asks several authenticators in order; the first that knows the caller wins."""

    def __init__(self, *authenticators: Authenticator) -> None:
        self._authenticators = authenticators

    def __call__(self, request: Request) -> Identity | None:
        """The first identity found. Raises `Unauthorized` as soon as one of them does."""
        for authenticator in self._authenticators:
            identity = authenticator(request)
            if identity is not None:
                return identity
        return None


def authenticate(request: Request, authenticator: Authenticator) -> Identity:
    """Who sent `request`; what a caller in this process has set is believed. Raises `Unauthorized`."""
    identity = request.user or authenticator(request)
    if identity is None:
        raise Unauthorized("Unauthorized")
    return identity


@dataclass(frozen=True, slots=True)
class Action:
    """What is asked for, in the terms of a `SubjectAccessReview`: a resource, or a path that is none."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


def authorise(user: Identity, action: Action) -> None:
    """Return when `user` may do it; raise `Forbidden` otherwise.

    Administrators may do all; everybody known may read discovery, version and health.
    """
    if MASTERS in user.groups:
        return
    if not action.resource:
        if action.verb in ("get", "head"):
            return
        raise Forbidden(
            f'forbidden: User "{user.name}" cannot {action.verb} path "{action.path}"', details=Details()
        )
    raise _forbidden(user, action)


def _forbidden(user: Identity, action: Action) -> Forbidden:
    resource = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    where = f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
    what = (
        f'User "{user.name}" cannot {action.verb} resource "{resource}" in API group "{action.group}" {where}'
    )
    qualified = f"{action.resource}.{action.group}" if action.group else action.resource
    subject = f'{qualified} "{action.name}"' if action.name else qualified
    details = Details(name=action.name, group=action.group, kind=action.resource)
    return Forbidden(f"{subject} is forbidden: {what}", details=details)

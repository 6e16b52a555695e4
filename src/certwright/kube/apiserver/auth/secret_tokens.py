"""ServiceAccount tokens stored in Secrets (type `kubernetes.io/service-account-token`).

Such a token does not expire: it is valid while its Secret contains it, and its ServiceAccount exists.

Source: Kubernetes documentation, "Managing Service Accounts" (long-lived API tokens);
`pkg/serviceaccount/legacy.go`.
"""

from __future__ import annotations

import base64
import hmac

import msgspec

from certwright.kube.apiserver.auth.rbac import SERVICE_ACCOUNT
from certwright.kube.apiserver.auth.tokens import LEGACY_ISSUER
from certwright.kube.apiserver.kinds.core_strategies import ACCOUNT_NAME, TOKEN_TYPE
from certwright.kube.apiserver.model.objects import Json, uid_of
from certwright.kube.store.contract import Key, Row
from certwright.kube.util.decoders import convert, json_decoder

ACCOUNTS, SECRETS = "serviceaccounts", "secrets"
ACCOUNT_UID = "kubernetes.io/service-account.uid"
TOKEN, ROOT_CA, NAMESPACE = "token", "ca.crt", "namespace"
"""The keys of such a Secret."""
_MARK = f'"{ACCOUNT_NAME}"'.encode()
_CLAIM = "kubernetes.io/serviceaccount/"


class Claims(msgspec.Struct, frozen=True):
    """The claims of such a token."""

    sub: str
    namespace: str = msgspec.field(name=f"{_CLAIM}namespace")
    secret: str = msgspec.field(name=f"{_CLAIM}secret.name")
    account: str = msgspec.field(name=f"{_CLAIM}service-account.name")
    uid: str = msgspec.field(name=f"{_CLAIM}service-account.uid")

    @property
    def account_key(self) -> Key:
        """Key of its ServiceAccount."""
        return Key(ACCOUNTS, self.namespace, self.account)

    @property
    def secret_key(self) -> Key:
        """Key of its Secret."""
        return Key(SECRETS, self.namespace, self.secret)


class _Meta(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Body(msgspec.Struct):
    type: str = ""
    data: dict[str, str] | None = None


_annotations = json_decoder(_Meta).decode
_content = json_decoder(_Body).decode


def claims(account: Row, secret: str) -> Json:
    """The claims to sign for the token of `account` in the Secret of that name."""
    namespace, name = account.key.namespace, account.key.name
    said = Claims(f"{SERVICE_ACCOUNT}{namespace}:{name}", namespace, secret, name, uid_of(account.meta))
    return {"iss": LEGACY_ISSUER, **msgspec.to_builtins(said)}


def read_claims(payload: Json) -> Claims | None:
    """The claims of a token of this kind, None for other claims."""
    try:
        said = convert(payload, Claims)
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

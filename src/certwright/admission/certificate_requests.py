"""Checks of the signing request inside a new CertificateRequest.

They are here and not in `resources`, which has no cryptography. Another API server may not make them, so the
controllers check again.

Source: cert-manager `internal/apis/certmanager/validation/certificaterequest.go`.
"""

from __future__ import annotations

import base64

from certwright.kube.api.errors import FieldError
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.util.http_messages import Identity
from certwright.pki.errors import PkiError
from certwright.pki.signing import checked

_PATH = "spec.request"


def set_requester(user: Identity, new: Json, old: Json | None) -> None:
    """Write the requester's identity into a new CertificateRequest, as cert-manager's webhook does."""
    spec = new.get("spec")
    if old is not None or type(spec) is not dict:
        return
    for name in ("username", "uid", "groups", "extra"):
        spec.pop(name, None)
    spec["username"] = user.name
    if user.uid:
        spec["uid"] = user.uid
    if user.groups:
        spec["groups"] = list(user.groups)
    if user.extra:
        spec["extra"] = {name: list(values) for name, values in user.extra.items()}


def check(new: Json) -> list[FieldError]:
    """Report where the signing request cannot be parsed, was not signed with its key, or contradicts `isCA`
    or `usages`. The schema and the kind's own rules have passed before."""
    spec = new["spec"]
    try:
        pem = base64.b64decode(spec["request"])
        checked(pem, tuple(spec.get("usages") or ()), is_ca=bool(spec.get("isCA")))
    except PkiError as error:
        # The value itself would bury the sentence.
        return [FieldError(_PATH, "FieldValueInvalid", f'Invalid value: "<signing request>": {error}')]
    return []

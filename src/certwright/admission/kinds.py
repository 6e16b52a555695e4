"""Extensions of our kinds on our own API server: validation and approval in place of a webhook."""

from __future__ import annotations

from functools import partial
from typing import Any

from certwright.admission import approvals, certificate_requests, certificates
from certwright.kube.api.errors import FieldError
from certwright.kube.api.kinds import AnyKind
from certwright.kube.apiserver.model.definitions import Extensions, KindExtension
from certwright.resources.crd_rules import known_rules
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, OUR_KINDS
from certwright.resources.validation import validate, warnings

Json = dict[str, Any]


def certificate_kinds(policy: OperatorPolicy | None = None) -> Extensions:
    """The extensions by group and kind. `policy` is what the operator of this server allows objects to make
    it do; None: its controllers run elsewhere and apply theirs."""
    return {
        (kind.group, kind.kind): _request(policy)
        if kind is CERTIFICATE_REQUESTS
        else KindExtension(
            validate=partial(_validate, kind, policy),
            warnings=partial(warnings, kind.kind, kind.group),
            enforced_rules=known_rules(kind.kind, kind.group),
        )
        for kind in OUR_KINDS
    }


def _validate(kind: AnyKind, policy: OperatorPolicy | None, new: Json, old: Json | None) -> list[FieldError]:
    errors = validate(kind.kind, kind.group, new, old, policy)
    return errors if errors or kind is not CERTIFICATES else certificates.check(new, old)


def _request(policy: OperatorPolicy | None) -> KindExtension:
    kind = CERTIFICATE_REQUESTS

    def check(new: Json, old: Json | None) -> list[FieldError]:
        errors = validate(kind.kind, kind.group, new, old, policy)
        return errors if errors or old is not None else certificate_requests.check(new)

    return KindExtension(
        mutate=certificate_requests.set_requester,
        validate=check,
        warnings=partial(warnings, kind.kind, kind.group),
        authorize=approvals.check,
        enforced_rules=known_rules(kind.kind, kind.group),
    )

"""Approve certificate requests: all that are not denied, approved or finished yet.

The API server checks the right to approve. Installations with another approver disable this one
(`--controllers=*,-certificaterequests-approver`).

Source: cert-manager `pkg/controller/certificaterequests/approver`.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition
from certwright.resources import reasons
from certwright.resources.request import CertificateRequest

REASON = "cert-manager.io"
MESSAGE = "Certificate request has been approved by cert-manager.io"


def is_open(request: CertificateRequest) -> bool:
    """Whether the request is neither approved, nor denied, nor finished."""
    existing = request.status.conditions
    ready = conditions.find(existing, reasons.READY)
    decided = conditions.is_true(existing, reasons.APPROVED) or conditions.is_true(existing, reasons.DENIED)
    finished = ready is not None and ready.reason in (reasons.FAILED, reasons.ISSUED)
    return not decided and not finished


def approve(request: CertificateRequest, now: datetime) -> CertificateRequest:
    """The request with `Approved=True`, if it is open; otherwise unchanged."""
    if not is_open(request):
        return request
    new = Condition(type=reasons.APPROVED, status="True", reason=REASON, message=MESSAGE)
    status = msgspec.structs.replace(
        request.status, conditions=conditions.with_condition(request.status.conditions, new, now)
    )
    return msgspec.structs.replace(request, status=status)

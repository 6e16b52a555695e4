"""The error for an object that its kind's decoder rejects."""

from __future__ import annotations

from certwright.kube.api.errors import BadRequest


class NotOfKind(BadRequest):
    """A part of an object has another type than its kind says. The message is in Kubernetes' words; `detail`
    is the reason alone, for errors that quote it."""

    def __init__(self, kind: str, version: str, detail: str, *, expected: str = "") -> None:
        super().__init__(f'{kind} in version "{version}" cannot be handled as a {expected or kind}: {detail}')
        self.detail = detail

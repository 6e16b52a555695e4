"""The contents of a Lease as its holder writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from certwright.kube.api.core import Lease, LeaseSpec


def format_micro_time(moment: datetime) -> str:
    """`2026-01-02T03:04:05.000006Z`. `moment` must be aware.

    Go reads a MicroTime with the layout `2006-01-02T15:04:05.000000Z07:00` and refuses any other number of
    digits, so these fields are text in our structs.

    Source: apimachinery `pkg/apis/meta/v1/micro_time.go`.
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def renewed(old: LeaseSpec, identity: str, duration: timedelta, moment: datetime) -> LeaseSpec:
    """`old`, acquired or renewed by `identity` at `moment`."""
    now = format_micro_time(moment)
    is_ours = old.holder_identity == identity
    changes = 0 if old.holder_identity is None else (old.lease_transitions or 0) + (not is_ours)
    return msgspec.structs.replace(
        old,
        holder_identity=identity,
        lease_duration_seconds=int(duration.total_seconds()),
        acquire_time=old.acquire_time if is_ours else now,
        renew_time=now,
        lease_transitions=changes,
        preferred_holder=old.preferred_holder if is_ours else None,
    )


def renewal_patch(spec: LeaseSpec) -> list[dict[str, Any]]:
    """JSON patch (RFC 6902) that renews as `spec` does, and fails unless `spec`'s holder has the Lease."""
    return [
        {"op": "test", "path": "/spec/holderIdentity", "value": spec.holder_identity},
        {"op": "add", "path": "/spec/renewTime", "value": spec.renew_time},
        {"op": "add", "path": "/spec/leaseDurationSeconds", "value": spec.lease_duration_seconds},
    ]


def released(lease: Lease, moment: datetime) -> Lease:
    """`lease` without a holder."""
    now = format_micro_time(moment)
    spec = msgspec.structs.replace(
        lease.spec, holder_identity="", lease_duration_seconds=1, renew_time=now, acquire_time=now
    )
    return msgspec.structs.replace(lease, spec=spec)


def mark(spec: LeaseSpec) -> tuple[str, int]:
    """What changes with the holder, and when a member of a group calls the others."""
    return spec.holder_identity or "", spec.lease_transitions or 0

"""Kubernetes' MicroTime: RFC 3339 in UTC with exactly six digits after the second.

Go reads it with the layout `2006-01-02T15:04:05.000000Z07:00` and refuses any other number of digits, so
these fields are text in our structs and are written here.

Source: apimachinery `pkg/apis/meta/v1/micro_time.go`.
"""

from __future__ import annotations

from datetime import UTC, datetime


def format_micro_time(moment: datetime) -> str:
    """`2026-01-02T03:04:05.000006Z`. `moment` must be aware."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

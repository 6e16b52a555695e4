"""The flags of `serve` for concurrent requests, with kube-apiserver's names."""

from __future__ import annotations

from dataclasses import dataclass

import click

from certwright.cli.options import TRUTH, Decorator, gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class FairnessFlags:
    """The settings: the members of `app.InFlight`. Raises `click.UsageError`."""

    max_requests: int
    max_mutating_requests: int
    priority_and_fairness: bool

    def __post_init__(self) -> None:
        if self.priority_and_fairness and not (self.max_requests and self.max_mutating_requests):
            raise click.UsageError(
                "--max-requests-inflight and --max-mutating-requests-inflight must be above 0, unless "
                "--enable-priority-and-fairness=false is given"
            )


def _bound(flag: str, name: str, *, default: int, text: str) -> Decorator:
    kind = click.IntRange(min=0)
    return click.option(flag, name, metavar="N", type=kind, default=default, show_default=True, help=text)


_OPTIONS = (
    _bound(
        "--max-requests-inflight",
        "max_requests",
        default=400,
        text="Maximum number of concurrent read requests; more of them wait.",
    ),
    _bound(
        "--max-mutating-requests-inflight",
        "max_mutating_requests",
        default=200,
        text="Maximum number of concurrent write requests; more of them wait.",
    ),
    click.option(
        "--enable-priority-and-fairness",
        "priority_and_fairness",
        metavar="true|false",
        type=TRUTH,
        default=True,
        help="Priority and fairness: queue requests fairly per user; false: only the two limits above "
        "apply, 0 means none.  "
        "[default: true]",
    ),
)

fairness_options = gathered("fairness", FairnessFlags, _OPTIONS)
"""Adds the flags; the function gets them as `fairness: FairnessFlags`."""

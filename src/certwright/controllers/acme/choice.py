"""Solver selection: which solver answers for a name.

Source: cert-manager `pkg/util/solverpicker`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from certwright.resources.solver import Selector, Solver

_NO_SELECTOR = (0, 0, 0)


def choose(
    solvers: Sequence[Solver],
    *,
    name: str,
    labels: Mapping[str, str],
    offered: Collection[str],
) -> Solver | None:
    """The solver for a name (with its `*.`), None where none fits.

    Its type of challenge must be among those `offered` (`HTTP-01`), and its whole selector must match. Of
    several the most exact one is taken: the name itself before a zone, a longer zone before a shorter one,
    more labels before fewer, the first one listed before later ones.
    """
    fitting = [solver for solver in solvers if solver.challenge_type in offered]
    ranked = [(rank, solver) for solver in fitting if (rank := _rank(solver.selector, name, labels))]
    # `max` takes the first of equals.
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _rank(selector: Selector | None, name: str, labels: Mapping[str, str]) -> tuple[int, int, int] | None:
    """How exact a match is; None: no match."""
    if selector is None:
        return _NO_SELECTOR
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return None
    names, zones = len(selector.dns_names), len(selector.dns_zones)
    exact = _same(name, selector.dns_names) if names else False
    zone = _longest_zone(name, selector.dns_zones) if zones else 0
    if (names and not exact) or (zones and not zone):
        return None
    return (int(exact), zone, len(selector.match_labels))


def _same(name: str, names: Iterable[str]) -> bool:
    return name.lower() in (other.lower().rstrip(".") for other in names)


def _longest_zone(name: str, zones: Iterable[str]) -> int:
    plain = f".{name.lower().removeprefix('*.')}"
    matching = (zone.lower().strip(".") for zone in zones)
    return max((len(zone) for zone in matching if zone and plain.endswith(f".{zone}")), default=0)

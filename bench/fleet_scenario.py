"""What happens to a fleet: a YAML file of `bench/scenarios/`, and the issuers made from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from certwright.pki.renewal import share
from certwright.resources.causes import Cause

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")


def span(text: str) -> timedelta:
    """A duration such as 90d, 1d12h or 20s. Raises `ValueError` with a sentence."""
    if not re.fullmatch(rf"(?:{_PART.pattern})+", text):
        raise ValueError(f'"{text}" is no duration; write 90d, 1d12h or 20s')
    return timedelta(seconds=sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(text)))


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A share of the certificates that live so long."""

    share: float
    lives: str


class Outage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An issuer cannot be reached, or says that it is overloaded and when to come again."""

    issuer: int
    at: str
    lasts: str
    retry_after: str = ""


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An issuer grants so many certificates in a time, evenly refilled."""

    issuer: int
    grants: int
    per: str


class Denial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An approver denies the requests of a share of an issuer's certificates."""

    issuer: int
    share: float
    at: str
    lasts: str


class Broken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A share of the certificates has, once, names that cannot be proven for so long."""

    share: float
    lasts: str


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of `bench/scenarios/`."""

    certificates: int
    issuers: int
    lasts: str
    kinds: list[Kind]
    answers_in: str = "20s"
    gives_up_after: str = "30s"
    together: float = 0.0
    outages: list[Outage] = []
    limits: list[Limit] = []
    denials: list[Denial] = []
    broken: Broken | None = None
    restarts_every: str = ""


def read(path: Path) -> Scenario:
    """Raises `msgspec.ValidationError` with the field that is wrong."""
    return msgspec.yaml.decode(path.read_bytes(), type=Scenario)


@dataclass(slots=True)
class Times:
    """A time in which something is wrong: from `begin` up to, but not, `end`."""

    begin: datetime
    end: datetime
    retry_after: timedelta | None = None

    def __contains__(self, moment: datetime) -> bool:
        return self.begin <= moment < self.end


@dataclass(slots=True)
class Answer:
    """What an issuer says: `cause` None is a certificate. `reached`: it came as far as the issuer."""

    cause: Cause | None
    until: datetime | None = None
    reached: bool = True


class Authority:
    """One issuer of the scenario."""

    def __init__(self, number: int, scenario: Scenario, start: datetime) -> None:
        self.outages = [
            Times(
                start + span(outage.at),
                start + span(outage.at) + span(outage.lasts),
                span(outage.retry_after) if outage.retry_after else None,
            )
            for outage in scenario.outages
            if outage.issuer == number
        ]
        self._denials = [
            (denial.share, Times(start + span(denial.at), start + span(denial.at) + span(denial.lasts)))
            for denial in scenario.denials
            if denial.issuer == number
        ]
        limit = next((item for item in scenario.limits if item.issuer == number), None)
        self._gap = span(limit.per) / limit.grants if limit is not None else None
        self._burst = span(limit.per) if limit is not None else timedelta(0)
        self._refilled = start

    def troubles(self, certificate: int) -> list[Times]:
        """When it does not issue for that certificate, whoever asks how often."""
        return [*self.outages, *(times for part, times in self._denials if _is_among(certificate, part))]

    def answer(self, certificate: int, now: datetime, *, broken: Times | None) -> Answer:
        """What it says to a request for that certificate."""
        for part, times in self._denials:
            if now in times and _is_among(certificate, part):
                return Answer(Cause.DENIED, reached=False)
        for outage in self.outages:
            if now in outage:
                until = now + outage.retry_after if outage.retry_after is not None else None
                return Answer(Cause.UNAVAILABLE, until)
        if (until := self._spent_until(now)) is not None:
            return Answer(Cause.RATE_LIMITED, until)
        if broken is not None and now in broken:
            return Answer(Cause.UNKNOWN)
        return Answer(None)

    def _spent_until(self, now: datetime) -> datetime | None:
        """When it grants the next one, None: now. A bucket that refills evenly, as Let's Encrypt's do."""
        if self._gap is None:
            return None
        at = max(self._refilled, now - self._burst) + self._gap
        if at > now:
            return at
        self._refilled = at
        return None


def _is_among(certificate: int, part: float) -> bool:
    return share(f"denied/{certificate}") < part

"""DNS hosts whose code runs in a child process: providers of dns-lexicon, and plug-ins."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from subprocess import DEVNULL, PIPE, Popen
from typing import Final, Literal

import msgspec

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.child.messages import Answer, Change, Provider, Request
from certwright.acme.solvers.dns01.hosts.contract import (
    DEFAULT_PAUSE,
    CredentialsRejected,
    DnsHost,
    Edit,
    EditsTogether,
    HostedZone,
    Outside,
    Throttled,
)
from certwright.kit.outgoing import parse_retry_after, quote
from certwright.kube.util.decoders import UNDECODABLE, json_decoder
from certwright.kube.util.programs import read_output

_MODULE: Final = "certwright.acme.solvers.dns01.child"
# Each edit of a slow API takes a second or two.
_EDITS: Final = 10
# The child ends itself if its parent cannot: after that time.
_GRACE_S: Final = 10.0
_LONGEST_ANSWER: Final = 60_000
# A pipe of Linux takes 64 KiB without a reader, so that writing does not block.
_LONGEST_REQUEST: Final = 60_000
_LONGEST_REASON: Final = 500
# A shorter value occurs in ordinary words.
_SHORTEST_SECRET: Final = 4
# Proxies and certificates; the environment may contain the key of the Secrets, and credentials.
_VARIABLES: Final = frozenset(
    {
        "all_proxy",
        "curl_ca_bundle",
        "http_proxy",
        "https_proxy",
        "lang",
        "no_proxy",
        "requests_ca_bundle",
        "ssl_cert_dir",
        "ssl_cert_file",
        "systemroot",
        "tz",
    }
)

_OF_PLUGINS: Final = "DNS01_PLUGIN_"
"""Variables that begin with this are passed to plug-ins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """Which provider, with which settings. `provider` is a `Provider` as JSON, the same bytes for the same
    settings; `secrets` are values that no error may show."""

    kind: Literal["lexicon", "plugin"]
    name: str
    provider: bytes = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    zone: HostedZone | None = None

    @property
    def label(self) -> str:
        """The provider in errors."""
        return f"{'dns-lexicon provider' if self.kind == 'lexicon' else 'plug-in'} {self.name}"

    def connect(self, outside: Outside) -> ChildHost:
        return ChildHost(self, outside)


def settings_of(provider: Provider, secrets: Sequence[bytes | str]) -> ChildSettings:
    """The settings of a provider."""
    words = {
        (secret if isinstance(secret, str) else secret.decode(errors="replace")).strip() for secret in secrets
    }
    return ChildSettings(
        kind=provider.kind,
        name=provider.name,
        provider=msgspec.json.encode(provider, order="deterministic"),
        # The longest first: a short one may be a part of it.
        secrets=tuple(
            sorted((word for word in words if len(word) >= _SHORTEST_SECRET), key=lambda w: (-len(w), w))
        ),
    )


class ChildHost(DnsHost):
    """See `DnsHost`. Each call starts a child."""

    edits_together = EditsTogether(_EDITS)

    def __init__(self, settings: ChildSettings, outside: Outside) -> None:
        self._settings = settings
        self._now = outside.now
        self._children = outside.children

    async def verify(self) -> None:
        """See `DnsHost`. Loads the provider and passes it its settings; no request is sent."""
        await self._call("verify", "be loaded")

    async def find_zone(self, name: str) -> HostedZone | None:
        answer = await self._call("find_zone", f"find the zone {name}", zone=name)
        return HostedZone(name, name) if answer.found else None

    async def apply(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        first = edits[0]
        verb = "add" if first.adds else "remove"
        what = f"{verb} the TXT record {first.name}" if len(edits) == 1 else f"change {len(edits)} records"
        changes = tuple(Change(edit.name, edit.value, edit.adds) for edit in edits)
        await self._call("apply", what, zone=zone.name, changes=changes)
        return ""

    async def _call(
        self,
        action: Literal["verify", "find_zone", "apply"],
        what: str,
        *,
        zone: str = "",
        changes: tuple[Change, ...] = (),
    ) -> Answer:
        request = Request(
            provider=msgspec.Raw(self._settings.provider),
            action=action,
            zone=zone,
            changes=changes,
            seconds=self._children.timeout_s + _GRACE_S,
        )
        text = msgspec.json.encode(request)
        failed = f"{self._settings.label} cannot {what}"
        if len(text) > _LONGEST_REQUEST:
            raise SolverError(
                f"{failed}: its settings and Secrets have {len(text)} bytes; at most {_LONGEST_REQUEST}"
            )
        async with self._children.slot(self._settings.label):
            answer = await self._run(text, failed, self._children.timeout_s, alone=len(changes) <= 1)
        if answer.reason:
            raise self._error(answer, failed)
        return answer

    async def _run(self, request: bytes, failed: str, timeout_s: float, *, alone: bool) -> Answer:
        try:
            kept = {
                name: value
                for name, value in os.environ.items()
                if name.lower() in _VARIABLES
                or (self._settings.kind == "plugin" and name.startswith(_OF_PLUGINS))
            }
            modules = os.pathsep.join(path for path in sys.path if os.path.isabs(path))
            process = _start({**kept, "PYTHONPATH": modules, "PYTHONIOENCODING": "utf-8"})
        except OSError as error:
            raise SolverError(f"{failed}: no process can be started: {error.strerror}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(request)
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            text = await read_output(process, process.stdout, most=_LONGEST_ANSWER, timeout_s=timeout_s)
        except TimeoutError:
            message = f"{failed}: it did not end within {timeout_s:g} s and was killed"
            if not alone:
                raise SolverError(message) from None  # One by one they may succeed.
            # Other challenges with these settings would wait as long.
            raise Throttled(message, self._now() + DEFAULT_PAUSE) from None
        try:
            return json_decoder(Answer).decode(text)
        except UNDECODABLE:
            raise SolverError(
                f"{failed}: its process ended with status {process.returncode} and without an answer"
            ) from None

    def _error(self, answer: Answer, failed: str) -> SolverError:
        reason = answer.reason
        for secret in self._settings.secrets:
            reason = reason.replace(secret, "…")
        shown = f"{failed}: {quote(reason, _LONGEST_REASON)}"
        if answer.retry_after:
            now = self._now()
            return Throttled(shown, parse_retry_after(answer.retry_after, now) or now + DEFAULT_PAUSE)
        return CredentialsRejected(shown) if answer.rejected else SolverError(shown)


def _start(environment: Mapping[str, str]) -> Popen[bytes]:
    return Popen(
        # Neither the working directory nor the user's own packages are searched for modules.
        (sys.executable, "-P", "-s", "-m", _MODULE),
        env=environment,
        cwd=os.sep,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        process_group=0,
    )

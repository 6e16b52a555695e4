"""Create the objects of an import, or nothing at all if one of them exists with other content."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from certwright.cli.diagnosis import condition
from certwright.cli.errors import report_warning
from certwright.cli.format import reference, sentence
from certwright.cli.importing.model import Json
from certwright.cli.related import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS, SECRETS
from certwright.kube.api import core
from certwright.kube.api.errors import ApiError, NotFound, Unauthorized, Unreachable
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.resources import names

_KINDS = {kind.kind: kind for kind in (SECRETS, ISSUERS, CLUSTER_ISSUERS, CERTIFICATES)}
_ISSUERS = (ISSUERS.kind, CLUSTER_ISSUERS.kind)
_CHECKED_WITHIN_S, _LOOKS_EVERY_S = 10.0, 0.1


class Refused(Exception):
    """Objects exist with other content, or the server refuses them; nothing has been written."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = sentences


async def write(client: Client, objects: Sequence[Json], clock: Clock) -> list[str]:
    """Create the objects in their order, and return a line for each. A repetition of the same import, or of
    one that was interrupted, changes nothing that exists.

    Raises `Refused` before anything is written, because the server is asked about every object first. Raises
    `ApiError` for an error afterwards: a repetition completes the import.
    """
    existing = [await _existing(client, desired) for desired in objects]
    conflicts = [
        f"{_reference(desired)}{_in_namespace(desired)} exists with other content; delete it, or import into "
        "another namespace"
        for desired, live in zip(objects, existing, strict=True)
        if live is not None and not _contains(live, desired)
    ]
    conflicts += [
        reason
        for desired, live in zip(objects, existing, strict=True)
        if live is None and (reason := await _refusal(client, desired))
    ]
    if conflicts:
        raise Refused(conflicts)
    lines, issuers = [], [desired for desired in objects if desired["kind"] in _ISSUERS]
    for desired, live in zip(objects, existing, strict=True):
        if desired["kind"] == CERTIFICATES.kind and issuers:
            # With a registered account the controllers can ask the server for renewal information right away.
            await _wait_checked(client, issuers, clock)
            issuers = []
        if live is None:
            await _create(client, desired)
        lines.append(f"{_reference(desired)} {'created' if live is None else 'unchanged'}")
    return lines


async def _wait_checked(client: Client, issuers: Sequence[Json], clock: Clock) -> None:
    """Return when the issuers have been checked, with a warning for each that is not Ready; or after some
    seconds, where no controllers run."""
    deadline = clock.monotonic() + _CHECKED_WITHIN_S
    waiting = list(issuers)
    while waiting and clock.monotonic() < deadline:
        live = await _existing(client, waiting[0])
        ready = condition(live, "Ready")
        if not ready:
            await clock.sleep(_LOOKS_EVERY_S)
            continue
        if ready.get("status") != "True":
            report_warning(f"{_reference(waiting[0])} is not Ready: {sentence(str(ready.get('message')))}")
        del waiting[0]


async def _refusal(client: Client, desired: Json) -> str:
    """Why the server would not create the object; empty if it would."""
    try:
        await client.create(_kind(desired), desired, dry_run=True)
    except (Unreachable, Unauthorized):
        raise
    except ApiError as error:
        return f"{_reference(desired)}{_in_namespace(desired)} is refused: {sentence(str(error))}"
    return ""


async def _existing(client: Client, desired: Json) -> Json | None:
    metadata = desired["metadata"]
    try:
        return await client.get(_kind(desired), metadata["name"], metadata.get("namespace", ""))
    except NotFound:
        return None


async def _create(client: Client, desired: Json) -> None:
    kind = _kind(desired)
    if names.CERTIFICATE_NAME not in (desired["metadata"].get("annotations") or {}):
        await client.create(kind, desired)
        return
    # As the controllers will write it: by their field manager, so that what they no longer need is removed.
    data = {key: b64decode(value) for key, value in desired["data"].items()}
    content: dict[str, Any] = {"metadata": desired["metadata"], "type": desired["type"], "data": data}
    await client.apply(core.SECRETS, content, field_manager=names.SECRET_FIELD_MANAGER, force=False)


def _contains(live: Any, desired: Any) -> bool:
    """Whether the live object has all of the desired content; the server adds defaults."""
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(_contains(live.get(key), item) for key, item in desired.items())
    if isinstance(desired, list):
        return isinstance(live, list) and len(live) == len(desired) and all(map(_contains, live, desired))
    return bool(live == desired)


def _kind(desired: Json) -> Kind[Json]:
    return _KINDS[desired["kind"]]


def _reference(desired: Json) -> str:
    return reference(_kind(desired), desired["metadata"]["name"])


def _in_namespace(desired: Json) -> str:
    namespace = desired["metadata"].get("namespace")
    return f" in namespace {namespace}" if namespace else ""

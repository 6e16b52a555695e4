"""The operator's file of notifications (`--notifications FILE`): destinations, and the problems to report.

Secrets are in files that it names, and are read again for each message.
"""

from __future__ import annotations

import difflib
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from certwright.kit.outgoing import BadUrl, parse_server_url
from certwright.kube.api import yaml_codec
from certwright.kube.util import decoders
from certwright.kube.util.durations import parse_duration

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class BadSettings(Exception):
    """The file cannot be used; the text is a sentence that names the file and the field."""


class _Strict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of the file."""


class SmtpSettings(_Strict, frozen=True, kw_only=True):
    """A mail server (RFC 5321). `tls`: `starttls` (RFC 3207, required), `tls` from the first byte (RFC 8314),
    or `none`, without authentication only. `port` None: 587, 465 or 25."""

    host: Text
    to: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1, max_length=100)]
    sender: Text = msgspec.field(name="from")
    port: Port | None = None
    tls: Literal["starttls", "tls", "none"] = "starttls"
    ca_file: Text | None = None
    username: Text | None = None
    password_file: Text | None = None


class WebhookSettings(_Strict, frozen=True, kw_only=True):
    """A URL to which the digest is posted as JSON. `url_file` instead of `url`: for a URL that is a secret.
    `token_file`: a bearer token (RFC 6750)."""

    url: Text | None = None
    url_file: Text | None = None
    token_file: Text | None = None
    ca_file: Text | None = None


class AppriseSettings(_Strict, frozen=True, kw_only=True):
    """A file of URLs of the package apprise, one a line."""

    urls_file: Text


class DestinationSettings(_Strict, frozen=True, kw_only=True):
    """A destination: its name in the log, and exactly one transport."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$")]
    smtp: SmtpSettings | None = None
    webhook: WebhookSettings | None = None
    apprise: AppriseSettings | None = None


class _File(_Strict, frozen=True, kw_only=True):
    destinations: Annotated[tuple[DestinationSettings, ...], msgspec.Meta(min_length=1, max_length=20)]
    sender: Text | None = None
    failed_attempts: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 2
    expires_within: str = "168h"
    issuer_not_ready_for: str = "10m"
    remind_every: str = "24h"


_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_FIELDS: dict[str, type[_Strict]] = {
    "destinations": DestinationSettings,
    "smtp": SmtpSettings,
    "webhook": WebhookSettings,
    "apprise": AppriseSettings,
}
"""The parts of the file by the last field of their path."""


class NotificationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings. `sender` names this installation in messages; None: the host name. `remind_every` zero:
    no reminders."""

    destinations: tuple[DestinationSettings, ...]
    sender: str | None = None
    failed_attempts: int = 2
    expires_within: timedelta = timedelta(days=7)
    issuer_not_ready_for: timedelta = timedelta(minutes=10)
    remind_every: timedelta = timedelta(hours=24)


def read_settings(path: Path) -> NotificationSettings:
    """The settings of a file, checked. Raises `BadSettings`."""
    try:
        file = decoders.convert(yaml_codec.load(path.read_text(encoding="utf-8")), _File)
        settings = NotificationSettings(
            destinations=file.destinations,
            sender=file.sender,
            failed_attempts=file.failed_attempts,
            expires_within=_duration("expiresWithin", file.expires_within),
            issuer_not_ready_for=_duration("issuerNotReadyFor", file.issuer_not_ready_for),
            remind_every=_duration("remindEvery", file.remind_every),
        )
        _check(settings)
    except OSError as error:
        raise BadSettings(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadSettings(f"{path} is not text in UTF-8") from error
    except yaml_codec.YamlError as error:
        raise BadSettings(f"{path}{f', line {error.line}' if error.line else ''}: {error}") from error
    except msgspec.ValidationError as error:
        raise BadSettings(f"{path}: {_sentence(str(error))}") from error
    except ValueError as error:
        raise BadSettings(f"{path}: {error}") from error
    return settings


def read_secret(path: str) -> str:
    """The first line of a file with a secret. Raises `ValueError` with a sentence, which has nothing of
    it."""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise ValueError(f"{path} cannot be read: {why}") from error
    if not text:
        raise ValueError(f"{path} is empty")
    return text.splitlines()[0]


def _duration(field: str, text: str) -> timedelta:
    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error
    if duration < timedelta(0):
        raise ValueError(f"{field}: {text!r} cannot be negative")
    return duration


def _sentence(error: str) -> str:
    """msgspec's `message - at `$.path`` as `path: message`."""
    what, _, place = error.partition(" - at `$")
    place = place.strip("`.")
    if match := _UNKNOWN.fullmatch(what):
        known = _FIELDS.get(place.rpartition(".")[2].partition("[")[0], _File).__struct_encode_fields__
        near = difflib.get_close_matches(match[1], known, n=1)
        fix = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
        what = f"unknown field {match[1]}; {fix}"
    return f"{place}: {what}" if place else what


def _check(settings: NotificationSettings) -> None:
    names = [destination.name for destination in settings.destinations]
    for number, destination in enumerate(settings.destinations):
        place = f"destinations[{number}]"
        if destination.name in names[:number]:
            raise ValueError(
                f"{place}.name: {destination.name!r} is used twice; give each destination its own name"
            )
        if (
            sum(each is not None for each in (destination.smtp, destination.webhook, destination.apprise))
            != 1
        ):
            raise ValueError(f"{place}: write exactly one of smtp, webhook and apprise")
        if destination.smtp is not None:
            _check_smtp(destination.smtp, f"{place}.smtp")
        if destination.webhook is not None:
            _check_webhook(destination.webhook, f"{place}.webhook")
        if destination.apprise is not None:
            _check_file(destination.apprise.urls_file, f"{place}.apprise.urlsFile")


def _check_smtp(smtp: SmtpSettings, place: str) -> None:
    for field, address in (("from", smtp.sender), *(("to", address) for address in smtp.to)):
        if "@" not in address or not address.isprintable() or any(sign in address for sign in " <>,"):
            raise ValueError(f"{place}.{field}: {address!r} is not an address; write e.g. ops@example.com")
    if (smtp.username is None) != (smtp.password_file is None):
        raise ValueError(f"{place}: username and passwordFile belong together; write both or none")
    if smtp.username is not None and smtp.tls == "none":
        raise ValueError(f"{place}.tls: a password is not sent without TLS; write starttls or tls")
    for field, file in (("passwordFile", smtp.password_file), ("caFile", smtp.ca_file)):
        _check_file(file, f"{place}.{field}")


def _check_webhook(webhook: WebhookSettings, place: str) -> None:
    if (webhook.url is None) == (webhook.url_file is None):
        raise ValueError(f"{place}: write one of url and urlFile")
    for field, file in (
        ("urlFile", webhook.url_file),
        ("tokenFile", webhook.token_file),
        ("caFile", webhook.ca_file),
    ):
        _check_file(file, f"{place}.{field}")
    check_url(webhook.url or read_secret(webhook.url_file or ""), f"{place}.url")


def check_url(url: str, place: str) -> None:
    """Raises `ValueError` for a URL that is not https; the message does not quote it."""
    try:
        scheme = parse_server_url(url).scheme
    except BadUrl as error:
        raise ValueError(f"{place}: the URL {error}") from error
    if scheme != "https":
        raise ValueError(f"{place}: write an https URL; messages are not sent over {scheme}")


def _check_file(file: str | None, place: str) -> None:
    if file is not None:
        try:
            read_secret(file)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error

"""The transport of each destination: mail by one connection, a webhook by one POST over HTTPS that follows no
redirect, or the services of the package apprise (extra `apprise`).

Source: RFC 5321 (SMTP), RFC 3207 (STARTTLS), RFC 4954 (AUTH), RFC 5322 (message format).
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from certwright.kube.util.connections import proxy_for
from certwright.kube.util.encoding import in_words
from certwright.notifications.messages import Destination, Digest, SendError
from certwright.notifications.settings import (
    AppriseSettings,
    BadSettings,
    DestinationSettings,
    NotificationSettings,
    SmtpSettings,
    WebhookSettings,
    check_url,
    read_secret,
)

if TYPE_CHECKING:
    import smtplib
    from email.message import EmailMessage


def destinations_of(settings: NotificationSettings) -> tuple[Destination, ...]:
    """The destinations of the settings. Raises `BadSettings` where a package is missing."""
    if any(destination.apprise is not None for destination in settings.destinations) and not is_installed():
        raise BadSettings(MISSING)
    return tuple(_destination(destination) for destination in settings.destinations)


def _destination(settings: DestinationSettings) -> Destination:
    send: Callable[[Digest], None]
    if settings.smtp is not None:
        kind, send = "smtp", partial(send_mail, settings.smtp)
    elif settings.webhook is not None:
        kind, send = "webhook", partial(send_to_webhook, settings.webhook)
    else:
        assert settings.apprise is not None, "`read_settings` has checked that there is one transport"
        kind, send = "apprise", partial(send_by_apprise, settings.apprise)
    return Destination(settings.name, kind, partial(asyncio.to_thread, send))


_TIMEOUT_S = 30.0
_SHOWN = 200
"""Bytes of the server's answer in an error."""
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


def message(settings: SmtpSettings, digest: Digest) -> EmailMessage:
    """The mail."""
    from email.message import EmailMessage  # see `send`
    from email.utils import format_datetime, make_msgid

    mail = EmailMessage()
    mail["Subject"] = digest.subject
    mail["From"] = settings.sender
    mail["To"] = ", ".join(settings.to)
    mail["Date"] = format_datetime(digest.at)
    mail["Message-ID"] = make_msgid(domain=settings.sender.rpartition("@")[2])
    # RFC 3834 §5: no vacation messages in return.
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(digest.text)
    return mail


def send_mail(settings: SmtpSettings, digest: Digest) -> None:
    """Send the mail; blocks, for 30 s without an answer at most. Raises `SendError`."""
    import smtplib  # Most servers never send a mail.

    port = settings.port or _PORTS[settings.tls]
    place = f"the mail server {settings.host}:{port}"
    try:
        with _connect(settings, port) as server:
            if settings.username is not None and settings.password_file is not None:
                server.login(settings.username, read_secret(settings.password_file))
            refused = server.send_message(message(settings, digest))
    except smtplib.SMTPAuthenticationError as error:
        raise SendError(f"{place} rejects the user name or password ({error.smtp_code})") from error
    except smtplib.SMTPResponseException as error:
        text = error.smtp_error if isinstance(error.smtp_error, bytes) else str(error.smtp_error).encode()
        shown = text[:_SHOWN].decode(errors="replace")
        raise SendError(f"{place} answers {error.smtp_code} {shown}") from error
    except smtplib.SMTPRecipientsRefused as error:
        raise SendError(f"{place} refuses {', '.join(error.recipients)}") from error
    except smtplib.SMTPNotSupportedError as error:
        raise SendError(f"{place} does not support what is required: {error}") from error
    except (smtplib.SMTPException, OSError, ValueError) as error:
        raise SendError(f"{place}: {_why(error)}") from error
    if refused:
        raise SendError(f"{place} refuses {', '.join(refused)}")


def _connect(settings: SmtpSettings, port: int) -> smtplib.SMTP:
    import smtplib  # see `send`

    class Server(smtplib.SMTP):
        def getreply(self) -> tuple[int, bytes]:
            if self.file is None and self.sock is not None:
                # `SMTP` itself reads any number of lines of an answer.
                self.file = LimitedAnswer(self.sock.makefile("rb"))
            return super().getreply()

    class TlsServer(Server, smtplib.SMTP_SSL):
        pass

    if settings.tls == "none":
        return Server(settings.host, port, timeout=_TIMEOUT_S)
    context = ssl.create_default_context(cafile=settings.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.tls == "tls":
        return TlsServer(settings.host, port, timeout=_TIMEOUT_S, context=context)
    server = Server(settings.host, port, timeout=_TIMEOUT_S)
    try:
        # It fails if the server does not offer it: a password never goes over a connection without TLS.
        server.starttls(context=context)
    except BaseException:
        server.close()
        raise
    return server


_LONGEST_ANSWER = 64 * 1024


class LimitedAnswer:
    """The file that a server's answers are read from; more than 64 KiB of them are an `OSError`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = _LONGEST_ANSWER

    def readline(self, limit: int = -1) -> bytes:
        """The next line."""
        line = self._file.readline(limit)
        self._left -= len(line)
        if self._left < 0:
            raise OSError(f"the answer is longer than {_LONGEST_ANSWER} bytes")
        return line

    def flush(self) -> None:
        """Nothing, because it is only read."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def send_to_webhook(settings: WebhookSettings, digest: Digest) -> None:
    """Post the digest; blocks, for 30 s without an answer at most. Raises `SendError`, which names the host
    and not the path of the URL, because that may be a secret."""
    import http.client  # Most servers never call a webhook.

    try:
        url = settings.url or read_secret(settings.url_file or "")
        check_url(url, "url")
        headers = {"Content-Type": "application/json", "User-Agent": "certwright"}
        if settings.token_file is not None:
            headers["Authorization"] = f"Bearer {read_secret(settings.token_file)}"
    except ValueError as error:
        raise SendError(f"the webhook cannot be used: {error}") from error
    host = urlsplit(url).hostname or ""
    try:
        status = _post(url, settings.ca_file, json.dumps(digest.content()).encode(), headers)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SendError(f"the webhook at {host}: {_why(error)}") from error
    if not 200 <= status < 300:
        raise SendError(f"the webhook at {host} answers {status}")


def _why(error: Exception) -> str:
    """The error in words, without its number."""
    words = str(error)
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        words = in_words(error)
    return words or type(error).__name__


def _post(url: str, ca_file: str | None, body: bytes, headers: dict[str, str]) -> int:
    import http.client  # see `send`

    parts = urlsplit(url)

    class Response(http.client.HTTPResponse):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            # `HTTPResponse` itself skips any number of interim answers (RFC 9110 §15.2).
            self.fp: Any = LimitedAnswer(self.fp)

    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    host, port = parts.hostname or "", parts.port or 443
    if proxy := proxy_for(f"{parts.scheme}://{parts.netloc}"):
        through = urlsplit(proxy)
        connection = http.client.HTTPSConnection(
            through.hostname or "", through.port or 3128, timeout=_TIMEOUT_S, context=context
        )
        connection.set_tunnel(host, port)
    else:
        connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)
    connection.response_class = Response
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


MISSING = "the package apprise is not installed: pip install 'certwright[apprise]'"


def is_installed() -> bool:
    """Whether the package can be used."""
    return find_spec("apprise") is not None


def send_by_apprise(settings: AppriseSettings, digest: Digest) -> None:
    """Send the digest; blocks. Raises `SendError`, which does not quote a URL, because each has a secret."""
    if not is_installed():
        raise SendError(MISSING)
    import apprise  # An optional package, of some 100 modules.

    services = apprise.Apprise()
    try:
        lines = Path(settings.urls_file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SendError(f"{settings.urls_file} cannot be read: {error}") from error
    urls = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    for number, url in enumerate(urls, 1):
        if not services.add(url):
            raise SendError(f"URL {number} of {settings.urls_file} is not one that apprise knows")
    if not services.notify(title=digest.subject, body=digest.text):
        raise SendError(f"apprise could not reach every service of {settings.urls_file}")

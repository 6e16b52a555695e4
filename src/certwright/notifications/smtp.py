"""Mail: a digest as a message, sent by one connection.

Source: RFC 5321 (SMTP), RFC 3207 (STARTTLS), RFC 4954 (AUTH), RFC 5322 (message format).
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from certwright.notifications.messages import Digest, SendError
from certwright.notifications.settings import SmtpSettings, read_secret
from certwright.notifications.webhook import LimitedAnswer

if TYPE_CHECKING:
    import smtplib
    from email.message import EmailMessage

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


def send(settings: SmtpSettings, digest: Digest) -> None:
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
        raise SendError(f"{place}: {error}") from error
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

"""Digests sent to a real mail server (aiosmtpd), to an HTTPS server and through apprise."""

from __future__ import annotations

import asyncio
import email
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from certwright.notifications.destinations import destinations_of
from certwright.notifications.messages import Destination, Digest, Problem, ProblemKind, SendError
from certwright.notifications.settings import read_settings

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PASSWORD = "correct horse"
NO_FIELDS: Mapping[str, object] = {}
FAILING = Problem(
    kind=ProblemKind.FAILING,
    subject="Certificate shop/wéb",
    cause="the CA said:\nno\r\nBcc: everyone@example.com",
    fix="`certwright status certificate web -n shop` explains it",
    since=NOW,
    attempts=3,
    next_attempt=NOW,
)
DIGEST = Digest(
    sender="certwright on test", at=NOW, new=(FAILING,), resolved=("issuerFailing Issuer shop/ca",)
)


@dataclass
class Mailbox:
    """What the mail server has accepted."""

    mails: list[Any] = field(default_factory=list)
    logins: list[bytes] = field(default_factory=list)
    refuses: str = ""

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's
        if self.refuses:
            return self.refuses
        self.mails.append((envelope, session.ssl is not None))
        return "250 OK"

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append(data.login)
        return AuthResult(success=data.password == PASSWORD.encode(), handled=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The file of a CA, and that of a pair for 127.0.0.1."""
    folder, ca = tmp_path_factory.mktemp("tls"), trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.crt")
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "pair.pem")
    return folder / "ca.crt", folder / "pair.pem"


@asynccontextmanager
async def mail_server(mailbox: Mailbox, **options: Any) -> AsyncIterator[int]:
    """A mail server; the value is its port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(mailbox, **options), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def submission(authority: tuple[Path, Path]) -> AsyncIterator[tuple[Mailbox, int]]:
    """A mail server that wants STARTTLS and a login."""
    mailbox, context = Mailbox(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority[1])
    wants = {"tls_context": context, "require_starttls": True, "auth_required": True}
    async with mail_server(mailbox, authenticator=mailbox.authenticate, **wants) as port:
        yield mailbox, port


def destination(tmp_path: Path, transport: str, **fields: object) -> Destination:
    file = tmp_path / "notifications.yaml"
    file.write_text(json.dumps({"destinations": [{"name": "ops", transport: fields}]}))
    return destinations_of(read_settings(file))[0]


def smtp(
    tmp_path: Path,
    port: int,
    ca: Path,
    password: str = PASSWORD,
    *,
    fields: Mapping[str, object] = NO_FIELDS,
) -> Destination:
    secret = tmp_path / "password"
    secret.write_text(password + "\n")
    base = {"host": "127.0.0.1", "port": port, "from": "certwright@example.com", "to": ["ops@example.com"]}
    login = {"username": "certwright", "passwordFile": str(secret), "caFile": str(ca)}
    return destination(tmp_path, "smtp", **{**base, **login, **fields})


async def test_a_digest_arrives_by_mail_over_tls_after_a_login(
    tmp_path: Path, submission: tuple[Mailbox, int], authority: tuple[Path, Path]
) -> None:
    mailbox, port = submission
    await smtp(tmp_path, port, authority[0]).send(DIGEST)
    assert mailbox.logins == [b"certwright"]
    ((envelope, was_encrypted),) = mailbox.mails
    assert was_encrypted
    assert (envelope.mail_from, envelope.rcpt_tos) == ("certwright@example.com", ["ops@example.com"])
    mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
    assert mail["Subject"] == "certwright: problems: 1 new, 1 resolved"
    assert mail["Bcc"] is None
    text = mail.get_content()
    for line in (
        "Certificate shop/wéb cannot be issued or renewed",
        "  failed attempts: 3",
        "  next attempt: 2026-01-02 03:04:05 UTC",
        "  Issuer shop/ca is ready again, or was deleted",
    ):
        assert line in text.splitlines()


async def test_what_a_mail_server_refuses_is_one_sentence_without_the_password(
    tmp_path: Path, submission: tuple[Mailbox, int], authority: tuple[Path, Path]
) -> None:
    mailbox, port = submission
    with pytest.raises(SendError, match="rejects the user name or password") as refused:
        await smtp(tmp_path, port, authority[0], "wrong password").send(DIGEST)
    assert "wrong" not in str(refused.value)
    with pytest.raises(SendError, match="certificate verify failed"):
        await smtp(tmp_path, port, authority[1]).send(DIGEST)
    mailbox.refuses = "552 mailbox is full"
    with pytest.raises(SendError, match="answers 552 mailbox is full"):
        await smtp(tmp_path, port, authority[0]).send(DIGEST)
    assert mailbox.mails == []


async def test_no_password_is_sent_to_a_server_without_starttls(
    tmp_path: Path, authority: tuple[Path, Path]
) -> None:
    mailbox = Mailbox()
    async with mail_server(mailbox) as port:
        with pytest.raises(SendError, match="STARTTLS"):
            await smtp(tmp_path, port, authority[0]).send(DIGEST)
        plain = {"username": None, "passwordFile": None, "caFile": None, "tls": "none"}
        await smtp(tmp_path, port, authority[0], fields=plain).send(DIGEST)
    assert (len(mailbox.mails), mailbox.logins) == (1, [])


@dataclass
class Hook:
    """An HTTPS server that records what is posted."""

    port: int = 0
    posts: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    status: int = 200


@pytest.fixture(params=[True, False], ids=["https", "http"])
def hook(request: pytest.FixtureRequest, authority: tuple[Path, Path]) -> Iterator[Hook]:
    webhook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            webhook.posts.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(webhook.status)
            self.send_header("Location", "https://127.0.0.1:1/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    if request.param:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority[1])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    webhook.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield webhook
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("hook", [True], indirect=True, ids=["https"])
async def test_a_webhook_gets_json_with_a_token(
    tmp_path: Path, hook: Hook, authority: tuple[Path, Path]
) -> None:
    for name, text in (("url", f"https://127.0.0.1:{hook.port}/secret-path?x=1"), ("token", "hunter2")):
        (tmp_path / name).write_text(text)
    fields = {
        "urlFile": str(tmp_path / "url"),
        "tokenFile": str(tmp_path / "token"),
        "caFile": str(authority[0]),
    }
    webhook = destination(tmp_path, "webhook", **fields)
    await webhook.send(DIGEST)
    ((path, headers, body),) = hook.posts
    assert (path, headers["authorization"]) == ("/secret-path?x=1", "Bearer hunter2")
    payload = json.loads(body)
    assert payload["counts"] == {"new": 1, "remaining": 0, "resolved": 1}
    assert payload["new"][0]["object"] == "Certificate shop/wéb"
    assert (payload["new"][0]["nextAttempt"], payload["new"][0]["attempts"]) == ("2026-01-02T03:04:05Z", 3)
    assert payload["resolved"] == [{"problem": "issuerFailing", "object": "Issuer shop/ca"}]
    # Slack, Mattermost and others show this.
    assert payload["text"].startswith("certwright: problems: 1 new, 1 resolved")
    # A redirect is not followed, and the path of the URL is in no error.
    hook.status = 307
    with pytest.raises(SendError) as refused:
        await webhook.send(DIGEST)
    assert str(refused.value) == "the webhook at 127.0.0.1 answers 307"


@pytest.mark.parametrize("hook", [False], indirect=True, ids=["http"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of apprise's modules
async def test_apprise_sends_to_the_urls_of_a_file(tmp_path: Path, hook: Hook) -> None:
    urls = tmp_path / "urls"
    urls.write_text(f"# chat\njson://127.0.0.1:{hook.port}/x\n")
    apprise = destination(tmp_path, "apprise", urlsFile=str(urls))
    await apprise.send(DIGEST)
    assert json.loads(hook.posts[0][2])["title"] == DIGEST.subject
    hook.status = 500
    with pytest.raises(SendError, match="apprise could not reach every service of"):
        await apprise.send(DIGEST)
    urls.write_text("nonsense\n")
    with pytest.raises(SendError, match=r"URL 1 of .* is not one that apprise knows"):
        await apprise.send(DIGEST)

"""The operator's file: what is wrong in it is named by file, field and fix."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from certwright.notifications.settings import BadSettings, read_settings

MAIL = "{name: ops, smtp: {host: mail.example.com, from: a@example.com, to: [b@example.com]}}"


def read(tmp_path: Path, text: str) -> object:
    (tmp_path / "n.yaml").write_text(text)
    return read_settings(tmp_path / "n.yaml")


def test_a_short_file_is_enough(tmp_path: Path) -> None:
    (tmp_path / "n.yaml").write_text(f"destinations: [{MAIL}]\nexpiresWithin: 72h\n")
    settings = read_settings(tmp_path / "n.yaml")
    assert settings.destinations[0].smtp is not None
    assert settings.destinations[0].smtp.tls == "starttls"
    assert (settings.failed_attempts, settings.expires_within) == (2, timedelta(hours=72))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("destinations: []", "destinations: Expected `array` of length >= 1"),
        ("destination: []", "unknown field destination; did you mean destinations?"),
        ("destinations: [{name: a, smpt: {}}]", "unknown field smpt; did you mean smtp?"),
        (
            "destinations: [{name: a, smtp: {x: 1}}]",
            "smtp: unknown field x; known here: host, to, from, port",
        ),
        ("a: [", "did not find expected node content"),
        (f"destinations: [{MAIL}, {MAIL}]", "destinations[1].name: 'ops' is used twice"),
        ("destinations: [{name: ops}]", "destinations[0]: write exactly one of smtp, webhook and apprise"),
        (
            f"destinations: [{MAIL.replace('b@example.com', 'b')}]",
            "destinations[0].smtp.to: 'b' is not an address",
        ),
        (f"destinations: [{MAIL.replace('host: mail.example.com, ', '')}]", "missing required field `host`"),
        (
            f"destinations: [{MAIL.replace('{host', '{username: x, host')}]",
            "destinations[0].smtp: username and passwordFile belong together",
        ),
        (
            f"destinations: [{MAIL.replace('{host', '{tls: none, username: x, passwordFile: /y, host')}]",
            "destinations[0].smtp.tls: a password is not sent without TLS",
        ),
        (
            f"destinations: [{MAIL.replace('{host', '{username: x, passwordFile: /no/such, host')}]",
            "destinations[0].smtp.passwordFile: /no/such cannot be read",
        ),
        (
            "destinations: [{name: chat, webhook: {url: 'http://x.example/secret'}}]",
            "destinations[0].webhook.url: write an https URL",
        ),
        (
            "destinations: [{name: chat, webhook: {}}]",
            "destinations[0].webhook: write one of url and urlFile",
        ),
        (f"destinations: [{MAIL}]\nremindEvery: daily", "remindEvery: 'daily' is not a duration"),
        (f"destinations: [{MAIL}]\nremindEvery: -1h", "remindEvery: '-1h' cannot be negative"),
    ],
)
def test_a_mistake_is_named_with_its_field(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadSettings) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path}/n.yaml")
    assert sentence in str(refused.value)
    assert "secret" not in str(refused.value).replace(str(tmp_path), "")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"none.yaml cannot be read: No such file"):
        read_settings(tmp_path / "none.yaml")

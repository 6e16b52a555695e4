"""The proxies that the environment names."""

from __future__ import annotations

import pytest

from certwright.kube.util.connections import proxy_for


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example,192.0.2.7")


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://acme.example/dir", "http://proxy.example:3128"),
        ("https://acme.example:14000", "http://proxy.example:3128"),
        ("http://acme.example/dir", ""),
        ("https://ca.inside.example/dir", ""),
        ("https://192.0.2.7:8443", ""),
        ("https://localhost:14000/dir", ""),
        ("https://127.0.0.1:14000/dir", ""),
        ("https://[::1]:14000/dir", ""),
    ],
)
def test_a_proxy_is_taken_for_servers_elsewhere(url: str, proxy: str) -> None:
    assert proxy_for(url) == proxy


def test_without_variables_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HTTPS_PROXY")
    assert proxy_for("https://acme.example/dir") == ""

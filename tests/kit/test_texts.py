"""What is shown of others' words."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from certwright.kube.util.encoding import in_words


async def test_a_connection_that_asyncio_could_not_make_is_told_with_its_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        host, port = unused.getsockname()
        with pytest.raises(ConnectionRefusedError) as caught:
            await asyncio.open_connection(host, port)
    assert in_words(caught.value) == f"Connection refused at 127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OSError(errno.EHOSTUNREACH, "Connect call failed ('::1', 80, 0, 0)"),
            "No route to host at [::1]:80",
        ),
        (OSError(errno.EPIPE, "Broken pipe"), "Broken pipe"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (OSError(None, "the name server answered SERVFAIL"), "the name server answered SERVFAIL"),
        (OSError("several things"), "several things"),
    ],
)
def test_an_error_of_the_system_is_told_in_its_words(error: OSError, words: str) -> None:
    assert in_words(error) == words

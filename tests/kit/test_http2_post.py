"""One POST over HTTP/2, frame by frame."""

from __future__ import annotations

import pytest

from certwright.kit.http2_post import Http2Error, Post

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END, END_HEADERS, PADDED, WITH_PRIORITY = 0x1, 0x4, 0x8, 0x20
OK = b"\x88"
MOST = 1000


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def post(target: str = "/q") -> Post:
    return Post("dns.example", target, (("content-type", "a/b"),), b"query", most=MOST)


def outcome(*frames: bytes) -> tuple[int, bytes]:
    exchange = post()
    exchange.receive(b"".join(frames))
    assert exchange.is_complete
    return exchange.status, bytes(exchange.body)


def test_the_request_is_one_stream_that_ends() -> None:
    request = post("/" + "x" * 300).request
    assert request.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert request.endswith(frame(DATA, b"query", END))
    # RFC 7541 §5.1: 301 is 127 + 46 + 128 * 1.
    assert b"\x05:path\x7f\xae\x01/" + b"x" * 300 in request


def test_what_arrives_byte_by_byte_is_read_and_answered() -> None:
    exchange, sent = post(), b""
    arriving = (
        frame(SETTINGS, b"\0\3\0\0\0\1", stream=0)
        + frame(PING, b"12345678", stream=0)
        + frame(HEADERS, OK + b"\0\1a\1b", END_HEADERS)
        + frame(DATA, b"one ")
        + frame(WINDOW, b"\0\0\0\1", stream=0)
        + frame(DATA, b"two")
        + frame(DATA, b"", END)
    )
    for at in range(len(arriving)):
        sent += exchange.receive(arriving[at : at + 1])
    assert (exchange.status, bytes(exchange.body), exchange.is_complete) == (200, b"one two", True)
    assert sent == frame(SETTINGS, b"", 1, 0) + frame(PING, b"12345678", 1, 0)
    assert exchange.receive(frame(RST)) == b""


@pytest.mark.parametrize(
    ("block", "status"),
    [
        (OK, 200),
        (b"\x20" + OK, 200),
        (b"\x3f\x81\x1f\x20" + OK, 200),
        (b"\x8d", 404),
        (b"\x08\x03429", 429),
        (b"\x48\x03200", 200),
        (b"\x48\x82\x10\x01", 0),
        (b"\x48\x03abc", 0),
        (b"\xbe", 0),
        (b"\x3f\xff", 0),
        (b"", 0),
    ],
)
def test_the_status_is_what_the_header_block_begins_with(block: bytes, status: int) -> None:
    assert outcome(frame(HEADERS, block, END | END_HEADERS)) == (status, b"")


def test_padding_priority_trailers_and_other_streams_are_left_out() -> None:
    assert outcome(
        frame(HEADERS, b"\x02" + b"\0\0\0\0\x10" + OK + b"pp", END_HEADERS | PADDED | WITH_PRIORITY),
        frame(CONTINUATION, b"\0\1a\1b", END_HEADERS),
        frame(DATA, b"\x03body...", PADDED),
        frame(DATA, b"another", stream=3),
        frame(RST, b"\0\0\0\0", stream=3),
        frame(PUSH, b"\0\0\0\2"),
        frame(99, b"unknown"),
        frame(HEADERS, b"\x8e", END | END_HEADERS),
    ) == (200, b"body")


def test_a_server_that_shuts_down_finishes_what_it_has_accepted() -> None:
    going = frame(GOAWAY, b"\0\0\0\1\0\0\0\0", stream=0)
    assert outcome(going, frame(HEADERS, OK, END_HEADERS), frame(DATA, b"x", END)) == (200, b"x")


@pytest.mark.parametrize(
    ("arriving", "words"),
    [
        (frame(RST, b"\0\0\0\7"), "it refused the request"),
        (frame(GOAWAY, b"\0\0\0\0\0\0\0\x0bTOPSECRET", stream=0), "it closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it does not speak HTTP/2"),
        (frame(HEADERS, OK) + frame(DATA, b"x" * 600) + frame(DATA, b"x" * 600), "more than 1000 bytes"),
    ],
)
def test_an_exchange_that_breaks_off_is_an_error_without_the_servers_words(
    arriving: bytes, words: str
) -> None:
    with pytest.raises(Http2Error, match=words) as caught:
        post().receive(arriving)
    assert "SECRET" not in str(caught.value)


def test_a_padding_longer_than_the_frame_harms_nothing() -> None:
    assert outcome(frame(HEADERS, OK), frame(DATA, b"\xffx", PADDED | END)) == (200, b"")
    assert outcome(frame(HEADERS, OK), frame(DATA, b"", PADDED | END)) == (200, b"")


@pytest.mark.parametrize("kind", [0, 4, 6, 99], ids=["empty data", "settings", "ping", "unknown"])
def test_a_response_of_endless_frames_is_refused(kind: int) -> None:
    exchange, frame = post(), bytes((0, 0, 0, kind, 0, 0, 0, 0, 1))
    for _ in range(1_000):
        exchange.receive(frame)
    with pytest.raises(Http2Error, match="too many frames"):
        exchange.receive(frame)

"""A web server of files, as users have one: HTTP-01 by `webroot` outlives our process."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextlib.contextmanager
def serving(folder: Path, host: str, port: int) -> Iterator[None]:
    """Serve the folder there."""
    server = ThreadingHTTPServer((host, port), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def shown(folder: Path) -> list[Path]:
    """The pages in a web root."""
    return [path for path in folder.rglob("*") if path.is_file()]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

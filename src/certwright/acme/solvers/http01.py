"""HTTP-01 solver: a listener of this process serves the key authorization (RFC 8555 §8.3)."""

from __future__ import annotations

from aiohttp import web

from certwright.acme.protocol.challenges import WELL_KNOWN
from certwright.acme.solvers.contract import Task
from certwright.kit.loop_thread import SideLoop

_ANY_HOST = ("0.0.0.0", "::")  # noqa: S104 - a CA comes from anywhere
_FINISHES_WITHIN_S = 1.0


class Responder:
    """One listener for all tasks, which selects the response by the token.

    Tokens are random, so the name and port of a request do not matter: a reverse proxy in front, or a
    redirect to another port, changes nothing. It has a separate thread, because a CA must get its response
    promptly even while this program is busy.
    """

    def __init__(self) -> None:
        self._shown: dict[str, dict[str, str]] = {}
        self._runner: web.ServerRunner | None = None
        self._beside = SideLoop("http-01")

    async def listen(self, host: str, port: int) -> int:
        """Listen, and return the port (0 picks a free one); an empty host is every address of this machine.

        Raises `OSError` if the port is in use or not permitted.
        """
        return await self._beside.begin(self._listen(host, port))

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._beside.run(self._end())
        self._beside.close()

    async def _listen(self, host: str, port: int) -> int:
        self._runner = web.ServerRunner(
            web.Server(self._answer), access_log=None, shutdown_timeout=_FINISHES_WITHIN_S
        )
        await self._runner.setup()
        hosts = (host,) if host else _ANY_HOST
        for number, address in enumerate(hosts):
            site = web.TCPSite(self._runner, address, port)
            try:
                await site.start()
            except OSError:
                # A machine without IPv6 has no "::"; one without IPv4 …
                if number + 1 < len(hosts) or not self._runner.addresses:
                    await self._end()
                    raise
            port = port or int(self._runner.addresses[0][1])
        return port

    async def _end(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def present(self, task: Task) -> None:
        """See `Solver`."""
        # A single assignment, because another thread reads it.
        self._shown[task.token] = {**self._shown.get(task.token, {}), task.uid: task.key}

    async def clean_up(self, task: Task) -> None:
        """See `Solver`."""
        remaining = {uid: key for uid, key in self._shown.get(task.token, {}).items() if uid != task.uid}
        if remaining:
            self._shown[task.token] = remaining
        else:
            self._shown.pop(task.token, None)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, headers={"Allow": "GET, HEAD"})
        token = request.path.removeprefix(WELL_KNOWN)
        proofs = self._shown.get(token) if request.path.startswith(WELL_KNOWN) else None
        if not proofs:
            return web.Response(status=404, text="no such challenge\n")
        # "The client … SHOULD … application/octet-stream", and what browsers show as text is safe as well.
        return web.Response(
            body=next(iter(proofs.values())).encode(), content_type="application/octet-stream"
        )

"""The site below /ui/: routes, log-in, header fields, and rendering.

Links are relative, so that the site works below any path prefix of a reverse proxy, and without its header
fields. Source: W3C, "Content Security Policy Level 3"; RFC 6265bis for cookies; OWASP, "HTTP Security
Response Headers Cheat Sheet".
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode

import msgspec
import yaml

from certwright.dashboard import live, routes
from certwright.dashboard.access import Access, Credential, Options
from certwright.dashboard.elsewhere_sources import Elsewhere
from certwright.dashboard.index import Index
from certwright.dashboard.log_lines import LogLines
from certwright.dashboard.rendering import environment, static_response
from certwright.dashboard.sessions import COOKIE, LIFETIME, Session, Sessions, TooLong
from certwright.dashboard.visit import Scopes, Tools, View, Visit
from certwright.kube.api.errors import ApiError, Forbidden, NotFound, Unauthorized
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Request, Response

ROOT: Final = "/ui/"
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_HTML: Final = "text/html; charset=utf-8"
_LARGEST_FORM: Final = 64 * 1024
_AT_A_TIME: Final = 4
"""Pages of one user that are computed at the same time; further ones wait."""

_log = logging.getLogger(__name__)


class Site:
    """The pages, and the requests that they send."""

    def __init__(self, access: Access, options: Options, sessions: Sessions, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.sessions = sessions
        self._access = access
        self._views = {re.compile(pattern): view for pattern, view in routes.VIEWS.items()}
        self._acts = {re.compile(pattern): act for pattern, act in routes.ACTS.items()}
        self._index: Index | None = None
        self._tools = Tools(
            lambda: self.index, Scopes(clock), LogLines(), options, Elsewhere(options.scan, options.files)
        )
        self._turns: dict[str, asyncio.Semaphore] = {}

    @property
    def index(self) -> Index:
        """The index, which begins to follow the API at its first use."""
        if self._index is None:
            self._index = Index(self._access.system, self.clock, namespace=self.options.namespace)
        return self._index

    async def close(self) -> None:
        """Stop following the API."""
        self._tools.log.close()
        if self._index is not None:
            await self._index.close()

    async def handle(self, request: Request) -> Response:
        """The answer to any request below /ui; never raises but `asyncio.CancelledError`."""
        try:
            response = await self._answer(request)
        except ApiError as error:
            response = self._error(request, error.http_status, str(error))
        except Exception:
            _log.exception("%s %s failed", request.method, request.target.partition("?")[0])
            response = self._error(request, 500, "the page could not be made; the server's log says why")
        response.headers = {**HEADERS, **response.headers}
        return response

    async def _answer(self, request: Request) -> Response:
        path, _, query = request.target.partition("?")
        if path == ROOT.rstrip("/"):
            return _redirect("ui/", 308)
        path = path.removeprefix(ROOT)
        if request.method not in ("GET", "HEAD", "POST"):
            return self._error(request, 405, f"{request.method} is not supported here")
        if path.startswith("static/"):
            return static_response(path.removeprefix("static/"))
        is_post = request.method == "POST"
        if is_post and request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return self._error(request, 403, "the form was sent by another site")
        fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=50))
        said = fields.pop("said", ""), fields.pop("seal", "")
        form = _form(request) if is_post else {}
        if path == "login":
            return await (self._log_in(request, form) if is_post else self._show_login(fields))
        try:
            visit = await self._visit(request, path, fields, form)
            if visit.session is not None and self.sessions.is_notice(visit.session, *said):
                visit.notice = said[0]
        except Unauthorized:
            if "authorization" in request.headers or is_post or path in ("status.json", "live"):
                return self._error(request, 401, "the token is not valid (any more)")
            return _redirect(f"{'../' * path.count('/')}login", 302)
        if is_post:
            return await self._act(request, visit)
        return await self._show(visit)

    async def _visit(
        self, request: Request, path: str, query: Mapping[str, str], form: Mapping[str, str]
    ) -> Visit:
        """The visit of the authenticated user. Raises `Unauthorized`."""
        session, credential = self._credential(request)
        identity = await self._access.identify(credential, request)
        client = self._access.client(credential, identity)
        return Visit(
            path,
            query,
            identity,
            credential,
            session,
            client,
            self._tools,
            self.clock.now(),
            form,
        )

    async def identify_again(self, visit: Visit) -> None:
        """Check that the session of the visit has not ended since. Raises `ApiError`."""
        if visit.session is not None and not self.sessions.is_valid(visit.session):
            raise Unauthorized("the session has ended")
        visit.identity = await self._access.identify(visit.credential)

    def _credential(self, request: Request) -> tuple[Session | None, Credential]:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return None, Credential(token.strip())
        session = self.sessions.read(_cookie(request))
        if session is not None:
            return session, session.credential
        return None, Credential(certificate=request.peer_certificate or b"")

    async def _show(self, visit: Visit) -> Response:
        if visit.path == "live":
            return await live.stream(self, visit)
        turn = self._turns.setdefault(visit.identity.name, asyncio.Semaphore(_AT_A_TIME))
        async with turn:
            view = await self.view(visit)
        if isinstance(view, Response):
            return view
        body = self.render(visit, view).encode()
        return Response(view.status, {"content-type": _HTML}, body)

    async def view(self, visit: Visit) -> View | Response:
        """What the page of the visit shows. Raises `ApiError`."""
        for pattern, view in self._views.items():
            if (match := pattern.fullmatch(visit.path)) is not None:
                visit.arguments = tuple(unquote(group) for group in match.groups())
                return await view(visit)
        raise NotFound("there is no such page")

    def render(self, visit: Visit, view: View) -> str:
        """The page."""
        return environment().get_template(view.template).render(self.context(visit, view))

    def blocks(self, visit: Visit, view: View) -> dict[str, str]:
        """The live blocks of the page."""
        template = environment().get_template(view.template)
        context = template.new_context(self.context(visit, view))
        return {name: "".join(template.blocks[name](context)) for name in view.live}

    def context(self, visit: Visit, view: View) -> dict[str, Any]:
        """What every template may use, and the view's own."""
        is_read_only = self.options.read_only or visit.session is None
        return {
            "root": visit.root,
            "path": visit.path,
            "query": visit.query,
            "user": visit.identity.name,
            "now": visit.now,
            "is_read_only": is_read_only,
            "form_token": self.sessions.form_token(visit.session) if visit.session is not None else "",
            "command": self.options.command,
            "live": view.live,
            "notice": visit.notice,
            "is_report": False,
            **view.context,
        }

    async def _act(self, request: Request, visit: Visit) -> Response:
        if visit.path == "link":
            # With a token in a header field: no browser sends that by itself.
            if visit.session is not None:
                return self._error(request, 403, "a link is made with a token or a client certificate")
            code = self.sessions.make_link(visit.credential)
            return Response(
                201, {"content-type": "application/json"}, msgspec.json.encode({"path": f"login?code={code}"})
            )
        if visit.session is None:
            return self._error(request, 403, "forms are sent within a session: log in first")
        if not self.sessions.is_form_token(visit.session, visit.form.get("token", "")):
            return self._error(request, 403, "the form is not of this session: load the page again")
        if visit.path == "logout":
            self.sessions.end(visit.session)
            return _redirect("login", cookie=f"{COOKIE}=; Max-Age=0; {_ATTRIBUTES}")
        if self.options.read_only:
            return self._error(request, 403, "this dashboard changes nothing (--dashboard=read-only)")
        for pattern, act in self._acts.items():
            if (match := pattern.fullmatch(visit.path)) is not None:
                visit.arguments = tuple(unquote(group) for group in match.groups())
                done = await act(visit)
                said = urlencode(
                    {"said": done.said, "seal": self.sessions.seal_notice(visit.session, done.said)}
                )
                return _redirect(f"{visit.root}{done.path}?{said}")
        raise NotFound("there is no such form")

    async def _show_login(self, query: Mapping[str, str], problem: str = "") -> Response:
        if code := query.get("code", ""):
            if (credential := self.sessions.use_link(code)) is not None:
                return self._begin(credential)
            problem = (
                f"this link has been used, or is too old; `{self.options.command} dashboard` makes another"
            )
        context = {"problem": problem, "root": "./", "command": self.options.command}
        page = environment().get_template("login.html").render(context)
        return Response(401 if problem else 200, {"content-type": _HTML}, page.encode())

    async def _log_in(self, request: Request, form: Mapping[str, str]) -> Response:
        try:
            credential = Credential(_token_in(form.get("credential", "")))
            await self._access.identify(credential, request)
            return self._begin(credential)
        except Unauthorized:
            return await self._show_login({}, "the server does not accept this token")
        except ValueError as error:
            return await self._show_login({}, str(error))

    def _begin(self, credential: Credential) -> Response:
        try:
            value = self.sessions.begin(credential)
        except TooLong as error:
            raise Forbidden(str(error)) from error
        age = int(LIFETIME.total_seconds())
        return _redirect("./", cookie=f"{COOKIE}={value}; Max-Age={age}; {_ATTRIBUTES}")

    def _error(self, request: Request, status: int, sentence: str) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            body = msgspec.json.encode({"status": status, "message": sentence})
            return Response(status, {"content-type": "application/json"}, body)
        depth = request.target.partition("?")[0].removeprefix(ROOT).count("/")
        context = {"status": status, "sentence": sentence, "root": "../" * depth or "./"}
        return Response(
            status,
            {"content-type": _HTML},
            environment().get_template("error.html").render(context).encode(),
        )


# No Path: the browser takes the folder of the page, also below the prefix of a proxy.
_ATTRIBUTES: Final = "Secure; HttpOnly; SameSite=Strict"


def _redirect(location: str, status: int = 303, *, cookie: str = "") -> Response:
    fields = {"location": location, "content-length": "0"}
    return Response(status, fields | ({"set-cookie": cookie} if cookie else {}))


def _cookie(request: Request) -> str:
    for part in re.split(r"[;\n]", request.headers.get("cookie", "")):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def _form(request: Request) -> dict[str, str]:
    if len(request.body) > _LARGEST_FORM:
        return {}
    return dict(parse_qsl(request.body.decode(errors="replace"), keep_blank_values=True, max_num_fields=50))


def _token_in(text: str) -> str:
    """The token, also of a kubeconfig. Raises `ValueError` with a sentence."""
    text = text.strip()
    if "\n" not in text and ":" not in text:
        return text
    try:
        config = yaml.safe_load(text)
        users = {entry["name"]: entry["user"] for entry in config["users"]}
        contexts = {entry["name"]: entry["context"] for entry in config["contexts"]}
        user = users[contexts[config["current-context"]]["user"]]
    except (yaml.YAMLError, KeyError, TypeError):
        raise ValueError("this is neither a token nor a kubeconfig with a current context") from None
    if not isinstance(user, dict) or not user.get("token"):
        raise ValueError(
            "the kubeconfig's current user has no token; `certwright dashboard` makes a link with it"
        )
    return str(user["token"])

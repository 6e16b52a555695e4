"""The site below /ui/: routes, log-in, header fields, and rendering.

Links are relative, so that the site works below any path prefix of a reverse proxy, and without its header
fields. Source: W3C, "Content Security Policy Level 3"; RFC 6265bis for cookies; OWASP, "HTTP Security
Response Headers Cheat Sheet".
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from certwright.dashboard import live, routes
from certwright.dashboard.access import Access, Credential, Options, ProcessorShare
from certwright.dashboard.elsewhere_sources import Elsewhere
from certwright.dashboard.index import Index
from certwright.dashboard.log_lines import LogLines
from certwright.dashboard.log_outs import LogOuts
from certwright.dashboard.rendering import environment, static_response
from certwright.dashboard.sessions import COOKIE, LIFETIME, Session, Sessions
from certwright.dashboard.visit import Scopes, Tools, View, Visit
from certwright.kube.api.errors import (
    ApiError,
    BadRequest,
    Details,
    Forbidden,
    NotFound,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from certwright.kube.api.manifests import read_value
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Identity, Request, Response
from certwright.kube.util.tasks import TaskSet

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
_LARGEST_KUBECONFIG: Final = 32 * 1024
_MOST_FIELDS: Final = 50
_UNUSED_S: Final = 600.0
"""After which time without a request or an open page the index is freed."""
_MOST_STREAMS_OF_ONE: Final = 20
_MOST_STREAMS: Final = 400
"""Pages that are open and visible."""
_SHARE_OF_STREAMS, _SAVED_S = 0.03, 0.05
"""The share of a processor that all streams together may use for rendering, and the time that is saved up
while nothing changes. A page takes 3 to 5 ms, so a single one follows changes that never end within 0.2 s."""

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
        self._used = 0.0
        self._tasks = TaskSet()
        self._tools = Tools(
            lambda: self.index,
            Scopes(clock, lambda: access.generation),
            LogLines(),
            options,
            Elsewhere(options.scan, options.files),
        )
        self._streams: Counter[str] = Counter()
        self.share = ProcessorShare(_SHARE_OF_STREAMS, _SAVED_S)
        self._log_outs = LogOuts(access.system, clock, sessions) if options.shares_sessions else None
        self._is_closed = False

    @property
    def index(self) -> Index:
        """The index, which begins to follow the API at its first use."""
        if self._index is None:
            self._index = Index(self._access.system, self.clock, namespace=self.options.namespace)
            self._tasks.start(self._release(self._index), name="dashboard: release")
        self._used = self.clock.monotonic()
        return self._index

    async def _release(self, index: Index) -> None:
        """Free the index once nobody has looked for a while."""
        while index.observers or self.clock.monotonic() - self._used < _UNUSED_S:
            await self.clock.sleep(_UNUSED_S / 2)
        self._index = None
        await index.close()

    def use(self, *, read_only: bool) -> None:
        """Change a setting while pages are open."""
        self.options = self._tools.options = replace(self.options, read_only=read_only)

    async def close(self) -> None:
        """Stop following the API; open streams end."""
        self._is_closed = True
        self._tools.log.close()
        if self._log_outs is not None:
            await self._log_outs.close()
        await self._tasks.close()
        if self._index is not None:
            await self._index.close()

    async def handle(self, request: Request) -> Response:
        """The answer to any request below /ui; never raises but `asyncio.CancelledError`."""
        try:
            response = await self._answer(request)
        except ApiError as error:
            response = self._error(request, error.http_status, str(error))
            if error.details is not None and error.details.retry_after_seconds:
                response.headers["retry-after"] = str(error.details.retry_after_seconds)
        except Unreachable as error:
            response = self._error(request, 503, f"the API cannot be reached: {error}")
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
        is_post = request.method == "POST"
        if path.startswith("static/") and request.method in _READING:
            return static_response(path.removeprefix("static/"))
        if is_post and _is_from_elsewhere(request):
            return self._error(request, 403, "the form was sent by another site")
        fields, form = _fields(query), _form(request) if is_post else {}
        said = fields.pop("said", ""), fields.pop("seal", "")
        if path == "login" and (is_post or request.method in _READING):
            return await (self._log_in(request, form) if is_post else self._show_login(request, fields))
        try:
            visit = await self._visit(request, path, fields, form)
            if visit.session is not None and self.sessions.is_notice(visit.session, *said):
                visit.notice = said[0]
        except Unauthorized:
            return self._unauthorized(request, path, query)
        if is_post:
            return await self._act(request, visit)
        if request.method not in _READING:
            response = self._error(request, 405, f"{request.method} is not supported here")
            response.headers["allow"] = "GET, HEAD, POST"
            return response
        return await self._show(request, visit)

    def _unauthorized(self, request: Request, path: str, query: str) -> Response:
        is_for_programs = path in ("status.json", "live") or "authorization" in request.headers
        if request.method not in _READING or is_for_programs:
            response = self._error(request, 401, "the token is not valid (any more): log in first")
            response.headers["www-authenticate"] = "Bearer"
            return response
        if _is_first_arrival(request):
            # After a link on another site, the browser leaves out the cookie (SameSite=Strict); it sends the
            # cookie when a page of this site leads on. The address is relative: it never leads to another
            # site.
            address = f"./{path.rpartition('/')[2]}" + (f"?{query}" if query else "")
            page = environment().get_template("arrival.html").render(address=_quoted(address))
            return Response(200, {"content-type": _HTML}, page.encode())
        wanted = self._page_named(f"{path}?{query}" if query else path)
        back = "../" * path.count("/")
        return _redirect(f"{back}login{'?' + urlencode({'next': wanted}) if wanted else ''}", 302)

    def _page_named(self, text: str) -> str:
        """The path below /ui/ and the query of a page that exists; empty for anything else."""
        path, _, query = text.partition("?")
        is_page = any(pattern.fullmatch(path) for pattern in self._views) and path != "status.json"
        if not is_page or {".", ".."} & {unquote(part) for part in path.split("/")}:
            return ""
        return _quoted(f"{path}?{query}" if query else path)

    async def _visit(
        self, request: Request, path: str, query: Mapping[str, str], form: Mapping[str, str]
    ) -> Visit:
        """The visit of the authenticated user. Raises `Unauthorized`."""
        if any(name.startswith("impersonate-") for name in request.headers):
            raise Forbidden("the dashboard shows what the user of the token may see, and impersonates nobody")
        if self._log_outs is not None:
            await self._log_outs.wait_synced()
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
        if self._is_closed or (visit.session is not None and not self.sessions.is_valid(visit.session)):
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

    async def _show(self, request: Request, visit: Visit) -> Response:
        if visit.path == "live":
            if request.method == "HEAD":
                return Response(200, {"content-type": live.CONTENT_TYPE})
            response = await live.stream(self, visit, self._count_stream(self._access.flow(visit.identity)))
        else:
            response = await self.page(visit)
        # A cookie of a deeper path would be for that path only.
        if (
            visit.session is not None
            and "/" not in visit.path
            and (value := self.sessions.renewed(visit.session))
        ):
            response.headers["set-cookie"] = _cookie_field(value, visit.session.end - visit.now.timestamp())
        return response

    def _count_stream(self, flow: str) -> Callable[[], None]:
        """Count an open page of a user; the returned function ends it. Raises `TooManyRequests`."""
        if self._streams[flow] >= _MOST_STREAMS_OF_ONE or self._streams.total() >= _MOST_STREAMS:
            raise TooManyRequests(
                "too many pages are open: this one does not follow changes",
                details=Details(retry_after_seconds=60),
            )
        self._streams[flow] += 1

        def end() -> None:
            self._streams[flow] -= 1
            if not self._streams[flow]:
                del self._streams[flow]

        return end

    async def _view(self, visit: Visit) -> View | Response:
        """What the page of the visit shows. Raises `ApiError`."""
        for pattern, view in self._views.items():
            if (match := pattern.fullmatch(visit.path)) is not None:
                visit.arguments = tuple(unquote(group) for group in match.groups())
                return await view(visit)
        raise NotFound("there is no such page")

    async def page(self, visit: Visit) -> Response:
        """The page of the visit. Raises `ApiError`."""
        async with self._access.turn(visit.identity):
            view = await self._view(visit)
            if isinstance(view, Response):
                return view
            return Response(view.status, {"content-type": _HTML}, self.render(visit, view).encode())

    async def blocks(self, visit: Visit) -> tuple[View | Response, dict[str, str]]:
        """The content of the visit's page, and its live blocks. Raises `ApiError`."""
        async with self._access.turn(visit.identity):
            view = await self._view(visit)
            if isinstance(view, Response):
                return view, {}
            template = environment().get_template(view.template)
            context = template.new_context(self.context(visit, view))
            return view, {name: "".join(template.blocks[name](context)) for name in view.live}

    def render(self, visit: Visit, view: View) -> str:
        """The page as text."""
        return environment().get_template(view.template).render(self.context(visit, view))

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
            await self._end(visit.session, visit.identity)
            return _redirect("login", cookie=_cookie_field("", 0))
        if self.options.read_only:
            return self._error(request, 403, "this dashboard changes nothing (--dashboard=read-only)")
        for pattern, act in self._acts.items():
            if (match := pattern.fullmatch(visit.path)) is not None:
                visit.arguments = tuple(unquote(group) for group in match.groups())
                async with self._access.action(visit.identity):
                    done = await act(visit)
                said = urlencode(
                    {"said": done.said, "seal": self.sessions.seal_notice(visit.session, done.said)}
                )
                return _redirect(f"{visit.root}{done.path}?{said}")
        raise NotFound("there is no such form")

    async def _end(self, session: Session, identity: Identity) -> None:
        """End the session, on all servers of the store."""
        ended = self.sessions.end(session)
        # A user with too many log-outs at the same time has them on this server.
        with suppress(TooManyRequests):
            if self._log_outs is not None:
                async with self._access.action(identity):
                    await self._log_outs.record(*ended, self._access.flow(identity))

    async def _show_login(self, request: Request, query: Mapping[str, str], problem: str = "") -> Response:
        code, wanted = query.get("code", ""), self._page_named(query.get("next", ""))
        # A link followed from another site (a mail, a chat) asks first: no other site can log a user in, and
        # programs that fetch links do not use it up.
        if code and request.method == "GET" and not _is_from_elsewhere(request):
            return await self._log_in(request, {"code": code, "next": wanted})
        context = {
            "problem": problem,
            "root": "./",
            "how": self.options.how_to_log_in
            or f"On the server, `{self.options.command} dashboard` makes a link that logs you in.",
            "code": code,
            "next": wanted,
        }
        page = environment().get_template("login.html").render(context)
        return Response(401 if problem else 200, {"content-type": _HTML}, page.encode())

    async def _log_in(self, request: Request, form: Mapping[str, str]) -> Response:
        """Begin a session with the token, kubeconfig or code of the form."""
        wanted = {"next": form.get("next", "")}
        try:
            async with self._access.attempt(request):
                credential = self._offered(form)
                await self._access.identify(credential, request)
                value = self.sessions.begin(credential)
        except Unauthorized:
            return await self._show_login(request, wanted, "the server does not accept this token")
        except ValueError as error:
            return await self._show_login(request, wanted, str(error))
        where = f"./{self._page_named(wanted['next'])}"
        return _redirect(where, cookie=_cookie_field(value, LIFETIME.total_seconds()))

    def _offered(self, form: Mapping[str, str]) -> Credential:
        """The credential of a form. Raises `ValueError` with a sentence."""
        if code := form.get("code", ""):
            if (credential := self.sessions.use_link(code)) is not None:
                return credential
            raise ValueError(
                f"this link has been used, or is too old; `{self.options.command} dashboard` makes another"
            )
        return Credential(_token_in(form.get("credential", "")))

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


_READING: Final = ("GET", "HEAD")
# Of RFC 3986, without what begins another part of an address or ends a header field.
_IN_ADDRESSES: Final = "/?=&%#~-._:@!$()*+,;"


def _cookie_field(value: str, age_s: float) -> str:
    # No Path: the browser takes the folder of the page, also below the prefix of a proxy.
    return f"{COOKIE}={value}; Max-Age={int(age_s)}; Secure; HttpOnly; SameSite=Strict"


def _redirect(location: str, status: int = 303, *, cookie: str = "") -> Response:
    fields = {"location": _quoted(location), "content-length": "0"}
    return Response(status, fields | ({"set-cookie": cookie} if cookie else {}))


def _quoted(address: str) -> str:
    return quote(address, safe=_IN_ADDRESSES)


def _cookie(request: Request) -> str:
    for part in re.split(r"[;,\n]", request.headers.get("cookie", "")):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def _is_from_elsewhere(request: Request) -> bool:
    """Whether another site's page has sent the request. Source: W3C, "Fetch Metadata Request Headers"; for
    browsers without these headers, RFC 6454 §7."""
    site, origin = request.headers.get("sec-fetch-site", ""), request.headers.get("origin", "")
    if site:
        return site not in ("same-origin", "none")
    hosts = {request.headers.get(name, "").strip() for name in ("host", "x-forwarded-host")}
    return bool(origin) and urlsplit(origin).netloc not in hosts - {""}


def _is_first_arrival(request: Request) -> bool:
    """Whether a browser opens a page by a link on another site, without the cookie of a session."""
    fetch = {name: request.headers.get(f"sec-fetch-{name}", "") for name in ("site", "mode", "dest")}
    is_navigation = fetch == {"site": "cross-site", "mode": "navigate", "dest": "document"}
    return is_navigation and request.method == "GET" and not _cookie(request)


def _fields(text: str) -> dict[str, str]:
    """Fields of a query or a form. Raises `BadRequest`."""
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise BadRequest(f"more than {_MOST_FIELDS} fields") from None


def _form(request: Request) -> dict[str, str]:
    if len(request.body) > _LARGEST_FORM:
        raise TooLarge(f"the form has more than {_LARGEST_FORM} bytes")
    return _fields(request.body.decode(errors="replace"))


def _token_in(text: str) -> str:
    """The token, also of a kubeconfig. Raises `ValueError` with a sentence."""
    text = text.strip()
    if not text:
        raise ValueError("paste a token, or a kubeconfig with one")
    if "\n" not in text and ":" not in text:
        return text
    if len(text) > _LARGEST_KUBECONFIG:
        raise ValueError(
            f"the kubeconfig has more than {_LARGEST_KUBECONFIG} characters; paste its token alone"
        )
    try:
        config = read_value(text)
        users = {entry["name"]: entry["user"] for entry in config["users"]}
        contexts = {entry["name"]: entry["context"] for entry in config["contexts"]}
        user = users[contexts[config["current-context"]]["user"]]
    except (ValueError, KeyError, TypeError):
        raise ValueError("this is neither a token nor a kubeconfig with a current context") from None
    if not isinstance(user, dict) or not isinstance(user.get("token"), str) or not user["token"]:
        raise ValueError(
            "the kubeconfig's current user has no token; `certwright dashboard` makes a link with it"
        )
    return str(user["token"])

"""The API server: maps each request to one response.

`ApiServer.handle` is a plain function on bytes, so that the controllers of the same process use the same
authentication, authorization and admission as every client, without a socket.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from certwright.kube.api import naming
from certwright.kube.api.errors import (
    ApiError,
    BadRequest,
    InternalError,
    NotAcceptable,
    StorageReadError,
    TooLarge,
    Unavailable,
)
from certwright.kube.apiserver import bootstrap, dispatch
from certwright.kube.apiserver.admission.chain import AdmissionChain
from certwright.kube.apiserver.admission.policies import Policies
from certwright.kube.apiserver.admission.webhooks import Webhooks
from certwright.kube.apiserver.aggregation_proxy import AggregationProxy, FrontProxy, trust_settings
from certwright.kube.apiserver.auth.authentication import Authenticator, FirstOf, act_as, authenticate
from certwright.kube.apiserver.auth.rbac import Rbac, RbacAuthorizer
from certwright.kube.apiserver.auth.service_accounts import ServiceAccounts
from certwright.kube.apiserver.auth.tokens import TokenIssuer
from certwright.kube.apiserver.background.expiry import DEFAULT_TTL, EventExpiry
from certwright.kube.apiserver.background.gc import GarbageCollector
from certwright.kube.apiserver.background.own_objects import ApiServices, NamespaceContents, RoleAggregation
from certwright.kube.apiserver.background.termination import ServedKinds, Termination
from certwright.kube.apiserver.background.token_secrets import TokenSecrets
from certwright.kube.apiserver.background.worker import OwnClient
from certwright.kube.apiserver.base.features import FeatureGates
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.base.users import MASTERS
from certwright.kube.apiserver.bootstrap import ensure_object
from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.crds.controllers import DefinitionControllers
from certwright.kube.apiserver.crds.conversion import Conversions, Verb
from certwright.kube.apiserver.crds.rules import DefinitionSchema
from certwright.kube.apiserver.dispatch import Dispatch
from certwright.kube.apiserver.http import fairness
from certwright.kube.apiserver.http.fairness import Fairness, InFlight
from certwright.kube.apiserver.metrics import Metrics, Source, Track
from certwright.kube.apiserver.model.backend import BOOTSTRAP, Backend, Call, Namespaces
from certwright.kube.apiserver.model.definitions import Extensions, ResourceDefinition
from certwright.kube.apiserver.model.negotiation import JSON, WHOLE, Shape, negotiate
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.model.routes import Action, RequestLine, parse_request_line
from certwright.kube.apiserver.paths import Encryption, Health, Paths
from certwright.kube.apiserver.representations import responses
from certwright.kube.apiserver.representations.encodings import convert, convert_failure
from certwright.kube.apiserver.requests.bodies import check_timeout
from certwright.kube.apiserver.verbs.access_reviews import AccessReviews
from certwright.kube.apiserver.verbs.watch import Watches
from certwright.kube.store import contract
from certwright.kube.store.contract import Store
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Identity, Request, Response
from certwright.kube.util.tasks import TaskSet

_log = logging.getLogger(__name__)
_WRITES = frozenset({"create", "update", "patch"})
_CHANGES = _WRITES | {"delete"}
_CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_MYSELF = Identity("system:apiserver", groups=(MASTERS,))

_NAME_SELECTOR = re.compile(r"metadata\.name==?([^,=!]+)")


class ApiServer:
    """Kubernetes' API over a store.

    `authenticator` identifies the sender of a request without a user from this process; ServiceAccount
    tokens, which `tokens` signs, are accepted too. `anonymous`: accept requests without credentials.
    `root_ca`: PEM of the CA that verifies this server, for the ConfigMap in every namespace; empty: none.
    `event_ttl`: how long an Event lives after it was last written; zero: for ever. `bookmark_every_s` None:
    no bookmarks but those that end a stream. `name_suffix` generates the suffix of generated names. `gates`:
    feature gates. `in_flight`: limits on concurrent requests, of those that do not come from this process.
    `extensions`: the embedding program's additions to kinds.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        authenticator: Authenticator,
        tokens: TokenIssuer | None = None,
        anonymous: bool = False,
        root_ca: str = "",
        event_ttl: timedelta = DEFAULT_TTL,
        bookmark_every_s: float | None = 60.0,
        name_suffix: Callable[[], str] = naming.random_suffix,
        gates: FeatureGates | None = None,
        in_flight: InFlight | None = None,
        extensions: Extensions = MappingProxyType({}),
    ) -> None:
        registry = make_registry(clock, extensions)
        self._anonymous = anonymous
        self._tasks = TaskSet()
        self._backend = Backend(store, registry, clock, Namespaces(store), name_suffix, self._tasks)
        self._backend.gates = gates or FeatureGates()
        self._rbac = Rbac()
        authorizer = RbacAuthorizer(self._rbac)
        self._backend.authorizer = authorizer
        tokens = tokens or TokenIssuer()
        self._accounts = ServiceAccounts(self._backend, tokens)
        self._authenticator = FirstOf(authenticator, self._accounts)
        self._client = OwnClient(self.handle, _MYSELF)
        self._tokens = TokenSecrets(self._backend, self._client, tokens, root_ca)
        self._garbage = GarbageCollector(self._backend, read=self._tokens.enqueue)
        self._served = ServedKinds(registry)
        self._watches = Watches(self._backend, bookmark_every_s=bookmark_every_s)
        reviews = AccessReviews(authorizer, authenticator, self._accounts)
        self._dispatch = Dispatch(self._watches, self._accounts, reviews)
        self._termination = Termination(self._backend, self._tasks, closed=self._watches.close_soon)
        self._webhooks = Webhooks(self._backend)
        self._policies = Policies(self._backend, Conversions(self._webhooks.client))
        self._backend.admission = AdmissionChain(self._backend, self._webhooks, self._policies, self._rbac)
        self._aggregated = AggregationProxy(self._webhooks.client)
        self._contents = NamespaceContents(self._backend, self._client, root_ca)
        self._aggregation = RoleAggregation(self._backend)
        self._expiry = EventExpiry(self._backend, event_ttl)
        self._local = ApiServices(self._backend, self._client)
        self._controllers = DefinitionControllers(self._backend)
        self._conversions = Conversions(self._webhooks.client)
        self._health = Health(store)
        self._fairness = Fairness(store, registry, in_flight or InFlight())
        self._backend.observe(
            self._controllers,
            self._served,  # components that observe a definition after it may look up its kinds
            self._backend.namespaces,
            self._termination,
            self._garbage,
            self._webhooks,
            self._policies,
            self._aggregated,
            self._rbac,
            self._accounts,
            self._tokens,
            self._contents,
            self._aggregation,
            self._expiry,
            self._local,
            self._fairness.sizes,
        )
        self._backend.follow_store()
        self._metrics = Metrics(store, self._watched, lambda: self._fairness.levels)
        self._paths = Paths(registry, self._metrics, self._health, Encryption(store), tokens)

    @property
    def idle(self) -> bool:
        """Whether the background work (garbage, terminating namespaces, …) is done."""
        controllers = (self._contents, self._aggregation, self._local, self._tokens)
        others = (self._garbage, self._termination, self._expiry)
        return all(each.worker.idle for each in controllers) and all(each.idle for each in others)

    @property
    def rights_generation(self) -> int:
        """A number that grows with every change of a role or a binding."""
        return self._rbac.generation

    @property
    def open_watches(self) -> int:
        """The number of open watches."""
        return len(self._watches)

    async def start(self, crds: list[dict[str, Any]], *, collects_garbage: bool = True) -> None:
        """Serve the content of the store; create or update `crds`; create the default namespaces.

        Without `collects_garbage`, garbage collection starts when `collect_garbage` is called.
        Raises `ApiError` when an object is refused, and `store.contract.StoreError`.
        """
        for observer in (self._served, self._rbac, self._webhooks, self._policies, self._aggregated):
            await self._backend.replay(observer)
        for crd in crds:
            change = partial(_with_spec_of, desired=crd)
            await ensure_object(self._client, _CRDS_PATH, crd, change, agent="certwright")
        for name in BOOTSTRAP:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await ensure_object(self._client, "/api/v1/namespaces", namespace, lambda _: None)
        await self._backend.replay(self._aggregation)
        self._backend.loaded()
        await bootstrap.ensure_rbac(self._client)
        await self._aggregation.worker.work_off()
        await self._contents.fill_all()
        if collects_garbage:
            self.collect_garbage()
        self._tasks.start(self._aggregation.worker.run(), name="aggregated roles")
        self._tasks.start(self._contents.worker.run(), name="contents of namespaces")
        self._tasks.start(self._tokens.worker.run(), name="tokens in Secrets")
        self._tasks.start(self._expiry.run(), name="expiry of events")
        self._local.worker.add("")
        self._tasks.start(self._local.worker.run(), name="APIServices")
        await self._termination.resume()
        self._health.started = True

    def collect_garbage(self) -> None:
        """Start the garbage collector. It begins with reading all objects' metadata."""
        self._tasks.start(self._garbage.run(), name="garbage collector")

    async def publish(self, *, host: str, port: int) -> None:
        """Publish the server's address in the Service `kubernetes`. Raises `ApiError`."""
        await bootstrap.publish_service(self._client, host=host, port=port)

    def use_limits(self, in_flight: InFlight) -> None:
        """Replace the limits on concurrent requests."""
        self._fairness.use(in_flight)

    def use_root_ca(self, pem: str) -> None:
        """Publish another CA that verifies this server, from now on.

        Existing ConfigMaps and Secrets get the CA at the next start, because servers on one store renew their
        CA at slightly different moments and would replace each other's.
        """
        self._contents.root_ca = pem
        self._tokens.use_root_ca(pem)

    def use_front_proxy(self, proxy: FrontProxy, client_ca: str) -> None:
        """Present this client certificate to aggregated servers from now on, and publish the CAs by which
        they know it and the clients of this server (`client_ca`, PEM)."""
        self._aggregated.pair_pem = proxy.pair_pem
        self._contents.trust(trust_settings(proxy, client_ca))

    async def close(self) -> None:
        """End all watches and the background work. The store stays open: its owner closes it."""
        self._health.stopping = True
        self._watches.close()
        await self._tasks.close()
        await self._webhooks.client.close()

    def _watched(self) -> dict[ResourceDefinition, int]:
        """The number of watches of each resource."""
        counts: dict[ResourceDefinition, int] = {}
        for bucket in self._watches.buckets():
            definition = self._backend.registry.by_bucket(bucket)
            if definition is not None:
                counts[definition] = counts.get(definition, 0) + 1
        return counts

    async def handle(self, request: Request) -> Response:
        """Answer any request; never raises but `asyncio.CancelledError`."""
        metrics = self._metrics
        track = metrics.begin(request.method)
        try:
            response = await self._try(request, track)
        except asyncio.CancelledError:
            metrics.give_up(track)
            raise
        metrics.end(track, request.method, response.status)
        return response

    async def _try(self, request: Request, track: Track) -> Response:
        try:
            return await self._answer(request, track)
        except ApiError as error:
            return await convert_failure(request, responses.failure(error))
        except contract.TooLarge as error:
            return responses.failure(TooLarge(str(error)))
        except contract.DamagedRow as error:
            return responses.failure(StorageReadError(str(error)))  # the store has logged it
        except contract.StoreError as error:
            _log.error("%s %s: %s", request.method, request.target.partition("?")[0], error)
            return responses.failure(Unavailable(f"the store does not work: {error}"))
        except RecursionError:
            return responses.failure(BadRequest("the request is nested too deeply"))
        except Exception:
            # Only the log shows the error, because it may contain what the caller must not see.
            _log.exception("%s %s failed", request.method, request.target.partition("?")[0])
            return responses.failure(InternalError("Internal error occurred: the server's log says more"))

    async def identify(self, request: Request) -> Identity:
        """The authenticated user of a request that another handler of the process answers; its connection is
        recorded as the user's. Raises `ApiError`: `Unauthorized`, or too many connections."""
        user = await authenticate(request, self._authenticator, anonymous=False)
        if request.caller is not None:
            fairness.identify(request.caller, user, parse_request_line(f"{request.method} {request.target}"))
        return user

    async def _answer(self, request: Request, track: Track) -> Response:
        user = request.user or await authenticate(request, self._authenticator, anonymous=self._anonymous)
        caller = user
        user = act_as(user, request.headers, self._backend.authorizer)
        line = parse_request_line(f"{request.method} {request.target}")
        if request.caller is not None:
            fairness.identify(request.caller, caller, line)
        check_timeout(line.query)
        if request.user is not None:
            # A caller in this process has put its user on the request, and does not wait.
            return await self._serve(request, track, user, line)
        seats = await self._fairness.seat(user, line.verb, line.path, line.route, line.query)
        if seats is None:
            return await self._serve(request, track, user, line)
        try:
            if self._health.stopping:  # the request has waited for its seat until now, and the store closes
                raise Unavailable("the server is stopping")
            response = await self._serve(request, track, user, line)
        except BaseException:
            seats.leave()
            raise
        seats.leave_with(response, watch=line.verb == "watch")
        return response

    async def _serve(self, request: Request, track: Track, user: Identity, line: RequestLine) -> Response:
        """The answer to an authenticated request, if it is authorized."""
        path, query, route, verb = line
        if route is None:
            self._backend.authorizer.require(user, Action(verb=request.method.lower(), path=path))
            return await self._paths.respond(request, path, user)
        if MASTERS not in user.groups:
            # A Namespace itself counts as in itself (apiserver `request.RequestInfo`).
            namespace, name = route.namespace, route.name
            if route.plural == "namespaces" and not route.group:
                namespace = name
            if query and not name and (selected := _NAME_SELECTOR.fullmatch(query.get("fieldSelector", ""))):
                name = selected[1]
            self._backend.authorizer.require(
                user, Action(verb, route.group, route.plural, route.subresource, namespace, name)
            )
        definition = self._backend.registry.find(route.group, route.version, route.plural)
        if definition is None:
            proxied = await self._aggregated.ask(request, user, route.group, route.version)
            if proxied is not None:
                return proxied
            if any(kind.group == route.group and not kind.custom for kind in self._backend.registry.all()):
                raise dispatch.no_resource()
            return dispatch.nowhere()
        if definition.custom and "/" in route.subresource:
            # As Kubernetes' handler of custom resources: deeper path segments are ignored.
            route = route._replace(subresource=route.subresource.partition("/")[0])
        try:
            run = self._dispatch.find(definition, route, verb)
        except ApiError as error:
            if not definition.warning:
                raise
            return await convert_failure(request, responses.failure(error, [definition.warning]))
        if request.method == "HEAD" and not definition.custom:
            raise dispatch.no_method()
        if run is None:
            return dispatch.no_verb(definition, route)
        if definition.conversion is not None:
            run = self._conversions.around(run)
        if route.watched and request.method != "GET" and not definition.custom:
            raise dispatch.no_method()
        call = track.call = Call(request, user, verb, definition, route, query, WHOLE)
        if definition.warning:
            call.warnings.append(definition.warning)
        return await self._run(run, call)

    async def _run(self, run: Verb, call: Call) -> Response:
        """The verb's answer, in the negotiated form."""
        request, definition, verb, name = call.request, call.definition, call.verb, call.route.name
        accept = request.headers.get("accept", "")
        try:
            form = call.form = negotiate(accept, custom=definition.custom, stream=verb == "watch")
        except NotAcceptable:
            dispatch.check_first(call)
            raise
        try:
            response = await run(self._backend, call)
        except ApiError as error:
            if name and verb in _CHANGES:
                # A refused client reads the other write next, and must find it.
                await self._backend.store.settled(call.key)
            return await convert_failure(request, responses.failure(error, call.warnings))
        if form.shape is not Shape.WHOLE and (refusal := await dispatch.unfit(call, response)):
            return await convert_failure(request, refusal)
        if definition.is_crd and verb in _WRITES and not call.dry_run:
            await self._controllers.settle(name or responses.name_in(response))
        return response if form.wire == JSON else await convert(call, response)

    def add_metrics(self, source: Source) -> None:
        """Add the metrics of `source` to `/metrics`."""
        self._metrics.add(source)


def _with_spec_of(stored: Json, desired: Json) -> Json | None:
    """`stored` with the spec of `desired`, and its labels and annotations added.

    None if nothing changes: a needless write would cost a validation of the whole schema.
    """
    meta = dict(stored["metadata"])
    for name in ("labels", "annotations"):
        if ours := desired["metadata"].get(name):
            meta[name] = {**meta.get(name, {}), **ours}
    complete = decode_json(encode_json(desired))
    DefinitionSchema({}).process(complete)
    if (complete["spec"], meta) == (stored["spec"], stored["metadata"]):
        return None
    return {**stored, "metadata": meta, "spec": desired["spec"]}

"""Users share a server: who waits, who is sent away, and who never is."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from itertools import pairwise

import pytest
from msgspec import structs

from certwright.kube.api.errors import TooManyRequests
from certwright.kube.apiserver.auth.authentication import StaticTokens
from certwright.kube.apiserver.http.fairness import QUEUE_LENGTH, Bounds, InFlight, PriorityLevel, Seats
from certwright.kube.apiserver.model.objects import decode_json
from certwright.kube.apiserver.model.routes import parse_path, split_target
from certwright.kube.store.contract import Key, Row
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.http_messages import Identity, Request, Response, close_stream
from kube.apiserver.callers import ADMIN, CONFIG_MAPS, SECRETS, Api, StartApi, grant, rule
from support.waiting import until

USERS = StaticTokens({name: Identity(name) for name in ("greedy", "polite")} | {"admin": ADMIN})
CONTROLLER = Identity("system:serviceaccount:cert-manager:cert-manager", groups=("system:masters",))
A_SECRET = f"{SECRETS}/one"


class StuckStore(MemoryStore):
    """Reads of Secrets wait until `flows` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.flows = asyncio.Event()
        self.flows.set()
        self.reading = 0

    async def get(self, key: Key) -> Row | None:
        if key.bucket.endswith("secrets"):
            self.reading += 1
            await self.flows.wait()
            self.reading -= 1
        return await super().get(key)


async def with_rights(start_api: StartApi, store: MemoryStore, in_flight: InFlight) -> Api:
    """A server on which everyone of `USERS` may do everything, and waits for as long as it takes."""
    api = await start_api(store=store, authenticator=USERS, in_flight=in_flight)
    await api.settle()
    for level in levels(api):
        level.longest_wait_s = math.inf
    for user in ("greedy", "polite"):
        everything = {"verbs": ["*"], "nonResourceURLs": ["*"]}
        await grant(api, rule("*", "*", "*"), everything, user=user)
    return api


async def stuck(start_api: StartApi, in_flight: InFlight) -> tuple[Api, StuckStore]:
    """The same with a Secret that cannot be read until its store `flows` again."""
    store = StuckStore()
    api = await with_rights(start_api, store, in_flight)
    await api.secret("one")
    store.flows.clear()
    return api, store


def ask(
    api: Api, user: str, target: str, method: str = "GET", body: bytes = b"", **headers: str
) -> asyncio.Task[Response]:
    """A request as it comes from the network: with a token, and nobody's name on it."""
    headers = {"authorization": f"Bearer {user}", "content-type": "application/json"} | headers
    return asyncio.create_task(api.server.handle(Request(method, target, headers, body)))


def seats_taken(api: Api) -> list[float]:
    """The seats that are occupied, by class of verbs."""
    return [level.in_use for level in levels(api)]


def levels(api: Api) -> list[PriorityLevel]:
    return api.server._fairness.levels


async def cost(api: Api, target: str) -> int:
    """How many seats a list takes."""
    path, query = split_target(target)
    route = parse_path(path)
    assert route is not None
    return await api.server._fairness._cost(route, query)


async def test_beyond_seats_and_queue_the_answer_is_429(start_api: StartApi) -> None:
    api, store = await stuck(start_api, InFlight(max_requests=40))  # 20 for get, of which a user gets 5
    asked = [ask(api, "greedy", A_SECRET) for _ in range(5 + QUEUE_LENGTH + 7)]
    await until(lambda: sum(task.done() for task in asked) == 7)
    assert store.reading == 5
    refused = [task.result() for task in asked if task.done()]
    for response in refused:
        assert (response.status, response.headers["retry-after"]) == (429, "1")
        status = decode_json(response.body)
        assert status["reason"] == "TooManyRequests"
        assert status["details"] == {"retryAfterSeconds": 1}
        assert status["message"] == "Too many requests, please try again later."
    # Others go on: another user, another class of verbs, who administers, who looks how the server is.
    beside = [
        ask(api, "polite", A_SECRET),
        ask(api, "greedy", CONFIG_MAPS),
        ask(api, "admin", A_SECRET),
        asyncio.create_task(api.server.handle(Request("GET", A_SECRET, user=CONTROLLER))),
    ]
    for path in ("/livez", "/readyz", "/metrics"):
        assert (await ask(api, "greedy", path)).status == 200
    assert (await beside[1]).status == 200
    await until(lambda: store.reading == 5 + 3)
    metrics = (await ask(api, "admin", "/metrics")).body.decode()
    assert (
        'rejected_requests_total{flow_schema="get",priority_level="get",reason="queue-full"} 7.0' in metrics
    )
    assert f'current_inqueue_requests{{flow_schema="get",priority_level="get"}} {QUEUE_LENGTH}.0' in metrics
    assert 'current_executing_seats{flow_schema="get",priority_level="get"} 6.0' in metrics
    store.flows.set()
    answers = await asyncio.gather(*asked, *beside)
    assert Counter(answer.status for answer in answers) == {200: 5 + QUEUE_LENGTH + 4, 429: 7}


async def test_a_request_that_waits_too_long_is_sent_away(start_api: StartApi) -> None:
    api, store = await stuck(start_api, InFlight(max_requests=4))
    level = next(level for level in levels(api) if level.name == "get")
    level.longest_wait_s = 0.0  # looked after once a second
    first, second = ask(api, "greedy", A_SECRET), ask(api, "greedy", A_SECRET)
    async with asyncio.timeout(60):
        assert (await second).status == 429
    assert not first.done()
    store.flows.set()
    assert (await first).status == 200
    assert (await ask(api, "greedy", A_SECRET)).status == 200


async def test_a_request_that_is_given_up_leaves_its_seat(start_api: StartApi) -> None:
    api, store = await stuck(start_api, InFlight(max_requests=4))
    asked = [ask(api, "greedy", A_SECRET) for _ in range(3)]
    await until(lambda: store.reading == 1 and sum(level.waiting for level in levels(api)) == 2)
    asked[0].cancel()
    asked[1].cancel()
    store.flows.set()
    assert (await asked[2]).status == 200
    assert all(level.in_use == level.waiting == 0 for level in levels(api))


async def test_administrators_wait_but_are_never_sent_away(start_api: StartApi) -> None:
    api, store = await stuck(start_api, InFlight(max_requests=4, max_mutating_requests=4))
    asked = [ask(api, "admin", A_SECRET) for _ in range(500)]
    await until(lambda: store.reading > 0)
    store.flows.set()
    assert {(await task).status for task in asked} == {200}


async def test_long_lists_take_more_seats_until_they_have_been_sent(start_api: StartApi) -> None:
    api = await with_rights(start_api, MemoryStore(), InFlight(max_requests=400))
    lists = next(level for level in levels(api) if level.name == "list")
    made = 0
    for count, seats in ((101, 2), (700, 7), (1200, 10)):
        for number in range(made, count):
            await api.config_map(f"c{number}")
        made = count
        assert await cost(api, CONFIG_MAPS) == seats
    assert await cost(api, f"{CONFIG_MAPS}?limit=250") == 3
    assert await cost(api, f"{CONFIG_MAPS}?limit=250&labelSelector=a") == 10
    assert await cost(api, f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Dc1") == 1
    response = await ask(api, "polite", CONFIG_MAPS)
    assert response.stream is not None
    assert lists.in_use == 10
    async for _ in response.stream:
        assert lists.in_use == 10
    await close_stream(response.stream)
    assert lists.in_use == 0


async def test_without_priority_and_fairness_two_bounds_hold_for_all_together(start_api: StartApi) -> None:
    in_flight = InFlight(max_requests=3, max_mutating_requests=0, priority_and_fairness=False)
    api, store = await stuck(start_api, in_flight)
    asked = [ask(api, user, A_SECRET) for user in ("greedy", "greedy", "polite", "polite", "greedy")]
    await until(lambda: sum(task.done() for task in asked) == 2)
    assert [task.result().status for task in asked if task.done()] == [429, 429]
    admin = ask(api, "admin", A_SECRET)  # is never sent away
    await until(lambda: store.reading == 4)
    for number in range(20):
        body = b'{"metadata":{"name":"c%d"}}' % number
        assert (await ask(api, "greedy", CONFIG_MAPS, "POST", body)).status == 201
    store.flows.set()
    answers = await asyncio.gather(admin, *asked)
    assert Counter(answer.status for answer in answers) == {200: 4, 429: 2}


async def test_other_limits_hold_for_requests_that_come_afterwards(start_api: StartApi) -> None:
    in_flight = InFlight(max_requests=1, max_mutating_requests=1, priority_and_fairness=False)
    api, store = await stuck(start_api, in_flight)
    first = ask(api, "polite", A_SECRET)
    await until(lambda: store.reading == 1)
    assert (await ask(api, "greedy", A_SECRET)).status == 429
    api.server.use_limits(structs.replace(in_flight, max_requests=2))
    asked = [ask(api, "greedy", A_SECRET) for _ in range(3)]
    await until(lambda: store.reading == 3)
    store.flows.set()
    assert sorted([(await task).status for task in asked]) == [200, 200, 429]
    assert (await first).status == 200
    assert all(level.in_use == 0 for level in levels(api))


async def test_a_turn_of_the_loop_belongs_to_no_user_alone(start_api: StartApi) -> None:
    """Requests that are answered without waiting for anything would otherwise all go first."""
    api = await with_rights(start_api, MemoryStore(), InFlight())
    await api.secret("one")
    greedy = [ask(api, "greedy", A_SECRET) for _ in range(150)]
    polite, admin = ask(api, "polite", A_SECRET), ask(api, "admin", A_SECRET)
    before: list[int] = []
    for task in (polite, admin):
        task.add_done_callback(lambda _: before.append(sum(request.done() for request in greedy)))
    assert {(await task).status for task in (polite, admin)} == {200}
    assert max(before) <= 3 * 32
    assert {(await task).status for task in greedy} <= {200, 429}


@pytest.mark.parametrize("accept", ["application/json", "application/vnd.kubernetes.protobuf"])
async def test_an_open_watch_occupies_no_seat_in_any_form(start_api: StartApi, accept: str) -> None:
    api = await with_rights(start_api, MemoryStore(), InFlight(max_requests=40))  # 2 of 10 for a user
    before = seats_taken(api)
    opened = [await ask(api, "greedy", f"{CONFIG_MAPS}?watch=true", accept=accept) for _ in range(2)]
    assert seats_taken(api) == before
    for response in opened:
        assert response.status == 200
        await close_stream(response.stream)


async def seated(level: PriorityLevel, user: str, seats: int = 1) -> Seats:
    """The seats of a request, immediately or once it is dispatched."""
    return level.take(user, seats) or await level.wait(user, seats)


async def waiting(level: PriorityLevel, *users: str, seats: int = 1) -> list[asyncio.Task[Seats]]:
    """Requests that have been queued, or have their seats."""
    tasks = [asyncio.create_task(seated(level, user, seats)) for user in users]
    await asyncio.sleep(0)
    return tasks


async def test_the_queues_of_a_level_are_bounded_per_flow_and_in_all() -> None:
    level = PriorityLevel("get", Bounds(seats=1, waiting=2, waiting_in_all=3))
    tasks = await waiting(level, *"aaaabb")
    assert [task.done() for task in tasks] == [True, False, False, True, False, True]
    for task in (tasks[3], tasks[5]):
        with pytest.raises(TooManyRequests):
            await task
    assert (level.waiting, level.executing, dict(level.rejected)) == (3, 1, {"queue-full": 2})
    for task in (tasks[0], tasks[1], tasks[4], tasks[2]):  # the flows take turns
        (await task).leave()
    assert (level.waiting, level.executing, level.in_use, level.dispatched) == (0, 0, 0, 4)


async def test_a_turn_of_the_loop_has_its_own_bound() -> None:
    level = PriorityLevel("get", Bounds(seats=100, per_turn=4, waiting=100))
    asked = [asyncio.create_task(seated(level, "a")) for _ in range(10)]
    counts = [0]
    while not all(task.done() for task in asked):
        await asyncio.sleep(0)
        counts.append(level.dispatched)
    assert max(after - before for before, after in pairwise(counts)) == 4


@pytest.mark.parametrize("has_seats", [True, False], ids=["it has got its seats", "it waits"])
async def test_a_cancelled_request_leaves_its_place(has_seats: bool) -> None:
    level = PriorityLevel("get", Bounds(seats=2, waiting=10))
    first, large, small = (
        *await waiting(level, "a"),
        *await waiting(level, "b", seats=2),
        *await waiting(level, "c"),
    )
    assert [large.done(), small.done()] == [False, False]
    if has_seats:
        (await first).leave()  # the large one has its seats, and has not run since
    large.cancel()
    with pytest.raises(asyncio.CancelledError):
        await large
    (await small).leave()
    (await first).leave()
    assert (level.waiting, level.executing, level.in_use) == (0, 0, 0)

"""The identity client against the sandbox and against failing providers, over real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.faults import Fault
from ltzd.errors import IdentityUnavailable, InvalidFields
from ltzd.providers.identity.client import IdentityClient, IdentityPolicy
from ltzd.values import address_of
from tests.support.services.web_servers import served_at
from tests.support.waiting import Stopwatch, until

NO_NODE = "http://127.0.0.1:1"
DID = "did:privy:cabc123"
WALLET = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
OTHER_WALLET = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359"
EMAIL = "ann@shop.example"

Answer = tuple[int, object] | Callable[[], Awaitable[web.StreamResponse]]


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(tmp_path, 0, NO_NODE, None)
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[IdentityClient]:
    async with IdentityClient(sandbox.identity_policy()) as client:
        yield client


@pytest.fixture
async def api(sandbox: Sandbox) -> AsyncIterator["Api"]:
    policy = sandbox.identity_policy()
    async with aiohttp.ClientSession(
        headers={
            "Authorization": aiohttp.encode_basic_auth(policy.app_id, policy.app_secret),
            "privy-app-id": policy.app_id,
        }
    ) as session:
        yield Api(session, policy.base_url)


class Api:
    """Uses the provider as another program of the operator would."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def make_user_without_wallet(self, email: str) -> str:
        body = {"linked_accounts": [{"type": "email", "address": email}]}
        async with self._session.post(f"{self._base}/v1/users", json=body) as response:
            return str((await response.json())["id"])

    async def users(self) -> list[dict[str, object]]:
        async with self._session.get(f"{self._base}/v1/users") as response:
            users: list[dict[str, object]] = (await response.json())["data"]
            return users


class ScriptedProvider:
    """Gives the scripted answers of each (method, path) in order and repeats the last one."""

    def __init__(self, script: dict[str, list[Answer]]) -> None:
        self._script = script
        self.requests: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        key = f"{request.method} {request.path}"
        self.requests.append(key)
        answers = self._script[key]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            return await answer()
        status, body = answer
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text, content_type="application/json")


@asynccontextmanager
async def serving(provider: ScriptedProvider, **policy: float) -> AsyncIterator[IdentityClient]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", provider.answer)
    async with served_at(application) as base_url:
        base = IdentityPolicy(base_url, "app", "secret")
        async with IdentityClient(replace(base, **{**QUICK, **policy})) as client:  # type: ignore[arg-type]
            yield client


QUICK = {"first_pause_seconds": 0.01, "rate_limit_pause_seconds": 0.02}


def a_wallet(address: object = WALLET, index: object = 0, **other: object) -> dict[str, object]:
    return {
        "type": "wallet",
        "address": address,
        "chain_type": "ethereum",
        "connector_type": "embedded",
        "wallet_client_type": "privy",
        "wallet_index": index,
        **other,
    }


def an_email(address: str = EMAIL) -> dict[str, object]:
    return {"type": "email", "address": address}


def a_user(*accounts: object) -> dict[str, object]:
    rows = [an_email(), *accounts]
    return {"id": DID, "created_at": 1, "linked_accounts": rows}


LOOK_UP = "POST /v1/users/email/address"
MISS: Answer = (404, {"error": "User not found"})


async def test_a_new_address_gets_a_user_with_a_wallet(client: IdentityClient, api: Api) -> None:
    user = await client.wallet_of_email(EMAIL)

    assert user.subject.startswith("did:privy:")
    assert len(user.wallet) == 20
    assert [listed["id"] for listed in await api.users()] == [user.subject]


async def test_a_known_address_keeps_its_wallet_in_any_letter_case(client: IdentityClient) -> None:
    first = await client.wallet_of_email(EMAIL)

    assert await client.wallet_of_email("Ann@Shop.Example") == first
    assert await client.wallet_of_email("bob@shop.example") != first


async def test_a_user_without_a_wallet_gets_exactly_one(client: IdentityClient, api: Api) -> None:
    subject = await api.make_user_without_wallet(EMAIL)

    user = await client.wallet_of_email(EMAIL)

    assert user.subject == subject
    assert await wallets_of_everyone(api) == [user.wallet]


async def test_fifty_callers_for_one_address_share_one_user_and_one_wallet(
    client: IdentityClient, api: Api
) -> None:
    users = await asyncio.gather(*(client.wallet_of_email(EMAIL) for _ in range(50)))

    assert len(set(users)) == 1
    assert await wallets_of_everyone(api) == [users[0].wallet]


async def test_users_on_their_way_are_counted_once_each_until_they_are_here(
    client: IdentityClient,
) -> None:
    assert client.under_way == 0
    emails = [f"{number}@shop.example" for number in range(3)]
    asking = [asyncio.create_task(client.wallet_of_email(email)) for email in [*emails, emails[0]]]
    await asyncio.sleep(0)
    assert client.under_way == 3

    await asyncio.gather(*asking)
    assert client.under_way == 0


async def test_several_processes_asking_at_once_agree_on_one_wallet(
    sandbox: Sandbox, api: Api
) -> None:
    policy = sandbox.identity_policy()
    clients = [IdentityClient(policy) for _ in range(8)]

    users = await asyncio.gather(*(client.wallet_of_email(EMAIL) for client in clients))
    await asyncio.gather(*(client.close() for client in clients))

    assert len(set(users)) == 1
    assert await wallets_of_everyone(api) == [users[0].wallet]


async def test_several_processes_equipping_one_user_agree_on_one_wallet(
    sandbox: Sandbox, api: Api
) -> None:
    await api.make_user_without_wallet(EMAIL)
    policy = sandbox.identity_policy()
    clients = [IdentityClient(policy) for _ in range(8)]

    users = await asyncio.gather(*(client.wallet_of_email(EMAIL) for client in clients))
    await asyncio.gather(*(client.close() for client in clients))

    assert len(set(users)) == 1
    assert await wallets_of_everyone(api) == [users[0].wallet]


async def test_two_hundred_new_addresses_at_once_get_a_wallet_each(client: IdentityClient) -> None:
    users = await asyncio.gather(
        *(client.wallet_of_email(f"user{n}@shop.example") for n in range(200))
    )

    assert len({user.wallet for user in users}) == 200


async def test_a_caller_that_gives_up_does_not_take_the_answer_from_the_others(
    sandbox: Sandbox, client: IdentityClient
) -> None:
    sandbox.faults.order("identity", Fault(times=1, delay_seconds=0.2))
    first = asyncio.create_task(client.wallet_of_email(EMAIL))
    second = asyncio.create_task(client.wallet_of_email(EMAIL))
    await asyncio.sleep(0)

    first.cancel()

    assert len((await second).wallet) == 20
    assert first.cancelled()


async def test_closing_the_client_ends_look_ups_under_way(
    sandbox: Sandbox, client: IdentityClient
) -> None:
    sandbox.faults.order("identity", Fault(times=1, delay_seconds=30))
    caller = asyncio.create_task(client.wallet_of_email(EMAIL))
    await asyncio.sleep(0)

    await client.close()

    with pytest.raises(IdentityUnavailable):
        await caller
    with pytest.raises(IdentityUnavailable):
        await client.wallet_of_email(EMAIL)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(times=2, status=500),
        Fault(times=2, status=503),
        Fault(times=1, status=429, retry_after_seconds=0),
        Fault(times=2, drops_request=True),
        Fault(times=2, drops_reply=True),
    ],
    ids=str,
)
async def test_a_passing_fault_costs_time_and_makes_no_second_wallet(
    sandbox: Sandbox, api: Api, fault: Fault
) -> None:
    sandbox.faults.order("identity", fault)

    async with IdentityClient(replace(sandbox.identity_policy(), **QUICK)) as client:  # type: ignore[arg-type]
        user = await client.wallet_of_email(EMAIL)

    assert await wallets_of_everyone(api) == [user.wallet]


async def test_a_lost_reply_to_the_creation_of_a_wallet_makes_no_second_one(
    sandbox: Sandbox, api: Api
) -> None:
    await api.make_user_without_wallet(EMAIL)
    policy = replace(sandbox.identity_policy(), **QUICK)  # type: ignore[arg-type]
    async with IdentityClient(policy) as client:
        # Look-up and re-read succeed; the third request is the creation.
        sandbox.faults.order("identity", Fault(times=3, drops_reply=True))
        user = await client.wallet_of_email(EMAIL)

    assert await wallets_of_everyone(api) == [user.wallet]


async def test_a_slow_answer_is_given_up_and_asked_again(sandbox: Sandbox) -> None:
    sandbox.faults.order("identity", Fault(times=1, delay_seconds=30))
    policy = replace(sandbox.identity_policy(), attempt_seconds=0.2)

    async with IdentityClient(policy) as client:
        assert len((await client.wallet_of_email(EMAIL)).wallet) == 20


@pytest.mark.parametrize(
    "fault",
    [
        Fault(times=100, status=500),
        Fault(times=100, status=429),
        Fault(times=100, drops_request=True),
        Fault(times=100, delay_seconds=30),
    ],
    ids=str,
)
async def test_a_lasting_fault_is_told_within_the_deadline(sandbox: Sandbox, fault: Fault) -> None:
    sandbox.faults.order("identity", fault)
    policy = replace(sandbox.identity_policy(), timeout_seconds=0.5)
    watch = Stopwatch()

    async with IdentityClient(policy) as client:
        with pytest.raises(IdentityUnavailable):
            await client.wallet_of_email(EMAIL)

    assert watch.seconds() < 1.0


async def test_everyone_who_waited_hears_of_the_failure_and_the_next_call_succeeds(
    sandbox: Sandbox,
) -> None:
    sandbox.faults.order("identity", Fault(times=1, status=500))
    policy = replace(sandbox.identity_policy(), max_attempts=1)

    async with IdentityClient(policy) as client:
        outcomes = await asyncio.gather(
            *(client.wallet_of_email(EMAIL) for _ in range(3)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [IdentityUnavailable] * 3
        assert len((await client.wallet_of_email(EMAIL)).wallet) == 20


async def test_a_provider_that_is_not_there_is_unavailable() -> None:
    policy = IdentityPolicy(NO_NODE, "app", "secret", first_pause_seconds=0.01)

    async with IdentityClient(policy) as client:
        with pytest.raises(IdentityUnavailable):
            await client.wallet_of_email(EMAIL)
        assert await client.ping() is False


async def test_a_wish_to_wait_longer_than_the_deadline_is_not_waited_for() -> None:
    async def busy() -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "60"})

    provider = ScriptedProvider({LOOK_UP: [busy]})
    async with serving(provider) as client:
        watch = Stopwatch()
        with pytest.raises(IdentityUnavailable):
            await client.wallet_of_email(EMAIL)

    assert watch.seconds() < 1.0
    assert provider.requests == [LOOK_UP]


async def test_a_wish_to_wait_is_granted() -> None:
    async def busy() -> web.StreamResponse:
        return web.Response(status=429, headers={"retry-after-ms": "300"})

    provider = ScriptedProvider({LOOK_UP: [busy, (200, a_user(a_wallet()))]})
    async with serving(provider) as client:
        started = asyncio.get_running_loop().time()
        await client.wallet_of_email(EMAIL)

    assert asyncio.get_running_loop().time() - started >= 0.3


@pytest.mark.parametrize(
    "conflict",
    [
        {"error": "Input conflict", "cause": DID},
        {"error": f"Input conflict caused by an existing user: {DID}"},
        {"error": {"message": f"caused by an existing user: {DID}."}},
        {"message": f"caused by {DID}"},
    ],
)
async def test_a_conflict_leads_to_the_user_it_names(conflict: object) -> None:
    provider = ScriptedProvider(
        {
            LOOK_UP: [MISS],
            "POST /v1/users": [(422, conflict)],
            f"GET /v1/users/{DID}": [(200, a_user(a_wallet()))],
        }
    )
    async with serving(provider) as client:
        user = await client.wallet_of_email(EMAIL)

    assert (user.subject, user.wallet) == (DID, address_of(WALLET))


async def test_a_conflict_that_names_nobody_is_unavailable() -> None:
    provider = ScriptedProvider({LOOK_UP: [MISS], "POST /v1/users": [(422, {"error": "no"})]})
    async with serving(provider) as client:
        with pytest.raises(IdentityUnavailable):
            await client.wallet_of_email(EMAIL)


async def test_a_creation_that_finds_an_old_user_without_wallet_makes_one() -> None:
    provider = ScriptedProvider(
        {
            LOOK_UP: [MISS],
            "POST /v1/users": [(200, a_user())],
            f"GET /v1/users/{DID}": [(200, a_user())],
            f"POST /v1/users/{DID}/wallets": [(200, a_user(a_wallet()))],
        }
    )
    async with serving(provider) as client:
        assert (await client.wallet_of_email(EMAIL)).wallet == address_of(WALLET)


async def test_a_failed_creation_of_a_wallet_is_repeated_only_after_reading_again() -> None:
    provider = ScriptedProvider(
        {
            LOOK_UP: [(200, a_user())],
            f"GET /v1/users/{DID}": [(200, a_user()), (200, a_user(a_wallet()))],
            f"POST /v1/users/{DID}/wallets": [(500, {})],
        }
    )
    async with serving(provider) as client:
        await client.wallet_of_email(EMAIL)

    assert provider.requests.count(f"POST /v1/users/{DID}/wallets") == 1


async def test_the_embedded_ethereum_wallet_of_the_lowest_index_counts() -> None:
    accounts = [
        {"type": "email", "address": EMAIL},
        "nonsense",
        a_wallet(OTHER_WALLET, 0, chain_type="solana"),
        a_wallet(OTHER_WALLET, 0, connector_type="injected"),
        a_wallet(OTHER_WALLET, 0, wallet_client_type="metamask"),
        a_wallet(OTHER_WALLET, None),
        a_wallet(OTHER_WALLET, 2),
        a_wallet(WALLET, 1),
    ]
    provider = ScriptedProvider({LOOK_UP: [(200, a_user(*accounts))]})
    async with serving(provider) as client:
        assert (await client.wallet_of_email(EMAIL)).wallet == address_of(WALLET)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html>",
        "null",
        "[]",
        "[" * 500_000,
        "{}",
        {"id": DID},
        {"id": 7, "linked_accounts": []},
        {"id": "did:privy:x/../y", "linked_accounts": []},
        {"id": DID, "linked_accounts": {"a": 1}},
        a_user(a_wallet("0x12")),
        a_user(a_wallet(None)),
        a_user(a_wallet("0x" + "0" * 40)),
        a_user(a_wallet(WALLET.replace("aAeb", "AAeb"))),
        '"' + "x" * (2 << 20) + '"',
    ],
    ids=range(15),
)
async def test_an_answer_of_no_sense_is_unavailable(body: object) -> None:
    provider = ScriptedProvider({LOOK_UP: [(200, body)]})
    async with serving(provider) as client:
        with pytest.raises(IdentityUnavailable):
            await client.wallet_of_email(EMAIL)


@pytest.mark.parametrize(
    "linked",
    [
        [],
        [an_email("bob@shop.example")],
        [{"type": "google_oauth", "subject": "107", "email": EMAIL, "name": "Ann"}],
        [{"type": "email"}, {"type": "email", "address": 7}, "nonsense"],
    ],
    ids=range(4),
)
async def test_a_user_who_does_not_have_the_address_is_never_taken_for_the_one_who_does(
    linked: list[object],
) -> None:
    stranger = (200, {"id": DID, "linked_accounts": [*linked, a_wallet()]})
    provider = ScriptedProvider(
        {
            LOOK_UP: [stranger],
            "POST /v1/users": [stranger, (422, {"cause": DID})],
            f"GET /v1/users/{DID}": [stranger],
        }
    )
    async with serving(provider) as client:
        for _ in range(2):
            with pytest.raises(IdentityUnavailable):
                await client.wallet_of_email(EMAIL)


async def test_an_endless_miss_after_making_a_wallet_is_unavailable() -> None:
    provider = ScriptedProvider(
        {
            LOOK_UP: [(200, a_user())],
            f"GET /v1/users/{DID}": [(200, a_user())],
            f"POST /v1/users/{DID}/wallets": [(200, a_user())],
        }
    )
    async with serving(provider) as client:
        with pytest.raises(IdentityUnavailable):
            await client.wallet_of_email(EMAIL)


async def test_a_redirect_is_not_followed() -> None:
    async def elsewhere() -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "/v1/users/elsewhere"})

    provider = ScriptedProvider({LOOK_UP: [elsewhere]})
    async with serving(provider) as client:
        with pytest.raises(IdentityUnavailable):
            await client.wallet_of_email(EMAIL)

    assert provider.requests == [LOOK_UP]


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_unavailable_and_not_tried_again(status: int) -> None:
    provider = ScriptedProvider({LOOK_UP: [(status, {"error": "no"})]})
    async with serving(provider) as client:
        with pytest.raises(IdentityUnavailable, match="credentials"):
            await client.wallet_of_email(EMAIL)
        assert len(provider.requests) == 1


async def test_an_address_that_the_provider_refuses_is_the_callers_fault() -> None:
    refusal = {"error": f"Invalid email {EMAIL}", "code": "invalid_data"}
    provider = ScriptedProvider({LOOK_UP: [MISS], "POST /v1/users": [(400, refusal)]})
    async with serving(provider) as client:
        with pytest.raises(InvalidFields) as refused:
            await client.wallet_of_email(EMAIL)

    assert EMAIL not in str(refused.value.details)


async def test_requests_under_way_are_bounded() -> None:
    under_way, most = 0, 0
    full, go = asyncio.Event(), asyncio.Event()

    async def slow() -> web.StreamResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 4:
            full.set()
        await go.wait()
        under_way -= 1
        return web.json_response(a_user(a_wallet(), *map(an_email, emails)))

    emails = [f"{n}@shop.example" for n in range(20)]

    async with serving(ScriptedProvider({LOOK_UP: [slow]}), max_concurrent=4) as client:
        callers = asyncio.gather(*map(client.wallet_of_email, emails))
        await full.wait()
        go.set()
        await callers

    assert most == 4


async def test_look_ups_of_new_users_hold_up_no_known_user() -> None:
    """Anybody may post events for invented addresses while the provider is slow."""
    looking_up = 0
    go = asyncio.Event()

    async def hang() -> web.StreamResponse:
        nonlocal looking_up
        looking_up += 1
        await go.wait()
        return web.json_response(a_user(a_wallet(), *map(an_email, emails)))

    async def is_full() -> bool:
        return looking_up == 4

    emails = [f"{n}@shop.example" for n in range(20)]
    provider = ScriptedProvider(
        {
            LOOK_UP: [hang],
            f"GET /v1/users/{DID}": [(200, a_user(a_wallet()))],
            "GET /v1/users": [(200, {"data": []})],
        }
    )
    patient = {"attempt_seconds": 30.0, "timeout_seconds": 30.0}
    async with serving(provider, max_concurrent=4, **patient) as client:
        callers = asyncio.gather(*map(client.wallet_of_email, emails))
        await until(is_full)

        assert await client.wallets_of(DID) == (address_of(WALLET),)
        assert await client.ping()

        go.set()
        await callers


@pytest.mark.parametrize("email", [EMAIL, "199@shop.example"], ids=["its own", "a user of both"])
async def test_one_brands_new_users_delay_anothers_by_single_look_ups(email: str) -> None:
    """The provider answers one look-up after another."""
    emails = [f"{n}@shop.example" for n in range(200)]
    arrived: list[str] = []
    may_answer = asyncio.Semaphore(0)

    async def look_up(request: web.Request) -> web.StreamResponse:
        address = (await request.json())["address"]
        arrived.append(address)
        await may_answer.acquire()
        return web.json_response(a_user(a_wallet(), an_email(address)))

    async def is_full() -> bool:
        return len(arrived) == 4

    application = web.Application()
    application.router.add_post("/v1/users/email/address", look_up)
    async with served_at(application) as base_url:
        policy = IdentityPolicy(
            base_url,
            "app",
            "secret",
            max_concurrent=4,
            attempt_seconds=60.0,
            timeout_seconds=60.0,
        )
        async with IdentityClient(policy) as client:
            flood = [
                asyncio.create_task(client.wallet_of_email(email, address_of(WALLET)))
                for email in emails
            ]
            await until(is_full)
            other = asyncio.create_task(client.wallet_of_email(email, address_of(OTHER_WALLET)))

            async def is_answered() -> bool:
                may_answer.release()
                return other.done()

            await until(is_answered)
            assert len(arrived) < len(emails)
            for _ in emails:
                may_answer.release()
            await asyncio.gather(*flood, other)


async def test_more_waiting_look_ups_than_allowed_are_refused_at_once(
    sandbox: Sandbox,
) -> None:
    policy = replace(sandbox.identity_policy(), max_waiting=2)
    async with IdentityClient(policy) as client:
        outcomes = await asyncio.gather(
            *(client.wallet_of_email(f"{n}@shop.example") for n in range(3)),
            return_exceptions=True,
        )

    assert [isinstance(outcome, IdentityUnavailable) for outcome in outcomes] == [
        False,
        False,
        True,
    ]


async def test_each_request_is_timed_by_its_outcome(
    client: IdentityClient, sandbox: Sandbox
) -> None:
    def timed(outcome: str) -> float:
        labels = {"provider": "identity", "outcome": outcome}
        name = "ltzd_providers_request_seconds_count"
        return telemetry.REGISTRY.get_sample_value(name, labels) or 0.0

    before, lost = timed("ok"), timed("unavailable")
    assert await client.ping()
    assert (timed("ok"), timed("unavailable")) == (before + 1, lost)
    sandbox.faults.order("identity", Fault(times=1, status=503))
    assert not await client.ping()
    assert (timed("ok"), timed("unavailable")) == (before + 1, lost + 1)


async def test_ping_tells_whether_the_provider_takes_our_credentials(sandbox: Sandbox) -> None:
    policy = sandbox.identity_policy()
    async with IdentityClient(policy) as right:
        assert await right.ping() is True
        sandbox.faults.order("identity", Fault(times=1, status=500))
        assert await right.ping() is False
    async with IdentityClient(replace(policy, app_secret="wrong")) as wrong:
        with capture_logs() as lines:
            assert await wrong.ping() is False
            assert await wrong.ping() is False
    assert [(line["event"], line["reason"]) for line in lines] == [
        ("identity_ping_failed", "refused with status 401")
    ]


async def test_neither_secrets_nor_addresses_are_printed_or_logged(
    sandbox: Sandbox, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    policy = replace(sandbox.identity_policy(), max_attempts=1)
    sandbox.faults.order("identity", Fault(times=1, status=500))
    async with IdentityClient(policy) as client:
        with pytest.raises(IdentityUnavailable) as failure:
            await client.wallet_of_email(EMAIL)

    output = "".join((*capsys.readouterr(), caplog.text, repr(policy), repr(failure.value)))
    assert "identity_unavailable" in output
    assert EMAIL not in output
    assert policy.app_secret not in output


async def wallets_of_everyone(api: Api) -> list[bytes]:
    async def read() -> list[bytes]:
        return [
            address_of(str(account["address"]))
            for user in await api.users()
            for account in _rows(user["linked_accounts"])
            if account["type"] == "wallet"
        ]

    return await until(read)


def _rows(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


async def test_look_ups_of_a_stranger_write_a_bounded_number_of_lines() -> None:
    """A bulk request of invented users causes fifty look-ups."""
    nobody = IdentityPolicy(base_url=NO_NODE, app_id="a", app_secret="s", timeout_seconds=0.2)
    async with IdentityClient(nobody) as client:
        with capture_logs() as lines:
            await asyncio.gather(
                *(client.wallet_of_email(f"{n}@shop.example") for n in range(100)),
                return_exceptions=True,
            )
    assert {line["event"] for line in lines} == {"identity_unavailable"}
    assert 1 <= len(lines) <= 20

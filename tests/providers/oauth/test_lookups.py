"""The client of the OAuth providers against documented answers and against malformed ones."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from msgspec import structs
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.providers.oauth.lookups import AccountLookups, AccountVerification
from ltzd.providers.oauth.policy import AccountLookupPolicy, GithubAccess, GoogleAccess
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount, OAuthProvider
from tests.support.clocks import ManualClock
from tests.support.services.account_shapes import SHAPES, TOKEN, CannedAnswer, Shape, policy_at
from tests.support.services.web_servers import served_at
from tests.support.waiting import Stopwatch, until

SECRETS = ("discord-token", "google-key", "instagram-token", "AAFD39", "a-client-token", "secret")


class Turnstile:
    """A gate that lets one request through at a time."""

    def __init__(self) -> None:
        self._passes = asyncio.Semaphore(0)

    async def wait(self) -> None:
        await self._passes.acquire()

    def let_one_through(self) -> None:
        self._passes.release()

    def set(self) -> None:
        for _ in range(1_000):
            self._passes.release()


class Providers:
    """All eight providers at one server; each gives its scripted answers and repeats the last."""

    def __init__(self) -> None:
        self.script: dict[str, list[CannedAnswer]] = {}
        self.headers: Mapping[str, str] = {}
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.tokens_made = 0
        self.token: CannedAnswer = (200, TOKEN)
        self.gate: asyncio.Event | Turnstile | None = None
        self.at_once = 0
        self.most_at_once = 0

    def set_answers(self, provider: str, *answers: CannedAnswer) -> None:
        self.script[provider] = list(answers)

    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        vendor, _, rest = request.path.strip("/").partition("/")
        if vendor == "token" or rest == "oauth/token":
            self.tokens_made += 1
            return _reply(self.token, {})
        self.requests.append(request)
        self.bodies.append(body)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.at_once -= 1
        answers = self.script[vendor]
        return _reply(answers.pop(0) if len(answers) > 1 else answers[0], self.headers)


def _reply(answer: CannedAnswer, headers: Mapping[str, str]) -> web.Response:
    status, body = answer
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return web.Response(status=status, body=raw, headers=headers, content_type="application/json")


@asynccontextmanager
async def served(providers: Providers) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", providers.answer)
    async with served_at(application) as base:
        try:
            yield base
        finally:
            if providers.gate is not None:
                providers.gate.set()


@pytest.fixture
async def providers() -> Providers:
    return Providers()


@pytest.fixture
async def base(providers: Providers) -> AsyncIterator[str]:
    async with served(providers) as base:
        yield base


@pytest.fixture
async def look_ups(base: str) -> AsyncIterator[AccountLookups]:
    async with AccountLookups(policy_at(base)) as look_ups:
        yield look_ups


def an_account(provider: OAuthProvider = "discord") -> OAuthAccount:
    return SHAPES[provider].account


def changed(answer: CannedAnswer, **changes: object) -> CannedAnswer:
    return answer[0], {**answer[1], **changes}


# --- the documented answers ---------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
async def test_the_question_is_the_one_that_the_provider_documents(
    shape: Shape, providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers(shape.account.provider, shape.existing)

    await look_ups.verify(shape.account)

    (request,), (body,) = providers.requests, providers.bodies
    assert (request.method, request.path) == (
        shape.method,
        f"/{shape.account.provider}{shape.path}",
    )
    assert dict(request.query) == shape.query
    for name, value in shape.headers.items():
        # The documents fix only the beginning of a product's name.
        given = request.headers[name]
        assert given.startswith(value) if name == "User-Agent" else given == value
    assert (json.loads(body) if body else None) == shape.body


EXISTING: Mapping[OAuthProvider, AccountVerification] = {
    "discord": AccountVerification("exists", "ann.b", "Ann"),
    "github": AccountVerification("exists", "octocat"),
    "twitter": AccountVerification("exists", "XDevelopers", "Developers"),
    "telegram": AccountVerification("exists", "ann_bee", "Ann"),
    "google": AccountVerification("exists"),
    "spotify": AccountVerification("exists", None, "Ann"),
    "instagram": AccountVerification("exists", "ann.b"),
    "tiktok": AccountVerification("exists", "ann.b", "Ann"),
}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_documented_success_is_an_account_with_its_names(
    provider: OAuthProvider, providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers(provider, SHAPES[provider].existing)

    assert await look_ups.verify(an_account(provider)) == EXISTING[provider]


@pytest.mark.parametrize(
    ("provider", "verdict"),
    [
        ("discord", "missing"),
        ("github", "missing"),
        ("twitter", "missing"),
        ("google", "missing"),
        ("spotify", "missing"),
        # These three give the same answer for most existing accounts.
        ("telegram", "cannot_check"),
        ("instagram", "cannot_check"),
        ("tiktok", "cannot_check"),
    ],
)
async def test_the_documented_answer_of_an_unknown_account_is_missing_where_it_proves_that(
    provider: OAuthProvider, verdict: str, providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers(provider, SHAPES[provider].unknown)

    verification = await look_ups.verify(an_account(provider))

    assert verification.verdict == verdict
    assert verification.reason


# --- unclear answers -----------------------------------------------------------------------------

UNUSABLE: list[CannedAnswer] = [
    (500, {}),
    (502, b"<html>Bad gateway</html>"),
    (503, {"message": "Unknown User", "code": 10013}),
    (429, {"message": "You are being rate limited.", "retry_after": 0.0, "global": False}),
    (401, {"message": "401: Unauthorized", "code": 0}),
    (403, {"message": "Forbidden"}),
    (404, {}),
    (404, b""),
    (404, {"message": "no such route"}),
    (404, [{"error": {"status": 404, "code": 404}}]),
    (410, {}),
    (302, {}),
    (204, b""),
    (200, b""),
    (200, b"[]"),
    (200, b"null"),
    (200, b"{"),
    (200, b"\xff\xfe"),
    (200, b"[" * 100_000),
    (200, b" " * 400_000 + b"{}"),
    (200, {}),
    (200, {"data": None, "errors": []}),
    (200, {"data": {}, "error": {"code": "internal_error"}}),
    (200, {"errors": [{"title": {}, "type": ["resource-not-found"]}]}),
    (200, {"id": True, "username": [], "login": {}, "result": {"id": 1.5}}),
    (400, {"error": {"code": [110], "error_subcode": {}}}),
]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_answer_but_the_documented_ones_is_ever_missing_or_an_account(
    provider: OAuthProvider, providers: Providers, base: str
) -> None:
    async with AccountLookups(policy_at(base, max_attempts=1)) as look_ups:
        for answer in UNUSABLE:
            providers.set_answers(provider, answer)
            assert await look_ups.verify(an_account(provider)) == AccountVerification(
                "unavailable"
            ), answer


@pytest.mark.parametrize("provider", ["discord", "github", "twitter", "telegram", "google"])
async def test_another_account_than_the_one_asked_for_is_no_answer(
    provider: OAuthProvider, providers: Providers, look_ups: AccountLookups
) -> None:
    status, body = SHAPES[provider].existing
    text = json.dumps(body).replace(an_account(provider).user_id, "308994132968210434")
    providers.set_answers(provider, (status, text.encode()))

    assert (await look_ups.verify(an_account(provider))).verdict == "unavailable"


async def test_a_provider_that_is_not_there_is_unavailable() -> None:
    async with AccountLookups(policy_at("http://127.0.0.1:1")) as look_ups:
        for provider in PROVIDERS:
            assert (await look_ups.verify(an_account(provider))).verdict == "unavailable"


async def test_a_provider_that_never_answers_is_unavailable_in_time(
    providers: Providers, base: str
) -> None:
    providers.gate = asyncio.Event()
    policy = policy_at(base, timeout_seconds=0.4, attempt_seconds=0.15)
    watch = Stopwatch()
    async with AccountLookups(policy) as look_ups:
        assert (await look_ups.verify(an_account())).verdict == "unavailable"

    assert watch.seconds() < 2
    assert len(providers.requests) > 1


@pytest.mark.parametrize(
    ("provider", "status", "body"),
    [
        ("discord", 401, {"message": "401: Unauthorized", "code": 40001}),
        ("github", 401, {"message": "Bad credentials"}),
        ("twitter", 401, {"title": "Unauthorized", "type": "about:blank", "status": 401}),
        ("telegram", 401, {"ok": False, "error_code": 401, "description": "Unauthorized"}),
        ("telegram", 404, {"ok": False, "error_code": 404, "description": "Not Found"}),
        ("google", 403, {"error": {"code": 403, "status": "PERMISSION_DENIED"}}),
        ("google", 400, {"error": {"code": 400, "status": "INVALID_ARGUMENT"}}),
        ("spotify", 401, {"error": {"status": 401, "message": "Invalid access token"}}),
        ("spotify", 403, {"error": {"status": 403, "message": "Forbidden"}}),
        ("instagram", 400, {"error": {"message": "Invalid OAuth access token", "code": 190}}),
        ("tiktok", 401, {"error": {"code": "access_token_invalid"}}),
    ],
)
async def test_a_refused_credential_is_logged_for_the_operator_and_blames_no_account(
    provider: OAuthProvider,
    status: int,
    body: object,
    providers: Providers,
    look_ups: AccountLookups,
) -> None:
    providers.set_answers(provider, (status, body))

    with capture_logs() as logs:
        assert await look_ups.verify(an_account(provider)) == AccountVerification("unavailable")

    assert {"provider": provider, "status": status} in [
        {name: log.get(name) for name in ("provider", "status")}
        for log in logs
        if log["event"] == "account_look_up_misconfigured"
    ]
    assert not any(secret in str(logs) for secret in SECRETS)


# --- single providers ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bot", "system"])
async def test_discords_bots_and_own_accounts_are_nobodys(
    kind: str, providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers("discord", changed(SHAPES["discord"].existing, **{kind: True}))

    assert (await look_ups.verify(an_account("discord"))).verdict == "missing"


async def test_an_old_discord_name_has_its_number(
    providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers("discord", changed(SHAPES["discord"].existing, discriminator="1337"))

    assert (await look_ups.verify(an_account("discord"))).username == "ann.b#1337"


@pytest.mark.parametrize("kind", ["Organization", "Bot"])
async def test_githubs_organizations_and_bots_are_nobodys(
    kind: str, providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers("github", changed(SHAPES["github"].existing, type=kind))

    assert (await look_ups.verify(an_account("github"))).verdict == "missing"


async def test_github_answers_without_a_token(providers: Providers, base: str) -> None:
    providers.set_answers("github", SHAPES["github"].existing)
    policy = structs.replace(policy_at(base), github=GithubAccess(None, f"{base}/github"))

    async with AccountLookups(policy) as look_ups:
        assert (await look_ups.verify(an_account("github"))).verdict == "exists"

    assert "Authorization" not in providers.requests[0].headers


@pytest.mark.parametrize("host", ["api.twitter.com", "api.x.com"])
async def test_twitter_knows_a_suspended_user_from_none(
    host: str, providers: Providers, look_ups: AccountLookups
) -> None:
    problems = f"https://{host}/2/problems"
    suspended = {"title": "Forbidden", "detail": "", "type": f"{problems}/resource-not-available"}
    unknown = {"title": "Not Found Error", "type": f"{problems}/resource-not-found"}

    providers.set_answers("twitter", (200, {"errors": [suspended]}))
    assert (await look_ups.verify(an_account("twitter"))).verdict == "cannot_check"
    providers.set_answers("twitter", (200, {"errors": [unknown]}))
    other = structs.replace(an_account("twitter"), user_id="2244994946")
    assert (await look_ups.verify(other)).verdict == "missing"


async def test_what_twitter_says_of_another_user_is_no_answer(
    providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers("twitter", SHAPES["twitter"].unknown)

    other = structs.replace(an_account("twitter"), user_id="2244994946")

    assert (await look_ups.verify(other)).verdict == "unavailable"


async def test_a_key_of_odd_characters_arrives_as_it_is(providers: Providers, base: str) -> None:
    key = "a&b=c%2Fd+e f#g"
    providers.set_answers("google", SHAPES["google"].existing)
    policy = structs.replace(policy_at(base), google=GoogleAccess(key, f"{base}/google"))

    async with AccountLookups(policy) as look_ups:
        await look_ups.verify(an_account("google"))

    assert providers.requests[0].query["key"] == key
    assert providers.requests[0].raw_path.endswith("&key=a%26b%3Dc%252Fd%2Be%20f%23g")
    assert providers.requests[0].query["personFields"] == "names"


@pytest.mark.parametrize("status", [403, 404])
async def test_spotify_in_development_mode_can_tell_nothing(
    status: int, providers: Providers, base: str
) -> None:
    providers.set_answers("spotify", (status, {"error": {"status": status, "message": "no"}}))
    policy = policy_at(base)
    assert policy.spotify is not None
    restricted = structs.replace(policy, spotify=replace(policy.spotify, extended_quota=False))

    async with AccountLookups(restricted) as look_ups:
        assert (await look_ups.verify(an_account("spotify"))).verdict == "cannot_check"


async def test_an_id_that_spotify_spells_otherwise_is_no_second_account(
    providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers("spotify", SHAPES["spotify"].existing)

    verification = await look_ups.verify(OAuthAccount("spotify", "Wizzler"))

    assert verification.verdict == "missing"
    assert "letter case" in str(verification.reason)


@pytest.mark.parametrize("provider", ["spotify", "tiktok"])
async def test_a_client_token_is_kept_and_made_anew_when_it_is_refused(
    provider: OAuthProvider, providers: Providers, look_ups: AccountLookups
) -> None:
    account, existing = an_account(provider), SHAPES[provider].existing
    ids = [structs.replace(account, user_id=f"ann{n}", username=f"ann{n}") for n in range(3)]

    async def ask(account_asked: OAuthAccount, *answers: CannedAnswer) -> AccountVerification:
        ours = changed(existing, id=account_asked.user_id) if provider == "spotify" else existing
        providers.set_answers(provider, *answers, ours)
        return await look_ups.verify(account_asked)

    assert (await ask(ids[0])).verdict == "exists"
    assert (await ask(ids[1])).verdict == "exists"
    assert providers.tokens_made == 1
    refused = (401, {"error": {"status": 401, "code": "access_token_invalid"}})
    assert (await ask(ids[2], refused)).verdict == "exists"
    assert providers.tokens_made == 2


@pytest.mark.parametrize("provider", ["spotify", "tiktok"])
@pytest.mark.parametrize(
    "token",
    [
        (400, {"error": "invalid_client", "error_description": "Invalid client"}),
        (200, {"error": "invalid_client", "error_description": "wrong"}),
        (200, {"access_token": "two\r\nlines", "expires_in": 3600}),
        (200, {"access_token": "a", "expires_in": "soon"}),
        (200, {"access_token": ["a"], "expires_in": 3600}),
        (500, {}),
    ],
)
async def test_without_a_client_token_nothing_is_asked_and_nothing_told(
    provider: OAuthProvider, token: CannedAnswer, providers: Providers, look_ups: AccountLookups
) -> None:
    providers.token = token

    assert (await look_ups.verify(an_account(provider))).verdict == "unavailable"
    assert providers.requests == []


async def test_a_client_token_is_replaced_before_it_ends(providers: Providers, base: str) -> None:
    providers.token = (200, {**TOKEN, "expires_in": 0.2})
    providers.set_answers("spotify", SHAPES["spotify"].existing)
    async with AccountLookups(policy_at(base, exists_seconds=0.0)) as look_ups:

        async def two_were_made() -> bool:
            assert (await look_ups.verify(an_account("spotify"))).verdict == "exists"
            return providers.tokens_made == 2

        await until(two_were_made)


@pytest.mark.parametrize("provider", ["instagram", "tiktok"])
@pytest.mark.parametrize("username", [None, "ann){id}", "ann b", "", "\u0430nn"])
async def test_a_username_that_could_say_more_than_a_name_is_not_asked_about(
    provider: OAuthProvider, username: str | None, providers: Providers, look_ups: AccountLookups
) -> None:
    account = structs.replace(an_account(provider), username=username)

    assert (await look_ups.verify(account)).verdict == "cannot_check"
    assert providers.requests == []


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("id_", ["", "../users/@me", "1?x=1", "1\r\nHost: x", "\uff11" * 18])
async def test_what_is_no_id_never_reaches_a_provider(
    provider: OAuthProvider, id_: str, providers: Providers, look_ups: AccountLookups
) -> None:
    assert (await look_ups.verify(OAuthAccount(provider, id_, "ann.b"))).verdict == "missing"
    assert providers.requests == []


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_provider_that_is_not_configured_cannot_be_checked(
    provider: OAuthProvider,
) -> None:
    async with AccountLookups(AccountLookupPolicy()) as look_ups:
        assert (await look_ups.verify(an_account(provider))).verdict == "cannot_check"


# --- retries, limits, caching -------------------------------------------------------------------


async def test_a_passing_failure_is_asked_again(
    providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers("discord", (502, {}), (503, {}), SHAPES["discord"].existing)

    assert (await look_ups.verify(an_account())).verdict == "exists"
    assert len(providers.requests) == 3


LIMITS: list[tuple[OAuthProvider, CannedAnswer, Callable[[], Mapping[str, str]]]] = [
    ("discord", (429, {"message": "", "retry_after": 0.3, "global": False}), dict),
    ("discord", (429, {}), lambda: {"X-RateLimit-Reset-After": "0.3"}),
    ("github", (429, {}), lambda: {"x-ratelimit-reset": str(time.time() + 0.3)}),
    ("github", (403, {}), lambda: _github_limit(0.3)),
    ("twitter", (429, {}), lambda: {"x-rate-limit-reset": str(time.time() + 0.3)}),
    ("telegram", (429, {"ok": False, "parameters": {"retry_after": 0.3}}), dict),
]


def _github_limit(seconds: float) -> Mapping[str, str]:
    return {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(time.time() + seconds)}


@pytest.mark.parametrize(("provider", "limit", "headers"), LIMITS)
async def test_a_limit_is_waited_out_as_long_as_the_provider_says(
    provider: OAuthProvider,
    limit: CannedAnswer,
    headers: Callable[[], Mapping[str, str]],
    providers: Providers,
    look_ups: AccountLookups,
) -> None:
    providers.set_answers(provider, limit, SHAPES[provider].existing)
    began = time.time()
    providers.headers = headers()

    assert (await look_ups.verify(an_account(provider))).verdict == "exists"
    assert time.time() - began > 0.2
    assert len(providers.requests) == 2


async def test_while_a_provider_asks_for_patience_nobody_asks_it_and_others_are_asked(
    providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers("discord", (429, {}))
    providers.set_answers("github", SHAPES["github"].existing)
    providers.headers = {"Retry-After": "600"}

    watch = Stopwatch()
    assert (await look_ups.verify(an_account("discord"))).verdict == "unavailable"
    other = structs.replace(an_account("discord"), user_id="308994132968210434")
    assert (await look_ups.verify(other)).verdict == "unavailable"
    assert (await look_ups.verify(an_account("github"))).verdict == "exists"

    assert len([path for path in providers.paths() if path.startswith("/discord")]) == 1
    assert watch.seconds() < 2


async def test_instagrams_limit_comes_with_status_400_and_is_kept_to(
    providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers("instagram", (400, {"error": {"message": "(#4)", "code": 4}}))
    for name in ("ann.b", "ann.c"):
        account = structs.replace(an_account("instagram"), username=name)
        assert (await look_ups.verify(account)).verdict == "unavailable"

    assert len(providers.requests) == 1


async def test_absurd_wishes_to_wait_do_no_harm(providers: Providers, base: str) -> None:
    for wish in ("inf", "nan", "-5", "1e400", "9" * 400, "soon"):
        providers.set_answers("discord", (429, {}), SHAPES["discord"].existing)
        providers.headers = {"Retry-After": wish}
        async with AccountLookups(policy_at(base)) as look_ups:
            verdict = (await look_ups.verify(an_account())).verdict
        assert verdict == ("unavailable" if wish == "9" * 400 else "exists"), wish


async def test_an_answer_is_kept_for_its_time_and_a_failure_not_at_all(
    providers: Providers, base: str
) -> None:
    ticks = ManualClock()
    request_counts: list[int] = []
    async with AccountLookups(policy_at(base, max_attempts=1), ticks) as look_ups:
        for later, answer in [
            (0.0, (500, {})),
            (0.0, SHAPES["discord"].unknown),
            (59.0, SHAPES["discord"].existing),
            (2.0, SHAPES["discord"].existing),
            (3_599.0, (500, {})),
            (2.0, (500, {})),
        ]:
            ticks.now += later
            providers.set_answers("discord", answer)
            await look_ups.verify(an_account())
            request_counts.append(len(providers.requests))

    assert request_counts == [1, 2, 2, 3, 3, 4]


async def test_a_kept_name_that_is_not_the_callers_is_asked_for_again(
    providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers("discord", SHAPES["discord"].existing)
    assert (await look_ups.verify(an_account())).username == "ann.b"
    providers.set_answers("discord", changed(SHAPES["discord"].existing, username="ann.c"))

    renamed = await look_ups.verify(structs.replace(an_account(), username="ann.c"))

    assert renamed.username == "ann.c"


async def test_no_more_answers_are_kept_than_allowed(providers: Providers, base: str) -> None:
    policy = policy_at(base, max_cached=2)
    ids = [f"30899413296821043{n}" for n in range(4)]
    async with AccountLookups(policy) as look_ups:
        for id_ in ids:
            providers.set_answers("discord", changed(SHAPES["discord"].existing, id=id_))
            await look_ups.verify(structs.replace(an_account(), user_id=id_))
        providers.set_answers("discord", (500, {}))
        verdicts = [
            (await look_ups.verify(structs.replace(an_account(), user_id=id_))).verdict
            for id_ in reversed(ids)
        ]

    assert verdicts == ["exists", "exists", "unavailable", "unavailable"]


async def test_callers_of_one_account_share_a_question_and_one_who_leaves_takes_nothing_along(
    providers: Providers, look_ups: AccountLookups
) -> None:
    providers.gate = asyncio.Event()
    providers.set_answers("discord", SHAPES["discord"].existing)
    callers = [asyncio.create_task(look_ups.verify(an_account())) for _ in range(50)]

    async def is_asked() -> bool:
        return len(providers.requests) == 1

    await until(is_asked)
    callers[0].cancel()
    providers.gate.set()
    answers = await asyncio.gather(*callers[1:])

    assert {answer.verdict for answer in answers} == {"exists"}
    assert len(providers.requests) == 1


async def test_one_partys_questions_delay_anothers_by_single_ones(
    providers: Providers, base: str
) -> None:
    """The provider answers one question after another."""
    providers.gate = gate = Turnstile()
    providers.set_answers(
        "twitter", (200, {"errors": [{"type": "https://x/2/problems/resource-not-found"}]})
    )
    patient = policy_at(base, max_concurrent=1, timeout_seconds=60.0, attempt_seconds=60.0)
    async with AccountLookups(patient) as look_ups:
        crowd = [
            asyncio.create_task(
                look_ups.verify(OAuthAccount("twitter", str(2244994945 + n)), "a crowd")
            )
            for n in range(200)
        ]

        async def is_asked() -> bool:
            return bool(providers.requests)

        await until(is_asked)
        alone = asyncio.create_task(look_ups.verify(OAuthAccount("twitter", "2244994900"), "one"))

        async def is_answered() -> bool:
            gate.let_one_through()
            return alone.done()

        await until(is_answered)
        assert len(providers.requests) < len(crowd)
        gate.set()
        await asyncio.gather(*crowd, alone)


async def test_only_so_many_questions_are_with_a_provider_at_once(
    providers: Providers, base: str
) -> None:
    providers.gate = asyncio.Event()
    providers.set_answers(
        "twitter", (200, {"errors": [{"type": "https://x/2/problems/resource-not-found"}]})
    )
    async with AccountLookups(policy_at(base, max_concurrent=3)) as look_ups:
        callers = [
            asyncio.create_task(look_ups.verify(OAuthAccount("twitter", str(2244994945 + n))))
            for n in range(12)
        ]

        async def three_came() -> bool:
            return providers.at_once == 3

        await until(three_came)
        providers.gate.set()
        answers = await asyncio.gather(*callers)

    assert {answer.verdict for answer in answers} == {"missing"}
    assert providers.most_at_once == 3


async def test_too_many_waiting_and_a_closed_client_are_unavailable(
    providers: Providers, base: str
) -> None:
    providers.gate = asyncio.Event()
    async with AccountLookups(policy_at(base, max_waiting=1)) as look_ups:
        waiting = asyncio.create_task(look_ups.verify(an_account()))

        async def is_asked() -> bool:
            return bool(providers.requests)

        await until(is_asked)
        other = structs.replace(an_account(), user_id="308994132968210434")
        assert (await look_ups.verify(other)).verdict == "unavailable"
    assert (await waiting).verdict == "unavailable"
    assert (await look_ups.verify(an_account())).verdict == "unavailable"


async def test_every_request_is_timed_by_provider_and_outcome(
    providers: Providers, look_ups: AccountLookups
) -> None:
    providers.set_answers("twitter", (503, {}), SHAPES["twitter"].existing)
    before = [_timed(outcome) for outcome in ("ok", "unavailable")]

    await look_ups.verify(an_account("twitter"))

    after = [_timed(outcome) for outcome in ("ok", "unavailable")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1]


def _timed(outcome: str) -> float:
    labels = {"provider": "twitter", "outcome": outcome}
    name = "ltzd_providers_request_seconds_count"
    return telemetry.REGISTRY.get_sample_value(name, labels) or 0.0


def test_no_credential_shows_in_a_policy() -> None:
    text = repr(policy_at("http://127.0.0.1:1"))

    assert not any(secret in text.replace("client_secret", "") for secret in SECRETS)
    assert "http://127.0.0.1:1/discord" in text


async def test_failures_are_logged_without_what_was_asked(
    providers: Providers, look_ups: AccountLookups
) -> None:
    for provider in PROVIDERS:
        providers.set_answers(provider, (500, {"message": "ann.b is in trouble"}))

    with capture_logs() as logs:
        for provider in PROVIDERS:
            await look_ups.verify(an_account(provider))

    assert {log["provider"] for log in logs} == set(PROVIDERS)
    logged: Any = str(logs)
    assert not any(secret in logged for secret in (*SECRETS, "ann.b", "3089941329"))

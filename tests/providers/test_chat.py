"""Roles and levels of the chat platform's members, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from ltzd import __version__
from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.faults import Fault
from ltzd.providers.chat import ChatPlatform, ChatPolicy, ChatUnavailable, validate_levels_url
from ltzd.rules.constraints.constraints import ChatLevel, ChatRole
from tests.support.services.brand_api import never_answer
from tests.support.services.chat_platform import (
    ADA,
    BEN,
    GUILD,
    OTHER_GUILD,
    OTHER_ROLE,
    ROLE,
    TOKEN,
    ChatServer,
    a_chat_server,
    answering,
    limited,
)
from tests.support.waiting import until


def role_in(guild: str = GUILD) -> ChatRole:
    return ChatRole(collection_id=1, kind="chat_role", guild_id=guild, role_id=ROLE)


def level_in(guild: str = GUILD) -> ChatLevel:
    return ChatLevel(collection_id=1, kind="chat_level", guild_id=guild, min=5)


@pytest.fixture
async def server() -> AsyncIterator[ChatServer]:
    async with a_chat_server() as server:
        yield server


@pytest.fixture
async def platform(server: ChatServer) -> AsyncIterator[ChatPlatform]:
    async with ChatPlatform(server.policy(timeout_seconds=2.0)) as platform:
        yield platform


async def failure(platform: ChatPlatform, question: ChatRole | ChatLevel) -> ChatUnavailable:
    with pytest.raises(ChatUnavailable) as failed:
        await platform.observe(question, ADA)
    return failed.value


async def test_a_members_roles_are_asked_with_the_bots_token(
    server: ChatServer, platform: ChatPlatform
) -> None:
    server.roles[GUILD, ADA] = [ROLE, OTHER_ROLE]

    assert await platform.observe(role_in(), ADA) == [ROLE, OTHER_ROLE]
    assert server.requests == [("role", GUILD, ADA)]
    assert server.headers[0]["Authorization"] == f"Bot {TOKEN}"
    assert server.headers[0]["User-Agent"] == f"DiscordBot (ltzd, {__version__})"


async def test_a_level_is_asked_without_the_bots_token(
    server: ChatServer, platform: ChatPlatform
) -> None:
    server.levels[GUILD, ADA] = 7

    assert await platform.observe(level_in(), ADA) == 7
    assert server.requests == [("level", GUILD, ADA)]
    assert "Authorization" not in server.headers[0]


async def test_who_is_no_member_has_no_roles_and_no_level(
    server: ChatServer, platform: ChatPlatform
) -> None:
    assert await platform.observe(role_in(), ADA) is None
    assert await platform.observe(level_in(), ADA) is None
    server.next[GUILD].append(answering(404, {"message": "Unknown User", "code": 10013}))
    assert await platform.observe(role_in(), ADA) is None


@pytest.mark.parametrize("account", ["", "12345", f"{ADA}/roles", "../../users/@me", "٨" * 18])
async def test_what_is_no_account_of_the_platform_is_not_asked(
    server: ChatServer, platform: ChatPlatform, account: str
) -> None:
    assert await platform.observe(role_in(), account) is None
    assert server.requests == []


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, {"message": "Unknown Guild", "code": 10004}),
        (404, {"message": "404: Not Found", "code": 0}),
        (404, None),
        (401, {"message": "401: Unauthorized", "code": 0}),
        (403, {"message": "Missing Access", "code": 50001}),
        (500, {"message": "500: Internal Server Error", "code": 0}),
        (502, None),
        (204, None),
        (302, {"roles": [ROLE]}),
        (200, None),
        (200, []),
        (200, {"roles": None}),
        (200, {"roles": {ROLE: True}}),
        (200, {"roles": ["x"] * 1_001}),
        (200, {"roles": [ROLE], "padding": "x" * 70_000}),
    ],
)
async def test_what_is_no_answer_about_roles_is_a_failure_and_never_no_member(
    server: ChatServer, platform: ChatPlatform, status: int, body: object
) -> None:
    server.next[GUILD].append(answering(status, body, Location="/api/v10"))

    assert (await failure(platform, role_in())).wait_seconds == 0
    assert len(server.requests) == 1, "no request is repeated, and no redirect followed"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (403, None),
        (500, {"level": 9}),
        (200, None),
        (200, {}),
        (200, {"level": None}),
        (200, {"level": "9"}),
        (200, {"level": 9.5}),
        (200, {"level": True}),
        (200, [{"level": 9}]),
    ],
)
async def test_what_is_no_answer_about_a_level_is_a_failure(
    server: ChatServer, platform: ChatPlatform, status: int, body: object
) -> None:
    server.next[GUILD].append(answering(status, body))
    await failure(platform, level_in())


async def test_silence_and_a_cut_connection_are_failures(server: ChatServer) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server.next[GUILD].append(never_answer)
    server.always[GUILD] = cut
    async with ChatPlatform(server.policy(timeout_seconds=0.2)) as platform:
        assert (await failure(platform, role_in())).reason == "no answer in time"
        assert (await failure(platform, role_in())).reason != "no answer in time"


@pytest.mark.parametrize(("missing", "question"), [("token", role_in), ("levels_url", level_in)])
async def test_what_is_not_configured_is_not_asked(
    server: ChatServer, missing: str, question: Any
) -> None:
    async with ChatPlatform(server.policy(**{missing: None})) as platform:
        assert "configured" in (await failure(platform, question())).reason
    assert server.requests == []


async def test_a_short_wait_that_the_platform_asks_for_is_waited_out(
    server: ChatServer, platform: ChatPlatform
) -> None:
    server.roles[GUILD, ADA] = [ROLE]
    server.next[GUILD].append(limited(0.3))
    begun = asyncio.get_running_loop().time()

    assert await platform.observe(role_in(), ADA) == [ROLE]
    assert asyncio.get_running_loop().time() - begun >= 0.3
    assert len(server.requests) == 2


async def test_during_a_long_wait_its_guild_is_left_alone_and_others_are_not(
    server: ChatServer, platform: ChatPlatform
) -> None:
    server.roles[OTHER_GUILD, ADA] = [ROLE]
    server.next[GUILD].append(limited(30))

    assert 29 < (await failure(platform, role_in())).wait_seconds <= 30
    assert (await failure(platform, role_in())).wait_seconds > 29
    assert len(server.requests) == 1
    assert await platform.observe(role_in(OTHER_GUILD), ADA) == [ROLE]
    assert await platform.observe(level_in(), ADA) is None, "levels are another service's"


@pytest.mark.parametrize(
    "answer",
    [
        limited(30, everywhere=True),
        answering(429, "error code: 1015", **{"Retry-After": "30"}),
    ],
    ids=["the platform", "a proxy before it"],
)
async def test_a_wait_for_all_guilds_is_kept_everywhere(
    server: ChatServer, platform: ChatPlatform, answer: Any
) -> None:
    server.next[GUILD].append(answer)

    await failure(platform, role_in())
    assert (await failure(platform, role_in(OTHER_GUILD))).wait_seconds > 29
    assert len(server.requests) == 1


async def test_a_429_without_a_time_does_not_make_us_ask_without_end(server: ChatServer) -> None:
    server.always[GUILD] = answering(429, {"retry_after": -1})
    async with ChatPlatform(server.policy(timeout_seconds=0.6)) as platform:
        await failure(platform, role_in())
    assert len(server.requests) <= 3


async def test_so_many_questions_are_under_way_at_once_and_no_more(server: ChatServer) -> None:
    gate, under_way, most = asyncio.Event(), 0, 0

    async def held(_request: web.Request) -> web.StreamResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await gate.wait()
        under_way -= 1
        return web.json_response({"roles": []})

    async def two_are_there() -> bool:
        return under_way == 2

    server.always[GUILD] = held
    server.roles[OTHER_GUILD, BEN] = [ROLE]
    policy = server.policy(max_concurrent=2, max_waiting=5)
    async with ChatPlatform(policy) as platform:
        waiting = [asyncio.create_task(platform.observe(role_in(), BEN)) for _ in range(5)]
        await until(two_are_there)
        assert "too many" in (await failure(platform, role_in())).reason
        other = asyncio.create_task(platform.observe(role_in(OTHER_GUILD), BEN))
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(*waiting) == [[]] * 5
        assert await other == [ROLE], "another guild's questions have places of their own"
    assert most == 2


async def test_a_hanging_levelling_bot_delays_no_question_about_roles(server: ChatServer) -> None:
    gate, hanging = asyncio.Event(), 0

    async def held(_request: web.Request) -> web.StreamResponse:
        nonlocal hanging
        hanging += 1
        await gate.wait()
        return web.json_response({"level": 7})

    async def two_hang() -> bool:
        return hanging == 2

    server.always[GUILD] = held
    server.roles[OTHER_GUILD, BEN] = [ROLE]
    policy = server.policy(max_concurrent=2, max_waiting=5, timeout_seconds=30.0)
    async with ChatPlatform(policy) as platform:
        levels = [asyncio.create_task(platform.observe(level_in(), BEN)) for _ in range(5)]
        await until(two_hang)
        assert "too many" in (await failure(platform, level_in())).reason
        assert await platform.observe(role_in(OTHER_GUILD), BEN) == [ROLE]
        gate.set()
        assert await asyncio.gather(*levels) == [7] * 5


async def test_a_closed_client_asks_nothing(server: ChatServer) -> None:
    platform = ChatPlatform(server.policy())
    await platform.close()
    await failure(platform, role_in())
    assert server.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "https://bot.example/levels",
        "https://bot.example/{guild_id}",
        "https://bot.example/{guild_id}/{user_id}/{user_id}",
        "https://bot.example/{guild_id}/{user_id}/{token}",
    ],
)
def test_a_url_of_levels_names_guild_and_user_and_nothing_else(url: str) -> None:
    with pytest.raises(ValueError, match=r"must hold|may hold"):
        validate_levels_url(url)


def test_secrets_do_not_show() -> None:
    policy = ChatPolicy(token=TOKEN, levels_url="https://bot.example/?key=hidden")
    assert TOKEN not in repr(policy)
    assert "hidden" not in repr(policy)
    good = "https://bot.example/{guild_id}/{user_id}"
    assert validate_levels_url(good) == good


# --- the sandbox speaks the same ----------------------------------------------------------------


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(tmp_path, 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


async def test_the_sandboxs_guilds_are_understood(sandbox: Sandbox) -> None:
    async def set_member(account: str, **member: object) -> None:
        account_state = {"provider": "discord", "id": account, "guildId": GUILD, **member}
        async with (
            aiohttp.ClientSession() as http,
            http.post(sandbox.control_endpoints()["accountsUrl"], json=account_state) as response,
        ):
            assert response.status == 200, await response.text()

    discord = sandbox.accounts_policy().discord
    assert discord is not None
    levels = validate_levels_url(sandbox.levels_url())
    async with ChatPlatform(ChatPolicy(discord.base_url, discord.token, levels)) as platform:
        for question in (role_in(), level_in()):
            assert await platform.observe(question, ADA) is None
        await set_member(ADA, roles=[ROLE, OTHER_ROLE], level=7)
        assert await platform.observe(role_in(), ADA) == [ROLE, OTHER_ROLE]
        assert await platform.observe(level_in(), ADA) == 7
        assert await platform.observe(role_in(OTHER_GUILD), ADA) is None
        await set_member(ADA, member=False)
        assert await platform.observe(role_in(), ADA) is None
        sandbox.faults.order("accounts", Fault(times=1, status=503))
        await failure(platform, role_in())
    async with ChatPlatform(ChatPolicy(discord.base_url, "another", levels)) as stranger:
        await failure(stranger, role_in())

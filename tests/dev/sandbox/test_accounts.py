"""The sandbox's OAuth providers: documented answers, the control endpoint, and faults."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from msgspec import structs

from ltzd.daemon.settings.accounts import AccountSettings
from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.faults import Fault
from ltzd.errors import Misconfigured
from ltzd.providers.chat import ChatPlatform, ChatPolicy
from ltzd.providers.oauth.lookups import AccountLookups
from ltzd.providers.oauth.policy import AccountLookupPolicy
from ltzd.rules.constraints.constraints import ChatLevel, ChatRole
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount, OAuthProvider
from ltzd.rules.oauth.ids import check_username, example_id
from tests.support.services.account_shapes import OUR_INSTAGRAM, SHAPES, Shape, difference

GUILD, ROLE, OTHER_ROLE = "613425648685547541", "697138785317814292", "697138785317814293"
ANN = "308994132968210433"
BY_NAME = ("instagram", "tiktok")
TELLING = ("discord", "twitter", "github", "google", "spotify")
"""The providers that report an unknown account."""


@pytest_asyncio.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = await started(tmp_path)
    yield sandbox
    await sandbox.stop()


@pytest_asyncio.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


@pytest_asyncio.fixture
async def look_ups(sandbox: Sandbox) -> AsyncIterator[AccountLookups]:
    async with AccountLookups(quick(sandbox.accounts_policy())) as look_ups:
        yield look_ups


async def started(folder: Path) -> Sandbox:
    sandbox = Sandbox(folder, 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    return sandbox


def quick(policy: AccountLookupPolicy) -> AccountLookupPolicy:
    return structs.replace(policy, first_pause_seconds=0.01, exists_seconds=0.0)


@pytest.fixture
def site(sandbox: Sandbox, http: aiohttp.ClientSession) -> "Site":
    return Site(sandbox, http)


class Site:
    """A client of the control endpoint and of the providers."""

    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.http = http

    async def control(self, status: int = 200, **order: object) -> dict[str, Any]:
        url = self.sandbox.control_endpoints()["accountsUrl"]
        async with self.http.post(url, json=order) as reply:
            assert reply.status == status, await reply.text()
            answer: dict[str, Any] = await reply.json()
            return answer

    async def ask(self, shape: Shape, **without: object) -> tuple[int, Any]:
        """Sends the documented request with the sandbox's credentials."""
        policy = self.sandbox.accounts_policy()
        provider = shape.account.provider
        base = getattr(policy, provider).base_url
        secrets = await self._secrets(policy, provider)
        path, query, headers = shape.path, dict(shape.query), dict(shape.headers)
        assert policy.telegram is not None
        assert policy.instagram is not None
        if provider == "telegram":
            path = f"/bot{policy.telegram.token}/getChat"
        if provider == "instagram":
            path = path.replace(OUR_INSTAGRAM, policy.instagram.user_id)
        query |= {name: value for name, value in secrets.items() if name in query}
        if "Authorization" in headers:
            headers["Authorization"] = secrets["Authorization"]
        if "User-Agent" in headers:
            headers["User-Agent"] += "ltzd, 1)"
        return await self.get(base + path, query, headers, shape)

    async def get(
        self, url: str, query: Mapping[str, str], headers: Mapping[str, str], shape: Shape
    ) -> tuple[int, Any]:
        async with self.http.request(
            shape.method, url, params=query, headers=headers, json=shape.body
        ) as reply:
            return reply.status, await reply.json()

    async def _secrets(
        self, policy: AccountLookupPolicy, provider: OAuthProvider
    ) -> dict[str, str]:
        access = getattr(policy, provider)
        match provider:
            case "discord":
                return {"Authorization": f"Bot {access.token}"}
            case "twitter" | "github":
                return {"Authorization": f"Bearer {access.token}"}
            case "google":
                return {"key": access.api_key}
            case "instagram":
                return {"access_token": access.token}
            case "spotify":
                pair = aiohttp.encode_basic_auth(access.client_id, access.client_secret)
                form = {"grant_type": "client_credentials"}
                token = await self._token(access.token_url, form, {"Authorization": pair})
                return {"Authorization": token}
            case "tiktok":
                form = {
                    "client_key": access.client_key,
                    "client_secret": access.client_secret,
                    "grant_type": "client_credentials",
                }
                return {
                    "Authorization": await self._token(f"{access.base_url}/oauth/token/", form, {})
                }
        return {}

    async def _token(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> str:
        async with self.http.post(url, data=form, headers=headers) as reply:
            answer = await reply.json()
            assert (answer["token_type"], answer["expires_in"]) == ("Bearer", 3600)
            return f"Bearer {answer['access_token']}"

    async def discord(self, path: str) -> tuple[int, Any]:
        access = self.sandbox.accounts_policy().discord
        assert access is not None
        headers = {"Authorization": f"Bot {access.token}", "User-Agent": "DiscordBot (x, 1)"}
        async with self.http.get(access.base_url + path, headers=headers) as reply:
            return reply.status, await reply.json()

    async def level(self, user: str) -> tuple[int, Any]:
        url = self.sandbox.levels_url().replace("{guild_id}", GUILD).replace("{user_id}", user)
        async with self.http.get(url) as reply:
            return reply.status, await reply.json()


def an_account(provider: OAuthProvider, username: str | None = None) -> OAuthAccount:
    return OAuthAccount(provider, example_id(provider), username)


# --- the contract -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
async def test_a_known_account_is_told_in_the_providers_own_shape(shape: Shape, site: Site) -> None:
    account = shape.account
    await site.control(provider=account.provider, id=account.user_id, username=account.username)

    status, body = await site.ask(shape)

    assert status == shape.existing[0]
    assert difference(body, shape.existing[1], shape.free) is None


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
async def test_an_unknown_account_is_told_in_the_providers_own_shape(
    shape: Shape, site: Site
) -> None:
    account = shape.account
    await site.control(
        provider=account.provider, id=account.user_id, username=account.username, known=False
    )

    status, body = await site.ask(shape)

    assert status == shape.unknown[0]
    assert difference(body, shape.unknown[1], shape.free) is None


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_wrong_credential_is_refused_and_the_client_blames_no_account(
    provider: OAuthProvider, sandbox: Sandbox
) -> None:
    policy = quick(sandbox.accounts_policy())
    access = getattr(policy, provider)
    (secret,) = {"token", "api_key", "client_secret"} & {field_.name for field_ in fields(access)}
    wrong = structs.replace(policy, **{provider: replace(access, **{secret: "1234567890:wrong"})})

    async with AccountLookups(wrong) as look_ups:
        assert (await look_ups.verify(an_account(provider, "ann.b"))).verdict == "unavailable"


async def test_what_is_no_snowflake_and_a_question_without_fields_are_400(site: Site) -> None:
    status, body = await site.discord("/users/abc")
    assert (status, body["code"]) == (400, 50035)

    google = replace(SHAPES["google"], query={"key": ""})
    assert (await site.ask(google))[0] == 400
    twitter = replace(SHAPES["twitter"], path="/users/abc")
    status, body = await site.ask(twitter)
    assert (status, body["title"]) == (400, "Invalid Request")


# --- which accounts there are -------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_every_wellformed_account_is_known_by_default_under_a_name_of_the_right_form(
    provider: OAuthProvider, look_ups: AccountLookups, site: Site
) -> None:
    username = (await site.control(provider=provider, id=example_id(provider)))["username"]
    check_username(provider, username)

    reply_ = await look_ups.verify(an_account(provider, username))

    assert reply_.verdict == "exists"
    assert reply_.username == (None if provider in {"google", "spotify"} else username)


async def test_an_obvious_fake_is_unknown_until_the_control_endpoint_makes_it_known(
    look_ups: AccountLookups, site: Site
) -> None:
    fake = OAuthAccount("discord", "111111111111111111")
    assert (await look_ups.verify(fake)).verdict == "missing"

    await site.control(provider="discord", id=fake.user_id, known=True)

    assert (await look_ups.verify(fake)).verdict == "exists"


@pytest.mark.parametrize("provider", TELLING)
async def test_a_control_request_applies_at_once(
    provider: OAuthProvider, look_ups: AccountLookups, site: Site
) -> None:
    verdicts = []
    for known in (False, True, False):
        await site.control(provider=provider, id=example_id(provider), known=known)
        verdicts.append((await look_ups.verify(an_account(provider))).verdict)

    assert verdicts == ["missing", "exists", "missing"]


async def test_a_username_of_a_control_request_stays_until_the_next(
    look_ups: AccountLookups, site: Site
) -> None:
    github = an_account("github")
    await site.control(provider="github", id=github.user_id, username="@octocat", known=True)
    assert (await site.control(provider="github", id=github.user_id))["username"] == "octocat"
    assert (await look_ups.verify(github)).username == "octocat"

    await site.control(provider="github", id=github.user_id, username="octodog")

    assert (await look_ups.verify(github)).username == "octodog"


@pytest.mark.parametrize("provider", BY_NAME)
async def test_of_an_unknown_username_instagram_and_tiktok_tell_nothing(
    provider: OAuthProvider, look_ups: AccountLookups, site: Site
) -> None:
    account = an_account(provider, "ann.b")
    assert (await look_ups.verify(account)).verdict == "exists"

    await site.control(provider=provider, id=account.user_id, username="ann.b", known=False)

    assert (await look_ups.verify(account)).verdict == "cannot_check"


@pytest.mark.parametrize(
    ("order", "field"),
    [
        ({"provider": "myspace", "id": "1"}, "provider"),
        ({"provider": "discord", "id": "abc"}, "id"),
        ({"provider": "discord"}, "id"),
        ({"provider": "github", "id": "583231", "username": "not ok"}, "username"),
        ({"provider": "github", "id": "583231", "known": "yes"}, "known"),
        ({"provider": "github", "id": "583231", "colour": 1}, "colour"),
        ({"provider": "github", "id": "583231", "guildId": GUILD}, "guildId"),
        ({"provider": "discord", "id": ANN, "roles": []}, "guildId"),
        ({"provider": "discord", "id": ANN, "guildId": "7", "roles": []}, "guildId"),
        ({"provider": "discord", "id": ANN, "guildId": GUILD, "roles": [7]}, "roles"),
        ({"provider": "discord", "id": ANN, "guildId": GUILD, "level": -1}, "level"),
        ({"provider": "discord", "id": ANN, "guildId": GUILD, "member": 1}, "member"),
    ],
)
async def test_a_malformed_control_request_names_the_field_and_changes_nothing(
    order: dict[str, object], field: str, site: Site
) -> None:
    assert (await site.control(status=400, **order))["field"] == field
    assert (await site.discord(f"/guilds/{GUILD}/members/{ANN}"))[0] == 404


async def test_accounts_and_credentials_survive_a_restart(tmp_path: Path) -> None:
    sandbox = await started(tmp_path)
    before = sandbox.accounts_policy()
    async with aiohttp.ClientSession() as http:
        site = Site(sandbox, http)
        await site.control(
            provider="discord", id=ANN, username="ann.b", guildId=GUILD, roles=[ROLE]
        )
        await site.control(provider="discord", id=ANN, guildId=GUILD, level=7)
        await site.control(provider="github", id="583231", known=False)
        await sandbox.stop()

        sandbox = await started(tmp_path)
        again, site = sandbox.accounts_policy(), Site(sandbox, http)
        async with AccountLookups(quick(again)) as look_ups:
            assert (await look_ups.verify(OAuthAccount("discord", ANN))).username == "ann.b"
            assert (await look_ups.verify(OAuthAccount("github", "583231"))).verdict == "missing"
        assert (await site.discord(f"/guilds/{GUILD}/members/{ANN}"))[1]["roles"] == [ROLE]
        assert await site.level(ANN) == (200, {"level": 7})
        await sandbox.stop()
    for provider in PROVIDERS:
        then, now = getattr(before, provider), getattr(again, provider)
        urls = {name: "" for name in ("base_url", "token_url") if hasattr(now, name)}
        assert replace(then, **urls) == replace(now, **urls)


async def test_a_damaged_journal_is_a_sentence(tmp_path: Path) -> None:
    sandbox = await started(tmp_path)
    await sandbox.stop()
    with (tmp_path / "sandbox" / "accounts.jsonl").open("a") as journal:
        journal.write('{"kind": "person", "id": "1"}\n')

    with pytest.raises(Misconfigured, match="--clean"):
        await started(tmp_path)


# --- guilds -------------------------------------------------------------------------------------


async def test_a_member_has_the_roles_and_the_level_of_the_control_request(site: Site) -> None:
    path = f"/guilds/{GUILD}/members/{ANN}"
    assert await site.discord(path) == (404, {"message": "Unknown Member", "code": 10007})
    assert (await site.level(ANN))[0] == 404

    answer = await site.control(provider="discord", id=ANN, guildId=GUILD, roles=[ROLE], level=3)
    assert (answer["roles"], answer["level"]) == ([ROLE], 3)
    await site.control(provider="discord", id=ANN, guildId=GUILD, roles=[ROLE, OTHER_ROLE])

    status, member = await site.discord(path)
    assert (status, member["roles"], member["user"]["id"]) == (200, [ROLE, OTHER_ROLE], ANN)
    assert await site.level(ANN) == (200, {"level": 3})

    await site.control(provider="discord", id=ANN, guildId=GUILD, member=False)
    assert (await site.discord(path))[0] == 404
    assert await site.level(ANN) == (200, {"level": 3})


async def test_who_is_no_user_is_no_member(site: Site) -> None:
    await site.control(provider="discord", id=ANN, guildId=GUILD, roles=[ROLE], known=False)

    reply_ = await site.discord(f"/guilds/{GUILD}/members/{ANN}")

    assert reply_ == (404, {"message": "Unknown User", "code": 10013})


async def test_the_chat_platforms_client_reads_roles_and_levels_here(
    sandbox: Sandbox, site: Site
) -> None:
    access = sandbox.accounts_policy().discord
    assert access is not None
    await site.control(provider="discord", id=ANN, guildId=GUILD, roles=[ROLE], level=5)
    policy = ChatPolicy(access.base_url, access.token, sandbox.levels_url())

    async with ChatPlatform(policy) as platform:
        role = ChatRole.model_validate(
            {"collection_id": 1, "kind": "chat_role", "guild_id": GUILD, "role_id": ROLE}
        )
        level = ChatLevel.model_validate(
            {"collection_id": 1, "kind": "chat_level", "guild_id": GUILD, "min": 5}
        )
        assert await platform.observe(role, ANN) == [ROLE]
        assert await platform.observe(level, ANN) == 5
        assert await platform.observe(role, "308994132968210434") is None
        assert await platform.observe(level, "308994132968210434") is None


# --- faults and settings ------------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
async def test_an_ordered_fault_is_unavailable_whatever_its_status(
    provider: OAuthProvider, status: int, sandbox: Sandbox
) -> None:
    sandbox.faults.order("accounts", Fault(times=9, status=status, retry_after_seconds=60))

    async with AccountLookups(quick(sandbox.accounts_policy())) as look_ups:
        assert (await look_ups.verify(an_account(provider, "ann.b"))).verdict == "unavailable"


async def test_a_lost_reply_and_a_cut_connection_are_asked_again(
    sandbox: Sandbox, look_ups: AccountLookups
) -> None:
    for fault in (Fault(times=1, drops_request=True), Fault(times=1, drops_reply=True)):
        sandbox.faults.order("accounts", fault)
        assert (await look_ups.verify(an_account("discord"))).verdict == "exists"
        assert sandbox.faults.left("accounts") == 0


@pytest.mark.parametrize("provider", ["discord", "github", "twitter", "telegram"])
async def test_a_limit_says_in_the_providers_own_way_when_it_ends(
    provider: OAuthProvider, sandbox: Sandbox, site: Site
) -> None:
    sandbox.faults.order("accounts", Fault(times=1, status=429, retry_after_seconds=40))

    status, body = await site.ask(SHAPES[provider])

    assert status == 429
    match provider:
        case "discord":
            assert body == {
                "message": "You are being rate limited.",
                "retry_after": 40.0,
                "global": False,
            }
        case "telegram":
            assert body["parameters"] == {"retry_after": 40}
            assert body["ok"] is False
        case "twitter":
            assert body["title"] == "Too Many Requests"
        case _:
            assert body["documentation_url"]


async def test_a_client_token_that_ends_early_is_made_anew(
    sandbox: Sandbox, look_ups: AccountLookups
) -> None:
    for provider in ("spotify", "tiktok"):
        assert (await look_ups.verify(an_account(provider, "ann.b"))).verdict == "exists"
        sandbox.revoke_client_tokens()
        assert (await look_ups.verify(an_account(provider, "ann.b"))).verdict == "exists"


async def test_the_settings_made_of_the_sandboxs_policy_ask_the_same(sandbox: Sandbox) -> None:
    policy = sandbox.accounts_policy()

    assert AccountSettings.of(policy).policy() == policy


async def test_fifty_look_ups_at_once_are_all_answered(look_ups: AccountLookups) -> None:
    asking = [
        look_ups.verify(OAuthAccount("discord", str(308994132968210433 + n))) for n in range(50)
    ]

    assert {reply_.verdict for reply_ in await asyncio.gather(*asking)} == {"exists"}

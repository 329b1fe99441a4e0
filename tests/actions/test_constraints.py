"""Purchase constraints on a real database, with an API whose answers the tests set."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ltzd.actions.constraints.chat_members import ChatMembers
from ltzd.actions.constraints.evaluation import PurchaseConstraints
from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.concurrency import work_slots
from ltzd.errors import IdentityUnavailable, Unauthorized, Unavailable, ValidationFailed
from ltzd.providers.chat import ChatPlatform
from ltzd.providers.external_api import ExternalApiClient, ExternalApiUnavailable
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.constraints.constraints import ExternalApi
from ltzd.rules.constraints.json_paths import Json
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import Transfer
from ltzd.rules.oauth.accounts import OAuthAccount, OAuthProvider
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.brands.keys import NewKeys
from ltzd.store.constraints import chat_claims
from ltzd.store.constraints.results import ResultKey
from ltzd.store.database import Pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer import mint_facts as facts
from ltzd.values import LTZ, ZERO_ADDRESS, Address, hex_of
from tests.support.rows import perk_facts as perk_ledger
from tests.support.rows.core import a_hash, a_wallet, value
from tests.support.rows.perk_facts import PerkLedger, token_of
from tests.support.services.chat_platform import (
    ADA,
    BEN,
    GUILD,
    OTHER_GUILD,
    OTHER_ROLE,
    ROLE,
    ChatServer,
    a_chat_server,
    answering,
    limited,
)
from tests.support.waiting import until

SHOP, RIVAL = a_wallet(0xB), a_wallet(0xC)
ANN, BOB = a_wallet(0xA1), a_wallet(0xA2)
PERK, BADGE, THEIRS = 7, 8, 9
URL = "https://api.shop.example/check?user={user_address}"
OTHER_URL = "https://api.shop.example/level?user={user_address}"
CROWD = 50


def asks(url: str = URL, **changes: Any) -> dict[str, Any]:
    return {
        "collection_id": PERK,
        "kind": "external_api",
        "url": url,
        "json_path": "$.allowed",
        "operator": "eq",
        "value": True,
    } | changes


HOLDS = {"collection_id": PERK, "kind": "nft_holding", "holding_collection_id": BADGE, "min": 2}
HAS = {"collection_id": PERK, "kind": "ltz_balance", "min": 100}


class ScriptedApis(ExternalApiClient):
    """Answers by URL; while `gate` is not set, no request is answered."""

    def __init__(self) -> None:
        self.answers: dict[str, Json] = {}
        self.requests: list[tuple[str, Address]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self, constraint: ExternalApi, user: Address) -> Json:
        self.requests.append((constraint.url, user))
        answer = self.answers.get(constraint.url)
        await self.gate.wait()
        if answer is None:
            raise ExternalApiUnavailable("status 500")
        return answer

    def say(self, allowed: bool, url: str = URL) -> None:
        self.answers[url] = {"allowed": allowed}

    async def are_asked(self, times: int) -> None:
        async def is_reached() -> bool:
            return len(self.requests) == times

        await until(is_reached)


@dataclass
class World:
    pool: Pool
    sealer: Sealer
    ledger: PerkLedger
    brand_cache: BrandCache
    apis: ScriptedApis
    constraints: PurchaseConstraints
    keys: dict[Address, NewKeys] = field(default_factory=dict)

    async def apply(self, *constraints: dict[str, Any], brand: Address = SHOP) -> None:
        """Applies a configuration of the brand with these constraints."""
        configuration = {
            "id": hex_of(brand),
            "name": "Shop",
            "domains": [f"{brand.hex()[-2:]}.example"],
        }
        file = Brand.model_validate({**configuration, "constraints": constraints})
        async with transaction(self.pool) as connection:
            applied = await brands.apply(connection, file, self.sealer)
            if applied.keys is not None:
                self.keys[brand] = applied.keys
            await self.brand_cache.refresh(connection)

    async def allows(self, user: Address = ANN, collection: int = PERK) -> bool:
        try:
            await self.constraints.check(user, collection)
        except ValidationFailed:
            return False
        return True

    async def refusal(self, user: Address = ANN) -> dict[str, Any]:
        with pytest.raises(ValidationFailed) as refused:
            await self.constraints.check(user, PERK)
        return dict(refused.value.details)

    async def forget(self, key: str | None = None, **narrow: Any) -> int:
        configuration: dict[str, Any] = {"api_url": URL, "user": None, "collection_id": None}
        return await self.constraints.invalidate(key, **(configuration | narrow))

    async def kept(self) -> int:
        count: int = await value(
            self.pool, "SELECT count(*) FROM constraint_results WHERE outcome IS NOT NULL"
        )
        return count

    @asynccontextmanager
    async def asking(self, user: Address = ANN) -> AsyncIterator["asyncio.Task[bool]"]:
        """Starts a check whose API request is answered only when the block ends."""
        before = len(self.apis.requests)
        self.apis.gate.clear()
        task = asyncio.create_task(self.allows(user))
        await self.apis.are_asked(before + 1)
        yield task
        self.apis.gate.set()


@pytest_asyncio.fixture
async def world(pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    """Three collections, the last of which is a rival brand's; no wallet owns anything."""
    sealer = Sealer.from_file(tmp_path / "master.key", create=True)
    brand_cache, apis = BrandCache(), ScriptedApis()
    world = World(
        pool,
        sealer,
        PerkLedger(pool),
        brand_cache,
        apis,
        PurchaseConstraints(pool, brand_cache, apis),
    )
    await world.ledger.block(
        *(perk_ledger.made(collection, SHOP) for collection in (PERK, BADGE)),
        perk_ledger.made(THEIRS, RIVAL),
    )
    yield world
    await world.constraints.close()


# --- evaluation -------------------------------------------------------------------------------


async def test_a_collection_without_constraints_may_be_claimed(world: World) -> None:
    await world.apply(asks())
    assert await world.allows(collection=BADGE)
    assert await world.allows(collection=THEIRS)
    assert await world.allows(collection=12_345)
    assert world.apis.requests == []


async def test_a_brands_constraints_do_not_apply_to_another_brands_collection(world: World) -> None:
    await world.apply(asks(collection_id=THEIRS))
    assert await world.allows(collection=THEIRS)


async def test_a_constrained_collection_that_the_index_does_not_know_is_not_claimed_yet(
    world: World,
) -> None:
    """During a rebuild the index does not know the collection yet."""
    await world.apply(asks(collection_id=12_345))
    world.apis.say(True)
    with pytest.raises(Unavailable):
        await world.constraints.check(ANN, 12_345)
    await world.ledger.block(perk_ledger.made(12_345, SHOP))
    assert await world.allows(collection=12_345)


async def test_all_constraints_must_hold_and_the_first_unsatisfied_one_is_named(
    world: World,
) -> None:
    await world.apply(asks(), HAS, asks(OTHER_URL))
    world.apis.say(True)
    world.apis.say(False, OTHER_URL)

    assert await world.refusal() == {
        "constraint": "ltz_balance",
        "position": 1,
        "collectionId": PERK,
    }
    assert len(world.apis.requests) == 2, "the constraints are evaluated concurrently"


async def test_tokens_are_counted_as_the_index_has_them(world: World) -> None:
    await world.apply(HOLDS)
    first, second = token_of(BADGE, 1), token_of(BADGE, 2)
    await world.ledger.block(perk_ledger.claimed(first, ANN))
    assert not await world.allows()
    fork = await world.ledger.block(perk_ledger.claimed(second, ANN)) - 1
    assert await world.allows()
    assert not await world.allows(BOB)
    await world.ledger.undo_above(fork)
    assert not await world.allows()
    await world.ledger.block(perk_ledger.claimed(second, ANN), perk_ledger.moved(first, ANN, BOB))
    assert not await world.allows()


@pytest.mark.parametrize(("units", "is_met"), [(100 * LTZ, True), (100 * LTZ - 1, False)])
async def test_ltz_balances_are_compared_in_the_smallest_unit(
    world: World, units: int, is_met: bool
) -> None:
    await world.apply(HAS)
    got = Transfer(LogPosition(2, a_hash("block 2"), 0, a_hash("t")), ZERO_ADDRESS, ANN, units)
    async with transaction(world.pool) as connection:
        await facts.insert_transfers(connection, [got])
    assert await world.allows() is is_met


async def test_a_disabled_brands_constraints_hold(world: World) -> None:
    await world.apply(asks())
    async with transaction(world.pool) as connection:
        await brand_records.switch(connection, SHOP, "disabled", on=True)
        await world.brand_cache.refresh(connection)
    world.apis.say(False)
    assert not await world.allows()


@pytest.mark.parametrize("collection", [PERK, 12_345])
async def test_no_claim_passes_the_constraints_of_a_brand_that_cannot_be_read(
    world: World, collection: int
) -> None:
    """A process of an older version has started; the index does not know one of the collections."""
    await world.apply(asks())
    await world.pool.execute("""UPDATE brands SET configuration = configuration || '{"new": 1}'""")
    book = BrandCache()
    async with session(world.pool) as connection:
        await book.refresh(connection)
    constraints = PurchaseConstraints(world.pool, book, world.apis)
    with pytest.raises(Unavailable):
        await constraints.check(ANN, collection)
    await constraints.check(ANN, THEIRS)


# --- cached results ---------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_result_is_cached_for_its_user_and_collection(world: World, allowed: bool) -> None:
    await world.apply(asks(), asks(collection_id=BADGE))
    world.apis.say(allowed)
    assert await world.allows() is allowed
    world.apis.say(not allowed)
    assert await world.allows() is allowed
    assert await world.allows(BOB) is not allowed
    assert await world.allows(collection=BADGE) is not allowed


@pytest.mark.parametrize(
    "changes",
    [
        {"url": OTHER_URL},
        {"value": False},
        {"operator": "ne"},
        {"json_path": "$.level"},
        {"method": "POST"},
        {"ttl_seconds": 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_a_result_from_before_a_changed_configuration_is_not_used(
    world: World, changes: dict[str, Any]
) -> None:
    await world.apply(asks())
    world.apis.say(True)
    world.apis.say(True, OTHER_URL)
    assert await world.allows()
    await world.apply(asks(**changes))
    await world.allows()
    await world.allows()
    assert len(world.apis.requests) == 2


async def test_a_result_of_another_process_is_used(world: World) -> None:
    await world.apply(asks())
    world.apis.say(True)
    elsewhere = ScriptedApis()
    other = PurchaseConstraints(world.pool, world.brand_cache, elsewhere)
    assert await world.allows()
    await other.check(ANN, PERK)
    assert elsewhere.requests == []


async def test_a_failing_api_satisfies_no_constraint_and_nothing_is_cached(world: World) -> None:
    await world.apply(asks())
    assert (await world.refusal())["constraint"] == "external_api"
    assert await world.kept() == 0
    world.apis.say(True)
    assert await world.allows()


# --- concurrency ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_fast", [True, False])
async def test_concurrent_claims_ask_the_api_once(world: World, is_fast: bool) -> None:
    """This includes claims that read the cache just before the result was written."""
    await world.apply(asks())
    world.apis.say(True)
    if is_fast:
        assert all(await asyncio.gather(*(world.allows() for _ in range(CROWD))))
    else:
        async with world.asking():
            crowd = [asyncio.create_task(world.allows()) for _ in range(CROWD)]
            await asyncio.sleep(0)
        assert all(await asyncio.gather(*crowd))
    assert world.apis.requests == [(URL, ANN)]


async def test_a_claim_that_read_the_cache_before_the_result_was_written_still_finds_it(
    world: World,
) -> None:
    await world.apply(asks())
    world.apis.say(True)
    assert await world.allows()
    (constraint,) = world.brand_cache.get(SHOP).constraints  # type: ignore[union-attr]
    looked_too_early: dict[int, Any] = {}
    key = ResultKey(ANN, PERK, 0)
    assert await world.constraints._outcome(key, SHOP, constraint, (), looked_too_early)
    assert len(world.apis.requests) == 1


async def test_a_cancelled_caller_does_not_cancel_the_answers_of_the_others(world: World) -> None:
    await world.apply(asks())
    world.apis.say(True)
    async with world.asking() as first:
        second = asyncio.create_task(world.allows())
        await asyncio.sleep(0)
        first.cancel()
    assert await second
    assert len(world.apis.requests) == 1


async def test_a_claim_after_a_configuration_change_is_judged_by_the_new_configuration(
    world: World,
) -> None:
    await world.apply(asks(value=True))
    world.apis.say(True)
    async with world.asking() as first:
        await world.apply(asks(value=False))
        second = asyncio.create_task(world.allows())
        await world.apis.are_asked(2)
    assert [await first, await second] == [True, False]


async def test_users_do_not_wait_for_each_other(world: World) -> None:
    await world.apply(asks())
    world.apis.say(True)
    async with world.asking(ANN) as first, world.asking(BOB) as second:
        pass
    assert [await first, await second] == [True, True]


class Slot(asyncio.Event):
    def release(self) -> None:
        self.set()


async def test_claims_that_wait_for_a_hanging_api_have_given_their_slots_back(world: World) -> None:
    """Otherwise the claims of one brand, whose API hangs, hold the slots of everybody's relays."""
    await world.apply(asks())
    world.apis.say(True)
    slots = [Slot(), Slot()]

    async def claim(slot: Slot) -> bool:
        work_slots.hold(slot)
        return await world.allows()

    async with world.asking():
        claims = [asyncio.create_task(claim(slot)) for slot in slots]
        async with asyncio.timeout(20):
            await asyncio.gather(*(slot.wait() for slot in slots))
    assert all(await asyncio.gather(*claims))


async def test_closing_cancels_running_evaluations(world: World) -> None:
    await world.apply(asks())
    async with world.asking() as task:
        await world.constraints.close()
        with pytest.raises(Unavailable):
            await task
    assert await world.kept() == 0


# --- invalidation -----------------------------------------------------------------------------


async def test_an_api_key_invalidates_only_its_own_brands_results(world: World) -> None:
    await world.apply(asks())
    await world.apply(asks(collection_id=THEIRS), brand=RIVAL)
    world.apis.say(True)
    for user in (ANN, BOB):
        for collection in (PERK, THEIRS):
            assert await world.allows(user, collection)

    assert await world.forget(world.keys[RIVAL].api_key, collection_id=PERK) == 0
    assert await world.forget(world.keys[RIVAL].api_key, user=ANN) == 1
    assert await world.forget(world.keys[SHOP].api_key) == 2
    assert await world.forget() == 1
    assert await world.kept() == 0


async def test_an_unknown_api_key_is_refused_and_invalidates_nothing(world: World) -> None:
    await world.apply(asks())
    world.apis.say(True)
    await world.allows()
    async with transaction(world.pool) as connection:
        await brand_records.switch(connection, SHOP, "disabled", on=True)
        await world.brand_cache.refresh(connection)
    for key in ("", "ltzak_nobody", world.keys[SHOP].security_key, world.keys[SHOP].api_key):
        with pytest.raises(Unauthorized):
            await world.forget(key)
    assert await world.kept() == 1


@pytest.mark.parametrize("by", ["url", "transfer", "reorg"])
async def test_a_result_invalidated_during_its_evaluation_is_evaluated_again(
    world: World, by: str
) -> None:
    """A waiting claim may be newer than the invalidation, so the old answer may be outdated."""
    await world.apply(asks())
    token = token_of(BADGE, 1)
    fork = await world.ledger.block(perk_ledger.claimed(token, BOB))
    await world.ledger.block(perk_ledger.moved(token, BOB, ANN))
    world.apis.say(True)
    async with world.asking() as first:
        world.apis.say(False)
        match by:
            case "url":
                assert await world.forget() == 0, "there was no valid result"
            case "transfer":
                await world.ledger.block(perk_ledger.moved(token, ANN, BOB))
            case "reorg":
                await world.ledger.undo_above(fork)
        late = asyncio.create_task(world.allows())
        await asyncio.sleep(0)

    assert [await first, await late] == [False, False]
    assert len(world.apis.requests) == 2
    assert not await world.allows()
    assert len(world.apis.requests) == 2, "the later answer is cached"


@pytest.mark.parametrize("is_allowed_at_last", [True, False])
async def test_a_claim_that_is_invalidated_repeatedly_is_judged_by_the_third_answer(
    world: World, is_allowed_at_last: bool
) -> None:
    """Invalidating needs no key, so it must not delay a claim."""
    await world.apply(asks())
    world.apis.say(not is_allowed_at_last)
    world.apis.gate.clear()
    task = asyncio.create_task(world.allows())
    for times in (1, 2, 3):
        await world.apis.are_asked(times)
        await world.forget()
        if times == 2:
            world.apis.say(is_allowed_at_last)
        gate, world.apis.gate = world.apis.gate, asyncio.Event()
        gate.set()
    assert await task is is_allowed_at_last
    assert (await world.kept(), len(world.apis.requests)) == (0, 3)


# --- the chat platform ------------------------------------------------------------------------

HAS_ROLE = {"collection_id": PERK, "kind": "chat_role", "guild_id": GUILD, "role_id": ROLE}
HAS_LEVEL = {"collection_id": PERK, "kind": "chat_level", "guild_id": GUILD, "min": 5}
BY_ACCESS_TOKEN = TokenUser("did:privy:ann", None)


def by_identity_token(*accounts: OAuthAccount) -> TokenUser:
    return TokenUser("did:privy:ann", (ANN,), accounts)


class LinkedAccounts:
    """An identity provider with linked accounts; it is unavailable if `accounts` is None."""

    def __init__(self) -> None:
        self.accounts: dict[str, tuple[OAuthAccount, ...]] | None = {}
        self.requests: list[str] = []

    def link(self, *accounts: OAuthAccount) -> None:
        self.accounts = {BY_ACCESS_TOKEN.subject: accounts}

    async def accounts_of(self, subject: str) -> tuple[OAuthAccount, ...]:
        self.requests.append(subject)
        if self.accounts is None:
            raise IdentityUnavailable("The identity provider cannot be reached")
        return self.accounts.get(subject, ())


@dataclass
class Chat:
    """The world with a chat platform."""

    world: World
    server: ChatServer
    linked: LinkedAccounts
    constraints: PurchaseConstraints

    async def pregenerate(self, account: str, provider: OAuthProvider = "discord") -> None:
        async with transaction(self.world.pool) as connection:
            await connection.execute(
                "INSERT INTO pregenerations (oauth_provider, oauth_user_id, identity_subject, "
                "wallet) VALUES ($1, $2, 'did:privy:ann', $3)",
                provider,
                account,
                ANN,
            )

    async def allows(self, speaker: TokenUser | None = None, user: Address = ANN) -> bool:
        try:
            await self.constraints.check(user, PERK, speaker)
        except ValidationFailed:
            return False
        return True


@pytest_asyncio.fixture
async def chat(world: World) -> AsyncIterator[Chat]:
    async with a_chat_server() as server:
        linked: Any = LinkedAccounts()
        async with ChatPlatform(server.policy(timeout_seconds=0.5)) as platform:
            identities: IdentityProvider = linked
            members = ChatMembers(world.pool, identities, platform)
            constraints = PurchaseConstraints(world.pool, world.brand_cache, world.apis, members)
            yield Chat(world, server, linked, constraints)
            await constraints.close()


async def test_the_account_of_a_pregenerated_wallet_is_checked(chat: Chat) -> None:
    await chat.world.apply(HAS_ROLE)
    await chat.pregenerate(ADA)
    await chat.pregenerate(BEN, "twitter")
    chat.server.roles[GUILD, ADA] = [OTHER_ROLE, ROLE]

    assert await chat.allows()
    assert chat.server.requests == [("role", GUILD, ADA)]
    assert not await chat.allows(user=BOB), "the account belongs to another wallet"


async def test_the_accounts_in_an_identity_token_are_checked(chat: Chat) -> None:
    await chat.world.apply(HAS_LEVEL)
    chat.server.levels[GUILD, BEN] = 5
    speaker = by_identity_token(OAuthAccount("twitter", ADA), OAuthAccount("discord", BEN))

    assert await chat.allows(speaker)
    assert chat.linked.requests == []
    assert not await chat.allows(by_identity_token(OAuthAccount("discord", ADA)))


async def test_the_accounts_of_an_access_token_are_read_from_the_identity_provider(
    chat: Chat,
) -> None:
    await chat.world.apply(HAS_ROLE)
    chat.linked.link(OAuthAccount("discord", ADA))
    chat.server.roles[GUILD, ADA] = [ROLE]

    assert await chat.allows(BY_ACCESS_TOKEN)
    assert chat.linked.requests == [BY_ACCESS_TOKEN.subject]


async def test_one_account_that_satisfies_is_enough(chat: Chat) -> None:
    await chat.world.apply(HAS_ROLE)
    await chat.pregenerate(ADA)
    chat.linked.link(OAuthAccount("discord", BEN))
    chat.server.roles[GUILD, ADA] = [OTHER_ROLE]
    assert not await chat.allows(BY_ACCESS_TOKEN)
    chat.server.roles[OTHER_GUILD, BEN] = [ROLE]
    await chat.world.apply(HAS_ROLE | {"ttl_seconds": 61})
    assert not await chat.allows(BY_ACCESS_TOKEN)
    chat.server.roles[GUILD, BEN] = [ROLE]
    await chat.world.apply(HAS_ROLE | {"ttl_seconds": 62})
    assert await chat.allows(BY_ACCESS_TOKEN)


@pytest.mark.parametrize(
    "constraint", [HAS_ROLE, HAS_LEVEL], ids=lambda constraint_: str(constraint_["kind"])
)
async def test_a_user_without_an_account_is_asked_to_link_one(
    chat: Chat, constraint: dict[str, Any]
) -> None:
    await chat.world.apply(constraint)
    chat.linked.link(OAuthAccount("twitter", ADA))

    with pytest.raises(ValidationFailed, match="link your discord account") as refused:
        await chat.constraints.check(ANN, PERK, BY_ACCESS_TOKEN)

    assert refused.value.details == {
        "constraint": constraint["kind"],
        "position": 0,
        "collectionId": PERK,
        "reason": "account_not_linked",
        "provider": "discord",
    }
    assert (chat.server.requests, await chat.world.kept()) == ([], 0)


async def test_a_user_with_an_account_without_the_role_is_not_asked_to_link_one(chat: Chat) -> None:
    await chat.world.apply(HAS_ROLE)
    await chat.pregenerate(ADA)

    with pytest.raises(ValidationFailed) as refused:
        await chat.constraints.check(ANN, PERK)

    expected = {"constraint": "chat_role", "position": 0, "collectionId": PERK}
    assert refused.value.details == expected


async def test_an_account_that_is_linked_later_counts_at_once(chat: Chat) -> None:
    """A result for the earlier account is still cached."""
    await chat.world.apply(HAS_ROLE)
    await chat.pregenerate(ADA)
    chat.server.roles[GUILD, BEN] = [ROLE]
    assert not await chat.allows()
    assert await chat.allows(by_identity_token(OAuthAccount("discord", BEN)))


async def test_while_the_identity_provider_is_unavailable_known_accounts_suffice(
    chat: Chat,
) -> None:
    await chat.world.apply(HAS_ROLE)
    chat.linked.accounts = None
    chat.server.roles[GUILD, ADA] = [ROLE]
    with pytest.raises(IdentityUnavailable):
        await chat.constraints.check(ANN, PERK, BY_ACCESS_TOKEN)
    await chat.pregenerate(ADA)
    assert await chat.allows(BY_ACCESS_TOKEN)


ADAS = TokenUser("did:privy:moves", (ANN, BOB), (OAuthAccount("discord", ADA),))
"""Claims by the person who has linked Ada's account at the moment, with either wallet."""


async def claimed(world: World, wallet: Address, number: int = 1) -> None:
    await value(
        world.pool,
        "INSERT INTO perk_claims VALUES ($1, 0, 1, '', $2, $3, 1, 0, $4, $5)",
        a_hash(f"{wallet.hex()} {number}"),
        wallet,
        PERK,
        number,
        bytes(32),
    )


async def collection_allows(world: World, most: int) -> None:
    await value(
        world.pool, "UPDATE collections SET max_per_user = $2 WHERE collection_id = $1", PERK, most
    )


async def test_an_account_that_moves_to_another_wallet_satisfies_no_second_claim(
    chat: Chat,
) -> None:
    """The account is linked to one identity, claims, and is then linked to the next identity."""
    await chat.world.apply(HAS_ROLE)
    await collection_allows(chat.world, 1)
    chat.server.roles[GUILD, ADA] = [ROLE]
    await chat.constraints.check(ANN, PERK, ADAS, 1)
    await chat.constraints.check(ANN, PERK, ADAS, 1)  # The same claim is repeated.
    for claims in (1, None):
        with pytest.raises(ValidationFailed, match="another wallet") as refused:
            await chat.constraints.check(BOB, PERK, ADAS, claims)
        assert refused.value.details["reason"] == "account_in_use"
    await claimed(chat.world, ANN)
    await value(chat.world.pool, "UPDATE chat_claims SET reserved_at = now() - interval '1 year'")
    assert not await chat.allows(ADAS, BOB)


async def test_an_admitted_claim_that_is_never_mined_frees_the_account_after_an_hour(
    chat: Chat,
) -> None:
    await chat.world.apply(HAS_ROLE)
    await collection_allows(chat.world, 1)
    chat.server.roles[GUILD, ADA] = [ROLE]
    await chat.constraints.check(ANN, PERK, ADAS, 1)
    await value(chat.world.pool, "UPDATE chat_claims SET reserved_at = now() - interval '1 hour'")
    async with session(chat.world.pool) as connection:
        await chat_claims.delete_unused(connection)
    await chat.constraints.check(BOB, PERK, ADAS, 1)


async def test_of_two_wallets_that_claim_concurrently_with_one_account_one_succeeds(
    chat: Chat,
) -> None:
    await chat.world.apply(HAS_ROLE)
    await collection_allows(chat.world, 1)
    chat.server.roles[GUILD, ADA] = [ROLE]
    outcomes = await asyncio.gather(
        *(chat.constraints.check(wallet, PERK, ADAS, 1) for wallet in (ANN, BOB)),
        return_exceptions=True,
    )
    assert sorted(map(type, outcomes), key=str) == [type(None), ValidationFailed]


async def test_an_account_satisfies_as_many_claims_as_one_wallet_may_have(chat: Chat) -> None:
    await chat.world.apply(HAS_ROLE)
    await collection_allows(chat.world, 2)
    chat.server.roles[GUILD, ADA] = [ROLE]
    await chat.constraints.check(ANN, PERK, ADAS, 1)
    await chat.constraints.check(BOB, PERK, ADAS, 1)
    with pytest.raises(ValidationFailed):
        await chat.constraints.check(BOB, PERK, ADAS, 2)
    await collection_allows(chat.world, 0)
    await chat.constraints.check(BOB, PERK, ADAS, 2)
    await chat.constraints.check(BOB, PERK, ADAS, 2**255)


async def test_constraints_without_chat_do_not_read_linked_accounts(chat: Chat) -> None:
    await chat.world.apply(asks())
    chat.world.apis.say(True)
    chat.linked.accounts = None
    assert await chat.allows(BY_ACCESS_TOKEN)


async def test_a_chat_platforms_answer_is_cached_until_it_expires(chat: Chat) -> None:
    await chat.world.apply(HAS_ROLE, HAS_LEVEL)
    await chat.pregenerate(ADA)
    chat.server.roles[GUILD, ADA] = [ROLE]
    chat.server.levels[GUILD, ADA] = 5
    assert await chat.allows()
    chat.server.roles.clear()
    chat.server.levels.clear()
    assert await chat.allows()
    assert len(chat.server.requests) == 2
    await chat.world.ledger.block(perk_ledger.claimed(token_of(BADGE, 1), ANN))
    assert not await chat.allows(), "a transfer deleted all results of the wallet"


@pytest.mark.parametrize(
    "trouble",
    [answering(403, {"code": 50001}), answering(503), limited(60)],
    ids=["refusal", "outage", "limit"],
)
async def test_an_unavailable_chat_platform_satisfies_no_constraint_and_nothing_is_cached(
    chat: Chat, trouble: Any
) -> None:
    await chat.world.apply(HAS_ROLE)
    await chat.pregenerate(ADA)
    chat.server.roles[GUILD, ADA] = [ROLE]
    chat.server.next[GUILD].append(trouble)
    assert not await chat.allows()
    assert await chat.world.kept() == 0


async def test_nothing_is_cached_if_one_account_could_not_be_checked(chat: Chat) -> None:
    await chat.world.apply(HAS_ROLE)
    await chat.pregenerate(ADA)
    speaker = by_identity_token(OAuthAccount("discord", BEN))
    chat.server.next[GUILD].append(answering(503))
    assert not await chat.allows(speaker)
    assert await chat.world.kept() == 0
    chat.server.roles[GUILD, BEN] = [ROLE]
    assert await chat.allows(speaker)


async def test_without_a_platform_a_chat_constraint_is_not_satisfied(chat: Chat) -> None:
    await chat.world.apply(HAS_ROLE)
    await chat.pregenerate(ADA)
    assert not await chat.world.allows()
    assert await chat.world.kept() == 0


async def test_concurrent_claims_of_one_user_ask_the_platform_once(chat: Chat) -> None:
    await chat.world.apply(HAS_ROLE)
    await chat.pregenerate(ADA)
    chat.server.roles[GUILD, ADA] = [ROLE]
    assert all(await asyncio.gather(*(chat.allows() for _ in range(CROWD))))
    assert len(chat.server.requests) == 1


async def test_invalidating_a_url_keeps_the_chat_platforms_results(chat: Chat) -> None:
    await chat.world.apply(HAS_ROLE)
    await chat.pregenerate(ADA)
    chat.server.roles[GUILD, ADA] = [ROLE]
    assert await chat.allows()
    assert await chat.world.forget() == 0
    assert await chat.world.kept() == 1

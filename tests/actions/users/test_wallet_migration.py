"""An address, a pregenerated account and a log-in of one person end on one wallet."""

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec import structs
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.actions.users.wallet_migration import WalletMigration
from ltzd.errors import NoConnection, ValidationFailed
from ltzd.providers.identity.client import IdentityClient, IdentityUser, UserProfile
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.store.database import open_pool, session
from ltzd.store.site_plugin import members as site_members
from ltzd.store.site_plugin.members import Member
from ltzd.store.users import users
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.values import Address, address_of, hex_of
from tests.support.rows.books import reconcile
from tests.support.rows.core import BRAND, a_wallet, value
from tests.support.services.identity import Provider, a_provider
from tests.support.sites.members import linked
from tests.support.sites.one_person import (
    LocalWorld,
    VendorWorld,
    World,
    a_local_world,
    a_vendor_world,
)
from tests.support.surfaces.event_action import SEALER, a_request
from tests.support.waiting import until

EMAIL = "ann@shop.example"
DISCORD = OAuthAccount("discord", "308994132968210433")
GITHUB = OAuthAccount("github", "583231")
KELVIN = "\N{KELVIN SIGN}im@shop.example"
ORDERS = list(itertools.permutations(("event", "pregeneration", "log-in")))


@pytest_asyncio.fixture
async def local(database_url: str) -> AsyncIterator[LocalWorld]:
    async with a_local_world(database_url) as world:
        yield world


@pytest_asyncio.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    async with a_provider(tmp_path) as provider:
        yield provider


@pytest_asyncio.fixture
async def vendor(database_url: str, provider: Provider) -> AsyncIterator[VendorWorld]:
    async with a_vendor_world(database_url, provider) as world:
        yield world


async def no_disagreement(world: World) -> None:
    async with session(world.pool) as connection:
        assert await reconcile(connection, 10) == []


async def in_order(
    world: World, order: tuple[str, ...], log_in: Callable[[], Awaitable[str]]
) -> None:
    """Applies the three in this order; afterwards all grants to any of them go to one wallet."""
    first: dict[str, object] = {}
    token = ""
    for step in order:
        if step == "event":
            first[step] = await world.event(EMAIL)
        elif step == "pregeneration":
            first[step] = await world.pregenerated(DISCORD)
        else:
            token = await log_in()
            first[step] = (await world.used(token))[0]

    home = await world.pregenerated(DISCORD)
    assert home == first["pregeneration"], "a pregeneration's answer never changes"
    assert await world.event(EMAIL) == home
    assert (await world.used(token))[0] == home
    assert await world.event(EMAIL) == home
    await no_disagreement(world)


# --- custodial wallets --------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
async def test_with_custodial_wallets_address_account_and_log_in_end_on_one_wallet_in_any_order(
    local: LocalWorld, order: tuple[str, ...]
) -> None:
    async def log_in() -> str:
        return local.token("user-7", DISCORD, email=EMAIL)

    await in_order(local, order, log_in)


async def test_random_sequences_end_on_the_oldest_pregenerated_wallet(
    local: LocalWorld,
) -> None:
    seed = random.randrange(10**9)
    rng = random.Random(seed)
    for person in range(12):
        emails = [f"{person}.{number}@shop.example" for number in range(2)]
        accounts = [OAuthAccount("github", f"{5832310 + person * 10 + n}") for n in range(3)]
        pairs: dict[OAuthAccount, Address] = {}
        met: list[Address] = []
        for _ in range(rng.randrange(4, 10)):
            match rng.choice(("event", "pregeneration", "log-in")):
                case "event":
                    met.append(await local.event(rng.choice(emails)))
                case "pregeneration":
                    account = rng.choice(accounts)
                    wallet = await local.pregenerated(account)
                    assert pairs.setdefault(account, wallet) == wallet, seed
                    met.append(wallet)
                case _:
                    chosen = rng.sample(accounts, rng.randrange(4))
                    email = rng.choice([None, *emails])
                    met += await local.used(local.token(f"user {person}", *chosen, email=email))
        for email in emails:
            token = local.token(f"user {person}", *accounts, email=email)
            wallets = await local.used(token)

        assert set(met) <= set(wallets), f"none is lost; seed {seed}"
        in_time = [
            wallet
            for wallet in await made_in_order(local, wallets)
            if not pairs or wallet in pairs.values()
        ]
        home = wallets[0]
        assert home == in_time[0], seed
        assert [await local.event(email) for email in emails] == [home, home], seed
        for account in accounts:
            assert await local.pregenerated(account) == pairs.get(account, home), seed
    await no_disagreement(local)


async def made_in_order(world: World, wallets: tuple[Address, ...]) -> list[Address]:
    rows = await world.pool.fetch(
        "SELECT wallet FROM custodial_users WHERE wallet = ANY($1::bytea[])"
        " ORDER BY created_at, subject",
        list(wallets),
    )
    return [Address(row["wallet"]) for row in rows]


async def test_earlier_rewards_stay_in_the_old_wallet_which_still_belongs_to_the_user(
    local: LocalWorld,
) -> None:
    request = a_request(EMAIL)
    before = await local.events.record(request)
    pregenerated = await local.pregenerated(DISCORD)
    token = local.token("user-7", DISCORD, email=EMAIL)

    assert await local.used(token) == (pregenerated, before.wallet)

    assert (await local.events.find(before.event_id)).wallet == before.wallet
    assert await local.rewarded(before.event_id) == before.wallet
    after = await local.events.record(request)
    assert (after.wallet, after.wallet_created) == (pregenerated, False)
    user = await local.users.user_of(token)
    await local.users.require_wallet(user, before.wallet)
    await local.users.require_wallet(user, pregenerated)


async def test_a_site_member_migrates_with_his_user_unless_he_is_linked(local: LocalWorld) -> None:
    before = await local.events.record(a_request(EMAIL))
    pregenerated = await local.pregenerated(DISCORD)
    user_id = await value(local.pool, "SELECT id FROM users")
    plain = Member(BRAND, "site.example", 1, "ann", user_id, before.wallet, None)
    async with session(local.pool) as connection:
        for member in (plain, structs.replace(plain, site_user_id=2)):
            await site_members.save(connection, member, EMAIL)
    await linked(local.pool, structs.replace(plain, site_user_id=2))

    await local.used(local.token("user-7", DISCORD, email=EMAIL))

    async with session(local.pool) as connection:
        members = [await site_members.find(connection, BRAND, "site.example", n) for n in (1, 2)]
    wallets = [each.member.wallet for each in members if each is not None]
    assert wallets == [pregenerated, before.wallet]


async def test_two_pregenerated_accounts_of_one_person_keep_their_answers(
    local: LocalWorld,
) -> None:
    pairs = [await local.pregenerated(account) for account in (DISCORD, GITHUB)]
    event = await local.event(EMAIL)

    used_wallets = await local.used(local.token("user-7", GITHUB, DISCORD, email=EMAIL))

    assert used_wallets == (*pairs, event)
    assert [await local.pregenerated(account) for account in (DISCORD, GITHUB)] == pairs
    assert await local.event(EMAIL) == pairs[0], "the older of the two wallets"


async def test_an_address_migrates_also_if_a_later_token_proves_the_pregenerated_account(
    local: LocalWorld,
) -> None:
    first = await local.event(EMAIL)
    assert await local.used(local.token("user-7", email=EMAIL)) == (first,)
    pregenerated = await local.pregenerated(DISCORD)
    assert await local.event(EMAIL) == first

    await local.used(local.token("user-7", DISCORD))

    assert await local.event(EMAIL) == pregenerated


@pytest.mark.parametrize("email", [None, "another@shop.example", "ann@shop.examp1e"])
async def test_an_address_that_the_token_does_not_verify_does_not_migrate(
    local: LocalWorld, email: str | None
) -> None:
    first = await local.event(EMAIL)
    await local.pregenerated(DISCORD, email=EMAIL, userEmail=EMAIL)

    used_wallets = await local.used(
        local.token("user-7", structs.replace(DISCORD, email=EMAIL), email=email)
    )

    assert first not in used_wallets
    assert await local.event(EMAIL) == first
    assert await value(local.pool, "SELECT proven_by FROM users") is None


async def test_an_address_stays_with_the_first_person_who_proved_it(
    local: LocalWorld,
) -> None:
    first = await local.event(EMAIL)
    await local.used(local.token("first", email=EMAIL))
    await local.pregenerated(DISCORD)

    for _ in range(2):
        used_wallets = await local.used(local.token("second", DISCORD, email=EMAIL))
        assert first not in used_wallets
        assert await local.event(EMAIL) == first
        await local.moved_on()


async def test_new_events_for_an_owners_proven_names_go_to_his_wallet(
    local: LocalWorld,
) -> None:
    """No user row of the address exists yet that could migrate."""
    pregenerated = await local.pregenerated(DISCORD)
    made = await local.identity.wallet_of_email(EMAIL)
    assert made.wallet != pregenerated

    await local.used(local.token("user-7", DISCORD, email=EMAIL))

    assert await local.event(EMAIL) == pregenerated


# --- a vendor -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["accessToken", "identityToken"])
@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
async def test_with_a_vendor_address_account_and_log_in_end_on_one_wallet_in_any_order(
    vendor: VendorWorld, order: tuple[str, ...], kind: str
) -> None:
    async def log_in() -> str:
        given = await vendor.log_in(DISCORD, links=[{"email": EMAIL}])
        return str(given[kind])

    await in_order(vendor, order, log_in)


async def test_a_token_that_lists_the_address_is_enough_to_migrate(
    vendor: VendorWorld, provider: Provider
) -> None:
    first = await vendor.event(EMAIL)
    rows = [{"type": "email", "address": "Ann@Shop.Example", "lv": 1}]
    given = await vendor.log_in(DISCORD, claims={"linked_accounts": json.dumps(rows)})

    await vendor.used(given["identityToken"])

    assert await vendor.event(EMAIL) == address_of(given["walletAddress"]) != first


@pytest.mark.parametrize(
    "row",
    [
        {"type": "email", "address": EMAIL, "lv": None},
        {"type": "email", "address": EMAIL, "latest_verified_at": None},
        {"type": "email", "address": EMAIL},
        {"type": "google_oauth", "subject": "1" * 21, "email": EMAIL, "lv": 1},
        {"type": "github_oauth", "subject": "1", "username": "ann", "email": EMAIL, "lv": 1},
        {"type": "email", "address": "kim@shop.example", "lv": 1},
        {"type": "email", "address": [EMAIL], "lv": 1},
    ],
    ids=str,
)
async def test_an_unproven_or_different_address_does_not_migrate(
    vendor: VendorWorld, row: dict[str, object]
) -> None:
    first = await vendor.event(EMAIL)
    given = await vendor.log_in(DISCORD, claims={"linked_accounts": json.dumps([row])})

    for kind in ("identityToken", "accessToken"):
        await vendor.used(given[kind])

    assert await vendor.event(EMAIL) == first
    assert await value(vendor.pool, "SELECT proven_by FROM users") is None


async def test_a_proof_that_came_before_the_first_event_is_kept_for_its_user(
    vendor: VendorWorld, provider: Provider
) -> None:
    """The thief's token comes in the minute in which the owner's was looked at already."""
    mine = await vendor.provider.log_in(EMAIL)
    owner = await vendor.users.user_of(mine["identityToken"])
    await vendor.used(mine["identityToken"])
    assert await proofs(vendor) == [(EMAIL, owner.subject)]

    first = await vendor.event(EMAIL)
    thief = await vendor.log_in(GITHUB, links=[{"email": EMAIL}])
    await vendor.used(thief["identityToken"])
    assert await vendor.event(EMAIL) == first
    assert await proofs(vendor) == [(EMAIL, owner.subject)]

    await vendor.moved_on()
    await vendor.used(mine["identityToken"])
    assert await value(vendor.pool, "SELECT proven_by FROM users") == owner.subject
    assert await proofs(vendor) == [], "the user's row has it"


async def test_custodial_wallets_keep_a_proof_before_the_first_event_alike(
    local: LocalWorld,
) -> None:
    await local.used(local.token("user-7", email=EMAIL))
    ((address, person),) = await proofs(local)

    await local.event(EMAIL)
    await local.moved_on()
    await local.used(local.token("user-7", email=EMAIL))

    assert address == EMAIL
    assert await value(local.pool, "SELECT proven_by FROM users") == person
    assert await proofs(local) == []


async def test_an_address_without_a_user_is_kept_for_its_first_prover(local: LocalWorld) -> None:
    persons = [a_person("ann", 7, EMAIL), a_person("bob", 8, EMAIL, "bob@shop.example")]
    migration, _ = migration_of(local, *persons)
    for each in persons:
        await migration.migrate(TokenUser(each.id, (), emails=each.emails))
    assert await proofs(local) == [(EMAIL, "ann"), ("bob@shop.example", "bob")]

    first = await local.event(EMAIL)
    await local.moved_on()
    await migration.migrate(TokenUser("bob", ()))
    assert await local.event(EMAIL) == first
    await migration.migrate(TokenUser("ann", ()))
    assert await local.event(EMAIL) == a_wallet(7)


async def proofs(world: World) -> list[tuple[str, str]]:
    rows = await world.pool.fetch("SELECT email_key, person FROM address_proofs ORDER BY email_key")
    return [tuple(row) for row in rows]


async def test_an_address_with_look_alike_characters_is_another_address(
    vendor: VendorWorld,
) -> None:
    first = await vendor.event(KELVIN.lower())
    rows = [{"type": "email", "address": KELVIN, "lv": 1}]
    given = await vendor.log_in(DISCORD, claims={"linked_accounts": json.dumps(rows)})

    await vendor.used(given["identityToken"])

    assert await vendor.event(KELVIN.lower()) == first


async def test_an_address_migrates_with_its_first_prover_only(
    vendor: VendorWorld,
) -> None:
    await vendor.event(EMAIL)
    first = await vendor.log_in(DISCORD, links=[{"email": EMAIL}])
    await vendor.used(first["identityToken"])
    home = address_of(first["walletAddress"])

    second = await vendor.log_in(GITHUB, links=[{"email": EMAIL}])
    for kind in ("identityToken", "accessToken"):
        await vendor.used(second[kind])

    assert await vendor.event(EMAIL) == home
    user = await vendor.users.user_of(second["identityToken"])
    with pytest.raises(ValidationFailed):
        await vendor.users.require_wallet(user, home)


async def test_a_log_in_with_only_the_address_proves_it(vendor: VendorWorld) -> None:
    """The wallet does not change, and later proofs by others have no effect."""
    first = await vendor.event(EMAIL)
    mine = await vendor.provider.log_in(EMAIL)
    await vendor.used(mine["identityToken"])
    assert address_of(mine["walletAddress"]) == first

    thief = await vendor.log_in(GITHUB, links=[{"email": EMAIL}])
    await vendor.used(thief["identityToken"])

    assert await vendor.event(EMAIL) == first


async def test_a_pregeneration_keeps_its_answer_after_its_account_was_transferred(
    vendor: VendorWorld,
) -> None:
    """A vendor's protocol cannot join these: its user of the pregenerated account is gone."""
    pair = await vendor.pregenerated(DISCORD)
    first = await vendor.event(EMAIL)
    link = {"provider": DISCORD.provider, "id": DISCORD.user_id}
    given = await vendor.provider.log_in(EMAIL, links=[link])

    assert await vendor.used(given["accessToken"]) == (first,)

    assert await vendor.event(EMAIL) == first
    assert await vendor.pregenerated(DISCORD) == pair


async def test_a_token_that_lists_all_names_causes_one_provider_request(
    vendor: VendorWorld, provider: Provider
) -> None:
    await vendor.event(EMAIL)
    given = await vendor.log_in(DISCORD, links=[{"email": EMAIL}])
    await vendor.users.user_of(given["identityToken"])
    provider.count_requests()

    for _ in range(3):
        await vendor.used(given["identityToken"])
        await vendor.moved_on()

    assert provider.requests == 1


async def test_a_token_of_a_person_without_events_causes_no_provider_request(
    vendor: VendorWorld, provider: Provider
) -> None:
    given = await vendor.log_in(DISCORD, links=[{"email": EMAIL}])
    await vendor.users.user_of(given["identityToken"])
    provider.count_requests()

    assert await vendor.used(given["identityToken"])

    assert provider.requests == 0


async def test_an_unavailable_provider_fails_no_request_and_is_asked_again_later(
    vendor: VendorWorld, provider: Provider
) -> None:
    first = await vendor.event(EMAIL)
    given = await vendor.log_in(DISCORD, links=[{"email": EMAIL}])
    user = await vendor.users.user_of(given["identityToken"])
    policy = replace(provider.policy, max_attempts=1)
    provider.break_down()
    async with IdentityClient(policy) as hasty:
        migration = WalletMigration(vendor.pool, hasty, ErasedAddresses(SEALER), vendor.clock)
        token_users = TokenAuthenticator(vendor.tokens, hasty, migration)
        for _ in range(2):
            assert await token_users.wallets_of(user) == (address_of(given["walletAddress"]),)
        assert await vendor.event(EMAIL) == first
        provider.count_requests()
        await vendor.moved_on()

        await token_users.wallets_of(user)

    assert await vendor.event(EMAIL) == address_of(given["walletAddress"])


# --- any identity backend -----------------------------------------------------------------------


class ScriptedProfiles:
    """An identity backend with these profiles."""

    def __init__(self, *persons: UserProfile) -> None:
        self.persons = {person.id: person for person in persons}
        self.requests = 0
        self.subjects: set[str] = set()

    async def profile_of(self, subject: str) -> UserProfile | None:
        self.requests += 1
        self.subjects.add(subject)
        return self.persons.get(subject)


def a_person(id_: str, number: int, *emails: str) -> UserProfile:
    return UserProfile(id_, IdentityUser(f"of {id_}", a_wallet(number)), emails)


def migration_of(world: World, *persons: UserProfile) -> tuple[WalletMigration, ScriptedProfiles]:
    identities = ScriptedProfiles(*persons)
    return WalletMigration(
        world.pool,
        identities,  # type: ignore[arg-type]
        ErasedAddresses(SEALER),
        world.clock,
    ), identities


async def test_of_two_concurrent_proofs_of_an_address_one_succeeds(local: LocalWorld) -> None:
    for number in range(10):
        email = f"{number}@shop.example"
        await local.event(email)
        persons = [a_person(f"{side} {number}", 1000 + at, email) for at, side in enumerate("ab")]
        migration, _ = migration_of(local, *persons)

        await asyncio.gather(*(migration.migrate(TokenUser(each.id, ())) for each in persons))

        wallet = await local.event(email)
        assert wallet in {each.home.wallet for each in persons}
        await local.moved_on()
        for each in persons:
            await migration.migrate(TokenUser(each.id, ()))
        assert await local.event(email) == wallet


async def test_of_users_who_are_checked_together_each_is_decided_alone(local: LocalWorld) -> None:
    """Half of them have an event under their address; only for these the provider is asked."""
    names = [f"user{number}" for number in range(20)]
    persons = [a_person(name, 50 + at, f"{name}@shop.example") for at, name in enumerate(names)]
    with_events = persons[::2]
    for each in with_events:
        await local.event(each.emails[0])
    migration, identities = migration_of(local, *persons)
    token_users = [TokenUser(each.id, (), emails=tuple(each.emails)) for each in persons]

    await asyncio.gather(*map(migration.migrate, token_users))

    assert identities.subjects == {each.id for each in with_events}
    for each in with_events:
        assert await local.event(each.emails[0]) == each.home.wallet


async def test_a_user_is_checked_once_a_minute_unless_his_names_change(
    local: LocalWorld,
) -> None:
    migration, identities = migration_of(local, a_person("ann", 7, EMAIL))
    for user in (TokenUser("ann", ()), TokenUser("ann", ()), TokenUser("ann", (), (DISCORD,))):
        await migration.migrate(user)
    assert identities.requests == 2

    await local.moved_on()
    await migration.migrate(TokenUser("ann", ()))

    assert identities.requests == 3


async def test_a_lost_database_fails_no_request_that_does_not_need_it(local: LocalWorld) -> None:
    migration, _ = migration_of(local, a_person("ann", 7, EMAIL))
    before = telemetry.WALLET_MIGRATIONS.labels("unavailable")._value.get()
    local.pool.terminate()

    with capture_logs() as logs:
        await migration.migrate(TokenUser("ann", ()))

    assert [line["reason"] for line in logs] == [NoConnection.__name__]
    assert telemetry.WALLET_MIGRATIONS.labels("unavailable")._value.get() == before + 1


async def test_a_check_whose_caller_was_cancelled_is_made_at_the_next_request(
    local: LocalWorld,
) -> None:
    migration, identities = migration_of(local, a_person("ann", 7, EMAIL))

    async def cancelled(_: str) -> UserProfile | None:
        raise asyncio.CancelledError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(identities, "profile_of", cancelled)
        with pytest.raises(asyncio.CancelledError):
            await migration.migrate(TokenUser("ann", ()))
    await migration.migrate(TokenUser("ann", ()))

    assert identities.requests == 1


async def test_the_log_of_a_migration_holds_only_ids(local: LocalWorld) -> None:
    first = await local.event(EMAIL)
    migration, _ = migration_of(local, a_person("ann", 7, EMAIL))

    with capture_logs() as logs:
        await migration.migrate(TokenUser("ann", ()))

    (line,) = logs
    id_ = await value(local.pool, "SELECT id FROM users")
    assert line == {
        "event": "user.wallet_moved",
        "log_level": "info",
        "user": str(id_),
        "left": hex_of(first),
        "wallet": hex_of(a_wallet(7)),
    }
    assert EMAIL not in repr(a_person("ann", 7, EMAIL)) + repr(TokenUser("a", (), emails=(EMAIL,)))


async def test_another_process_with_a_cached_user_also_rewards_the_new_wallet(
    local: LocalWorld, database_url: str
) -> None:
    async with a_local_world(database_url) as other:
        first = await local.event(EMAIL)
        assert await other.event(EMAIL) == first
        pregenerated = await local.pregenerated(DISCORD)
        await local.used(local.token("user-7", DISCORD, email=EMAIL))

        assert await other.event(EMAIL) == pregenerated


async def test_events_concurrent_with_a_log_in_are_minted_once_each_to_one_of_the_users_wallets(
    local: LocalWorld,
) -> None:
    first = await local.event(EMAIL)
    home = await local.pregenerated(DISCORD)
    token = local.token("user-7", DISCORD, email=EMAIL)
    requests = [a_request(EMAIL) for _ in range(12)]

    recorded, _ = await asyncio.gather(
        asyncio.gather(*map(local.events.record, requests)), local.used(token)
    )

    rewarded = [await local.rewarded(each.event_id) for each in recorded]
    assert rewarded == [each.wallet for each in recorded]
    assert set(rewarded) <= {first, home}
    assert await value(local.pool, "SELECT count(*) FROM rewards") == 13
    assert await local.event(EMAIL) == home
    await no_disagreement(local)


async def test_concurrent_first_events_under_different_subjects_belong_to_one_user(
    local: LocalWorld, database_url: str
) -> None:
    """The event that inserted the user had another subject and wallet for him."""
    rival = await open_pool(database_url)
    id_ = users.user_id("another", EMAIL)
    async with rival.acquire() as connection:
        faster = connection.transaction()
        await faster.start()
        await connection.execute(
            "INSERT INTO users (id, email_key, identity_subject, wallet)"
            " VALUES ($1, $2, 'another', $3)",
            id_,
            EMAIL,
            a_wallet(7),
        )
        slower = asyncio.create_task(local.events.record(a_request(EMAIL)))
        await until(lambda: is_waited_for(local))
        await faster.commit()
        recorded = await slower
    rival.terminate()

    assert recorded.wallet != a_wallet(7)
    assert await value(local.pool, "SELECT user_id FROM events") == id_
    assert (await local.events.find(recorded.event_id)).wallet == recorded.wallet
    assert await local.event(EMAIL) == a_wallet(7)
    assert await value(local.pool, "SELECT count(DISTINCT user_id) FROM events") == 1
    await no_disagreement(local)


async def is_waited_for(world: World) -> bool:
    return bool(
        await value(
            world.pool,
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted)",
        )
    )


async def test_a_wallet_that_was_left_still_belongs_to_its_user(local: LocalWorld) -> None:
    """The webhook of a payment to it that is minted later still names the user."""
    first = await local.event(EMAIL)
    migration, _ = migration_of(local, a_person("ann", 7, EMAIL))
    await migration.migrate(TokenUser("ann", ()))

    rows = await local.pool.fetch("SELECT wallet, id FROM wallet_users ORDER BY wallet = $1", first)

    id_ = await value(local.pool, "SELECT id FROM users")
    assert [tuple(row) for row in rows] == [(a_wallet(7), id_), (first, id_)]
    migration, _ = migration_of(local, UserProfile("ann", IdentityUser("of ann", first), (EMAIL,)))
    await migration.migrate(TokenUser("ann", ()))
    rows = await local.pool.fetch("SELECT wallet FROM wallet_users")
    assert {row["wallet"] for row in rows} == {first, a_wallet(7)}
    assert len(rows) == 2

"""Migrations of databases that earlier versions have filled keep all rows."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from uuid import UUID, uuid4

import asyncpg
import pytest_asyncio
from alembic.config import Config
from alembic.script import ScriptDirectory
from msgspec.structs import replace

from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.rules.operator.fees import Fees
from ltzd.rules.operator.transactions import GasCost, Inclusion, State, Transaction
from ltzd.store import database, schema_revisions
from ltzd.store.background_migrations import BackgroundMigrations
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.store.migrations import known_revisions, upgrades
from ltzd.store.operator import lanes, rewards, transactions, wallets
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.leases import Leases
from ltzd.store.operator.wallets import ServedWallet
from ltzd.store.relayer import claims, gas_budgets, relays
from ltzd.store.wakeups import WakeupHub
from ltzd.values import LTZ, ZERO_ADDRESS, Address, Hash32, hash_of, reward_reference
from tests.support.chain.fake_node import (
    CHAIN_ID,
    CONTRACTS,
    LTZ_AT,
    FakeNode,
    claim_logs,
    collection_log,
    minted_log,
    transfer_log,
)
from tests.support.chain.rebuilding import rebuild
from tests.support.relays.lanes import RELAYER, a_relay, store_signed
from tests.support.rows.core import BRAND, a_wallet
from tests.support.rows.tokens import indexed_token
from tests.support.services.postgres import Databases
from tests.support.surfaces.event_action import SEALER, a_brand

CHAIN = 31337
MINTER = a_wallet(0x77)
QUEUED, SENT = UUID(int=1), UUID(int=2)


@pytest_asyncio.fixture
async def empty_url(databases: Databases) -> AsyncIterator[str]:
    async with databases.fresh() as url:
        connection = await asyncpg.connect(url)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await connection.close()
        yield url


async def fill(connection: asyncpg.Connection) -> None:
    """Writes as 0001: a brand with keys, a queued reward, and one in flight with two attempts,
    the dearer of which is the older."""
    async with connection.transaction():
        await _fill_brand(connection)
        await connection.execute(
            """
            INSERT INTO lanes (chain_id, wallet, kind, epoch, next_nonce)
            VALUES ($1, $2, 'mint', 1, 1)
            """,
            CHAIN,
            MINTER,
        )
        intent = await connection.fetchval(
            """
            INSERT INTO transactions
                   (chain_id, wallet, nonce, kind, to_address, data, gas_limit, state)
            VALUES ($1, $2, 0, 'mint', $3, '\\x01', 100000, 'published')
         RETURNING id
            """,
            CHAIN,
            MINTER,
            a_wallet(9),
        )
        for number, fee in enumerate((30, 20)):
            await connection.execute(
                """
                INSERT INTO attempts (hash, transaction_id, raw, max_fee_per_gas,
                                      max_priority_fee_per_gas, created_at)
                VALUES ($1, $2, $3, $4, $5, $6)
                """,
                bytes([number]) * 32,
                intent,
                bytes([number]),
                fee,
                fee // 10,
                datetime(2026, 1, 1 + number, tzinfo=UTC),
            )
        await connection.execute(
            """
            INSERT INTO rewards (id, kind, brand_id, wallet, ltz, seq, transaction_id)
            VALUES ($1, 1, $3, $4, 5, NULL, NULL), ($2, 1, $3, $4, 7, 0, $5)
            """,
            QUEUED,
            SENT,
            BRAND,
            a_wallet(1),
            intent,
        )


async def _fill_brand(connection: asyncpg.Connection) -> None:
    await connection.execute(
        """
        INSERT INTO brands (id, name, configuration, revision)
        VALUES ($1, 'Demo', $2::text::jsonb, nextval('brand_revisions'))
        """,
        BRAND,
        a_brand().model_dump_json(),
    )
    for name in brand_keys.FIELDS:
        await connection.execute(
            """
            INSERT INTO brand_secrets (brand_id, name, key_id, sealed) VALUES ($1, $2, $3, $4)
            """,
            BRAND,
            name,
            SEALER.key_id,
            SEALER.seal(f"key of {name}", BRAND, name),
        )


async def test_lanes_and_their_transactions_continue_after_the_relay_migration(
    empty_url: str,
) -> None:
    await asyncio.to_thread(upgrades.upgrade, empty_url, "0002")
    connection = await database.connect(empty_url, "test")
    await fill(connection)
    await connection.close()

    await schema_revisions.migrate(empty_url)

    pool = await database.open_pool(empty_url, size=2)
    inclusion = Inclusion(5, Hash32(b"\x05" * 32), True, GasCost(Hash32(b"\x01" * 32), 40_000, 9))
    try:
        async with database.transaction(pool) as connection:
            assert await wallets.list_served(connection, CHAIN, "mint") == []
            lane = await lanes.begin_term(connection, CHAIN, Address(MINTER), "mint", 7)
            await lanes.report_working(connection, lane)
            served = await wallets.list_served(connection, CHAIN, "mint")
            assert served == [ServedWallet(Address(MINTER))]
            assert await lanes.next_nonce(connection, CHAIN, Address(MINTER)) == 1

            (flying,) = await transactions.in_flight(connection, lane)
            mined = replace(flying, tx=Transaction(State.MINED, inclusion))
            await transactions.save(connection, lane, [(flying.tx, mined)])
            watched = "SELECT state, mined_attempt, gas_used FROM open_transactions"
            assert tuple(await connection.fetchrow(watched)) == ("mined", b"\x01" * 32, 40_000)

            other = await lanes.begin_term(connection, CHAIN, RELAYER.address, "relay", 0)
            await relays.insert(connection, [a_relay()])
            waiting = await claims.claim(connection, other, 9)
            await store_signed(connection, other, waiting)
            assert len(await transactions.in_flight(connection, other)) == 1
    finally:
        await pool.close()


async def test_rows_of_the_first_version_are_kept_by_the_second_migration(empty_url: str) -> None:
    await asyncio.to_thread(upgrades.upgrade, empty_url, "0001")
    connection = await database.connect(empty_url, "test")
    await fill(connection)
    await connection.close()

    await schema_revisions.migrate(empty_url)

    pool = await database.open_pool(empty_url, size=2)
    try:
        async with database.session(pool) as connection:
            (waiting,) = await rewards.queued(connection, 10)
            assert (waiting.id, waiting.ltz, waiting.has_failed) == (QUEUED, 5, False)
            lane = Lane(CHAIN, Address(MINTER), 1, "mint")
            (flying,) = await transactions.in_flight(connection, lane)
            assert flying.fees == Fees(30, 3)
            assert flying.raw == b"\x00"
            assert len(flying.hashes) == 2
            assert await brands.load(connection, BRAND) == a_brand()
            (key,) = await brand_keys.secrets_of(connection, BRAND, "security_key", SEALER)
            assert (key.text, key.until) == ("key of security_key", None)
    finally:
        await pool.close()


ANN = a_wallet(1)
TOKEN = 1 << 32 | 1
FINAL, MINED = UUID(int=3), UUID(int=4)
MINT = hash_of("0x" + "7a" * 32)


def a_chain_of_before() -> FakeNode:
    """Two blocks with a reward's mint each, and a perk that is not indexed."""
    node = FakeNode()
    node.mine(logs=[collection_log(1, BRAND)])
    for seq, reward in enumerate((FINAL, MINED)):
        mint = minted_log(ANN, reward_reference(reward, 1, seq), 5 * LTZ)
        node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5 * LTZ), mint])
    node.mine(logs=claim_logs(ANN, TOKEN))
    return node


async def follow_as_before(connection: asyncpg.Connection, node: FakeNode) -> None:
    """Writes as 0003's indexer up to the head; the first of the two mints is final."""
    genesis = node.blocks[0].hash
    await connection.execute(
        """
        INSERT INTO chains (chain_id, genesis_hash, ltz, first_block, epoch, number, hash,
                            head_number, final_number)
        VALUES ($1, $2, $3, 1, 5, $4, $5, $4, 2)
        """,
        CHAIN_ID,
        genesis,
        LTZ_AT,
        node.head.number,
        node.head.hash,
    )
    for block in node.blocks:
        await connection.execute(
            "INSERT INTO blocks (hash, number, parent_hash, mined_at) VALUES ($1, $2, $3, now())",
            block.hash,
            block.number,
            block.parent_hash,
        )
    for seq, reward in enumerate((FINAL, MINED)):
        block_hash, number = node.blocks[2 + seq].hash, 2 + seq
        reference = reward_reference(reward, 1, seq)
        await connection.execute(
            "INSERT INTO transfers VALUES ($1, 0, $2, $3, $4, $5, $6)",
            block_hash, number, MINT, ZERO_ADDRESS, ANN, 5 * LTZ,
        )  # fmt: skip
        await connection.execute(
            "INSERT INTO mints VALUES ($1, 1, $2, $3, $4, $5, $6)",
            block_hash, number, MINT, ANN, reference, 5 * LTZ,
        )  # fmt: skip
        await connection.execute(
            """
            INSERT INTO rewards (id, kind, brand_id, wallet, ltz, seq, mint_block_hash,
                                 mint_block_number, mint_transaction_hash)
            VALUES ($1, 1, $2, $3, 5, $4, $5, $6, $7)
            """,
            reward, BRAND, ANN, seq, block_hash, number, MINT,
        )  # fmt: skip
    await connection.execute("INSERT INTO balances VALUES ($1, $2)", ANN, 10 * LTZ)


async def test_a_database_that_indexed_only_ltz_is_rebuilt_with_the_other_contracts(
    empty_url: str,
) -> None:
    await asyncio.to_thread(upgrades.upgrade, empty_url, "0003")
    node = a_chain_of_before()
    connection = await database.connect(empty_url, "test")
    await follow_as_before(connection, node)
    await connection.close()

    await schema_revisions.migrate(empty_url)

    pool = await database.open_pool(empty_url, size=2)
    chain = ChainIdentity(CHAIN_ID, node.blocks[0].hash, LTZ_AT, 1)
    policy = IndexerPolicy(head_blocks=3)
    follower = Follower(pool, Leases(empty_url), node.node, chain, CONTRACTS, WakeupHub(""), policy)
    mint_blocks = "SELECT array_agg(mint_block_number ORDER BY seq) FROM rewards"
    try:
        await follower.begin_term()
        async with database.session(pool) as connection:
            cursor = await connection.fetchrow(
                "SELECT cursor_number, cursor_hash, final_number FROM chains"
            )
            assert cursor["cursor_number"] > 0, "reads lack what was indexed"
            assert await connection.fetchval(mint_blocks) == [2, 3]
        await BackgroundMigrations(empty_url, lambda: True).run()
        await rebuild(pool, empty_url, node)
        async with database.session(pool) as connection:
            token = await indexed_token(connection, TOKEN)
            assert token is not None
            assert (token.holder, token.remaining) == (ANN, 3)
            assert await connection.fetchval(mint_blocks) == [2, 3]
            assert await connection.fetchval("SELECT amount FROM balances") == 10 * LTZ
            assert await connection.fetchval("SELECT count(*) FROM transfers") == 2
            assert await connection.fetchval("SELECT count(*) FROM blocks") == 5
    finally:
        await pool.close()


SELDOM_KNOWN_ZONES = (
    "localtime",
    "posix/Pacific/Kiritimati",
    "posixrules",
    "right/UTC",
    "Mars/Olympus",
)
"""Of these Python and PostgreSQL know some on some machines."""
LATE_ON_SUNDAY = datetime(2026, 3, 1, 11, tzinfo=UTC)
"""In Kiritimati it is Monday."""
SUNDAY, MONDAY = date(2026, 3, 1), date(2026, 3, 2)
SUNDAYS_WEEK, MARCH, EVER = date(2026, 2, 23), date(2026, 3, 1), date(1970, 1, 1)
EVENT, PAYMENT = 1, 2


async def owe_as_before(
    connection: asyncpg.Connection, brand: bytes, wallet: bytes, ltz: int, *, kind: int, mined: bool
) -> None:
    block = MINT if mined else None
    await connection.execute(
        """
        INSERT INTO rewards (id, kind, brand_id, wallet, ltz, created_at, mint_block_number,
                             mint_block_hash, mint_transaction_hash)
        VALUES (gen_random_uuid(), $1, $2, $3, $4, $5, $6, $7, $7)
        """,
        kind, brand, wallet, ltz, LATE_ON_SUNDAY, 2 if mined else None, block,
    )  # fmt: skip


async def configure_as_before(
    connection: asyncpg.Connection, brand: bytes, zone: str, *, is_paused: bool
) -> None:
    await connection.execute(
        """
        INSERT INTO brands (id, name, configuration, revision, paused_at)
        VALUES ($1, 'Demo', jsonb_build_object('time_zone', $2::text), nextval('brand_revisions'),
                CASE WHEN $3 THEN now() END)
        """,
        brand,
        zone,
        is_paused,
    )


async def test_leaderboards_start_with_past_earnings_for_any_configured_time_zone(
    empty_url: str,
) -> None:
    await asyncio.to_thread(upgrades.upgrade, empty_url, "0007")
    connection = await database.connect(empty_url, "test")
    known = {row["name"] for row in await connection.fetch("SELECT name FROM pg_timezone_names")}
    unknown = [zone for zone in SELDOM_KNOWN_ZONES if zone not in known]
    zones = {a_wallet(100 + number): zone for number, zone in enumerate(unknown)}
    east, gone, ben = a_wallet(99), a_wallet(98), a_wallet(2)
    zones[east] = "Pacific/Kiritimati"
    for brand, zone in zones.items():
        await configure_as_before(connection, brand, zone, is_paused=brand != east)
    for brand in (*zones, gone):
        await owe_as_before(connection, brand, ANN, 5, kind=EVENT, mined=True)
        await owe_as_before(connection, brand, ANN, 7, kind=EVENT, mined=True)
        await owe_as_before(connection, brand, ANN, 100, kind=EVENT, mined=False)
        await owe_as_before(connection, brand, ANN, 30, kind=PAYMENT, mined=True)
        await owe_as_before(connection, brand, ben, 9, kind=PAYMENT, mined=True)
    await connection.close()

    await schema_revisions.migrate(empty_url)

    connection = await database.connect(empty_url, "test")
    days = dict(await connection.fetch("SELECT DISTINCT brand_id, earned_on FROM rewards"))
    earned = await connection.fetch(
        "SELECT brand_id, wallet, period, starts, ltz, rewards, bought FROM earnings"
    )
    totals = await connection.fetch(
        "SELECT brand_id, board, period, starts, slot, ranked FROM leaderboard_totals"
    )
    await connection.close()
    assert days == dict.fromkeys((*zones, gone), SUNDAY) | {east: MONDAY}
    weeks = {brand: MONDAY if brand == east else SUNDAYS_WEEK for brand in days}
    boards = [
        (brand, period, starts)
        for brand, week in weeks.items()
        for period, starts in (("week", week), ("month", MARCH), ("all", EVER))
    ]
    expected = {
        (brand, ANN, period, starts, 12, 2, 30 if period == "all" else 0)
        for brand, period, starts in boards
    }
    expected |= {(brand, ben, "all", EVER, 0, 0, 9) for brand in days}
    assert sorted(map(tuple, earned)) == sorted(expected)
    assert sorted(map(tuple, totals)) == sorted(
        (brand, "earnings", period, starts, 0, 1) for brand, period, starts in boards
    )


async def test_earlier_redemptions_are_linked_to_a_matching_payment_on_chain(
    empty_url: str,
) -> None:
    """The earlier version accepted any purchase with the reference."""
    await asyncio.to_thread(upgrades.upgrade, empty_url, "0009")
    paid, unpaid, open_ = UUID(int=1), UUID(int=2), UUID(int=3)
    connection = await database.connect(empty_url, "test")
    for redemption, item, state in ((paid, 7, "done"), (unpaid, 8, "done"), (open_, 7, "open")):
        await connection.execute(
            """
            WITH bought AS (
              INSERT INTO purchases
              VALUES (uuid_send($1::uuid), $5, 5, '\\x22', $2, $3,
                      uuid_send($1::uuid) || decode(repeat('00', 16), 'hex'), 1, 30)
            )
            INSERT INTO site_redemptions (id, brand_id, wallet, perk_id, name, category, item_id,
                                          price, confirmation_code, state, answered_at)
            VALUES ($1, $2, $2, $1, 'Mug', 'goods', 7, 30, $1::uuid::text, $4,
                    CASE WHEN $4 = 'done' THEN now() END)
            """,
            redemption,
            ANN,
            item,
            state,
            redemption.int,
        )
    await connection.close()

    await schema_revisions.migrate(empty_url)

    connection = await database.connect(empty_url, "test")
    rows = await connection.fetch("SELECT id, paid_block_number FROM site_redemptions")
    await connection.close()
    assert {row["id"]: row["paid_block_number"] for row in rows} == {
        paid: 5,
        unpaid: None,
        open_: None,
    }


async def test_todays_relays_count_for_their_wallets_after_the_gas_budget_migration(
    empty_url: str,
) -> None:
    """Yesterday's and unsent relays do not count; a brand's charge counts only for the total."""
    await asyncio.to_thread(upgrades.upgrade, empty_url, "0013")
    connection = await database.connect(empty_url, "test")
    for worst, age, state, brand in (
        (5, "0", "queued", None),
        (7, "0", "queued", None),
        (9, "2 days", "queued", None),
        (11, "0", "failed", None),
        (13, "0", "queued", BRAND),
    ):
        await connection.execute(
            """
            INSERT INTO relays (user_address, to_address, data, function, takes_turns, fingerprint,
                                gas_limit, worst_wei, window_start, state, failure, brand_id,
                                created_at)
            VALUES ($1, $1, '', 'f', false, '', 1, $2,
                    CASE WHEN $3 = 'queued' AND $5::bytea IS NULL THEN now() END, $3,
                    CASE WHEN $3 = 'failed' THEN 'Paused' END, $5, now() - $4::text::interval)
            """,
            a_wallet(1),
            worst,
            state,
            age,
            brand,
        )
    await connection.close()

    await schema_revisions.migrate(empty_url)

    pool = await database.open_pool(empty_url, size=1)
    wallet = "0x" + a_wallet(1).hex()
    try:
        async with database.session(pool) as connection:
            spent = await gas_budgets.spent(connection, [wallet])
            assert (spent.by_identity, spent.total_wei) == ({wallet: 12}, 25)
            await relays.delete_expired(connection)
            await relays.withdraw(connection, 1)
            assert (await gas_budgets.spent(connection, [wallet])).total_wei == 20
    finally:
        await pool.close()


async def test_a_link_by_token_is_ended_and_its_spending_above_the_brands_gifts_is_separated(
    empty_url: str,
) -> None:
    await asyncio.to_thread(upgrades.upgrade, empty_url, "0011")
    connection = await database.connect(empty_url, "test")
    own, owners, brand = a_wallet(31), a_wallet(32), a_wallet(33)
    ann, ben = uuid4(), uuid4()
    for user, wallet in ((ann, own), (ben, owners)):
        await connection.execute(
            "INSERT INTO users (id, email_key, identity_subject, wallet) VALUES ($1, $2, 'x', $3)",
            user,
            str(user),
            wallet,
        )
    await connection.executemany(
        "INSERT INTO site_members (brand_id, host, site_user_id, username, email_key, user_id, "
        "wallet, subject, linked_at) VALUES ($1, 's', $2, 'n', 'e', $3, $4, $5, $6)",
        [
            (brand, 1, ann, owners, "did:ben", datetime.now(UTC)),
            (brand, 2, ben, own, None, None),
        ],
    )
    await connection.execute(
        "INSERT INTO earnings VALUES ($1, 'all', '1970-01-01', $2, 50, 1, 0)", brand, owners
    )
    redemption = (
        "INSERT INTO site_redemptions (id, brand_id, wallet, perk_id, name, category, item_id, "
        "price, confirmation_code, state, failure, created_at) VALUES (gen_random_uuid(), $1, $2, "
        "$3, 'n', 'c', 1, $4 * 10^18, $5, $6, $7, to_timestamp($8))"
    )
    begun = ((30, "open"), (9, "failed"), (30, "open"), (7, "open"))
    for number, (price, state) in enumerate(begun):
        failure = "x" if state == "failed" else None
        values = (brand, owners, ann, price, str(number), state, failure, number)
        await connection.execute(redemption, *values)
    await connection.close()

    await schema_revisions.migrate(empty_url)

    connection = await database.connect(empty_url, "test")
    members = await connection.fetch(
        "SELECT site_user_id, wallet, subject, link_id FROM site_members ORDER BY site_user_id"
    )
    links = await connection.fetch(
        "SELECT site_user_id, user_id, subject, wallet, daily_allowance FROM site_links"
    )
    lasting = await connection.fetchval("SELECT count(*) FROM active_site_links")
    paid = await connection.fetch(
        "SELECT from_earned, from_given / 10^18, from_linked / 10^18, site_user_id "
        "FROM site_redemptions ORDER BY created_at"
    )
    await connection.close()
    assert list(map(tuple, members)) == [(1, own, None, None), (2, own, None, None)]
    assert list(map(tuple, links)) == [(1, ann, "did:ben", owners, 0)]
    assert lasting == 0
    assert [tuple(row) for row in paid] == [
        (0, 30, 0, 1),
        (None, None, None, 1),
        (0, 20, 10, 1),
        (0, 0, 7, 1),
    ]


def test_the_revisions_read_from_file_names_are_those_of_alembics_chain() -> None:
    config = Config()
    config.set_main_option("script_location", "ltzd:store/migrations")
    config.set_main_option("path_separator", "os")
    chain = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]

    assert known_revisions() == chain[::-1]

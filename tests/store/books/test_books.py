"""Rows that ltzd writes have no discrepancies, and each altered row is reported."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from ltzd.rules.books import Disagreement, Figures
from ltzd.store import database
from ltzd.store.books import figures as books
from ltzd.store.books import reconciliation as disagreements
from ltzd.store.books import statements
from ltzd.store.books.figures import Period
from ltzd.store.books.screens import SCREENS, Screen
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.operator import rewards
from ltzd.values import LTZ, ZERO_ADDRESS, hex_of, reward_reference
from tests.support.rows.books import ONE, TWO, BookRows, reconcile
from tests.support.rows.core import a_hash, a_wallet
from tests.support.services.postgres import Databases

DAY = timedelta(days=1)
START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest_asyncio.fixture
async def db(database_url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(database_url, "test")
    yield connection
    connection.terminate()


@pytest_asyncio.fixture
async def rows(db: Connection) -> BookRows:
    rows = BookRows(db)
    await rows.begin(Sealer([b"k" * 32]))
    return rows


async def discrepancies(db: Connection, at_most: int = 20) -> dict[str, Disagreement]:
    async with books.snapshot(db):
        return {each.kind: each for each in await reconcile(db, at_most)}


async def totals(db: Connection) -> Figures:
    async with books.snapshot(db):
        return Figures.total((await books.read_figures(db)).values())


async def test_figures_count_rewards_by_origin_and_progress(db: Connection, rows: BookRows) -> None:
    announced, told_later = await rows.event(ltz=100), await rows.event(ltz=7)
    await rows.event(ltz=0)
    bought, nobodys = await rows.payment(cents=1_250), await rows.payment(ZERO_ADDRESS, cents=99)
    check_in, milestone = await rows.other(3, ltz=5), await rows.other(4, TWO, ltz=6)
    await rows.minted(announced, told_later, bought, nobodys, check_in)
    await rows.deliver(announced)
    await rows.sign(milestone)
    queued, failed = await rows.event(TWO, ltz=11), await rows.event(TWO, ltz=13)
    await rows.fail(failed)

    async with books.snapshot(db):
        by_brand = await books.read_figures(db)
        only_two = await books.read_figures(db, TWO.address)

    assert by_brand == {
        ONE.address: Figures(
            answered=2,
            answered_ltz=107,
            bought=1,
            bought_cents=1_250,
            bought_ltz=12_500,
            other=1,
            other_ltz=5,
            minted=4,
            minted_ltz=12_612,
            delivered=1,
            pending=2,
            on_chain=4,
            on_chain_units=12_612 * LTZ,
        ),
        TWO.address: Figures(
            answered=2,
            answered_ltz=24,
            other=1,
            other_ltz=6,
            queued=1,
            in_flight=1,
            failed=1,
        ),
        ZERO_ADDRESS: Figures(
            bought=1,
            bought_cents=99,
            bought_ltz=990,
            minted=1,
            minted_ltz=990,
            on_chain=1,
            on_chain_units=990 * LTZ,
        ),
    }
    assert only_two == {TWO.address: by_brand[TWO.address]}
    assert await discrepancies(db) == {}
    assert queued


async def test_a_database_without_a_chain_has_no_discrepancies(db: Connection) -> None:
    assert await discrepancies(db) == {}
    async with books.snapshot(db):
        assert await books.read_figures(db) == {}
        assert await books.read_indexed_ltz(db) is None


# --- consistent books ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
async def test_random_sequences_of_grants_mints_and_reorgs_have_no_discrepancies(
    db: Connection, rows: BookRows, seed: int
) -> None:
    chance = random.Random(seed)
    life = Life(rows, chance)

    for _ in range(30):
        done = await life.step()
        assert await discrepancies(db) == {}, f"seed {seed}: after {done}"

    now = await totals(db)
    assert now.answered + now.bought + now.other == life.granted
    assert now.minted + now.queued + now.in_flight + now.failed == life.granted
    assert (now.on_chain, now.on_chain_units) == (now.minted, now.minted_ltz * LTZ)
    await life.mine_all()
    now = await totals(db)
    assert now.on_chain_units == (now.answered_ltz + now.bought_ltz + now.other_ltz) * LTZ
    assert now.queued + now.in_flight + now.failed == 0
    assert await discrepancies(db) == {}


class Life:
    """Random steps of ltzd and the chain."""

    def __init__(self, rows: BookRows, chance: random.Random) -> None:
        self.rows = rows
        self.granted = 0
        self._chance = chance

    async def step(self) -> str:
        steps = (self._grant, self._grant, self._sign, self._mine, self._mine, self._undo)
        others = (self._requeue, self._fail, self._retry, self._deliver, self._burn)
        step = self._chance.choice((*steps, *others))
        await step()
        return step.__name__

    async def mine_all(self) -> None:
        for id_ in await self._ids("failed_at IS NOT NULL"):
            await rewards.retry(self.rows.db, id_)
        waiting = await self._ids("transaction_id IS NULL AND mint_block_hash IS NULL")
        if waiting:
            await self.rows.sign(*waiting)
        await self.rows.mine(*await self._open_transactions())

    async def _ids(self, where: str) -> list[UUID]:
        records = await self.rows.db.fetch(
            f"SELECT id FROM rewards WHERE {where} ORDER BY position"
        )
        return [row["id"] for row in records]

    async def _open_transactions(self) -> list[int]:
        records = await self.rows.db.fetch(
            "SELECT DISTINCT transaction_id AS id FROM rewards "
            "WHERE transaction_id IS NOT NULL AND mint_block_hash IS NULL ORDER BY 1"
        )
        return [row["id"] for row in records]

    def _sample(self, ids: list[UUID]) -> list[UUID]:
        return self._chance.sample(ids, self._chance.randint(0, min(3, len(ids))))

    async def _grant(self) -> None:
        brand = self._chance.choice((ONE, TWO))
        match self._chance.randrange(4):
            case 0:
                await self.rows.payment(self._chance.choice((brand.address, ZERO_ADDRESS)))
            case 1:
                await self.rows.other(self._chance.choice((3, 4)), brand)
            case _:
                await self.rows.event(brand, self._chance.randint(1, 10**6))
        self.granted += 1

    async def _sign(self) -> None:
        waiting = await self._ids(
            "transaction_id IS NULL AND mint_block_hash IS NULL AND failed_at IS NULL"
        )
        if sample := self._sample(waiting):
            transaction = await self.rows.sign(*sample)
            await self.rows.publish(transaction)

    async def _mine(self) -> None:
        await self.rows.mine(*(await self._open_transactions())[:2])

    async def _undo(self) -> None:
        await self.rows.undo(max(0, self.rows.block - self._chance.randint(0, 3)))

    async def _requeue(self) -> None:
        for transaction in (await self._open_transactions())[:1]:
            await self.rows.requeue(transaction)

    async def _fail(self) -> None:
        waiting = await self._ids(
            "transaction_id IS NULL AND mint_block_hash IS NULL AND failed_at IS NULL"
        )
        for id_ in waiting[:1]:
            await self.rows.fail(id_)

    async def _retry(self) -> None:
        for id_ in self._sample(await self._ids("failed_at IS NOT NULL")):
            await rewards.retry(self.rows.db, id_)

    async def _deliver(self) -> None:
        for id_ in self._sample(await self._ids("mint_block_hash IS NOT NULL")):
            await self.rows.deliver(id_)

    async def _burn(self) -> None:
        """Burns a third of a rewarded wallet's balance in a new block."""
        for id_ in (await self._ids("mint_block_hash IS NOT NULL"))[:1]:
            await self.rows.mine()
            held = await self.rows.db.fetchval(
                "SELECT b.amount FROM balances b JOIN rewards r USING (wallet) WHERE r.id = $1", id_
            )
            await self.rows.burn(id_, int(held) // 3)


# --- altered rows -------------------------------------------------------------------------------


def redeemed(state: str) -> str:
    """Returns the INSERT of a site redemption, an hour old, of the event's wallet."""
    reversed_at = "now()" if state == "reversed" else "NULL"
    return (
        "INSERT INTO site_redemptions (id, brand_id, wallet, perk_id, name, category, item_id, "
        "price, confirmation_code, state, completed_at, reversed_at) SELECT '{webhook}', brand_id, "
        f"wallet, id, 'Mug', 'goods', 1, 0, 'CODE', '{state}', now() - interval '1 hour', "
        f"{reversed_at} FROM rewards WHERE id = '{{event}}'"
    )


def bought(state: str, quantity: int) -> str:
    """Returns the INSERT of the same redemption and of a purchase with its reference."""
    return (
        f"WITH one AS ({redeemed(state)} RETURNING id, wallet) "
        "INSERT INTO purchases (block_hash, log_index, block_number, transaction_hash, buyer, "
        "item_id, reference, quantity, paid) SELECT '\\x11', 1, 1, '\\x22', wallet, 1, "
        f"uuid_send(id) || decode(repeat('00', 16), 'hex'), {quantity}, 0 FROM one"
    )


ALTERATIONS: dict[str, tuple[str, dict[str, str | None]]] = {
    "an event's reward is gone": (
        "DELETE FROM rewards WHERE id = '{waits}'",
        {"event_without_reward": "{waits}"},
    ),
    "an event's reward has another kind": (
        "UPDATE rewards SET kind = 3 WHERE id = '{waits}'",
        {"event_without_reward": "{waits}", "reward_without_site_claim": "{waits}"},
    ),
    "an event's reward has another amount": (
        "UPDATE rewards SET ltz = ltz + 1 WHERE id = '{waits}'",
        {"event_and_reward_differ": "{waits}"},
    ),
    "an event's reward has another wallet": (
        "UPDATE rewards SET wallet = set_byte(wallet, 0, 9) WHERE id = '{waits}'",
        {"event_and_reward_differ": "{waits}"},
    ),
    "an event's reward is another brand's": (
        "UPDATE rewards SET brand_id = set_byte(brand_id, 0, 9) WHERE id = '{waits}'",
        {"event_and_reward_differ": "{waits}"},
    ),
    "an event worth nothing has a reward": (
        "UPDATE events SET ltz = 0 WHERE id = '{waits}'",
        {"event_and_reward_differ": "{waits}"},
    ),
    "a reward's event is gone": (
        "DELETE FROM events WHERE id = '{event}'",
        {"reward_without_event": "{event}"},
    ),
    "a payment's reward is gone": (
        "DELETE FROM rewards WHERE id = '{owed}'",
        {"payment_without_reward": "{owed_session}"},
    ),
    "a payment's reward has another amount": (
        "UPDATE rewards SET ltz = ltz + 1 WHERE id = '{owed}'",
        {"payment_and_reward_differ": "{owed_session}"},
    ),
    "a payment's reward has another wallet": (
        "UPDATE payments SET wallet = set_byte(wallet, 0, 9) WHERE reward_id = '{owed}'",
        {"payment_and_reward_differ": "{owed_session}"},
    ),
    "a payment's reward is another brand's": (
        "UPDATE payments SET brand_id = set_byte(brand_id, 0, 9) WHERE reward_id = '{owed}'",
        {"payment_and_reward_differ": "{owed_session}"},
    ),
    "a reward's payment is gone": (
        "DELETE FROM payments WHERE reward_id = '{owed}'",
        {"reward_without_payment": "{owed}"},
    ),
    "a reward that was never minted says that it was": (
        (
            "UPDATE rewards SET mint_block_number = 1, mint_block_hash = '\\x11', "
            "mint_transaction_hash = '\\x22' WHERE id = '{waits}'"
        ),
        {"minted_without_mint": "{waits}", "earnings_and_rewards_differ": None},
    ),
    "a reward's mint is gone": (
        "DELETE FROM mints WHERE substring(reference FOR 16) = '\\x{event_hex}'",
        {"minted_without_mint": "{event}", "mints_and_transfers_differ": None},
    ),
    "a reward was told of another block": (
        "UPDATE rewards SET mint_block_hash = set_byte(mint_block_hash, 0, 0) WHERE id = '{event}'",
        {"minted_without_mint": "{event}"},
    ),
    "a reward was told of another height": (
        "UPDATE rewards SET mint_block_number = mint_block_number + 1 WHERE id = '{event}'",
        {"minted_without_mint": "{event}"},
    ),
    "a reward was told of another transaction": (
        "UPDATE rewards SET mint_transaction_hash = mint_block_hash WHERE id = '{event}'",
        {"minted_without_mint": "{event}"},
    ),
    "a reward has another seq than it was minted under": (
        "UPDATE rewards SET seq = 77 WHERE id = '{event}'",
        {"minted_without_mint": "{event}", "foreign_mint": "{reference}"},
    ),
    "a mint has another kind in its reference": (
        (
            "UPDATE mints SET reference = set_byte(reference, 16, 4) "
            "WHERE substring(reference FOR 16) = '\\x{event_hex}'"
        ),
        {"minted_without_mint": "{event}", "foreign_mint": None},
    ),
    "a mint's reference has something where zeros belong": (
        (
            "UPDATE mints SET reference = set_byte(reference, 20, 1) "
            "WHERE substring(reference FOR 16) = '\\x{event_hex}'"
        ),
        {"minted_without_mint": "{event}", "foreign_mint": None},
    ),
    "a mint is of another amount": (
        "UPDATE mints SET amount = amount + 1 WHERE substring(reference FOR 16) = '\\x{event_hex}'",
        {
            "minted_without_mint": "{event}",
            "mint_and_reward_differ": "{event}",
            "mints_and_transfers_differ": None,
        },
    ),
    "a mint is to another wallet": (
        (
            "UPDATE mints SET recipient = set_byte(recipient, 0, 9) "
            "WHERE substring(reference FOR 16) = '\\x{event_hex}'"
        ),
        {"minted_without_mint": "{event}", "mint_and_reward_differ": "{event}"},
    ),
    "a reward was minted twice": (
        (
            "INSERT INTO mints SELECT block_hash, 90, block_number, transaction_hash, recipient, "
            "reference, amount FROM mints WHERE substring(reference FOR 16) = '\\x{event_hex}'"
        ),
        {"minted_twice": "{event}", "mints_and_transfers_differ": None},
    ),
    "a reward was minted twice, under another reference": (
        (
            "INSERT INTO mints SELECT block_hash, 90, block_number, transaction_hash, recipient, "
            "set_byte(reference, 31, 99), amount FROM mints "
            "WHERE substring(reference FOR 16) = '\\x{event_hex}'"
        ),
        {"minted_twice": "{event}", "foreign_mint": None, "mints_and_transfers_differ": None},
    ),
    "a reward does not know of its mint": (
        (
            "UPDATE rewards SET mint_block_number = NULL, mint_block_hash = NULL, "
            "mint_transaction_hash = NULL WHERE id = '{event}'"
        ),
        {"mint_not_told": "{event}", "earnings_and_rewards_differ": None},
    ),
    "a mint was announced that never was": (
        (
            "INSERT INTO webhooks (id, brand_id, kind, subject, state) "
            "SELECT '{webhook}', brand_id, 'ltz_distributed', id, 'delivered' "
            "FROM rewards WHERE id = '{waits}'"
        ),
        {"announced_without_mint": "{webhook}"},
    ),
    "a mint of no reward was announced": (
        (
            "INSERT INTO webhooks (id, brand_id, kind, subject, state) "
            "VALUES ('{webhook}', '\\x{brand_hex}', 'ltz_distributed', '{webhook}', 'delivered')"
        ),
        {"announced_without_mint": "{webhook}"},
    ),
    "a check-in's reward is gone": (
        "DELETE FROM rewards WHERE id = '{checkin}'",
        {"site_claim_and_reward_differ": "{checkin}"},
    ),
    "a milestone's reward has another amount": (
        "UPDATE rewards SET ltz = ltz + 1 WHERE id = '{milestone}'",
        {"site_claim_and_reward_differ": "{milestone}"},
    ),
    "a milestone's claim is gone": (
        "DELETE FROM milestone_claims WHERE reward_id = '{milestone}'",
        {"reward_without_site_claim": "{milestone}"},
    ),
    "somebody's earnings of all time are too high": (
        "UPDATE earnings SET ltz = ltz + 1 WHERE period = 'all' AND rewards > 0",
        {"earnings_and_rewards_differ": "{wallet} all 1970-01-01"},
    ),
    "what somebody bought is forgotten": (
        "UPDATE earnings SET bought = 0 WHERE bought > 0",
        {"earnings_and_rewards_differ": "{buyer} all 1970-01-01"},
    ),
    "a redemption's claim never was": (redeemed("done"), {"redemption_without_fact": "{webhook}"}),
    "more was spent through a link than it allows": (
        (
            "WITH link AS (INSERT INTO site_links (id, brand_id, host, site_user_id, user_id, "
            "subject, wallet, daily_allowance, expires_at) SELECT '{webhook}', brand_id, 's', 1, "
            "id, 'x', wallet, 4, now() FROM rewards WHERE id = '{event}' "
            "RETURNING id, brand_id, wallet) "
            "INSERT INTO site_redemptions (id, brand_id, wallet, perk_id, name, category, item_id, "
            "price, confirmation_code, from_earned, from_given, from_linked, link_id, link_day) "
            "SELECT gen_random_uuid(), brand_id, wallet, id, 'Mug', 'goods', 1, 3 * 10^18, "
            "'CODE' || n, 0, 0, 3 * 10^18, id, '2026-03-10' FROM link, generate_series(1, 2) AS n"
        ),
        {"link_overspent": "{webhook} 2026-03-10"},
    ),
    "a redemption that failed is on chain": (
        (
            "WITH failed AS (INSERT INTO site_redemptions (id, brand_id, wallet, perk_id, name, "
            "category, item_id, price, confirmation_code, state, failure) SELECT '{webhook}', "
            "brand_id, wallet, id, 'Mug', 'goods', 1, 0, 'CODE', 'failed', 'x' "
            "FROM rewards WHERE id = '{event}' RETURNING id, wallet) "
            "INSERT INTO purchases (block_hash, log_index, block_number, transaction_hash, buyer, "
            "item_id, reference, quantity, paid) SELECT '\\x11', 1, 1, '\\x22', wallet, 1, "
            "uuid_send(id) || decode(repeat('00', 16), 'hex'), 1, 0 FROM failed"
        ),
        {"failed_redemption_on_chain": "{webhook}"},
    ),
    "a redemption was reversed": (
        redeemed("reversed"),
        {"redemption_reversed": "{webhook}"},
    ),
    "a reversed redemption is paid after all": (
        bought("reversed", quantity=1),
        {"failed_redemption_on_chain": "{webhook}"},
    ),
    "a redemption was paid by a purchase of two": (
        bought("done", quantity=2),
        {"redemption_without_fact": "{webhook}"},
    ),
    "a balance is wrong": (
        (
            "UPDATE balances SET amount = amount + 1 WHERE wallet = "
            "(SELECT wallet FROM rewards WHERE id = '{event}')"
        ),
        {"balance_and_transfers_differ": "{wallet}"},
    ),
    "a balance is gone": (
        "DELETE FROM balances WHERE wallet = (SELECT wallet FROM rewards WHERE id = '{event}')",
        {"balance_and_transfers_differ": "{wallet}"},
    ),
    "a balance came from nowhere": (
        "INSERT INTO balances VALUES ('\\x{brand_hex}', 5)",
        {"balance_and_transfers_differ": "0x{brand_hex}"},
    ),
}


PERIODS = ("earnings_and_rewards_differ", None)
"""A reward counts in its week, its month and all time; bought LTZ have one row."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def consistent_books(
    databases: Databases,
) -> AsyncIterator[tuple[Connection, dict[str, object]]]:
    """Consistent books, and the ids in them by the names used in `ALTERATIONS`; read-only."""
    async with databases.fresh() as url:
        db = await database.connect(url, "test")
        rows = BookRows(db)
        await rows.begin(Sealer([b"k" * 32]))
        event, paid = await rows.event(), await rows.payment()
        await rows.minted(event, paid)
        owed, waits = await rows.payment(), await rows.event(TWO)
        checkin, milestone = await rows.other(3), await rows.other(4)
        reward = await db.fetchrow("SELECT seq, wallet FROM rewards WHERE id = $1", event)
        assert reward is not None
        yield (
            db,
            {
                "event": event,
                "event_hex": event.hex,
                "waits": waits,
                "checkin": checkin,
                "milestone": milestone,
                "owed": owed,
                "owed_session": f"cs_{owed.hex}",
                "webhook": uuid4(),
                "brand_hex": ONE.address.hex(),
                "wallet": hex_of(reward["wallet"]),
                "buyer": hex_of(a_wallet(7)),
                "reference": hex_of(reward_reference(event, 1, reward["seq"])),
            },
        )
        db.terminate()


@pytest.mark.parametrize("name", ALTERATIONS)
async def test_each_kind_of_discrepancy_is_found(
    consistent_books: tuple[Connection, dict[str, object]], name: str
) -> None:
    db, names = consistent_books
    statement, expected = ALTERATIONS[name]
    assert await discrepancies(db) == {}

    async with undone(db):
        await db.execute(statement.format(**names))
        reported = {each.kind: each for each in await reconcile(db, 20)}

    assert reported.keys() == expected.keys()
    for kind, id_ in expected.items():
        assert reported[kind].count == (3 if (kind, id_) == PERIODS else 1)
        if id_ is not None:
            assert [row.id for row in reported[kind].rows] == [id_.format(**names)]


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
async def test_a_screen_rules_out_its_checks_where_the_books_agree(
    consistent_books: tuple[Connection, dict[str, object]], screen: Screen
) -> None:
    db, _ = consistent_books
    row = await db.fetchrow(screen.sql, None)
    assert row is not None
    assert dict(row) == dict.fromkeys(screen.kinds, False)


@asynccontextmanager
async def undone(db: Connection) -> AsyncIterator[None]:
    """Rolls back all statements of the block."""
    changes = db.transaction()
    await changes.start()
    try:
        yield
    finally:
        await changes.rollback()


async def test_both_sides_of_a_discrepancy_are_reported(db: Connection, rows: BookRows) -> None:
    id_ = await rows.event(ltz=100)
    await rows.minted(id_)
    wallet = await db.fetchval("SELECT wallet FROM rewards WHERE id = $1", id_)
    await db.execute("UPDATE mints SET amount = amount + 1")

    (finding,) = (await discrepancies(db))["mint_and_reward_differ"].rows

    assert finding.id == str(id_)
    assert finding.sides["reward"] == {
        "ltz": 100,
        "wallet": hex_of(wallet),
        "brandId": ONE.id,
    }
    mint = finding.sides["mint"]
    assert mint is not None
    assert (str(mint["ltz"]), mint["wallet"], mint["block"]) == (
        "100.000000000000000001",
        hex_of(wallet),
        1,
    )


async def test_a_mint_without_a_reward_is_reported_as_foreign(
    db: Connection, rows: BookRows
) -> None:
    await rows.minted(await rows.event())
    reference = reward_reference(uuid4(), 1, 2**64 - 1)
    block = await db.fetchval("SELECT cursor_hash FROM chains")
    await db.execute(
        "INSERT INTO mints VALUES ($1, 50, 1, $2, $3, $4, $5)",
        *(block, a_hash("theirs"), a_wallet(5), reference, 2**255),
    )

    reported = await discrepancies(db)

    assert reported.keys() == {"foreign_mint", "mints_and_transfers_differ"}
    (finding,) = reported["foreign_mint"].rows
    assert (finding.id, finding.sides["reward"]) == (hex_of(reference), None)
    async with books.snapshot(db):
        indexed = await books.read_indexed_ltz(db)
    assert indexed is not None
    assert indexed.used == {0: 1, 2**56 - 1: 1 << 255}
    assert indexed.words() == [0, 1, 2, 2**56 - 1]


async def test_discrepancies_beyond_the_limit_are_counted(db: Connection, rows: BookRows) -> None:
    ids = [await rows.event() for _ in range(5)]
    await db.execute("DELETE FROM rewards")

    reported = (await discrepancies(db, at_most=2))["event_without_reward"]

    assert (reported.count, [row.id for row in reported.rows]) == (
        5,
        [str(id_) for id_ in ids[:2]],
    )


async def test_a_brands_books_hold_only_its_own_discrepancies(
    db: Connection, rows: BookRows
) -> None:
    ones, twos = await rows.event(ONE), await rows.event(TWO)
    await rows.minted(ones, twos)
    for statement in (
        "DELETE FROM events",
        "UPDATE balances SET amount = amount + 1",
        "UPDATE rewards SET mint_block_number = 0",
        "UPDATE mints SET reference = set_byte(reference, 31, 99)",
    ):
        await db.execute(statement)

    for brand, id_ in ((ONE, ones), (TWO, twos)):
        async with books.snapshot(db):
            reported = await reconcile(db, 20, brand.address)
        assert {each.kind: each.count for each in reported} == {
            "reward_without_event": 1,
            "minted_without_mint": 1,
            "foreign_mint": 1,
        }
        assert reported[0].rows[0].id == str(id_)


# --- no discrepancies ---------------------------------------------------------------------------


async def test_an_announced_reward_that_a_reorg_undid_is_in_flight_and_no_discrepancy(
    db: Connection, rows: BookRows
) -> None:
    id_ = await rows.event()
    transaction = await rows.sign(id_)
    await rows.mine(transaction)
    await rows.deliver(id_)

    await rows.undo(0)
    assert await discrepancies(db) == {}
    await rows.requeue(transaction)
    assert await discrepancies(db) == {}

    await db.execute("UPDATE rewards SET failed_at = now(), failure = 'by hand'")
    assert (await discrepancies(db)).keys() == {"announced_without_mint"}
    await db.execute("UPDATE rewards SET failed_at = NULL")
    await rows.fail(id_)
    assert await db.fetchval("SELECT count(*) FROM webhooks WHERE kind = 'ltz_reverted'") == 1
    assert await discrepancies(db) == {}
    assert (await totals(db)).delivered == 0
    async with undone(db):  # Delivered webhooks are deleted after 30 days.
        await db.execute("DELETE FROM webhooks WHERE kind = 'ltz_reverted'")
        assert await reconcile(db, 20) == []

    await rewards.retry(db, id_)
    await rows.minted(id_)
    await rows.deliver(id_)
    assert (await totals(db)).delivered == 1
    await rows.undo(0)
    await db.execute("UPDATE rewards SET transaction_id = NULL")
    await db.execute("UPDATE rewards SET failed_at = now(), failure = 'by hand'")
    (again,) = (await discrepancies(db))["announced_without_mint"].rows
    assert again.sides["webhook"] is not None


async def test_webhooks_of_unminted_rewards_are_not_searched_for_each_of_them(
    db: Connection,
) -> None:
    """PostgreSQL expects none of them, since all rewards that it has counted are minted."""
    for statement in (
        """
        INSERT INTO rewards (id, kind, brand_id, wallet, ltz, seq, mint_block_number,
                             mint_block_hash, mint_transaction_hash)
        SELECT gen_random_uuid(), 1, brand, brand, 1, n, 1, sha256('b'), sha256('t')
          FROM generate_series(1, 3000) AS n
         CROSS JOIN decode(repeat('bb', 20), 'hex') AS brand
        """,
        """
        INSERT INTO webhooks (brand_id, kind, subject, state)
        SELECT brand_id, 'ltz_distributed', gen_random_uuid(), 'delivered' FROM rewards
        """,
        "ANALYZE",
    ):
        await db.execute(statement)
    (check,) = (each for each in disagreements.CHECKS if each.kind == "announced_without_mint")
    async with db.transaction():
        rows = await db.fetch(check.sql, None, 1)
        read = await db.fetchval(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables "
            "WHERE relname = 'webhooks'"
        )
    assert rows[0]["total"] == 3000
    assert 3000 <= read <= 4 * 3000


async def test_mints_above_the_cursor_of_a_rebuild_are_no_discrepancy(
    db: Connection, rows: BookRows
) -> None:
    first, second = await rows.event(), await rows.event()
    await rows.minted(first)
    await rows.minted(second)
    hash_ = await db.fetchval("SELECT hash FROM blocks WHERE number = 1")
    for statement in (
        "DELETE FROM mints WHERE block_number = 2",
        "DELETE FROM transfers WHERE block_number = 2",
        "DELETE FROM balances WHERE wallet = (SELECT wallet FROM rewards WHERE seq = 1)",
    ):
        await db.execute(statement)
    await db.execute("UPDATE chains SET cursor_number = 1, cursor_hash = $1", hash_)

    assert await discrepancies(db) == {}
    async with books.snapshot(db):
        assert await disagreements.count_above_index(db) == 1
    await db.execute("UPDATE chains SET head_number = cursor_number")
    assert (await discrepancies(db)).keys() == {"minted_without_mint"}


async def test_a_snapshot_outlasts_every_timeout_and_changes_nothing(
    db: Connection, rows: BookRows
) -> None:
    await rows.event()
    await db.execute("SET statement_timeout = '50ms'")
    await db.execute("SET idle_in_transaction_session_timeout = '50ms'")

    async with books.snapshot(db):
        before = await books.read_figures(db)
        await db.execute("SELECT pg_sleep(0.1)")
        with pytest.raises(Exception, match="read-only"):
            async with db.transaction():
                await db.execute("DELETE FROM events")
        assert await books.read_figures(db) == before

    assert await db.fetchval("SHOW statement_timeout") == "50ms"


async def test_a_snapshot_does_not_see_later_commits(
    db: Connection, rows: BookRows, database_url: str
) -> None:
    other = await database.connect(database_url, "test")
    async with books.snapshot(db):
        before = await books.read_figures(db)
        beside = BookRows(other)
        await beside.event()
        assert await books.read_figures(db) == before
        assert await reconcile(db, 20) == []
    assert (await totals(db)).answered == 1
    await other.close()


# --- statements ---------------------------------------------------------------------------------


async def the_lines(
    db: Connection, period: Period = books.ALL_TIME
) -> list[statements.StatementLine]:
    async with books.snapshot(db):
        return [line async for line in statements.read_lines(db, ONE.address, period)]


async def test_a_statement_has_a_line_for_every_grant(db: Connection, rows: BookRows) -> None:
    minted, final, paid = await rows.event(), await rows.event(), await rows.payment()
    check_in, milestone = await rows.other(3), await rows.other(4)
    queued, published, failed = [await rows.event(ltz=n) for n in (1, 2, 3)]
    signed, orphan = await rows.event(), await rows.event()
    await rows.event(ltz=0)
    await rows.event(TWO)
    await rows.minted(final, paid)
    await rows.minted(minted, check_in)
    await db.execute("UPDATE chains SET final_number = 1")
    hash_ = await rows.publish(await rows.sign(published))
    await rows.sign(signed)
    await rows.fail(failed)
    await db.execute("DELETE FROM rewards WHERE id = $1", orphan)
    ids = [minted, final, paid, check_in, milestone, queued, published, failed, signed, orphan]
    for number, id_ in enumerate(ids):
        await rows.recorded(id_, START + number * DAY)
    mints = {
        row["id"]: row["mint_transaction_hash"] for row in await db.fetch("SELECT * FROM rewards")
    }

    statement = await the_lines(db)

    assert [(line.id, line.kind, line.state, line.block_number) for line in statement] == [
        (str(minted), "event", "minted", 2),
        (str(final), "event", "final", 1),
        (f"cs_{paid.hex}", "purchase", "final", 1),
        (str(check_in), "check_in", "minted", 2),
        (str(milestone), "milestone", "queued", None),
        (str(queued), "event", "queued", None),
        (str(published), "event", "published", None),
        (str(failed), "event", "failed", None),
        (str(signed), "event", "queued", None),
        (str(orphan), "event", "missing", None),
    ]
    assert [line.at for line in statement] == [START + number * DAY for number in range(10)]
    assert [line.usd_cents for line in statement if line.usd_cents] == [1_250]
    assert [line.transaction_hash for line in statement[:4]] == [mints[id_] for id_ in ids[:4]]
    assert statement[6].transaction_hash == hash_
    assert [line.transaction_hash for line in (statement[5], statement[8])] == [None, None]
    user = await db.fetchrow(
        "SELECT u.id::text, u.wallet FROM users u JOIN events e ON user_id = u.id WHERE e.id = $1",
        minted,
    )
    assert (statement[0].user_id, statement[0].wallet, statement[0].event_type) == (
        *user,
        "form_submit",
    )
    assert (statement[2].user_id, statement[2].event_type) == (None, None)
    now = Figures.total([(await books.read_figures(db))[ONE.address]])
    assert sum(line.ltz for line in statement) == now.answered_ltz + now.bought_ltz + now.other_ltz


async def test_a_payments_user_is_named_only_if_one_user_has_its_wallet(
    db: Connection, rows: BookRows
) -> None:
    await rows.payment()
    buyer = await db.fetchval(
        "INSERT INTO users VALUES (gen_random_uuid(), 'a@a.example', 'x', $1) RETURNING id::text",
        a_wallet(7),
    )
    assert [line.user_id for line in await the_lines(db)] == [buyer]
    await db.execute(
        "INSERT INTO users VALUES (gen_random_uuid(), 'b@b.example', 'x', $1)", a_wallet(7)
    )
    assert [line.user_id for line in await the_lines(db)] == [None]


async def test_a_statement_and_the_figures_of_a_period_have_the_same_sum(
    db: Connection, rows: BookRows
) -> None:
    chance = random.Random(7)
    for _ in range(40):
        made = await chance.choice((rows.event, rows.payment, rows.other))()
        at = START + timedelta(hours=chance.randrange(0, 240, 6))
        await rows.recorded(made, at)

    for _ in range(15):
        first, last = sorted(chance.sample(range(11), 2))
        period = Period(
            START + first * DAY if chance.random() < 0.8 else None,
            START + last * DAY if chance.random() < 0.8 else None,
        )
        statement = await the_lines(db, period)
        now = Figures.total((await books.read_figures(db, ONE.address, period)).values())
        assert (
            sum(line.ltz for line in statement) == now.answered_ltz + now.bought_ltz + now.other_ltz
        )
        assert len(statement) == now.answered + now.bought + now.other == now.queued
        assert [(line.at, line.id) for line in statement] == sorted(
            (line.at, line.id) for line in statement
        )
        for line in statement:
            assert period.since is None or line.at >= period.since
            assert period.until is None or line.at < period.until

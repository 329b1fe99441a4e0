"""Tokens, collections, items and deals equal a naive model whatever is written and undone."""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ltzd.rules.indexer.contract_facts import (
    ChargeRedeemed,
    Claimed,
    CollectionBrandSet,
    CollectionCreated,
    CollectionUpdated,
    DealLocked,
    DealRefunded,
    DealReleased,
    DealSplit,
    EscrowFact,
    ItemSet,
    PerkFact,
    Purchased,
    SaleFact,
    TokenTransferred,
)
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.indexer import chains, collections, escrow_facts, perk_facts, sale_facts, tokens
from ltzd.store.indexer.chains import BlockRow, ChainIdentity
from ltzd.values import ZERO_ADDRESS, Address
from tests.support.rows import reorgs
from tests.support.rows.core import a_hash, a_wallet, value

AnyFact = PerkFact | SaleFact | EscrowFact
Row = tuple[Any, ...]
BORN = 1_700_000_000
CHARGES = 3
REFERENCE = b"\x4e" * 32

TABLES = (
    "perk_transfers", "perk_claims", "charge_redemptions", "collection_facts", "item_settings",
    "purchases", "deal_facts", "tokens", "collections", "items", "deals", "blocks",
)  # fmt: skip


@dataclass
class Model:
    """All facts of the chain, and every row made up from nothing but them."""

    blocks: list[list[AnyFact]] = field(default_factory=list)
    branch: int = 0

    def facts(self) -> list[AnyFact]:
        return [fact for block in self.blocks for fact in block]

    def of(self, kind: type | tuple[type, ...]) -> list[Any]:
        return [fact for fact in self.facts() if isinstance(fact, kind)]

    def head(self) -> BlockRow:
        number = len(self.blocks)
        return BlockRow(number, a_hash(f"{number} of {self.branch}"), a_hash(""), BORN + number)

    def begin_block(self) -> None:
        self.branch += 1
        self.blocks.append([])

    def position(self) -> LogPosition:
        head = self.head()
        return LogPosition(head.number, head.hash, len(self.blocks[-1]), a_hash("transaction"))

    def say(self, fact: AnyFact) -> None:
        self.blocks[-1].append(fact)

    # Possible actions; each does nothing if the contracts would refuse it.

    def happen(self, what: int, which: int, who: int) -> None:
        wallet = a_wallet(1 + who % 3)
        if what < 9:
            self._happen_to_perks(what, which, who, wallet)
            return
        match what:
            case 9:
                sold = self.sold()[1 + which % 2]
                self.say(
                    ItemSet(
                        self.position(), 1 + which % 2, wallet, wallet, who, 100, sold, 3, True,
                        who % 2 == 0, bytes([who]) * 32,
                    )
                )  # fmt: skip
            case 10 | 11 if self.of(ItemSet):
                item = self.of(ItemSet)[which % len(self.of(ItemSet))].item_id
                self.say(Purchased(self.position(), item, wallet, REFERENCE, 1 + who % 3, 2**200))
            case 12:
                deal = len(self.of(DealLocked)).to_bytes(32, "big")
                self.say(DealLocked(self.position(), deal, wallet, a_wallet(9), 10, 1_800_000_000))
            case 13:
                self._end(which, who)

    def _happen_to_perks(self, what: int, which: int, who: int, wallet: Address) -> None:
        created = self.of(CollectionCreated)
        held = sorted(self.holders())
        match what:
            case 0:
                self.say(
                    CollectionCreated(
                        self.position(), len(created) + 1, wallet, wallet, 10**18, 0, 2, CHARGES,
                        True, who % 2 == 0, f"https://perks.example/{who}/\x00",
                    )
                )  # fmt: skip
            case 1 if created:
                id_ = 1 + which % len(created)
                self.say(CollectionUpdated(self.position(), id_, wallet, who, which, who, False))
            case 2 if created:
                self.say(CollectionBrandSet(self.position(), 1 + which % len(created), wallet))
            case 3 | 4 if created:
                self._claim(1 + which % len(created), wallet)
            case 5 | 6 if held:
                token = held[which % len(held)]
                self.say(TokenTransferred(self.position(), self.holders()[token], wallet, token))
            case 7 | 8 if held:
                self._redeem(held[which % len(held)], 1 + who % 2)

    def _claim(self, collection: int, wallet: Address) -> None:
        claims: list[Claimed] = [
            fact for fact in self.of(Claimed) if fact.collection_id == collection
        ]
        token = collection << 32 | (len(claims) + 1)
        self.say(TokenTransferred(self.position(), ZERO_ADDRESS, wallet, token))
        self.say(
            Claimed(self.position(), collection, wallet, token, 2**96 - 1, len(claims), REFERENCE)
        )

    def _redeem(self, token: int, amount: int) -> None:
        left = CHARGES - self.used()[token]
        if left >= amount:
            holder = self.holders()[token]
            self.say(
                ChargeRedeemed(self.position(), token, holder, REFERENCE, amount, left - amount)
            )

    def _end(self, which: int, who: int) -> None:
        ended = {fact.deal_id for fact in self.of((DealReleased, DealRefunded, DealSplit))}
        deals = [fact for fact in self.of(DealLocked) if fact.deal_id not in ended]
        if not deals:
            return
        deal = deals[which % len(deals)]
        common = (self.position(), deal.deal_id, deal.user, deal.business)
        by = a_wallet(8)
        endings = (
            DealReleased(*common, 10, by),
            DealRefunded(*common, 10, by),
            DealSplit(*common, 7, 3),
        )
        self.say(endings[who % 3])

    # What the tables must hold.

    def holders(self) -> dict[int, Address]:
        return {fact.token_id: fact.recipient for fact in self.of(TokenTransferred)}

    def used(self) -> Counter[int]:
        counts: Counter[int] = Counter()
        for fact in self.of(ChargeRedeemed):
            counts[fact.token_id] += fact.amount
        return counts

    def sold(self) -> Counter[int]:
        counts: Counter[int] = Counter()
        for fact in self.of(Purchased):
            counts[fact.item_id] += fact.quantity
        return counts

    def tokens(self) -> set[Row]:
        rows = set()
        for token, holder in self.holders().items():
            about = [
                fact.position.block_number
                for fact in self.of((TokenTransferred, ChargeRedeemed))
                if fact.token_id == token
            ]
            spent = [
                fact.position.block_number
                for fact in self.of(ChargeRedeemed)
                if fact.token_id == token
            ]
            rows.add(
                (
                    token, token >> 32, holder, self.used()[token], mined_at(min(about)),
                    mined_at(max(spent)) if spent else None, max(about),
                )
            )  # fmt: skip
        return rows

    def collections(self) -> set[Row]:
        rows: dict[int, dict[str, Any]] = {}
        for fact in self.of((CollectionCreated, CollectionUpdated, CollectionBrandSet)):
            values = {name: getattr(fact, name) for name in fact.__slots__ if name != "place"}
            rows[fact.collection_id] = rows.get(fact.collection_id, {}) | values
        minted = Counter(token >> 32 for token in self.holders())
        return {
            (
                id_, row["brand"], row["payout"], row["price"], row["max_supply"],
                row["max_per_user"], row["is_active"], row["charges"], row["requires_signature"],
                row["uri"].replace("\x00", "\ufffd"), minted[id_],
            )
            for id_, row in rows.items()
        }  # fmt: skip

    def items(self) -> set[Row]:
        newest = {fact.item_id: fact for fact in self.of(ItemSet)}
        return {
            (
                id_, fact.brand, fact.payout, fact.price, fact.stock, self.sold()[id_],
                fact.max_per_order, fact.is_active, fact.burns, fact.metadata,
            )
            for id_, fact in newest.items()
        }  # fmt: skip

    def deals(self) -> set[Row]:
        got = {DealLocked: ("locked", 0, 0), DealReleased: ("released", 0, 10)}
        got |= {DealRefunded: ("refunded", 10, 0), DealSplit: ("split", 7, 3)}
        newest = {fact.deal_id: fact for fact in self.of(tuple(got))}
        return {
            (
                id_, fact.user, fact.business, 10, 1_800_000_000, *got[type(fact)],
                fact.position.block_number,
            )
            for id_, fact in newest.items()
        }  # fmt: skip


def mined_at(number: int) -> datetime:
    return datetime.fromtimestamp(BORN + number, UTC)


async def write(connection: Connection, blocks: list[BlockRow], facts: list[AnyFact]) -> None:
    """As the follower does."""
    await chains.insert_blocks(connection, blocks)
    await perk_facts.insert(connection, [fact for fact in facts if isinstance(fact, PerkFact)])
    await sale_facts.insert(connection, [fact for fact in facts if isinstance(fact, SaleFact)])
    await escrow_facts.insert(connection, [fact for fact in facts if isinstance(fact, EscrowFact)])


async def stored(pool: Pool) -> tuple[set[Row], ...]:
    """Tokens (with what is used), collections, items, deals."""
    async with session(pool) as connection:
        held = [
            await tokens.find(connection, int(row[0]))
            for row in await connection.fetch("SELECT token_id FROM tokens")
        ]
        others = [
            {tuple(map(plain, row)) for row in await connection.fetch(f"SELECT * FROM {table}")}
            for table in ("collections", "items", "deals")
        ]
    rows = {
        (
            token.id, token.collection_id, token.holder, token.used, token.claimed_at,
            token.last_redeemed_at, token.block_number,
        )
        for token in held
        if token is not None
    }  # fmt: skip
    return (rows, *others)


def plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value


happening = st.tuples(st.integers(0, 13), st.integers(0, 5), st.integers(0, 5))
blocks = st.lists(happening, max_size=5)
commits = st.lists(blocks, min_size=1, max_size=4)
"""Blocks that are written together, as the indexer does far from the head."""
steps = st.lists(st.one_of(commits, commits, st.integers(1, 6)), max_size=12)
"""The facts to commit, or the number of blocks to undo."""


@given(steps)
@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_every_row_is_what_the_chain_says_through_every_undo(
    pool: Pool, wanted: list[list[list[tuple[int, int, int]]] | int]
) -> None:
    model = Model()
    async with session(pool) as connection:
        await connection.execute(f"TRUNCATE {', '.join(TABLES)}")
    for step in wanted:
        async with transaction(pool) as connection:
            if isinstance(step, int):
                del model.blocks[-step:]
                await reorgs.undo_above(connection, len(model.blocks))
            else:
                headers, first = [], len(model.blocks)
                for block in step:
                    model.begin_block()
                    headers.append(model.head())
                    for what, which, who in block:
                        model.happen(what, which, who)
                new = [fact for block in model.blocks[first:] for fact in block]
                await write(connection, headers, new)
                await write(connection, headers, new)  # the same again does nothing
        expected = model.tokens(), model.collections(), model.items(), model.deals()
        assert await stored(pool) == expected
    kept = [await value(pool, f"SELECT count(*) FROM {table}") for table in TABLES[:7]]
    assert sum(kept) == len(model.facts())


def a_claim(number: int = 1, collection: int = 7, holder: int = 1) -> list[AnyFact]:
    token = collection << 32 | number
    place = LogPosition(1, a_hash("1"), 10 * number % 2**31, a_hash("t"))
    return [TokenTransferred(place, ZERO_ADDRESS, a_wallet(holder), token)]


def a_collection(collection: int = 7) -> CollectionCreated:
    brand = a_wallet(0xB)
    place = LogPosition(1, a_hash("1"), 10**6 + collection, a_hash("t"))
    return CollectionCreated(
        place, collection, brand, brand, 10**18, 0, 2, CHARGES, True, False, ""
    )


@pytest.fixture
async def seven(pool: Pool) -> Pool:
    """Collection 7 with tokens 1 to 25, of which 5 wallets hold five each; and a neighbour, 8."""
    facts: list[AnyFact] = [a_collection(), a_collection(8)]
    for number in range(1, 26):
        facts += a_claim(number, holder=1 + number % 5)
    place = LogPosition(1, a_hash("1"), 10**7, a_hash("t"))
    facts.append(TokenTransferred(place, ZERO_ADDRESS, a_wallet(1), 8 << 32 | 1))
    async with transaction(pool) as connection:
        await write(connection, [BlockRow(1, a_hash("1"), a_hash(""), BORN)], facts)
    return pool


async def test_pages_list_each_token_once_while_tokens_are_moved_and_claimed(seven: Pool) -> None:
    seen: list[int] = []
    after = 0
    async with session(seven) as connection:
        while page := (await tokens.read_page(connection, 7, after, 4)).tokens:
            seen += [token.id for token in page]
            after = seen[-1]
            moved = TokenTransferred(
                LogPosition(1, a_hash("1"), 10**8 + len(seen), a_hash("t")),
                a_wallet(1),
                a_wallet(9),
                7 << 32 | (1 + len(seen) * 7 % 25),
            )
            await perk_facts.insert(connection, [moved])
            if len(seen) == 8:
                await write(connection, [], a_claim(26))
        assert (await collections.read_owners(connection, [7]))[7].minted == 26
        assert not (await tokens.read_page(connection, 9, 0, 4)).tokens
    assert seen == [7 << 32 | number for number in range(1, 27)]


async def test_a_wallets_tokens_of_a_collection_are_counted_no_further_than_asked(
    seven: Pool,
) -> None:
    async with session(seven) as connection:
        assert await tokens.count_held(connection, a_wallet(1), 7, 10) == 5
        assert await tokens.count_held(connection, a_wallet(1), 7, 3) == 3
        assert await tokens.count_held(connection, a_wallet(1), 8, 10) == 1
        assert await tokens.count_held(connection, a_wallet(2), 8, 10) == 0


async def test_many_are_looked_at_at_once_each_with_its_own_collection(seven: Pool) -> None:
    first, huge = 7 << 32 | 1, 2**256 - 1
    wanted = [(7, first), (8, first), (9, first), (7, 7 << 32 | 99), (7, first), (huge, huge)]
    async with session(seven) as connection:
        await connection.execute("UPDATE tokens SET remaining = 1 WHERE token_id = $1", first)
        chain = ChainIdentity(31337, a_hash("genesis"), a_wallet(0xC), 1)
        await chains.start_following(connection, chain, BlockRow(1, a_hash("1"), a_hash(""), BORN))
        looked = await tokens.look_up(connection, chain.chain_id, wanted)
        assert await tokens.look_up(connection, chain.chain_id, []) == []
        token = await tokens.find(connection, first)
        assert token is not None
        assert token.remaining == 1
        page = await tokens.read_page(connection, 7, 0, 1)
        owners = await collections.read_owners(connection, [7, 8, 9, huge])
    assert [each.token for each in looked] == [token, None, None, None, token, None]
    assert [each.brand for each in looked] == [
        owned and owned.brand for owned in map(owners.get, (7, 8, 9, 7, 7, huge))
    ]
    assert (page.tokens, page.total, page.block_hash) == ([token], 25, a_hash("1"))
    assert owners[7].block_hash == a_hash("1")
    assert looked[0].brand is not None
    assert looked[2].brand is None
    assert {each.block for each in looked} == {1}


@pytest.mark.parametrize("huge", [2**63, 2**95, 2**256 - 1])
async def test_what_no_token_or_collection_can_be_called_is_not_there(
    seven: Pool, huge: int
) -> None:
    async with session(seven) as connection:
        assert await tokens.find(connection, huge) is None
        assert not (await tokens.read_page(connection, huge, 0, 5)).tokens
        assert not (await tokens.read_page(connection, 7, huge, 5)).tokens
        assert await collections.read_owners(connection, [huge]) == {}
        assert await tokens.count_held(connection, a_wallet(1), huge, 5) == 0
        assert await collections.find(connection, huge) is None
        assert await collections.brand_of(connection, huge) is None


async def test_the_largest_collection_that_a_bigint_holds_has_tokens(pool: Pool) -> None:
    largest = 2**63 - 1
    async with transaction(pool) as connection:
        block = BlockRow(1, a_hash("1"), a_hash(""), BORN)
        created = replace(a_collection(), collection_id=largest)
        await write(connection, [block], [created, *a_claim(2**32 - 1, largest)])

        (token,) = (await tokens.read_page(connection, largest, 0, 5)).tokens
        assert token.id == 2**95 - 1
        assert await tokens.find(connection, token.id) == token
        assert (await collections.read_owners(connection, [largest]))[largest].minted == 2**32 - 1
        assert await collections.brand_of(connection, largest) == a_wallet(0xB)

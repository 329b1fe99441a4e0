"""Tokens, collections, items and deals equal a naive model through writes and undos."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.errors import ImpossibleFact
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
from ltzd.store.indexer.impossible import refused_as_impossible
from ltzd.values import ZERO_ADDRESS, Address
from tests.support.rows import reorgs
from tests.support.rows.core import a_hash, a_wallet, value
from tests.support.rows.tokens import indexed_token

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
    """All facts of the chain; computes every row from them alone."""

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

    def add(self, fact: AnyFact) -> None:
        self.blocks[-1].append(fact)

    # Actions; an action that the contracts would refuse does nothing.

    def act(self, action: int, target: int, actor: int) -> None:
        wallet = a_wallet(1 + actor % 3)
        if action < 9:
            self._act_on_perks(action, target, actor, wallet)
            return
        match action:
            case 9:
                sold = self.sold()[1 + target % 2]
                self.add(
                    ItemSet(
                        self.position(), 1 + target % 2, wallet, wallet, actor, 100, sold, 3, True,
                        actor % 2 == 0, bytes([actor]) * 32,
                    )
                )  # fmt: skip
            case 10 | 11 if self.of(ItemSet):
                item = self.of(ItemSet)[target % len(self.of(ItemSet))].item_id
                self.add(Purchased(self.position(), item, wallet, REFERENCE, 1 + actor % 3, 2**200))
            case 12:
                deal = len(self.of(DealLocked)).to_bytes(32, "big")
                self.add(DealLocked(self.position(), deal, wallet, a_wallet(9), 10, 1_800_000_000))
            case 13:
                self._end(target, actor)

    def _act_on_perks(self, action: int, target: int, actor: int, wallet: Address) -> None:
        created = self.of(CollectionCreated)
        held = sorted(self.holders())
        match action:
            case 0:
                self.add(
                    CollectionCreated(
                        self.position(), len(created) + 1, wallet, wallet, 10**18, 0, 2, CHARGES,
                        True, actor % 2 == 0, f"https://perks.example/{actor}/\x00",
                    )
                )  # fmt: skip
            case 1 if created:
                id_ = 1 + target % len(created)
                self.add(
                    CollectionUpdated(self.position(), id_, wallet, actor, target, actor, False)
                )
            case 2 if created:
                self.add(CollectionBrandSet(self.position(), 1 + target % len(created), wallet))
            case 3 | 4 if created:
                self._claim(1 + target % len(created), wallet)
            case 5 | 6 if held:
                token = held[target % len(held)]
                self.add(TokenTransferred(self.position(), self.holders()[token], wallet, token))
            case 7 | 8 if held:
                self._redeem(held[target % len(held)], 1 + actor % 2)

    def _claim(self, collection: int, wallet: Address) -> None:
        claims: list[Claimed] = [
            fact for fact in self.of(Claimed) if fact.collection_id == collection
        ]
        token = collection << 32 | (len(claims) + 1)
        self.add(TokenTransferred(self.position(), ZERO_ADDRESS, wallet, token))
        own = 1 + sum(claim.user == wallet for claim in claims)
        self.add(Claimed(self.position(), collection, wallet, token, 2**96 - 1, own, REFERENCE))

    def _redeem(self, token: int, amount: int) -> None:
        left = CHARGES - self.used()[token]
        if left >= amount:
            holder = self.holders()[token]
            self.add(
                ChargeRedeemed(self.position(), token, holder, REFERENCE, amount, left - amount)
            )

    def _end(self, target: int, actor: int) -> None:
        ended = {fact.deal_id for fact in self.of((DealReleased, DealRefunded, DealSplit))}
        deals = [fact for fact in self.of(DealLocked) if fact.deal_id not in ended]
        if not deals:
            return
        deal = deals[target % len(deals)]
        common = (self.position(), deal.deal_id, deal.user, deal.business)
        by = a_wallet(8)
        endings = (
            DealReleased(*common, 10, by),
            DealRefunded(*common, 10, by),
            DealSplit(*common, 7, 3),
        )
        self.add(endings[actor % 3])

    # The expected rows.

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
            values = {name: getattr(fact, name) for name in fact.__slots__ if name != "position"}
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
        got: dict[type, tuple[str, int, int]] = {
            DealLocked: ("locked", 0, 0),
            DealReleased: ("released", 0, 10),
        }
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
    """Writes blocks and facts as the follower does."""
    await chains.insert_blocks(connection, blocks)
    await perk_facts.insert(connection, [fact for fact in facts if isinstance(fact, PerkFact)])
    await sale_facts.insert(connection, [fact for fact in facts if isinstance(fact, SaleFact)])
    await escrow_facts.insert(connection, [fact for fact in facts if isinstance(fact, EscrowFact)])


async def stored(pool: Pool) -> tuple[set[Row], ...]:
    """Returns the rows of tokens (with used charges), collections, items and deals."""
    async with session(pool) as connection:
        held = [
            await indexed_token(connection, int(row[0]))
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


action = st.tuples(st.integers(0, 13), st.integers(0, 5), st.integers(0, 5))
blocks = st.lists(action, max_size=5)
commits = st.lists(blocks, min_size=1, max_size=4)
"""Blocks written in one transaction, as the indexer does far from the head."""
steps = st.lists(st.one_of(commits, commits, st.integers(1, 6)), max_size=12)
"""The facts to commit, or the number of blocks to undo."""


@given(steps)
@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_rows_equal_the_model_through_commits_and_undos(
    pool: Pool, wanted: list[list[list[tuple[int, int, int]]] | int]
) -> None:
    model = Model()
    async with session(pool) as connection:
        await connection.execute(f"TRUNCATE blocks, {', '.join(TABLES)}")
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
                    for action_number, target, actor in block:
                        model.act(action_number, target, actor)
                new = [fact for block in model.blocks[first:] for fact in block]
                await write(connection, headers, new)
        expected = model.tokens(), model.collections(), model.items(), model.deals()
        assert await stored(pool) == expected
        await claims_equal(pool, model)
    kept = [await value(pool, f"SELECT count(*) FROM {table}") for table in TABLES[:7]]
    assert sum(kept) == len(model.facts())


async def claims_equal(pool: Pool, model: Model) -> None:
    """Asserts the claims of each user in each collection, and of strangers."""
    most = {row[0]: row[5] for row in model.collections()}
    claimed = Counter((fact.user, fact.collection_id) for fact in model.of(Claimed))
    queries = [(user, id_) for user in {user for user, _ in claimed} for id_ in (*most, 2**70)]
    queries.append((a_wallet(0xEE), next(iter(most), 1)))
    async with session(pool) as connection:
        answers = await collections.read_claims(connection, queries)
    assert answers == [
        collections.IndexedClaims(most[id_], claimed[user, id_]) if id_ in most else None
        for user, id_ in queries
    ]


@pytest.mark.parametrize(
    ("log_index", "stock"), [(0, 4), (1, 2**63)], ids=["known", "a number that no column holds"]
)
async def test_an_impossible_fact_is_refused_and_changes_nothing(
    pool: Pool, log_index: int, stock: int
) -> None:
    place = LogPosition(1, a_hash("1"), 0, a_hash("t"))
    item = ItemSet(place, 1, a_wallet(1), a_wallet(2), 3, 4, 0, 5, True, False, bytes(32))
    async with transaction(pool) as connection:
        await write(connection, [BlockRow(1, a_hash("1"), a_hash(""), BORN)], [item])
    again = replace(item, position=replace(place, log_index=log_index), stock=stock)

    with pytest.raises(ImpossibleFact), refused_as_impossible():
        async with transaction(pool) as connection:
            await write(connection, [], [again])
    assert await value(pool, "SELECT count(*) FROM item_settings") == 1
    assert await value(pool, "SELECT stock FROM items") == 4


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
    """Collection 7 has tokens 1 to 25, five for each of 5 wallets; collection 8 has one token."""
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


async def test_a_wallets_tokens_of_a_collection_are_counted_up_to_a_bound(
    seven: Pool,
) -> None:
    async with session(seven) as connection:
        assert await tokens.count_held(connection, a_wallet(1), 7, 10) == 5
        assert await tokens.count_held(connection, a_wallet(1), 7, 3) == 3
        assert await tokens.count_held(connection, a_wallet(1), 8, 10) == 1
        assert await tokens.count_held(connection, a_wallet(2), 8, 10) == 0


async def test_tokens_and_their_collections_brands_are_looked_up_in_one_query(seven: Pool) -> None:
    first, huge = 7 << 32 | 1, 2**256 - 1
    wanted = [(7, first), (8, first), (9, first), (7, 7 << 32 | 99), (7, first), (huge, huge)]
    async with session(seven) as connection:
        await connection.execute("UPDATE tokens SET remaining = 1 WHERE token_id = $1", first)
        chain = ChainIdentity(31337, a_hash("genesis"), a_wallet(0xC), 1)
        await chains.start_following(connection, chain, BlockRow(1, a_hash("1"), a_hash(""), BORN))
        looked = await tokens.look_up(connection, chain.chain_id, wanted)
        assert await tokens.look_up(connection, chain.chain_id, []) == []
        token = await indexed_token(connection, first)
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
async def test_ids_out_of_range_are_not_found(seven: Pool, huge: int) -> None:
    async with session(seven) as connection:
        assert not (await tokens.read_page(connection, huge, 0, 5)).tokens
        assert not (await tokens.read_page(connection, 7, huge, 5)).tokens
        assert await collections.read_owners(connection, [huge]) == {}
        assert await tokens.count_held(connection, a_wallet(1), huge, 5) == 0
        assert await collections.brand_of(connection, huge) is None


async def test_the_largest_collection_that_a_bigint_holds_has_tokens(pool: Pool) -> None:
    largest = 2**63 - 1
    async with transaction(pool) as connection:
        block = BlockRow(1, a_hash("1"), a_hash(""), BORN)
        created = replace(a_collection(), collection_id=largest)
        await write(connection, [block], [created, *a_claim(2**32 - 1, largest)])

        (token,) = (await tokens.read_page(connection, largest, 0, 5)).tokens
        assert token.id == 2**95 - 1
        assert await indexed_token(connection, token.id) == token
        assert (await collections.read_owners(connection, [largest]))[largest].minted == 2**32 - 1
        assert await collections.brand_of(connection, largest) == a_wallet(0xB)

"""What the mint limit lets go: never too much, and no reward waits for ever for other brands'."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from ltzd.rules.operator import mint_turns
from ltzd.rules.operator.mint_turns import MintAllocation, MintRequest, Reserve
from ltzd.values import Address

A, B, C = (Address(bytes([number]) * 20) for number in (0xA, 0xB, 0xC))
PLENTY = 10**9
BATCH = 100


def asks_of(*said: tuple[Address | None, int]) -> list[MintRequest]:
    return [
        MintRequest(UUID(int=number), brand, units) for number, (brand, units) in enumerate(said)
    ]


def allot(
    asks: list[MintRequest],
    capacity: int,
    spendable: int,
    reserve: Reserve,
    at_most: int,
    refill: int = 0,
) -> MintAllocation:
    return mint_turns.allot(asks, mint_turns.Bucket(capacity, spendable, refill), reserve, at_most)


def taken(allotment: MintAllocation) -> list[int]:
    return [reward.int for reward in allotment.taken]


def test_while_the_bucket_holds_everything_all_are_taken_in_order() -> None:
    asks = asks_of((None, 5), (A, 3), (B, 4), (A, 1))
    allotment = allot(asks, PLENTY, 13, Reserve(), BATCH)

    assert taken(allotment) == [0, 1, 2, 3]
    assert allotment.reserve.saver is None


def test_a_reward_that_does_not_fit_now_stops_its_own_brand_and_no_other() -> None:
    asks = asks_of((A, 1_000), (B, 1), (A, 1), (B, 2), (C, 3))

    assert taken(allot(asks, PLENTY, 100, Reserve(), BATCH)) == [1, 3, 4]


def test_a_reward_above_the_capacity_stops_nobody_not_even_its_brand() -> None:
    asks = asks_of((A, 101), (B, 1), (A, 1), (None, 200))
    allotment = allot(asks, 100, 100, Reserve(), BATCH)

    assert taken(allotment) == [1, 2]
    assert [reward.int for reward in allotment.over_capacity] == [0, 3]


def test_a_payment_goes_before_every_brand_and_waits_for_no_other_payment() -> None:
    asks = asks_of((None, 60), (None, 50), (None, 30), (A, 11), (B, 10))

    assert taken(allot(asks, PLENTY, 100, Reserve(), BATCH)) == [0, 2, 4]


def test_half_of_what_is_free_is_kept_for_the_reward_that_does_not_fit() -> None:
    asks = asks_of((A, 90), (B, 20))
    first = allot(asks, PLENTY, 80, Reserve(), BATCH)
    assert taken(first) == [1]
    assert (first.reserve.kept, first.reserve.free) == (30, 30)

    others = [asks[0], *(MintRequest(UUID(int=9 + n), B, 20) for n in range(5))]
    second = allot(others, PLENTY, 60, first.reserve, BATCH)
    assert taken(second) == [9], "the other half is free, and no more"

    gained = allot(others[:1], PLENTY, 80, second.reserve, BATCH)
    assert (gained.reserve.kept, gained.reserve.free) == (50, 30), "and half of what is gained"
    assert taken(allot(others[:1], PLENTY, 90, gained.reserve, BATCH)) == [0]


def test_a_payment_takes_over_what_a_brand_has_saved() -> None:
    saving = Reserve(UUID(int=1), kept=60, free=0)
    asks = asks_of((None, 100), (A, 90))
    allotment = allot(asks, PLENTY, 60, saving, BATCH)

    assert allotment.reserve.saver == UUID(int=0)
    assert allotment.reserve.kept == 60
    assert taken(allot(asks, PLENTY, 140, allotment.reserve, BATCH)) == [0]


def test_what_was_saved_for_a_reward_that_is_gone_is_free_again() -> None:
    saving = Reserve(UUID(int=77), kept=60, free=0)

    assert taken(allot(asks_of((B, 55)), PLENTY, 60, saving, BATCH)) == [0]


def test_no_more_is_taken_than_a_batch_holds_and_the_reserve_outlasts_a_full_batch() -> None:
    saving = Reserve(UUID(int=50), kept=60, free=100)
    payments = [MintRequest(UUID(int=n), None, 1) for n in range(3)]
    asks = [*payments, MintRequest(UUID(int=50), A, 90)]
    allotment = allot(asks, PLENTY, 160, saving, 3)

    assert taken(allotment) == [0, 1, 2]
    assert (allotment.reserve.saver, allotment.reserve.kept) == (UUID(int=50), 60)


# --- whatever waits -----------------------------------------------------------------------------

ANY_ASKS = st.lists(st.tuples(st.sampled_from([None, A, B, C]), st.integers(1, 60)), max_size=12)
ANY_AMOUNT = st.integers(-20, 120)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[MintRequest], int, int, Reserve, int]:
    said = sorted(draw(ANY_ASKS), key=lambda one: one[0] is not None)
    asks = asks_of(*said)
    saver = draw(st.sampled_from([None, UUID(int=999), *(ask.reward for ask in asks)]))
    kept, free = draw(st.integers(0, 60)), draw(st.integers(0, 60))
    reserve = Reserve(saver, kept if saver else 0, free)
    return asks, draw(st.integers(1, 60)), draw(ANY_AMOUNT), reserve, draw(st.integers(1, 12))


@given(rounds())
def test_no_more_is_taken_and_kept_than_there_is(
    given_round: tuple[list[MintRequest], int, int, Reserve, int],
) -> None:
    asks, capacity, spendable, reserve, at_most = given_round
    allotment = allot(asks, capacity, spendable, reserve, at_most)
    units = {ask.reward: ask.units for ask in asks}
    spent = sum(units[reward] for reward in allotment.taken)

    assert len(allotment.taken) <= at_most
    assert spent + allotment.reserve.kept + allotment.reserve.free <= max(0, spendable)
    assert min(allotment.reserve.kept, allotment.reserve.free) >= 0
    assert all(units[reward] <= capacity for reward in allotment.taken)
    assert set(allotment.over_capacity) == {a.reward for a in asks if a.units > capacity}


@given(rounds())
def test_the_rewards_of_a_brand_never_overtake_each_other(
    given_round: tuple[list[MintRequest], int, int, Reserve, int],
) -> None:
    asks, capacity, spendable, reserve, at_most = given_round
    allotment = allot(asks, capacity, spendable, reserve, at_most)

    for brand in (A, B, C):
        own = [ask.reward for ask in asks if ask.brand == brand and ask.units <= capacity]
        gone = [reward for reward in allotment.taken if reward in set(own)]
        assert gone == own[: len(gone)]


@given(rounds())
def test_no_brand_changes_which_payments_go(
    given_round: tuple[list[MintRequest], int, int, Reserve, int],
) -> None:
    asks, capacity, spendable, _, at_most = given_round
    payments = [ask for ask in asks if ask.brand is None]
    alone = allot(payments, capacity, spendable, Reserve(), at_most)
    among_others = allot(asks, capacity, spendable, Reserve(), at_most)

    assert among_others.taken[: len(alone.taken)] == alone.taken


# --- over many blocks ---------------------------------------------------------------------------


@dataclass
class Bucket:
    """A mint limit that gains `gain` a block, and brands that never have nothing to ask."""

    capacity: int
    gain: int
    available: int
    queues: dict[Address, list[int]]
    """Amounts that wait; the last one of each brand is asked for again and again."""
    reserve: Reserve = field(default_factory=Reserve)
    minted: dict[Address, list[int]] = field(default_factory=dict)
    _cursor: bytes = b""

    def block(self) -> None:
        self.available = min(self.capacity, self.available + self.gain)
        refill = self.gain
        while self._batch(refill):
            refill = 0

    def _batch(self, refill: int) -> int:
        asks, heads = self._asks()
        allotment = allot(asks, self.capacity, self.available, self.reserve, BATCH, refill)
        self.reserve = allotment.reserve
        for reward in allotment.taken:
            brand, units = heads[reward]
            self.available -= units
            self.minted.setdefault(brand, []).append(units)
            if len(self.queues[brand]) > 1:
                self.queues[brand].pop(0)
            self._cursor = brand
        return len(allotment.taken)

    def _asks(self) -> tuple[list[MintRequest], dict[UUID, tuple[Address, int]]]:
        """Each brand's oldest: the saver first, then in turn."""
        heads: dict[UUID, tuple[Address, int]] = {}
        for brand, queue in self.queues.items():
            number = len(self.minted.get(brand, []))
            heads[UUID(int=brand[0] * 10**9 + number)] = (brand, queue[0])
        in_turn = sorted(
            heads,
            key=lambda id_: (
                id_ != self.reserve.saver,
                heads[id_][0] <= self._cursor,
                heads[id_][0],
            ),
        )
        return [MintRequest(id_, *heads[id_]) for id_ in in_turn], heads


def blocks_until_minted(bucket: Bucket, brands: Sequence[Address], units: int, most: int) -> int:
    for number in range(most + 1):
        if all(units in bucket.minted.get(brand, []) for brand in brands):
            return number
        bucket.block()
    raise AssertionError(f"not minted after {most} blocks")


@settings(deadline=None, max_examples=50)
@given(
    share=st.integers(1, 100),
    gain=st.integers(1, 200),
    available=st.integers(0, 1_000),
    small=st.integers(1, 50),
)
def test_a_large_reward_is_minted_though_others_always_ask_for_more(
    share: int, gain: int, available: int, small: int
) -> None:
    """The bucket is never full while others take what is free, up to the last of its gain."""
    large = max(share * 10, small + 1)
    bucket = Bucket(1_000, gain, available, {A: [large, small], B: [small], C: [small]})
    blocks = blocks_until_minted(bucket, [A], large, 2 * -(-large // gain) + 30)
    spent_by_others = sum(sum(bucket.minted.get(brand, [])) for brand in (B, C))

    assert spent_by_others >= gain * blocks // 2 - 3 * (gain + small) - large // 2


@settings(deadline=None, max_examples=20)
@given(gain=st.integers(20, 50))
def test_many_large_rewards_of_one_brand_leave_the_others_almost_half_of_the_gain(
    gain: int,
) -> None:
    """A hundred forged rewards, each as large as the bucket. A full bucket gains nothing: what is
    lost so, when the last of a forged reward is saved, is why it is not the whole half."""
    bucket = Bucket(1_000, gain, 1_000, {A: [1_000] * 100, B: [5]})
    blocks = 200
    for _ in range(blocks):
        bucket.block()

    assert sum(bucket.minted[B]) >= gain * blocks * 2 // 5


@given(gain=st.integers(10, 200), little=st.integers(1, 10))
def test_a_reward_as_large_as_the_bucket_is_minted_though_others_use_a_little_in_every_block(
    gain: int, little: int
) -> None:
    """No block ends with a full bucket, since each has minted a little: what is free runs out."""
    available, reserve = 0, Reserve()
    large = MintRequest(UUID(int=0), A, 1_000)
    for number in range(1, 2 * -(-1_000 // gain) + 30):
        asks = [large, MintRequest(UUID(int=number), B, little)]
        allotment = allot(asks, 1_000, available, reserve, BATCH, gain)
        if large.reward in allotment.taken:
            return
        reserve = allotment.reserve
        available = min(1_000, available + gain) - little * len(allotment.taken)
    raise AssertionError("not minted")


@settings(deadline=None, max_examples=30)
@given(larges=st.permutations([A, B, C]), gain=st.integers(50, 300))
def test_brands_with_large_rewards_take_turns_at_saving(
    larges: Sequence[Address], gain: int
) -> None:
    """A has fifty of them, the others one each, and a fourth brand always takes what is free."""
    greedy = Address(b"\x0d" * 20)
    queues = {brand: [900, 1] for brand in larges}
    queues[larges[0]] = [900] * 50
    bucket = Bucket(1_000, gain, 0, queues | {greedy: [1]})
    blocks_until_minted(bucket, larges, 900, 3 * 2 * -(-900 // gain) + 100)

    assert bucket.minted[larges[0]].count(900) <= 3

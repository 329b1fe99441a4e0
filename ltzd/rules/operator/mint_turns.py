"""Which of the waiting rewards the mint limit lets go now, so that no brand stops another.

The asks come in the order of the queue (`store/operator/rewards.py`): payments by age, then brands
in turn, each its oldest. A reward that does not fit holds up its own brand and nobody else. The
first reward that does not fit saves: half of what is free then, and half of whatever the bucket
refills later, is kept for this reward until it fits; the other half stays free for everybody else.
So a large reward is minted after at most twice the time in which the bucket refills its amount,
and the other brands never have less than half of the refill meanwhile. One reward saves at a time:
a payment before any brand's reward, then brand after brand in the order of their addresses.

Units: LTZ's smallest. The caller keeps the `Reserve` from one round to the next; without it (a new
term) a large reward begins to save anew, on what the bucket holds then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class MintRequest:
    """A reward that waits; `brand` is None for a payment, which waits for no other payment."""

    reward: UUID
    brand: Address | None
    units: int


@dataclass(frozen=True, slots=True)
class Reserve:
    """What is kept for the reward `saver`, and what was `free` for all others after the round.

    `last_brand` is the brand whose reward saved last.
    """

    saver: UUID | None = None
    kept: int = 0
    free: int = 0
    last_brand: bytes = b""


@dataclass(frozen=True, slots=True)
class MintAllocation:
    """`taken` may be minted together, in this order; `over_capacity` can never be minted."""

    taken: tuple[UUID, ...]
    over_capacity: tuple[UUID, ...]
    reserve: Reserve


@dataclass(frozen=True, slots=True)
class Bucket:
    """The mint limit. `spendable` is what it holds beside everything in flight; may be negative.

    `refill` is what it refills in the time since the last round, also if it was full meanwhile.
    """

    capacity: int
    spendable: int
    refill: int = 0


def allot(
    asks: Sequence[MintRequest], bucket: Bucket, reserve: Reserve, at_most: int
) -> MintAllocation:
    """One round: what goes into the next mint of at most so many rewards."""
    capacity, spendable = bucket.capacity, bucket.spendable
    possible = [ask for ask in asks if ask.units <= capacity]
    over_capacity = tuple(ask.reward for ask in asks if ask.units > capacity)
    saver = next((ask for ask in possible if ask.reward == reserve.saver), None)
    kept = 0 if saver is None else _kept(saver, bucket, reserve)
    free = max(0, spendable - kept)
    taken: list[UUID] = []
    waiting: list[MintRequest] = []
    blocked: set[Address] = set()
    for ask in possible:
        if len(taken) == at_most:
            break
        if ask.brand in blocked:
            continue
        own = kept if ask is saver else 0
        if ask.units <= free + own:
            taken.append(ask.reward)
            free += own - ask.units
            if ask is saver:
                saver, kept = None, 0
                reserve = replace(reserve, last_brand=ask.brand or reserve.last_brand)
        else:
            waiting.append(ask)
            if ask.brand is not None:
                blocked.add(ask.brand)
    return MintAllocation(tuple(taken), over_capacity, _saved(waiting, saver, kept, free, reserve))


def _kept(saver: MintRequest, bucket: Bucket, before: Reserve) -> int:
    """What was kept, and half of what came since; never more than there is, or is needed.

    The refill counts where it is more than what came: into a full bucket nothing comes, and others
    who use a little of it in every block would keep it from ever being whole.
    """
    gain = max(0, bucket.spendable - before.kept - before.free, bucket.refill)
    return max(0, min(before.kept + -(-gain // 2), saver.units, bucket.spendable))


def _saved(
    waiting: Sequence[MintRequest], saver: MintRequest | None, kept: int, free: int, before: Reserve
) -> Reserve:
    """The reserve after the round: the saver goes on, or the next one in turn begins."""
    following = _next_saver(waiting, before.last_brand)
    is_preempted = (
        saver is not None
        and saver.brand is not None
        and following is not None
        and following.brand is None
    )
    if saver is not None and not is_preempted:
        return replace(before, saver=saver.reward, kept=kept, free=free)
    if following is None:
        return replace(before, saver=None, kept=0, free=free)
    share = max(kept, (kept + free) // 2)
    return replace(before, saver=following.reward, kept=share, free=kept + free - share)


def _next_saver(waiting: Sequence[MintRequest], last_brand: bytes) -> MintRequest | None:
    """The oldest payment that waits; else the reward of the brand whose turn to save it is."""
    payment = next((ask for ask in waiting if ask.brand is None), None)
    if payment is not None:
        return payment
    return min(waiting, key=lambda ask: _place(ask, last_brand), default=None)


def _place(ask: MintRequest, last_brand: bytes) -> tuple[bool, bytes]:
    brand = ask.brand or b""
    return brand <= last_brand, brand

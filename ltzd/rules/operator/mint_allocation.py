"""Shares LTZ's mint limit among the queued rewards, so that no brand stops another.

The requests come in the order of the queue (`store/operator/rewards.py`): payments by age, then
brands in turn, each with its oldest reward. A reward that does not fit delays its own brand and
no other. The round saves for the first reward that does not fit: half of what is free then, and
half of whatever the bucket refills later, is kept for this reward until it fits. The other half
stays free for all others. So a large reward is minted after at most twice the time in which the
bucket refills its amount, and the other brands have at least half of the refill meanwhile. The
bucket saves for one reward at a time: for a payment before any brand's reward, then for brand after
brand in the order of their addresses.

Units: LTZ's smallest. The caller keeps the `MintReserve` from one round to the next. Without it (in
a new term) saving for a large reward starts anew, with what the bucket holds then.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from ltzd.values import Address


class MintRequest(msgspec.Struct, frozen=True):
    """A queued reward. `brand` is None for a payment, which waits for no other payment."""

    reward: UUID
    brand: Address | None
    units: int


class MintReserve(msgspec.Struct, frozen=True):
    """The state between two rounds.

    `kept` units are for the reward `saving_for`; `free` units were left for all others.
    `last_brand` is the brand of the last reward that was saved for and minted.
    """

    saving_for: UUID | None = None
    kept: int = 0
    free: int = 0
    last_brand: bytes = b""


class MintAllocation(msgspec.Struct, frozen=True):
    """`selected` may be minted together, in this order; `over_capacity` can never be minted."""

    selected: tuple[UUID, ...]
    over_capacity: tuple[UUID, ...]
    reserve: MintReserve


class MintBucket(msgspec.Struct, frozen=True):
    """The mint limit. `spendable` is its content less everything in flight, and may be negative.

    `refill` is the refill of the time since the last round, also if the bucket was full meanwhile.
    """

    capacity: int
    spendable: int
    refill: int = 0


def allocate(
    requests: Sequence[MintRequest], bucket: MintBucket, reserve: MintReserve, at_most: int
) -> MintAllocation:
    """Select the rewards of the next mint, up to `at_most`."""
    capacity, spendable = bucket.capacity, bucket.spendable
    possible = [request for request in requests if request.units <= capacity]
    over_capacity = tuple(request.reward for request in requests if request.units > capacity)
    saver = next((request for request in possible if request.reward == reserve.saving_for), None)
    kept = 0 if saver is None else _kept(saver, bucket, reserve)
    free = max(0, spendable - kept)
    selected: list[UUID] = []
    waiting: list[MintRequest] = []
    blocked: set[Address] = set()
    for request in possible:
        if len(selected) == at_most:
            break
        if request.brand in blocked:
            continue
        own = kept if request is saver else 0
        if request.units <= free + own:
            selected.append(request.reward)
            free += own - request.units
            if request is saver:
                saver, kept = None, 0
                reserve = replace(reserve, last_brand=request.brand or reserve.last_brand)
        else:
            waiting.append(request)
            if request.brand is not None:
                blocked.add(request.brand)
    after = _reserve_after(waiting, saver, kept, free, reserve)
    return MintAllocation(tuple(selected), over_capacity, after)


def _kept(saver: MintRequest, bucket: MintBucket, before: MintReserve) -> int:
    """The kept units, and half of the units gained since; never more than exist, or are needed.

    The gain is at least the refill: a full bucket gains nothing, so other rewards that use a little
    of it in every block would otherwise keep the saving from ever growing.
    """
    gain = max(0, bucket.spendable - before.kept - before.free, bucket.refill)
    return max(0, min(before.kept + -(-gain // 2), saver.units, bucket.spendable))


def _reserve_after(
    waiting: Sequence[MintRequest],
    saver: MintRequest | None,
    kept: int,
    free: int,
    before: MintReserve,
) -> MintReserve:
    """The reserve after the round: the saving goes on, or begins for the next request in turn."""
    following = _next_saver(waiting, before.last_brand)
    is_preempted = (
        saver is not None
        and saver.brand is not None
        and following is not None
        and following.brand is None
    )
    if saver is not None and not is_preempted:
        return replace(before, saving_for=saver.reward, kept=kept, free=free)
    if following is None:
        return replace(before, saving_for=None, kept=0, free=free)
    share = max(kept, (kept + free) // 2)
    return replace(before, saving_for=following.reward, kept=share, free=kept + free - share)


def _next_saver(waiting: Sequence[MintRequest], last_brand: bytes) -> MintRequest | None:
    """The oldest payment that waits, else the reward of the brand that is next in turn."""
    payment = next((request for request in waiting if request.brand is None), None)
    if payment is not None:
        return payment
    return min(waiting, key=lambda request: _turn(request, last_brand), default=None)


def _turn(request: MintRequest, last_brand: bytes) -> tuple[bool, bytes]:
    brand = request.brand or b""
    return brand <= last_brand, brand

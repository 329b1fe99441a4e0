"""What a mint of these rewards says to LTZ: their references, and the call's data."""

import itertools
from collections.abc import Sequence

from ltzd.chain.contracts import ltz
from ltzd.store.operator.rewards import QueuedReward
from ltzd.values import LTZ, reward_reference


def numbered(batch: Sequence[QueuedReward], first: int) -> list[int]:
    """Each reward's seq: the one it has for ever, or the next from `first` on."""
    fresh = itertools.count(first)
    return [next(fresh) if reward.seq is None else reward.seq for reward in batch]


def call_of(batch: Sequence[QueuedReward], seqs: Sequence[int]) -> bytes:
    return ltz.mint_call(
        [
            ltz.MintEntry(
                reward.wallet, reward.ltz * LTZ, reward_reference(reward.id, reward.kind, seq)
            )
            for reward, seq in zip(batch, seqs, strict=True)
        ]
    )

"""Encodes the mint of a batch of rewards: their references, and the call's data."""

import itertools
from collections.abc import Sequence

from ltzd.chain.contracts import ltz
from ltzd.store.operator.rewards import QueuedReward
from ltzd.values import LTZ, reward_reference


def seqs_of(batch: Sequence[QueuedReward], first: int) -> list[int]:
    """A reward that was signed before keeps its seq; the others count from `first`."""
    fresh = itertools.count(first)
    return [next(fresh) if reward.seq is None else reward.seq for reward in batch]


def encode_mint(batch: Sequence[QueuedReward], seqs: Sequence[int]) -> bytes:
    return ltz.mint_call(
        [
            ltz.MintEntry(
                reward.wallet, reward.ltz * LTZ, reward_reference(reward.id, reward.kind, seq)
            )
            for reward, seq in zip(batch, seqs, strict=True)
        ]
    )

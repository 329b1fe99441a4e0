"""Encodes the mint of a batch of rewards: their references, and the call's data."""

from collections.abc import Sequence

from ltzd.chain.contracts import ltz
from ltzd.rules.operator.references import LaneReferences
from ltzd.store.operator.rewards import QueuedReward
from ltzd.values import LTZ, reward_reference


def fresh_count(batch: Sequence[QueuedReward]) -> int:
    """How many new references the batch needs: a reward that was signed before keeps its own."""
    return sum(reward.seq is None for reward in batch)


def number(
    batch: Sequence[QueuedReward], references: LaneReferences
) -> tuple[list[int], LaneReferences]:
    """The seq of each reward, and the references left. Raises ValueError if there are too few."""
    seqs, left = references.take(fresh_count(batch))
    fresh = iter(seqs)
    return [next(fresh) if reward.seq is None else reward.seq for reward in batch], left


def encode_mint(batch: Sequence[QueuedReward], seqs: Sequence[int]) -> bytes:
    return ltz.mint_call(
        [
            ltz.MintEntry(
                reward.wallet, reward.ltz * LTZ, reward_reference(reward.id, reward.kind, seq)
            )
            for reward, seq in zip(batch, seqs, strict=True)
        ]
    )

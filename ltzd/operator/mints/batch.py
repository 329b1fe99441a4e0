"""Encodes the mint of a batch of rewards: their references, and the call's data.

The rewards of a wallet are consecutive in the data, because LTZ pays consecutive rewards of the
same wallet by one transfer of their sum. The order has no other meaning to LTZ, and each reward
keeps its own reference and log. Seqs follow the order of the queue, which `rewards.last_brand`
reads.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from ltzd.chain.contracts import ltz
from ltzd.rules.operator.references import LaneReferences
from ltzd.store.operator.rewards import QueuedReward
from ltzd.values import LTZ, Address, reward_reference

NO_REWARD: Final = UUID(int=2**128 - 1)
NO_WALLET: Final = Address(b"\xff" * 20)
UNUSED_SEQ: Final = 2**64 - 1
"""The id, wallet and seq of mints that are simulated or estimated, and never sent."""


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
    runs: defaultdict[Address, list[ltz.MintEntry]] = defaultdict(list)
    for reward, seq in zip(batch, seqs, strict=True):
        reference = reward_reference(reward.id, reward.kind, seq)
        runs[reward.wallet].append(ltz.MintEntry(reward.wallet, reward.ltz * LTZ, reference))
    return ltz.mint_call([entry for run in runs.values() for entry in run])

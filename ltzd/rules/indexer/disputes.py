"""Decides, if nodes do not show an indexed block, whether the block is gone or a node is wrong.

A dispute is about the lowest indexed block that some node does not show. Each node's answer is an
`Opinion`, which counts as a vote for the block that the node shows at this height. Times are
seconds on one clock.

- The block with the most votes wins. A block with two votes, or with the vote of the only node,
  wins at once; with one vote beside nodes that show none it wins after `stall_seconds`.
- A node without a block at this height votes for nothing, and is no witness at all if it says that
  it is syncing. The indexed block is gone without a successor if two nodes, or the only one, show
  no block there at two checks `second_check_seconds` apart; while a second node is silent, after
  `stall_seconds`.
- Of branches with equal votes, the branch whose head grows wins over branches whose heads have
  stood still for `stall_seconds`. While several grow, or none, nothing is decided: neither the
  database nor a claim of finality is evidence, because a wrong node may have caused both.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec
from msgspec.structs import replace

from ltzd.values import Hash32

SECOND_CHECK_SECONDS = 2.0
_LEAST_GROWTH = 2
"""Blocks. A branch that won by one block could have lost by one."""


class DisputeVerdict(Enum):
    HOLDS = "holds"
    """The indexed block is canonical."""
    GONE = "gone"
    """The indexed block is not canonical any more."""
    WAITING = "waiting"
    """Too little was seen: check again."""
    TIED = "tied"
    """Nodes contradict each other, and nothing tells which of them is right."""


class Opinion(msgspec.Struct, frozen=True):
    """A node's head, and its block at the disputed height, or None if it has none there.

    `is_syncing`: the node has no block there and says that it is syncing.
    """

    head_number: int
    block_hash: Hash32 | None
    is_syncing: bool = False

    def shows(self, block_hash: Hash32 | None) -> bool:
        """Whether this opinion is evidence for the block, or for no block at this height (None)."""
        return self.block_hash == block_hash and not self.is_syncing


class BranchHead(msgspec.Struct, frozen=True):
    """The highest head of the nodes of one branch, when it last grew, and by how much in all."""

    number: int
    grew_at: float
    growth: int = 0


class Dispute(msgspec.Struct, frozen=True):
    """`ours` is the indexed block at height `number`."""

    number: int
    ours: Hash32
    since: float
    checks: int = 0
    branches: Mapping[Hash32, BranchHead] = msgspec.field(default_factory=dict)


class DisputePolicy(msgspec.Struct, frozen=True):
    second_check_seconds: float = SECOND_CHECK_SECONDS
    stall_seconds: float = 6.0


class Decision(msgspec.Struct, frozen=True):
    """`winner` is the canonical block; it is None if nothing is decided or no node has a block."""

    verdict: DisputeVerdict
    winner: Hash32 | None = None
    votes: int = 0


def count_votes(
    dispute: Dispute,
    opinions: Sequence[Opinion | None],
    now: float,
    policy: DisputePolicy,
    *,
    is_alone: bool,
) -> tuple[Dispute, Decision]:
    """The dispute after one check of all nodes; a node without an answer has None.

    `is_alone`: there is one node, and no other could give a second opinion soon.
    """
    answers = [opinion for opinion in opinions if opinion is not None and not opinion.is_syncing]
    dispute = _after_check(dispute, answers, now)
    votes = Counter(answer.block_hash for answer in answers if answer.block_hash is not None)
    if not votes:
        has_witness = is_alone or len(answers) > 1
        patience = policy.second_check_seconds if has_witness else policy.stall_seconds
        is_gone = bool(answers) and _has_lasted(dispute, now, patience)
        verdict = DisputeVerdict.GONE if is_gone else DisputeVerdict.WAITING
        return dispute, Decision(verdict)
    most = max(votes.values())
    leaders = [block_hash for block_hash, count in votes.items() if count == most]
    winner = leaders[0] if len(leaders) == 1 else _growing_alone(dispute, leaders, now, policy)
    if winner is None:
        return dispute, Decision(DisputeVerdict.TIED)
    if winner == dispute.ours:
        return dispute, Decision(DisputeVerdict.HOLDS, winner, most)
    has_witness = most > 1 or is_alone or len(leaders) > 1
    if not has_witness and not _has_lasted(dispute, now, policy.stall_seconds):
        return dispute, Decision(DisputeVerdict.WAITING)
    return dispute, Decision(DisputeVerdict.GONE, winner, most)


def _has_lasted(dispute: Dispute, now: float, seconds: float) -> bool:
    """Whether there were two checks, and `seconds` have passed since the first one."""
    return dispute.checks > 1 and now - dispute.since >= seconds


def _after_check(dispute: Dispute, answers: Sequence[Opinion], now: float) -> Dispute:
    branches = dict(dispute.branches)
    for answer in answers:
        if answer.block_hash is None:
            continue
        seen = branches.get(answer.block_hash)
        if seen is None:
            branches[answer.block_hash] = BranchHead(answer.head_number, now)
        elif answer.head_number > seen.number:
            growth = seen.growth + answer.head_number - seen.number
            branches[answer.block_hash] = BranchHead(answer.head_number, now, growth)
    return replace(dispute, checks=dispute.checks + 1, branches=branches)


def _growing_alone(
    dispute: Dispute, leaders: Sequence[Hash32], now: float, policy: DisputePolicy
) -> Hash32 | None:
    """The only leader whose head grows, if the heads of all others have stopped."""
    moving = [
        block_hash
        for block_hash in leaders
        if now - dispute.branches[block_hash].grew_at < policy.stall_seconds
    ]
    if len(moving) != 1 or dispute.branches[moving[0]].growth < _LEAST_GROWTH:
        return None
    return moving[0]

"""When the nodes' answers about a transaction are enough for a verdict.

One node's receipt, or one node's lack of a receipt, proves nothing: the node may lag, rebuild its
index, or lie. A verdict needs a second node that agrees; a third one alone then denies it in vain.
If no other node is usable, the verdict needs that node's answer and a contradicting block of it. A
node below the block in question does not count. Times in seconds.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from ltzd.values import Hash32


class BlockTestimony(Enum):
    """A node's answer about the block that a transaction was mined in."""

    BEHIND = "behind"
    """The node has not reached the block, or did not answer."""
    HOLDS = "holds"
    """The block is canonical for the node, or the node has a receipt of the transaction."""
    GONE = "gone"
    """Another block is canonical at this height, and the node has no receipt."""


def block_testimony(
    block_hash: Hash32, canonical: Hash32 | None, *, has_receipt: bool
) -> BlockTestimony:
    """`canonical` is the node's hash at the height of `block_hash`, None if it has no block."""
    if canonical == block_hash or has_receipt:
        return BlockTestimony.HOLDS
    return BlockTestimony.BEHIND if canonical is None else BlockTestimony.GONE


def is_block_lost(own: BlockTestimony, others: Sequence[BlockTestimony], *, is_alone: bool) -> bool:
    """Whether a mined transaction counts as dropped by a reorg."""
    if own is not BlockTestimony.GONE:
        return False
    gone, holding = others.count(BlockTestimony.GONE), others.count(BlockTestimony.HOLDS)
    return _prevails(gone, holding, is_alone=is_alone)


def _prevails(agreeing: int, denying: int, *, is_alone: bool) -> bool:
    """Whether a node's claim counts, by the number of other nodes that agree and that deny it."""
    return agreeing + 1 > denying if agreeing else is_alone and not denying


class ReceiptOpinion(Enum):
    """Another node's answer about a receipt."""

    AGREES = "agrees"
    """The node has the same receipt: the same block, the same outcome, and the same cost."""
    BEHIND = "behind"
    """The node has not reached the receipt's block, or did not answer."""
    DIFFERS = "differs"
    """The node has passed the height. The node has no receipt, or one with another cost."""
    REFUTES = "refutes"
    """As DIFFERS, and the node shows the receipt to be false: its own has another block or outcome,
    or the transaction's nonce is unused after its newest block."""


class ReceiptWait(msgspec.Struct, frozen=True):
    """How long a receipt has waited for another node, and how long it waits at most."""

    seconds: float
    patience: float


def is_receipt_believed(
    opinions: Sequence[ReceiptOpinion], wait: ReceiptWait, *, is_alone: bool, is_final: bool
) -> bool:
    """Whether callers may be told of a receipt, given the opinions of other nodes.

    Nodes that are behind are waited for, but not longer than the patience: a node that stands still
    must not hold back every outcome. A receipt that is disputed waits for a node that agrees, or
    until the indexed chain has its block as final. Finality does not prove that the block holds the
    transaction: a receipt that a node refutes waits for a node that agrees.
    """
    if ReceiptOpinion.AGREES in opinions or (is_alone and not opinions):
        return True
    if ReceiptOpinion.REFUTES in opinions:
        return False
    return is_final or (ReceiptOpinion.DIFFERS not in opinions and wait.seconds >= wait.patience)


class NonceUse(msgspec.Struct, frozen=True):
    """A transaction of the wallet that a node shows in a block.

    `is_forged`: the signature is not the wallet's on this chain, so the node made it up.
    """

    hash: Hash32
    block_number: int
    block_hash: Hash32
    is_forged: bool = False


class UseOpinion(Enum):
    """Another node's answer about a foreign use of a nonce."""

    AGREES = "agrees"
    """The block is canonical and holds the transaction, and no attempt of ours has a receipt."""
    OPEN = "open"
    """The node is below the block, or did not answer."""
    DENIES = "denies"


def is_nonce_taken(
    use: NonceUse, final_number: int, opinions: Sequence[UseOpinion], *, is_alone: bool
) -> bool:
    """Whether another transaction used the nonce for good.

    The transaction itself is the proof, in a block that is final on the indexed chain. Missing
    receipts of our attempts prove nothing, however many.
    """
    if use.is_forged or use.block_number > final_number:
        return False
    agreeing, denying = opinions.count(UseOpinion.AGREES), opinions.count(UseOpinion.DENIES)
    return _prevails(agreeing, denying, is_alone=is_alone)


class MintRight(msgspec.Struct, frozen=True):
    """What LTZ lets a wallet mint at a block: nothing without the role, nor with a limit of 0."""

    has_role: bool
    capacity: int

    @property
    def is_revoked(self) -> bool:
        return not self.has_role or self.capacity == 0


def is_revocation_seen(own: MintRight, others: Sequence[MintRight], *, is_alone: bool) -> bool:
    """Whether the wallet may mint nothing at a block, by the answers about this very block.

    `others` are the answers of the other nodes that have the block. More nodes must show the
    revocation than deny it, whichever of them is in use.
    """
    rights = (own, *others)
    revoked = sum(right.is_revoked for right in rights)
    return 2 * revoked > len(rights) and (is_alone or revoked > 1)


def is_revocation_final(
    block_hash: Hash32, block_number: int, canonical: Hash32 | None, final_number: int
) -> bool:
    """Whether a block at which the revocation was seen is final on the indexed chain.

    `canonical` is the indexed hash at `block_number`, None if it is not indexed. The state of a
    final block may be pruned by then: it was read while the block was the head.
    """
    return block_number <= final_number and canonical == block_hash

"""LTZ rewards, read from a transaction's logs."""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from ltzd.dev.sandbox.explorer.node_reads import RpcLog
from ltzd.values import LTZ, Address, LtzUnits, Reference, bytes_of, hex_of, keccak

MINTED_TOPIC = hex_of(keccak(b"RewardMinted(address,bytes32,uint256)"))
_SKIPPED_TOPIC = hex_of(keccak(b"RewardSkipped(address,bytes32,uint256)"))


class LoggedReward(msgspec.Struct, frozen=True):
    recipient: Address
    amount: LtzUnits
    reference: Reference
    was_minted: bool
    transaction_hash: str | None

    @property
    def event(self) -> UUID:
        """The event id in the reference: uuid(16) | kind(1) | zero(7) | seq(8)."""
        return UUID(bytes=self.reference[:16])

    @property
    def sequence(self) -> int:
        return int.from_bytes(self.reference[24:], "big")


def rewards_in(logs: Sequence[RpcLog], ltz: Address | None) -> list[LoggedReward]:
    """Minted and skipped rewards of LTZ; of any contract if `ltz` is None."""
    rewards = (_reward(log) for log in logs if ltz is None or log.address.lower() == hex_of(ltz))
    return [reward for reward in rewards if reward is not None]


def ltz_text(amount: int) -> str:
    """Whole LTZ with as many decimals as the amount has."""
    whole, fraction = divmod(amount, LTZ)
    decimals = f"{fraction:018d}".rstrip("0")
    return f"{whole:,}.{decimals}" if decimals else f"{whole:,}"


def _reward(log: RpcLog) -> LoggedReward | None:
    if len(log.topics) != 3 or log.topics[0] not in {MINTED_TOPIC, _SKIPPED_TOPIC}:
        return None
    try:
        recipient, reference, amount = map(bytes_of, (log.topics[1], log.topics[2], log.data))
    except ValueError:
        return None
    if not len(recipient) == len(reference) == len(amount) == 32:
        return None
    return LoggedReward(
        Address(recipient[12:]),
        LtzUnits(int.from_bytes(amount, "big")),
        Reference(reference),
        log.topics[0] == MINTED_TOPIC,
        log.transaction_hash,
    )

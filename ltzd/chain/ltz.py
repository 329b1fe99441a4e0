"""LTZ's calls and logs, encoded by hand where they are hot; web3 is the oracle in the tests.

Amounts are in LTZ's smallest unit. The contract's interface: contracts/src/ILTZ.sol.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eth_hash.auto import keccak

from ltzd.rules.facts import Fact, RewardMinted, Transfer
from ltzd.values import Address, Hash32, Reference, hash_of


def _selector(signature: str) -> bytes:
    return keccak(signature.encode())[:4]


MINT_REWARD = _selector("mintReward(address,uint256,bytes32)")
MINT_REWARD_BATCH = _selector("mintRewardBatch((address,uint96,bytes32)[])")
REF_WORD = _selector("refWord(uint256)")
MINT_LIMIT = _selector("mintLimit(address)")

TRANSFER_TOPIC = keccak(b"Transfer(address,address,uint256)")
REWARD_MINTED_TOPIC = keccak(b"RewardMinted(address,bytes32,uint256)")

MAX_BATCH = 100
"""Rewards in one mintRewardBatch."""
MAX_UNITS = 2**96 - 1
"""The most that one reward can hold (uint96)."""


@dataclass(frozen=True, slots=True)
class Reward:
    to: Address
    amount: int
    reference: Reference


def mint_call(rewards: Sequence[Reward]) -> bytes:
    """Call data that mints `rewards`: mintReward for one, mintRewardBatch for more."""
    if len(rewards) == 1:
        return MINT_REWARD + _row(rewards[0])
    head = (32).to_bytes(32, "big") + len(rewards).to_bytes(32, "big")
    return MINT_REWARD_BATCH + head + b"".join(map(_row, rewards))


def _row(reward: Reward) -> bytes:
    return bytes(12) + reward.to + reward.amount.to_bytes(32, "big") + reward.reference


def mint_gas_limit(count: int) -> int:
    """Gas that `count` rewards can need at worst (ceilings: 69k alone, 30k in a batch).

    Beside the ceilings it covers slots that a first mint turns from zero: supply, bucket, bitmap.
    """
    return 200_000 if count == 1 else 200_000 + 40_000 * count


def ref_word_call(word: int) -> bytes:
    return REF_WORD + word.to_bytes(32, "big")


def mint_limit_call(minter: Address) -> bytes:
    return MINT_LIMIT + bytes(12) + minter


def decode_mint_limit(answer: bytes) -> tuple[int, int]:
    """Capacity and what is available now. Raises ValueError."""
    if len(answer) != 96:
        raise ValueError("mintLimit answers three words")
    return int.from_bytes(answer[:32], "big"), int.from_bytes(answer[64:], "big")


def decode_log(log: dict[str, Any]) -> Fact | None:
    """The fact in a log of LTZ, or None for one that ltzd keeps no record of (an approval, a role).

    Raises ValueError, KeyError, TypeError or AttributeError when such a log is malformed.
    """
    topics = log["topics"]
    topic = bytes.fromhex(topics[0][2:]) if topics != [] else b""
    if topic == TRANSFER_TOPIC and len(topics) == 3:
        return Transfer(
            *_place(log), _address(topics[1]), _address(topics[2]), _amount(log["data"])
        )
    if topic == REWARD_MINTED_TOPIC and len(topics) == 3:
        reference = Reference(hash_of(topics[2]))
        return RewardMinted(*_place(log), _address(topics[1]), reference, _amount(log["data"]))
    return None


def _place(log: dict[str, Any]) -> tuple[int, Hash32, int, Hash32]:
    return (
        int(log["blockNumber"], 16),
        Hash32(bytes.fromhex(log["blockHash"][2:])),
        int(log["logIndex"], 16),
        Hash32(bytes.fromhex(log["transactionHash"][2:])),
    )


def _address(topic: str) -> Address:
    return Address(hash_of(topic)[12:])


def _amount(data: str) -> int:
    return int.from_bytes(hash_of(data), "big")

"""Calls, answers and logs of LTZ (contracts/src/ILTZ.sol).

The encoders are written by hand because they run often; web3 is the oracle in the tests. Amounts
are in LTZ's smallest unit.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ltzd.chain.contracts import abi_words
from ltzd.chain.contracts.relayed import signature_words
from ltzd.chain.typed_data import Permit
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import Fact, RewardMinted, Transfer
from ltzd.values import Address, Hash32, Reference, hash_of

MINT_REWARD = abi_words.selector("mintReward(address,uint256,bytes32)")
MINT_REWARD_BATCH = abi_words.selector("mintRewardBatch((address,uint96,bytes32)[])")
REF_WORD = abi_words.selector("refWord(uint256)")
MINT_LIMIT = abi_words.selector("mintLimit(address)")
PERMIT = abi_words.selector("permit(address,address,uint256,uint256,uint8,bytes32,bytes32)")
BALANCE_OF = abi_words.selector("balanceOf(address)")
ALLOWANCE = abi_words.selector("allowance(address,address)")
NONCES = abi_words.selector("nonces(address)")

TRANSFER_TOPIC = abi_words.topic("Transfer(address,address,uint256)")
REWARD_MINTED_TOPIC = abi_words.topic("RewardMinted(address,bytes32,uint256)")

INDEXED_TOPICS: Final = (TRANSFER_TOPIC,)
"""A `RewardMinted` never comes without a `Transfer` in its transaction: one for each reward, or one
for several neighbours of a batch with the same wallet, with the sum of their amounts."""

MAX_BATCH = 100
"""Rewards in one `mintRewardBatch`."""
MAX_UNITS = 2**96 - 1
"""The largest amount of one reward (uint96)."""


class MintEntry(msgspec.Struct, frozen=True):
    to: Address
    amount: int
    reference: Reference


def mint_call(rewards: Sequence[MintEntry]) -> bytes:
    """Encode `mintReward` for one reward and `mintRewardBatch` for more."""
    if len(rewards) == 1:
        return MINT_REWARD + _row(rewards[0])
    head = (32).to_bytes(32, "big") + len(rewards).to_bytes(32, "big")
    return MINT_REWARD_BATCH + head + b"".join(map(_row, rewards))


def _row(reward: MintEntry) -> bytes:
    return bytes(12) + reward.to + reward.amount.to_bytes(32, "big") + reward.reference


def mint_gas_limit(count: int) -> int:
    """A gas limit that `count` rewards cannot exceed.

    Measured ceilings are 69k for one reward and 30k for each of a batch, whatever the wallets. The
    rest covers storage slots that a first mint turns from zero: supply, bucket, bitmap.
    """
    return 200_000 if count == 1 else 200_000 + 40_000 * count


def mint_call_bytes(count: int) -> int:
    """The size of `mint_call` for so many rewards."""
    return 4 + 96 if count == 1 else 4 + 64 + 96 * count


def ref_word_call(word: int) -> bytes:
    return REF_WORD + word.to_bytes(32, "big")


def mint_limit_call(minter: Address) -> bytes:
    return MINT_LIMIT + bytes(12) + minter


def decode_mint_limit(answer: bytes) -> tuple[int, int, int]:
    """Capacity, seconds in which it refills, and the amount available now. Raises ValueError."""
    if len(answer) != 96:
        raise ValueError("the result of mintLimit has three words")
    capacity, window, available = (int.from_bytes(answer[at : at + 32]) for at in (0, 32, 64))
    return capacity, window, available


def permit_call(permit: Permit, signature: bytes) -> bytes:
    """Leave out the nonce: LTZ uses the owner's next one."""
    return b"".join(
        (
            PERMIT,
            abi_words.encode_address(permit.owner),
            abi_words.encode_address(permit.spender),
            abi_words.encode_uint(permit.value),
            abi_words.encode_uint(permit.deadline),
            signature_words(signature),
        )
    )


def balance_of_call(holder: Address) -> bytes:
    return BALANCE_OF + abi_words.encode_address(holder)


def allowance_call(owner: Address, spender: Address) -> bytes:
    return ALLOWANCE + abi_words.encode_address(owner) + abi_words.encode_address(spender)


def nonces_call(owner: Address) -> bytes:
    """Read the nonce of the owner's next permit."""
    return NONCES + abi_words.encode_address(owner)


def decode_uint(answer: bytes) -> int:
    """Decode a balance, an allowance or a nonce. Raises ValueError."""
    reader = abi_words.WordReader(answer)
    number = reader.uint()
    reader.end()
    return number


def decode_log(log: dict[str, Any]) -> Fact | None:
    """The fact in a log of LTZ, or None for an event that is not indexed (approvals, roles).

    Raises ValueError when such a log is malformed.
    """
    try:
        topics = log["topics"]
        topic = bytes.fromhex(topics[0][2:]) if topics != [] else b""
        if topic == TRANSFER_TOPIC and len(topics) == 3:
            return Transfer(
                _position(log), _address(topics[1]), _address(topics[2]), _amount(log["data"])
            )
        if topic == REWARD_MINTED_TOPIC and len(topics) == 3:
            reference = Reference(hash_of(topics[2]))
            return RewardMinted(
                _position(log), _address(topics[1]), reference, _amount(log["data"])
            )
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError("the log is malformed") from error
    return None


def _position(log: dict[str, Any]) -> LogPosition:
    return LogPosition(
        int(log["blockNumber"], 16),
        Hash32(bytes.fromhex(log["blockHash"][2:])),
        int(log["logIndex"], 16),
        hash_of(log["transactionHash"]),
    )


def _address(topic: str) -> Address:
    return Address(hash_of(topic)[12:])


def _amount(data: str) -> int:
    return int.from_bytes(hash_of(data), "big")

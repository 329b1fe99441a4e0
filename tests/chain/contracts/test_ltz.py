"""The encoded calls and decoded logs of LTZ equal web3's on the compiled ABI."""

from typing import Any

import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st
from web3 import Web3
from web3.types import LogReceipt

from ltzd.chain.contracts import artifacts, ltz
from ltzd.chain.contracts.ltz import MintEntry, decode_log
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import RewardMinted, Transfer
from ltzd.values import Address, Hash32, Reference, address_of, bytes_of, checksummed, hex_of

BLOCK = Hash32(b"\xb1" * 32)
TRANSACTION = Hash32(b"\x7a" * 32)

contract = Web3().eth.contract(abi=artifacts.artifact("LTZ")["abi"])

addresses = st.binary(min_size=20, max_size=20).map(Address)
references = st.binary(min_size=32, max_size=32).map(Reference)
amounts = st.integers(0, 2**96 - 1)
rewards = st.builds(MintEntry, addresses, amounts, references)


@given(rewards)
def test_one_reward_is_a_mint_reward(reward: MintEntry) -> None:
    call = contract.encode_abi(
        "mintReward", [checksummed(reward.to), reward.amount, reward.reference]
    )

    assert ltz.mint_call([reward]) == bytes_of(call)


@given(st.lists(rewards, min_size=2, max_size=6) | st.just([]))
def test_many_rewards_are_a_batch(rewards: list[MintEntry]) -> None:
    rows = [(checksummed(each.to), each.amount, each.reference) for each in rewards]

    assert ltz.mint_call(rewards) == bytes_of(contract.encode_abi("mintRewardBatch", [rows]))


def test_the_largest_batch_is_encoded_whole() -> None:
    rewards = [
        MintEntry(Address(bytes((n,)) * 20), n + 1, Reference(bytes((n,)) * 32))
        for n in range(ltz.MAX_BATCH)
    ]
    rows = [(checksummed(each.to), each.amount, each.reference) for each in rewards]

    assert ltz.mint_call(rewards) == bytes_of(contract.encode_abi("mintRewardBatch", [rows]))


@given(st.integers(0, 2**256 - 1), addresses)
def test_reads_are_encoded_as_web3_does(word: int, wallet: Address) -> None:
    assert ltz.ref_word_call(word) == bytes_of(contract.encode_abi("refWord", [word]))
    assert ltz.mint_limit_call(wallet) == bytes_of(
        contract.encode_abi("mintLimit", [checksummed(wallet)])
    )


def a_log(topics: list[bytes], data: bytes, **changes: object) -> dict[str, Any]:
    return {
        "address": "0x" + "17" * 20,
        "topics": [hex_of(topic) for topic in topics],
        "data": hex_of(data),
        "blockNumber": "0x10",
        "blockHash": hex_of(BLOCK),
        "transactionHash": hex_of(TRANSACTION),
        "transactionIndex": "0x0",
        "logIndex": "0x2",
        "removed": False,
    } | changes


def as_web3_sees_it(log: dict[str, Any]) -> LogReceipt:
    numbers = {key: int(log[key], 16) for key in ("blockNumber", "transactionIndex", "logIndex")}
    raw = {key: bytes_of(log[key]) for key in ("data", "blockHash", "transactionHash")}
    topics = [bytes_of(topic) for topic in log["topics"]]
    seen: Any = log | numbers | raw | {"topics": topics}
    return seen  # type: ignore[no-any-return]


def padded(address: bytes) -> bytes:
    return bytes(12) + address


@given(addresses, addresses, st.integers(0, 2**256 - 1))
def test_a_transfer_is_read_as_web3_reads_it(
    sender: Address, recipient: Address, amount: int
) -> None:
    log = a_log(
        [ltz.TRANSFER_TOPIC, padded(sender), padded(recipient)], encode(["uint256"], [amount])
    )

    seen = contract.events.Transfer().process_log(as_web3_sees_it(log))["args"]

    assert decode_log(log) == Transfer(
        LogPosition(16, BLOCK, 2, TRANSACTION),
        address_of(seen["from"]),
        address_of(seen["to"]),
        seen["value"],
    )


@given(addresses, references, st.integers(0, 2**256 - 1))
def test_a_minted_reward_is_read_as_web3_reads_it(
    to: Address, reference: Reference, amount: int
) -> None:
    log = a_log([ltz.REWARD_MINTED_TOPIC, padded(to), reference], encode(["uint256"], [amount]))

    seen = contract.events.RewardMinted().process_log(as_web3_sees_it(log))["args"]

    assert decode_log(log) == RewardMinted(
        LogPosition(16, BLOCK, 2, TRANSACTION),
        address_of(seen["to"]),
        Reference(seen["ref"]),
        seen["amount"],
    )


def test_the_topics_are_those_of_the_abi() -> None:
    assert hex_of(ltz.TRANSFER_TOPIC) == contract.events.Transfer().topic
    assert hex_of(ltz.REWARD_MINTED_TOPIC) == contract.events.RewardMinted().topic


@pytest.mark.parametrize(
    "topics",
    [
        [],
        [bytes_of(contract.events.Approval().topic), padded(b"\x01" * 20), padded(b"\x02" * 20)],
        [bytes_of(contract.events.RewardSkipped().topic), padded(b"\x01" * 20), b"\x03" * 32],
        # An ERC-721 transfer has the same topic and one topic more.
        [ltz.TRANSFER_TOPIC, padded(b"\x01" * 20), padded(b"\x02" * 20), b"\x03" * 32],
    ],
)
def test_other_logs_decode_to_nothing(topics: list[bytes]) -> None:
    assert decode_log(a_log(topics, encode(["uint256"], [1]))) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"data": "0x"},
        {"data": None},
        {"blockNumber": None},
        {"blockHash": "0x12zz"},
        {"logIndex": "one"},
        {"transactionHash": 7},
        {"data": "0x01"},
        {"data": "0x" + "00" * 33},
        {"data": 1},
        {"topics": [hex_of(ltz.TRANSFER_TOPIC), None, "0x"]},
        {"topics": [hex_of(ltz.TRANSFER_TOPIC), "0x" + "00" * 20, "0x" + "00" * 32]},
        {"topics": [hex_of(ltz.REWARD_MINTED_TOPIC), "0x" + "00" * 32, "0x" + "00" * 33]},
        {"topics": None},
        {"topics": ""},
    ],
)
def test_a_malformed_log_of_ltz_is_a_value_error(changes: dict[str, object]) -> None:
    topics = [ltz.TRANSFER_TOPIC, padded(b"\x01" * 20), padded(b"\x02" * 20)]
    log = a_log(topics, bytes(32)) | changes

    with pytest.raises(ValueError):  # noqa: PT011 - each has its own text
        decode_log(log)


@pytest.mark.parametrize("name", ["topics", "data", "blockNumber", "blockHash", "logIndex"])
def test_a_log_without_one_of_its_fields_is_a_value_error(name: str) -> None:
    log = a_log([ltz.TRANSFER_TOPIC, padded(b"\x01" * 20), padded(b"\x02" * 20)], bytes(32))
    del log[name]

    with pytest.raises(ValueError, match="malformed"):
        decode_log(log)

"""The typed values in what a node answers: headers, receipts, logs, numbers, reverts.

A function gets the decoded result of a call, or the RpcError in its place. Raises NodeUnavailable
for malformed data. Numbers are ints, hashes bytes, fees wei per gas.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ltzd.chain.node.calls import EXECUTION_CODE, RpcError
from ltzd.chain.node.publish_outcomes import classify_publish_error
from ltzd.chain.node.refusals import REVERTED_CODE, SIZE_KINDS, RefusalKind
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.publications import PublishOutcome
from ltzd.values import Hash32, address_of, bytes_of, hash_of

_OUT_OF_GAS = re.compile(
    r"out\s?of\s?gas|insufficient_gas|gas required exceeds|intrinsic gas", re.IGNORECASE
)
_UNINDEXED = "transaction indexing is in progress"
_YEAR_10000 = 253_402_300_800
LARGEST_COUNT = 2**63 - 1
"""The largest height, nonce or gas used: what PostgreSQL's bigint holds."""
LARGEST_INDEX = 2**31 - 1
"""The largest index of a log in its block: what PostgreSQL's integer holds."""
_LARGEST_WORD = 2**256 - 1
_OPERATOR_FEE_FIELDS = ("operatorFeeScalar", "operatorFeeConstant")


class Header(msgspec.Struct, frozen=True):
    """`base_fee` and `gas_limit` are None on a chain whose blocks lack them.

    `transactions` counts the block's transactions; None if the node does not list them.
    """

    number: int
    hash: Hash32
    parent_hash: Hash32
    timestamp: int
    bloom: bytes
    base_fee: int | None
    gas_limit: int | None = None
    transactions: int | None = None


class Receipt(msgspec.Struct, frozen=True):
    """`effective_gas_price` is None if the node tells none, as clients from before EIP-1559 do.

    On an OP-stack chain `l1_fee_wei` was paid beside the gas, and an operator fee if the receipt
    has one.
    """

    transaction_hash: Hash32
    block_number: int
    block_hash: Hash32
    succeeded: bool
    gas_used: int
    effective_gas_price: int | None
    l1_fee_wei: int = 0
    has_operator_fee: bool = False


class Account(msgspec.Struct, frozen=True):
    """`balance` is in wei; `nonce` is the number of the wallet's mined transactions."""

    balance: int
    nonce: int


@dataclass(frozen=True, slots=True)
class Revert:
    """A call that failed. `data` is None if the node does not say that the contract reverted.

    Then the fault may be the node's: its gas cap, a pruned state or a timeout. `text` is the
    client's wording, and no part of what is compared.
    """

    data: bytes | None
    text: str = field(compare=False)

    @property
    def is_out_of_gas(self) -> bool:
        """Whether the node says that the gas limit did not suffice."""
        return not self.data and _OUT_OF_GAS.search(self.text) is not None


def checked(answer: Any) -> Any:
    if isinstance(answer, RpcError):
        raise unavailable(answer) from answer
    return answer


def unavailable(error: RpcError, where: str = "") -> NodeUnavailable:
    is_behind = error.refusal is not None and error.refusal.kind is RefusalKind.BEHIND
    return NodeUnavailable(f"{where}{error.message}", kind="behind" if is_behind else "other")


def is_too_large(error: RpcError) -> bool:
    """Whether the node refused a call that may only be sent again in smaller parts."""
    return error.refusal is not None and error.refusal.kind in SIZE_KINDS


def is_unindexed(answer: Any) -> bool:
    """geth's answer for a transaction that it does not find, until all blocks are indexed."""
    return isinstance(answer, RpcError) and _UNINDEXED in answer.message


def number_of(answer: Any, most: int = _LARGEST_WORD) -> int:
    try:
        return quantity(answer, most)
    except (TypeError, ValueError) as error:
        raise NodeUnavailable("The node's number is malformed", kind="malformed") from error


def quantity(text: Any, most: int = _LARGEST_WORD) -> int:
    """A number from 0 to `most` in hex. Raises TypeError or ValueError for anything else."""
    number = int(text, 16)
    if not 0 <= number <= most:
        raise ValueError("the number is out of range")
    return number


def data_of(answer: Any) -> bytes:
    try:
        return bytes_of(answer)
    except (AttributeError, ValueError) as error:
        raise NodeUnavailable("The node's bytes are malformed", kind="malformed") from error


def header_of(answer: Any, number: int | None = None) -> Header | None:
    """The header of the block at this height; that of another block is malformed."""
    if answer is None:
        return None
    try:
        if number is not None and quantity(answer["number"]) != number:
            raise ValueError("the block is another one than the requested one")
        base_fee, gas_limit = answer.get("baseFeePerGas"), answer.get("gasLimit")
        listed = answer.get("transactions")
        return Header(
            number=quantity(answer["number"], LARGEST_COUNT),
            hash=hash_of(answer["hash"]),
            parent_hash=hash_of(answer["parentHash"]),
            timestamp=block_timestamp(answer["timestamp"]),
            bloom=bytes.fromhex(answer["logsBloom"][2:]),
            base_fee=quantity(base_fee) if base_fee else None,
            gas_limit=quantity(gas_limit) if gas_limit else None,
            transactions=len(listed) if isinstance(listed, list) else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NodeUnavailable("The node's block is malformed", kind="malformed") from error


def newest_header_of(answer: Any) -> Header:
    header = header_of(checked(answer))
    if header is None:
        raise NodeUnavailable("The node has no latest block", kind="malformed")
    return header


def final_height_of(answer: Any) -> int | None:
    """Nodes without finality answer null, or an error: -32000, -39001 or -32602."""
    header = None if isinstance(answer, RpcError) else header_of(answer)
    return header.number if header else None


def block_timestamp(text: Any) -> int:
    """A block's time. Raises ValueError for milliseconds, which some nodes return."""
    return quantity(text, _YEAR_10000 - 1)


def receipt_of(answer: Any, transaction: Hash32) -> Receipt | None:
    """The receipt of this transaction; that of another one is malformed."""
    if answer is None:
        return None
    try:
        if answer["blockHash"] is None:
            return None  # Some nodes answer for a pending transaction.
        if hash_of(answer["transactionHash"]) != transaction:
            raise ValueError("the receipt is of another transaction than the requested one")
        return Receipt(
            transaction_hash=transaction,
            block_number=quantity(answer["blockNumber"], LARGEST_COUNT),
            block_hash=hash_of(answer["blockHash"]),
            succeeded=int(answer["status"], 16) == 1,
            gas_used=quantity(answer["gasUsed"], LARGEST_COUNT),
            effective_gas_price=_optional(answer.get("effectiveGasPrice")),
            l1_fee_wei=_optional(answer.get("l1Fee")) or 0,
            has_operator_fee=any(_optional(answer.get(name)) for name in _OPERATOR_FEE_FIELDS),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NodeUnavailable("The node's receipt is malformed", kind="malformed") from error


def _optional(number: str | None) -> int | None:
    return None if number is None else quantity(number)


def logs_of(
    answer: Any, blocks: range | None = None, block_hash: Hash32 | None = None
) -> list[dict[str, Any]]:
    """Check position and contract of each log, and that topics and data are texts.

    The contracts' `decode_log` checks the rest. Raises NodeUnavailable also for a log outside of
    `blocks`, or of another block than that of `block_hash`.
    """
    if not isinstance(answer, list):
        raise NodeUnavailable("The node's logs are not a list", kind="malformed")
    try:
        # Each text once: a block of thousands of logs repeats its hashes, and the loop must go on.
        for text in {text for each in answer for text in _hash_texts(each)}:
            hash_of(text)
        for index in {each["logIndex"] for each in answer}:
            quantity(index, LARGEST_INDEX)
        numbers = {
            quantity(text, LARGEST_COUNT) for text in {each["blockNumber"] for each in answer}
        }
        hashes = {hash_of(text) for text in {each["blockHash"] for each in answer}}
        if block_hash is not None and not hashes <= {block_hash}:
            raise ValueError("the log is of another block than the requested one")
        if blocks is not None and not all(number in blocks for number in numbers):
            raise ValueError("the log is of another block than the requested ones")
        for address in {each["address"] for each in answer}:
            address_of(address)
        if not all(map(_has_texts, answer)):
            raise TypeError("topics or data are no texts")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NodeUnavailable("The node's log is malformed", kind="malformed") from error
    return answer


def logs_of_receipts(receipts: Sequence[Any], block_hash: Hash32) -> list[dict[str, Any]]:
    """The logs of a block's receipts. Raises KeyError or TypeError for malformed receipts."""
    logs = [log for receipt in receipts for log in receipt["logs"]]
    return logs_of(logs, block_hash=block_hash)


def _hash_texts(log: dict[str, Any]) -> tuple[str, str]:
    return log["blockHash"], log["transactionHash"]


def _has_texts(log: dict[str, Any]) -> bool:
    topics = log["topics"]
    return (
        isinstance(topics, list)
        and all(isinstance(topic, str) for topic in topics)
        and isinstance(log["data"], str)
    )


def failure_of(answer: Any) -> Revert | None:
    if isinstance(answer, RpcError):
        return revert_of(answer)
    data_of(answer)  # A missing result does not mean success.
    return None


def revert_of(error: RpcError) -> Revert:
    """A node's error object as the failure of a call."""
    reverted = (
        error.code == REVERTED_CODE
        or (error.code == EXECUTION_CODE and error.data is not None)
        or "revert" in error.message.lower()
    )
    return Revert((error.data or b"") if reverted or error.data else None, error.message)


def publication_of(answer: Any) -> tuple[PublishOutcome, str]:
    if isinstance(answer, NodeUnavailable):
        return PublishOutcome.UNKNOWN, answer.message
    if isinstance(answer, RpcError):
        return classify_publish_error(answer), answer.message
    return PublishOutcome.ACCEPTED, ""


def next_base_fee_of(history: Any) -> int:
    try:
        return quantity(history["baseFeePerGas"][-1])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise NodeUnavailable("The node's fee history is malformed", kind="malformed") from error


def pool_nonces(answer: Any) -> tuple[int, ...]:
    """The nonces in an answer of `txpool_contentFrom`, whose keys are decimal numbers."""
    try:
        nonces = {
            int(nonce) for part in ("pending", "queued") for nonce in (answer.get(part) or {})
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise NodeUnavailable("The node's pool is malformed", kind="malformed") from error
    return tuple(sorted(nonce for nonce in nonces if 0 <= nonce <= LARGEST_COUNT))

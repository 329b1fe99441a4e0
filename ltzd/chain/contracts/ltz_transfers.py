"""LTZ's transfers in bulk: the texts of many logs, checked by their lengths and not decoded.

A log that has not exactly the usual form is left to `ltz.decode_log`, which decides about it.
"""

from collections.abc import Sequence

from ltzd.chain.contracts.ltz import TRANSFER_TOPIC
from ltzd.chain.node.log_entries import LogEntry

TransferTexts = tuple[str, int, int, str, str, str, int]
"""Block hash, log index, block number, transaction hash, sender, recipient and amount.

Hashes have 64 and addresses 40 digits, in small letters where they are compared.
"""

_TOPIC = f"0x{TRANSFER_TOPIC.hex()}"
_PADDED = "0x" + 24 * "0"
_WORD_LENGTH = 66
_WORD_BYTES = 32
_LARGEST_INDEX = 2**31 - 1
_TOPICS = 3


def transfer_texts(
    entries: Sequence[LogEntry], number: int, block_hash: str
) -> tuple[list[TransferTexts], list[LogEntry]]:
    """The transfers among a block's logs of LTZ, and the logs that are left.

    `block_hash` has 64 digits. A node may answer logs twice, or in another order than that of their
    indexes: usual transfers are returned once all the same, as those of the other blocks are. All
    logs are left if an index is malformed.
    """
    transfers: list[TransferTexts] = []
    left: list[LogEntry] = []
    last = -1
    for entry in entries:
        topics, data, transaction = entry.topics, entry.data, entry.transaction_hash
        try:
            index = int(entry.log_index, 16)
            if 0 <= index <= last:
                return transfer_texts(_in_order(entries), number, block_hash)
        except ValueError:
            return [], list(entries)
        if not 0 <= index <= _LARGEST_INDEX:
            return [], list(entries)
        last = index
        if (
            len(topics) != _TOPICS
            or topics[0] != _TOPIC
            or len(data) != _WORD_LENGTH
            or len(transaction) != _WORD_LENGTH
            or entry.removed
        ):
            left.append(entry)
            continue
        _, sender, recipient = topics
        if (
            len(sender) != _WORD_LENGTH
            or len(recipient) != _WORD_LENGTH
            or sender[:26] != _PADDED
            or recipient[:26] != _PADDED
            or data[:2] != "0x"
            or transaction[:2] != "0x"
        ):
            left.append(entry)
            continue
        try:
            word = bytes.fromhex(data[2:])
        except ValueError:
            word = b""
        if len(word) != _WORD_BYTES:
            left.append(entry)
            continue
        transfers.append(
            (
                block_hash,
                index,
                number,
                transaction[2:],
                sender[26:].lower(),
                recipient[26:].lower(),
                int.from_bytes(word, "big"),
            )
        )
    return transfers, left


def _in_order(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Each log that counts once, by its index. Raises ValueError for a malformed index."""
    by_index = {int(entry.log_index, 16): entry for entry in entries if not entry.removed}
    return [entry for _, entry in sorted(by_index.items())]

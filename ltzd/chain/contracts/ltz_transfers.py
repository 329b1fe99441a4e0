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
_LARGEST_INDEX = 2**31 - 1
_TOPICS = 3


def transfer_texts(
    entries: Sequence[LogEntry], number: int, block_hash: str
) -> tuple[list[TransferTexts], list[LogEntry]]:
    """The transfers among a block's logs of LTZ, and the logs that are left.

    `block_hash` has 64 digits. All logs are left if they are not in the order of their indexes.
    """
    transfers: list[TransferTexts] = []
    left: list[LogEntry] = []
    last = -1
    for entry in entries:
        topics, data, transaction = entry.topics, entry.data, entry.transaction_hash
        try:
            index = int(entry.log_index, 16)
        except ValueError:
            return [], list(entries)
        if not last < index <= _LARGEST_INDEX:
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
        transfers.append(
            (
                block_hash,
                index,
                number,
                transaction[2:],
                sender[26:].lower(),
                recipient[26:].lower(),
                int(data, 16),
            )
        )
    return transfers, left

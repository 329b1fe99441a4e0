"""Finds the transaction that a command's argument names."""

from ltzd.errors import Misconfigured, NotFound
from ltzd.store.database import Connection
from ltzd.store.operator import transaction_views
from ltzd.store.operator.transaction_views import TransactionView
from ltzd.values import Hash32, hash_of, hex_of

_HIGHEST_ID = 2**63 - 1


async def find_transaction(connection: Connection, text: str) -> TransactionView:
    """Raises Misconfigured for malformed text, and NotFound."""
    key = _key(text)
    view = await transaction_views.find_transaction(connection, key)
    if view is None:
        if isinstance(key, int):
            raise NotFound(f"There is no transaction {key}: see `ltzd tx list --state all`.")
        raise NotFound(f"No transaction of this ltzd has an attempt with the hash {hex_of(key)}.")
    return view


def _key(text: str) -> int | Hash32:
    try:
        if text.startswith("0x"):
            return hash_of(text)
        if text.isascii() and text.isdigit() and int(text) <= _HIGHEST_ID:
            return int(text)
    except ValueError:
        pass
    raise Misconfigured(
        f"{text!r} names no transaction: give the id that `ltzd tx list` shows, or an attempt's "
        "hash (0x and 64 digits)."
    )

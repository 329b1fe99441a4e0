"""A reorg as the indexer carries it out, with every contract of the registry."""

from ltzd.indexer.contracts import indexed_contracts
from ltzd.store.database import Connection
from ltzd.store.indexer import undo
from ltzd.values import ZERO_ADDRESS

_CONTRACTS = indexed_contracts(
    dict.fromkeys(("ltz", "perk_nft", "points_sale", "business_escrow"), ZERO_ADDRESS)
)


async def undo_above(connection: Connection, fork: int) -> int:
    """Returns how many blocks were undone."""
    return await undo.undo_above(connection, fork, [contract.undo for contract in _CONTRACTS])

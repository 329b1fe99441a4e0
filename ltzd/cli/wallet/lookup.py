"""Finds an operator's wallet in the database of a command."""

from ltzd.errors import Misconfigured
from ltzd.store.database import Connection
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.store.operator import wallet_work
from ltzd.store.operator.wallet_work import WalletWork
from ltzd.values import Address, address_of, checksummed


def parse_address(text: str) -> Address:
    """Raises Misconfigured."""
    try:
        return address_of(text)
    except ValueError as error:
        raise Misconfigured(f"{text!r} is not a wallet's address: {error}.") from error


async def chain_of(connection: Connection) -> int:
    """The id of the database's chain. Raises Misconfigured for a new database."""
    return (await followed_chain(connection)).chain_id


async def followed_chain(connection: Connection) -> ChainIdentity:
    """The database's chain. Raises Misconfigured for a new database."""
    identity = await chains.identity(connection)
    if identity is None:
        raise Misconfigured(
            "The database follows no chain yet: start ltzd with the role indexer once, which finds "
            "out the chain."
        )
    return identity


async def find_work(connection: Connection, text: str) -> WalletWork:
    """The wallet with this address. Raises Misconfigured."""
    address = parse_address(text)
    work = await wallet_work.find_work(connection, await chain_of(connection), address)
    if work is None:
        raise Misconfigured(
            f"{checksummed(address)} is none of the operator's wallets; `ltzd wallet list` lists "
            "them, `ltzd wallet add` adds one."
        )
    return work

"""A registrar's call on its way to the chain: signed with a key and sent, or printed."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ltzd.chain.contracts.offers import OfferReader
from ltzd.chain.deployment.cold_wallet import ColdWallet, MinedTransaction, simulate
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc
from ltzd.chain.signing import Signer
from ltzd.cli.chain_targets import ChainTarget
from ltzd.cli.offers.options import sender_of
from ltzd.cli.output import print_json, print_message
from ltzd.daemon.keys import read_key
from ltzd.errors import Misconfigured, Refused
from ltzd.values import Address, Hash32, checksummed, hex_of

_IN_WORDS: Mapping[str, str] = {
    "AccessControlUnauthorizedAccount": "that wallet does not hold REGISTRAR on this contract",
    "BadPayout": "LTZ sent to that payout would be lost",
    "BadBusiness": "LTZ sent to that business would be lost",
    "StockBelowSold": "more than that stock is sold already",
    "SupplyBelowMinted": "more tokens than that are claimed already",
    "UnknownCollection": "there is no such collection",
}


@dataclass(frozen=True, slots=True)
class SigningOptions:
    """As the options say it: `key` signs and sends, `unsigned` prints."""

    key: Path | None
    password_file: Path | None
    unsigned: bool
    sender: str | None

    def faults(self) -> list[str]:
        found = []
        if (self.key is None) != self.unsigned:
            found.append("--key, --unsigned: give either of them")
        if self.password_file is not None and self.key is None:
            found.append("--password-file: belongs to --key")
        if self.sender is not None and not self.unsigned:
            found.append("--from: belongs to --unsigned")
        return [*found, *sender_of(self.sender)[1]]


class TransactionSender:
    """One command's way to the chain."""

    def __init__(self, rpc: Rpc, target: ChainTarget, means: SigningOptions) -> None:
        self._rpc = rpc
        self._node = Node(rpc)
        self._fees = target.fees
        self._means = means
        self.contracts = target.contracts
        self.offers = OfferReader(rpc, target.contracts)

    async def sign_or_print(self, to: Address, data: bytes) -> MinedTransaction | None:
        """None when nothing was sent, since the transaction was printed."""
        if not await self._node.code(to):
            raise Misconfigured(f"There is no contract at {checksummed(to)} on the node's chain.")
        try:
            if self._means.key is None:
                await self._print(to, data)
                return None
            return await self._send(self._means.key, to, data)
        except Refused as error:
            words = _IN_WORDS.get(str(error.details.get("revert")))
            if words is None:
                raise
            raise Refused(f"{error.message}: {words}.", **error.details) from error

    async def _send(self, key: Path, to: Address, data: bytes) -> MinedTransaction:
        # Opening a keystore takes about a second of pure computation.
        secret = await asyncio.to_thread(read_key, key, self._means.password_file)
        return await ColdWallet(self._rpc, Signer(secret), self._fees).send(to, data, _tell_hash)

    async def _print(self, to: Address, data: bytes) -> None:
        transaction = {
            "chainId": await self._node.chain_id(),
            "to": checksummed(to),
            "data": hex_of(data),
            "value": "0x0",
        }
        sender, _ = sender_of(self._means.sender)
        if sender is not None:
            await simulate(self._node, to, data, sender)
            transaction = {"from": checksummed(sender)} | transaction
        print_json(transaction)


@asynccontextmanager
async def desk(target: ChainTarget, means: SigningOptions) -> AsyncIterator[TransactionSender]:
    async with Rpc(target.rpc_url) as rpc:
        yield TransactionSender(rpc, target, means)


def show(result: Mapping[str, Any], mined: MinedTransaction | None) -> None:
    """What is so now, and by which transaction: None if it was so before."""
    transaction = {
        "transactionHash": hex_of(mined.hash) if mined else None,
        "blockNumber": mined.block_number if mined else None,
    }
    print_json({**result, **transaction})


def print_unchanged(means: SigningOptions, result: Mapping[str, Any]) -> None:
    print_message("Nothing changes, so there is nothing to send.")
    if not means.unsigned:
        show(result, None)


def _tell_hash(transaction: Hash32) -> None:
    # Before it goes out, so that whoever is interrupted knows what to look for.
    print_message(f"Sending transaction {hex_of(transaction)} and waiting for its block.")

"""Sends a contract call of the registrar, signed with a key, or prints it unsigned."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ltzd.chain.contracts.offers import OfferReader
from ltzd.chain.deployment.agreement import AgreeingNodes
from ltzd.chain.deployment.cold_wallet import ColdWallet, ConfirmedTransaction, simulate
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcClient
from ltzd.chain.signing import Signer
from ltzd.cli.chain_targets import ChainTarget
from ltzd.cli.command_node import agreeing_nodes
from ltzd.cli.offers.options import parse_sender
from ltzd.cli.output import print_json, print_message
from ltzd.daemon.keys import read_key
from ltzd.errors import Misconfigured, Refused
from ltzd.values import Address, Hash32, checksummed, hex_of

T = TypeVar("T")

_REVERT_EXPLANATIONS: Mapping[str, str] = {
    "AccessControlUnauthorizedAccount": "that wallet does not hold REGISTRAR on this contract",
    "BadPayout": "LTZ sent to that payout would be lost",
    "BadBusiness": "LTZ sent to that business would be lost",
    "StockBelowSold": "more than that stock is sold already",
    "SupplyBelowMinted": "more tokens than that are claimed already",
    "UnknownCollection": "there is no such collection",
}


class SigningOptions(msgspec.Struct, frozen=True):
    """The options of a command that sends: either `key`, which signs, or `unsigned`, which prints.

    `sender` is the text of `--from`, the account that a printed transaction is simulated for.
    """

    key: Path | None
    password_file: Path | None
    unsigned: bool
    sender: str | None

    def faults(self) -> list[str]:
        faults = []
        if (self.key is None) != self.unsigned:
            faults.append("--key, --unsigned: give exactly one of them")
        if self.password_file is not None and self.key is None:
            faults.append("--password-file: is for --key only")
        if self.sender is not None and not self.unsigned:
            faults.append("--from: is for --unsigned only")
        return [*faults, *parse_sender(self.sender)[1]]


class Submission(msgspec.Struct, frozen=True):
    """One command's transactions: `mined` ones, or those that a multisig shall send, as JSON."""

    mined: Sequence[ConfirmedTransaction] = ()
    unsigned: Sequence[Mapping[str, Any]] = ()


class TransactionSender:
    """Reads the offer contracts and submits one command's calls.

    `explanations` tell a person the meaning of reverts, by the error's name.
    """

    def __init__(
        self,
        nodes: AgreeingNodes,
        target: ChainTarget,
        signing: SigningOptions,
        explanations: Mapping[str, str] = _REVERT_EXPLANATIONS,
    ) -> None:
        self._explanations = explanations
        self._nodes = nodes
        self._fees = target.fees
        self._signing = signing
        self.contracts = target.contracts

    async def agreed(self, subject: str, read: Callable[[OfferReader], Awaitable[T]]) -> T:
        """An answer of every node about the offers. Raises NodeUnavailable if they do not agree."""
        return await self._nodes.agreed(subject, lambda rpc: read(OfferReader(rpc, self.contracts)))

    async def submit(self, to: Address, data: bytes) -> ConfirmedTransaction | None:
        """Send the call and wait until it is mined, or print it and return None.

        Raises Refused with the revert's reason, Misconfigured and Unavailable.
        """
        submission = await self.submit_all([(to, data)])
        for transaction in submission.unsigned:
            print_json(transaction)
        return submission.mined[0] if submission.mined else None

    async def submit_all(self, calls: Sequence[tuple[Address, bytes]]) -> Submission:
        """Send calls that do not depend on each other, without waits between.

        Without a key the calls become unsigned transactions. Raises as `submit` does.
        """
        for to in dict.fromkeys(to for to, _ in calls):
            if not await self._is_contract(to):
                raise Misconfigured(
                    f"There is no contract at {checksummed(to)} on the node's chain."
                )
        try:
            if self._signing.key is not None:
                return Submission(mined=await self._send_all(self._signing.key, calls))
            return Submission(unsigned=[await self._unsigned(to, data) for to, data in calls])
        except Refused as error:
            explanation = self._explanations.get(str(error.details.get("revert")))
            if explanation is None:
                raise
            raise Refused(f"{error.message}: {explanation}.", **error.details) from error

    async def _is_contract(self, at: Address) -> bool:
        async def has_code(rpc: RpcClient) -> bool:
            return bool(await Node(rpc).code(at))

        return await self._nodes.agreed(f"the contract at {checksummed(at)}", has_code)

    async def _send_all(
        self, key: Path, calls: Sequence[tuple[Address, bytes]]
    ) -> list[ConfirmedTransaction]:
        # Decrypting a keystore takes about a second of CPU time.
        secret = await asyncio.to_thread(read_key, key, self._signing.password_file)
        wallet = ColdWallet(self._nodes, Signer(secret), self._fees)
        return await wallet.send_all(calls, _print_hash)

    async def _unsigned(self, to: Address, data: bytes) -> dict[str, Any]:
        transaction = {
            "chainId": await self._nodes.agreed("the chain id", lambda rpc: Node(rpc).chain_id()),
            "to": checksummed(to),
            "data": hex_of(data),
            "value": "0x0",
        }
        sender, _ = parse_sender(self._signing.sender)
        if sender is not None:
            await simulate(self._nodes, to, data, sender)
            transaction = {"from": checksummed(sender)} | transaction
        return transaction


@asynccontextmanager
async def open_sender(
    target: ChainTarget, signing: SigningOptions
) -> AsyncIterator[TransactionSender]:
    async with agreeing_nodes(target.rpc_urls, target.chain_id) as nodes:
        yield TransactionSender(nodes, target, signing)


def print_result(view: Mapping[str, Any], mined: ConfirmedTransaction | None) -> None:
    """Print the new values and the transaction that set them; None if they were set before."""
    transaction = {
        "transactionHash": hex_of(mined.hash) if mined else None,
        "blockNumber": mined.block_number if mined else None,
    }
    print_json({**view, **transaction})


def print_unchanged(view: Mapping[str, Any]) -> None:
    print_message("Nothing changes, so no transaction is needed.")
    print_result(view, None)


def _print_hash(transaction: Hash32) -> None:
    # Printed before it is sent, so that a person who interrupts the command can look for it.
    print_message(f"Sending transaction {hex_of(transaction)} and waiting for its block.")

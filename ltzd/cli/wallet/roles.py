"""`ltzd wallet grant` and `ltzd wallet revoke`: an operator's wallet gets or loses its roles.

Both take the facts from the chain, so that they also work while the database is away. A database
that answers is asked whether the wallet of a grant is retired: its key may be stolen. A role that
is there, or gone, at every node needs no transaction: a repeated command sends the missing ones.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ltzd.chain.contracts import contract_abi
from ltzd.chain.contracts.access_control import decode_has_role, has_role_call
from ltzd.chain.deployment.agreement import AgreeingNodes
from ltzd.chain.deployment.plan import MintLimit, hot_roles
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcClient, RpcError
from ltzd.cli.chain_targets import ChainTarget
from ltzd.cli.command_node import agreeing_nodes
from ltzd.cli.offers.transaction_sender import SigningOptions, Submission, TransactionSender
from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.cli.wallet.lookup import parse_address
from ltzd.cli.wallet.target import WalletTarget
from ltzd.errors import DatabaseUnavailable, FileRejected, Misconfigured, NodeUnavailable
from ltzd.rules.amounts import units_of
from ltzd.store import start_facts
from ltzd.values import Address, checksummed, hex_of, iso

_GRANTING = {
    "AccessControlUnauthorizedAccount": "that account is not the admin of this contract",
}
_REVOKING = {
    "AccessControlUnauthorizedAccount": "that account is neither guardian nor admin of this "
    "contract",
}


class RoleTarget(msgspec.Struct, frozen=True):
    wallet: WalletTarget
    chain: ChainTarget


TargetResolver = Callable[[], RoleTarget]
"""Called after the options are validated, so that their faults are reported first."""


class GrantOptions(msgspec.Struct, frozen=True):
    """`mint_limit` is in LTZ, as a text; only a mint wallet has one."""

    kind: str
    mint_limit: str | None
    mint_window_seconds: int

    def limit(self) -> MintLimit | None:
        """Raises Misconfigured, and FileRejected for a limit that LTZ would refuse."""
        if (self.kind == "mint") != (self.mint_limit is not None):
            raise Misconfigured("--mint-limit: give it for a mint wallet, and for no other one.")
        if self.mint_limit is None:
            return None
        try:
            limit = MintLimit(units_of(self.mint_limit), self.mint_window_seconds)
        except ValueError as error:
            raise Misconfigured(f"--mint-limit {self.mint_limit}: {error}.") from error
        if faults := list(limit.faults()):
            raise FileRejected(faults)
        return limit


class _Step(msgspec.Struct, frozen=True):
    contract: str
    role: str
    data: bytes


def revoke(
    resolve_target: TargetResolver, text: str, signing: SigningOptions, *, as_json: bool
) -> None:
    """Raises FileRejected for wrong options, Misconfigured, Refused and Unavailable."""
    wallet = _checked(text, signing)
    asyncio.run(_revoke(resolve_target(), wallet, signing, as_json=as_json))


async def _revoke(
    target: RoleTarget, wallet: Address, signing: SigningOptions, *, as_json: bool
) -> None:
    chain = target.chain
    async with agreeing_nodes(chain.rpc_urls, chain.chain_id) as nodes:
        held = await _held(nodes, target.wallet.contracts, wallet)
        steps = [
            _Step(contract, role, _role_call(contract, "revokeRole", role, wallet))
            for (contract, role), shown in held.items()
            if any(shown)
        ]
        sender = TransactionSender(nodes, chain, signing, _REVOKING)
        submission = await _submit(sender, target, steps)
    rows = _mined_rows(steps, submission)
    if as_json:
        print_json(
            {"wallet": checksummed(wallet), "revoked": rows} | _unsigned(signing, submission)
        )
    elif not steps:
        print_message(f"{checksummed(wallet)} has none of the roles of an operator's wallet.")
    elif signing.unsigned:
        _print_unsigned(submission)
    else:
        names = ", ".join(f"{row['contract']}.{row['role']}" for row in rows)
        print_message(f"{checksummed(wallet)} has lost {names}.")
        print_message(
            "Once that is final, ltzd queues again what a retired mint wallet has signed and what "
            "is not mined. Calls of a relay wallet that need the role revert."
        )


def grant(
    resolve_target: TargetResolver,
    text: str,
    options: GrantOptions,
    signing: SigningOptions,
    *,
    as_json: bool,
) -> None:
    """Raises as `revoke` does."""
    wallet, limit = _checked(text, signing), options.limit()
    asyncio.run(_grant(resolve_target(), wallet, options, limit, signing, as_json=as_json))


async def _refuse_retired(database: Target, wallet: Address) -> None:
    """Raises Misconfigured for a retired wallet. An absent database refuses nothing."""
    retired: Mapping[Address, datetime] = {}
    try:
        async with open_connection(database, "wallet grant") as connection:
            retired = await start_facts.retired_wallets(connection, [wallet])
    except (DatabaseUnavailable, Misconfigured) as error:
        print_message(
            f"Whether the wallet is retired was not checked: {error.message.removesuffix('.')}."
        )
    if wallet in retired:
        raise Misconfigured(
            f"{checksummed(wallet)} was retired at {iso(retired[wallet])}, and ltzd signs nothing "
            "with it ever again; its key may be stolen: grant the role to another wallet. Nothing "
            "was sent."
        )


async def _grant(
    target: RoleTarget,
    wallet: Address,
    options: GrantOptions,
    limit: MintLimit | None,
    signing: SigningOptions,
    *,
    as_json: bool,
) -> None:
    await _refuse_retired(target.wallet.database, wallet)
    chain = target.chain
    async with agreeing_nodes(chain.rpc_urls, chain.chain_id) as nodes:
        held = await _held(nodes, target.wallet.contracts, wallet)
        other = [
            f"{contract}.{role}"
            for contract, role in hot_roles(is_mint=options.kind != "mint")
            if any(held[contract, role])
        ]
        if other:
            raise Misconfigured(
                f"{checksummed(wallet)} has {', '.join(other)}: a wallet that relays users' calls "
                "must not mint. Use another key."
            )
        steps = [
            _Step(contract, role, _role_call(contract, "grantRole", role, wallet))
            for contract, role in hot_roles(is_mint=options.kind == "mint")
            if not all(held[contract, role])
        ]
        if limit is not None:
            data = contract_abi.encode_call(
                "LTZ", "setMintLimit", wallet, limit.capacity, limit.window_seconds
            )
            # Before the role: no wallet mints without a limit that a person has chosen.
            steps.insert(0, _Step("LTZ", "mint limit", data))
        sender = TransactionSender(nodes, chain, signing, _GRANTING)
        submission = await _submit(sender, target, steps)
    rows = _mined_rows(steps, submission)
    if as_json:
        print_json(
            {"wallet": checksummed(wallet), "granted": rows} | _unsigned(signing, submission)
        )
    elif not steps:
        print_message(f"{checksummed(wallet)} has all roles of a {options.kind} wallet.")
    elif signing.unsigned:
        _print_unsigned(submission)
    else:
        names = ", ".join(f"{row['contract']}.{row['role']}" for row in rows)
        print_message(f"{checksummed(wallet)} has got {names}.")


def _checked(text: str, signing: SigningOptions) -> Address:
    if faults := signing.faults():
        raise FileRejected(faults)
    return parse_address(text)


def _role_call(contract: str, function: str, role: str, wallet: Address) -> bytes:
    return contract_abi.encode_call(contract, function, contract_abi.role_id(role), wallet)


async def _held(
    nodes: AgreeingNodes, contracts: Mapping[str, Address], wallet: Address
) -> dict[tuple[str, str], tuple[bool, ...]]:
    """Of each role that an operator's wallet can have, whether each node shows that it has it.

    Nodes need not agree: a role that is granted or revoked once more does no harm. Raises
    NodeUnavailable.
    """
    roles = [*hot_roles(is_mint=True), *hot_roles(is_mint=False)]
    calls = [(contracts[contract], has_role_call(role, wallet)) for contract, role in roles]

    async def read(rpc: RpcClient) -> list[bool]:
        try:
            return [decode_has_role(answer) for answer in await Node(rpc).views(calls)]
        except (RpcError, ValueError) as error:
            raise NodeUnavailable(f"The contracts cannot be read: {error}") from error

    answers = (await nodes.each(read)).values()
    return dict(zip(roles, zip(*answers, strict=True), strict=True))


async def _submit(
    sender: TransactionSender, target: RoleTarget, steps: Sequence[_Step]
) -> Submission:
    """Send the steps in this order, or make unsigned transactions of them."""
    if not steps:
        return Submission()
    return await sender.submit_all(
        [(target.wallet.contracts[step.contract], step.data) for step in steps]
    )


def _unsigned(signing: SigningOptions, submission: Submission) -> dict[str, Any]:
    return {"transactions": submission.unsigned} if signing.unsigned else {}


def _print_unsigned(submission: Submission) -> None:
    for transaction in submission.unsigned:
        print_json(transaction)


def _mined_rows(steps: Sequence[_Step], submission: Submission) -> list[dict[str, Any]]:
    return [
        {
            "contract": step.contract,
            "role": step.role,
            "transactionHash": hex_of(transaction.hash),
            "blockNumber": transaction.block_number,
        }
        for step, transaction in zip(steps, submission.mined, strict=False)
    ]

"""Reads what the chain knows of a new wallet: its gas money, its past and its roles."""

from collections.abc import Mapping, Sequence

import msgspec

from ltzd.chain.contracts import ltz
from ltzd.chain.contracts.access_control import decode_has_role, has_role_call
from ltzd.chain.deployment.agreement import AgreeingNodes
from ltzd.chain.deployment.plan import hot_roles
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcClient, RpcError
from ltzd.cli.command_node import answering_nodes
from ltzd.errors import NodeUnavailable
from ltzd.rules.conditions.lanes import grant_command
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.values import LTZ, Address, checksummed


class WalletOnChain(msgspec.Struct, frozen=True):
    """`roles` tells of each role that the wallet's kind needs whether the wallet has it.

    `mint_limit` is in LTZ's smallest unit, and None for a relay wallet.
    """

    balance_wei: int
    nonce: int
    roles: Mapping[str, bool]
    mint_limit: int | None

    @property
    def missing_roles(self) -> list[str]:
        return [role for role, is_granted in self.roles.items() if not is_granted]


async def read(
    rpc_urls: Sequence[str],
    chain: ChainIdentity,
    contracts: Mapping[str, Address],
    wallet: Address,
    kind: str,
) -> WalletOnChain:
    """The facts that all nodes of the chain show.

    Raises NodeUnavailable, also if the nodes do not agree.
    """
    async with answering_nodes(rpc_urls, chain.chain_id, chain.genesis_hash) as answering:
        return await AgreeingNodes(answering.clients).agreed(
            "the wallet's roles, gas money and nonce",
            lambda rpc: _read(rpc, contracts, wallet, kind),
            "The wallet is added all the same.",
        )


async def _read(
    rpc: RpcClient, contracts: Mapping[str, Address], wallet: Address, kind: str
) -> WalletOnChain:
    node = Node(rpc)
    wanted = hot_roles(is_mint=kind == "mint")
    calls = [(contracts[contract], has_role_call(role, wallet)) for contract, role in wanted]
    if kind == "mint":
        calls.append((contracts["LTZ"], ltz.mint_limit_call(wallet)))
    try:
        answers = await node.views(calls)
        flags = [decode_has_role(answer) for answer in answers[: len(wanted)]]
        limit = ltz.decode_mint_limit(answers[-1])[0] if kind == "mint" else None
    except (RpcError, ValueError) as error:
        raise NodeUnavailable(f"The contracts cannot be read: {error}") from error
    return WalletOnChain(
        await node.balance(wallet),
        await node.nonce(wallet),
        {f"{contract}.{role}": flag for (contract, role), flag in zip(wanted, flags, strict=True)},
        limit,
    )


def warnings_of(facts: WalletOnChain, wallet: Address, kind: str, *, is_new: bool) -> list[str]:
    """Sentences about what a person must do before the wallet can work."""
    address, warnings = checksummed(wallet), []
    if facts.balance_wei == 0:
        warnings.append(f"It has no gas money: its lane waits until you send some to {address}.")
    grant = f"`{grant_command(wallet, kind)}`"
    if facts.missing_roles:
        warnings.append(
            f"It lacks {', '.join(facts.missing_roles)}, so its transactions would revert: {grant} "
            "grants the roles with the admin's key, and --unsigned prints them for a multisig."
        )
    elif facts.mint_limit == 0:
        warnings.append(f"Its mint limit is 0, so that it mints nothing: {grant} sets it.")
    if is_new and facts.nonce > 0:
        warnings.append(
            f"It has sent {facts.nonce} transactions before, which this database does not know: "
            "make sure that nothing else signs with its key, and then run `ltzd lane adopt "
            f"{address}`."
        )
    return warnings


def shown_limit(facts: WalletOnChain) -> str | None:
    """The mint limit in LTZ, as text."""
    return None if facts.mint_limit is None else str(facts.mint_limit // LTZ)

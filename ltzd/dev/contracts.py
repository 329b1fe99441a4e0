"""The contracts on the dev chain: deployed once, remembered, and used again while it has them.

The dev wallets get their gas from the node's unlocked account. The admin wallet holds every cold
role, so that one key file serves all of an operator's commands.
"""

import asyncio
from pathlib import Path
from typing import Any

from ltzd.chain.deployment import deployed_file
from ltzd.chain.deployment.executor import DeploymentExecutor, SendMode, begin
from ltzd.chain.deployment.plan import Deployment, DeploymentTerms, MintLimit
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc, RpcError
from ltzd.chain.signing import Signer
from ltzd.errors import Misconfigured, NodeUnavailable
from ltzd.rules.operator.fees import FeePolicy
from ltzd.values import Address, Hash32, address_of, hash_of, hex_of

_ETHER = 10**18
_FUNDS = 200 * _ETHER
_FUNDS_LOW = 50 * _ETHER
_RECEIPT_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.02
MINT_LIMIT = MintLimit(1_000_000_000_000 * 10**18, 86_400)
"""A thousand of the largest payments: once it is spent nothing is minted for anybody, and tests pay
the largest amount again and again. choices.md wants 2 billion LTZ at least."""
_NAME = "contracts.json"


async def fund(rpc: Rpc, node: Node, wallets: list[Address]) -> None:
    """Give each wallet that is low on gas money some from the node's unlocked account."""
    balances = await asyncio.gather(*map(node.balance, wallets))
    poor = [one for one, held in zip(wallets, balances, strict=True) if held < _FUNDS_LOW]
    if not poor:
        return
    accounts = await _unlocked(rpc)
    held = await asyncio.gather(*(node.balance(address_of(account)) for account in accounts))
    riches = dict(zip(accounts, held, strict=True))
    sent = []
    for wallet in poor:
        richest = max(riches, key=riches.__getitem__)
        if riches[richest] < _FUNDS + _ETHER:
            raise Misconfigured(
                f"The unlocked accounts of the node at {rpc.url} are used up; begin it anew."
            )
        riches[richest] -= _FUNDS
        transfer = {"from": richest, "to": hex_of(wallet), "value": hex(_FUNDS)}
        sent.append(hash_of(await rpc.call("eth_sendTransaction", transfer)))
    await _mined(node, sent)


async def _unlocked(rpc: Rpc) -> list[str]:
    try:
        accounts: Any = await rpc.call("eth_accounts")
    except RpcError:
        accounts = []
    if not accounts:
        raise Misconfigured(
            f"The node at {rpc.url} has no unlocked account to fund the dev wallets from; "
            "give the --rpc-url of a dev chain such as anvil."
        )
    return list(accounts)


async def deployed(
    data_dir: Path, rpc: Rpc, chain_id: int, genesis: Hash32, admin: Signer, terms: DeploymentTerms
) -> Deployment:
    """Those that the data directory remembers and the chain still has, and the others new."""
    file = data_dir / _NAME
    before = deployed_file.read_dev_file(file, chain_id)
    if before is None or (before.chain_id, before.genesis) != (chain_id, genesis):
        before = await begin(Node(rpc), chain_id, genesis, admin.address)
    deploying = DeploymentExecutor(
        rpc,
        admin,
        terms,
        remember=lambda deployment: deployed_file.write(file, deployment),
        tell=lambda _: None,
        manner=SendMode(
            # A dev chain's fees are its own; on a full one they may climb over any cap.
            fees=FeePolicy(cap=_FUNDS),
            is_hurried=True,
            look_again_seconds=_LOOK_AGAIN_SECONDS,
            patience_seconds=_RECEIPT_SECONDS,
        ),
    )
    return await deploying.run(before)


def dev_terms(admin: Address, minter: Address, relayer: Address) -> DeploymentTerms:
    return DeploymentTerms(
        deployer=admin,
        admin_delay_seconds=0,
        minter=minter,
        mint_limit=MINT_LIMIT,
        relayers=(relayer,),
        guardians=(admin,),
        registrars=(admin,),
        settlers=(admin,),
        arbiters=(admin,),
    )


async def _mined(node: Node, transactions: list[Hash32]) -> None:
    """Wait for the transactions' blocks; raises Misconfigured, NodeUnavailable."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _RECEIPT_SECONDS
    while loop.time() < deadline:
        receipts = await node.receipts(transactions)
        if any(receipt is not None and not receipt.succeeded for receipt in receipts):
            raise Misconfigured("The dev chain reverted a set-up transfer; start with --clean.")
        if all(receipts):
            return
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    raise NodeUnavailable(
        f"The dev chain did not mine a transfer within {_RECEIPT_SECONDS:.0f} s; "
        "is its mining switched off?"
    )

"""Deploys the contracts to the dev chain once and reuses them while the chain has them.

The dev wallets get their gas from the node's unlocked accounts. The admin wallet holds every cold
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
from ltzd.concurrency.clock import loop_time
from ltzd.errors import Misconfigured, NodeUnavailable
from ltzd.rules.operator.fees import FeePolicy
from ltzd.values import ETHER, Address, Hash32, address_of, hash_of, hex_of

_TRANSFER_WEI = 200 * ETHER
_LOW_BALANCE_WEI = 50 * ETHER
_RECEIPT_SECONDS = 60.0
_POLL_SECONDS = 0.02
MINT_LIMIT = MintLimit(1_000_000_000_000 * 10**18, 86_400)
"""A thousand of the largest payments: a spent limit stops every mint, and tests pay the largest
amount repeatedly."""
_NAME = "contracts.json"


async def fund(rpc: Rpc, node: Node, wallets: list[Address]) -> None:
    """Send gas money to each wallet that is low, from the node's unlocked accounts.

    Raises Misconfigured, NodeUnavailable.
    """
    balances = await asyncio.gather(*map(node.balance, wallets))
    low = [
        wallet
        for wallet, balance in zip(wallets, balances, strict=True)
        if balance < _LOW_BALANCE_WEI
    ]
    if not low:
        return
    accounts = await _unlocked_accounts(rpc)
    account_balances = await asyncio.gather(
        *(node.balance(address_of(account)) for account in accounts)
    )
    available = dict(zip(accounts, account_balances, strict=True))
    transfers = []
    for wallet in low:
        source = max(available, key=available.__getitem__)
        if available[source] < _TRANSFER_WEI + ETHER:
            raise Misconfigured(
                f"The unlocked accounts of the node at {rpc.url} are used up; restart it with "
                "a fresh chain."
            )
        available[source] -= _TRANSFER_WEI
        transfer = {"from": source, "to": hex_of(wallet), "value": hex(_TRANSFER_WEI)}
        transfers.append(hash_of(await rpc.call("eth_sendTransaction", transfer)))
    await _wait_mined(node, transfers)


async def _unlocked_accounts(rpc: Rpc) -> list[str]:
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


async def ensure_deployed(
    data_dir: Path, rpc: Rpc, chain_id: int, genesis: Hash32, admin: Signer, terms: DeploymentTerms
) -> Deployment:
    """Deploy the contracts that the chain lacks and record all of them in the data directory."""
    file = data_dir / _NAME
    deployment = deployed_file.read_dev_file(file, chain_id)
    if deployment is None or (deployment.chain_id, deployment.genesis) != (chain_id, genesis):
        deployment = await begin(Node(rpc), chain_id, genesis, admin.address)
    deploying = DeploymentExecutor(
        rpc,
        admin,
        terms,
        save=lambda deployment: deployed_file.write(file, deployment),
        report=lambda _: None,
        mode=SendMode(
            # High enough for a full dev chain, whose fees climb without bound.
            fees=FeePolicy(cap=_TRANSFER_WEI),
            sends_at_once=True,
            poll_seconds=_POLL_SECONDS,
            timeout_seconds=_RECEIPT_SECONDS,
        ),
    )
    return await deploying.run(deployment)


def dev_terms(admin: Address, minter: Address, relayers: tuple[Address, ...]) -> DeploymentTerms:
    """Terms with one minter: more of them need a run of the deployment each."""
    return DeploymentTerms(
        deployer=admin,
        admin_delay_seconds=0,
        minter=minter,
        mint_limit=MINT_LIMIT,
        relayers=relayers,
        guardians=(admin,),
        registrars=(admin,),
        settlers=(admin,),
        arbiters=(admin,),
    )


async def _wait_mined(node: Node, transactions: list[Hash32]) -> None:
    """Wait for the transactions' blocks. Raises Misconfigured, NodeUnavailable."""
    deadline = loop_time() + _RECEIPT_SECONDS
    while loop_time() < deadline:
        receipts = await node.receipts(transactions)
        if any(receipt is not None and not receipt.succeeded for receipt in receipts):
            raise Misconfigured("The dev chain reverted a funding transfer; start with --clean.")
        if all(receipts):
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise NodeUnavailable(
        f"The dev chain did not mine a transfer within {_RECEIPT_SECONDS:.0f} s; "
        "is its mining switched off?"
    )

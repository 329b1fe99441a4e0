"""`ltzd deploy`: reads the key and the options, runs the deployment, and prints it as JSON."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from operator import attrgetter
from pathlib import Path

import msgspec

from ltzd.chain.deployment import deployed_file
from ltzd.chain.deployment.agreement import AgreeingNodes
from ltzd.chain.deployment.executor import DeploymentExecutor, SendMode, begin
from ltzd.chain.deployment.plan import Deployment, DeploymentTerms, MintLimit
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcClient
from ltzd.chain.signing import Signer
from ltzd.cli.command_node import agreeing_nodes
from ltzd.cli.output import print_json, print_message
from ltzd.daemon.keys import read_key
from ltzd.daemon.settings.contracts import CONTRACT_NAMES
from ltzd.daemon.settings.settings import read_node
from ltzd.errors import FileRejected, Misconfigured, NodeUnavailable
from ltzd.rules.amounts import units_of
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.values import Address, Hash32, address_of, checksummed, hex_of

_GWEI = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class DeploymentTarget(msgspec.Struct, frozen=True):
    """`chain_id` is the chain that the person intends; a node on another chain is refused."""

    config: Path
    out: Path
    chain_id: int


class Roles(msgspec.Struct, frozen=True):
    """The options with addresses and amounts, as text."""

    admin: str | None
    admin_delay_seconds: int
    minter: str | None
    mint_limit: str | None
    mint_window_seconds: int
    relayers: Sequence[str]
    guardians: Sequence[str]
    registrars: Sequence[str]
    settlers: Sequence[str]
    arbiters: Sequence[str]

    def terms(self, deployer: Address) -> DeploymentTerms:
        """Raises FileRejected with a line for each invalid option."""
        faults: list[str] = []

        def address(option: str, text: str | None) -> Address | None:
            valid = addresses(option, [] if text is None else [text])
            return valid[0] if valid else None

        def addresses(option: str, texts: Sequence[str]) -> tuple[Address, ...]:
            valid = []
            for text in texts:
                try:
                    valid.append(_parse_address(text))
                except ValueError as error:
                    faults.append(f"--{option} {text}: {error}")
            return tuple(dict.fromkeys(valid))

        terms = DeploymentTerms(
            deployer=deployer,
            admin_delay_seconds=self.admin_delay_seconds,
            heir=address("admin", self.admin),
            minter=address("minter", self.minter),
            mint_limit=self._limit(faults),
            relayers=addresses("relayer", self.relayers),
            guardians=addresses("guardian", self.guardians),
            registrars=addresses("registrar", self.registrars),
            settlers=addresses("settler", self.settlers),
            arbiters=addresses("arbiter", self.arbiters),
        )
        if faults:
            raise FileRejected(faults)
        return terms

    def _limit(self, faults: list[str]) -> MintLimit | None:
        if self.mint_limit is None:
            return None
        try:
            return MintLimit(units_of(self.mint_limit), self.mint_window_seconds)
        except ValueError as error:
            faults.append(f"--mint-limit {self.mint_limit}: {error}")
            return None


def _parse_address(text: str) -> Address:
    """Raises ValueError, also for a wrong checksum: a role of a mistyped address is lost."""
    address = address_of(text)
    if text not in {hex_of(address), checksummed(address)}:
        raise ValueError("must be an address whose checksum (EIP-55) is right, or in lower case")
    return address


def _parse_max_fee(gwei: str) -> int:
    """Raises FileRejected."""
    wei = int(Decimal(gwei) * GWEI) if _GWEI.fullmatch(gwei) else 0
    if not 0 < wei <= FeePolicy().cap:
        maximum = FeePolicy().cap // GWEI
        raise FileRejected(
            [f"--max-fee-gwei {gwei}: must lie between 0.000000001 and {maximum}, such as 12.5"]
        )
    return wei


def deploy(
    target: DeploymentTarget,
    roles: Roles,
    key_file: Path,
    password_file: Path | None,
    *,
    max_fee_gwei: str,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """Print the deployment as JSON; for a dry run its missing steps, as JSON only with `as_json`.

    Raises Misconfigured, Unavailable.
    """
    signer = Signer(read_key(key_file, password_file))
    terms = roles.terms(signer.address)
    urls = read_node(target.config).plain_urls()
    send_mode = SendMode(fees=FeePolicy(cap=_parse_max_fee(max_fee_gwei)))
    asyncio.run(_deploy(target, urls, signer, terms, send_mode, is_dry_run, as_json))


async def _deploy(
    target: DeploymentTarget,
    urls: Sequence[str],
    signer: Signer,
    terms: DeploymentTerms,
    send_mode: SendMode,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    def executor_at(rpc: RpcClient) -> DeploymentExecutor:
        return DeploymentExecutor(
            rpc,
            signer,
            terms,
            save=lambda deployment: deployed_file.write(target.out, deployment),
            report=print_message,
            mode=send_mode,
        )

    async with agreeing_nodes(urls, target.chain_id, "--chain-id") as nodes:
        before = await _read_progress(target, nodes, signer.address)
        executor = executor_at(nodes.first)
        if is_dry_run:
            steps = await executor.preview(before)
            print_message(
                "Nothing was sent. These steps are missing:" if steps else "Nothing is missing."
            )
            if as_json:
                print_json({"missingSteps": list(steps)})
            else:
                print(*steps, sep="\n", flush=True)
            return
        done = await executor.run(before)
        await _confirm(nodes, lambda rpc: executor_at(rpc).preview(done))
    _print_next_steps(target, terms, done)
    print_json(deployed_file.as_json(done))


async def _confirm(
    nodes: AgreeingNodes, missing_steps: Callable[[RpcClient], Awaitable[Sequence[str]]]
) -> None:
    """Wait until every node shows the whole deployment. Raises NodeUnavailable."""
    if len(nodes.clients) == 1:
        return
    left = await nodes.agreed(
        "what is deployed", missing_steps, "The deployment is not known to be complete."
    )
    if left:
        raise NodeUnavailable("The nodes have lost a part of the deployment: run this again.")


async def _read_progress(
    target: DeploymentTarget, nodes: AgreeingNodes, deployer: Address
) -> Deployment:
    """The recorded deployment, or a new one. Raises Misconfigured for another chain."""
    chain_id = target.chain_id
    genesis = await nodes.agreed("the genesis block", _genesis)
    known = deployed_file.read(target.out)
    if known is None:
        # The lowest head: a node with an invented one would have the indexer begin too high.
        begun = await nodes.each(lambda rpc: begin(Node(rpc), chain_id, genesis, deployer))
        return min(begun.values(), key=attrgetter("first_block"))
    if (known.chain_id, known.genesis) != (chain_id, genesis):
        raise Misconfigured(
            f"{target.out} records a deployment on chain {known.chain_id} with genesis "
            f"{hex_of(known.genesis)}, but the node is on chain {chain_id} with genesis "
            f"{hex_of(genesis)}: name another file with --out, or use that chain's node."
        )
    return known


async def _genesis(rpc: RpcClient) -> Hash32:
    block = await Node(rpc).block(0)
    if block is None:
        raise NodeUnavailable("The node has no block 0")
    return block.hash


def _print_next_steps(target: DeploymentTarget, terms: DeploymentTerms, done: Deployment) -> None:
    print_message(f"All four contracts are deployed and checked; {target.out} records them.")
    if terms.heir is not None:
        print_message(
            f"{checksummed(terms.heir)} becomes admin by calling acceptDefaultAdminTransfer() "
            f"on each contract, at least {terms.admin_delay_seconds} seconds after the offer."
        )
    print_message(f'In the settings, section [contracts]: file = "{target.out.resolve()}", or')
    for setting, contract in CONTRACT_NAMES.items():
        print_message(f'{setting} = "{checksummed(done.address(contract))}"')
    print_message(f"first_block = {done.first_block}")

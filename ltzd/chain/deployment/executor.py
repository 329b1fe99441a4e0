"""Carries out a deployment: reads the chain, plans, sends, and repeats until nothing is left to do.

The process may be killed at any point. A transaction of an earlier run either shows on chain or is
sent once more with the same nonce. At the end the executor reads everything back.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ltzd.chain.contracts import contract_abi, reverts
from ltzd.chain.contracts.runtime_code import matches_source
from ltzd.chain.deployment.plan import (
    Deployment,
    DeploymentTerms,
    Grant,
    MintLimit,
    RoleState,
    Step,
    assign_addresses,
    faults_of,
    faults_on_chain,
    forbidden_grants,
    is_ready,
    plan,
    wanted_grants,
)
from ltzd.chain.node.answers.typed import revert_of
from ltzd.chain.node.block_refusals import lacks_block
from ltzd.chain.node.l1_costs import L1CostReader
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcCall, RpcClient, RpcError
from ltzd.chain.signing import SignedTransaction, Signer, UnsignedTransaction
from ltzd.concurrency.clock import loop_time
from ltzd.errors import FileRejected, Misconfigured, NodeUnavailable, Unavailable
from ltzd.rules.nodes.publications import PublishOutcome
from ltzd.rules.operator.fees import GWEI, FeePolicy, Fees, fees_for
from ltzd.rules.operator.l1_costs import L1Costs
from ltzd.values import ETHER, Address, Hash32, bytes_of, checksummed, hex_of

_REORG_MARGIN = 64
"""Blocks by which a reorg may lower the block of a creation."""
_CANCUN_CODE = bytes.fromhex("5f5f5f5e00")
"""Copies no bytes by MCOPY (EIP-5656), the newest instruction of the contracts."""
_ANY_CODE = bytes.fromhex("00")
"""Stops: every EVM runs it."""
_MAX_ROUNDS = 12
_MAX_READS = 60
_REFUSALS = frozenset(
    (
        PublishOutcome.REFUSED,
        PublishOutcome.REFUSED_UNEXPLAINED,
        PublishOutcome.REFUSED_FOR_GOOD,
    )
)


class SendMode(msgspec.Struct, frozen=True):
    """How transactions are sent.

    `sends_at_once` sends everything at once with estimated gas limits: right for a dev chain, where
    gas is free and each wait costs a block. `timeout_seconds` bounds the wait for receipts.
    """

    fees: FeePolicy = FeePolicy()
    sends_at_once: bool = False
    poll_seconds: float = 0.5
    timeout_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class _View:
    """The state of the chain after one block."""

    first_block: int = field(compare=False)
    nonce: int
    balance: int
    states: Mapping[str, RoleState]


class DeploymentExecutor:
    """`save` stores a deployment durably; `report` gets a sentence for each step."""

    def __init__(
        self,
        rpc: RpcClient,
        signer: Signer,
        terms: DeploymentTerms,
        save: Callable[[Deployment], None],
        report: Callable[[str], None],
        mode: SendMode | None = None,
    ) -> None:
        if faults := faults_of(terms):
            raise FileRejected(faults)
        self._rpc = rpc
        self._node = Node(rpc)
        self._signer = signer
        self._terms = terms
        self._save = save
        self._report = report
        self._mode = mode or SendMode()
        self._height = 0

    async def run(self, before: Deployment) -> Deployment:
        """Deploy what is missing and return the whole deployment.

        Raises Misconfigured, FileRejected, Unavailable; the same call later continues.
        """
        deployment = before
        view = await self._read_settled(before)
        for _ in range(_MAX_ROUNDS):
            contracts = self._assign_addresses(deployment, view)
            if contracts != deployment:
                self._save(contracts)
                deployment = contracts
            steps = plan(self._terms, deployment, view.states)
            if not steps:
                self._refuse_faults(view)
                self._save(deployment)
                return deployment
            await self._refuse_old_evm(steps)
            has_receipts = await self._send(deployment, view, steps)
            seen = await self._read(deployment) if has_receipts else None
            view = seen or await self._read_settled(deployment)
        raise NodeUnavailable(
            "The node accepts transactions but does not show their effects; try again later."
        )

    async def preview(self, before: Deployment) -> list[str]:
        """Descriptions of the steps that `run` would take. Sends and saves nothing."""
        view = await self._read_settled(before)
        steps = plan(self._terms, self._assign_addresses(before, view), view.states)
        if not steps:
            self._refuse_faults(view)
        await self._refuse_old_evm(steps)
        return [step.description for step in steps]

    def _assign_addresses(self, deployment: Deployment, view: _View) -> Deployment:
        existing = frozenset(view.states)
        return assign_addresses(
            deployment, self._signer.address, view.nonce, view.first_block, existing
        )

    def _refuse_faults(self, view: _View) -> None:
        if faults := faults_on_chain(self._terms, view.states):
            raise FileRejected(faults)

    async def _read_settled(self, deployment: Deployment) -> _View:
        """The state on which two successive reads agree.

        An earlier run's last transaction may be about to be mined, and while anvil mines a block,
        its nonces and code appear before the rest of it.
        """
        view = await self._read(deployment)
        if view is not None and not deployment.contracts:
            return view
        for _ in range(_MAX_READS):
            await asyncio.sleep(self._mode.poll_seconds)
            before, view = view, await self._read(deployment)
            if view is not None and view == before:
                return view
        raise NodeUnavailable("The node's answers keep changing; try again later.")

    async def _read(self, deployment: Deployment) -> _View | None:
        """The state after one block: the highest that was seen.

        Nodes behind one URL differ in height, and one that lags would show a step of this run as
        missing. Returns None if the answers contradict each other.
        """
        head, _ = await self._node.head_and_final()
        self._height = max(self._height, head.number)
        wallet, at = hex_of(self._signer.address), hex(self._height)
        names = list(deployment.contracts)
        calls: list[RpcCall] = [
            ("eth_getTransactionCount", (wallet, at)),
            ("eth_getBalance", (wallet, at)),
        ]
        calls += [("eth_getCode", (hex_of(deployment.address(name)), at)) for name in names]
        answers = await self._ask_at_head(calls)
        _refuse_errors(answers)
        nonce, balance, *codes = answers
        states = {}
        for name, code in zip(names, map(_bytes, codes), strict=True):
            if code:
                self._refuse_other_code(deployment, name, code)
                state = await self._read_roles(deployment.address(name), name, at)
                if state is None:
                    return None
                states[name] = state
        return _View(_first_block(self._height), _number(nonce), _number(balance), states)

    def _refuse_other_code(self, deployment: Deployment, name: str, code: bytes) -> None:
        at, ltz = deployment.address(name), deployment.address("LTZ")
        if not matches_source(name, code, deployment.chain_id, at, ltz):
            raise Misconfigured(
                f"The code at {checksummed(at)} is not this version's {name}, with "
                f"LTZ {checksummed(ltz)}; name another file, or use the ltzd that deployed it."
            )

    async def _read_roles(self, address: Address, contract: str, at: str) -> RoleState | None:
        """Return None if the calls contradict each other.

        They find no code although the block has it; or they revert, which these views never do in
        the state of one block: while anvil mines under load, `mintLimit` may see an earlier block's
        time than the mint before it.
        """
        terms = self._terms
        grants = [*wanted_grants(terms, contract), *forbidden_grants(terms, contract)]
        views: list[tuple[str, tuple[object, ...]]] = [
            ("defaultAdmin", ()),
            ("pendingDefaultAdmin", ()),
            ("defaultAdminDelay", ()),
        ]
        views += [
            ("hasRole", (contract_abi.role_id(grant.role), grant.account)) for grant in grants
        ]
        if contract == "LTZ" and terms.minter is not None:
            views.append(("mintLimit", (terms.minter,)))
        calls: list[RpcCall] = [
            ("eth_call", ({"to": hex_of(address), "data": hex_of(data)}, at))
            for data in (
                contract_abi.encode_call(contract, function, *given) for function, given in views
            )
        ]
        answers = await self._ask_at_head(calls)
        if any(answer == "0x" or _is_revert(answer) for answer in answers):
            return None
        _refuse_errors(answers)
        return _role_state(contract, grants, [function for function, _ in views], answers)

    async def _ask_at_head(self, calls: Sequence[RpcCall]) -> list[Any]:
        """The answers to calls that name a head as their block.

        The calls are repeated while the node does not hold that head: of several nodes behind one
        URL, one may name a head that another has not reached. Raises NodeUnavailable if that lasts.
        """
        for _ in range(_MAX_READS):
            answers = await self._rpc.batch(calls)
            if not any(map(_lacks_block, answers)):
                return answers
            await asyncio.sleep(self._mode.poll_seconds)
        raise NodeUnavailable(f"The node does not hold block {self._height}, which it has named.")

    async def _send(self, deployment: Deployment, view: _View, steps: list[Step]) -> bool:
        """Send the steps that can be sent now; returns whether all of them have receipts."""
        self._refuse_foreign_admin(view, steps)
        fees = await self._fees()
        self._refuse_poverty(view, steps, fees, await L1CostReader(self._node).read())
        at_once = self._mode.sends_at_once
        now = steps if at_once else [step for step in steps if is_ready(step, view.states)]
        sent = []
        for nonce, step in enumerate(now, view.nonce):
            assert step.nonce in {None, nonce}, "creations come first, with the nonces in line"
            gas_limit = step.gas_limit if at_once else await self._gas_limit(step)
            signed = self._sign(deployment.chain_id, nonce, step, gas_limit, fees)
            self._report(step.description)
            await self._publish(signed)
            sent.append((signed.hash, step))
        return await self._wait_until_mined(sent, view.nonce + len(now))

    async def _refuse_old_evm(self, steps: Sequence[Step]) -> None:
        """Refuse a chain on which the contracts could be created, but their calls would fail."""
        if all(step.to is not None for step in steps):
            return
        wallet = hex_of(self._signer.address)
        any_answer, answer = await self._rpc.batch(
            [
                ("eth_call", ({"from": wallet, "data": hex_of(code)}, "latest"))
                for code in (_ANY_CODE, _CANCUN_CODE)
            ]
        )
        lacks_it = isinstance(answer, RpcError) and answer.refusal is None  # not: too many requests
        if lacks_it and not isinstance(any_answer, RpcError):
            raise Misconfigured(
                "The chain's EVM lacks instructions of Cancun, which the contracts need: the node "
                f"answers {answer.message!r} to MCOPY. Nothing was sent. Use another chain, or "
                "wait until this one has them."
            )

    def _refuse_foreign_admin(self, view: _View, steps: Sequence[Step]) -> None:
        wallet = self._signer.address
        foreign = [
            step.description
            for step in steps
            if step.contract in view.states and view.states[step.contract].admin != wallet
        ]
        if foreign:
            raise FileRejected(
                [
                    f"{step}: only its admin can do that, not {checksummed(wallet)}"
                    for step in foreign
                ]
            )

    def _refuse_poverty(
        self, view: _View, steps: Sequence[Step], fees: Fees, l1_costs: L1Costs
    ) -> None:
        gas = sum(step.gas_limit for step in steps)
        size = sum(len(step.data) for step in steps)
        needed = gas * fees.max_fee_per_gas + l1_costs.max_fee_wei(size, gas, len(steps))
        if view.balance < needed:
            raise Misconfigured(
                f"The wallet {checksummed(self._signer.address)} holds "
                f"{view.balance / ETHER:.6g} of the chain's coin and may need "
                f"{needed / ETHER:.6g} for gas: send it some, then run this again."
            )

    async def _fees(self) -> Fees:
        head, _ = await self._node.head_and_final()
        fees = fees_for(await self._node.gas_price(head), self._mode.fees)
        if fees is None:
            raise Unavailable(
                f"Gas costs more than {self._mode.fees.cap // GWEI} gwei now; try again later."
            )
        return fees

    async def _gas_limit(self, step: Step) -> int:
        """A quarter more than the step needs now. Raises Misconfigured if it would revert."""
        call = {"from": hex_of(self._signer.address), "data": hex_of(step.data)}
        if step.to is not None:
            call["to"] = hex_of(step.to)
        try:
            return _number(await self._rpc.call("eth_estimateGas", call)) * 5 // 4
        except RpcError as error:
            reason = error.message if error.data is None else reverts.describe(error.data)
            raise Misconfigured(f"This step would fail: {step.description}: {reason}") from error

    def _sign(
        self, chain_id: int, nonce: int, step: Step, gas_limit: int, fees: Fees
    ) -> SignedTransaction:
        return self._signer.sign(
            UnsignedTransaction.with_fees(
                fees,
                chain_id=chain_id,
                nonce=nonce,
                gas_limit=gas_limit,
                to=Address(b"") if step.to is None else step.to,
                data=step.data,
            )
        )

    async def _publish(self, signed: SignedTransaction) -> None:
        """Ignore a used nonce: an earlier run used it, as the next read of the chain shows."""
        outcome, text = await self._node.publish(signed.raw)
        if outcome is PublishOutcome.UNAFFORDABLE:
            raise Misconfigured(
                f"The wallet {checksummed(self._signer.address)} cannot pay for the gas: "
                "send it some, then run this again."
            )
        if outcome in _REFUSALS:
            raise Misconfigured(f"The node refuses the transaction: {text}")

    async def _wait_until_mined(self, sent: Sequence[tuple[Hash32, Step]], next_nonce: int) -> bool:
        """Wait for all receipts; returns False if the nonces are used without them.

        Then an earlier run's transactions used the nonces. Raises Misconfigured, NodeUnavailable.
        """
        deadline = loop_time() + self._mode.timeout_seconds
        while loop_time() < deadline:
            receipts = await self._node.receipts([hash_ for hash_, _ in sent])
            for receipt, (_, step) in zip(receipts, sent, strict=True):
                if receipt is not None and not receipt.succeeded:
                    raise Misconfigured(
                        f"This step was mined in transaction {hex_of(receipt.transaction_hash)} "
                        f"but reverted: {step.description}. Run this again."
                    )
            if all(receipts):
                return True
            if await self._node.nonce(self._signer.address) >= next_nonce:
                return False
            await asyncio.sleep(self._mode.poll_seconds)
        raise NodeUnavailable(
            f"Not all was mined within {self._mode.timeout_seconds:.0f} s; run this again to go on."
        )


async def begin(node: Node, chain_id: int, genesis: Hash32, deployer: Address) -> Deployment:
    """A new deployment, which starts at the node's head."""
    head, _ = await node.head_and_final()
    return Deployment(chain_id, genesis, deployer, _first_block(head.number), {})


def _first_block(height: int) -> int:
    """A block below which nothing that is sent from now on can be mined."""
    return max(1, height + 1 - _REORG_MARGIN)


def _role_state(
    contract: str, grants: list[Grant], functions: list[str], answers: list[Any]
) -> RoleState:
    try:
        values = [
            contract_abi.decode_result(contract, function, _bytes(answer))
            for function, answer in zip(functions, answers, strict=True)
        ]
    except ValueError as error:
        raise NodeUnavailable(f"The node's answer is malformed: {error}") from error
    has = [value[0] for value in values[3 : 3 + len(grants)]]
    limit = values[-1] if functions[-1] == "mintLimit" else None
    return RoleState(
        admin=values[0][0],
        pending_admin=values[1][0],
        admin_delay_seconds=values[2][0],
        granted=frozenset(grant for grant, is_held in zip(grants, has, strict=True) if is_held),
        mint_limit=None if limit is None else MintLimit(limit[0], limit[1]),
    )


def _refuse_errors(answers: Sequence[Any]) -> None:
    for answer in answers:
        if isinstance(answer, RpcError):
            raise NodeUnavailable(f"The node cannot answer: {answer.message}") from answer


def _is_revert(answer: Any) -> bool:
    return isinstance(answer, RpcError) and revert_of(answer).data is not None


def _lacks_block(answer: Any) -> bool:
    return isinstance(answer, RpcError) and lacks_block(answer)


def _bytes(answer: Any) -> bytes:
    try:
        return bytes_of(answer)
    except (AttributeError, ValueError) as error:
        raise NodeUnavailable("The node's bytes are malformed") from error


def _number(answer: Any) -> int:
    try:
        return int(answer, 16)
    except (TypeError, ValueError) as error:
        raise NodeUnavailable("The node's number is malformed") from error

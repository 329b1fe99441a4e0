"""Signs top-ups: one wallet at a time, a fixed amount, within the bound of the day.

Balances and nonces are read every few seconds, from three nodes if there are so many; of three
answers the middle one counts. Of two balances the higher one counts, so that one lying node cannot
cause a top-up, and of two nonces the lower one, so that the node cannot make a wallet look stolen.
"""

import asyncio
import math

import structlog

from ltzd import telemetry
from ltzd.chain.node.answers.typed import Account
from ltzd.chain.node.second_opinions import compare_views
from ltzd.chain.node.view import ChainView
from ltzd.operator.funds import BALANCE
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork
from ltzd.operator.policy import DAY_SPENT
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionCall, TransactionSigner
from ltzd.rules.nodes.disagreement import prevailing
from ltzd.rules.operator.fees import Fees
from ltzd.rules.operator.sendable import TRANSACTION_GAS
from ltzd.rules.operator.top_ups import (
    OperatorBalance,
    TopUpPolicy,
    is_below_floor,
    is_within_day,
    next_top_up,
)
from ltzd.store.database import session
from ltzd.store.operator import top_ups
from ltzd.store.operator.top_ups import TopUp, TopUpTarget
from ltzd.store.operator.transactions import OpenTransaction, newly_signed
from ltzd.values import Address, hex_of

log = structlog.get_logger()


class TopUpSigner(LaneWork):
    """Keeps the lane's next nonce in memory, as `MintSigner` does.

    This work ignores a failed top-up; the day's bound counts it all the same.
    """

    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        signer: TransactionSigner,
        policy: TopUpPolicy,
        next_nonce: int,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._guard = guard
        self._signer = signer
        self._policy = policy
        self._next_nonce = next_nonce
        self._balances: tuple[OperatorBalance, ...] = ()
        self._read_at = -math.inf
        self._reported: frozenset[Address] = frozenset()

    @property
    def waits_for_block(self) -> bool:
        """Balances are read with a block."""
        return True

    async def sign_next(self, at_least: int = 1) -> int:
        fees = self._guard.fees_or_pause()
        if fees is None or not self._balances:
            return 0
        lane = self._context.lane
        async with session(self._context.pool) as connection:
            spent = await top_ups.spent_today(connection, lane.chain_id, lane.wallet)
        telemetry.TREASURY_DAY_WEI.set(spent)
        wallet = next_top_up(self._balances, spent, self._policy)
        if wallet is None:
            self._report_idle(spent)
            return 0
        async with self._context.signing_lock:
            tx = await self._fill(wallet, fees)
        if tx is None:
            return 0
        telemetry.TRANSACTIONS_CREATED.labels(lane.kind).inc()
        telemetry.TREASURY_DAY_WEI.set(spent + tx.value_wei)
        log.warning(
            "treasury.top_up",
            wallet=hex_of(wallet),
            wei=tx.value_wei,
            spent_today_wei=spent + tx.value_wei,
            transaction=tx.id,
        )
        return 1

    async def _fill(self, wallet: Address, fees: Fees) -> OpenTransaction | None:
        """Sign and store a top-up of the wallet, unless something forbids it by now."""
        call = TransactionCall(
            wallet,
            b"",
            TRANSACTION_GAS + self._signer.l1_costs.extra_gas(0),
            value_wei=self._policy.top_up_wei,
        )
        reserved_wei = self._in_flight.reserved_wei()
        obstacle = self._signer.obstacle(call, fees, reserved_wei)
        if obstacle is not None:
            self._guard.pause(obstacle.value)
            return None
        with self._in_flight.reserving(call.max_cost_wei(fees, self._signer.l1_costs)):
            tx = await self._store(call, fees, reserved_wei)
            # Whether stored or not, what is known of the wallet has changed.
            self._forget(wallet)
            if tx is not None:
                self._next_nonce += 1
                self._in_flight.add(tx)
                self._guard.resume()
        return tx

    async def _store(
        self, call: TransactionCall, fees: Fees, reserved_wei: int
    ) -> OpenTransaction | None:
        """Return None if the day's bound, or the wallet's row, forbids the top-up by now."""
        attempt = await self._signer.sign(self._next_nonce, call, fees, reserved_wei)
        top_up = TopUp(self._next_nonce, call.to, call.value_wei, call.gas_limit)
        async with session(self._context.pool) as connection:
            id_ = await top_ups.store_signed(
                connection, self._context.lane, top_up, attempt, self._policy.max_wei_per_day
            )
        if id_ is None:
            return None
        return newly_signed(
            id_, top_up.nonce, top_up.gas_limit, attempt, value_wei=top_up.value_wei
        )

    def end_term(self) -> None:
        telemetry.TREASURY_DAY_WEI.set(0)  # The next holder shows its own figures.
        telemetry.FOREIGN_WALLETS.set(0)

    async def refresh(self, view: ChainView) -> None:
        """Read the balances of all wallets that may get a top-up, every few seconds."""
        now = self._context.clock()
        if now - self._read_at < self._policy.check_seconds:
            return
        targets = await self._targets()
        shown = await asyncio.gather(*(_shown(view, target.wallet) for target in targets))
        by_wallet = {target.wallet: each for target, each in zip(targets, shown, strict=True)}
        # The nonces given out are read after the chain: a lane may have signed meanwhile.
        self._balances = tuple(
            OperatorBalance(
                target.wallet,
                target.kind,
                *by_wallet[target.wallet],
                target.given_out,
                target.has_open,
                target.has_displaced,
            )
            for target in await self._targets()
            if target.wallet in by_wallet
        )
        self._read_at = now
        self._report_foreign()

    async def _targets(self) -> list[TopUpTarget]:
        async with session(self._context.pool) as connection:
            return await top_ups.targets(connection, self._context.lane.chain_id)

    def _forget(self, wallet: Address) -> None:
        """Decide about the wallet again only after its balance is read anew."""
        self._balances = tuple(each for each in self._balances if each.wallet != wallet)

    def _report_idle(self, spent: int) -> None:
        """Record why no wallet is filled although one is below its floor."""
        is_wanted = any(
            is_below_floor(each, self._policy) and not each.has_open for each in self._balances
        )
        if is_wanted and not is_within_day(spent, self._policy):
            self._guard.pause(DAY_SPENT)
        else:
            self._guard.resume()

    def _report_foreign(self) -> None:
        foreign = frozenset(each.wallet for each in self._balances if each.is_in_foreign_hands)
        for wallet in foreign - self._reported:
            log.critical(
                "treasury.foreign_signer",
                wallet=hex_of(wallet),
                help="something else signs with this wallet's key: it gets no top-ups; retire it",
            )
        self._reported = foreign
        telemetry.FOREIGN_WALLETS.set(len(foreign))


async def _shown(view: ChainView, wallet: Address) -> tuple[int, int]:
    """The balance and the nonce that count among those that nodes show. Raises NodeUnavailable."""

    async def read(view: ChainView) -> Account:
        return await view.account(wallet)

    compared = await compare_views(view, await read(view), read, _balance, BALANCE)
    accounts = compared.answers
    return prevailing(accounts, _balance).balance, prevailing(accounts, _few_nonces).nonce


def _balance(account: Account) -> int:
    return account.balance


def _few_nonces(account: Account) -> int:
    return -account.nonce

"""The mint lane: mints queued rewards, each reference once."""

from collections.abc import Sequence

from ltzd.chain.contracts import ltz
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.node.view import ChainView
from ltzd.chain.signing import WalletSigner
from ltzd.errors import NodeUnavailable
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane import WalletLane
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.lane_work import LaneWork, OutcomeSink, RewardOutcomeSink
from ltzd.operator.mints.gas import MintGas
from ltzd.operator.mints.signer import MintCounters, MintSigner
from ltzd.operator.mints.simulation import MintSimulator
from ltzd.operator.policy import MINT, InProcessHooks, LanePolicy, MintTarget, Stopped
from ltzd.operator.send_guard import SendGuard
from ltzd.operator.signing import TransactionSigner
from ltzd.rules.operator.references import WORD, LaneReferences
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import lanes, rewards, transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.wakeups import REWARDS, WakeupHub

_WORDS_AHEAD = 16
"""Words of references above the counter that are checked. Each lane may hold two of which LTZ has
minted nothing, so used words need not follow upon each other."""


class MintLane(WalletLane):
    kind = MINT
    channel = REWARDS

    def __init__(
        self,
        pool: Pool,
        database_url: str,
        node: Node,
        signer: WalletSigner,
        target: MintTarget,
        wakeups: WakeupHub,
        policy: LanePolicy,
        hooks: InProcessHooks | None = None,
    ) -> None:
        super().__init__(pool, database_url, node, signer, target.chain_id, wakeups, policy)
        self._target = target
        self._hooks = hooks or InProcessHooks()
        self._references = LaneReferences()

    def _outcome_sink(self) -> OutcomeSink:
        return RewardOutcomeSink(self._wakeups, self._hooks)

    async def _lane_work(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        signer: TransactionSigner,
        next_nonce: int,
    ) -> LaneWork:
        async with session(self._pool) as connection:
            has_reverted = await transactions.has_reverted(connection, context.lane)
            ran_out_of_gas = await transactions.has_run_out_of_gas(connection, context.lane)
            last_brand = await rewards.last_brand(connection, self._references.next_seq)
        gas = MintGas(context, self._target, signer)
        simulator = MintSimulator(context, self._target, gas, must_simulate=has_reverted)
        counters = MintCounters(next_nonce, self._references, last_brand, ran_out_of_gas)
        return MintSigner(
            context, in_flight, guard, signer, self._target, simulator, counters, self._hooks
        )

    async def _begin_term(self, used: int) -> tuple[Lane, int]:
        """Check the references against the chain, then count the epoch up."""
        wallet, target = self._signer.address, self._target
        first_seq = await self._check_references()
        async with transaction(self._pool) as connection:
            await lanes.create_counter(connection, target.chain_id, target.ltz, first_seq)
            lane = await lanes.begin_term(connection, target.chain_id, wallet, self.kind, used)
            next_nonce = await lanes.next_nonce(connection, target.chain_id, wallet)
            self._references = await lanes.references(connection, target.chain_id, wallet)
        assert next_nonce is not None
        return lane, next_nonce

    async def _given_out(self) -> tuple[int | None, LaneReferences]:
        """The counter of all lanes, and the references that this lane may still give out."""
        async with session(self._pool) as connection:
            counter = await lanes.next_seq(connection, self._target.chain_id, self._target.ltz)
            held = await lanes.references(connection, self._target.chain_id, self.wallet)
        return counter, held

    async def _check_references(self) -> int:
        """The counter, after a check that LTZ has minted no reference which is not given out.

        These are all references at or above the counter, and the rest of the lane's own words
        (contracts.md, refWord). Without a counter (a new database on a used LTZ) counting begins
        above every used reference. Raises Stopped.
        """
        counter, held = await self._given_out()
        while counter is not None:
            view = await ChainView.newest(self._node)
            used = await self._used_although_not_given_out(view, counter, held)
            if used is None:
                return counter
            before = counter, held
            counter, held = await self._given_out()
            if (counter, held) == before:
                raise Stopped(
                    f"LTZ has minted reference {used}, which the database has not given out: "
                    "the database is an old copy"
                )
            # Another lane has taken the word meanwhile.
        return await self._first_unused_word() * WORD

    async def _used_although_not_given_out(
        self, view: ChainView, counter: int, held: LaneReferences
    ) -> int | None:
        """The lowest seq that LTZ has minted and no lane has given out, if there is one."""
        unused = {word: held.unused_in(word) for word in held.words()}
        first = counter // WORD
        for word in range(first, first + _WORDS_AHEAD):
            unused[word] = unused.get(word, 0) | (1 << WORD) - 1
        unused[first] &= -1 << counter % WORD
        words = sorted(unused)
        for word, used in zip(words, await self._ref_words(view, words), strict=True):
            foreign = used & unused[word]
            if foreign:
                return word * WORD + (foreign & -foreign).bit_length() - 1
        return None

    async def _first_unused_word(self) -> int:
        """The first word behind all used ones; lanes may have left gaps between these."""
        view = await ChainView.newest(self._node)
        first = word = 0
        while word < first + _WORDS_AHEAD:
            following = range(word, word + _WORDS_AHEAD)
            for at, used in zip(following, await self._ref_words(view, following), strict=True):
                first = at + 1 if used else first
            word += _WORDS_AHEAD
        return first

    async def _ref_words(self, view: ChainView, words: Sequence[int]) -> list[int]:
        calls = [(self._target.ltz, ltz.ref_word_call(word)) for word in words]
        try:
            return [int.from_bytes(answer, "big") for answer in await view.views(calls)]
        except RpcError as error:
            raise NodeUnavailable(f"refWord: {error.message}") from error

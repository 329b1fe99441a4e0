"""Each reward is minted once, whatever a thief of a mint wallet's key does.

The model has LTZ's bitmap, a stolen wallet and a sound one. The states come from `advance`; the
model carries the effects out as the lanes do. Blocks are final at once.
"""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ltzd.rules.operator.transactions import (
    Effect,
    Finalized,
    Inclusion,
    MintingRevoked,
    NonceTaken,
    Observation,
    ReceiptSeen,
    State,
    Transaction,
    advance,
)
from ltzd.values import Hash32

BLOCK = Hash32(b"\x07" * 32)
REWARDS = 3
STOLEN, SOUND = "stolen", "sound"
THIEF = -1


@dataclass
class Mint:
    wallet: str
    nonce: int
    references: dict[int, int]
    """The seq of each reward."""
    tx: Transaction = field(default_factory=lambda: Transaction(State.SIGNED))
    succeeded: bool | None = None
    """Whether the mined bytes did; the value is unset while they are not mined."""


class World:
    def __init__(self) -> None:
        self.used: dict[int, int] = {}
        """LTZ's bitmap: the reward, or the thief, that has used a seq."""
        self.minted = [0] * REWARDS
        self.seqs: list[int | None] = [None] * REWARDS
        self.next_seq = 0
        self.queue = set(range(REWARDS))
        self.mints: list[Mint] = []
        self.next_nonce = {STOLEN: 0, SOUND: 0}
        self.taken: dict[tuple[str, int], Mint | None] = {}
        """The nonces that are used on chain; None: by the thief."""
        self.has_role = True

    def sign(self, wallet: str, count: int) -> None:
        rewards = sorted(self.queue)[:count]
        if not rewards:
            return
        for reward in rewards:
            if self.seqs[reward] is None:
                self.seqs[reward] = self.next_seq
                self.next_seq += 1
        seqs = {reward: seq for reward in rewards if (seq := self.seqs[reward]) is not None}
        self.mints.append(Mint(wallet, self.next_nonce[wallet], seqs))
        self.next_nonce[wallet] += 1
        self.queue -= set(rewards)

    def mine(self, mint: Mint) -> None:
        """Executes stored bytes, as miners may at any time; nonces go in order."""
        used = sum(wallet == mint.wallet for wallet, _ in self.taken)
        if mint.nonce != used:
            return
        self.taken[mint.wallet, mint.nonce] = mint
        single = next(iter(mint.references.values())) if len(mint.references) == 1 else None
        is_refused = single is not None and single in self.used
        mint.succeeded = (mint.wallet == SOUND or self.has_role) and not is_refused
        if not mint.succeeded:
            return
        for reward, seq in mint.references.items():
            if seq not in self.used:
                self.used[seq] = reward
                self.minted[reward] += 1

    def steal_nonce(self) -> None:
        used = sum(wallet == STOLEN for wallet, _ in self.taken)
        self.taken[STOLEN, used] = None

    def steal_reference(self, seq: int) -> None:
        if self.has_role:
            self.used.setdefault(seq, THIEF)

    def observe(self, mint: Mint) -> None:
        """One round of the lane that watches this mint."""
        for observation in self._observations(mint):
            mint.tx, effects = advance(mint.tx, observation)
            self._carry_out(mint, effects)

    def _observations(self, mint: Mint) -> list[Observation]:
        if mint.tx.state not in {State.SIGNED, State.PUBLISHED}:
            return []
        if mint.succeeded is not None:
            inclusion = Inclusion(7, BLOCK, mint.succeeded)
            has_skipped = mint.succeeded and bool(self._skipped(mint))
            return [ReceiptSeen(inclusion), Finalized(has_skipped)]
        if self.taken.get((mint.wallet, mint.nonce), mint) is None:
            return [NonceTaken()]
        if mint.wallet == STOLEN and not self.has_role:
            return [MintingRevoked()]
        return []

    def _skipped(self, mint: Mint) -> list[int]:
        """The rewards without a mint whose seq another one has used."""
        return [
            reward
            for reward, seq in mint.references.items()
            if not self.minted[reward] and seq in self.used
        ]

    def _carry_out(self, mint: Mint, effects: list[Effect]) -> None:
        if Effect.REQUEUE in effects:
            self.queue |= {reward for reward in mint.references if not self.minted[reward]}
        if Effect.RENEW in effects:
            for reward in self._skipped(mint):
                self.seqs[reward] = None
                self.queue.add(reward)

    def renew_queued(self) -> None:
        """As after a simulation that LTZ answers with RefAlreadyUsed."""
        for reward in self.queue:
            if not self.minted[reward] and self.seqs[reward] in self.used:
                self.seqs[reward] = None
        self.queue = {reward for reward in self.queue if not self.minted[reward]}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("sign"), st.sampled_from([STOLEN, SOUND]), st.integers(1, REWARDS)),
        st.tuples(st.just("mine"), st.integers(0, 9)),
        st.tuples(st.just("observe"), st.integers(0, 9)),
        st.tuples(st.just("nonce")),
        st.tuples(st.just("reference"), st.integers(0, 6)),
        st.tuples(st.just("role"), st.booleans()),
    ),
    max_size=40,
)


def carry_out(world: World, step: tuple[object, ...]) -> None:
    match step:
        case ("sign", str(wallet), int(count)):
            world.sign(wallet, count)
        case ("mine", int(number)) if number < len(world.mints):
            world.mine(world.mints[number])
        case ("observe", int(number)) if number < len(world.mints):
            world.observe(world.mints[number])
        case ("nonce",):
            world.steal_nonce()
        case ("reference", int(seq)):
            world.steal_reference(seq)
        case ("role", bool(has_role)):
            world.has_role = has_role


@settings(max_examples=400)
@given(steps)
def test_a_thief_neither_loses_nor_doubles_a_reward(history: list[tuple[object, ...]]) -> None:
    world = World()
    for step in history:
        carry_out(world, step)
        assert max(world.minted) <= 1, "a reward was minted twice"
    # The runbook: the role is taken, and the sound wallet mints what is left.
    world.has_role = False
    for _ in range(REWARDS + 3):
        for mint in list(world.mints):
            if mint.wallet == SOUND:
                world.mine(mint)
            world.observe(mint)
        world.renew_queued()
        world.sign(SOUND, REWARDS)
    # Old bytes may be mined at any later time.
    for mint in world.mints:
        world.has_role = True
        world.mine(mint)
    assert world.minted == [1] * REWARDS

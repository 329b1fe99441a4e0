"""The contracts' state after a block, as plain values, and the logs by which it changes.

Nothing here uses ltzd's decoders or SQL, so the index has an independent oracle. Each operation
changes the state and returns the logs that the contract would emit.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ltzd.values import LTZ, ZERO_ADDRESS, Address, reward_reference
from tests.support.chain.fake_node import (
    Log,
    claim_logs,
    collection_log,
    collection_updated_log,
    item_log,
    locked_log,
    minted_log,
    purchase_log,
    redeemed_log,
    released_log,
    token_moved_log,
    transfer_log,
)
from tests.support.rows.core import a_wallet

WALLETS = tuple(map(a_wallet, range(1, 7)))
COLLECTIONS = (1, 2, 3)
ITEMS = (1, 2)
CHARGES = 3


@dataclass(frozen=True)
class Reward:
    """A row of `rewards` that a log may mint."""

    id: UUID
    seq: int
    wallet: Address
    ltz: int

    @property
    def reference(self) -> bytes:
        return reward_reference(self.id, 1, self.seq)


@dataclass
class ModelState:
    """`facts` counts the rows of each facts table."""

    rewards: Sequence[Reward]
    balances: Counter[Address] = field(default_factory=Counter)
    minted: dict[UUID, int] = field(default_factory=dict)
    """The block of each minted reward."""
    collections: dict[int, tuple[Address, int, bool, int]] = field(default_factory=dict)
    """Payout, price, whether it is active, and its number of tokens."""
    tokens: dict[int, tuple[Address, int | None]] = field(default_factory=dict)
    """Holder, and the charges left, which are None before the first redemption."""
    claims: Counter[tuple[Address, int]] = field(default_factory=Counter)
    items: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Stock and sold."""
    deals: dict[bytes, tuple[str, int]] = field(default_factory=dict)
    facts: Counter[str] = field(default_factory=Counter)

    def copy(self) -> "ModelState":
        return ModelState(
            self.rewards,
            self.balances.copy(),
            dict(self.minted),
            dict(self.collections),
            dict(self.tokens),
            self.claims.copy(),
            dict(self.items),
            dict(self.deals),
            self.facts.copy(),
        )

    def random_logs(self, chance: random.Random, number: int, count: int) -> list[Log]:
        """The logs of `count` operations of block `number`; an impossible one has no logs."""
        operations: tuple[Callable[[random.Random, int], list[Log]], ...] = (
            self._give,
            self._pay,
            self._pay,
            self._burn,
            self._mint_reward,
            self._create_collection,
            self._update_collection,
            self._claim,
            self._claim,
            self._move_token,
            self._redeem,
            self._set_item,
            self._purchase,
            self._lock,
            self._release,
        )
        return [log for _ in range(count) for log in chance.choice(operations)(chance, number)]

    # LTZ

    def _give(self, chance: random.Random, _number: int) -> list[Log]:
        return self._transfer(ZERO_ADDRESS, chance.choice(WALLETS), chance.randint(1, 2**80))

    def _pay(self, chance: random.Random, _number: int) -> list[Log]:
        """Some payments are of everything, of nothing, or to the payer."""
        sender, recipient = chance.choice(WALLETS), chance.choice(WALLETS)
        held = self.balances[sender]
        amount = chance.choice((0, held, held // 2, chance.randint(0, held)))
        return self._transfer(sender, recipient, amount)

    def _burn(self, chance: random.Random, _number: int) -> list[Log]:
        owner = chance.choice(WALLETS)
        return self._transfer(owner, ZERO_ADDRESS, self.balances[owner] // 3)

    def _mint_reward(self, chance: random.Random, number: int) -> list[Log]:
        left = [reward for reward in self.rewards if reward.id not in self.minted]
        if not left:
            return []
        reward = chance.choice(left)
        self.minted[reward.id] = number
        self.facts["mints"] += 1
        amount = reward.ltz * LTZ
        return [
            *self._transfer(ZERO_ADDRESS, reward.wallet, amount),
            minted_log(reward.wallet, reward.reference, amount),
        ]

    def _transfer(self, sender: Address, recipient: Address, amount: int) -> list[Log]:
        self.balances[sender] -= amount
        self.balances[recipient] += amount
        self.facts["transfers"] += 1
        return [transfer_log(sender, recipient, amount)]

    # PerkNFT

    def _create_collection(self, chance: random.Random, _number: int) -> list[Log]:
        left = [id_ for id_ in COLLECTIONS if id_ not in self.collections]
        if not left:
            return []
        id_, brand = left[0], chance.choice(WALLETS)
        self.collections[id_] = (brand, LTZ, True, 0)
        self.facts["collection_facts"] += 1
        return [collection_log(id_, brand, CHARGES)]

    def _update_collection(self, chance: random.Random, _number: int) -> list[Log]:
        if not self.collections:
            return []
        id_ = chance.choice(sorted(self.collections))
        payout, price = chance.choice(WALLETS), chance.randint(0, 2**90)
        self.collections[id_] = (payout, price, False, self.collections[id_][3])
        self.facts["collection_facts"] += 1
        return [collection_updated_log(id_, payout, price)]

    def _claim(self, chance: random.Random, _number: int) -> list[Log]:
        if not self.collections:
            return []
        id_, user = chance.choice(sorted(self.collections)), chance.choice(WALLETS)
        *settings, minted = self.collections[id_]
        token = (id_ << 32) + minted + 1
        self.collections[id_] = (*settings, minted + 1)  # type: ignore[assignment]
        self.tokens[token] = (user, None)
        self.claims[user, id_] += 1
        self.facts += Counter(perk_transfers=1, perk_claims=1)
        return claim_logs(user, token, self.claims[user, id_])

    def _move_token(self, chance: random.Random, _number: int) -> list[Log]:
        if not self.tokens:
            return []
        token, recipient = chance.choice(sorted(self.tokens)), chance.choice(WALLETS)
        holder, left = self.tokens[token]
        self.tokens[token] = (recipient, left)
        self.facts["perk_transfers"] += 1
        return [token_moved_log(holder, recipient, token)]

    def _redeem(self, chance: random.Random, _number: int) -> list[Log]:
        usable = [token for token, (_, left) in self.tokens.items() if left != 0]
        if not usable:
            return []
        token = chance.choice(sorted(usable))
        holder, left = self.tokens[token]
        remaining = (CHARGES if left is None else left) - 1
        self.tokens[token] = (holder, remaining)
        self.facts["charge_redemptions"] += 1
        return [redeemed_log(token, holder, 1, remaining)]

    # PointsSale and BusinessEscrow

    def _set_item(self, chance: random.Random, _number: int) -> list[Log]:
        id_, stock = chance.choice(ITEMS), chance.randint(1, 99)
        self.items[id_] = (stock, self.items.get(id_, (0, 0))[1])
        self.facts["item_settings"] += 1
        return [item_log(id_, WALLETS[0], stock)]

    def _purchase(self, chance: random.Random, _number: int) -> list[Log]:
        if not self.items:
            return []
        id_, quantity = chance.choice(sorted(self.items)), chance.randint(1, 3)
        stock, sold = self.items[id_]
        self.items[id_] = (stock, sold + quantity)
        self.facts["purchases"] += 1
        return [purchase_log(id_, chance.choice(WALLETS), quantity)]

    def _lock(self, chance: random.Random, _number: int) -> list[Log]:
        deal, amount = chance.randbytes(32), chance.randint(1, 2**80)
        self.deals[deal] = ("locked", amount)
        self.facts["deal_facts"] += 1
        return [locked_log(deal, WALLETS[0], WALLETS[1], amount)]

    def _release(self, chance: random.Random, _number: int) -> list[Log]:
        open_ = [deal for deal, (state, _) in self.deals.items() if state == "locked"]
        if not open_:
            return []
        deal = chance.choice(sorted(open_))
        amount = self.deals[deal][1]
        self.deals[deal] = ("released", amount)
        self.facts["deal_facts"] += 1
        return [released_log(deal, WALLETS[0], WALLETS[1], amount)]

"""Random calls of the four contracts by anybody, many in a block and several in a transaction.

Holders call for themselves; nothing passes through ltzd. Many calls revert, as a whole transaction.
"""

import random
from collections.abc import Callable, Sequence

from ltzd.chain.contracts import contract_abi
from ltzd.chain.signing import UnsignedTransaction
from ltzd.rules.operator.fees import GWEI
from ltzd.values import LTZ, Address, hex_of
from tests.support.chain.contracts import HOUR, Contracts, Party, a_reference

ITEMS = (0, 1, 2**256 - 1)
_GAS_LIMIT = 900_000
_ANY_PRICE = 10**30
_MOST_32, _MOST_16 = 2**32 - 1, 2**16 - 1
_SERIALS = 6

Transaction = tuple[Party, str, list[bytes]]
"""The sender, a contract, and calls of it, which a multicall makes."""


class RandomCalls:
    """`parties` hold LTZ and tokens; `deals` are the ids of all deals, locked or not."""

    def __init__(self, deployed: Contracts, seed: int) -> None:
        self._deployed = deployed
        self._chance = random.Random(seed)
        self._collections = 0
        self._seq = 1_000
        self._now = 0
        self._tokens: list[tuple[int, Party, int]] = []
        """Tokens of the users with the charges left, as of the newest block."""
        self.users = [Party() for _ in range(5)]
        self.brands = [Party() for _ in range(2)]
        self.businesses = [Party() for _ in range(2)]
        self.deals: list[bytes] = []

    @property
    def parties(self) -> list[Party]:
        return [*self.users, *self.brands, *self.businesses]

    async def prepare(self) -> None:
        """Collections, items and businesses; every user holds LTZ and allows all to spend them."""
        deployed = self._deployed
        for party in self.parties:
            await deployed.give_gas_money(party)
        for user in self.users:
            await deployed.mint(user, 1_000)
            for spender in ("PerkNFT", "PointsSale", "BusinessEscrow"):
                await deployed.send(user, "LTZ", "approve", deployed.at[spender], _ANY_PRICE)
        for business in self.businesses:
            await deployed.send(
                deployed.registrar, "BusinessEscrow", "setBusiness", business.address, True
            )
        for _ in range(3):
            await self._publish(*self._created())
        for item in ITEMS:
            await self._publish(*self._set(item))

    async def mine(self, most: int = 8) -> None:
        """Mine a block of up to `most` random transactions. The chain mines on request."""
        self._now = await self._deployed.now()
        await self._read_tokens()
        kinds: Sequence[Callable[[], Transaction]] = (
            *(self._of_ltz, self._of_ltz, self._of_tokens, self._of_tokens, self._redeemed),
            *(self._bought, self._of_brand, self._of_registrar, self._locked, self._ended),
            *(self._minted, self._created, lambda: self._set(self._chance.choice(ITEMS))),
        )
        for _ in range(self._chance.randint(0, most)):
            await self._publish(*self._chance.choice(kinds)())
        if self._chance.random() < 0.05:
            await self._deployed.let_pass(2 * HOUR)
        await self._deployed.rpc.call("evm_mine")

    async def _read_tokens(self) -> None:
        deployed, by_address = self._deployed, {user.address: user for user in self.users}
        self._tokens = []
        self._collections = await deployed.view("PerkNFT", "collectionCount")
        for collection in range(1, self._collections + 1):
            _, minted, _ = await deployed.view("PerkNFT", "collection", collection)
            for serial in range(1, min(minted, _SERIALS) + 1):
                token = collection << 32 | serial
                holder = by_address.get(await deployed.view("PerkNFT", "ownerOf", token))
                if holder is not None:
                    remaining, _ = await deployed.view("PerkNFT", "chargesOf", token)
                    self._tokens.append((token, holder, remaining))

    async def _publish(self, by: Party, contract: str, calls: Sequence[bytes]) -> None:
        deployed = self._deployed
        is_one = len(calls) == 1
        data = calls[0] if is_one else contract_abi.encode_call(contract, "multicall", calls)
        nonce = await deployed.rpc.call("eth_getTransactionCount", hex_of(by.address), "pending")
        signed = by.signer.sign(
            UnsignedTransaction(
                chain_id=deployed.chain_id,
                nonce=int(nonce, 16),
                max_priority_fee_per_gas=GWEI,
                max_fee_per_gas=1_000 * GWEI,
                gas_limit=_GAS_LIMIT,
                to=deployed.at[contract],
                value=0,
                data=data,
            )
        )
        await deployed.rpc.call("eth_sendRawTransaction", hex_of(signed.raw))

    # Transactions

    def _of_ltz(self) -> Transaction:
        user = self._chance.choice(self.users)
        return user, "LTZ", [self._ltz_call(user) for _ in range(self._few())]

    def _of_tokens(self) -> Transaction:
        chance = self._chance
        if not self._tokens or chance.random() < 0.5:
            user = chance.choice(self.users)
            return user, "PerkNFT", [self._token_call(user) for _ in range(self._few())]
        token, holder, _ = chance.choice(self._tokens)
        ways = [holder.address] * chance.choice((0, 0, 1, 2)) + [self._recipient()]
        calls = [
            contract_abi.encode_call("PerkNFT", "transferFrom", holder.address, to, token)
            for to in ways
        ]
        return holder, "PerkNFT", calls

    def _redeemed(self) -> Transaction:
        nothing = (self._token(), self._chance.choice(self.users), 3)
        token, holder, left = self._chance.choice(self._tokens or [nothing])
        amounts = (1, 2) if self._chance.random() < 0.7 else (left,)
        calls = []
        for amount in amounts:
            redemption = (token, holder.address, amount, left, a_reference())
            calls.append(contract_abi.encode_call("PerkNFT", "redeemCharge", *redemption))
            left = max(0, left - amount)
        return self._deployed.relay, "PerkNFT", calls

    def _bought(self) -> Transaction:
        order = (
            self._chance.choice(self.users).address,
            self._chance.choice(ITEMS),
            self._chance.choice((1, 2, _MOST_32)),
            _ANY_PRICE,
            a_reference(),
        )
        call = contract_abi.encode_call("PointsSale", "buyFor", *order)
        return self._deployed.relay, "PointsSale", [call]

    def _of_brand(self) -> Transaction:
        chance = self._chance
        terms = (
            chance.randint(1, self._collections),
            chance.choice((0, LTZ)),
            chance.choice((0, _MOST_32)),
            chance.choice((0, 2, _MOST_16)),
            chance.random() < 0.9,
        )
        call = contract_abi.encode_call("PerkNFT", "updateCollection", *terms)
        return chance.choice(self.brands), "PerkNFT", [call]

    def _of_registrar(self) -> Transaction:
        collection = self._chance.randint(1, self._collections)
        brand = self._chance.choice(self.brands).address
        calls = [
            contract_abi.encode_call("PerkNFT", "setBrand", collection, brand),
            contract_abi.encode_call("PerkNFT", "setPayout", collection, self._recipient()),
        ]
        return self._deployed.registrar, "PerkNFT", calls

    def _created(self) -> Transaction:
        chance = self._chance
        params = (
            chance.choice(self.brands).address,
            chance.choice(self.parties).address,
            chance.choice((0, 0, LTZ, 3)),
            chance.choice((0, 3, _MOST_32)),
            chance.choice((0, 2, _MOST_16)),
            chance.choice((0, 3, 3, _MOST_16)),
            True,
            chance.random() < 0.2,
        )
        uri = chance.choice(("", "https://perks.example/", "a\x00b", "\N{SNOWMAN}" * 40))
        call = contract_abi.encode_call("PerkNFT", "createCollection", params, uri)
        return self._deployed.registrar, "PerkNFT", [call]

    def _set(self, item: int) -> Transaction:
        chance = self._chance
        terms = (
            chance.choice(self.parties).address,
            chance.choice((0, LTZ, 7)),
            chance.choice((5, 40, _MOST_32)),
            chance.choice((0, 9)),
            chance.choice((0, 3, _MOST_16)),
            chance.random() < 0.9,
            chance.random() < 0.4,
        )
        brand = chance.choice(self.brands).address
        call = contract_abi.encode_call("PointsSale", "setItem", item, brand, terms, a_reference())
        return self._deployed.registrar, "PointsSale", [call]

    def _locked(self) -> Transaction:
        chance = self._chance
        is_new = not self.deals or chance.random() < 0.8
        deal = a_reference() if is_new else chance.choice(self.deals)
        self.deals.append(deal)
        business, amount = chance.choice(self.businesses).address, chance.choice((1, LTZ))
        lock = (business, amount, self._now + HOUR + 600, deal)
        calls = [contract_abi.encode_call("BusinessEscrow", "lock", *lock)]
        if chance.random() < 0.4:
            calls.append(contract_abi.encode_call("BusinessEscrow", "release", deal))
        return chance.choice(self.users), "BusinessEscrow", calls

    def _ended(self) -> Transaction:
        deployed, chance = self._deployed, self._chance
        deal = chance.choice(self.deals or [bytes(32)])
        by, function, *rest = chance.choice(
            (
                (deployed.settler, "release"),
                (deployed.settler, "refund"),
                (chance.choice(self.businesses), "refund"),
                (chance.choice(self.users), "release"),
                (chance.choice(self.users), "reclaim"),
                (deployed.arbiter, "split", chance.choice((0, 1, LTZ))),
            )
        )
        call = contract_abi.encode_call("BusinessEscrow", str(function), deal, *rest)
        assert isinstance(by, Party)
        return by, "BusinessEscrow", [call]

    def _minted(self) -> Transaction:
        """A batch with runs of neighbours, and with references that were used before."""
        rewards = []
        for _ in range(self._chance.randint(0, 6)):
            self._seq += self._chance.choice((0, 1, 1))
            reference = a_reference()[:24] + self._seq.to_bytes(8, "big")
            user = self._chance.choice(self.users[:2])
            rewards.append((user.address, self._chance.randint(1, 5 * LTZ), reference))
        call = contract_abi.encode_call("LTZ", "mintRewardBatch", rewards)
        return self._deployed.minter, "LTZ", [call]

    # Calls

    def _ltz_call(self, user: Party) -> bytes:
        chance, to = self._chance, self._recipient()
        amount = chance.choice((0, 1, LTZ, 50 * LTZ, 3 * LTZ + 7, 2_000 * LTZ))
        function, *arguments = chance.choice(
            (
                ("transfer", to, amount),
                ("transfer", user.address, amount),
                ("transferFrom", chance.choice(self.users).address, to, 0),
                ("transferFrom", chance.choice(self.users).address, to, amount),
                ("burn", amount),
                ("approve", to, _ANY_PRICE),
            )
        )
        return contract_abi.encode_call("LTZ", str(function), *arguments)

    def _token_call(self, user: Party) -> bytes:
        chance, token = self._chance, self._token()
        claim = ("claim", chance.randint(1, self._collections), _ANY_PRICE, a_reference())
        function, *arguments = chance.choice(
            (
                *(claim, claim, claim),
                ("transferFrom", user.address, self._recipient(), token),
                ("transferFrom", user.address, user.address, token),
                ("transferFrom", chance.choice(self.users).address, self._recipient(), token),
                ("setApprovalForAll", chance.choice(self.users).address, True),
            )
        )
        return contract_abi.encode_call("PerkNFT", str(function), *arguments)

    def _recipient(self) -> Address:
        """A party, and now and then a contract, from which nothing returns."""
        contracts = list(self._deployed.at.values())
        is_lost = self._chance.random() < 0.05
        return self._chance.choice(
            contracts if is_lost else [each.address for each in self.parties]
        )

    def _token(self) -> int:
        collection = self._chance.randint(1, self._collections)
        return collection << 32 | self._chance.randint(1, _SERIALS)

    def _few(self) -> int:
        return self._chance.choice((1, 1, 1, 2, 4))

"""A node in memory with behaviour: it mines transactions, drops blocks and gives false answers.

The fake replaces `Rpc`, so `Node` and everything above it are real. LTZ mints, skips or refuses
used references, and logs as contracts/src/LTZ.sol does. Other contracts accept any call, or revert
where a test says so, and log what the test wants.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from eth_abi.abi import decode, encode
from eth_account import Account
from eth_bloom.bloom import BloomFilter
from eth_hash.auto import keccak
from rlp.codec import decode as rlp_decode

from ltzd.chain.node.node import Node
from ltzd.chain.node.refusals import classify_error
from ltzd.chain.node.rpc import Rpc, RpcCall, RpcError
from ltzd.chain.signing import Signer, UnsignedTransaction
from ltzd.errors import NodeUnavailable
from ltzd.indexer.contracts import indexed_contracts
from ltzd.rules.operator.fees import GWEI
from ltzd.rules.operator.sendable import min_gas_limit
from ltzd.values import Address, Hash32, address_of, bytes_of, hash_of, hex_of
from tests.support.chain.compiled_code import code_at

CHAIN_ID: Final = 31337
LTZ_AT: Final = Address(b"\x17" * 20)
OTHERS_AT: Final = tuple(Address(bytes((byte,)) * 20) for byte in (0x71, 0x72, 0x73))
"""PerkNFT, PointsSale and BusinessEscrow: they log what a test says, and do nothing."""
ADDRESSES: Final = dict(
    zip(("ltz", "perk_nft", "points_sale", "business_escrow"), (LTZ_AT, *OTHERS_AT), strict=True)
)
CODES: Final = {
    at: code_at(name, at)
    for name, at in zip(
        ("LTZ", "PerkNFT", "PointsSale", "BusinessEscrow"), ADDRESSES.values(), strict=True
    )
}
"""The code at each contract's address."""
CONTRACTS: Final = indexed_contracts(ADDRESSES)
ETHER: Final = 10**18

_MINT: Final = keccak(b"mintReward(address,uint256,bytes32)")[:4]
_MINT_BATCH: Final = keccak(b"mintRewardBatch((address,uint96,bytes32)[])")[:4]
_REF_WORD: Final = keccak(b"refWord(uint256)")[:4]
_MINT_LIMIT: Final = keccak(b"mintLimit(address)")[:4]
_HAS_ROLE: Final = keccak(b"hasRole(bytes32,address)")[:4]
_TOTAL_SUPPLY: Final = keccak(b"totalSupply()")[:4]
_BALANCE_OF: Final = keccak(b"balanceOf(address)")[:4]
_TRANSFER: Final = keccak(b"Transfer(address,address,uint256)")
_MINTED: Final = keccak(b"RewardMinted(address,bytes32,uint256)")
_SKIPPED: Final = keccak(b"RewardSkipped(address,bytes32,uint256)")

_LEAST_BUMP_PERCENT: Final = 10


class Reverted(Exception):
    """A revert; `data` is a custom error or a revert string."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data.hex())
        self.data = data


def custom_error(signature: str, *arguments: object) -> bytes:
    types = signature[signature.index("(") + 1 : -1]
    return keccak(signature.encode())[:4] + encode(types.split(",") if types else [], arguments)


def a_revert_string(text: str) -> bytes:
    return custom_error("Error(string)", text)


@dataclass(frozen=True)
class Log:
    topics: Sequence[bytes]
    data: bytes
    address: Address = LTZ_AT


def transfer_log(sender: bytes, recipient: bytes, amount: int) -> Log:
    return Log([_TRANSFER, _word(sender), _word(recipient)], amount.to_bytes(32, "big"))


def minted_log(recipient: bytes, reference: bytes, amount: int) -> Log:
    return Log([_MINTED, _word(recipient), reference], amount.to_bytes(32, "big"))


def _log(address: Address, signature: str, indexed: Sequence[bytes | int], *data: Any) -> Log:
    """Returns a log of another contract; the last types of the signature are those of the data."""
    types = _types(signature)[len(indexed) :]
    topics = [keccak(signature.encode()), *map(_indexed, indexed)]
    return Log(topics, encode(types, data), address)


def _types(signature: str) -> list[str]:
    """The types of a signature with at most one tuple, which counts as one type."""
    inner = signature[signature.index("(") + 1 : -1]
    start, end = inner.find("("), inner.find(")") + 1
    if start < 0:
        return inner.split(",")
    before, after = inner[:start].rstrip(","), inner[end:].lstrip(",")
    return [*before.split(","), inner[start:end], *filter(None, after.split(","))]


def _indexed(value: bytes | int) -> bytes:
    return value.to_bytes(32, "big") if isinstance(value, int) else _word(value)


def collection_log(collection: int, brand: Address, charges: int = 3) -> Log:
    params = (brand, brand, 10**18, 0, 2, charges, True, False)
    return _log(
        OTHERS_AT[0],
        "CollectionCreated(uint256,address,"
        "(address,address,uint96,uint32,uint16,uint16,bool,bool),string)",
        (collection, brand),
        params,
        "https://perks.example/",
    )


def collection_updated_log(collection: int, payout: Address, price: int) -> Log:
    signature = "CollectionUpdated(uint256,address,uint96,uint32,uint16,bool)"
    return _log(OTHERS_AT[0], signature, (collection,), payout, price, 5, 1, False)


def token_moved_log(sender: bytes, recipient: bytes, token: int) -> Log:
    signature = "Transfer(address,address,uint256)"
    return _log(OTHERS_AT[0], signature, (sender, recipient, token))


def claim_logs(user: Address, token: int, claims: int = 1) -> list[Log]:
    """Returns the logs of a PerkNFT claim: the transfer, then the claim."""
    signature = "Claimed(uint256,address,uint256,uint256,uint256,bytes32)"
    arguments = (10**18, claims, b"\x0c" * 32)
    return [
        token_moved_log(bytes(20), user, token),
        _log(OTHERS_AT[0], signature, (token >> 32, user, token), *arguments),
    ]


def redeemed_log(token: int, holder: Address, amount: int, remaining: int) -> Log:
    signature = "ChargeRedeemed(uint256,address,bytes32,uint256,uint256)"
    return _log(OTHERS_AT[0], signature, (token, holder, b"\x4e" * 32), amount, remaining)


def item_log(item: int, brand: Address, stock: int, sold: int = 0) -> Log:
    return _log(
        OTHERS_AT[1],
        "ItemSet(uint256,address,(address,uint96,uint32,uint32,uint16,bool,bool),bytes32)",
        (item, brand),
        (brand, 10**18, stock, sold, 3, True, False),
        bytes(32),
    )


def purchase_log(item: int, buyer: Address, quantity: int) -> Log:
    signature = "Purchased(uint256,address,bytes32,uint256,uint256)"
    return _log(OTHERS_AT[1], signature, (item, buyer, b"\x0d" * 32), quantity, quantity * 10**18)


def locked_log(deal: bytes, user: Address, business: Address, amount: int) -> Log:
    signature = "Locked(bytes32,address,address,uint256,uint40)"
    return _log(OTHERS_AT[2], signature, (deal, user, business), amount, 1_800_000_000)


def released_log(deal: bytes, user: Address, business: Address, amount: int) -> Log:
    signature = "Released(bytes32,address,address,uint256,address)"
    return _log(OTHERS_AT[2], signature, (deal, user, business), amount, business)


@dataclass(frozen=True)
class SentTransaction:
    """A transaction as it arrived at the node."""

    raw: bytes
    hash: Hash32
    sender: Address
    nonce: int
    tip: int
    max_fee_per_gas: int
    gas_limit: int
    to: Address
    data: bytes
    value: int = 0

    @property
    def is_legacy(self) -> bool:
        return self.raw[0] >= 0xC0

    @property
    def call(self) -> tuple[Address, bytes, int]:
        """The call itself, without its fees."""
        return self.to, self.data, self.gas_limit

    @property
    def is_self_transfer(self) -> bool:
        return (self.to, self.data) == (self.sender, b"")


@dataclass(frozen=True)
class Done:
    sent: SentTransaction
    succeeded: bool
    logs: Sequence[Log]


@dataclass(frozen=True)
class Block:
    number: int
    hash: Hash32
    parent_hash: Hash32
    base_fee: int
    transactions: Sequence[Done] = ()
    emitted: Sequence[Log] = ()
    """Logs of transactions that a test does not care for."""
    nonces: dict[Address, int] = field(default_factory=dict)
    used: dict[int, bytes] = field(default_factory=dict)
    """References by seq, as of this block."""
    minted: int = 0
    """LTZ's smallest units minted up to this block."""
    gas_limit: int = 300_000_000

    def logs(self) -> Iterator[tuple[Hash32, Log]]:
        for log in self.emitted:
            yield Hash32(keccak(b"said" + self.hash)), log
        for done in self.transactions:
            for log in done.logs:
                yield done.sent.hash, log


def _as_it_is(answer: Any) -> Any:
    return answer


class FakeNode(Rpc):
    """Mines on `mine`, or at once with `mines_at_once`; tests set its faults as attributes."""

    chain_id = CHAIN_ID
    block_zero_time = 1_700_000_000
    """The time of block 0; a block comes every second."""
    simulated = 0
    is_down = False
    is_hung = False
    """True: the node accepts every request and never answers."""
    hanging = 0
    """Requests that wait for an answer of a hung node."""
    block_gas_limit = 300_000_000
    """Gas of all transactions in a block; a mint uses 30,000 for each reward."""
    mint_window_seconds = 86_400
    is_minter = True
    """True if the wallet has the MINTER role."""
    has_fee_history = True
    refuses_cheap = False
    """True: refuses prices below the next base fee, as anvil does; geth accepts them."""
    is_blind_by_hash = False
    """True: answers by block hash are empty, too."""
    is_syncing = False
    """The answer to `eth_syncing`."""
    simulates_gas = True
    """False: a simulation does not tell that the gas limit is too low."""
    lost_requests = 0
    """Publications from now on that never arrive."""
    lost_replies = 0
    """Publications from now on that arrive, but whose reply is lost."""
    refusal: str | None = None
    """The error text for every publication, or None to accept them."""
    lag = 0
    """Newest blocks that this node does not have yet."""
    empty_answers = 0
    """Requests for logs by range that are answered with an empty list."""
    unindexed_answers = 0
    """The same, for ranges that end above the final block: the node has not indexed it yet."""
    frozen_head: int | None = None
    """The height of the block that the node goes on to call its newest one."""
    reads_by_hash = True
    """False: the node knows no EIP-1898."""
    is_legacy = False
    """True: the chain has no base fees, and transactions of type 0."""
    kept_states = 1_000_000
    """The number of blocks below the head whose state the node has not pruned."""
    hides_receipts = False
    """True: the node answers null for every receipt, as while it rebuilds its index."""
    shows_pool = True
    """False: the node answers `pending` as `latest`, and knows no `txpool_contentFrom`."""
    false_nonce: int | None = None
    """The nonce that the node claims for every wallet."""
    false_gas_limit: int | None = None
    """The gas limit that the node claims for every block."""
    false_references = False
    """True: the node claims that every reference is used."""
    _salt = 0
    false_answers: dict[str, Callable[[Any], Any]]
    """By method: from the true result to what the node answers in its place."""
    panicking_wallets: Collection[bytes] = ()
    """Wallets for whose mints the contract's arithmetic underflows."""
    without_roles: Collection[bytes] = ()
    """Wallets that have no role at any contract, so their calls revert."""

    def __init__(self) -> None:
        super().__init__("fake:")
        self.blocks = [Block(0, Hash32(keccak(b"genesis")), Hash32(bytes(32)), GWEI)]
        self.pool: dict[Hash32, SentTransaction] = {}
        self.arrived: list[bytes] = []
        """Every publication that reached the node, whatever its answer was."""
        self.together: list[int] = []
        """The number of publications in each request that had any."""
        self.call_counts: Counter[str] = Counter()
        self.balances_after: list[Hash32] = []
        """The block of each balance that was asked for."""
        self.node = Node(self)

        self.base_fee, self.tip = GWEI, GWEI // 10
        self.balance = 1_000 * ETHER
        self.balances: dict[Address, int] = {}
        """The balances that differ from `balance`; transfers of native value raise them."""
        self.final_depth: int | None = 64
        """None: the node reports no finality."""
        self.mines_at_once = False
        self.cannot_simulate: Callable[[bytes], bool] = lambda _data: False
        """Calls that the node answers with an error of its own."""
        self.needed_gas: Callable[[bytes], int] = lambda _data: 0
        """The gas of a call: with a lower limit the call runs out of gas."""
        self.simulated_gas: list[int] = []
        """The gas limits of all simulations that had one."""
        self.mint_capacity = 10**30
        self.mint_filled = 10**40
        """The total that the mint limit's bucket was ever filled with."""
        self.reverts: Callable[[bytes], bool] = lambda _data: False
        """Mints that the contract reverts with a string, by their call data."""
        self.fails: Callable[[bytes], bool] = lambda _data: False
        """Calls that the other contracts revert with a string."""
        self.revoked_minters: set[bytes] = set()
        """Wallets that have lost the MINTER role."""
        self.sums_runs = True
        """Whether LTZ transfers the sum of a batch's neighbours with the same wallet once.

        A former build transfers each reward.
        """
        self.bad_wallets: set[bytes] = set()
        """Wallets that the contract mints nothing to."""

        self.refuses: Callable[[SentTransaction], bool | str] = lambda _sent: False
        """Publications to refuse: True for a full pool, or the error text."""
        self.unheard: set[Address] = set()
        """Contracts whose logs are missing from answers by range."""
        self.longest_range: int | None = None
        self.forged_receipts: dict[Hash32, dict[str, Any] | RpcError] = {}
        """Receipts that the node makes up, or errors in place of one, by transaction."""
        self.read_after: list[Hash32] = []
        """The block that each call was run after."""
        self.before: dict[str, Callable[[], object]] = {}
        """Callbacks by method, called once just before the next answer."""
        self.codes, self.false_answers = dict(CODES), {}
        self._methods = self._answered()

    def _answered(self) -> dict[str, Callable[..., Any]]:
        return {
            "eth_chainId": self._chain_id,
            "eth_syncing": lambda: self.is_syncing,
            "eth_getBlockByNumber": self._block_by_number,
            "eth_getBlockByHash": self._block_by_hash,
            "eth_getLogs": self._logs,
            "eth_getBlockReceipts": self._block_receipts,
            "eth_getTransactionReceipt": self._transaction_receipt,
            "eth_getTransactionCount": self._transaction_count,
            "eth_getBalance": self._balance,
            "eth_getCode": self._code,
            "eth_feeHistory": self._fee_history,
            "eth_gasPrice": self._gas_price,
            "eth_maxPriorityFeePerGas": self._max_priority_fee_per_gas,
            "eth_call": self._call,
            "eth_estimateGas": self._estimate_gas,
            "eth_sendRawTransaction": self._send_raw_transaction,
            "txpool_contentFrom": self._pool_of,
        }

    # --- the chain ----------------------------------------------------------------------------

    @property
    def head(self) -> Block:
        return self.blocks[-1]

    def mine(self, count: int = 1, *, logs: Sequence[Log] = (), takes_pool: bool = True) -> Block:
        """Mines blocks; `logs` are in the first of them."""
        for _ in range(count):
            self.blocks.append(self._next_block(logs, takes_pool))
            logs = ()
        return self.head

    def forget_blocks(self, depth: int, *, forgets_transactions: bool = False) -> None:
        """Removes the newest blocks; their transactions return to the pool."""
        kept = len(self.blocks) - depth
        for block in self.blocks[kept:]:
            for done in block.transactions:
                if not forgets_transactions:
                    self.pool[done.sent.hash] = done.sent
        del self.blocks[kept:]

    def reorg(self, depth: int, *, forgets_transactions: bool = False) -> None:
        """Replaces the newest blocks by other blocks and one more, all without the pool."""
        self.forget_blocks(depth, forgets_transactions=forgets_transactions)
        self.mine(depth + 1, takes_pool=False)

    def sibling(self) -> "FakeNode":
        """Returns another node of the same chain and pool, with faults and counts of its own."""
        other = type(self)()
        other.blocks, other.pool = self.blocks, self.pool
        return other

    def use_nonce(self, wallet: Signer) -> SentTransaction:
        """Mines a foreign transaction, signed with the wallet's key, and returns it."""
        nonce = self.head.nonces.get(wallet.address, 0)
        fees = (GWEI, 2 * GWEI)
        signed = wallet.sign(
            UnsignedTransaction(
                CHAIN_ID, nonce, *fees, 30_000, LTZ_AT, 0, b"foreign", self.is_legacy
            )
        )
        sent = _sent(signed.raw)
        block = self.mine(takes_pool=False)
        self.blocks[-1] = replace(block, transactions=[Done(sent, True, [])])
        self.head.nonces[wallet.address] = nonce + 1
        return sent

    def publish_elsewhere(self, raw: bytes) -> None:
        """Puts a transaction into the pool that another program has published."""
        self._take(_sent(raw))

    def nonces(self) -> dict[int, set[tuple[Address, bytes, int]]]:
        """Returns all calls that ever arrived, by nonce: two of a nonce are a double spend."""
        used: dict[int, set[tuple[Address, bytes, int]]] = {}
        for sent in self.sent():
            used.setdefault(sent.nonce, set()).add(sent.call)
        return used

    def sent(self) -> list[SentTransaction]:
        """Returns all transactions that ever arrived, in order."""
        return list(map(_sent, self.arrived))

    def minted(self) -> Counter[bytes]:
        """Counts the mints of each reference on the canonical chain."""
        return Counter(
            log.topics[2]
            for block in self.blocks
            for _, log in block.logs()
            if log.topics[0] == _MINTED
        )

    def self_transfers(self) -> list[SentTransaction]:
        """Returns the self-transfers on the canonical chain, in order."""
        return [
            done.sent
            for block in self.blocks
            for done in block.transactions
            if done.sent.is_self_transfer
        ]

    def executed(self) -> Counter[bytes]:
        """Counts each call of a contract other than LTZ on the canonical chain."""
        return Counter(
            done.sent.data
            for block in self.blocks
            for done in block.transactions
            if done.sent.to != LTZ_AT and not done.sent.is_self_transfer
        )

    def _next_block(self, logs: Sequence[Log], takes_pool: bool) -> Block:
        self._salt += 1
        parent = self.head
        number = parent.number + 1
        nonces, used = dict(parent.nonces), dict(parent.used)
        done = list(self._execute(parent, nonces, used)) if takes_pool else []
        return Block(
            number=number,
            hash=Hash32(
                keccak(parent.hash + number.to_bytes(8, "big") + self._salt.to_bytes(8, "big"))
            ),
            parent_hash=parent.hash,
            base_fee=self.base_fee,
            transactions=done,
            emitted=logs,
            nonces=nonces,
            used=used,
            minted=parent.minted + sum(map(_minted_in, done)),
            gas_limit=self.block_gas_limit,
        )

    def _execute(
        self, parent: Block, nonces: dict[Address, int], used: dict[int, bytes]
    ) -> Iterator[Done]:
        available = self._available(parent)
        left = self.block_gas_limit
        for sent in sorted(
            self.pool.values(), key=lambda sent: (sent.nonce, -sent.max_fee_per_gas)
        ):
            if sent.nonce < nonces.get(sent.sender, 0):
                del self.pool[sent.hash]
            elif sent.gas_limit > left:
                return
            elif sent.nonce == nonces.get(sent.sender, 0) and sent.max_fee_per_gas >= self.base_fee:
                left -= self.gas_used(sent)
                del self.pool[sent.hash]
                nonces[sent.sender] = sent.nonce + 1
                try:
                    self._check_sender(sent.to, sent.sender)
                    if self.needed_gas(sent.data) > sent.gas_limit:
                        raise Reverted(b"")
                    done = Done(sent, True, self._run(sent.to, sent.data, used, available))
                except Reverted:
                    done = Done(sent, False, [])
                if sent.to in self.balances:
                    self.balances[sent.to] += sent.value
                available -= _minted_in(done)
                yield done

    def _available(self, block: Block) -> int:
        """The content of the mint limit's bucket; tests refill it."""
        return min(self.mint_capacity, self.mint_filled - block.minted)

    def _run(
        self, to: Address, data: bytes, used: dict[int, bytes], available: int
    ) -> Sequence[Log]:
        if to == LTZ_AT:
            return self._mint(data, used, available)
        if self.fails(data):
            raise Reverted(a_revert_string("another contract does not like it"))
        return []

    def _mint(self, data: bytes, used: dict[int, bytes], available: int) -> list[Log]:
        """Returns the logs of a mint, and adds its references to `used`."""
        rewards = _rewards(data)
        wanted = sum(amount for _, amount, reference in rewards if _seq(reference) not in used)
        self._check(data, rewards)
        if wanted > available:
            numbers = (bytes(20), wanted, max(0, available))
            raise Reverted(custom_error("MintLimitExceeded(address,uint256,uint256)", *numbers))
        logs: list[Log] = []
        unpaid = 0
        for at, (to, amount, reference) in enumerate(rewards):
            seq = _seq(reference)
            if seq not in used:
                used[seq] = reference
                logs.append(minted_log(to, reference, amount))
                unpaid += amount
            elif len(rewards) == 1 and data[:4] == _MINT:
                raise Reverted(custom_error("RefAlreadyUsed(bytes32)", reference))
            else:
                topics = [_SKIPPED, _word(to), reference]
                logs.append(Log(topics, amount.to_bytes(32, "big")))
            ends_run = at + 1 == len(rewards) or rewards[at + 1][0] != to
            if unpaid and (ends_run or not self.sums_runs):
                logs.append(transfer_log(bytes(20), to, unpaid))
                unpaid = 0
        return logs

    def _check_sender(self, to: Address, sender: bytes) -> None:
        if (to == LTZ_AT and sender in self.revoked_minters) or sender in self.without_roles:
            role = (bytes(20), bytes(32))
            raise Reverted(custom_error("AccessControlUnauthorizedAccount(address,bytes32)", *role))

    def _check(self, data: bytes, rewards: Sequence[tuple[bytes, int, bytes]]) -> None:
        if not self.is_minter:
            role = (bytes(20), bytes(32))
            raise Reverted(custom_error("AccessControlUnauthorizedAccount(address,bytes32)", *role))
        if self.reverts(data):
            raise Reverted(a_revert_string("the contract does not like it"))
        for to, _, _ in rewards:
            if to in self.panicking_wallets:
                raise Reverted(custom_error("Panic(uint256)", 0x11))
            if to in self.bad_wallets:
                raise Reverted(custom_error("ERC20InvalidReceiver(address)", to))

    def gas_used(self, sent: SentTransaction) -> int:
        is_mint = sent.to == LTZ_AT and sent.data[:4] in {_MINT, _MINT_BATCH}
        return min(sent.gas_limit, 30_000 * len(_rewards(sent.data)) if is_mint else 50_000)

    # --- JSON-RPC -----------------------------------------------------------------------------

    def block_json(self, block: Block, *, full: bool = False) -> dict[str, Any]:
        """A block with its transactions, or with their hashes."""
        if not full:
            return self._dated(block)
        transactions = [self.transaction_json(block, done) for done in block.transactions]
        return self._dated(block) | {"transactions": transactions}

    def transaction_json(self, block: Block, done: Done) -> dict[str, Any]:
        return _transaction_fields(done.sent, block)

    def receipt_json(self, block: Block, done: Done) -> dict[str, Any]:
        return {
            "transactionHash": hex_of(done.sent.hash),
            "blockNumber": hex(block.number),
            "blockHash": hex_of(block.hash),
            "status": hex(done.succeeded),
            "gasUsed": hex(min(max(50_000, self.needed_gas(done.sent.data)), done.sent.gas_limit)),
            "effectiveGasPrice": hex(block.base_fee),
        }

    def receipts_json(self, block: Block) -> list[dict[str, Any]]:
        """All receipts of a block; one holds the logs of all transactions."""
        return [{"logs": logs_json(block, None)}]

    async def call(self, method: str, *params: object) -> Any:
        self._count([method])
        await asyncio.sleep(0)
        answer = await self._answer(method, params)
        if isinstance(answer, RpcError):
            raise answer
        return answer

    async def outcomes(self, calls: Sequence[RpcCall]) -> list[Any]:
        self._count([method for method, _ in calls])
        await asyncio.sleep(0)
        answers: list[Any] = []
        for method, params in calls:
            # Simulations at one block see one state, whatever a test changes meanwhile.
            if answers and method != "eth_call":
                await asyncio.sleep(0)
            answers.append(await self._answer(method, params))
        return answers

    def _count(self, methods: Sequence[str]) -> None:
        publications = methods.count("eth_sendRawTransaction")
        if publications:
            self.together.append(publications)

    async def _answer(self, method: str, params: Sequence[Any]) -> Any:
        self.call_counts[method] += 1
        if self.is_hung:
            self.hanging += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.hanging -= 1
        if self.is_down:
            raise NodeUnavailable("No connection to the node", kind="refused_connection")
        happening = self.before.pop(method, None)
        if happening is not None:
            happening()
        try:
            answer = self._methods[method](*params)
            return self.false_answers.get(method, _as_it_is)(answer)
        except RpcError as error:
            error.refusal = classify_error(error.code, error.message, None, method)
            return error

    def _gas_price(self) -> str:
        return hex(self.base_fee + self.tip)

    def _seen(self) -> list[Block]:
        return self.blocks[: len(self.blocks) - self.lag]

    def _at(self, tag: str | dict[str, Any]) -> Block | None:
        seen = self._seen()
        if isinstance(tag, dict):
            if not self.reads_by_hash:
                raise RpcError(-32602, "json: cannot unmarshal object into Go value of type string")
            return self._by_hash(tag["blockHash"])
        if tag in {"latest", "pending"}:
            return seen[-1 if self.frozen_head is None else self.frozen_head]
        if tag == "finalized":
            if self.final_depth is None:
                raise RpcError(-39001, "unknown block")
            return seen[max(0, seen[-1].number - self.final_depth)]
        return next((block for block in seen if block.number == int(tag, 16)), None)

    def _state_at(self, tag: str | dict[str, Any]) -> Block:
        """Returns the block. Raises RpcError if the node lacks it, or has pruned its state."""
        block = self._at(tag)
        if block is None:
            raise RpcError(-32000, "header not found")
        if block.number < self._seen()[-1].number - self.kept_states:
            raise RpcError(-32000, "missing trie node")
        return block

    def _by_hash(self, block_hash: str) -> Block | None:
        return next((block for block in self._seen() if block.hash == hash_of(block_hash)), None)

    def _chain_id(self) -> str:
        return hex(self.chain_id)

    def _block_by_number(self, tag: str, full: bool) -> Any:
        block = self._at(tag)
        return None if block is None else self.block_json(block, full=full)

    def _block_by_hash(self, block_hash: str, full: bool) -> Any:
        block = self._by_hash(block_hash)
        return None if block is None else self.block_json(block, full=full)

    def _logs(self, where: dict[str, Any]) -> Any:
        if "blockHash" in where:
            block = self._by_hash(where["blockHash"])
            if block is None:
                raise RpcError(-32000, "unknown block")
            return [] if self.is_blind_by_hash else logs_json(block, self._wanted(where))
        first, last = int(where["fromBlock"], 16), int(where["toBlock"], 16)
        if self.longest_range is not None and last - first + 1 > self.longest_range:
            raise RpcError(-32005, "query exceeds max results 10000")
        if self.empty_answers:
            self.empty_answers -= 1
            return []
        if self.unindexed_answers and last > self.head.number - (self.final_depth or 0):
            self.unindexed_answers -= 1
            return []
        return [
            log
            for block in self._seen()
            if first <= block.number <= last
            for log in logs_json(block, self._wanted(where) - self.unheard)
        ]

    def _wanted(self, where: dict[str, Any]) -> set[Address]:
        return set(map(address_of, where["address"]))

    def _block_receipts(self, block_hash: str) -> Any:
        block = self._by_hash(block_hash)
        return None if block is None else self.receipts_json(block)

    def _transaction_receipt(self, transaction_hash: str) -> Any:
        forged = self.forged_receipts.get(hash_of(transaction_hash))
        if isinstance(forged, RpcError):
            raise forged
        if forged is not None:
            return forged
        if self.hides_receipts:
            return None
        for block in self._seen():
            for done in block.transactions:
                if done.sent.hash == hash_of(transaction_hash):
                    return self.receipt_json(block, done)
        return None

    def _transaction_count(self, wallet: str, tag: str | dict[str, Any]) -> Any:
        nonce = self._state_at(tag).nonces.get(address_of(wallet), 0)
        if tag == "pending" and self.shows_pool:
            pooled = self._pooled_nonces(address_of(wallet))
            while nonce in pooled:
                nonce += 1
        return hex(nonce if self.false_nonce is None else self.false_nonce)

    def _pooled_nonces(self, wallet: Address) -> set[int]:
        return {sent.nonce for sent in self.pool.values() if sent.sender == wallet}

    def _pool_of(self, wallet: str) -> dict[str, Any]:
        if not self.shows_pool:
            raise RpcError(-32601, "the method txpool_contentFrom does not exist")
        nonces = self._pooled_nonces(address_of(wallet))
        return {"pending": {str(nonce): {} for nonce in nonces}, "queued": {}}

    def _balance(self, wallet: str, tag: str | dict[str, Any]) -> str:
        self.balances_after.append(self._state_at(tag).hash)
        return hex(self.balances.get(address_of(wallet), self.balance))

    def _code(self, address: str, _tag: str) -> str:
        return hex_of(self.codes.get(address_of(address), b""))

    def _max_priority_fee_per_gas(self) -> str:
        return hex(self.tip)

    def _dated(self, block: Block) -> dict[str, Any]:
        header = _header(block, self.block_zero_time)
        if self.false_gas_limit is not None:
            header["gasLimit"] = hex(self.false_gas_limit)
        return header

    def _call(self, call: dict[str, str], tag: str | dict[str, Any] = "latest") -> str:
        data = bytes_of(call["data"])
        block = self._state_at(tag)
        self.read_after.append(block.hash)
        if data[:4] == _REF_WORD:
            word = int.from_bytes(data[4:], "big")
            used = block.used
            bits = sum(1 << (seq % 256) for seq in used if seq // 256 == word)
            if self.false_references:
                bits = 2**256 - 1
            return hex_of(bits.to_bytes(32, "big"))
        if data[:4] == _MINT_LIMIT:
            words = (
                self.mint_capacity,
                self.mint_window_seconds,
                max(0, self._available(block)),
            )
            return hex_of(b"".join(word.to_bytes(32, "big") for word in words))
        if data[:4] == _HAS_ROLE:
            has_role = self.is_minter and data[-20:] not in self.revoked_minters
            has_role = has_role and data[-20:] not in self.without_roles
            return hex_of(int(has_role).to_bytes(32, "big"))
        if data[:4] in {_TOTAL_SUPPLY, _BALANCE_OF}:
            wallet = Address(data[-20:]) if data[:4] == _BALANCE_OF else None
            return hex_of(self._held(block, wallet).to_bytes(32, "big"))
        self.simulated += 1
        return self.run_call(call, block)

    def _held(self, block: Block, wallet: Address | None) -> int:
        """The balance of a wallet after a block, or the supply, by the logs of LTZ."""
        held = 0
        for _, log in (entry for each in self.blocks[: block.number + 1] for entry in each.logs()):
            if log.address == LTZ_AT and log.topics[0] == _TRANSFER:
                sender, recipient = (Address(topic[12:]) for topic in log.topics[1:])
                amount = int.from_bytes(log.data, "big")
                if wallet is None:
                    held += amount * ((sender == bytes(20)) - (recipient == bytes(20)))
                else:
                    held += amount * ((recipient == wallet) - (sender == wallet))
        return held

    def run_call(self, call: dict[str, str], block: Block) -> str:
        data = bytes_of(call["data"])
        if self.cannot_simulate(data):
            raise RpcError(-32000, "out of memory")
        if "gas" in call:
            self.simulated_gas.append(int(call["gas"], 16))
            if self.simulates_gas and self.needed_gas(data) > int(call["gas"], 16):
                raise RpcError(-32000, "out of gas")
        try:
            self._check_sender(address_of(call["to"]), bytes_of(call.get("from", "0x")))
            self._run(address_of(call["to"]), data, dict(block.used), self._available(block))
        except Reverted as error:
            raise RpcError(3, "execution reverted", error.data) from error
        return "0x"

    def _estimate_gas(self, call: dict[str, str], tag: str | dict[str, Any] = "latest") -> str:
        self.run_call(call, self._state_at(tag))
        return hex(60_000)

    def _fee_history(self, count: str, _newest: str, _percentiles: list[float]) -> Any:
        if not self.has_fee_history:
            raise RpcError(-32601, "the method eth_feeHistory does not exist")
        blocks = self._seen()[-int(count, 16) :]
        return {"baseFeePerGas": [*(hex(block.base_fee) for block in blocks), hex(self.base_fee)]}

    def _send_raw_transaction(self, raw: str) -> str:
        if self.lost_requests:
            self.lost_requests -= 1
            raise NodeUnavailable("The node does not answer: ClientOSError")
        self.arrived.append(bytes_of(raw))
        if self.refusal is not None:
            raise RpcError(-32000, self.refusal)
        sent = _sent(bytes_of(raw))
        refusal = self.refuses(sent)
        if refusal:
            raise RpcError(-32000, refusal if isinstance(refusal, str) else "txpool is full")
        self._take(sent)
        if self.lost_replies:
            self.lost_replies -= 1
            raise NodeUnavailable("The node does not answer: TimeoutError")
        return hex_of(sent.hash)

    def _take(self, sent: SentTransaction) -> None:
        if sent.hash in self.pool:
            raise RpcError(-32000, "already known")
        if sent.nonce < self.head.nonces.get(sent.sender, 0):
            raise RpcError(-32000, "nonce too low")
        if sent.gas_limit < min_gas_limit(sent.data):
            raise RpcError(-32000, f"intrinsic gas too low: gas {sent.gas_limit}")
        if sent.gas_limit > self.head.gas_limit:
            raise RpcError(-32000, "exceeds block gas limit")
        if sent.gas_limit * sent.max_fee_per_gas + sent.value > self.balances.get(
            sent.sender, self.balance
        ):
            raise RpcError(-32000, "insufficient funds for gas * price + value")
        if self.refuses_cheap and sent.max_fee_per_gas < self.base_fee:
            raise RpcError(-32003, "max fee per gas less than block base fee")
        self._take_the_place_of_rivals(sent)
        self.pool[sent.hash] = sent
        if self.mines_at_once:
            self.mine()

    def _take_the_place_of_rivals(self, sent: SentTransaction) -> None:
        """Removes transactions of its sender and nonce if it pays a tenth more in tip and cap."""
        for rival in list(self.pool.values()):
            if (rival.sender, rival.nonce) == (sent.sender, sent.nonce):
                if not _outbids(sent, rival):
                    raise RpcError(-32000, "replacement transaction underpriced")
                del self.pool[rival.hash]


def _outbids(sent: SentTransaction, rival: SentTransaction) -> bool:
    factor = 100 + _LEAST_BUMP_PERCENT
    return (
        sent.max_fee_per_gas * 100 >= rival.max_fee_per_gas * factor
        and sent.tip * 100 >= rival.tip * factor
    )


def _seq(reference: bytes) -> int:
    return int.from_bytes(reference[24:], "big")


def _minted_in(done: Done) -> int:
    return sum(int.from_bytes(log.data, "big") for log in done.logs if log.topics[0] == _MINTED)


def _word(value: bytes) -> bytes:
    return value.rjust(32, b"\x00")


@lru_cache(maxsize=10_000)
def _sent(raw: bytes) -> SentTransaction:
    # Cached: a lane publishes the same bytes again and again, and the sender takes a millisecond.
    is_legacy = raw[0] >= 0xC0
    fields = rlp_decode(raw if is_legacy else raw[1:])  # type: ignore[no-untyped-call]
    # nonce, tip, fee, gas, to, value, data, …; a legacy transaction has one price for both.
    nonce, tip, fee, gas, to, value, data, *_ = (
        [fields[0], fields[1], *fields[1:]] if is_legacy else fields[1:]
    )
    return SentTransaction(
        raw=raw,
        hash=Hash32(keccak(raw)),
        sender=address_of(Account.recover_transaction(raw)),
        nonce=int.from_bytes(nonce, "big"),
        tip=int.from_bytes(tip, "big"),
        max_fee_per_gas=int.from_bytes(fee, "big"),
        gas_limit=int.from_bytes(gas, "big"),
        to=Address(to),
        data=data,
        value=int.from_bytes(value, "big"),
    )


def _transaction_fields(sent: SentTransaction, block: Block) -> dict[str, Any]:
    """Returns a transaction as nodes show it in a block."""
    fields = rlp_decode(sent.raw if sent.is_legacy else sent.raw[1:])  # type: ignore[no-untyped-call]
    names = (
        ("nonce", "gasPrice", "gas", "", "value", "", "v", "r", "s")
        if sent.is_legacy
        else (
            *("chainId", "nonce", "maxPriorityFeePerGas", "maxFeePerGas", "gas"),
            *("", "value", "", "", "yParity", "r", "s"),
        )
    )
    quantities = {
        name: hex(int.from_bytes(field, "big"))
        for name, field in zip(names, fields, strict=True)
        if name
    }
    more = {} if sent.is_legacy else {"accessList": [], "v": quantities["yParity"]}
    return {
        "type": hex(0 if sent.is_legacy else 2),
        "hash": hex_of(sent.hash),
        "from": hex_of(sent.sender),
        "to": hex_of(sent.to),
        "input": hex_of(sent.data),
        "blockHash": hex_of(block.hash),
        "blockNumber": hex(block.number),
        **quantities,
        **more,
    }


def _rewards(data: bytes) -> list[tuple[bytes, int, bytes]]:
    """(to, amount, reference) of mintReward or mintRewardBatch."""
    if data[:4] == _MINT:
        rows = [decode(["address", "uint256", "bytes32"], data[4:])]
    else:
        assert data[:4] == _MINT_BATCH, "LTZ has no function with this selector"
        (rows,) = decode(["(address,uint96,bytes32)[]"], data[4:])
    return [(address_of(to), amount, reference) for to, amount, reference in rows]


def _transaction_hashes(block: Block) -> list[str]:
    """The pool's transactions, and the unnamed ones that a test's logs are of."""
    hashes = [done.sent.hash for done in block.transactions]
    hashes += [hash_ for hash_, _ in block.logs()]
    return [hex_of(hash_) for hash_ in dict.fromkeys(hashes)]


@lru_cache(maxsize=100_000)
def _bloom_of(value: bytes) -> int:
    return int(BloomFilter.from_iterable([value]))


def _header(block: Block, block_zero_time: int) -> dict[str, Any]:
    bloom = 0
    for value in {value for _, log in block.logs() for value in (log.address, *log.topics)}:
        bloom |= _bloom_of(value)
    return {
        "number": hex(block.number),
        "hash": hex_of(block.hash),
        "parentHash": hex_of(block.parent_hash),
        "timestamp": hex(block_zero_time + block.number),
        "logsBloom": f"0x{bloom:0512x}",
        "baseFeePerGas": hex(block.base_fee),
        "gasLimit": hex(block.gas_limit),
        "transactions": _transaction_hashes(block),
    }


def logs_json(block: Block, addresses: set[Address] | None) -> list[dict[str, Any]]:
    return [
        {
            "address": hex_of(log.address),
            "topics": [hex_of(topic) for topic in log.topics],
            "data": hex_of(log.data),
            "blockNumber": hex(block.number),
            "blockHash": hex_of(block.hash),
            "transactionHash": hex_of(transaction_hash),
            "logIndex": hex(index),
            "removed": False,
        }
        for index, (transaction_hash, log) in enumerate(block.logs())
        if addresses is None or log.address in addresses
    ]

"""Fills the index with rows of any number, as a chain of that many blocks would leave them.

Each block holds a transfer and a mint; every tenth block a perk's claim, a purchase and a deal. The
wallets are a tenth of the blocks. Partitions are made as the indexer makes them.
"""

import hashlib
from typing import Final

from ltzd.store.database import Connection
from ltzd.store.indexer import partitions
from ltzd.values import Address, Hash32

CHAIN_ID: Final = 31337
LTZ_AT: Final = Address(b"\x17" * 20)
LANE: Final = Address(b"\x1a" * 20)
COLLECTION_TOKENS: Final = 1_000
_PART: Final = 500_000
_FILL_SECONDS: Final = 3_600.0


def block_hash(number: int) -> Hash32:
    return Hash32(hashlib.sha256(number.to_bytes(8, "big")).digest())


def wallet(number: int, wallets: int) -> Address:
    """The wallet of a block's facts."""
    return Address(hashlib.sha256((number % wallets).to_bytes(8, "big")).digest()[:20])


async def fill(connection: Connection, rows: int, stride: int = 1) -> None:
    """Fills an empty database; block `n` has the height `n * stride`, from 1 to `rows`."""
    await connection.execute("SET session_replication_role = replica")  # no checks of references
    wallets = max(rows // 10, 1)
    for first in range(1, rows + 1, _PART):
        last = min(first + _PART - 1, rows)
        await partitions.ensure(connection, last * stride)
        for statement in _FACTS:
            await connection.execute(statement, first, last, stride, wallets, timeout=_FILL_SECONDS)
    for statement in _DERIVED:
        await connection.execute(
            statement, rows, stride, wallets, COLLECTION_TOKENS, timeout=_FILL_SECONDS
        )
    await connection.execute(
        """
        INSERT INTO chains (chain_id, genesis_hash, ltz, first_block, epoch, cursor_number,
                            cursor_hash, head_number, final_number)
        VALUES ($1, $2, $3, 1, 1, $4, $5, $4, $6)
        """,
        CHAIN_ID,
        block_hash(0),
        LTZ_AT,
        rows * stride,
        block_hash(rows),
        (rows - 64) * stride,
    )
    for statement in _OPERATOR:
        await connection.execute(statement, rows, stride, CHAIN_ID, LANE, timeout=_FILL_SECONDS)
    await connection.execute("SET session_replication_role = DEFAULT")


# In these statements $1 and $2 are the first and the last block, $3 the stride, $4 the wallets.
_BLOCKS = """
  FROM (SELECT n, n * $3::bigint AS height, sha256(int8send(n)) AS hash,
               substring(sha256(int8send(n % $4::bigint)) FOR 20) AS wallet,
               sha256(int8send(-n)) AS transaction
          FROM generate_series($1::bigint, $2::bigint) AS n) AS b
"""
_TOKEN = (
    f"((n / 10 / {COLLECTION_TOKENS} + 1)::numeric * 4294967296 + n / 10 % {COLLECTION_TOKENS} + 1)"
)
_FACTS = (
    f"""
    INSERT INTO blocks (hash, number, parent_hash, mined_at, seen_at)
    SELECT hash, height, sha256(int8send(n - 1)), to_timestamp(1700000000 + n),
           now() - interval '1 day' {_BLOCKS}
    """,
    f"""
    INSERT INTO transfers
    SELECT hash, 0, height, transaction, decode(repeat('00', 20), 'hex'), wallet, 10::numeric^18
           {_BLOCKS}
    """,
    f"""
    INSERT INTO mints
    SELECT hash, 1, height, transaction, wallet,
           substring(sha256(hash) FOR 16) || decode('0100000000000000', 'hex') || int8send(n),
           10::numeric^18
           {_BLOCKS}
    """,
    f"""
    INSERT INTO perk_transfers
    SELECT hash, 2, height, transaction, {_TOKEN}, decode(repeat('00', 20), 'hex'), wallet
           {_BLOCKS} WHERE n % 10 = 0
    """,
    f"""
    INSERT INTO perk_claims
    SELECT hash, 3, height, transaction, wallet, n / 10 / {COLLECTION_TOKENS} + 1, {_TOKEN}, 30, 1,
           sha256(hash)
           {_BLOCKS} WHERE n % 10 = 0
    """,
    f"""
    INSERT INTO charge_redemptions
    SELECT hash, 4, height, transaction, {_TOKEN}, wallet, sha256(hash), 1, 2
           {_BLOCKS} WHERE n % 20 = 0
    """,
    f"""
    INSERT INTO purchases
    SELECT hash, 5, height, transaction, wallet, 1, sha256(hash), 1, 30
           {_BLOCKS} WHERE n % 10 = 5
    """,
    f"""
    INSERT INTO deal_facts
    SELECT hash, 6, height, transaction, hash, 'locked', wallet, wallet, 0, 0, 10, 2000000000, NULL
           {_BLOCKS} WHERE n % 10 = 7
    """,
    f"""
    INSERT INTO tokens
    SELECT {_TOKEN}, n / 10 / {COLLECTION_TOKENS} + 1, wallet, CASE WHEN n % 20 = 0 THEN 2 END,
           to_timestamp(1700000000 + n),
           CASE WHEN n % 20 = 0 THEN to_timestamp(1700000000 + n) END, height
           {_BLOCKS} WHERE n % 10 = 0
    """,
)

# In these statements $1 is the number of blocks, $2 the stride, $3 the wallets.
_DERIVED = (
    """
    INSERT INTO balances
    SELECT substring(sha256(int8send(n)) FOR 20), 10::numeric^19
      FROM generate_series(0, $3::bigint - 1) AS n
     WHERE $1::bigint + $2::bigint + $4::bigint IS NOT NULL
    """,
    """
    INSERT INTO collection_facts
    SELECT sha256(int8send(1)), n, $2::bigint, sha256('a'), n, substring(sha256('b') FOR 20),
           substring(sha256('p') FOR 20), 30, 0, 3, true, 3, false, ''
      FROM generate_series(1, $1::bigint / 10 / $4::bigint + 1) AS n
     WHERE $3::bigint IS NOT NULL
    """,
    """
    INSERT INTO collections
    SELECT collection_id, brand, payout, price, max_supply, max_per_user, is_active, charges,
           requires_signature, uri, least($4::bigint, $1::bigint / 10)
      FROM collection_facts
     WHERE $2::bigint + $3::bigint IS NOT NULL
    """,
)

# The newest forty mined transactions have a reward each; a foreign mint has used its reference.
# In these statements $1 is the number of blocks, $2 the stride, $3 the chain, $4 the lane's wallet.
_OPERATOR = (
    """
    INSERT INTO transactions (chain_id, wallet, nonce, kind, to_address, data, gas_limit, state,
                              succeeded, block_number, block_hash, mined_at, mined_attempt,
                              gas_used, effective_gas_price)
    SELECT $3::bigint, $4::bytea, n, 'mint', $4, '', 1, 'mined', true, ($1 - 39 + n) * $2::bigint,
           sha256(int8send($1::bigint - 39 + n)), now(), sha256(int8send(n)), 1, 1
      FROM generate_series(0, 39) AS n
    """,
    """
    INSERT INTO rewards (id, kind, brand_id, wallet, ltz, seq, transaction_id)
    SELECT gen_random_uuid(), 1, $4::bytea, $4, 1, $1::bigint - 1000 - nonce, id
      FROM transactions
     WHERE chain_id = $3::bigint AND $2::bigint IS NOT NULL
    """,
)

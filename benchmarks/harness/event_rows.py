"""Fills the table of events with rows of two years, in partitions as the role `deliveries` makes
them.

Ten brands have as many events each; a user has ten events. Event `n` of `rows` is the n-th in time.
"""

from typing import Final
from uuid import UUID

from ltzd.rules.event_handler.event_ids import event_id
from ltzd.store.database import Connection
from ltzd.store.event_handler import partitions
from ltzd.values import Address

BRANDS: Final = 10
FROM: Final = 1_700_000_000
"""Unix time of the first event."""
SECONDS: Final = 2 * 365 * 86_400
_PARTS: Final = 24
_FILL_SECONDS: Final = 3_600.0


def brand(number: int) -> Address:
    return Address(bytes([0xE0 + number % BRANDS]) * 20)


def seconds_of(number: int, rows: int) -> int:
    return FROM + number * SECONDS // rows


def id_of(number: int, rows: int) -> UUID:
    return event_id(seconds_of(number, rows), number)


async def fill(connection: Connection, rows: int) -> None:
    """Events of which every hundredth has a reward; a user's ten events follow each other."""
    await fill_events(connection, rows)
    await connection.execute(_REWARDS, timeout=_FILL_SECONDS)


async def fill_events(connection: Connection, rows: int, *, is_spread: bool = False) -> None:
    """A user's ten events follow each other, or are spread over the two years, at one brand."""
    await connection.executemany(
        """
        INSERT INTO brands (id, name, configuration, revision)
        VALUES ($1, 'brand ' || encode($1, 'hex'), '{"webhook_url": "https://x.example"}', 1)
        """,
        [(brand(number),) for number in range(BRANDS)],
    )
    await connection.execute(_USERS, rows, timeout=_FILL_SECONDS)
    for part in range(_PARTS):
        first, last = part * rows // _PARTS, (part + 1) * rows // _PARTS - 1
        await partitions.ensure(connection, seconds_of(last, rows))
        await connection.execute(
            _EVENTS, first, last, rows, FROM, SECONDS, is_spread, timeout=_FILL_SECONDS
        )


_USERS = """
INSERT INTO users (id, email_key, identity_subject, wallet)
SELECT ('0e000000' || lpad(to_hex(n), 24, '0'))::uuid, 'user' || n || '@mail.example', 'did:' || n,
       substring(sha256(int8send(-n)) FOR 20)
  FROM generate_series(0, $1::bigint / 10) AS n
"""
# The id is that of `event_id`: 58 bits hold the number.
_EVENTS = """
INSERT INTO events (id, brand_id, event_type, email, user_id, domain, metadata, ltz, created_at)
SELECT ('ffffffff' || substr(second, 1, 4) || '8' || substr(second, 5, 3)
        || to_hex(8 + ((at & 15) >> 2)) || to_hex((at & 3) << 2) || lpad(to_hex(n), 14, '0'))::uuid,
       decode(repeat(to_hex(224 + n % 10), 20), 'hex'), 'purchase', 'user' || who
       || '@mail.example', ('0e000000' || lpad(to_hex(who), 24, '0'))::uuid, 'shop.example',
       '{"amount": 12.5}', 100, to_timestamp(at)
  FROM generate_series($1::bigint, $2::bigint) AS n
 CROSS JOIN LATERAL (SELECT $4::bigint + n * $5::bigint / $3::bigint AS at) AS time
 CROSS JOIN LATERAL (SELECT lpad(to_hex(at), 8, '0') AS second) AS hex
 CROSS JOIN LATERAL (SELECT CASE WHEN $6::boolean THEN n % ($3::bigint / 10) ELSE n / 10 END AS who)
            AS owner
"""
# Every hundredth event's reward, minted.
_REWARDS = """
INSERT INTO rewards (id, kind, brand_id, wallet, ltz, mint_block_number, mint_block_hash,
                     mint_transaction_hash)
SELECT id, 1, brand_id, substring(sha256(uuid_send(user_id)) FOR 20), ltz, 1, sha256('b'),
       sha256('t')
  FROM events
 WHERE extract(epoch FROM created_at)::bigint % 100 = 0
"""

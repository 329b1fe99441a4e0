"""Relays that a lane has signed before they are stored: relay, transaction and attempt at once."""

from collections.abc import Sequence

import msgspec

from ltzd.errors import LaneLost
from ltzd.rules.relayer.admission import NewRelay
from ltzd.store.database import Connection
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.transactions import Attempt, OpenTransaction, newly_signed
from ltzd.store.relayer import gas_budgets, relays


class SentRelay(msgspec.Struct, frozen=True):
    id: int
    transaction: OpenTransaction


async def insert(
    connection: Connection,
    lane: Lane,
    first_nonce: int,
    new: Sequence[NewRelay],
    attempts: Sequence[Attempt],
) -> list[SentRelay]:
    """Insert relays with their signed transactions, in order, and take their nonces.

    The nonces follow each other from `first_nonce`. A relay that must be decided again
    (`relays.insert`) ends the list: this relay and the later ones are not stored, and their
    signatures must be thrown away. The caller has checked that no other lane holds or has sent an
    earlier relay of the same user that is in flight. Raises LaneLost, and stores nothing, when
    another process has changed the lane's nonce or epoch.
    """
    rows = await connection.fetch(
        _INSERT,
        *relays.columns_of(new),
        lane.chain_id,
        lane.wallet,
        lane.epoch,
        first_nonce,
        [attempt.hash for attempt in attempts],
        [attempt.raw for attempt in attempts],
        [attempt.fees.max_fee_per_gas for attempt in attempts],
        [attempt.fees.max_priority_fee_per_gas for attempt in attempts],
    )
    if not rows:
        raise LaneLost("Another process serves this lane")
    stored = [row for row in rows if row["id"] is not None]
    return [
        SentRelay(
            row["id"],
            newly_signed(row["transaction_id"], row["nonce"], relay.gas_limit, attempt),
        )
        for relay, attempt, row in zip(new, attempts, stored, strict=False)
    ]


# Ids are drawn before the rows are inserted, so that no row must be joined with another one.
_INSERT = f"""
WITH term AS MATERIALIZED (
  SELECT FROM lanes
   WHERE chain_id = $17 AND wallet = $18 AND epoch = $19 AND next_nonce = $20
     FOR UPDATE
), new AS MATERIALIZED (
  SELECT new.*, $20 + n - 1 AS nonce,
         ($21::bytea[])[n] AS hash, ($22::bytea[])[n] AS raw,
         ($23::bigint[])[n] AS max_fee_per_gas, ($24::bigint[])[n] AS max_priority_fee_per_gas,
         nextval('relays_id_seq') AS id, nextval('transactions_id_seq') AS transaction_id
    FROM term
   CROSS JOIN {relays.NEW_RELAYS}
), current AS (
{relays.CLAIM_VERSIONS}
), lost AS (
  SELECT n FROM new WHERE user_address NOT IN (SELECT user_address FROM current)
), signed AS MATERIALIZED (
  SELECT * FROM new WHERE n < coalesce((SELECT min(n) FROM lost), n + 1)
), lane AS (
  UPDATE lanes
     SET next_nonce = next_nonce + (SELECT count(*) FROM signed)
    FROM term
   WHERE chain_id = $17 AND wallet = $18
RETURNING 1
), intent AS (
  INSERT INTO transactions
         (id, chain_id, wallet, nonce, kind, to_address, data, gas_limit, state)
  OVERRIDING SYSTEM VALUE
  SELECT transaction_id, $17, $18, nonce, 'relay', to_address, data, gas_limit, 'signed'
    FROM signed
), attempt AS (
  INSERT INTO attempts (hash, transaction_id, raw, max_fee_per_gas, max_priority_fee_per_gas)
  SELECT hash, transaction_id, raw, max_fee_per_gas, max_priority_fee_per_gas FROM signed
), relay AS (
  INSERT INTO relays (id, user_address, to_address, data, function, wallet, serialized_per_user,
                      collection_id, expected_claims, idempotency_key, fingerprint,
                      gas_limit, max_cost_wei, window_start, identity, state,
                      gas_day, gas_wei, transaction_id, claimed_by)
  OVERRIDING SYSTEM VALUE
  SELECT id, user_address, to_address, data, function, wallet, serialized_per_user,
         collection_id, expected_claims, idempotency_key, fingerprint,
         gas_limit, max_cost_wei, window_start, identity, 'sent',
         (now() AT TIME ZONE 'UTC')::date, max_cost_wei, transaction_id, $18
    FROM signed
), changes AS (
  SELECT (now() AT TIME ZONE 'UTC')::date AS day, identity, max_cost_wei AS wei FROM signed
), counted AS (
{gas_budgets.ADD_CHANGES}
)
SELECT id, transaction_id, nonce
  FROM lane
  LEFT JOIN signed ON true
 ORDER BY n
"""  # noqa: S608 - only constants

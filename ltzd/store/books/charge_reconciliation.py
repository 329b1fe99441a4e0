"""The checks of redeemed charges, run by `reconciliation.reconcile_all`.

A redemption's id is the beginning of its reference on chain (`store/perk_charges.py`).
"""

from collections.abc import Sequence
from typing import Final

from ltzd.store.books.site_reconciliation import Check

_REFERENCE: Final = "uuid_send(r.id) || decode(repeat('00', 16), 'hex')"
_REDEMPTION: Final = """
               json_build_object('tokenId', r.token_id::text, 'charges', r.amount,
                                 'holder', '0x' || encode(r.holder, 'hex'),
                                 'brandId', '0x' || encode(r.brand_id, 'hex'))::text AS one"""
_FACT: Final = """
               json_build_object('tokenId', f.token_id::text, 'charges', f.amount,
                                 'holder', '0x' || encode(f.holder, 'hex'),
                                 'transactionHash', '0x' || encode(f.transaction_hash, 'hex'))
                 ::text AS other"""

CHARGE_CHECKS: Sequence[Check] = (
    Check(
        "charge_without_fact",
        "redemptions of charges whose transaction succeeded, without their fact on chain",
        ("redemption", "fact"),
        f"""
        SELECT r.id::text, count(*) OVER () AS total, {_REDEMPTION}, NULL AS other
          FROM redemption_progress r
          JOIN relays l ON l.id = r.relay_id
          JOIN chains c ON c.cursor_number >= r.block_number
               -- The index has no facts of a contract that was replaced.
           AND l.to_address = ANY (c.contracts)
         WHERE r.state = 'confirmed' AND r.succeeded
           AND ($1::bytea IS NULL OR r.brand_id = $1)
           AND NOT EXISTS (SELECT
                             FROM charge_redemptions f
                            WHERE f.token_id = r.token_id AND f.reference = {_REFERENCE})
         ORDER BY r.created_at, r.id
         LIMIT $2
        """,  # noqa: S608
    ),
    Check(
        "failed_charge_on_chain",
        "redemptions of charges that failed, with a fact on chain",
        ("redemption", "fact"),
        f"""
        SELECT r.id::text, count(*) OVER () AS total, {_REDEMPTION}, {_FACT}
          FROM redemption_progress r
          JOIN charge_redemptions f ON f.token_id = r.token_id AND f.reference = {_REFERENCE}
         WHERE r.succeeded IS FALSE
           AND ($1::bytea IS NULL OR r.brand_id = $1)
         ORDER BY r.created_at, r.id
         LIMIT $2
        """,  # noqa: S608
    ),
    Check(
        "foreign_charge",
        "charges redeemed on chain with a reference that no redemption has",
        ("redemption", "fact"),
        f"""
        SELECT '0x' || encode(f.transaction_hash, 'hex') || ' ' || f.log_index AS id,
               count(*) OVER () AS total, NULL AS one, {_FACT}
          FROM charge_redemptions f
          LEFT JOIN tokens t USING (token_id)
          LEFT JOIN collections c USING (collection_id)
         WHERE ($1::bytea IS NULL OR c.brand = $1)
           AND NOT EXISTS (SELECT
                             FROM redemptions r
                            WHERE r.token_id = f.token_id AND f.reference = {_REFERENCE})
         ORDER BY f.block_number, f.log_index
         LIMIT $2
        """,  # noqa: S608
    ),
)

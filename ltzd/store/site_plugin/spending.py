"""The money that a site session may spend, and the charges of its redemptions.

Every remainder is a sum over rows: mined rewards, and redemptions that have not failed. The caller
holds the wallet's lock (`redemptions.lock_wallet`) and the member's (`lock_member`) until the
redemption is inserted, so that no LTZ are spent twice and no ended link pays. Amounts are in LTZ's
smallest unit, unless they say LTZ.
"""

from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

import asyncpg
import msgspec

from ltzd.rules.site_plugin.spending import AddressFacts, Allowance, PotAmounts, SpendingRecord
from ltzd.store.database import Connection
from ltzd.store.site_plugin.members import Member
from ltzd.values import LTZ, Address


class ActiveLink(msgspec.Struct, frozen=True):
    """`day` is today in UTC, the day on which `allowance` is counted."""

    id: UUID
    expires_at: datetime
    day: date
    allowance: Allowance


class SpendingAccount(msgspec.Struct, frozen=True):
    """The facts that spending is decided on. `user_id` and `wallet` are the stored ones."""

    user_id: UUID
    wallet: Address
    ledger: SpendingRecord
    address: AddressFacts
    link: ActiveLink | None

    def is_of(self, member: Member) -> bool:
        """False if the member has another address or wallet since the log-in."""
        return (self.user_id, self.wallet) == (member.user_id, member.wallet)


async def lock_member(connection: Connection, member: Member) -> None:
    """Keep others from linking this member or ending a link of the member until the transaction
    ends.
    """
    await connection.execute(
        """
        SELECT FROM site_members
         WHERE brand_id = $1 AND host = $2 AND site_user_id = $3
           FOR SHARE
        """,
        member.brand_id,
        member.host,
        member.site_user_id,
    )


async def read_account(connection: Connection, member: Member) -> SpendingAccount | None:
    """The account of the member with the stored wallet; returns None for an unknown member."""
    row = await connection.fetchrow(
        _ACCOUNT, member.brand_id, member.host, member.site_user_id, Decimal(LTZ)
    )
    return None if row is None else _account(row, member.email_confirmed)


# A redemption of a version without pots was paid from the grants of the brand.
_ACCOUNT = """
SELECT m.user_id, m.wallet,
       $4 * (coalesce((SELECT sum(c.own_ltz)
                         FROM check_ins c
                         JOIN rewards r ON r.id = c.reward_id
                        WHERE c.brand_id = m.brand_id AND c.wallet = m.wallet
                          AND c.host = m.host AND c.site_user_id = m.site_user_id
                          AND r.mint_block_hash IS NOT NULL), 0)
           + coalesce((SELECT sum(c.own_ltz)
                         FROM milestone_claims c
                         JOIN rewards r ON r.id = c.reward_id
                        WHERE c.brand_id = m.brand_id AND c.wallet = m.wallet
                          AND c.host = m.host AND c.site_user_id = m.site_user_id
                          AND r.mint_block_hash IS NOT NULL), 0)) AS earned,
       $4 * coalesce((SELECT e.ltz + e.bought
                        FROM earnings e
                       WHERE e.brand_id = m.brand_id AND e.period = 'all'
                         AND e.starts = '1970-01-01' AND e.wallet = m.wallet), 0) AS given_in_all,
       coalesce(spent.of_earned, 0) AS spent_of_earned,
       coalesce(spent.in_all, 0) AS spent_in_all,
       u.proven_by IS NOT NULL
       OR EXISTS (SELECT FROM address_proofs p WHERE p.email_key = u.email_key) AS is_proven,
       u.wallet = m.wallet AS leads_to_wallet,
       l.id AS link_id, l.expires_at, l.daily_allowance * $4 AS per_day,
       today.day,
       coalesce((SELECT sum(s.from_linked)
                   FROM site_redemptions s
                  WHERE s.link_id = l.id AND s.link_day = today.day
                    AND s.state NOT IN ('failed', 'reversed')), 0) AS charged
  FROM site_members m
  JOIN users u ON u.id = m.user_id
  LEFT JOIN active_site_links l ON l.id = m.link_id
 CROSS JOIN (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS day) AS today
  LEFT JOIN LATERAL (
       SELECT sum(s.from_earned) FILTER (WHERE s.host = m.host
                                           AND s.site_user_id = m.site_user_id) AS of_earned,
              sum(coalesce(s.from_earned + s.from_given, s.price)) AS in_all
         FROM site_redemptions s
        WHERE s.wallet = m.wallet AND s.brand_id = m.brand_id
          AND s.state NOT IN ('failed', 'reversed')) AS spent
    ON true
 WHERE m.brand_id = $1 AND m.host = $2 AND m.site_user_id = $3
"""


async def read_charge(connection: Connection, redemption: UUID) -> tuple[PotAmounts, UUID | None]:
    """The pots that pay for a redemption, and the link; rows of older versions have no pots."""
    row = await connection.fetchrow(
        """
        SELECT coalesce(from_earned, 0) AS earned, coalesce(from_given, 0) AS given,
               coalesce(from_linked, 0) AS linked, link_id
          FROM site_redemptions
         WHERE id = $1
        """,
        redemption,
    )
    payment = PotAmounts(int(row["earned"]), int(row["given"]), int(row["linked"]))
    return payment, row["link_id"]


async def write_charge(
    connection: Connection,
    redemption: UUID,
    member: Member,
    payment: PotAmounts,
    link: ActiveLink | None,
) -> None:
    """Store the pots that pay for a redemption, in the transaction that inserts it."""
    charged_link = link if payment.linked else None
    await connection.execute(
        """
        UPDATE site_redemptions
           SET host = $2, site_user_id = $3, from_earned = $4, from_given = $5, from_linked = $6,
               link_id = $7, link_day = $8
         WHERE id = $1
        """,
        redemption,
        member.host,
        member.site_user_id,
        Decimal(payment.earned),
        Decimal(payment.given),
        Decimal(payment.linked),
        None if charged_link is None else charged_link.id,
        None if charged_link is None else charged_link.day,
    )


def _account(row: asyncpg.Record, email_confirmed: bool | None) -> SpendingAccount:
    allowance = Allowance(int(row["per_day"]), int(row["charged"])) if row["link_id"] else None
    ledger = SpendingRecord(
        earned=int(row["earned"]),
        given_in_all=int(row["given_in_all"]),
        spent_of_earned=int(row["spent_of_earned"]),
        spent_in_all=int(row["spent_in_all"]),
        allowance=allowance,
    )
    link = None
    if allowance is not None:
        link = ActiveLink(row["link_id"], row["expires_at"], row["day"], allowance)
    address = AddressFacts(email_confirmed, row["is_proven"], row["leads_to_wallet"])
    return SpendingAccount(row["user_id"], Address(row["wallet"]), ledger, address, link)

"""Everything that the database holds about one user, for the user or for an operator.

Rarely read, so the joins are not optimised: the whole table of events is read once. Rows of the
chain's index are left out, since everybody can read them on chain.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from ltzd.store.database import Connection
from ltzd.store.retention.erasure import SCAN_SECONDS
from ltzd.store.users import custodial_users
from ltzd.store.users.erased_addresses import ErasedAddresses, is_erased
from ltzd.store.users.users import email_key
from ltzd.values import Address

Row = dict[str, Any]


class Person(msgspec.Struct, frozen=True):
    """A user; or someone without a user (`user_id` is None then) who holds a custodial wallet, or
    has proven an address and has no wallet here.

    `email_keys` are addresses in lower case or erased keys, `wallets` present ones first, and
    `subjects` the user's names at the identity provider; of a custodial user also the owner's at
    the token issuer.
    """

    user_id: UUID | None
    email_keys: tuple[str, ...]
    wallets: tuple[Address, ...]
    subjects: tuple[str, ...]

    @property
    def is_erased(self) -> bool:
        return all(map(is_erased, self.email_keys))


async def find(
    connection: Connection, erased: ErasedAddresses, name: str | UUID | Address
) -> list[Person]:
    """The users of an address, a user id, or a present or former wallet; several for a wallet that
    several addresses lead to.
    """
    match name:
        case UUID():
            ids = await connection.fetch("SELECT id FROM users WHERE id = $1", name)
        case bytes():
            ids = await connection.fetch(
                "SELECT DISTINCT id FROM wallet_users WHERE wallet = $1 ORDER BY id", name
            )
        case str():
            keys = await erased.keys_of(connection, [email_key(name)])
            ids = await connection.fetch(
                "SELECT id FROM users WHERE email_key = ANY($1::text[])", keys
            )
            if not ids:
                return await _custodial(connection, keys) or await _provers(connection, keys)
    return [await _person(connection, row["id"]) for row in ids]


async def _person(connection: Connection, user_id: UUID) -> Person:
    row = await connection.fetchrow(
        """
        SELECT u.email_key, u.wallet, u.identity_subject, u.proven_by,
               ARRAY(SELECT wallet FROM former_wallets f
                      WHERE f.user_id = u.id AND f.wallet <> u.wallet
                      ORDER BY left_at) AS former
          FROM users u
         WHERE u.id = $1
        """,
        user_id,
    )
    names = filter(None, (row["identity_subject"], row["proven_by"]))
    wallets = (Address(row["wallet"]), *map(Address, row["former"]))
    return Person(user_id, (row["email_key"],), wallets, await _subjects(connection, *names))


async def _custodial(connection: Connection, keys: Sequence[str]) -> list[Person]:
    rows = await connection.fetch(
        """
        SELECT a.name, u.subject, u.wallet
          FROM custodial_accounts a
          JOIN custodial_users u ON u.subject = a.subject
         WHERE a.kind = 'email' AND a.name = ANY($1::text[])
        """,
        keys,
    )
    return [
        Person(
            None,
            (row["name"],),
            (Address(row["wallet"]),),
            await _subjects(connection, row["subject"]),
        )
        for row in rows
    ]


async def _provers(connection: Connection, keys: Sequence[str]) -> list[Person]:
    rows = await connection.fetch(
        "SELECT email_key, person FROM address_proofs WHERE email_key = ANY($1::text[])", keys
    )
    return [
        Person(None, (row["email_key"],), (), await _subjects(connection, row["person"]))
        for row in rows
    ]


async def _subjects(connection: Connection, *names: str) -> tuple[str, ...]:
    """These names at the identity provider, and the subjects of a custodial user's owner.

    Links at sites name their owner as the owner's tokens do.
    """
    owners = await custodial_users.subjects_of_owners(connection, names)
    return tuple(dict.fromkeys((*names, *owners)))


async def read(connection: Connection, person: Person) -> dict[str, list[Row]]:
    """All rows about the person by table, as they are stored."""
    arguments = {
        "$user": person.user_id,
        "$keys": list(person.email_keys),
        "$wallets": list(person.wallets),
        "$subjects": list(person.subjects),
    }
    return {
        name: [
            dict(row)
            for row in await connection.fetch(
                statement, *map(arguments.__getitem__, names), timeout=SCAN_SECONDS
            )
        ]
        for name, (names, statement) in STATEMENTS.items()
    }


STATEMENTS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "users": (("$user",), "SELECT * FROM users WHERE id = $1"),
    "address_proofs": (
        ("$keys",),
        "SELECT * FROM address_proofs WHERE email_key = ANY($1::text[])",
    ),
    "former_wallets": (("$user",), "SELECT * FROM former_wallets WHERE user_id = $1"),
    "erasures": (("$user",), "SELECT * FROM erasures WHERE user_id = $1"),
    "events": (("$user",), "SELECT * FROM events WHERE user_id = $1 ORDER BY created_at, id"),
    "event_claims": (
        ("$keys",),
        """
        SELECT c.*
          FROM claimed_event_types t
          JOIN event_claims c USING (brand_id, event_type)
         WHERE c.email_key = ANY($1::text[])
        """,
    ),
    "rewards": (
        ("$wallets",),
        "SELECT * FROM rewards WHERE wallet = ANY($1::bytea[]) ORDER BY created_at, id",
    ),
    "payments": (
        ("$wallets",),
        "SELECT * FROM payments WHERE wallet = ANY($1::bytea[]) ORDER BY created_at",
    ),
    "payment_reversals": (
        ("$wallets",),
        """
        SELECT r.*
          FROM payments p
          JOIN payment_reversals r USING (session_id)
         WHERE p.wallet = ANY($1::bytea[])
         ORDER BY r.created_at
        """,
    ),
    "relays": (
        ("$wallets",),
        """
        SELECT id, user_address, to_address, function, state, created_at, transaction_id, brand_id
          FROM relays
         WHERE user_address = ANY($1::bytea[])
         ORDER BY id
        """,
    ),
    "gas_spent": (
        ("$subjects", "$wallets"),
        """
        SELECT *
          FROM gas_spent
         WHERE identity = ANY($1::text[])
            OR identity IN (SELECT '0x' || encode(wallet, 'hex')
                              FROM unnest($2::bytea[]) AS given (wallet))
         ORDER BY day
        """,
    ),
    "redemptions": (
        ("$wallets",),
        "SELECT * FROM redemptions WHERE holder = ANY($1::bytea[]) ORDER BY created_at",
    ),
    "site_members": (("$user",), "SELECT * FROM site_members WHERE user_id = $1"),
    "site_links": (
        ("$user", "$subjects"),
        "SELECT * FROM site_links WHERE user_id = $1 OR subject = ANY($2::text[])",
    ),
    "site_link_codes": (
        ("$subjects",),
        "SELECT * FROM site_link_codes WHERE subject = ANY($1::text[]) ORDER BY expires_at",
    ),
    "site_redemptions": (
        ("$wallets",),
        "SELECT * FROM site_redemptions WHERE wallet = ANY($1::bytea[]) ORDER BY created_at",
    ),
    "check_ins": (
        ("$wallets",),
        "SELECT * FROM check_ins WHERE wallet = ANY($1::bytea[]) ORDER BY created_at",
    ),
    "milestone_claims": (
        ("$wallets",),
        "SELECT * FROM milestone_claims WHERE wallet = ANY($1::bytea[]) ORDER BY brand_id, days",
    ),
    "streaks": (("$wallets",), "SELECT * FROM streaks WHERE wallet = ANY($1::bytea[])"),
    "earnings": (
        ("$wallets",),
        "SELECT * FROM earnings WHERE wallet = ANY($1::bytea[]) ORDER BY brand_id, period, starts",
    ),
    "leaderboard_streaks": (
        ("$wallets",),
        """
        SELECT * FROM leaderboard_streaks
         WHERE wallet = ANY($1::bytea[])
         ORDER BY brand_id, period, starts
        """,
    ),
    "constraint_results": (
        ("$wallets",),
        "SELECT * FROM constraint_results WHERE user_address = ANY($1::bytea[])",
    ),
    "chat_claims": (
        ("$wallets",),
        "SELECT * FROM chat_claims WHERE wallet = ANY($1::bytea[])",
    ),
    "pregenerations": (
        ("$wallets",),
        "SELECT * FROM pregenerations WHERE wallet = ANY($1::bytea[])",
    ),
    "pregeneration_requests": (
        ("$wallets",),
        """
        SELECT r.*
          FROM pregenerations p
          JOIN pregeneration_requests r USING (oauth_provider, oauth_user_id)
         WHERE p.wallet = ANY($1::bytea[])
         ORDER BY r.id
        """,
    ),
    "custodial_accounts": (
        ("$wallets",),
        """
        SELECT a.*
          FROM custodial_users u
          JOIN custodial_accounts a ON a.subject = u.subject
         WHERE u.wallet = ANY($1::bytea[])
        """,
    ),
}
"""By table. The sealed key of a custodial wallet is left out: it is a secret, and no fact."""

"""Moves an e-mail address to the wallet of the person who has proven it (docs/decisions/0019).

An address is proven by a verified identity token that lists it, or by the identity provider's
answer for the token's subject; what callers claim is ignored. The proof of an address without a
user is kept for the user to come. Rewards that were given before stay where they are. A migration
never fails the request that carried the token: one that failed is tried again with the next token
after a minute.
"""

from collections.abc import Sequence
from time import monotonic

import structlog
from cachetools import TTLCache

from ltzd import telemetry
from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.concurrency.batcher import Batcher
from ltzd.concurrency.clock import Clock
from ltzd.errors import Unavailable
from ltzd.providers.identity.tokens import TokenUser
from ltzd.store.database import Pool, session
from ltzd.store.users import address_proofs, users
from ltzd.store.users.address_proofs import ProvenAddress
from ltzd.store.users.erased_addresses import ErasedAddresses, is_erased
from ltzd.values import hex_of

log = structlog.get_logger()

_AGAIN_SECONDS = 60.0
"""How long a user counts as migrated: another process may since have created another row."""
_MOST_USERS = 20_000

_Person = tuple[str, tuple[str, ...]]
"""A subject, and the addresses that its token lists."""


class WalletMigration:
    def __init__(
        self,
        pool: Pool,
        identity: IdentityProvider,
        erased: ErasedAddresses,
        clock: Clock = monotonic,
    ) -> None:
        self._pool = pool
        self._erased = erased
        self._identity = identity
        self._recent: TTLCache[TokenUser, None] = TTLCache(_MOST_USERS, _AGAIN_SECONDS, clock)
        self._needs: Batcher[_Person, bool] = Batcher(self._read_needs)

    def is_due(self, user: TokenUser) -> bool:
        """Whether `migrate` would check the user now."""
        return user not in self._recent

    async def migrate(self, user: TokenUser) -> None:
        """Migrate the addresses of a verified token's user, once a minute for the same claims."""
        if not self.is_due(user):
            return
        self._recent[user] = None
        try:
            await self._settle(user)
        except Unavailable as error:
            telemetry.WALLET_MIGRATIONS.labels("unavailable").inc()
            log.warning("user.wallet_not_moved", reason=type(error).__name__)
        except BaseException:
            self._recent.pop(user, None)
            raise

    async def _settle(self, user: TokenUser) -> None:
        if user.emails is not None and not await self._is_needed(user.subject, user.emails):
            return
        person = await self._identity.profile_of(user.subject)
        if person is None:
            return
        emails = person.emails if user.emails is None else user.emails
        home = person.home
        async with session(self._pool) as connection:
            keys = await self._erased.keys_of(connection, emails)
            await address_proofs.insert(connection, self._proven(person.id, emails))
            migrated = await users.migrate_wallets(
                connection, person.id, keys, home.subject, home.wallet
            )
        for user_row in migrated:
            telemetry.WALLET_MIGRATIONS.labels("moved").inc()
            log.info(
                "user.wallet_moved",
                user=str(user_row.id),
                left=hex_of(user_row.left),
                wallet=hex_of(home.wallet),
            )

    async def _is_needed(self, subject: str, emails: tuple[str, ...]) -> bool:
        """A token that lists all addresses saves a request to the provider."""
        return bool(emails) and await self._needs.ask((subject, emails))

    async def _read_needs(self, people: Sequence[_Person]) -> list[bool]:
        async with session(self._pool) as connection:
            keys = await self._erased.keys_of_each(connection, [emails for _, emails in people])
            await address_proofs.insert(
                connection, [proof for person in people for proof in self._proven(*person)]
            )
            subjects = [subject for subject, _ in people]
            needy = await users.need_migration(connection, list(zip(subjects, keys, strict=True)))
        return [subject in needy for subject in subjects]

    def _proven(self, person: str, emails: Sequence[str]) -> list[ProvenAddress]:
        return [
            ProvenAddress(person, email, self._erased.known_key_of(email))
            for email in emails
            if not is_erased(email)
        ]

"""An e-mail address follows the person who has proven it to his wallet (docs/decisions/0019).

Proven is what a verified identity token lists, or what whoever keeps the wallets answers for a
token's subject; what callers say plays no part. Nothing that was given before moves. Following
never fails the request that it came with: what could not be found out or written is tried again
with the next token after a minute.
"""

from time import monotonic

import structlog
from cachetools import TTLCache

from ltzd import telemetry
from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.concurrency.clock import Clock
from ltzd.errors import Unavailable
from ltzd.providers.identity.tokens import TokenUser
from ltzd.store.database import Pool, session
from ltzd.store.users import users
from ltzd.values import hex_of

log = structlog.get_logger()

_AGAIN_SECONDS = 60.0
"""What one process knows to be settled, another, or an event on its way, may have unsettled."""
_MOST_USERS = 20_000


class WalletMigration:
    def __init__(self, pool: Pool, identity: IdentityProvider, clock: Clock = monotonic) -> None:
        self._pool = pool
        self._identity = identity
        self._looked_at: TTLCache[TokenUser, None] = TTLCache(_MOST_USERS, _AGAIN_SECONDS, clock)

    async def follow(self, user: TokenUser) -> None:
        """Of a verified token. Once a minute for a subject with the same names and wallets."""
        if user in self._looked_at:
            return
        self._looked_at[user] = None
        try:
            await self._settle(user)
        except Unavailable as error:
            telemetry.WALLET_MIGRATIONS.labels("unavailable").inc()
            log.warning("user.not_followed", reason=type(error).__name__)
        except BaseException:
            self._looked_at.pop(user, None)
            raise

    async def _settle(self, user: TokenUser) -> None:
        if user.emails is not None and not await self._is_due(user.subject, user.emails):
            return
        person = await self._identity.profile_of(user.subject)
        if person is None:
            return
        emails = person.emails if user.emails is None else user.emails
        home = person.home
        async with session(self._pool) as connection:
            followed = await users.migrate_wallets(
                connection, person.id, emails, home.subject, home.wallet
            )
        for one in followed:
            telemetry.WALLET_MIGRATIONS.labels("moved").inc()
            log.info(
                "user.followed", user=str(one.id), left=hex_of(one.left), wallet=hex_of(home.wallet)
            )

    async def _is_due(self, subject: str, emails: tuple[str, ...]) -> bool:
        """A token that names all addresses spares its provider a question."""
        if not emails:
            return False
        async with session(self._pool) as connection:
            return await users.needs_migration(connection, subject, emails)

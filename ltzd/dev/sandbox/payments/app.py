"""The payment provider's part of the sandbox, put together.

It keeps a journal of its own. Events go to one address, which may be told at any time; until then
they wait.
"""

from pathlib import Path
from typing import Self

import msgspec
from aiohttp import web

from ltzd.dev.sandbox.identity.credentials import PaymentsAccount
from ltzd.dev.sandbox.journal import Journal, Record
from ltzd.dev.sandbox.payments.api import PREFIX, PaymentsApi
from ltzd.dev.sandbox.payments.control import PaymentControl
from ltzd.dev.sandbox.payments.events import EventSender
from ltzd.dev.sandbox.payments.operations import PaymentOperations
from ltzd.dev.sandbox.payments.pages import PayPages
from ltzd.dev.sandbox.payments.sessions import SessionStore
from ltzd.errors import Misconfigured
from ltzd.providers.payments import PaymentsPolicy

DOOR = "/doors/pay"


class Payments:
    def __init__(self, journal: Journal, account: PaymentsAccount, book: SessionStore) -> None:
        self._journal = journal
        self._account = account
        self._book = book
        self._sender = EventSender(account.signing_secret, book.delivered)

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Raises Misconfigured."""
        journal, records = Journal.open(path)
        try:
            return cls(journal, *await _recalled(journal, records))
        except BaseException:
            await journal.close()
            raise

    def policy(self, url: str) -> PaymentsPolicy:
        account = self._account
        return PaymentsPolicy(url + PREFIX, account.secret_key, account.signing_secret)

    def routes(self) -> list[web.RouteDef]:
        desk = PaymentOperations(self._book, self._sender)
        api = PaymentsApi(desk, self._account.secret_key)
        door = web.post(DOOR, PaymentControl(desk).open)
        return [*api.routes(), *PayPages(desk).routes(), door]

    def set_payment_events_url(self, url: str) -> None:
        self._sender.address(url)

    def start_sending(self) -> None:
        self._sender.start(self._book.undelivered())

    async def stop_sending(self) -> None:
        await self._sender.stop()

    async def close(self) -> None:
        await self._journal.close()


async def _recalled(
    journal: Journal, records: list[Record]
) -> tuple[PaymentsAccount, SessionStore]:
    """What the journal remembers; a new journal gets credentials first."""
    book = SessionStore(journal)
    if not records:
        account = PaymentsAccount.new()
        await journal.durable(journal.append(account.record()))
        return account, book
    try:
        for record in records[1:]:
            book.remember(record)
        return PaymentsAccount.remembered(records[0]), book
    except (KeyError, ValueError, TypeError, msgspec.ValidationError) as error:
        raise Misconfigured(
            "The sandbox's data directory is damaged: start once with --clean to begin anew."
        ) from error

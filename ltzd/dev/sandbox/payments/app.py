"""Puts the payment provider of the sandbox together, with a journal of its own.

Events are sent to one URL, which may be set at any time; until then they wait.
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
from ltzd.providers.checkouts import PaymentsPolicy

CONTROL_PATH = "/doors/pay"


class SandboxPaymentProvider:
    def __init__(self, journal: Journal, account: PaymentsAccount, store: SessionStore) -> None:
        self._journal = journal
        self._account = account
        self._store = store
        self._sender = EventSender(account.signing_secret, store.mark_delivered)

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Raises Misconfigured."""
        journal, records = Journal.open(path)
        try:
            return cls(journal, *await _restore(journal, records))
        except BaseException:
            await journal.close()
            raise

    def policy(self, url: str) -> PaymentsPolicy:
        account = self._account
        return PaymentsPolicy(url + PREFIX, account.secret_key, account.signing_secret)

    def routes(self) -> list[web.RouteDef]:
        operations = PaymentOperations(self._store, self._sender)
        api = PaymentsApi(operations, self._account.secret_key)
        control = web.post(CONTROL_PATH, PaymentControl(operations).handle)
        return [*api.routes(), *PayPages(operations).routes(), control]

    def set_payment_events_url(self, url: str) -> None:
        self._sender.set_url(url)

    def start_sending(self) -> None:
        self._sender.start(self._store.undelivered())

    async def stop_sending(self) -> None:
        await self._sender.stop()

    async def close(self) -> None:
        await self._journal.close()


async def _restore(journal: Journal, records: list[Record]) -> tuple[PaymentsAccount, SessionStore]:
    """Read the journal; a new journal gets a new account as its first record."""
    store = SessionStore(journal)
    if not records:
        account = PaymentsAccount.new()
        await journal.wait_durable(journal.append(account.as_record()))
        return account, store
    try:
        for record in records[1:]:
            store.apply_record(record)
        return PaymentsAccount.from_record(records[0]), store
    except (KeyError, ValueError, TypeError, msgspec.ValidationError) as error:
        raise Misconfigured(
            "The sandbox's data directory is damaged; start once with --clean to create a new one."
        ) from error

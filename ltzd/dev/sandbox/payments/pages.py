"""The payment provider's hosted pay page, and a page of all sessions for the merchant.

Plain forms without a script. What is kept when a button is answered survives a kill -9; the events
go out on their own.
"""

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from aiohttp import web

from ltzd.dev.sandbox import pages
from ltzd.dev.sandbox.payments import changes as payment_changes
from ltzd.dev.sandbox.payments.changes import Change
from ltzd.dev.sandbox.payments.errors import ProviderError
from ltzd.dev.sandbox.payments.operations import PaymentOperations
from ltzd.dev.sandbox.payments.sessions import CheckoutSession
from ltzd.dev.sandbox.payments.views import BASE, bought, next_steps, row

_MOST_LISTED = 100
# The browser holds the redirect after a form to this, too, and the shop may live anywhere.
_FORMS_END_ANYWHERE = "http: https:"
_VISIBLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))

PageHandler = Callable[[CheckoutSession], Awaitable[web.Response]]


class PayPages:
    def __init__(self, operations: PaymentOperations) -> None:
        self._operations = operations

    def routes(self) -> list[web.RouteDef]:
        one = BASE + "/{id}"
        return [
            web.get(BASE, self._list),
            web.get(BASE + "/", self._list),
            web.get(one, self._for_session(self._show)),
            web.post(one + "/pay", self._for_session(self._pay)),
            web.post(one + "/cancel", self._for_session(self._cancel)),
            web.post(one + "/refund", self._for_session(self._refund)),
            web.post(one + "/dispute", self._for_session(self._dispute)),
        ]

    def _for_session(self, answer: PageHandler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def found(request: web.Request) -> web.Response:
            session = self._operations.store.session(request.match_info["id"])
            if session is None:
                return pages.notice(404, "No such payment", "This payment page does not exist.")
            try:
                return await answer(session)
            except ProviderError as error:
                return pages.notice(409, "This cannot be done", error.message)

        return found

    async def _list(self, _request: web.Request) -> web.Response:
        sessions = self._operations.store.newest(_MOST_LISTED)
        for session in sessions:
            await self._operations.store.saved(session)
        titles = ("Session", "Amount", "Payer", "State", "Money back")
        return pages.page(
            "Payments",
            pages.note("The newest checkout sessions. Whoever opens one can pay it."),
            pages.table(titles, [*map(row, sessions)]),
            form_action="'self'",
        )

    async def _show(self, session: CheckoutSession) -> web.Response:
        await self._operations.store.saved(session)
        title = "Pay" if session.status == "open" else "Payment"
        parts = [pages.facts(bought(session)), *next_steps(session)]
        return pages.page(title, *parts, form_action=_FORMS_END_ANYWHERE)

    async def _pay(self, session: CheckoutSession) -> web.Response:
        """A second press of the button finds the work done and only leads on."""
        now = self._operations.store.now()
        if session.status == "complete" and session.payment_status == "unpaid":
            await self._operations.apply(payment_changes.settled(session))
        elif session.status != "complete":
            await self._operations.apply(payment_changes.completed(session, now, is_paid=True))
        await self._operations.store.saved(session)
        return _see_other(session.success_url.replace("{CHECKOUT_SESSION_ID}", session.id))

    async def _cancel(self, session: CheckoutSession) -> web.Response:
        """The session stays open: the payer may come back to it."""
        if session.status != "open" or session.cancel_url is None:
            return pages.notice(409, "Nothing to cancel", f"This payment is {session.status}.")
        return _see_other(session.cancel_url)

    async def _refund(self, session: CheckoutSession) -> web.Response:
        return await self._reversed(payment_changes.refunded(session, self._operations.store.now()))

    async def _dispute(self, session: CheckoutSession) -> web.Response:
        return await self._reversed(payment_changes.disputed(session, self._operations.store.now()))

    async def _reversed(self, change: Change) -> web.Response:
        await self._operations.apply(change)
        return _see_other(BASE + "/")


def _see_other(location: str) -> web.Response:
    # As the merchant gave it, not normalized; only a header cannot carry other letters.
    headers = {"Location": quote(location, safe=_VISIBLE_ASCII), "Cache-Control": "no-store"}
    return web.Response(status=303, headers=headers)

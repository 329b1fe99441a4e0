"""The payment provider's hosted payment page, and a page of all sessions for the merchant.

The pages are plain forms without scripts. A change is on disk before its button's answer; its
events are sent in the background.
"""

import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from aiohttp import web

from ltzd.dev.sandbox import pages
from ltzd.dev.sandbox.payments import changes as payment_changes
from ltzd.dev.sandbox.payments.changes import Change
from ltzd.dev.sandbox.payments.errors import ProviderError
from ltzd.dev.sandbox.payments.operations import PaymentOperations
from ltzd.dev.sandbox.payments.sessions import SandboxSession
from ltzd.dev.sandbox.payments.views import BASE, session_actions, session_facts, session_row

_MAX_LISTED = 100
# form-action also limits the redirect after a form, which leads to the shop at any host.
_ANY_FORM_ACTION = "http: https:"
_VISIBLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))

PageHandler = Callable[[SandboxSession], Awaitable[web.Response]]


class PayPages:
    def __init__(self, operations: PaymentOperations) -> None:
        self._operations = operations

    def routes(self) -> list[web.RouteDef]:
        session = BASE + "/{id}"
        return [
            web.get(BASE, self._list),
            web.get(BASE + "/", self._list),
            web.get(session, self._for_session(self._show)),
            web.post(session + "/pay", self._for_session(self._pay)),
            web.post(session + "/cancel", self._for_session(self._cancel)),
            web.post(session + "/refund", self._for_session(self._refund)),
            web.post(session + "/dispute", self._for_session(self._dispute)),
        ]

    def _for_session(self, answer: PageHandler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            session = self._operations.sessions.session(request.match_info["id"])
            if session is None:
                return pages.notice(404, "No such payment", "This payment page does not exist.")
            try:
                return await answer(session)
            except ProviderError as error:
                return pages.notice(409, "This is not possible", error.message)

        return handle

    async def _list(self, _request: web.Request) -> web.Response:
        sessions = self._operations.sessions.newest(_MAX_LISTED)
        for session in sessions:
            await self._operations.sessions.saved(session)
        titles = ("Session", "Amount", "Payer", "State", "Money back")
        return pages.page(
            "Payments",
            pages.note("The newest checkout sessions. Open a session to pay it."),
            pages.table(titles, [*map(session_row, sessions)]),
            form_action="'self'",
        )

    async def _show(self, session: SandboxSession) -> web.Response:
        await self._operations.sessions.saved(session)
        title = "Pay" if session.status == "open" else "Payment"
        parts = [pages.facts(session_facts(session)), *session_actions(session)]
        return pages.page(title, *parts, form_action=_ANY_FORM_ACTION)

    async def _pay(self, session: SandboxSession) -> web.Response:
        """Pay unless the session is paid already, then redirect to the shop."""
        now = time.time()
        if session.status == "complete" and session.payment_status == "unpaid":
            await self._operations.apply(payment_changes.settled(session))
        elif session.status != "complete":
            await self._operations.apply(payment_changes.completed(session, now, is_paid=True))
        await self._operations.sessions.saved(session)
        return _see_other(session.success_url.replace("{CHECKOUT_SESSION_ID}", session.id))

    async def _cancel(self, session: SandboxSession) -> web.Response:
        """Redirect to the shop; the session stays open, so that the payer may come back."""
        if session.status != "open" or session.cancel_url is None:
            return pages.notice(409, "Nothing to cancel", f"This payment is {session.status}.")
        return _see_other(session.cancel_url)

    async def _refund(self, session: SandboxSession) -> web.Response:
        return await self._reversed(payment_changes.refunded(session, time.time()))

    async def _dispute(self, session: SandboxSession) -> web.Response:
        return await self._reversed(payment_changes.disputed(session, time.time()))

    async def _reversed(self, change: Change) -> web.Response:
        await self._operations.apply(change)
        return _see_other(BASE + "/")


def _see_other(location: str) -> web.Response:
    # The merchant's URL is not normalized; only characters that a header cannot carry are quoted.
    headers = {"Location": quote(location, safe=_VISIBLE_ASCII), "Cache-Control": "no-store"}
    return web.Response(status=303, headers=headers)

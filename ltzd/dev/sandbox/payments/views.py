"""HTML of a checkout session for the payment pages."""

from ltzd.dev.sandbox import pages
from ltzd.dev.sandbox.pages import Html, text
from ltzd.dev.sandbox.payments.sessions import LineItem, SandboxSession

BASE = "/pay"


def session_row(session: SandboxSession) -> list[Html]:
    return [
        pages.link(f"{BASE}/{session.id}", f"{session.id[:14]}…{session.id[-6:]}"),
        text(_money(session, session.amount)),
        text(session.customer_email or "unknown"),
        _state(session),
        _reversal_buttons(session),
    ]


def session_facts(session: SandboxSession) -> list[tuple[str, Html]]:
    lines = [(f"{line.quantity} x {line.name}", _price(session, line)) for line in session.lines]
    payer = [("For", text(session.customer_email))] if session.customer_email else []
    total = ("Total", text(_money(session, session.amount), "good"))
    return [*lines, total, *payer, ("State", _state(session))]


def session_actions(session: SandboxSession) -> list[Html]:
    match session.status, session.payment_status:
        case "open", _:
            buttons = [_button(session, "pay", f"Pay {_money(session, session.amount)}")]
            if session.cancel_url is not None:
                buttons.append(_button(session, "cancel", "Cancel", style="plain"))
            return [pages.note("Nothing is charged: this is the sandbox."), pages.actions(buttons)]
        case "complete", "unpaid":
            message = "The payer chose a delayed payment method; the money has not arrived yet."
            return [
                pages.note(message),
                pages.actions([_button(session, "pay", "Let the money arrive")]),
            ]
        case "complete", _:
            return [pages.note("This is paid. It cannot be paid twice.")]
    return [pages.note("This can no longer be paid. Start again in the shop.")]


def _reversal_buttons(session: SandboxSession) -> Html:
    is_reversed = session.dispute is not None or session.amount_refunded == session.amount
    if session.payment_status != "paid" or is_reversed:
        return text("")
    return pages.actions(
        [
            _button(session, name, label, style="plain", about=session.id)
            for name, label in (("refund", "Refund"), ("dispute", "Dispute"))
        ]
    )


def _button(
    session: SandboxSession, name: str, label: str, style: str = "main", about: str | None = None
) -> Html:
    return pages.button(f"{BASE}/{session.id}/{name}", label, style, about)


def _state(session: SandboxSession) -> Html:
    if session.dispute is not None:
        return text("disputed", "bad")
    if session.refunds:
        state = "refunded" if session.amount_refunded == session.amount else "partly refunded"
        return text(f"{state}, {_money(session, session.amount_refunded)}", "bad")
    match session.status, session.payment_status:
        case "complete", "unpaid":
            return text("waiting for the money")
        case "complete", _:
            return text("paid", "good")
        case "expired", _:
            return text("expired", "bad")
    return text("open")


def _price(session: SandboxSession, line: LineItem) -> Html:
    price = text(_money(session, line.quantity * line.unit_amount))
    if line.description is None:
        return price
    return Html(f"{price} {text(line.description, 'dim')}")


def _money(session: SandboxSession, cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02d} {session.currency.upper()}"

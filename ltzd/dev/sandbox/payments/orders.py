"""Creates a checkout session from the parameters of the provider's API."""

from urllib.parse import urlsplit

from ltzd.dev.sandbox.payments.errors import ProviderError, new_id
from ltzd.dev.sandbox.payments.forms import Form, missing
from ltzd.dev.sandbox.payments.sessions import LineItem, SandboxSession
from ltzd.dev.sandbox.requests import BadInputError, email_in

# The least total that the provider accepts, in cents, for each supported currency.
_MIN_AMOUNTS = {"usd": 50, "aud": 50, "cad": 50, "chf": 50, "eur": 50, "gbp": 30}
_MAX_AMOUNT = 99_999_999
_MAX_LINE_ITEMS = 100
_MIN_SECONDS = 30 * 60
_MAX_SECONDS = 24 * 3600
_CLOCK_SKEW_SECONDS = 60
_IGNORED = ("adaptive_pricing", "locale", "submit_type", "payment_method_types")


def parse_session(form: Form, now: float) -> SandboxSession:
    if form.one_of("mode", "payment") is None:
        raise missing("mode")
    form.one_of("ui_mode", "hosted_page")
    form.skip(_IGNORED)
    currency, lines = _lines(form)
    cancel_url = form.text("cancel_url")
    return SandboxSession(
        id=new_id("cs_test", 58),
        created=int(now),
        expires_at=_expiry(form, int(now)),
        currency=currency,
        lines=lines,
        success_url=_checked_url("success_url", form.required_text("success_url")),
        cancel_url=None if cancel_url is None else _checked_url("cancel_url", cancel_url),
        customer_email=_email(form),
        client_reference_id=form.text("client_reference_id", 200),
        metadata=form.metadata(),
        intent_metadata=form.metadata("payment_intent_data[metadata]"),
    )


def _lines(form: Form) -> tuple[str, tuple[LineItem, ...]]:
    prefixes = form.indexed_prefixes("line_items")
    if not prefixes:
        raise missing("line_items")
    if len(prefixes) > _MAX_LINE_ITEMS:
        raise ProviderError(f"At most {_MAX_LINE_ITEMS} line items.", param="line_items")
    currencies = {_currency(form, f"{prefix}[price_data][currency]") for prefix in prefixes}
    lines = tuple(_line(form, prefix) for prefix in prefixes)
    if len(currencies) > 1:
        raise ProviderError("All line items must have one currency.", param="line_items")
    currency = currencies.pop()
    _check_total(currency, sum(line.quantity * line.unit_amount for line in lines))
    return currency, lines


def _line(form: Form, prefix: str) -> LineItem:
    product = f"{prefix}[price_data][product_data]"
    return LineItem(
        name=form.required_text(f"{product}[name]", 250),
        description=form.text(f"{product}[description]"),
        quantity=form.required_number(f"{prefix}[quantity]", 1),
        unit_amount=form.required_number(f"{prefix}[price_data][unit_amount]"),
    )


def _currency(form: Form, name: str) -> str:
    currency = form.required_text(name).lower()
    if currency not in _MIN_AMOUNTS:
        raise ProviderError(
            f"Invalid currency; the sandbox supports {', '.join(_MIN_AMOUNTS)}.", param=name
        )
    return currency


def _check_total(currency: str, total: int) -> None:
    """Refuse a total outside the limits; a total of zero requires no payment."""
    if 0 < total < _MIN_AMOUNTS[currency]:
        raise ProviderError(
            f"The total must be at least {_MIN_AMOUNTS[currency]} {currency} cents.",
            code="amount_too_small",
        )
    if total > _MAX_AMOUNT:
        raise ProviderError(
            f"The total must be at most {_MAX_AMOUNT} {currency} cents.", code="amount_too_large"
        )


def _expiry(form: Form, now: int) -> int:
    expires_at = form.whole_number("expires_at")
    if expires_at is None:
        return now + _MAX_SECONDS
    seconds = expires_at - now
    if not (_MIN_SECONDS - _CLOCK_SKEW_SECONDS <= seconds <= _MAX_SECONDS + _CLOCK_SKEW_SECONDS):
        raise ProviderError(
            "expires_at must be from 30 minutes to 24 hours after now.", param="expires_at"
        )
    return expires_at


def _checked_url(name: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_good = False
    # The URL becomes the value of a Location header.
    if not is_good or any(c.isspace() or not c.isprintable() for c in url):
        raise ProviderError(f"{name} is not a valid URL.", code="url_invalid", param=name)
    return url


def _email(form: Form) -> str | None:
    email = form.text("customer_email", 800)
    if email is None:
        return None
    try:
        return email_in({"customer_email": email}, "customer_email")
    except BadInputError:
        raise ProviderError(
            "Invalid email address.", code="email_invalid", param="customer_email"
        ) from None

"""The payment provider's settings, and the page that it answers with.

They are apart from the client (`payments`), whose SDK takes 16 MiB: a process without payments does
not import it.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PaymentsPolicy:
    """`timeout_seconds` bounds one call with its repeats, `attempt_seconds` one request."""

    base_url: str
    secret_key: str = field(repr=False)
    signing_secret: str = field(repr=False)
    attempt_seconds: float = 8.0
    timeout_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class CheckoutPage:
    """The page on which the customer of a checkout session pays."""

    id: str
    url: str

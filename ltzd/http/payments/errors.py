"""The error body of payment-mint (spec 7.4)."""

from typing import Literal

from ltzd.http.errors import Envelope, HttpError, message_with_faults
from ltzd.http.models import ResponseModel


class PaymentMintError(ResponseModel):
    """An error of payment-mint (spec 7.4)."""

    success: Literal[False]
    message: str


def error_body(error: HttpError) -> dict[str, object]:
    return {"success": False, "message": message_with_faults(error)}


PAYMENT_MINT_ERRORS = Envelope(error_body, PaymentMintError)

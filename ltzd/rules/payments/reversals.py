"""Records each refund and dispute of a payment once, whatever events report it. Units: US cents."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from ltzd.rules.payments.provider_events import PaymentDispute, PaymentRefund, RefundedCharge

_SUM = "/"
"""A mark in the ids of sums' additions, which no id of the provider has."""


class Reversal(msgspec.Struct, frozen=True):
    """An additional refund or dispute of a payment. `provider_id` makes it count once."""

    provider_id: str
    kind: Literal["refund", "dispute"]
    payment_intent_id: str
    usd_cents: int
    reason: str | None


def reversal_of(
    notice: PaymentRefund | RefundedCharge | PaymentDispute, refunds: Mapping[str, int]
) -> Reversal | None:
    """The part of the notice that is not recorded yet, or None.

    `refunds` are the payment's recorded refunds, in cents by `provider_id`.

    The provider reports a refund twice, by itself and in its charge's sum, in any order, and may
    send an endpoint only one of the two kinds. The recorded total never exceeds the refunded total,
    and equals that after the last sum, or after all refunds where no sums come. A sum adds its
    excess over all recorded refunds. A refund adds its excess over the additions of sums, since
    they may already contain it.
    """
    match notice:
        case PaymentDispute():
            return Reversal(
                notice.id, "dispute", notice.payment_intent_id, notice.usd_cents, notice.reason
            )
        case RefundedCharge():
            provider_id, reason = f"{notice.charge_id}{_SUM}{notice.usd_cents}", None
            more = notice.usd_cents - sum(refunds.values())
        case PaymentRefund():
            provider_id, reason = notice.id, notice.reason
            more = notice.usd_cents - sum(each for id_, each in refunds.items() if _SUM in id_)
    if provider_id in refunds or more <= 0:
        return None
    return Reversal(provider_id, "refund", notice.payment_intent_id, more, reason)

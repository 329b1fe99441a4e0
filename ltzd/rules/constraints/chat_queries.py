"""What was asked of the chat platform for a purchase constraint, and what its answers come to.

A question is kept with its result, whole: whoever asks again needs neither the brand's file nor the
user's token. It has one form as bytes, so equal questions are equal there, too.
"""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from ltzd.rules.constraints.constraints import ChatConstraint


class ChatQuery(BaseModel):
    """`accounts` are the ids of all that are the user's; one that satisfies is enough."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    constraint: Annotated[ChatConstraint, Field(discriminator="kind")]
    accounts: tuple[str, ...]

    @classmethod
    def from_bytes(cls, kept: bytes) -> Self:
        return cls.model_validate_json(kept)

    def as_bytes(self) -> bytes:
        return self.model_dump_json().encode()


def combine_verdicts(verdicts: Iterable[bool | None]) -> bool | None:
    """Of all accounts together; None is not known, which one that satisfies makes no matter."""
    heard = set(verdicts)
    if True in heard:
        return True
    return None if None in heard else False

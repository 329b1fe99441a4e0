"""A purchase constraint's query to the chat platform, and the verdict over its answers.

The whole query is stored with its result, so that it can be repeated without the brand's file and
the user's token. Equal queries have equal bytes.
"""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from ltzd.rules.constraints.constraints import ChatConstraint


class ChatQuery(BaseModel):
    """`accounts` are the ids of all the user's accounts; one that satisfies is enough."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    constraint: Annotated[ChatConstraint, Field(discriminator="kind")]
    accounts: tuple[str, ...]

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        return cls.model_validate_json(stored)

    def as_bytes(self) -> bytes:
        return self.model_dump_json().encode()


def combine_verdicts(verdicts: Iterable[bool | None]) -> bool | None:
    """The verdict over all accounts: True if one is satisfied, else None if one is unknown."""
    distinct = set(verdicts)
    if True in distinct:
        return True
    return None if None in distinct else False

"""The references of mints in SQL, as `values.reward_reference` builds them.

The expressions are about a row `r` of `rewards` and a row `m` of `mints`.
"""

from typing import Final

PAYMENT_REWARD: Final = 2
"""The kind of a payment's reward, in rows and references (docs/contracts.md)."""

_KIND: Final = "substring(int2send(r.kind) FROM 2) || '\\x00000000000000'::bytea"

OF_REWARD: Final = f"(uuid_send(r.id) || {_KIND} || int8send(r.seq))"
"""The reference of a reward; NULL for one without a seq."""
HAS_KIND_OF_REWARD: Final = f"substring(m.reference FROM 17 FOR 8) = {_KIND}"
"""Whether a mint's reference has the reward's kind."""
REWARD_ID: Final = "encode(substring(m.reference FOR 16), 'hex')::uuid"
"""The id of the reward that a mint's reference names."""
SEQ: Final = "('x' || encode(substring(m.reference FROM 25), 'hex'))::bit(64)::bigint"
"""The seq in a mint's reference."""

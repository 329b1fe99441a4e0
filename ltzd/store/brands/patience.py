"""A brand's `patience_seconds` as SQL, for statements that read many brands at once."""

from typing import Final

from ltzd.rules.operator.patience import MOST_PATIENCE_SECONDS

PATIENCE_SECONDS: Final = f"""
CASE WHEN jsonb_typeof(configuration -> 'patience_seconds') = 'number'
     THEN least(greatest((configuration ->> 'patience_seconds')::numeric, 0),
                {MOST_PATIENCE_SECONDS})::int
     ELSE 0 END"""
"""Of a row of `brands`. A value that no brand file may have never fails the statement: another
version may have written it, and the other brands' rewards must not wait for that."""

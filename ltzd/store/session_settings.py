"""The settings of PostgreSQL that ltzd's statements are written for.

Every connection asks for them at its start, since an administrator may set others for the database
or the user (ALTER DATABASE … SET, ALTER ROLE … SET). Poolers refuse some of them, so a transaction
names its isolation as well (`database.py`).
"""

from typing import Final

WRITTEN_FOR: Final = {
    # A statement after a lock reads what the lock's last holder has committed.
    "default_transaction_isolation": "read committed",
    # Dates become a part of texts, such as the ids of the books' differences.
    "DateStyle": "ISO",
    # A backslash in a string means itself.
    "standard_conforming_strings": "on",
    # A limit for short statements would end those that read a whole table; ltzd limits each itself.
    "statement_timeout": "0",
}

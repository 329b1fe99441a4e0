"""The sizes of the index's tests: small in `make test`, large in `make campaign-index`."""

import os

CAMPAIGN = "LTZD_CAMPAIGN_INDEX" in os.environ
EXAMPLES = 3_000 if CAMPAIGN else 30
TRANSFERS = 1_000_000 if CAMPAIGN else 10_000

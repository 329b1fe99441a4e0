"""The back end of a loyalty-rewards platform whose books are a blockchain."""

import os

__version__ = "0.1.0"

# By itself eth-hash, with which py-evm and eth-account hash, takes pycryptodome's Keccak: ten times
# slower, and 3 MiB of memory.
os.environ.setdefault("ETH_HASH_BACKEND", "pysha3")

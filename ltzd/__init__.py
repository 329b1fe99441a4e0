"""The back end of a loyalty-rewards platform whose books are a blockchain."""

__version__ = "0.1.0"

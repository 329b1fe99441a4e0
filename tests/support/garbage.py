"""Whether objects end with their last reference, and not at the next collection of garbage.

A daemon collects seldom: what cycles keep until then is memory that grows.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage is collected in the block."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

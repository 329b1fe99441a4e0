"""Keystores for tests whose subject is not how long a password takes to try."""

import pytest
from eth_keyfile import keyfile

LEAST_ROUNDS = 2


@pytest.fixture
def cheap_keystores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in this process derive a new keystore's key in two rounds, not in half a second."""
    monkeypatch.setattr(keyfile, "get_default_work_factor_for_kdf", lambda kdf: LEAST_ROUNDS)

"""Programs of this machine that some tests drive; `make test` installs them where it may.

A test without its program is skipped and says so: a machine that can install none is no fault of
what is tested.
"""

import shutil
from pathlib import Path

import pytest

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def chromium_path() -> Path:
    return _program("chromium", CHROMIUM_NAMES)


def php_path() -> Path:
    return _program("php-cli", ("php",))


def nginx_path() -> Path:
    return _program("nginx", ("nginx", "/usr/sbin/nginx"))


def caddy_path() -> Path:
    return _program("caddy", ("caddy",))


def systemd_analyze_path() -> Path:
    return _program("systemd", ("systemd-analyze",))


def _program(package: str, names: tuple[str, ...]) -> Path:
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return Path(path)
    reason = f"No {names[0]} on PATH: install it (Debian and Ubuntu: apt-get install {package})"
    pytest.skip(reason)

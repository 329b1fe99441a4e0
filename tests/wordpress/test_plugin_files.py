"""The plugin's files as WordPress expects them: valid PHP, one version, no direct access."""

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from tests.support.sites.plugin_site import PLUGIN
from tests.support.tools import php_path

FOLDER = PLUGIN.parent
FILES = sorted(FOLDER.rglob("*.php"))


def header(name: str) -> str:
    match = re.search(rf"^ \* {name}: +(.+)$", PLUGIN.read_text(), re.MULTILINE)
    assert match is not None, name
    return match[1]


def readme(name: str) -> str:
    match = re.search(rf"^{name}: (.+)$", (FOLDER / "readme.txt").read_text(), re.MULTILINE)
    assert match is not None, name
    return match[1]


def test_one_version_is_in_header_readme_and_scripts() -> None:
    assert header("Version") == readme("Stable tag")
    assert f"const VERSION   = '{header('Version')}';" in (FOLDER / "page.php").read_text()
    assert f"= {header('Version')} =" in (FOLDER / "readme.txt").read_text()
    for name in ("Requires at least", "Requires PHP", "License"):
        assert header(name) == readme(name)


def test_no_directory_of_plugins_updates_it() -> None:
    assert header("Update URI") == "false"
    assert (header("Text Domain"), header("Domain Path")) == ("ltzd-loyalty", "/languages")


async def test_every_file_is_valid_php() -> None:
    for path in FILES:
        process = await asyncio.create_subprocess_exec(
            *(str(php_path()), "-n", "-l", str(path)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(30):
            output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.name))
def test_a_file_does_nothing_when_it_is_opened_directly(path: Path) -> None:
    text = path.read_text()
    code = re.sub(r"/\*.*?\*/", "", text, count=1, flags=re.DOTALL).split("\n")
    statements = [line for line in code if line.strip()]
    assert statements[:3] == [
        "<?php",
        "namespace Ltzd\\Loyalty;",
        "defined( 'ABSPATH' ) || exit;",
    ]
    assert "?>" not in text.rstrip().split("\n")[-1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.name))
def test_a_file_keeps_to_wordpresss_manners(path: Path) -> None:
    for number, line in enumerate(path.read_text().split("\n"), 1):
        place = f"{path.name}:{number}"
        assert not line.startswith(" ") or line.startswith(" *"), f"{place}: indented by spaces"
        assert line == line.rstrip(), f"{place}: a space at the end"
        assert not re.search(r"\b(eval|extract|unserialize|create_function)\s*\(", line), place
        assert not re.search(r"\b(if|foreach|for|switch|while)\(", line), place
        if "$wpdb->" in line and re.search(r"(query|get_\w+)\( \"", line):
            raise AssertionError(f"{place}: a statement with a value is prepared")


async def test_php_codesniffer_finds_nothing() -> None:
    phpcs = shutil.which("phpcs")
    if phpcs is None:
        pytest.skip("No phpcs on PATH: install it (Debian and Ubuntu: php-codesniffer)")
    process = await asyncio.create_subprocess_exec(
        *(phpcs, "--standard=phpcs.xml", "-q"),
        cwd=FOLDER.parent,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()

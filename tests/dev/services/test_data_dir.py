"""The data directory: locked by one ltzd, and never emptied without its marker."""

import asyncio
import os
import stat
import sys
from pathlib import Path

import psutil
import pytest

from ltzd.dev.services import data_dir, processes
from ltzd.errors import Misconfigured

WAITS = (sys.executable, "-c", "import time; time.sleep(600)")


def test_a_second_ltzd_on_one_data_directory_is_refused_by_name(tmp_path: Path) -> None:
    with (
        data_dir.locked(tmp_path / "data"),
        pytest.raises(Misconfigured, match=rf"Another ltzd \(process {os.getpid()}\).*--data-dir"),
        data_dir.locked(tmp_path / "data"),
    ):
        pass


def test_a_released_directory_is_held_again(tmp_path: Path) -> None:
    for _ in range(2):
        with data_dir.locked(tmp_path / "data") as held:
            assert held.is_dir()


def test_a_folder_of_somebody_else_is_never_marked(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(Misconfigured, match="not ltzd's"), data_dir.locked(tmp_path):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


async def test_a_folder_without_our_marker_is_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(Misconfigured, match="was not made by ltzd"):
        await data_dir.empty(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


async def test_a_file_in_the_place_of_the_directory_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(Misconfigured, match="--data-dir"), data_dir.locked(tmp_path / "data"):
        pass


async def test_cleaning_stops_what_lives_there_and_follows_no_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("")
    with data_dir.locked(tmp_path / "data") as held:
        (held / "link").symlink_to(elsewhere)
        (held / "dev.json").write_text("{}")
        service = await processes.start(held, "sleeper", WAITS)
        await data_dir.empty(held)

        assert not psutil.pid_exists(service.pid)
        assert {entry.name for entry in held.iterdir()} == {data_dir.MARKER, data_dir.LOCK}
        assert (elsewhere / "kept").exists()


async def test_a_service_does_not_hold_the_directory_for_its_killed_starter(tmp_path: Path) -> None:
    with data_dir.locked(tmp_path / "data") as held:
        service = await processes.start(held, "sleeper", WAITS)
    with data_dir.locked(tmp_path / "data") as held:
        await asyncio.wait_for(processes.stop_all(held, 5.0), 10.0)
    assert not psutil.pid_exists(service.pid)


def test_others_may_not_list_the_directory(tmp_path: Path) -> None:
    with data_dir.locked(tmp_path / "data") as held:
        assert stat.S_IMODE(held.stat().st_mode) & 0o066 == 0

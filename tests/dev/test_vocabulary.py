"""The vocabulary: the field's terms, sentences with subjects, packages of a readable size."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.support.vocabulary import findings

ROOT = Path(__file__).resolve().parents[2]
MOST_FILES = 22
NUMBERED = {"decisions", "migrations", "versions"}
"""Folders of numbered files, which only grow: a reader finds a file there by its number."""
SOURCES = ("ltzd", "tests", "benchmarks")
DOCUMENTS = ("docs", "integrations")


def _sources() -> list[Path]:
    modules = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    documents = [path for folder in DOCUMENTS for path in (ROOT / folder).rglob("*.md")]
    return sorted([*modules, *documents, *ROOT.glob("*.md")])


def test_names_and_sentences_keep_to_the_vocabulary() -> None:
    """`python -m tests.support.vocabulary PATH` prints the same list for a path."""
    assert [finding for path in _sources() for finding in findings(path)] == []


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ('"""A module."""\n\n\nclass Purse:\n    pass\n', "FundsTracker"),
        ('"""A module."""\n\nfound = 1\n', "names no noun"),
        ('"""A module."""\n\n\ndef read(asked: int) -> None: ...\n', "names no noun"),
        ('"""What the lane does."""\n', "a bare “What”"),
        ('"""A module.\n\nThose are rows that wait.\n"""\n', "a bare “Those”"),
        ('"""A module."""\n\n# The purse is empty.\n', "no term of the field"),
        (
            '"""A module."""\n\n\ndef is_due(row: Row) -> None:\n    row.seen = 1\n',
            "`is_due` is a claim, and assigns to `seen`",
        ),
        (
            '"""A module."""\n\n\nasync def _may_act(self: Lane) -> None:\n    self.count += 1\n',
            "`_may_act` is a claim, and assigns to `count`",
        ),
    ],
)
def test_a_playful_name_a_bare_subject_or_a_claim_that_acts_is_found(
    tmp_path: Path, text: str, finding: str
) -> None:
    path = tmp_path / "module.py"
    path.write_text(text)
    assert finding in findings(path)[0]


def test_a_sentence_with_a_subject_passes(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""The lane signs. The row says what it signed."""\n\nrows = ["What is it?"]\n'
    )
    assert findings(path) == []


def test_no_folder_holds_more_files_than_a_reader_can_survey() -> None:
    files = Counter(path.parent for path in _sources() if path.name != "__init__.py")
    large = {
        str(folder.relative_to(ROOT)): count
        for folder, count in files.items()
        if count > MOST_FILES and folder.name not in NUMBERED
    }
    assert large == {}


def test_every_package_says_what_is_in_it() -> None:
    silent = []
    for path in (ROOT / "ltzd").rglob("__init__.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        if len(docstring) < 60:
            silent.append(str(path.relative_to(ROOT)))
    assert silent == []

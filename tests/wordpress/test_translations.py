"""The plugin's texts in German and French: complete for members, and compiled from their sources.

`sh integrations/wordpress/translations.sh` renews the template and what is compiled.
"""

import gettext
import re
from pathlib import Path

import pytest

from tests.support.sites.plugin_site import PLUGIN

FOLDER = PLUGIN.parent
LANGUAGES = ("de_DE", "fr_FR")
# The files whose texts members read. The settings page is for administrators.
FOR_MEMBERS = ("page.php", "blocks.php", "messages.php", "email.php")
CALL = re.compile(
    r"\b(?:__|esc_html__|esc_html_e|esc_attr__|esc_attr_e|pair)\(\s*"
    r"(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")"
)
PLACEHOLDER = re.compile(r"%(?:[0-9]\$)?[sd]")


def texts_of(path: Path) -> set[str]:
    """The literal texts of a PHP file that are to be translated."""
    texts = set()
    for single, double in CALL.findall(path.read_text()):
        if double:
            texts.add(double.replace('\\"', '"').replace("\\n", "\n").replace("\\$", "$"))
        else:
            texts.add(single.replace("\\'", "'"))
    return texts


def entries(name: str) -> dict[str, str]:
    """The texts of a .po or .pot file with their translations."""
    pairs: dict[str, str] = {}
    text = (FOLDER / "languages" / name).read_text()
    string = r'((?:"(?:[^"\\]|\\.)*"\n)+)'
    for source, target in re.findall(rf"^msgid {string}msgstr {string}", text, re.MULTILINE):
        pairs[unquoted(source)] = unquoted(target)
    return pairs


def unquoted(lines: str) -> str:
    text = "".join(line[1:-1] for line in lines.splitlines())
    return text.replace("\\n", "\n").replace('\\"', '"')


def test_the_template_has_every_text_for_members() -> None:
    texts = set().union(*(texts_of(FOLDER / name) for name in FOR_MEMBERS))
    assert len(texts) > 90
    assert texts - set(entries("ltzd-loyalty.pot")) == set(), "run translations.sh"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_member_reads_every_text_in_the_own_language(language: str) -> None:
    translated = entries(f"ltzd-loyalty-{language}.po")
    texts = set().union(*(texts_of(FOLDER / name) for name in FOR_MEMBERS))
    assert [text for text in sorted(texts) if not translated.get(text)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_has_the_placeholders_of_its_text(language: str) -> None:
    for text, translation in entries(f"ltzd-loyalty-{language}.po").items():
        if text and translation:
            assert sorted(PLACEHOLDER.findall(translation)) == sorted(PLACEHOLDER.findall(text))


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_compiled_is_what_is_written(language: str) -> None:
    written = {k: v for k, v in entries(f"ltzd-loyalty-{language}.po").items() if k and v}
    with (FOLDER / f"languages/ltzd-loyalty-{language}.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    assert {text: compiled.gettext(text) for text in written} == written

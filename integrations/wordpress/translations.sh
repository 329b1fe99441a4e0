#!/bin/sh
# Renews the template of the plugin's texts, and each language by it. Needs gettext (Debian: gettext).
# An untranslated text is shown in English: fill it in in languages/*.po, and run this again.
set -eu
cd "$(dirname "$0")/ltzd-loyalty"
template=languages/ltzd-loyalty.pot
find . -name '*.php' | LC_ALL=C sort | xgettext --files-from=- --output="$template" --language=PHP \
    --from-code=UTF-8 --add-comments=translators --sort-by-file --no-wrap \
    --package-name=ltzd-loyalty --copyright-holder=ltzd \
    --keyword --keyword=__:1 --keyword=_n:1,2 --keyword=_x:1,2c --keyword=pair:1 \
    --keyword=esc_html__:1 --keyword=esc_html_e:1 --keyword=esc_attr__:1 --keyword=esc_attr_e:1
# Without dates a template that nothing has changed stays the same file.
sed -i -e '/^"POT-Creation-Date/d' -e '/^"PO-Revision-Date/d' -e '/^"Last-Translator/d' \
    -e '/^"Language-Team/d' -e '/^"Report-Msgid-Bugs-To/d' -e 's/charset=CHARSET/charset=UTF-8/' \
    -e '1,/^$/{/^#/d}' "$template"
for language in languages/*.po; do
    msgmerge --quiet --update --backup=none --no-fuzzy-matching --no-wrap --sort-by-file \
        "$language" "$template"
    sed -i -e '/^"POT-Creation-Date/d' "$language"
    msgfmt --check-format --output-file="${language%.po}.mo" "$language"
done

"""An extension of Markdown: the name of an option, a key or a file is never broken at a hyphen.

Words in inline code get a `span`, and docs/stylesheets/extra.css keeps it on one line. Longer words may break, because
they are wider than a phone.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

WORD = re.compile(r"(?<!\S)(\S{3,44})(?!\S)")


class Unbroken(Treeprocessor):
    """Put each word of inline code into a span."""

    def run(self, root: Element) -> None:
        """Change a page."""
        blocks = {code for block in root.iter("pre") for code in block}
        for code in set(root.iter("code")) - blocks:
            between, *rest = WORD.split(code.text or "")
            code.text = AtomicString(between)
            for word, after in zip(rest[::2], rest[1::2], strict=True):
                span = SubElement(code, "span", {"class": "word"})
                span.text, span.tail = AtomicString(word), AtomicString(after)


class Names(Extension):
    """What Markdown loads."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the name is Markdown's
        """Add it."""
        md.treeprocessors.register(
            Unbroken(md), "unbroken", 5
        )  # after the one that finds inline code


def makeExtension(**options: object) -> Names:  # noqa: N802 - the name is Markdown's
    """Return the extension; Markdown calls this."""
    return Names(**options)

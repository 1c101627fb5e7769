"""A Markdown extension that prevents line breaks at hyphens in the names of options, keys, and
files.

Words in inline code are wrapped in a `span`, which docs/stylesheets/extra.css keeps on one line.
Long words may still break, because they are wider than a phone screen.
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
    """Wraps each word of inline code in a span."""

    def run(self, root: Element) -> None:
        """Process all inline code on a page."""
        blocks = {code for block in root.iter("pre") for code in block}
        for code in set(root.iter("code")) - blocks:
            between, *rest = WORD.split(code.text or "")
            code.text = AtomicString(between)
            for word, after in zip(rest[::2], rest[1::2], strict=True):
                span = SubElement(code, "span", {"class": "word"})
                span.text, span.tail = AtomicString(word), AtomicString(after)


class Names(Extension):
    """The extension that Markdown loads."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - Markdown's name
        """Register the processor with Markdown."""
        md.treeprocessors.register(
            Unbroken(md), "unbroken", 5
        )  # run after the processor for inline code


def makeExtension(**options: object) -> Names:  # noqa: N802 - Markdown's name
    """Return the extension. Markdown calls this function."""
    return Names(**options)

"""A hook of MkDocs: the name of an option, a key or a file is never broken at a hyphen, in a table or in a sentence.

Words in inline code get a `span`, and docs/stylesheets/extra.css keeps it on one line. Longer words may break, because
they are wider than a phone.
"""

from __future__ import annotations

import re

INLINE = re.compile(r"<code>([^<\n]+)</code>")
WORD = re.compile(r"(?<!\S)[^\s]{3,44}(?!\S)")


def on_page_content(html: str, **_: object) -> str:
    """Return the page with each word of inline code in a span."""
    return INLINE.sub(lambda found: f"<code>{WORD.sub(_span, found[1])}</code>", html)


def _span(word: re.Match[str]) -> str:
    return f'<span class="word">{word[0]}</span>'

"""Argo CD's own functions that turn a text into a name: `normalize` and `slugify`."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from task.applicationsets.arguments import boolean, number, text
from task.templates.go_template.values import FailedTemplate

LONGEST = 253  # characters of a DNS subdomain
_LONGEST_SLUG = 50
_STRANGE = re.compile(r"[^-a-z0-9.]")


def normalize(value: Any) -> str:
    """Turn a text into a DNS name: lower case, with `-` for each character that such a name may not have. Dots stay."""
    return _STRANGE.sub("-", text(value).lower())[:LONGEST].strip("-.")


def slugify(*arguments: Any) -> str:
    """Run `slugify [length] [whole words] text`: turn the text into a name without dots.

    Without arguments, return "".
    """
    if not arguments:
        return ""
    *given, value = arguments
    if len(given) > 2:
        raise FailedTemplate("too many arguments")
    longest = number(given[0]) if given else _LONGEST_SLUG
    whole_words = boolean(given[1]) if len(given) > 1 else True
    plain = unicodedata.normalize("NFKD", text(value)).encode("ascii", "ignore").decode().lower()
    slug = plain.strip().replace("'", "").replace('"', "").replace("&", "and").replace("@", "at")
    if not whole_words and longest > 0:
        slug = slug[:longest]
    slug = re.sub(r"-{2,}", "-", re.sub(r"[^a-z0-9-]", "-", slug)).strip("-_")
    if not whole_words or longest <= 0 or len(slug) <= longest:
        return slug
    end = slug.rfind("-", 0, longest + 1)
    return slug[:end] if end >= 0 else slug[:longest]

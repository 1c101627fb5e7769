"""Picks a tag for an entry from a whole repository: the newest that its rules admit, as in AIU.

The running tag does not matter. Of equal versions or equal dates, the greatest text wins (AIU since v0.13).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from task.model import Policy
from task.policy.judge import objection
from task.policy.strategies import needs, rules_of

# If a registry has no referrers API, cosign uses tags such as `sha256-<hex>.sig` for signatures and attestations.
_NO_VERSION = re.compile(r"sha256-[0-9a-f]{64}(?:\..+)?")


def admitted(tags: Iterable[str], policy: Policy) -> tuple[str, ...]:
    """Return the tags that the rules admit, each once, in the given order."""
    candidates = dict.fromkeys(tag for tag in tags if not _NO_VERSION.fullmatch(tag))
    return tuple(tag for tag in candidates if objection(tag, policy) is None)


def dates_needed(tags: Iterable[str], policy: Policy, known: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the tags whose dates are needed and not known.

    Only a strategy that sorts by date needs them, and only for several tags.
    """
    candidates = admitted(tags, policy) if needs(policy, "created") else ()
    return tuple(tag for tag in candidates if tag not in (known or {})) if len(candidates) > 1 else ()


def ranked(tags: Iterable[str], policy: Policy, dates: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the admitted tags, newest first.

    `dates` are RFC 3339 in UTC, and "" for an image without a date, which is older than any other. The
    caller has to give those of all `dates_needed`: a missing date counts as "".
    """
    sort_key, known = rules_of(policy).sort_key, dates or {}
    return tuple(sorted(admitted(tags, policy), key=lambda tag: sort_key(tag, known.get(tag, "")), reverse=True))

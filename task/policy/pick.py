"""Picks the tag of a whole repository that an entry takes: the newest that its rules admit, as AIU does.

The running tag does not matter. Of equal versions, and of equal dates, the greatest text wins (AIU since v0.13).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from task.model import Policy
from task.policy.judge import objection
from task.policy.strategies import STRATEGIES

# cosign keeps signatures and attestations under tags such as `sha256-<hex>.sig` where a registry has no referrers API.
_NO_VERSION = re.compile(r"sha256-[0-9a-f]{64}(?:\..+)?")


def admitted(tags: Iterable[str], policy: Policy) -> tuple[str, ...]:
    """The tags that the rules admit, each once, in the given order."""
    candidates = dict.fromkeys(tag for tag in tags if not _NO_VERSION.fullmatch(tag))
    return tuple(tag for tag in candidates if objection(tag, policy) is None)


def dates_needed(tags: Iterable[str], policy: Policy, known: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The tags whose dates are needed and not known yet: only with `newest-build`, and only of several tags."""
    candidates = admitted(tags, policy) if policy.strategy == "newest-build" else ()
    return tuple(tag for tag in candidates if tag not in (known or {})) if len(candidates) > 1 else ()


def ranked(tags: Iterable[str], policy: Policy, dates: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The admitted tags, the newest first.

    `dates` are RFC 3339 in UTC; "" is an image without a date, older than any other. With `newest-build`, the caller
    gives the dates of all `dates_needed`: a missing date counts as "".
    """
    sort_key, known = STRATEGIES[policy.strategy].sort_key, dates or {}
    return tuple(sorted(admitted(tags, policy), key=lambda tag: sort_key(tag, known.get(tag, "")), reverse=True))


def pick(tags: Iterable[str], policy: Policy, dates: Mapping[str, str] | None = None) -> str:
    """The first of `ranked`; "" if no tag is admitted."""
    return next(iter(ranked(tags, policy, dates)), "")

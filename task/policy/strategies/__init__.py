"""The update strategies: which tags each admits, and when a candidate supersedes the current tag.

A new strategy is one module here, one line in `STRATEGIES`, one row in docs/strategies.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from task.model import Policy, Strategy
from task.policy.strategies import alphabetical, digest, newest_build, semver


class Rule(Protocol):
    """What a strategy module offers."""

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """(rule, why) when the tag is not admitted; ("", "") when it is."""

    def older(self, tag: str, current: str) -> str:
        """Why `tag` does not come after `current` (both admitted, different texts); "" when it does."""


STRATEGIES: Mapping[Strategy, Rule] = {
    "semver": semver,
    "newest-build": newest_build,
    "alphabetical": alphabetical,
    "digest": digest,
}

"""Decisions → warnings about what Argo CD will make of them."""

from __future__ import annotations

from collections.abc import Sequence

from task.model import Decision, Problem


def cautions(decisions: Sequence[Decision]) -> tuple[Problem, ...]:
    """A warning for every override file that goes by the other spelling of its name, and for what was not checked."""
    unchecked = tuple(
        Problem(
            one.subscription.application.key, "registry", f"{one.candidate.reference}: {one.caution}", "", "warning"
        )
        for one in decisions
        if one.caution
    )
    return unchecked + tuple(
        Problem(
            one.subscription.application.key,
            "target",
            f"{one.current.file} is used because only this spelling exists in Git; "
            f"by Argo CD's rule it should be {one.subscription.path}, and Argo CD reads no other",
            "rename it with git mv, or give the control plane's namespace with --argocd-namespace",
            "warning",
        )
        for one in decisions
        if one.current.file and one.current.file in one.subscription.fallbacks
    )

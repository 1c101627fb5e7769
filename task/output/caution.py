"""Decisions → warnings about what Argo CD will make of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from task.model import Decision, Problem

MOST_NAMES = 5


def cautions(decisions: Sequence[Decision]) -> tuple[Problem, ...]:
    """Warnings: what was not checked, what an override file says differently, and one that has the other name."""
    unchecked = tuple(
        Problem(
            one.subscription.application.key, "registry", f"{one.candidate.reference}: {one.caution}", "", "warning"
        )
        for one in decisions
        if one.caution
    )
    strays = tuple(problem for one in decisions for problem in _strays(one))
    misnamed = tuple(
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
    return (*unchecked, *strays, *misnamed)


def _strays(one: Decision) -> Iterator[Problem]:
    """What somebody wrote in the override file, and the Application (or the common file) says otherwise."""
    for mark in dict.fromkeys(mark for _, mark in one.strays):
        names = [name for name, other in one.strays if other == mark]
        told = ", ".join(name[:100] for name in names[:MOST_NAMES])
        told += f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        source = mark.removeprefix("# from ")
        yield Problem(
            one.subscription.application.key,
            "target",
            f"{one.current.file} differs from {source} in {told}; Argo CD uses the file",
            f"remove it from the file, or end its first line with the comment `{mark}`: then it follows {source}",
            "warning",
        )

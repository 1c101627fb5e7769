"""Pure code that finds refusals without effect: another entry writes the refused version anyway."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from task.deciding.decide import Identity, edited_places
from task.deciding.job import Terms
from task.landing.changeset import PreparedCommit
from task.model import Decision, Snapshot, Subscription
from task.policy.builds import alike


def with_overridden(
    snapshot: Snapshot,
    commits: Sequence[PreparedCommit],
    without_commit: Sequence[Decision],
    terms: Terms,
) -> tuple[list[PreparedCommit], list[Decision]]:
    """Mark the refusals that have no effect because one of the commits writes the refused version
    to the same place for another entry of an `image-list`.

    The refusal's `overridden_by` is set to the name of that entry. Return the commits, and the
    decisions that don't need a commit.
    """
    written: list[Decision] = []
    for prepared in commits:
        written += prepared.decisions
    mark = _marker(snapshot, written, terms)
    marked_commits = [
        replace(prepared, decisions=tuple(map(mark, prepared.decisions))) for prepared in commits
    ]
    return marked_commits, list(map(mark, without_commit))


def overridden(
    snapshot: Snapshot,
    decisions: Sequence[Decision],
    writers: Iterable[Decision],
    terms: Terms,
) -> list[Decision]:
    """Mark the refusals among these decisions that have no effect because one of the `writers`
    (other decisions) writes the refused version to the same place for another entry.

    The refusal's `overridden_by` is set to the name of that entry.
    """
    mark = _marker(snapshot, writers, terms)
    return [mark(decision) if decision.verdict == "refuse" else decision for decision in decisions]


def _marker(
    snapshot: Snapshot,
    written: Iterable[Decision],
    terms: Terms,
) -> Callable[[Decision], Decision]:
    """Return a function that marks a decision. If the decision refuses or defers a version, but an
    update among the `written` decisions writes that version to the same place anyway, the function
    adds the name of that update's entry (`overridden_by`).
    """
    writers = _Writers(
        decision for decision in written if decision.verdict == "update" and decision.kind
    )
    places_by_entry: dict[Identity, set[tuple[str, str]]] = {}

    def places(sub: Subscription) -> set[tuple[str, str]]:
        """Return the (file, key) pairs that an update to this entry writes. They are computed once
        per entry.
        """
        if sub.identity not in places_by_entry:
            places_by_entry[sub.identity] = edited_places(snapshot, sub, terms)
        return places_by_entry[sub.identity]

    def marked(decision: Decision) -> Decision:
        """Return the decision, with `overridden_by` set if an update overrides it."""
        if decision.verdict not in ("refuse", "defer") or not decision.kind:
            return decision
        for writer in writers.of_same_version(decision):
            shared_places = places(decision.subscription) & places(writer.subscription)
            if shared_places:
                return replace(decision, overridden_by=called(writer))
        return decision

    return marked


def called(decision: Decision) -> str:
    """Return the name that reports use for a decision's entry: its Application and alias."""
    app = decision.subscription.application.key
    alias = decision.subscription.entry.alias
    return f"{app} ({alias})" if alias else app


class _Writers:
    """Updates, indexed by path: among thousands of Applications, only a few share the same path."""

    def __init__(self, written: Iterable[Decision]) -> None:
        self._by_path: dict[str, list[Decision]] = {}
        for decision in written:
            self._by_path.setdefault(decision.subscription.path, []).append(decision)

    def of_same_version(self, refused: Decision) -> Iterator[Decision]:
        """Yield the updates to the refused version whose targets may be in the same files: those
        whose path is the same, or is a folder above or below it.
        """
        path = refused.subscription.path
        # for `a/b/values.yaml`: `a`, `a/b`, and the path itself
        paths_down_to_it = accumulate(path.split("/"), posixpath.join)
        related_paths = ["", *paths_down_to_it]
        if refused.kind in ("manifests", "flux"):  # the path is a folder
            folder = f"{path}/" if path else ""
            related_paths += [other for other in self._by_path if other.startswith(folder)]
        for related_path in dict.fromkeys(related_paths):
            for writer in self._by_path.get(related_path, ()):
                same_image = writer.candidate.identity == refused.candidate.identity
                if same_image and alike(writer.candidate, refused.candidate):
                    yield writer

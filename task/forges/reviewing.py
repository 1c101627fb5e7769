"""Information for a request's reviewer, shown below the table: the commits, and how to undo the
change.

Pure string functions. Names and commits come from others, so they are shown as code, and only plain
shell words are put into commands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from task.model import Build
from task.output.markdown import code, link
from task.templates.change import AppChanges
from task.urls import normal_url

MOST_RANGES = 10
MOST_UNDONE = 5  # maximum rows to show; the rest are only counted
# (repository, older commit, newer commit) → the URL of the page that compares the commits, or ""
# for an unknown Git host.
RangePage = Callable[[str, str, str], str]
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_WORD = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._/@:+-]*"
)  # characters without a special meaning in a shell


@dataclass(frozen=True)
class SourceRange:
    """The builds of an image before and after a change."""

    image: str
    old: Build
    new: Build


def source_ranges(ranges: Iterable[SourceRange], page: RangePage) -> str:
    """Return a Markdown list with links to each image's source changes, or "" if none are known.

    A range needs both commits, in one repository, on a known Git host.
    """
    items = []
    for source_range in ranges:
        url = _page_of(source_range, page)
        if url:
            commits = f"{source_range.old.commit[:12]}…{source_range.new.commit[:12]}"
            items.append(f"{code(source_range.image)}: {link(url, commits)}")
    distinct_items = list(dict.fromkeys(items))
    return _list_with_heading("**Changes in the source**", distinct_items)


def ending(holds: Sequence[str]) -> str:
    """Return a Markdown list of the base's holds that the merge ends, or "" if there are none."""
    return _list_with_heading("**Holds that end with the merge**", list(map(code, holds)))


def leaving(builds: Sequence[str]) -> str:
    """Return a Markdown list of the builds that the last change removed from the request, with
    reasons, or "" if there are none.
    """
    return _list_with_heading("**No longer in this request**", list(map(code, builds)))


def _list_with_heading(heading: str, items: Sequence[str]) -> str:
    """Return a Markdown list of at most `MOST_RANGES` items, and the number of omitted items. If
    there are no items, return "".
    """
    if not items:
        return ""
    lines = [heading, ""]
    lines += [f"- {item}" for item in items[:MOST_RANGES]]
    omitted = len(items) - MOST_RANGES
    if omitted > 0:
        lines.append(f"- and {omitted} more")
    return "\n".join(lines)


def undoing(apps: Sequence[AppChanges]) -> str:
    """Return Markdown that explains how to undo the changes after the merge, or "" if there are no
    changes.

    There are two ways: the `rollback` command, which also holds the old version (so that later
    builds do not replace it), and a revert. If there was no earlier version, only a revert is
    possible.
    """
    if not apps:
        return ""
    commands = _rollback_commands(apps)
    revert = "revert the merge: that restores the old version until a newer build arrives."
    if not commands:
        return f"**To undo this after the merge**, {revert}"
    omitted = len(commands) - MOST_UNDONE
    more = [f"# and {omitted} more"] if omitted > 0 else []
    return "\n".join(
        [
            "**To undo this after the merge**, restore the old version and hold it:",
            "",
            "```sh",
            *commands[:MOST_UNDONE],
            *more,
            "```",
            "",
            f"Or {revert}",
        ]
    )


def _rollback_commands(apps: Sequence[AppChanges]) -> list[str]:
    """Return the commands that restore the old versions, without duplicates.

    Each command includes its image, because the Application may have other images that do not
    change. A command with words that a shell may interpret is omitted.
    """
    commands: list[str] = []  # image-update rollback argocd/web --to 1.0.0
    for app in apps:
        name = f"{app.namespace}/{app.name}" if app.namespace else app.name
        for change in app.changes:
            old = "@".join(filter(None, (change.old_tag, change.old_digest)))
            alias = ["--alias", change.alias] if change.alias else []
            words = [name, *alias, "--to", old]
            # Our own options begin with `--`. An empty `old` does not count as plain, because there
            # is nothing to restore.
            are_plain = all(_WORD.fullmatch(word.removeprefix("--")) for word in words)
            if are_plain:
                commands.append(f"image-update rollback {' '.join(words)}")
    return list(dict.fromkeys(commands))


def _page_of(source_range: SourceRange, page: RangePage) -> str:
    """Return the URL of the page that compares the two builds' commits, or "" if they cannot be
    compared.
    """
    old = source_range.old
    new = source_range.new
    has_both_commits = _COMMIT.fullmatch(old.commit) and _COMMIT.fullmatch(new.commit)
    if not has_both_commits or old.commit == new.commit:
        return ""
    if not old.repository or not _one_repository(old, new):
        return ""
    return page(new.repository, old.commit, new.commit)


def _one_repository(old: Build, new: Build) -> bool:
    return normal_url(old.repository) == normal_url(new.repository)

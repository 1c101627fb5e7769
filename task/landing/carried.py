"""Pure code for builds on a head branch whose Applications a run did not read: its commit keeps them and lists them.

Files do not say which build changed them, so each commit on a head branch of ours says it in trailers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from task.deciding.decide import is_state_path
from task.errors import Malformed
from task.image import parse_image
from task.landing.waiting import Rest
from task.model import Files
from task.templates.change import AppChanges, Change
from task.templates.commit_message import MOST_LINES, Trailer

WAITS = "Image-Update-Waits"
NONE = "-"
Key = tuple[str, str, str]  # Application (namespace/name), alias, image


def trailers_of(apps: Sequence[AppChanges]) -> list[Trailer]:
    """Return a trailer for each change: Application, alias, new and old version, file."""
    found: list[Trailer] = []
    for app, one in [(owner, change) for owner in apps for change in owner.changes]:
        image = replace(one.image, tag=one.new_tag, digest=one.new_digest)
        old = "@".join(filter(None, (one.old_tag, one.old_digest)))
        words = (f"{app.namespace}/{app.name}", one.alias, image.reference, old, one.file)
        found.append((WAITS, " ".join(word or NONE for word in words)))
    return found[:MOST_LINES]


def listed(message: str, ours: Collection[Key]) -> Iterator[AppChanges]:
    """Yield the changes that the trailers of a commit list, without those of entries that this run knows."""
    for line in message.rstrip("\n").rpartition("\n\n")[2].splitlines():
        start, *words = line.split(" ", 5)
        if start != f"{WAITS}:" or len(words) != 5:
            continue
        app, alias, reference, old, file = ("" if word == NONE else word for word in words)
        tag, _, digest = (f"@{old}" if old.startswith("sha256:") else old).partition("@")
        with suppress(Malformed):
            image, why = parse_image(reference), "waits since an earlier run"
            change = Change(image, alias, tag, image.tag, digest, image.digest, why=why, file=file)
            if (app, alias, image.identity) not in ours:
                yield AppChanges(*app.partition("/")[::2], (change,))


def carried_on(
    others: Sequence[AppChanges], rest: Rest, edited: Files, files: Files
) -> tuple[list[AppChanges], list[str]]:
    """Return the changes of others that a commit keeps, and the files that it keeps for none of these.

    `edited` are the changed files of this run's own builds, `files` those of the commit.
    """
    kept = [path for path in rest if not is_state_path(path) and files.get(path) != edited.get(path)]
    found = {path: [one for one in others if f"{path}/".startswith(f"{one.changes[0].file}/")] for path in kept}
    changes = [one for one in others if any(one in there for there in found.values())]
    return changes, [path for path, there in found.items() if not there]

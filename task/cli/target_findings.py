"""What the files that Applications write say that nothing uses, or that nothing changes, for `lint`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from task.annotations.lint import Finding
from task.applications.local_files import LocalFiles
from task.applications.work_tree import top_of
from task.cli.repository_configs import files_to, same_repository
from task.deciding.cautions import file_cautions
from task.deciding.decide import reading
from task.deciding.job import Terms
from task.deciding.target import resolve, target_places
from task.errors import Malformed, TaskError
from task.model import File, Files, Snapshot, Subscription
from task.pipeline.discover import Locate

LARGEST = 10 * 1024 * 1024  # bytes of one file: what a run edits, too


def target_findings(snapshot: Snapshot, subs: Iterable[Subscription]) -> Iterator[Finding]:
    """Return the warnings of a run about these files. What cannot be read is for a run to say."""
    found: dict[Finding, None] = {}
    for sub in subs:
        if sub.method != "git":
            continue
        with suppress(TaskError):
            kind, now = resolve(sub, snapshot), reading(snapshot, sub, Terms())
            image = replace(sub.entry.image, tag=now.tag, digest=now.digest)
            for one in file_cautions(snapshot.files, sub, kind, image, Terms()):
                origin = sub.application.origin
                found[Finding(one.application, "", "", "warning", one.message, one.hint, origin)] = None
    return iter(found)


def local_findings(subs: Iterable[Subscription], locate: Locate) -> Iterator[Finding]:
    """Return the same from the work tree in which an Application lies, if it writes to that repository."""
    for sub in subs:
        path = sub.application.origin.rpartition(":")[0]
        located = locate(sub.application.origin) if os.path.exists(path) else None
        if located and same_repository(sub.repo, located[0]):
            files = _files_of(top_of(os.path.dirname(os.path.realpath(path))), sub)
            yield from target_findings(Snapshot(sub.repo, sub.base, "", files), (sub,))


def _files_of(top: str, sub: Subscription) -> Files:
    """Return the subscription's places in a work tree. A folder with too much is left out."""
    files: dict[str, File] = {}
    for place in target_places(sub):
        files |= files_to(top, place.path, LARGEST)
        if place.want in ("folder", "tree"):
            with suppress(Malformed):
                files |= LocalFiles(os.path.join(top, place.path)).read(place.path)
    return files

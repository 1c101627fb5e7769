"""What the files that Applications write say that nothing uses, or that nothing changes, for `lint`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from task.annotations.lint import Finding
from task.annotations.writable import refuse_files
from task.applications.local_files import LocalFiles
from task.applications.work_tree import top_of
from task.cli.repository_configs import files_to, same_repository
from task.deciding.cautions import file_cautions
from task.deciding.decide import reading
from task.deciding.job import Terms
from task.deciding.target import resolve, target_of, target_places
from task.editors import EDITORS
from task.errors import Malformed, NotPermittedError, TaskError
from task.landing.head_branch import request_head
from task.model import File, Files, Snapshot, Subscription
from task.pipeline.discover import Locate
from task.repository_config.config import PATH, also_limited, governed
from task.repository_config.reading import config_in

LARGEST = 10 * 1024 * 1024  # bytes of one file: what a run edits, too


def target_findings(snapshot: Snapshot, subs: Iterable[Subscription]) -> Iterator[Finding]:
    """Return the warnings of a run about these files, and an error for each that may not be written.

    What cannot be read is for a run to say.
    """
    found: dict[Finding, None] = {}
    for sub in subs:
        if sub.method != "git":
            continue
        with suppress(TaskError):
            found.update(dict.fromkeys(_not_permitted(snapshot, sub)))
        with suppress(TaskError):
            kind, now = resolve(sub, snapshot), reading(snapshot, sub, Terms())
            image = replace(sub.entry.image, tag=now.tag, digest=now.digest)
            for one in file_cautions(snapshot.files, sub, kind, image, Terms()):
                origin = sub.application.origin
                found[Finding(one.application, "", "", "warning", one.message, one.hint, origin)] = None
    return iter(found)


def _not_permitted(snapshot: Snapshot, sub: Subscription) -> Iterator[Finding]:
    """Yield an error if the repository's config does not let the Application write what an update would change."""
    config = replace(config_in(snapshot.files), freezes=())
    (sub,) = also_limited(governed([sub], config, ""), config_in(snapshot.default))
    head = sub.head_template or (request_head(sub, snapshot.branch) if sub.pull_request else snapshot.branch)
    if "{{" in head or not head:  # only a run knows its name
        sub = replace(sub, writes=tuple(replace(one, branches=None) for one in sub.writes))
    kind = resolve(sub, snapshot)
    files, _ = EDITORS[kind].write(snapshot.files, target_of(sub, kind), replace(sub.entry.image, tag="any"))
    try:
        refuse_files(sub, files, head)
    except NotPermittedError as error:
        yield Finding(sub.application.key, "", "", "error", error.message, error.hint, sub.application.origin)


def local_findings(subs: Iterable[Subscription], locate: Locate) -> Iterator[Finding]:
    """Return the same from the work tree in which an Application lies, if it writes to that repository."""
    for sub in subs:
        path = sub.application.origin.rpartition(":")[0]
        located = locate(sub.application.origin) if os.path.exists(path) else None
        if located and same_repository(sub.repo, located[0]):
            top = top_of(os.path.dirname(os.path.realpath(path)))
            files = {**_files_of(top, sub), **files_to(top, PATH, LARGEST)}
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

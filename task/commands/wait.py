"""`wait`: until Argo CD reports a revision of the named Applications synced and healthy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from task.edges.log import Log
from task.edges.rollout_display import Display
from task.edges.rollouts import Api, Awaited, Judge, Pace, Rollouts
from task.errors import Exit, RolloutError, TaskError, UsageError
from task.parse.write_back import normal_url
from task.pattern import pattern
from task.record import NamedTuple
from task.rules.rollout import Wanted, judge
from task.words.progress import Row, line, summary

_REVISION = pattern(r"[0-9a-f]{7,64}")
_NAME = pattern(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_FULL = 40  # letters of a commit id


class WaitSettings(NamedTuple):
    """What is waited for."""

    applications: tuple[str, ...]  # `name` or `namespace/name`
    revision: str
    repository: str = ""  # only its sources must be at the revision; "" is any source
    limit: float = 600.0  # seconds
    argocd_namespace: str = "argocd"  # of an Application that names none


def wait(settings: WaitSettings, api: Callable[[], Api], environ: Mapping[str, str], log: Log) -> int:
    """Wait, show the progress on stderr, print a line for each Application; 0.

    Raises `RolloutError` where one is not rolled out, `SourceError` where Argo CD cannot tell, `UsageError`.
    """
    revision = settings.revision.strip().lower()
    if not _REVISION.fullmatch(revision):
        raise UsageError(
            f"--revision: {settings.revision!r} is no commit id", hint="give the commit that was pushed, 40 letters"
        )
    asked = judge_of(lambda found: accepts(revision, found), settings.repository)
    keys = [key_of(one, settings.argocd_namespace) for one in settings.applications]
    if not keys:
        raise UsageError("no Application is named", hint="image-update wait NAME... --revision SHA")
    awaited = [Awaited(*key, asked) for key in dict.fromkeys(keys)]
    rows, error = watch(api(), awaited, settings.limit, environ, log)
    sys.stdout.writelines(f"{line(row)}\n" for row in rows)
    if found := error or rollout_error(rows):
        raise found
    return int(Exit.OK)


def watch(
    api: Api, awaited: Sequence[Awaited], limit: float, environ: Mapping[str, str], log: Log
) -> tuple[tuple[Row, ...], TaskError | None]:
    """Wait for all of them, with the progress shown: how each ended, and why the API could not tell, if so."""
    rollouts = Rollouts(api, awaited, Pace(limit), log=log)
    display = Display(log, environ, limit)
    for sight in rollouts.sights():
        display.show(sight)
    return rollouts.rows, rollouts.error


def judge_of(accepts: Callable[[str], bool], repository: str = "", *, spec: bool = False) -> Judge:
    """The rule of rollouts, for revisions that are accepted of one repository's sources ("" is any)."""
    url = normal_url(repository) if repository else ""

    def ours(other: str) -> bool:
        return not url or normal_url(other) == url

    return lambda item, since, tree, windows: judge(item, Wanted(accepts, since, ours, spec), tree, windows)


def accepts(revision: str, found: str) -> bool:
    """Whether a revision is the wanted one, which may be given by its beginning."""
    return found == revision or (len(revision) < _FULL and found.startswith(revision))


def key_of(text: str, namespace: str) -> tuple[str, str]:
    """`name` or `namespace/name` → (namespace, name). Raises `UsageError` for what no Application is called."""
    first, slash, rest = text.strip().partition("/")
    key = (first, rest) if slash else (namespace, first)
    if not all(_NAME.fullmatch(part) for part in key):
        raise UsageError(f"{text!r} is no name of an Application", hint="write NAME or NAMESPACE/NAME")
    return key


def rollout_error(rows: Iterable[Row]) -> RolloutError | None:
    """The error for those that are not synced and healthy; None where all are."""
    bad = [row for row in rows if row.state != "synced-and-healthy"]
    if not bad:
        return None
    hints = dict.fromkeys(row.hint for row in bad if row.hint)
    return RolloutError(summary(bad), hint="; ".join(hints))

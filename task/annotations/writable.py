"""Which files of a repository annotations may write. Pure.

Whoever may annotate an Application need not be somebody who may push. Without limits, a `write-back-target` could end
another team's hold, change the repository's rules, or run a program in its CI.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from task.errors import NotPermittedError, TargetError
from task.model import Subscription
from task.repository_config.config import PATH
from task.text import fits_glob, shortened

_OURS = "Image Update's own files"
_GITS = "Git's own files"
_CI = "a definition of the repository's CI"
_REVIEWERS = "a definition of the repository's reviewers"
_NEVER_AT_ALL = (_OURS, _GITS)
# Names of files and folders, without the ending of YAML files. Case does not matter, because for some checkouts it
# does not, nor does the depth, because hosts can be told to look elsewhere.
_NEVER: Mapping[str, str] = {
    ".image-update": _OURS,
    ".git": _GITS,
    "git~1": _GITS,  # as Windows calls .git
    ".gitmodules": _GITS,
    ".gitattributes": _GITS,
    ".gitignore": _GITS,
    ".github": _CI,
    ".gitlab": _CI,
    ".gitlab-ci": _CI,
    ".gitea": _CI,
    ".forgejo": _CI,
    ".circleci": _CI,
    ".buildkite": _CI,
    ".tekton": _CI,
    ".woodpecker": _CI,
    ".drone": _CI,
    ".travis": _CI,
    "azure-pipelines": _CI,
    ".azure-pipelines": _CI,
    "bitbucket-pipelines": _CI,
    "jenkinsfile": _CI,
    "codeowners": _REVIEWERS,
}
_YAML = re.compile(r"\.ya?ml\Z")
LONGEST_NAME, LONGEST_PATH = 255, 4096  # bytes that file systems accept


def refuse_files(sub: Subscription, paths: Collection[str], branch: str) -> None:
    """Raise `NotPermittedError` for changes that an Application may not make, by the repository's own config as well.

    A folder of manifests, too, may have files that annotations may not write. Without changes, nothing is refused.
    """
    for path in paths:
        refuse_unwritable(path)
        owned = {part: what for part, what in _guarded(path).items() if what not in _NEVER_AT_ALL}
        named = (glob for one in sub.writes for glob in one.paths or () if owned.keys() <= set(glob.split("/")))
        if owned and not any(fits_glob(glob, path) for glob in named):
            raise _not_written(next(iter(owned.values())), path, f", or name it in `writes` of {PATH}")
    for one in sub.writes if paths else ():
        rule = f"by {PATH}, line {one.line}, {sub.application.key}"
        hint = f"let the repository's owner add it to `writes` in {PATH}"
        for path in paths:
            if one.paths is not None and not any(fits_glob(glob, path) for glob in one.paths):
                raise NotPermittedError(f"{rule} may not write {shortened(path)!r}", hint=hint)
        if one.branches is not None and not any(fits_glob(glob, branch) for glob in one.branches):
            raise NotPermittedError(f"{rule} may not write the branch {shortened(branch)!r}", hint=hint)


def refuse_unwritable(path: str) -> None:
    """Raise `NotPermittedError` for a file that no annotation may write, and `TargetError` for one without a place.

    `path` is in normal form, from the repository's root. A definition of the repository's CI or reviewers may still be
    permitted by its config.
    """
    parts = path.split("/")
    if what := next((what for what in _guarded(path).values() if what in _NEVER_AT_ALL), ""):
        raise _not_written(what, path)
    if (longest := max(parts, key=size)) and size(longest) > LONGEST_NAME:
        message = f"{shortened(longest)!r} has {size(longest)} bytes, and file systems accept names of {LONGEST_NAME}"
        raise TargetError(
            message, hint="name another file in write-back-target, or give the Application a shorter name"
        )
    if size(path) > LONGEST_PATH:
        message = f"{shortened(path)!r} has {size(path):,} bytes, and file systems accept paths of {LONGEST_PATH:,}"
        raise TargetError(message, hint="name a file in fewer folders in write-back-target")


def _guarded(path: str) -> Mapping[str, str]:
    """Return the names in a path that annotations may not write, each with what it is."""
    found = {}
    for part in path.split("/"):
        # Windows takes `.git.` and `.git ` for `.git`.
        name = part.casefold().rstrip(". ")
        if what := _NEVER.get(name) or _NEVER.get(_YAML.sub("", name)):
            found[part] = what
    return found


def _not_written(what: str, path: str, also: str = "") -> NotPermittedError:
    hint = f"keep what is updated in another file or folder, and name that in write-back-target{also}"
    return NotPermittedError(f"annotations may not write {what}: {shortened(path)!r}", hint=hint)


def size(text: str) -> int:
    """Return how many bytes a path has in Git."""
    return len(text.encode("utf-8", "surrogatepass"))

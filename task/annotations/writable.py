"""Which files of a repository annotations may write. Pure.

Whoever may annotate an Application need not be somebody who may push. Without limits, a `write-back-target` could end
another team's hold, change the repository's rules, or run a program in its CI.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from task.errors import NotPermittedError, TargetError
from task.text import shortened

_OURS = "Image Update's own files"
_GITS = "Git's own files"
_CI = "a definition of the repository's CI"
_REVIEWERS = "a definition of the repository's reviewers"
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


def refuse_unwritable(path: str) -> None:
    """Raise `NotPermittedError` for a file that no annotation may write, and `TargetError` for one without a place.

    `path` is in normal form, from the repository's root.
    """
    parts = path.split("/")
    for part in parts:
        # Windows takes `.git.` and `.git ` for `.git`.
        name = part.casefold().rstrip(". ")
        if what := _NEVER.get(name) or _NEVER.get(_YAML.sub("", name)):
            raise NotPermittedError(
                f"annotations may not write {what}: {shortened(path)!r}",
                hint="keep what is updated in another file or folder, and name that in write-back-target",
            )
    if (longest := max(parts, key=size)) and size(longest) > LONGEST_NAME:
        message = f"{shortened(longest)!r} has {size(longest)} bytes, and file systems accept names of {LONGEST_NAME}"
        raise TargetError(
            message, hint="name another file in write-back-target, or give the Application a shorter name"
        )
    if size(path) > LONGEST_PATH:
        message = f"{shortened(path)!r} has {size(path):,} bytes, and file systems accept paths of {LONGEST_PATH:,}"
        raise TargetError(message, hint="name a file in fewer folders in write-back-target")


def size(text: str) -> int:
    """Return how many bytes a path has in Git."""
    return len(text.encode("utf-8", "surrogatepass"))

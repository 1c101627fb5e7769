"""Determines from an Application's annotations where an update is written, and which files
annotations may write.

For a multi-source Application, `choose_source` selects a source of the type that the target needs,
as AIU does. A `chart:` source refers to a Helm repository, which is never cloned with Git.

People who can annotate an Application may not be allowed to push. Without limits, a
`write-back-target` could lift another team's hold, change the repository's rules, or run a program
in its CI.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from task.annotations.application import with_variables
from task.annotations.keys import Faulty, git_branch, write_back_method
from task.errors import NotPermittedError, SourceError, TargetError, TaskError
from task.model import Application, Kind, Source, Subscription, Tracker, Writes
from task.repository_config.config import PATH
from task.text import fits_glob, nearest, shortened
from task.urls import normal_url, without_login

T = TypeVar("T")
TARGET = "write-back-target"
FORCED: Mapping[str, Kind] = {"kustomization": "Kustomize", "helmvalues": "Helm"}
TARGETS = ("kustomization", "helmvalues", "manifests")
MANIFESTS = (".yaml", ".yml", ".json")
KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
# AIU treats these words as file names, and writes files that are never read (AIU issues 867 and
# 934). This table lists the intended targets.
MEANT: Mapping[str, str] = {
    "helm": "helmvalues",
    "values": "helmvalues",
    "kustomize": "kustomization",
    "kustomise": "kustomization",
    "manifest": "manifests",
    "directory": "manifests",
}
WAY_OUT_OF_CHARTS = (
    "Argo CD reads override files only from Git sources: keep the values in Git and use "
    "write-back-target: helmvalues:$<ref>/<file>, or helmvalues:/<file> with git-repository: <url>"
)


@dataclass(frozen=True)
class Where:
    """A write-back target, resolved as far as possible without reading Git."""

    target: str  # "override", "kustomization", "helmvalues", "manifests", "file"
    path: str
    source: Source
    repo: str
    base: str  # "" means the default branch
    fallbacks: tuple[str, ...] = ()  # alternatives if `path` does not exist
    head_template: str = ""  # "" means the base branch
    method: str = "git"
    credentials: str = ""
    # the folder of the first target on the same branch, for the state file's path
    home: str = ""
    beside: tuple[str, ...] = ()  # the paths of the other targets on the same branch

    @property
    def of_plugin(self) -> bool:
        """Whether the target is a plugin's variables, to which the Helm keys do not apply."""
        return self.source.kind == "Plugin" and self.target in ("override", "file")


def write_backs(
    app: Application,
    argocd_namespace: str,
) -> tuple[tuple[Where, ...], list[Faulty | TaskError]]:
    """Return all write-back targets that can be parsed,
    and all errors that prevent the Application from being updated.

    If there are errors, only `lint` uses the targets, so that it can check everything else.
    """
    errors: dict[str, Faulty | TaskError] = {}  # by message, so that each is reported once

    def result_or(read: Callable[[], T], otherwise: T) -> T:
        """Return the result of `read`. If it raises an error, add that to `errors`, and return
        `otherwise`.
        """
        try:
            return read()
        except (Faulty, SourceError, TargetError) as error:
            errors[str(error)] = error
            return otherwise

    method_text = app.annotations.get("write-back-method", "")
    method, credentials = result_or(lambda: write_back_method(method_text), otherwise=("git", ""))
    branch_text = app.annotations.get("git-branch", "")
    base, head_template = result_or(lambda: git_branch(branch_text), otherwise=("", ""))
    # Called only for its errors: `_where_to_write` does not choose a source if the target is
    # broken.
    result_or(lambda: choose_source(app, ""), otherwise=None)

    # AIU supports only one target. A comma-separated list of targets is our addition.
    annotation = app.annotations.get(TARGET, "")
    target_texts = [text.strip() for text in annotation.split(",") if text.strip()] or [""]
    distinct_places: dict[Where, None] = {}  # duplicate targets are written only once
    for text in target_texts:
        where = result_or(partial(_where_to_write, app, text, argocd_namespace), otherwise=None)
        if where:
            distinct_places[where] = None

    # Add to each target its branch, and the data that it shares with the other targets. For each
    # repository and branch, `homes` contains the folder of the first target. All targets on that
    # branch share it.
    homes: dict[tuple[str, str], str] = {}
    targets = []
    for where in distinct_places:
        revision = base or where.base
        # In Argo CD, an empty `targetRevision` is HEAD, the default branch, and `refs/heads/main`
        # is `main`.
        branch = "" if revision == "HEAD" else revision.removeprefix("refs/heads/")
        home = homes.setdefault((normal_url(where.repo), branch), _folder_of_target(where))
        targets.append(
            replace(
                where,
                base=branch,
                head_template=head_template,
                home=home,
                method=method,
                credentials=credentials,
            )
        )
    return tuple(_with_others(where, targets) for where in targets), list(errors.values())


def _folder_of_target(where: Where) -> str:
    """Return the target's path if it is a folder, or else the folder that contains its file."""
    may_be_folder = where.target in ("kustomization", "manifests")
    if may_be_folder and not where.path.endswith(MANIFESTS):
        return where.path
    return posixpath.dirname(where.path)


def _with_others(where: Where, targets: Sequence[Where]) -> Where:
    """Return the target with `beside` set to the paths of the other targets on the same branch."""
    if len(targets) == 1:
        return where
    branch = (normal_url(where.repo), where.base)
    on_branch = [other for other in targets if (normal_url(other.repo), other.base) == branch]
    return replace(where, beside=tuple(other.path for other in on_branch if other is not where))


def _where_to_write(app: Application, text: str, argocd_namespace: str) -> Where:
    """Return the place that one target in `write-back-target` refers to, such as
    `helmvalues:values-prod.yaml`.

    Raises `Faulty`, `SourceError`, or `TargetError`, and `NotPermittedError` for a file that
    annotations must never write.
    """
    kind, path = _parse_target(text)
    where = _resolve_target(app, kind, path, argocd_namespace)
    refuse_unwritable(where.path)
    return where


def _resolve_target(app: Application, kind: str, path: str, argocd_namespace: str) -> Where:
    """Return the repository, the branch, and the path of a target's file or folder.

    `kind` and `path` are the two parts of the target: `helmvalues` and `values-prod.yaml`. Two
    kinds do not have a keyword: `file`, and `override`, which is the default. Raises `Faulty`,
    `SourceError`, or `TargetError`.
    """
    source = choose_source(app, FORCED.get(kind, ""))
    if kind == "helmvalues" and "$" in path:  # as in the source's `valueFiles`
        path = with_variables(path, app, source, argocd_namespace)
        if path.startswith("$"):
            return _values_file_at_ref(app, path, source)

    # A chart in a Helm repository cannot be written. `git-repository` names another repository to
    # write to, but an override file there would not help: Argo CD never reads override files for
    # such a chart (argo-cd issue 14672).
    has_git_repository = app.annotations.get("git-repository", "") != ""
    is_written_elsewhere = has_git_repository and kind != "override"
    if source.chart and not is_written_elsewhere:
        message = f"the source is the Helm chart {source.chart!r}, not a Git repository"
        raise SourceError(message, hint=WAY_OUT_OF_CHARTS)
    repo, base = _repository(app, source)
    if repo.startswith("oci://"):
        artifact = without_login(repo)
        message = f"the source is the OCI artifact {artifact}, not a Git repository"
        raise SourceError(message, hint=WAY_OUT_OF_CHARTS)

    fallbacks: tuple[str, ...] = ()
    if kind == "override":
        folder = inside(source.path, ".", "source")
        file_names = override_names(app, argocd_namespace)
        place, alternative = (posixpath.join(folder, file_name) for file_name in file_names)
        fallbacks = (alternative,)
    elif kind == "file":
        place = inside("", path.lstrip("/"))
    else:
        default = "values.yaml" if kind == "helmvalues" else "."
        place = inside(source.path, path or default)
    return Where(
        target=kind,
        path=place,
        source=source,
        repo=repo,
        base=base,
        fallbacks=fallbacks,
    )


def _values_file_at_ref(app: Application, path: str, source: Source) -> Where:
    """Return the location of a values file whose path begins with `$<ref>/`.

    As in a chart's `valueFiles`, `$<ref>` is the root of the repository in the source with this
    `ref`. `source` is the source that uses the file. Raises `Faulty` if no source has this `ref`.
    """
    ref, _, path_in_repository = path.removeprefix("$").partition("/")
    with_ref = [other for other in app.sources if other.ref == ref]
    if not with_ref or not path_in_repository:
        known_refs = ", ".join(f"${other.ref}" for other in app.sources if other.ref) or "none"
        hint = f"refs of this Application: {known_refs}"
        raise Faulty(TARGET, f"helmvalues:{path}", f"no source has the ref {ref!r}", hint)
    ref_source = with_ref[0]
    return Where(
        target="helmvalues",
        path=inside("", path_in_repository),
        source=source,
        repo=ref_source.repo,
        base=ref_source.revision,
    )


def _parse_target(text: str) -> tuple[str, str]:
    """Return the kind of a `write-back-target` and its path as written ("" if there is none).

    The kind is the word before the colon, `file` for any other path, or `override` for an empty
    text. Raises `Faulty` for a text that is probably meant to be a kind, but is not one.
    """
    word, colon, path = (part.strip() for part in text.partition(":"))
    if word == "kustomization" and posixpath.basename(path) in KUSTOMIZATIONS:
        folder = posixpath.dirname(path) or "."
        message = f"{text!r} is a file, but kustomization requires the folder that contains it"
        raise Faulty(TARGET, text, message, f"use kustomization:{folder}")
    if word in TARGETS:
        return word, path

    # From here on, the text is either a file's path or a mistake.
    _refuse_similar_word(text, word, path)
    lowercase_names = [file_name.lower() for file_name in KUSTOMIZATIONS]
    if posixpath.basename(text).lower() in lowercase_names:
        folder = posixpath.dirname(text).lstrip("/") or "."
        raise Faulty(
            TARGET,
            text,
            f"{text!r} is a kustomization file",
            f"use kustomization:/{folder}",
        )
    if colon or text.lower() in ("helmvalues", "manifests"):
        hint = "use kustomization[:dir], helmvalues[:file], manifests[:path], or a file"
        raise Faulty(TARGET, text, f"unknown target {text!r}", hint)
    if not text:
        return "override", ""
    return "file", text


def _refuse_similar_word(text: str, word: str, path: str) -> None:
    """Raise `Faulty` if the target is actually a `write-back-method`, or a misspelled kind of
    target, such as `kustomize`.

    `text` is the whole target. It is split at the colon into `word` and `path`.
    """
    unknown = f"unknown target {text!r}"
    if word.lower() in ("git", "argocd"):
        hint = (
            f"set write-back-method: {text}, and use kustomization, helmvalues, or manifests as"
            " the target"
        )
        raise Faulty(TARGET, text, f"{unknown}: it is a write-back-method", hint)
    may_be_file = "/" in word or "." in word
    if not may_be_file:
        similar_target = MEANT.get(word.lower()) or nearest(word, TARGETS)
        if similar_target:
            suffix = f":{path}" if path else ""
            raise Faulty(TARGET, text, unknown, f"use {similar_target}{suffix}")
    # AIU compares only the prefix, so it treats `kustomizationX` and `helmvalues.yaml` as these
    # targets.
    for prefix in FORCED:
        if text.startswith(prefix) and posixpath.basename(text) not in KUSTOMIZATIONS:
            raise Faulty(TARGET, text, unknown, f"use {prefix} or {prefix}:<path>")


class Neighbours:
    """Finds the other Application that a values file belongs to."""

    def __init__(self, apps: Iterable[Tracker]) -> None:
        # Applications, as namespace/name, by the repository and folder of their sources
        self._keys_by_folder: dict[tuple[str, str], list[str]] = {}
        for app in apps:
            for source in app.sources:
                if source.path and not source.chart:
                    place = (normal_url(source.repo), source.path)
                    self._keys_by_folder.setdefault(place, []).append(app.key)

    def noted(self, sub: Subscription) -> Subscription:
        """Return the Subscription. If its values file (the target `helmvalues`) belongs to another
        Application, that Application is set as its `neighbour`.

        A values file belongs to the Applications whose source is the file's folder, or else the
        nearest parent folder below the repository's root. If the Subscription's own Application is
        the only one of these, there is no neighbour.
        """
        if sub.target != "helmvalues":
            return sub
        repo = normal_url(sub.repo)
        folder = posixpath.dirname(sub.path)
        while folder:
            keys = self._keys_by_folder.get((repo, folder), [])
            others = [key for key in keys if key != sub.application.key]
            if others:
                return replace(sub, neighbour=others[0])
            # only its own Application uses this folder, so the parent folders do not matter
            if keys:
                return sub
            folder = posixpath.dirname(folder)
        return sub


def choose_source(app: Application, forced: Kind) -> Source:
    """Return the source to update: the one in `write-back-source`, or else the only one, or else,
    as in AIU, the first one of the right type.

    `forced` is the type that the write-back target needs, such as `Helm`, or "" if it needs none.
    If no source has the right type, returns the first one without a `ref`, or else the first one.
    Raises `SourceError` if there is no source, and `Faulty` for an unknown `write-back-source`.
    """
    if not app.sources:
        raise SourceError(
            "the Application has no source",
            hint="set spec.source or spec.sources",
        )
    name = app.annotations.get("write-back-source", "")
    if name:
        return _named_source(app, name)
    if not app.multi:
        return app.sources[0]
    of_kind = _sources_of_kind(app.sources, forced)
    without_ref = [source for source in app.sources if not source.ref]
    candidates = of_kind or without_ref or app.sources
    return candidates[0]


def _sources_of_kind(sources: Sequence[Source], forced: Kind) -> Sequence[Source]:
    """Return the sources of the kind `forced`. If `forced` is "", use the kind of the first source
    that has one. A plain directory does not count as a kind.
    """
    kind = forced
    if not kind:
        explicit_kinds = [
            source.kind for source in sources if source.kind in ("Helm", "Kustomize", "Plugin")
        ]
        if not explicit_kinds:
            return ()
        kind = explicit_kinds[0]
    with_section = [source for source in sources if source.section == kind]  # as in AIU v0
    of_kind = [source for source in sources if source.kind == kind]  # as in AIU v1.1
    return with_section or of_kind


def _named_source(app: Application, name: str) -> Source:
    """Return the source with this name, ref, or index, in that order. Raises `Faulty` if there is
    none.

    `name` is the value of `write-back-source`.
    """
    for source in app.sources:
        if name in (source.name, source.ref):
            return source
    for index, source in enumerate(app.sources):
        if name == str(index):
            return source
    choices = ", ".join(
        source.name or source.ref or str(index) for index, source in enumerate(app.sources)
    )
    hint = f"use a name, a ref, or a zero-based index: {choices}"
    raise Faulty("write-back-source", name, f"there is no source {name!r}", hint)


def _repository(app: Application, source: Source) -> tuple[str, str]:
    """Return the URL of the repository to write to, and the branch there ("" means the default).

    With `git-repository`, the branch is the revision of the Application's source with the same URL,
    or else of `source`. Since v0.16, AIU compares the two URLs literally. Raises `SourceError`.
    """
    repository = app.annotations.get("git-repository", "")
    if not repository and not source.repo:
        raise SourceError(
            "the source has no repoURL",
            hint="set repoURL, or add the git-repository annotation",
        )
    if not repository:
        return source.repo, source.revision
    if app.multi:
        for other in app.sources:
            if normal_url(other.repo) == normal_url(repository):
                return repository, other.revision
    if source.chart:  # a chart's revision is a version, not a branch
        return repository, ""
    return repository, source.revision


def override_names(app: Application, argocd_namespace: str) -> tuple[str, str]:
    """Return the override file's name according to Argo CD's naming rule, and the alternative name.

    Argo CD adds the namespace as a prefix if the Application is outside the control plane's
    namespace (argo-cd util/argo, AppInstanceName). AIU compares with its own namespace, so an AIU
    that runs elsewhere writes files that are never read (AIU issues 963 and 1343).
    """
    plain = f".argocd-source-{app.name}.yaml"
    prefixed = f".argocd-source-{app.namespace}_{app.name}.yaml"
    if app.namespace in ("", argocd_namespace):
        return plain, prefixed
    return prefixed, plain


def inside(folder: str, path: str, what: str = "target") -> str:
    """Return `path` as a path from the repository's root. `path` is relative to `folder`, or to the
    root if it begins with "/": `../values.yaml` in `apps/web` becomes `apps/values.yaml`.

    Raises `TargetError`, or `SourceError` if `what` is "source", for a path outside the repository
    or with unusual characters. AIU does not restrict `..`.
    """
    error = SourceError if what == "source" else TargetError
    full_path = path if path.startswith("/") else f"{folder}/{path}"
    if "\\" in full_path or not full_path.isprintable():
        raise error(
            f"the path {full_path!r} contains characters that are not allowed",
            hint="rename it",
        )
    parts: list[str] = []
    for part in full_path.split("/"):
        if part == "..":
            if not parts:
                raise error(
                    f"the path {full_path.lstrip('/')!r} points outside the repository",
                    hint="use a path inside it",
                )
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


_OURS = "Image Update's own files"
_GITS = "Git's own files"
_CI = "the repository's CI definition"
_REVIEWERS = "the repository's reviewer definitions"
_NEVER_AT_ALL = (_OURS, _GITS)
# Names of guarded files and folders, without the YAML extension. Case is ignored, because some file
# systems ignore case. Depth is ignored too, because forges and CI systems can be configured to look
# in other folders.
_NEVER: Mapping[str, str] = {
    name: what
    for what, names in (
        (_OURS, ".image-update"),
        (_GITS, ".git git~1 .gitmodules .gitattributes .gitignore"),  # git~1 is .git on Windows
        (
            _CI,
            (
                ".github .gitlab .gitlab-ci .gitea .forgejo .circleci .buildkite .tekton"
                " .woodpecker .drone .travis"
            ),
        ),
        (_CI, "azure-pipelines .azure-pipelines bitbucket-pipelines jenkinsfile"),
        (_REVIEWERS, "codeowners"),
    )
    for name in names.split()
}
_YAML = re.compile(r"\.ya?ml\Z")
LONGEST_NAME = 255
LONGEST_PATH = 4096  # the longest path that file systems accept, in bytes


def refuse_files(sub: Subscription, paths: Collection[str], branch: str) -> None:
    """Raise `NotPermittedError` if the Application is not allowed to change one of these files,
    whether by a built-in rule or by the repository's own config.

    An annotation can point to any file, and so can the list of waiting builds, which others can
    edit. A manifest folder may contain protected files too, so every path is checked.
    """
    for path in paths:
        refuse_unwritable(path)
        _refuse_guarded(sub, path)
    for rule in sub.writes:
        # A rule may apply to a single file (`only`).
        paths_under_rule = [path for path in paths if rule.only in ("", path)]
        if paths_under_rule:
            _refuse_by_rule(sub, rule, paths_under_rule, branch)


def _refuse_guarded(sub: Subscription, path: str) -> None:
    """Raise `NotPermittedError` for a guarded file (a CI or reviewer definition), unless a rule in
    the repository's config permits the Application to write it.
    """
    guarded = {
        name: description
        for name, description in _guarded_names(path).items()
        if description not in _NEVER_AT_ALL
    }
    if not guarded:
        return

    for rule in sub.writes:
        for glob in rule.paths or ():
            # A rule permits a guarded file only if it names the file explicitly: `*` is not enough.
            parts = glob.split("/")
            names_file = all(name in parts for name in guarded)
            if names_file and fits_glob(glob, path):
                return
    description = next(iter(guarded.values()))
    also = f", or add the protected file to `writes` in {PATH}"
    raise _not_written(description, path, also)


def _refuse_by_rule(sub: Subscription, rule: Writes, paths: Collection[str], branch: str) -> None:
    """Raise `NotPermittedError` for a file or branch that this rule in the repository's config does
    not allow.

    A rule without `paths` allows every file, and one without `branches` every branch.
    """
    refusal = f"{PATH}, line {rule.line}, does not allow {sub.application.key}"
    hint = f"ask the repository's owner to add it to `writes` in {PATH}"
    if rule.paths is not None:
        for path in paths:
            if not any(fits_glob(glob, path) for glob in rule.paths):
                raise NotPermittedError(f"{refusal} to write {shortened(path)!r}", hint=hint)
    if rule.branches is None:
        return
    if not any(fits_glob(glob, branch) for glob in rule.branches):
        raise NotPermittedError(
            f"{refusal} to write to the branch {shortened(branch)!r}", hint=hint
        )


def refuse_unwritable(path: str) -> None:
    """Raise `NotPermittedError` for a file that annotations must never write,
    and `TargetError` for a name or path that is too long.

    `path` is normalized and relative to the repository's root. CI and reviewer definitions are not
    refused here, because the repository's config may permit them.
    """
    for description in _guarded_names(path).values():
        if description in _NEVER_AT_ALL:
            raise _not_written(description, path)
    longest_name = max(path.split("/"), key=size)
    if size(longest_name) > LONGEST_NAME:
        message = (
            f"{shortened(longest_name)!r} has {size(longest_name)} bytes, but file systems limit"
            f" names to {LONGEST_NAME}"
        )
        hint = "use another file in write-back-target, or a shorter Application name"
        raise TargetError(message, hint=hint)
    if size(path) > LONGEST_PATH:
        message = (
            f"{shortened(path)!r} has {size(path):,} bytes, but file systems limit paths to"
            f" {LONGEST_PATH:,}"
        )
        raise TargetError(message, hint="set write-back-target to a file with a shorter path")


def _guarded_names(path: str) -> Mapping[str, str]:
    """Return the parts of a path that annotations are not allowed to write, such as `.github`, each
    with a description.
    """
    guarded = {}
    for part in path.split("/"):
        # Windows treats `.git.` and `.git ` as `.git`.
        name = part.casefold().rstrip(". ")
        without_extension = _YAML.sub("", name)
        description = _NEVER.get(name) or _NEVER.get(without_extension)
        if description:
            guarded[part] = description
    return guarded


def _not_written(description: str, path: str, also: str = "") -> NotPermittedError:
    """Return the error for a guarded file. `also` is appended to its hint."""
    hint = (
        "keep the updated values in another file or folder, and set write-back-target to that"
        f" path{also}"
    )
    return NotPermittedError(
        f"annotations cannot write {description}: {shortened(path)!r}", hint=hint
    )


def size(text: str) -> int:
    """Return a path's size in Git, in bytes."""
    return len(text.encode("utf-8", "surrogatepass"))

"""Finds the folders that an Application deploys, and the Applications in them (app of apps),
for `--follow-apps`.
"""

from __future__ import annotations

import json
import posixpath
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any, Literal

from task.annotations.application import is_application
from task.applications.git import (
    KeptRepository,
    Repositories,
    TooManyRepositoriesError,
    repository_key,
)
from task.applications.kustomizations import (
    kustomization_in,
    listed,
    needed,
    path_at,
    references_in,
)
from task.applications.manifest_text import (
    KINDS,
    SUFFIXES,
    found_in,
    makes_applications,
    source_warning,
)
from task.applications.rendering import Kind, Release, Rendering, kind_of
from task.applications.work_tree import LINK
from task.errors import Exit, Malformed, SourceError, TaskError, Trouble
from task.model import File, Found, Place, Snapshot
from task.plain_data import elements, mapping
from task.text import and_more

MOST = 5_000  # maximum number of Applications found by following others
_CLUSTER = "read its Applications with --applications cluster"
_BRANCH = f"set targetRevision to a branch, or {_CLUSTER}"
_URL = f"set repoURL to a URL that this step can reach, pass --rewrite-url, or {_CLUSTER}"
_NO_URL = f"set repoURL in its source, or {_CLUSTER}"
_PATH = f"fix the path in its source, or {_CLUSTER}"
_IF_ANY = (
    "if these sources deploy Applications, read them with --applications cluster; otherwise,"
    " nothing is"
    " missing"
)
_LONGEST = 200  # maximum characters of a path in a message
_NO_FOLDERS = {
    "chart": "charts from Helm repositories",
    "plugin": "plugin output",
}
_TOO_MANY = "start with fewer Applications, or read them with --applications cluster"
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_PATTERNS = 100  # how many patterns a pattern with braces may expand to
_LONGEST_PATTERN = 500  # maximum characters in a pattern
# Keys of a source's `kustomize` section that do not change the output.
_HARMLESS = frozenset(("version", "kubeVersion", "apiVersions"))


@dataclass(frozen=True)
class Deployed:
    """A folder in one of an Application's sources."""

    repo: str
    revision: str
    path: str  # "" is the root
    plain: bool = False  # whether the manifest declares a directory of manifests
    recurse: bool = False
    include: str = ""  # globs for a directory's files
    exclude: str = ""
    release: Release = Release()
    optional_values: bool = False  # ignoreMissingValueFiles
    # the unsupported manifest key that prevents rendering the folder
    unsupported: str = ""
    app: str = "?"  # "namespace/name" of the Application that deploys the folder

    def holds(self, path: str) -> bool:
        """Return whether a file in or below the folder is one of the folder's manifests.

        This depends on `recurse`, `include`, and `exclude`. `path` is relative to the repository's
        root.
        """
        relative_path = posixpath.relpath(path, self.path or ".")
        is_in_subfolder = "/" in relative_path
        if is_in_subfolder and not self.recurse:
            return False
        if self.exclude and _fits_argo_glob(relative_path, self.exclude):
            return False
        return not self.include or _fits_argo_glob(relative_path, self.include)


@dataclass(frozen=True)
class NoFolder:
    """An Application source that is not a folder in a repository."""

    why: Literal["chart", "plugin", "outside", "no repoURL"]
    path: str = ""
    app: str = "?"  # "namespace/name"


def deployed(item: Mapping[str, Any]) -> Iterator[Deployed | NoFolder]:
    """Yield what each source of an Application deploys: a folder, or the reason why the source is
    not a folder, as with a chart from a Helm repository.
    """
    spec = mapping(item.get("spec"))
    hydrator = spec.get("sourceHydrator")
    source_list = spec.get("sources")
    if isinstance(hydrator, dict):  # Argo CD renders this source to another branch
        sources: list[Any] = [hydrator.get("drySource")]
    elif isinstance(source_list, list) and source_list:
        sources = source_list
    else:
        sources = [spec.get("source")]

    metadata = mapping(item.get("metadata"))
    full_name = [str(metadata[key]) for key in ("namespace", "name") if metadata.get(key)]
    app = "/".join(full_name) or "?"
    name = _scalar(metadata.get("name"))
    namespace = _scalar(mapping(spec.get("destination")).get("namespace"))
    for source in sources:
        if isinstance(source, dict):
            yield from _deployed_by(source, app, name, namespace)


def _deployed_by(
    source: Mapping[str, Any],
    app: str,
    name: str,
    namespace: str,
) -> Iterator[Deployed | NoFolder]:
    """Yield the folder that a source deploys, or the reason why the source is not a folder. If the
    source only provides values for another source, yield nothing.

    `app` is the Application's name for messages. `name` and `namespace` are the defaults for its
    Helm release.
    """
    repo = _scalar(source.get("repoURL"))
    why_no_folder = _why_no_folder(source, repo)
    if why_no_folder:
        yield NoFolder(why_no_folder, app=app)
        return
    path = _scalar(source.get("path"))
    if not path:  # the source only provides values
        return
    if posixpath.normpath(path).split("/")[0] == "..":
        yield NoFolder("outside", path, app)
        return

    path_from_root = posixpath.normpath(posixpath.join("/", path)).strip("/")
    directory = mapping(source.get("directory"))
    helm = mapping(source.get("helm"))
    kustomize = mapping(source.get("kustomize"))
    release, unsupported_key = _chart_release(helm, path_from_root, name, namespace)
    if not unsupported_key:
        unsupported_key = _unsupported_kustomize_key(kustomize)
    yield Deployed(
        repo=repo,
        revision=_scalar(source.get("targetRevision")),
        path=path_from_root,
        plain=bool(directory) and not helm and not kustomize,
        recurse=directory.get("recurse") is True,
        include=_scalar(directory.get("include")),
        exclude=_scalar(directory.get("exclude")),
        release=release,
        optional_values=helm.get("ignoreMissingValueFiles") is True,
        unsupported=unsupported_key,
        app=app,
    )


def _unsupported_kustomize_key(kustomize: Mapping[str, Any]) -> str:
    """Return the alphabetically first key in a source's `kustomize` section that changes
    Kustomize's output, or "" if no key does.
    """
    keys = sorted(str(key) for key, value in kustomize.items() if value and key not in _HARMLESS)
    return f"kustomize.{keys[0]}" if keys else ""


def _why_no_folder(
    source: Mapping[str, Any],
    repo: str,
) -> Literal["chart", "plugin", "no repoURL", ""]:
    """Return the reason why a source has no folder in Git, or "" if it may have one."""
    if source.get("chart"):
        return "chart"
    if source.get("plugin") is not None:
        return "plugin"
    return "" if repo else "no repoURL"


def _chart_release(
    helm: Mapping[str, Any],
    path: str,
    name: str,
    namespace: str,
) -> tuple[Release, str]:
    """Return what Argo CD passes to Helm for a chart at `path`, and the first key of the source's
    `helm` section that is not supported here ("" if all keys are supported).

    `name` and `namespace` are used if the section does not set them.
    """
    files = [_scalar(file) for file in elements(helm.get("valueFiles"))]
    files_elsewhere = [file for file in files if _is_elsewhere(file)]
    unsupported_key = ""
    if helm.get("fileParameters"):
        unsupported_key = "helm.fileParameters"
    elif files_elsewhere:
        unsupported_key = f"helm.valueFiles {files_elsewhere[0][:200]!r}"

    values = _scalar(helm.get("values"))
    values_object = helm.get("valuesObject")  # takes precedence over `values`
    if isinstance(values_object, dict) and values_object:
        values = json.dumps(values_object)
    # a path that begins with "/" is relative to the repository's root, and any other to the chart
    absolute_paths = [posixpath.normpath(posixpath.join("/", path, file)) for file in files]
    release = Release(
        name=_scalar(helm.get("releaseName")) or name,
        namespace=_scalar(helm.get("namespace")) or namespace,
        value_files=tuple(file.lstrip("/") for file in absolute_paths),
        values=values,
        parameters=tuple(_set_options(helm)),
    )
    return release, unsupported_key


def _is_elsewhere(file: str) -> bool:
    """Return whether a `valueFiles` entry refers to a different source, a server, or several
    files.
    """
    return file.startswith("$") or "://" in file or any(char in file for char in "*?[")


def _set_options(helm: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (Helm option, name, value) for each Helm parameter."""
    for parameter in elements(helm.get("parameters")):
        if isinstance(parameter, dict) and parameter.get("name"):
            option = "--set-string" if parameter.get("forceString") is True else "--set"
            value = _helm_escaped(_scalar(parameter.get("value")))
            yield option, _scalar(parameter["name"]), value


def _helm_escaped(value: str) -> str:
    """Escape a parameter's value for Helm as Argo CD does: commas are literal, except in a list."""
    if value.startswith("{") and value.endswith("}"):
        return value
    return re.sub(r"(?<!\\),", r"\\,", value)


def _fits_argo_glob(path: str, pattern: str) -> bool:
    """Return whether a path matches one of Argo CD's globs: `*` matches any characters, even
    slashes, and {a,b} matches a or b.

    A glob with {a,b} is expanded to one glob for each alternative. Globs beyond `_MOST_PATTERNS`
    and characters beyond `_LONGEST_PATTERN` are ignored.
    """
    with_braces = [pattern[:_LONGEST_PATTERN]]  # the globs that may still contain braces
    without_braces = list[str]()
    while with_braces and len(with_braces) + len(without_braces) < _MOST_PATTERNS:
        glob = with_braces.pop()
        braces = _BRACES.search(glob)
        if braces is None:
            without_braces.append(glob)
            continue
        before = glob[: braces.start()]
        after = glob[braces.end() :]
        choices = braces.group(1).split(",")
        with_braces += [f"{before}{choice}{after}" for choice in choices]
    return any(fnmatchcase(path, glob) for glob in without_braces)


def _scalar(value: Any) -> str:
    """Return a YAML scalar as text, or "" for a mapping or a list."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, (dict, list)):
        return ""
    return str(value)


class FollowedApplications:
    """Reads the folders that Applications deploy, each only once, down to a given depth."""

    def __init__(
        self,
        repositories: Repositories,
        rendering: Rendering,
        depth: int,
        rendered_sets: Callable[[Found], Iterator[Found]] = lambda found: iter((found,)),
        most: int = MOST,
    ) -> None:
        """`depth` is the number of levels below the first Applications.

        `rendered_sets` returns the Applications of an ApplicationSet, and returns any other
        manifest unchanged. `most` limits the number of Applications.
        """
        self._repositories = repositories
        self._rendering = rendering
        self._depth = depth
        self._rendered_sets = rendered_sets
        self._most = most
        self._waiting: list[Deployed] = []  # the folders of the next level
        self._no_folders: dict[NoFolder, None] = {}  # this level's sources that have no folder
        self._read_folders: set[tuple[Deployed, str]] = set()  # each with its release's namespace
        self._unreadable: set[str] = set()  # the URLs of repositories
        self._full = False  # whether the manifests refer to more repositories than are read

    def note(self, found: Found) -> None:
        """Remember what an Application deploys, for `below` to read."""
        if not self._depth or found.template or not is_application(found.item):
            return
        for source in deployed(found.item):
            if isinstance(source, Deployed):
                self._waiting.append(source)
            else:
                self._no_folders[source] = None

    def below(self) -> Iterator[Found]:
        """Yield the manifests below the Applications passed to `note`, level by level.

        Anything that cannot be read is yielded as a problem.
        """
        count = 0  # the number of Applications found so far
        # Sources without a folder. Those on the lowest level are not reported, because nothing
        # below that level would be followed anyway.
        not_followed: dict[NoFolder, None] = {}
        for _ in range(self._depth):
            not_followed |= self._no_folders
            self._no_folders = {}
            for folders in self._waiting_by_branch():
                for found in self._manifests_on_branch(folders):
                    if is_application(found.item):
                        count += 1
                    if count > self._most:
                        message = (
                            f"--follow-apps: there are more than {self._most:,} Applications to"
                            " follow"
                        )
                        yield Found({}, "", Trouble("source", message, _TOO_MANY))
                        return
                    self.note(found)
                    yield found
        yield from _no_folder_warnings(not_followed)

    def _waiting_by_branch(self) -> Iterable[list[Deployed]]:
        """Return the folders to read next, grouped by repository and branch, and forget them."""
        by_branch: dict[tuple[str, str], list[Deployed]] = {}
        for folder in self._waiting:
            branch = (repository_key(folder.repo), folder.revision)
            by_branch.setdefault(branch, []).append(folder)
        self._waiting = []
        return by_branch.values()

    def _manifests_on_branch(self, folders: Sequence[Deployed]) -> Iterator[Found]:
        """Yield the manifests in these folders, which are on the same branch of the same
        repository, and the problems with reading them.
        """
        repo = folders[0].repo
        if repo in self._unreadable:  # this has already been reported
            return
        try:
            repository = self._repositories.of(repo)
        except TaskError as error:
            yield from self._opening_problems(folders, error)
            return
        try:
            branch, new_folders = self._read_new_folders(repository, folders)
        except TaskError as error:
            yield self._problem(folders, error)
            return

        for folder in dict.fromkeys(folders):
            if folder.path and not branch.inside(folder.path):  # the root ("") always exists
                yield _not_followed_warning(folder.app, branch.why_missing(folder.path))
        for folder, kind in new_folders:
            for manifest in self._manifests_of(folder, kind, branch):
                with_namespace = _with_namespace(manifest, folder.release.namespace)
                for found in self._rendered_sets(with_namespace):
                    if found.trouble or found.item.get("kind") in KINDS:
                        yield found

    def _opening_problems(self, folders: Sequence[Deployed], error: TaskError) -> Iterator[Found]:
        """Yield a problem if these folders' repository cannot be opened.

        If there are too many repositories, this is reported only once.
        """
        if isinstance(error, TooManyRepositoriesError):
            was_reported = self._full
            self._full = True
            if not was_reported:
                message = f"--follow-apps: {error.message}"
                yield Found({}, "", Trouble("source", message, error.hint))
        elif isinstance(error, SourceError):
            # Do not suggest allowing the URL, because it comes from a manifest that others wrote.
            self._unreadable.add(folders[0].repo)
            yield self._problem(folders, error, _URL)
        else:
            yield self._problem(folders, error)

    def _read_new_folders(
        self,
        repository: KeptRepository,
        folders: Sequence[Deployed],
    ) -> tuple[_Branch, list[tuple[Deployed, Kind | None]]]:
        """Read the files that are needed to find the Applications in these folders, which are on
        the same branch.

        Returns that branch, and each folder that was not read before, with the tool that generates
        its manifests (None if its files are the manifests).
        """
        names = [Place(folder.path, "names") for folder in folders]
        branch = _Branch(repository, repository.snapshot(folders[0].revision, names))
        new_folders = []
        for folder in folders:
            if not branch.inside(folder.path):
                continue
            kind = branch.kind(folder)
            if self._is_new(folder, kind):  # this also marks the folder as read
                new_folders.append((folder, kind))

        paths: list[str] = []
        for folder, kind in new_folders:
            if kind != "kustomize":
                paths += branch.paths_to_read(folder, kind)
        branch.read(paths)
        kustomize_folders = {folder.path for folder, kind in new_folders if kind == "kustomize"}
        branch.read_kustomizations(kustomize_folders)
        return branch, new_folders

    def _manifests_of(
        self, folder: Deployed, kind: Kind | None, branch: _Branch
    ) -> Iterator[Found]:
        """Yield a folder's manifests, rendered if needed, or the reason why it is not followed.

        `kind` is the tool that generates them. None means that the files themselves are the
        manifests.
        """
        where = f"{branch.repo}//{folder.path}".rstrip("/")
        if kind is None:
            yield from branch.manifests(branch.paths_to_read(folder, kind))
            return
        try:
            manifest_paths = branch.files_with_applications(kind, folder)
            if manifest_paths is not None:  # no rendering is needed
                yield from branch.manifests(manifest_paths)
                return

            hint = self._rendering.hint_if_disabled(kind)
            if folder.unsupported:  # overrides the hint, because --render would not help
                hint = f"{folder.app} has {folder.unsupported}, which is not followed: {_CLUSTER}"
            if hint:
                yield self._rendering.unrendered_warning(kind, where, hint)
                return

            release = folder.release
            if folder.optional_values:
                existing = tuple(path for path in release.value_files if branch.has_file(path))
                release = replace(release, value_files=existing)
            for found in self._rendering.rendered(
                kind, where, folder.path, branch.files_below, release
            ):
                yield replace(found, place=(branch.repo, branch.name, folder.path))
        except (Malformed, SourceError) as error:
            message = f"{where}, which {folder.app} deploys, is not followed: {error.message}"
            yield source_warning(where, message, error.hint, advice=True)

    def _is_new(self, folder: Deployed, kind: Kind | None) -> bool:
        """Return whether this folder has not been read with these settings yet, and mark it as
        read.
        """
        # Only Helm's output depends on the release.
        release = folder.release if kind == "helm" else Release()
        repo = repository_key(folder.repo)
        # the same folder may be deployed by several Applications
        without_app = replace(folder, repo=repo, release=release, app="")
        # the namespace matters for all kinds, because it is the default for manifests without one
        key = (without_app, folder.release.namespace)
        is_new = key not in self._read_folders
        self._read_folders.add(key)
        return is_new

    def _problem(self, folders: Sequence[Deployed], error: TaskError, hint: str = "") -> Found:
        """Return a single problem for all Applications that deploy these folders of a branch.

        The problem is an error if a retry may help, and otherwise a warning. `hint` overrides the
        error's own hint. Unless the error is about the source, such as a missing branch, the whole
        repository is marked as unreadable.
        """
        is_source_error = isinstance(error, SourceError)
        if not is_source_error:
            self._unreadable.add(folders[0].repo)
        others = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
        message = f"Applications from {folders[0].app}{others} are not followed: {error}"
        if error.exit == Exit.TEMPORARY:
            trouble = Trouble("source", message, hint or error.hint, exit=error.exit)
            return Found({}, "", trouble)
        if not hint:
            hint = _BRANCH if is_source_error else error.hint
        return source_warning("", message, hint, advice=True)


class _Branch:
    """A repository branch, and the files read from it so far."""

    def __init__(self, repository: KeptRepository, names: Snapshot) -> None:
        """`names` contains the paths of the files in and below the folders to read, without their
        contents.
        """
        self._repository = repository
        self._snapshot = names
        self.repo = names.repo
        self.name = names.branch
        self._names = sorted(names.files)
        self._known = names.files
        self._files: dict[str, File] = {}  # the files whose contents were read
        self._links = set[str]()  # the symbolic links found so far

    def inside(self, path: str) -> list[str]:
        """Return the paths of all files in or below a folder."""
        if not path:
            return self._names
        # The folder's files are next to each other in the sorted list.
        start = bisect_left(self._names, f"{path}/")
        end = bisect_left(self._names, f"{path}0")  # "0" is the character after "/"
        return self._names[start:end]

    def why_missing(self, path: str) -> str:
        """Return the reason why no files were found in a folder."""
        quoted_path = repr(path[:_LONGEST])
        # for `apps/web/chart`: `apps`, `apps/web`, `apps/web/chart`
        parents_and_path = accumulate(path.split("/"), posixpath.join)
        is_file_or_below_one = any(parent in self._known for parent in parents_and_path)
        if is_file_or_below_one:
            return f"{quoted_path} is not a folder on {self.name} of {self.repo}"
        return f"there are no files in {quoted_path} on {self.name} of {self.repo}"

    def kind(self, folder: Deployed) -> Kind | None:
        """Return the tool that generates a folder's manifests, or None for a directory of
        manifests.
        """
        if folder.plain:
            return None
        prefix = posixpath.join(folder.path, "")
        return kind_of([path.removeprefix(prefix) for path in self.inside(folder.path)])

    def paths_to_read(self, folder: Deployed, kind: Kind | None) -> list[str]:
        """Return the paths to read in order to find out whether a folder contains Applications: a
        chart's templates, or the folder's manifests.
        """
        paths = self.inside(folder.path)
        if kind == "helm":
            return [path for path in paths if "/templates/" in f"/{path}"]
        return [path for path in paths if path.endswith(SUFFIXES) and folder.holds(path)]

    def read(self, paths: Iterable[str], want: Literal["text", "files"] = "text") -> None:
        """Read all of these paths at once."""
        to_read = [Place(path, want) for path in dict.fromkeys(paths)]
        if to_read:
            self._files.update(self._repository.read_more(self._snapshot, to_read).files)

    def read_kustomizations(self, folders: set[str]) -> None:
        """Read these folders, and the folders and files that their kustomizations refer to,
        directly or indirectly.

        Each round reads all references found in the round before.
        """
        paths = folders  # from the second round on, also files
        paths_read = set[str]()
        while paths:
            self.read(sorted(paths), "files")
            paths_read |= paths
            references = set[str]()
            for path in paths:
                references.update(self._references_of(path))
            paths = references - self._files.keys() - paths_read

    def _references_of(self, folder: str) -> list[str]:
        """Return the paths that a folder's kustomization refers to, except those outside the
        repository.

        Returns [] if there is no kustomization, for example because `folder` is a file. A broken
        kustomization is reported later, and treated as missing here.
        """
        path = kustomization_in(self._files, folder)
        if not path:
            return []
        try:
            entries = list(references_in(self._text(path), path))
        except Malformed:
            return []
        targets = [path_at(folder, entry) for entry in entries]
        return [target for target in targets if not target.startswith(("..", "/"))]

    def files_below(self, path: str) -> Mapping[str, File]:
        """Return all files in or below a folder, or the file at that path."""
        return self._repository.read_more(self._snapshot, [Place(path, "files")]).files

    def has_file(self, path: str) -> bool:
        """Return whether the file exists."""
        return bool(self._repository.read_more(self._snapshot, [Place(path, "exists")]).files)

    def files_with_applications(self, kind: Kind, folder: Deployed) -> list[str] | None:
        """Return the files that contain a folder's Applications, [] if there are none, or None if
        Helm or Kustomize must generate them.

        Most charts and kustomizations do not generate Applications, and running the program for
        each of them would take minutes.
        """
        if kind == "helm":
            templates = map(self._text, self.paths_to_read(folder, kind))
            generates_applications = any(map(makes_applications, templates))
            return None if generates_applications else []
        texts = needed(folder.path, self._texts_below, self._links)
        if not any(map(makes_applications, texts.values())):
            return []
        if folder.unsupported:
            return None
        manifests = listed(folder.path, texts)
        if manifests is not None:
            # `manifests`, which is called next, reads the files' texts from `_files`
            self._files.update((path, File(texts[path])) for path in manifests)
        return manifests

    def manifests(self, paths: Iterable[str]) -> Iterator[Found]:
        """Yield the manifests in these files."""
        for path in paths:
            text = self._text(path)
            for found in found_in(text.encode(), f"{self.repo}//{path}"):
                yield replace(found, place=(self.repo, self.name, path), text=text)

    def _text(self, path: str) -> str:
        """Return the text of a file that was read, or ""."""
        file = self._files.get(path)
        return file.text if file else ""

    def _texts_below(self, path: str) -> dict[str, str]:
        """Return the texts of the regular files in or below a folder, and add the symbolic links
        to `_links`.
        """
        files = self.files_below(path)
        self._links.update(name for name, file in files.items() if file.mode == LINK)
        # Git's modes for regular files are 100644 and 100755.
        return {name: file.text for name, file in files.items() if file.mode.startswith("100")}


def _no_folder_warnings(no_folders: Iterable[NoFolder]) -> Iterator[Found]:
    """Yield the warnings about sources that are not folders.

    All charts share one warning, and so do all plugins, because there are usually many.
    """
    for no_folder in no_folders:
        if no_folder.why == "outside":
            yield _not_followed_warning(
                no_folder.app,
                f"the path {no_folder.path[:_LONGEST]!r} points outside the repository",
            )
        if no_folder.why == "no repoURL":
            yield _not_followed_warning(no_folder.app, "its source has no repoURL", _NO_URL)
    for why, plural in _NO_FOLDERS.items():
        apps = [no_folder.app for no_folder in no_folders if no_folder.why == why]
        if apps:
            message = (
                f"--follow-apps does not follow {plural}; Applications with such a source:"
                f" {len(apps)} ({and_more(apps)})"
            )
            yield source_warning("", message, _IF_ANY, advice=True)


def _not_followed_warning(app: str, why: str, hint: str = _PATH) -> Found:
    """Return a warning that explains why a source of the Application `app` is not followed."""
    message = f"Applications from {app} are not followed: {why}"
    return source_warning("", message, hint, advice=True)


def _with_namespace(found: Found, namespace: str) -> Found:
    """Return the manifest. If it sets no namespace, this namespace is added, which Argo CD would
    use.
    """
    metadata = found.item.get("metadata")
    if not namespace or not isinstance(metadata, dict) or metadata.get("namespace"):
        return found
    with_namespace = {**metadata, "namespace": namespace}
    return replace(found, item={**found.item, "metadata": with_namespace})

"""Renders folders in which Helm or Kustomize generates the Applications, for `--render`.

`helm template` and `kustomize build` run on a copy of the required files, without network access, a
home folder, or credentials.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal

import sh

from task import shutdown
from task.applications.kustomizations import NAMES as KUSTOMIZATIONS
from task.applications.kustomizations import needed
from task.applications.manifest_text import KINDS, found_in, source_warning
from task.applications.work_tree import LARGEST, LINK
from task.errors import Malformed, SourceError
from task.files import remove_folder, temporary_folder
from task.model import File, Found
from task.processes import Bounds, CapturedOutput, Watch, exit_code, finish, send, start
from task.text import and_more

CHART = "Chart.yaml"
Kind = Literal["helm", "kustomize"]
ReadFiles = Callable[[str], Mapping[str, File]]
_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "helm": ("helm",),
    "kustomize": ("kustomize", "kubectl"),
}
_WHAT: Mapping[Kind, str] = {"helm": "Helm chart", "kustomize": "kustomization"}
# HelmReleases are not rendered, because an update is written to the file with the release.
_OTHERWISE = "or read its Applications with --applications cluster"
NOTHING: Mapping[str, str] = {}
_VALUES = ".image-update-values.yaml"
_LONGEST_RELEASE = 53  # maximum characters in a release name
# Helm follows `$ref` in this file to any file or server that the step can reach, so the file is
# never passed to Helm.
_SCHEMA = "values.schema.json"
# seconds for all rendering in a run, which may follow thousands of charts by many authors
BUDGET = 300.0
SECONDS = 60.0  # timeout for one program, in seconds
_BOUNDS = Bounds(messages=LARGEST, pack=LARGEST)
_TAIL = 16_000  # bytes of stderr to keep
_LAST = 3  # lines of stderr quoted in an error
_LONGEST = 600  # maximum characters of stderr in a message
_ADVICE = "Use --debug flag"  # Helm's own advice about a flag that this step does not have
# the proxy for any attempt to fetch something: no server listens on this port
_NOWHERE = "http://127.0.0.1:9"
_ENDED = "the templates or patches generate too much, or never finish"


def kind_of(names: Collection[str]) -> Kind | None:
    """Return the tool that generates the manifests in a folder with these files.

    As in Argo CD, Kustomize takes precedence over Helm.
    """
    if any(file_name in names for file_name in KUSTOMIZATIONS):
        return "kustomize"
    return "helm" if CHART in names else None


@dataclass(frozen=True)
class Release:
    """The settings for rendering a chart with Helm. "" and () mean that the manifest does not set
    the value.
    """

    name: str = ""
    namespace: str = ""
    value_files: tuple[str, ...] = ()  # paths relative to the top
    values: str = ""  # YAML; takes precedence over the files
    parameters: tuple[tuple[str, str, str], ...] = ()  # (Helm option, name, value)


class RenderingError(SourceError):
    """A chart or kustomization cannot be rendered. Its owner must fix it."""


class _Sources:
    """The contents of the files to render, and a list of the files that cannot be rendered."""

    def __init__(self, kind: Kind, read: ReadFiles) -> None:
        self._kind = kind
        self._read = read
        self.left_out: list[str] = []  # the files that cannot be rendered
        self.links = set[str]()

    def texts(self, folder: str) -> dict[str, str]:
        """Return the contents of the files in or below a folder. Files that cannot be rendered are
        added to `left_out` instead, and links to `links`.

        Raises `Malformed` for a link in a chart.
        """
        files = self._read(folder)
        self.left_out.extend(path for path, file in files.items() if file.problem)
        self.links.update(path for path, file in files.items() if file.mode == LINK)
        if self._kind == "helm" and self.links:
            raise Malformed(
                f"{min(self.links)[:200]!r} is a symbolic link",
                "replace the link with the actual file",
            )
        texts = {}
        for path, file in files.items():
            is_readable = file.mode.startswith("100") and not file.problem  # 100: a regular file
            if is_readable and posixpath.basename(path) != _SCHEMA:
                texts[path] = file.text
        return texts


class Rendering:
    """Renders folders with the programs installed on this machine, if the user allows it."""

    def __init__(
        self,
        allowed: Collection[str] = (),
        environ: Mapping[str, str] = NOTHING,
        namespace: str = "argocd",
        sources: Collection[str] = (),
        seconds: float = BUDGET,
    ) -> None:
        """`allowed` are the kinds of folders that may be rendered.

        `namespace` is the release's namespace, which is Argo CD's own. `sources` are all values of
        `--applications`. `seconds` is the budget for all rendering.
        """
        self._seconds = seconds
        self._seconds_left = seconds
        self._environ = environ
        self.namespace = namespace
        self._sources = {
            source.partition("?")[0].removeprefix("./").rstrip("/") for source in sources
        }
        # path of the program, or "" if none is installed, by kind
        self._programs = {kind: _installed_program(_PROGRAMS[kind], environ) for kind in allowed}

    def hint_if_disabled(self, kind: Kind) -> str:
        """Return a hint on how to enable rendering of charts or kustomizations, or "" if this step
        can render them.
        """
        if kind not in self._programs:
            return f"render it with --render {kind}, {_OTHERWISE}"
        if not self._programs[kind]:
            return f"install {' or '.join(_PROGRAMS[kind])} for this step, {_OTHERWISE}"
        return ""

    def unrendered(
        self,
        root: str,
        folders: Iterable[tuple[Kind, str]],
        prefix: str,
    ) -> Iterator[Found]:
        """Yield a warning about each of these folders, each of which is the source's root or below
        it.

        In each folder, a chart generates Applications, or a kustomization changes them. `prefix` is
        prepended to each path.
        """
        for kind, folder in dict.fromkeys(folders):
            where = f"{prefix}{folder}".rstrip("/") or "."
            if folder == root:
                yield self.unrendered_warning(kind, where, self.hint_if_disabled(kind))
            elif where not in self._sources:
                # Only the source's own folder is rendered, not the folders below it.
                hint = f"pass it as a separate source with --render {kind}, {_OTHERWISE}"
                yield self.unrendered_warning(kind, where, hint)
            # Otherwise, the folder is a separate source, and is read or reported as such.

    def unrendered_warning(self, kind: Kind, where: str, hint: str) -> Found:
        """Return the warning about a chart or kustomization that is not rendered."""
        message = f"{where}: this {_WHAT[kind]} generates Applications, but it is not rendered"
        return source_warning(where, message, hint, advice=True)

    def rendered(
        self,
        kind: Kind,
        where: str,
        folder: str,
        read: ReadFiles,
        release: Release = Release(),
    ) -> Iterator[Found]:
        """Run Helm or Kustomize on a folder, and yield the Argo CD manifests in the output, all
        with the origin `where`.

        `folder` is the folder's path from the top (usually the repository's root). `read` returns
        the files at such a path. Raises `RenderingError` with the program's message.
        """
        sources = _Sources(kind, read)
        try:
            files = _files_to_render(kind, folder, sources, release)
            program = self._programs[kind]
            if kind == "helm":
                # the release is named after the folder or, at the top, after the repository
                arguments = _helm_arguments(release, folder or where, self.namespace)
            elif os.path.basename(program) == "kubectl":
                arguments = ["kustomize"]
            else:
                arguments = ["build"]
            output = self._run([program, *arguments, f"./{folder}"], files)
        except Malformed as error:
            hint = error.hint
            if sources.left_out:
                hint += f"; {sources.left_out[0]} was skipped, because only UTF-8 text is rendered"
            message = f"cannot render this {_WHAT[kind]}: {error.message}"
            raise RenderingError(message, hint=hint, subject=where) from None

        places = _capability_checks(files) if kind == "helm" else []
        if places:
            message = (
                f"{where}: the chart uses .Capabilities, which only the cluster knows, in"
                f" {and_more(places)}"
            )
            hint = f"if the Applications depend on it, {_OTHERWISE.removeprefix('or ')}"
            yield source_warning(where, message, hint, advice=True)
        for found in found_in(output.encode(), where):
            if found.trouble or found.item.get("kind") in KINDS:
                yield replace(found, origin=where)

    def _run(self, argv: list[str], files: Mapping[str, str]) -> str:
        """Run a program within the remaining time budget, and return its output.

        Raises `Malformed` if no time is left or the program fails.
        """
        if self._seconds_left <= 0:
            message = f"rendering in this run has already taken {self._seconds:.0f} seconds"
            raise Malformed(message, f"render less in one run, {_OTHERWISE}")
        start_time = time.monotonic()
        try:
            return run(argv, files, self._environ, seconds=min(SECONDS, self._seconds_left))
        finally:
            self._seconds_left -= time.monotonic() - start_time


def _files_to_render(
    kind: Kind,
    folder: str,
    sources: _Sources,
    release: Release,
) -> dict[str, str]:
    """Return the texts of the files that the program needs, by path from the top. Raises
    `Malformed`.
    """
    if kind == "helm":
        files = sources.texts(folder)
    else:
        files = needed(folder, sources.texts, sources.links)
    for path in release.value_files:
        files.update(sources.texts(path))
    if release.values:
        files[_VALUES] = release.values
    return files


# Argo CD passes the cluster's API versions. Charts with Applications check for Argo CD's.
_API_VERSIONS = (
    "argoproj.io/v1alpha1",
    "argoproj.io/v1alpha1/Application",
    "argoproj.io/v1alpha1/ApplicationSet",
    "argoproj.io/v1alpha1/AppProject",
)
_CAPABILITIES = re.compile(
    r"\.Capabilities\b(?!\.APIVersions\.Has\s+\(?[\"`]argoproj\.io/v1alpha1)"
)


def _capability_checks(files: Mapping[str, str]) -> list[str]:
    """Return the first place in each Helm template that checks for a cluster capability other than
    `_API_VERSIONS`, such as `templates/app.yaml:3`.
    """
    places = []
    for path, text in sorted(files.items()):
        is_template = "/templates/" in f"/{path}"
        match = _CAPABILITIES.search(text) if is_template else None
        if match:
            line = text.count("\n", 0, match.start()) + 1
            places.append(f"{path}:{line}")
    return places


def _helm_arguments(release: Release, folder: str, namespace: str) -> list[str]:
    """Return the arguments for Helm except the chart: `template`, options, and the release's name.

    Values are in Argo CD's order: later ones win. If the release has no name, it is named after the
    folder. `namespace` is the default for the release's namespace.
    """
    value_files = list(release.value_files)
    if release.values:
        value_files.append(_VALUES)
    options = ["--namespace", release.namespace or namespace]
    for path in value_files:
        options += ["--values", f"./{path}"]
    for option, parameter, value in release.parameters:
        options += [option, f"{parameter}={value}"]
    for api_version in _API_VERSIONS:
        options += ["--api-versions", api_version]
    return ["template", *options, "--", release.name or _release_name(folder)]


def _release_name(folder: str) -> str:
    """Return a release name that Helm accepts, derived from the folder's name."""
    folder_name = posixpath.basename(folder.rstrip("/")).removesuffix(".git").lower()
    name = re.sub(r"[^a-z0-9]+", "-", folder_name).strip("-")
    return name[:_LONGEST_RELEASE].strip("-") or "applications"


def _installed_program(names: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the path of the first of these programs that is found on the PATH, or "".

    Relative folders on the PATH are ignored.
    """
    folders = environ.get("PATH", "").split(os.pathsep)
    search_path = os.pathsep.join(folder for folder in folders if os.path.isabs(folder))
    for name in names:
        program = shutil.which(name, path=search_path)
        if program:
            return program
    return ""


def run(
    argv: Sequence[str],
    files: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    seconds: float = SECONDS,
    bounds: Bounds = _BOUNDS,
) -> str:
    """Run a program with copies of these files in its working folder, and return its output.

    `environ` is the step's environment, which is not passed to the program. Raises `Malformed` if
    the program is stopped, or if it fails. If it fails, the error contains the program's own
    message.
    """
    shutdown.check()
    # The folder is private, and its name is random.
    private_folder = temporary_folder(environ.get("TMPDIR") or "/tmp")  # noqa: S108
    try:
        tree = os.path.join(private_folder, "files")
        _write_files(files, tree)
        env = _environment(private_folder)
        code, out, err, why_stopped = _run_renderer(argv, tree, env, seconds, bounds)
    finally:
        remove_folder(private_folder)

    program = os.path.basename(argv[0])
    if why_stopped:
        raise Malformed(f"{program} was stopped: {why_stopped}", _ENDED)
    if code:
        # raises an error if a signal has arrived, which also terminates the program
        shutdown.check()
        lines = [
            line
            for line in err.replace(tree, ".").splitlines()
            if line.strip() and not line.startswith(_ADVICE)
        ]
        last_lines = " ".join(lines[-_LAST:])[:_LONGEST]
        raise Malformed(f"{program} exited with {code}: {last_lines}", f"run {program} by hand")
    return out


def _write_files(files: Mapping[str, str], tree: str) -> None:
    """Write the files to the folder `tree`.

    Raises `Malformed` if they are too large or cannot be written, and for a path that cannot exist
    in a checkout.
    """
    if sum(len(text) for text in files.values()) > LARGEST:
        raise Malformed(
            f"the files are larger than {LARGEST // 1_000_000} MB in total",
            "use a smaller folder",
        )
    os.makedirs(tree, exist_ok=True)
    for path, text in files.items():
        is_valid = "\0" not in path and {"", ".", ".."}.isdisjoint(path.split("/"))
        if not is_valid:
            raise Malformed(f"{path[:200]!r} is not a valid file path", "rename the file")
        full_path = os.path.join(tree, path)
        try:
            os.makedirs(os.path.dirname(full_path), exist_ok=True)
            with open(full_path, "x", encoding="utf-8", newline="") as file:
                file.write(text)
        except OSError as error:
            raise Malformed(
                f"cannot copy {path[:200]!r}: {error.strerror}",
                "rename the file, or free up space",
            ) from None


def _environment(private_folder: str) -> dict[str, str]:
    """Return the program's entire environment. It provides no tokens, configuration, other
    programs, or access to servers. The program's home folder, which is empty, is created in the
    private folder.
    """
    home = os.path.join(private_folder, "home")
    os.makedirs(home)
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _NOWHERE)
    proxies |= {variable.lower(): value for variable, value in proxies.items()}
    homes = ("HOME", "TMPDIR", "PATH", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
    helm = ("HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME", "HELM_PLUGINS")
    git = {
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    return {
        **dict.fromkeys((*homes, *helm), home),
        **proxies,
        **git,
        "KUBECONFIG": os.devnull,
        "LANG": "C.UTF-8",
    }


def _run_renderer(
    argv: Sequence[str],
    folder: str,
    env: dict[str, str],
    seconds: float,
    bounds: Bounds,
) -> tuple[int, str, str, str]:
    """Run a program in a folder.

    Returns the exit code, stdout, the end of stderr, and the reason why the program was stopped (""
    if it was not). Raises Malformed if it cannot be started.
    """
    with (
        shutdown.shield(),
        closing(CapturedOutput()) as out,
        closing(CapturedOutput(_TAIL)) as err,
        open(os.devnull, "rb") as nothing,
    ):
        files = (nothing, out.sink, err.sink)
        try:
            running = start(
                sh.Command(argv[0]),
                argv[1:],
                env,
                files,
                bounds.limits(),
                folder,
            )
        # For example, the program is for another architecture. The error is a ValueError if the
        # process was killed before it could start.
        except (sh.ForkException, sh.CommandNotFound, OSError, ValueError) as error:
            raise Malformed(
                f"{argv[0]} cannot be started",
                "install the build for this machine",
            ) from error
        out.sink.close()  # the program has its own copies of the sinks
        err.sink.close()

        too_slow = f"it took more than {seconds:.0f} seconds"
        no_limit_on_silence = 0
        limits = (seconds, too_slow, no_limit_on_silence)
        watch = Watch(running, limits, (out, err), bounds)
        try:
            with shutdown.ending(watch.end):
                watch.wait()
        except BaseException:  # the program must not outlive this step
            finish(running)
            raise
        if watch.why:
            send(running, "SIGKILL")  # for child processes that outlived the program
        code = exit_code(running)

        why_stopped = watch.why
        if why_stopped == bounds.too_many_messages:  # the watch's own message mentions a Git server
            why_stopped = f"it printed more than {bounds.messages // 1_000_000} MB"
        output = out.text().decode("utf-8", "replace")
        messages = err.text().decode("utf-8", "replace")
        return code, output, messages, why_stopped

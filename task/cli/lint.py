"""`lint`: checks all Applications' annotations, and lists every problem at once."""

import os
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from task import shutdown
from task.annotations.lint import (
    Finding,
    noted,
    of_flaw,
    shared_places,
    told_once,
    without_method,
)
from task.annotations.subscription import Scope, subscribe
from task.applications.manifest_files import LARGEST
from task.argocd.owners import set_takes_back
from task.ci.publish import tell
from task.cli import lint_views
from task.cli.call import Call
from task.cli.job import job_of, scope_of
from task.cli.lint_branches import open_branches
from task.cli.lint_repositories import branch_prefixes, config_findings, held
from task.cli.lint_views import NO_FILES, Placed
from task.commands.migration import Migration, lines, migration
from task.deciding.cautions import taken_back
from task.deciding.verify import only_signed
from task.editors.yaml.tree import Node, pairs, parse, resolved
from task.errors import Severity, TargetError, TaskError, UsageError
from task.files import read_text
from task.landing.live import owner_of
from task.landing.ports import World
from task.model import Application, Found, Problem, Subscription
from task.output.console import say
from task.output.log import Log
from task.pipeline.discover import Discovered, discovered
from task.pipeline.overlooked import unknown_names
from task.settings import Settings
from task.text import counted, printable
from task.wiring.argo import sources
from task.wiring.world import RealWorld


def lint(settings: Settings, call: Call) -> int:
    """Check all Applications' annotations and the repository's config, and list every problem with
    a fix.
    """
    settings = _with_sources(settings, call)
    environ = call.environ
    log = call.log
    if not sources(settings, environ):
        hint = (
            "pass a folder or file, as in image-update lint apps/, or . for the current directory"
        )
        raise UsageError("cannot tell where to read Applications from", hint=hint)
    form = settings.lint.output
    try:
        placed, applications_read, moved = _collect(settings, environ, log)
    except TaskError as error:
        if isinstance(error, UsageError) and settings.lint.source:
            # The source comes from an argument here, so the error must not mention --applications.
            error = UsageError(error.message.removeprefix("--applications: "), hint=error.hint)
        if report := lint_views.REPORTS.get(form):
            finding = Finding(noted("error", str(error), error.hint))
            say(report([(finding, "", 0)]))
        raise error from None
    _show(placed, applications_read, moved, form, log)
    errors = [finding for finding, _, _ in placed if finding.severity == "error"]
    code = shutdown.code_of_run(errors)
    problems = tuple(Problem(error.trouble, application=error.application) for error in errors)
    message = f"no errors in {counted(applications_read, 'Application')}"
    tell("lint", message, settings.handed, environ, problems=problems, code=code)
    return code


def _show(
    found: Sequence[Placed],
    read: int,
    moved: Migration | None,
    form: str,
    log: Log,
) -> None:
    """Print the findings in the requested format."""
    if form == "json":
        say(lint_views.as_report(found, moved))
        return
    if report := lint_views.REPORTS.get(form):
        say(report(found))
        return
    comparison = lines(moved) if moved else ()
    if log.form == "github":
        say("".join(f"{printable(line)}\n" for line in comparison))
        say("".join(lint_views.as_annotation(*text) for text in found), commands=True)
        return
    say(lint_views.as_text(found, read, comparison))


def _with_sources(settings: Settings, call: Call) -> Settings:
    """Return the settings with each SOURCE added to `--applications`.

    The `--applications` variable counts only if there is no SOURCE.
    """
    arguments = settings.lint.source
    if not arguments:
        return settings
    is_from_variable = "--applications" in call.variables
    from_option = () if is_from_variable else settings.sources.applications
    applications = (*arguments, *from_option)
    return replace(settings, sources=replace(settings.sources, applications=applications))


@dataclass(frozen=True)
class _Inspected:
    """The Applications and their repositories, once everything has been read."""

    found: Discovered
    texts: Mapping[str, str]  # content of the files from Git, by path
    passed_over: Sequence[Application]
    written: Sequence[Subscription]
    of_repositories: Sequence[Finding]  # about configs and open branches
    of_owners: Sequence[Finding]  # about owners that revert patches or require signed commits
    on_hold: Sequence[Finding]
    moved: Migration | None


def _collect(
    settings: Settings,
    environ: Mapping[str, str],
    log: Log,
) -> tuple[list[Placed], int, Migration | None]:
    """Return all findings, the number of Applications read, and the requested comparison with
    AIU.
    """
    scope = scope_of(settings)
    world = RealWorld(settings, environ, log, scope)
    try:
        inspected = _inspected(settings, environ, scope, world)
    finally:
        world.close()
    found = inspected.found
    applications_read = found.read + len(inspected.passed_over)
    placed: list[Placed] = [
        (finding, *_path_and_line(finding.origin)) for finding in inspected.of_repositories
    ]
    if not applications_read and not found.templates and not found.problems:
        hint = "pass a folder or file, as in image-update lint apps/"
        placed.append(
            _unplaced("warning", "no Applications were found, so nothing was checked", hint)
        )
    placed += [_finding_of_problem(problem) for problem in found.problems]
    placed += _of_unknown_names(inspected, scope)
    compares = settings.lint.from_image_updater
    prefix = settings.scope.annotation_prefix
    texts = inspected.texts
    about_annotations = (
        *_annotation_findings(inspected, scope, compares=compares),
        *inspected.of_owners,
    )
    placed += [(finding, *_place(finding, prefix, texts)) for finding in about_annotations]
    placed += _of_releases(inspected)
    placed += [(finding, *_place(finding, "", texts)) for finding in inspected.on_hold]
    return placed, applications_read, inspected.moved


def _inspected(
    settings: Settings,
    environ: Mapping[str, str],
    scope: Scope,
    world: RealWorld,
) -> _Inspected:
    """Read everything that the findings depend on."""
    texts: dict[str, str] = {}
    sets: dict[str, Mapping[str, Any]] = {}
    found = discovered(_with_texts(world.applications(), texts, sets), scope, world.locate)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    on_hold = list(held(found.applications, settings, world, now))
    of_owners = [
        *_taken_back(found.applications, sets, scope, world),
        *_only_signed(found.applications, scope, world),
    ]
    written = [] if world.passed_over() else _all_that_writes(found, scope)
    moved = None
    if settings.lint.from_image_updater:
        job = replace(job_of(settings, (), environ), dry=True)
        moved = migration(found, job, world, in_cluster="cluster" in sources(settings, environ))
    of_repositories = [
        *config_findings(settings.sources.applications, written, world.locate),
        *open_branches(
            written,
            world.forge_if_known,
            branch_prefixes(settings.sources.applications, world.locate),
        ),
    ]
    return _Inspected(
        found=found,
        texts=texts,
        passed_over=world.passed_over(),
        written=written,
        of_repositories=of_repositories,
        of_owners=of_owners,
        on_hold=on_hold,
        moved=moved,
    )


def _unplaced(severity: Severity, message: str, hint: str) -> Placed:
    return Finding(noted(severity, message, hint)), "", 0


def _of_unknown_names(inspected: _Inspected, scope: Scope) -> list[Placed]:
    """Return a finding for each name in the options that no Application has."""
    found = inspected.found
    apps = [*found.applications, *(release.application for release in found.helm_releases)]
    unknown = unknown_names(scope.narrow.names, apps, (*found.outside, *inspected.passed_over))
    return [_unplaced(problem.severity, problem.message, problem.hint) for problem in unknown]


def _annotation_findings(
    inspected: _Inspected, scope: Scope, *, compares: bool
) -> Sequence[Finding]:
    """Return the findings about annotations. `compares` is whether a comparison with AIU is
    requested.
    """
    found = inspected.found
    findings = told_once((*found.applications, *found.templates), scope.defaults)
    if compares or found.updaters or found.updater_config:
        findings += without_method(found.applications)
    if found.updater_config and not compares:
        message = "a run does not read Image Updater's ConfigMap"
        hint = "run image-update lint --from-image-updater to see its keys as options"
        findings += (Finding(noted("info", message, hint), origin=found.updater_config.origin),)
    outside = {app.key for app in found.outside}
    findings += shared_places(
        sub for sub in inspected.written if sub.application.key not in outside
    )
    return findings


def _of_releases(inspected: _Inspected) -> Iterator[Placed]:
    """Yield the flaws of Flux's Helm releases."""
    for release in inspected.found.helm_releases:
        for flaw in release.flaws:
            finding = of_flaw(release.application, flaw)
            # this flaw is about the release's location, which may be elsewhere in the repository
            if not flaw.key:
                finding = replace(finding, trouble=finding.trouble.as_warning())
            yield finding, *_place(finding, "", inspected.texts)


def _finding_of_problem(problem: Problem) -> Placed:
    """Convert a problem with reading a source into a finding.

    The message starts with the problem's location, if it is known.
    """
    place, _, message = problem.message.partition(": ")
    path, line = _path_and_line(place)
    if not os.path.exists(path):
        path = ""
        line = 0
        message = problem.message
    if problem.field and line:
        line = line_of_field(path, line, problem.field)
    # A problem with one Application, or advice about unread sources, is only a warning.
    severity: Severity = "warning" if problem.application or problem.advice else "error"
    finding = Finding(
        noted(severity, message, problem.hint),
        application=problem.application,
        key=problem.key,
        value=problem.value,
    )
    return finding, path, line


def _taken_back(
    apps: Iterable[Application],
    sets: Mapping[str, Mapping[str, Any]],
    scope: Scope,
    world: World,
) -> Iterator[Finding]:
    """Yield a warning for each live Application (or its ApplicationSet) whose owner would revert a
    patch.
    """
    reported_sets: set[str] = set()
    for app in apps:
        live = [
            sub for sub in subscribe(app, scope.defaults).subscriptions if sub.method == "argocd"
        ]
        if not live or app.generated_by in reported_sets:
            continue
        owner = ""
        if app.generated_by:
            field = "spec.sources" if app.multi else "spec.source"
            if set_takes_back(sets[app.generated_by], app.name, field):
                owner = f"ApplicationSet {app.generated_by}"
                reported_sets.add(app.generated_by)
        else:
            owner = owner_of(live[0], world)
        if owner:
            value = app.annotations.get("write-back-method", "")
            yield Finding(
                noted("warning", *taken_back(owner)),
                application=app.key,
                key="write-back-method",
                value=value,
                origin=app.origin,
            )


def _only_signed(apps: Iterable[Application], scope: Scope, world: World) -> Iterator[Finding]:
    """Yield a remark about each project that requires signed commits.

    Whether a run signs its commits depends on the run's options.
    """
    reported: set[tuple[str, str]] = set()  # projects and repositories
    for app in apps:
        for sub in subscribe(app, scope.defaults).subscriptions:
            if sub.method != "git" or (app.project, sub.repo) in reported:
                continue
            if keys := world.keys_wanted(sub):
                reported.add((app.project, sub.repo))
                yield Finding(
                    noted("info", *only_signed(sub, keys)),
                    application=app.key,
                    origin=app.origin,
                )


def _all_that_writes(found: Discovered, scope: Scope) -> list[Subscription]:
    """Return all subscriptions that write to a repository, including those that options exclude."""
    apps = [subscribe(app, scope.defaults) for app in (*found.applications, *found.outside)]
    return [
        sub
        for app_or_release in (*apps, *found.helm_releases)
        for sub in app_or_release.subscriptions
        if sub.method == "git"
    ]


def _path_and_line(origin: str) -> tuple[str, int]:
    """Split `path:line` into path and line. The line is 0 if `path` has no line."""
    path, _, line = origin.rpartition(":")
    return (path, int(line)) if path and line.isdigit() else (origin, 0)


def _with_texts(
    manifests: Iterable[Found],
    texts: dict[str, str],
    sets: dict[str, Mapping[str, Any]],
) -> Iterator[Found]:
    """Yield the manifests.

    The content of manifests from Git is added to `texts`, by the path in their origin.

    The ApplicationSets that generate manifests are added to `sets`, by `namespace/name`.
    """
    for found in manifests:
        if found.owner is not None:
            sets[found.generated_by] = found.owner
        if found.text:
            path, _ = _path_and_line(found.origin)
            texts[path] = found.text
        yield found


def _place(finding: Finding, prefix: str, texts: Mapping[str, str]) -> tuple[str, int]:
    """Return the file and line of the annotation, or else of the manifest."""
    path, start = _path_and_line(finding.origin)
    if not finding.key or path in NO_FILES:
        return path, start
    if finding.field:
        # An `image-list` combines the fields `alias` and `imageName` of each image.
        value = finding.value.partition("=")[2] if finding.field == "imageName" else finding.value
        return path, line_of(
            path,
            start,
            finding.field,
            value,
            sure=True,
            text=texts.get(path),
        )
    return path, line_of(path, start, f"{prefix}{finding.key}", finding.value, text=texts.get(path))


LARGEST_DOCUMENT = 1_000_000  # characters in a document that is searched for a field
# lines examined for one annotation, because a List may have thousands of Applications with the same
# keys
MOST = 500


def line_of(
    path: str,
    start: int,
    key: str,
    value: str,
    *,
    sure: bool = False,
    text: str | None = None,
) -> int:
    """Return the line of `key` (with its prefix) in the document that starts at `start`, or `start`
    if there is none.

    A List is one document with all its Applications. If several lines have the key, the first line
    with the right value wins. If the value is not found, the result is the first line with the key,
    or `start` if `sure` is set. `text` is the content of a file that is not on this machine.
    """
    lines, begin, end = _document(path, start, text)
    numbers = _numbers(path, key, text)
    with_key = numbers[bisect_left(numbers, begin) : bisect_left(numbers, end)][:MOST]
    first_line_of_value = value.strip().partition("\n")[0]
    with_value = [number for number in with_key if first_line_of_value in lines[number]]
    if with_value:
        return with_value[0] + 1
    is_ambiguous = sure and len(with_key) > 1
    return with_key[0] + 1 if with_key and not is_ambiguous else start


def line_of_field(path: str, start: int, field: Sequence[str | int]) -> int:
    """Return the line of a field, by its keys and indices, in the document that starts at `start`.

    If the field does not exist, the result is the line of its closest existing parent, or `start`.
    """
    lines, begin, end = _document(path, start, None)
    text = "\n".join(lines[begin:end])
    line = start
    try:
        node = parse(text).root if len(text) <= LARGEST_DOCUMENT else None
    except TargetError:
        return start
    for part in field:
        key_or_item, node = _part_of(node, part)
        if key_or_item is None:
            break
        line = begin + text.count("\n", 0, key_or_item.start) + 1
    return line


def _part_of(parent: Node | None, part: str | int) -> tuple[Node | None, Node | None]:
    """Return the key and the value at a key in a mapping; at an index in a sequence, both are the
    item. Both are None if the part does not exist.
    """
    node = resolved(parent) if parent else None
    if node and node.kind == "sequence" and isinstance(part, int) and part < len(node.children):
        item = node.children[part]
        return item, item
    if node and node.kind == "mapping" and isinstance(part, str):
        for key, value in pairs(node):
            if key.value == part:
                return key, value
    return None, None


def _document(path: str, start: int, text: str | None) -> tuple[list[str], int, int]:
    """Return all lines, and the first line (from 0) and the end of the document that starts at the
    given line.
    """
    lines, separators = _read(path, text)
    begin = max(start, 1) - 1
    later_separators = separators[bisect_left(separators, begin + 1) :]
    return lines, begin, later_separators[0] if later_separators else len(lines)


@lru_cache(maxsize=8)
def _read(path: str, text: str | None) -> tuple[list[str], list[int]]:
    """Return the lines of a file, and the line numbers (from 0) of its document separators. Both
    lists are empty if the file cannot be read.
    """
    try:
        lines = (read_text(path, LARGEST) if text is None else text).split("\n")
    except (OSError, ValueError):
        return [], []
    return lines, [number for number, line in enumerate(lines) if line.startswith("---")]


@lru_cache(maxsize=1024)
def _numbers(path: str, key: str, text: str | None) -> list[int]:
    """Return the numbers (from 0) of the lines that contain a key as a whole word."""
    lines, _ = _read(path, text)
    word_ends = ("", ":", '"', "'", " ")
    return [
        number
        for number, line in enumerate(lines)
        if key in line and line.partition(key)[2][:1] in word_ends
    ]

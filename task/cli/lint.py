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
        raise UsageError(
            "cannot tell where to read Applications from",
            hint="pass a folder or file, as in image-update lint apps/, or . for the current"
            " directory",
        )

    form = settings.lint.output
    try:
        placed, applications_read, comparison = _collect(settings, environ, log)
    except TaskError as error:
        if isinstance(error, UsageError) and settings.lint.source:
            # The source comes from an argument here, so the error must not mention --applications.
            error = UsageError(error.message.removeprefix("--applications: "), hint=error.hint)
        if form in lint_views.REPORTS:
            finding = Finding(noted("error", str(error), error.hint))
            report = lint_views.REPORTS[form]
            say(report([(finding, "", 0)]))
        raise error from None
    _show(placed, applications_read, comparison, form, log)

    errors = [finding for finding, _, _ in placed if finding.severity == "error"]
    code = shutdown.code_of_run(errors)
    problems = tuple(Problem(error.trouble, application=error.application) for error in errors)
    message = f"no errors in {counted(applications_read, 'Application')}"
    tell("lint", message, settings.handed, environ, problems=problems, code=code)
    return code


def _show(
    placed: Sequence[Placed],
    applications_read: int,
    comparison: Migration | None,
    form: str,
    log: Log,
) -> None:
    """Print the findings, and the comparison with AIU, in the requested format."""
    if form == "json":
        say(lint_views.as_report(placed, comparison))
        return
    if form in lint_views.REPORTS:
        report = lint_views.REPORTS[form]
        say(report(placed))
        return
    comparison_lines = lines(comparison) if comparison else ()
    if log.form == "github":
        say("".join(f"{printable(line)}\n" for line in comparison_lines))
        say(
            "".join(lint_views.as_annotation(*placed_finding) for placed_finding in placed),
            commands=True,
        )
        return
    say(lint_views.as_text(placed, applications_read, comparison_lines))


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
    comparison: Migration | None


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

    # findings with an annotation, whose line is looked up
    prefix = settings.scope.annotation_prefix
    texts = inspected.texts
    compares = settings.lint.from_image_updater
    about_annotations = _annotation_findings(inspected, scope, compares=compares)
    for finding in (*about_annotations, *inspected.of_owners):
        placed.append((finding, *_place(finding, prefix, texts)))
    placed += _of_releases(inspected)
    for finding in inspected.on_hold:
        placed.append((finding, *_place(finding, "", texts)))
    return placed, applications_read, inspected.comparison


def _inspected(
    settings: Settings,
    environ: Mapping[str, str],
    scope: Scope,
    world: RealWorld,
) -> _Inspected:
    """Read everything that the findings depend on."""
    texts: dict[str, str] = {}
    sets: dict[str, Mapping[str, Any]] = {}
    manifests = _with_texts(world.applications(), texts, sets)
    found = discovered(manifests, scope, world.locate)
    apps = found.applications

    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    on_hold = list(held(apps, settings, world, now))
    of_owners = [
        *_reverted_patches(apps, sets, scope, world),
        *_required_signatures(apps, scope, world),
    ]
    written = [] if world.passed_over() else _all_that_writes(found, scope)

    comparison = None
    if settings.lint.from_image_updater:
        job = replace(job_of(settings, (), environ), dry=True)
        reads_cluster = "cluster" in sources(settings, environ)
        comparison = migration(found, job, world, in_cluster=reads_cluster)

    paths = settings.sources.applications
    of_configs = [*config_findings(paths, written, world.locate)]
    prefixes = branch_prefixes(paths, world.locate)
    of_branches = [*open_branches(written, world.forge_if_known, prefixes)]
    return _Inspected(
        found=found,
        texts=texts,
        passed_over=world.passed_over(),
        written=written,
        of_repositories=[*of_configs, *of_branches],
        of_owners=of_owners,
        on_hold=on_hold,
        comparison=comparison,
    )


def _unplaced(severity: Severity, message: str, hint: str) -> Placed:
    """Return a finding without a file and a line."""
    return Finding(noted(severity, message, hint)), "", 0


def _of_unknown_names(inspected: _Inspected, scope: Scope) -> list[Placed]:
    """Return a finding for each name in the options that no Application has."""
    found = inspected.found
    releases = [release.application for release in found.helm_releases]
    excluded_apps = (*found.outside, *inspected.passed_over)
    problems = unknown_names(scope.narrow.names, [*found.applications, *releases], excluded_apps)
    return [_unplaced(problem.severity, problem.message, problem.hint) for problem in problems]


def _annotation_findings(
    inspected: _Inspected, scope: Scope, *, compares: bool
) -> Sequence[Finding]:
    """Return the findings about annotations. `compares` is whether a comparison with AIU is
    requested.
    """
    found = inspected.found
    findings = told_once((*found.applications, *found.templates), scope.defaults)
    uses_image_updater = bool(found.updaters or found.updater_config)
    if compares or uses_image_updater:
        findings += without_method(found.applications)
    if found.updater_config and not compares:
        message = "a run does not read Image Updater's ConfigMap"
        hint = "run image-update lint --from-image-updater to see its keys as options"
        findings += (Finding(noted("info", message, hint), origin=found.updater_config.origin),)

    excluded_keys = {app.key for app in found.outside}
    subs = [sub for sub in inspected.written if sub.application.key not in excluded_keys]
    return findings + shared_places(subs)


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
    is_location = os.path.exists(path)
    if not is_location:
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


def _reverted_patches(
    apps: Iterable[Application],
    sets: Mapping[str, Mapping[str, Any]],
    scope: Scope,
    world: World,
) -> Iterator[Finding]:
    """Yield a warning for each live Application (or its ApplicationSet) whose owner would revert a
    patch.

    `sets` has the ApplicationSets that generate Applications, by `namespace/name`.
    """
    reported_sets: set[str] = set()
    for app in apps:
        subs = subscribe(app, scope.defaults).subscriptions
        live_subs = [sub for sub in subs if sub.method == "argocd"]
        if not live_subs or app.generated_by in reported_sets:
            continue

        owner = ""
        if app.generated_by:
            patched_field = "spec.sources" if app.multi else "spec.source"
            if set_takes_back(sets[app.generated_by], app.name, patched_field):
                owner = f"ApplicationSet {app.generated_by}"
                reported_sets.add(app.generated_by)
        else:
            owner = owner_of(live_subs[0], world)

        if owner:
            yield Finding(
                noted("warning", *taken_back(owner)),
                application=app.key,
                key="write-back-method",
                value=app.annotations.get("write-back-method", ""),
                origin=app.origin,
            )


def _required_signatures(
    apps: Iterable[Application], scope: Scope, world: World
) -> Iterator[Finding]:
    """Yield a remark about each project that requires signed commits.

    Whether a run signs its commits depends on the run's options.
    """
    reported: set[tuple[str, str]] = set()  # projects and repositories
    for app in apps:
        for sub in subscribe(app, scope.defaults).subscriptions:
            project_and_repo = (app.project, sub.repo)
            if sub.method != "git" or project_and_repo in reported:
                continue
            keys = world.keys_wanted(sub)
            if keys:
                reported.add(project_and_repo)
                yield Finding(
                    noted("info", *only_signed(sub, keys)),
                    application=app.key,
                    origin=app.origin,
                )


def _all_that_writes(found: Discovered, scope: Scope) -> list[Subscription]:
    """Return all subscriptions that write to a repository, including those that options exclude."""
    apps = [subscribe(app, scope.defaults) for app in (*found.applications, *found.outside)]
    subs: list[Subscription] = []
    for app_or_release in (*apps, *found.helm_releases):
        subs += app_or_release.subscriptions
    return [sub for sub in subs if sub.method == "git"]


def _path_and_line(origin: str) -> tuple[str, int]:
    """Split `path:line` into path and line. The line is 0 if `origin` has no line."""
    path, _, line = origin.rpartition(":")
    if path and line.isdigit():
        return path, int(line)
    return origin, 0


def _with_texts(
    manifests: Iterable[Found],
    texts: dict[str, str],
    sets: dict[str, Mapping[str, Any]],
) -> Iterator[Found]:
    """Yield the manifests, and fill two dictionaries on the way.

    The content of manifests from Git is added to `texts`, by the path in their origin.

    The ApplicationSets that generate manifests are added to `sets`, by `namespace/name`.
    """
    for manifest in manifests:
        if manifest.owner is not None:
            sets[manifest.generated_by] = manifest.owner
        if manifest.text:
            path, _ = _path_and_line(manifest.origin)
            texts[path] = manifest.text
        yield manifest


def _place(finding: Finding, prefix: str, texts: Mapping[str, str]) -> tuple[str, int]:
    """Return the file and line of the annotation, or else of the manifest.

    `prefix` is the prefix of annotations. `texts` has the content of the files from Git, by path.
    """
    path, start = _path_and_line(finding.origin)
    if not finding.key or path in NO_FILES:
        return path, start

    text = texts.get(path)
    if not finding.field:
        return path, line_of(path, start, f"{prefix}{finding.key}", finding.value, text=text)

    # An ImageUpdater has set the annotation. An `image-list` combines the fields `alias` and
    # `imageName` of each image.
    value = finding.value
    if finding.field == "imageName":
        value = value.partition("=")[2]
    return path, line_of(path, start, finding.field, value, sure=True, text=text)


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
    with the right value wins. If the value is not found, the result is the first line with the key.
    With `sure`, it is `start` instead if several lines have the key. `text` is the content of a
    file that is not on this machine.
    """
    lines, begin, end = _document(path, start, text)
    key_lines = _lines_with_key(path, key, text)
    first_index = bisect_left(key_lines, begin)
    end_index = bisect_left(key_lines, end)
    in_document = key_lines[first_index:end_index][:MOST]

    first_line_of_value = value.strip().partition("\n")[0]
    for number in in_document:
        if first_line_of_value in lines[number]:
            return number + 1

    is_ambiguous = sure and len(in_document) > 1
    if is_ambiguous or not in_document:
        return start
    return in_document[0] + 1


def line_of_field(path: str, start: int, field: Sequence[str | int]) -> int:
    """Return the line of a field, by its keys and indices, in the document that starts at `start`.

    If the field does not exist, the result is the line of its closest existing parent, or `start`.
    """
    lines, begin, end = _document(path, start, None)
    text = "\n".join(lines[begin:end])
    if len(text) > LARGEST_DOCUMENT:
        return start
    node: Node | None
    try:
        node = parse(text).root
    except TargetError:
        return start

    line = start
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
    if node is None:
        return None, None
    if node.kind == "sequence" and isinstance(part, int) and part < len(node.children):
        item = node.children[part]
        return item, item
    if node.kind == "mapping" and isinstance(part, str):
        for key, value in pairs(node):
            if key.value == part:
                return key, value
    return None, None


def _document(path: str, start: int, text: str | None) -> tuple[list[str], int, int]:
    """Return all lines of a file, and the begin and end of the document at the line `start`.

    The begin and the end are indices of the lines, so they count from 0. `start` counts from 1.
    """
    lines, separators = _read(path, text)
    begin = max(start, 1) - 1
    later_separators = separators[bisect_left(separators, begin + 1) :]
    end = later_separators[0] if later_separators else len(lines)
    return lines, begin, end


@lru_cache(maxsize=8)
def _read(path: str, text: str | None) -> tuple[list[str], list[int]]:
    """Return the lines of a file, and the line numbers (from 0) of its document separators. Both
    lists are empty if the file cannot be read.

    `text` is the content of a file that is not on this machine.
    """
    if text is None:
        try:
            text = read_text(path, LARGEST)
        except (OSError, ValueError):
            return [], []
    lines = text.split("\n")
    separators = [number for number, line in enumerate(lines) if line.startswith("---")]
    return lines, separators


@lru_cache(maxsize=1024)
def _lines_with_key(path: str, key: str, text: str | None) -> list[int]:
    """Return the numbers (from 0) of the lines that contain a key as a whole word."""
    lines, _ = _read(path, text)
    word_ends = ("", ":", '"', "'", " ")
    numbers = []
    for number, line in enumerate(lines):
        _, key_in_line, after_key = line.partition(key)
        if key_in_line and after_key[:1] in word_ends:
            numbers.append(number)
    return numbers

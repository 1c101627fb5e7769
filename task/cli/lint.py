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
    finding_of_flaw,
    findings_of_all,
    missing_method_findings,
    noted,
    shared_place_findings,
)
from task.annotations.subscription import Scope, subscribe
from task.applications.manifest_files import LARGEST
from task.argocd.owners import set_takes_back
from task.ci.publish import tell
from task.cli import lint_views
from task.cli.call import Call
from task.cli.job import job_of, scope_of
from task.cli.lint_branches import open_branch_findings
from task.cli.lint_repositories import branch_prefixes, config_findings, findings_in_files
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
        placed_findings, applications_read, comparison = _collect_findings(settings, environ, log)
    except TaskError as error:
        if isinstance(error, UsageError) and settings.lint.source:
            # The source was passed as an argument, so the error must not mention --applications.
            error = UsageError(error.message.removeprefix("--applications: "), hint=error.hint)
        if form in lint_views.REPORTS:
            finding = Finding(noted("error", str(error), error.hint))
            report = lint_views.REPORTS[form]
            say(report([(finding, "", 0)]))
        raise error from None
    _print_findings(placed_findings, applications_read, comparison, form, log)

    errors = [finding for finding, _, _ in placed_findings if finding.severity == "error"]
    code = shutdown.code_of_run(errors)
    problems = tuple(Problem(error.trouble, application=error.application) for error in errors)
    message = f"no errors in {counted(applications_read, 'Application')}"
    tell("lint", message, settings.handed, environ, problems=problems, code=code)
    return code


def _print_findings(
    placed_findings: Sequence[Placed],
    applications_read: int,
    comparison: Migration | None,
    form: str,
    log: Log,
) -> None:
    """Print the findings in the requested format (`form`: "text", "json", "sarif", …), along with
    the comparison with Argo CD Image Updater (AIU), if there is one.

    `placed_findings` contains each finding with its file and line.
    """
    if form == "json":
        say(lint_views.as_report(placed_findings, comparison))
        return
    if form in lint_views.REPORTS:
        report = lint_views.REPORTS[form]
        say(report(placed_findings))  # these formats do not include the comparison
        return
    comparison_lines = lines(comparison) if comparison else ()
    if log.form == "github":
        say("".join(f"{printable(line)}\n" for line in comparison_lines))
        say(
            "".join(
                lint_views.as_annotation(*placed_finding) for placed_finding in placed_findings
            ),
            commands=True,
        )
        return
    say(lint_views.as_text(placed_findings, applications_read, comparison_lines))


def _with_sources(settings: Settings, call: Call) -> Settings:
    """Return the settings with each SOURCE argument added to `--applications`.

    If there is a SOURCE, the value of `--applications` is ignored if it comes from a variable.
    """
    arguments = settings.lint.source
    if not arguments:
        return settings
    is_from_variable = "--applications" in call.variables
    option_values = () if is_from_variable else settings.sources.applications
    applications = (*arguments, *option_values)
    return replace(settings, sources=replace(settings.sources, applications=applications))


@dataclass(frozen=True)
class _Inspected:
    """Everything that `lint` has read, and the resulting findings."""

    discovery: Discovered  # the Applications and HelmReleases
    texts: Mapping[str, str]  # path → content of a file from Git
    passed_over: Sequence[Application]  # annotated Applications that were not read in full
    git_subs: Sequence[Subscription]  # all subscriptions that write to Git repositories
    repository_findings: Sequence[Finding]  # about configs and open branches
    owner_findings: Sequence[Finding]  # about owners that revert patches or require signed commits
    file_findings: Sequence[Finding]  # about holds, and the files that updates write to
    comparison: Migration | None


def _collect_findings(
    settings: Settings,
    environ: Mapping[str, str],
    log: Log,
) -> tuple[list[Placed], int, Migration | None]:
    """Return all findings (each with its file and line), the number of Applications read, and the
    comparison with Argo CD Image Updater (AIU), if it was requested.
    """
    scope = scope_of(settings)
    world = RealWorld(settings, environ, log, scope)
    try:
        inspected = _inspect(settings, environ, scope, world)
    finally:
        world.close()

    discovery = inspected.discovery
    applications_read = discovery.read + len(inspected.passed_over)
    placed_findings: list[Placed] = [
        (finding, *_path_and_line(finding.origin)) for finding in inspected.repository_findings
    ]
    nothing_found = not applications_read and not discovery.templates and not discovery.problems
    if nothing_found:
        hint = "pass a folder or file, as in image-update lint apps/"
        placed_findings.append(
            _finding_without_place(
                "warning", "no Applications were found, so nothing was checked", hint
            )
        )
    placed_findings += [_finding_of_problem(problem) for problem in discovery.problems]
    placed_findings += _unknown_name_findings(inspected, scope)

    # these findings are about an annotation, whose line has to be found
    prefix = settings.scope.annotation_prefix
    texts = inspected.texts
    compares = settings.lint.from_image_updater
    annotation_findings = _annotation_findings(inspected, scope, compares=compares)
    for finding in (*annotation_findings, *inspected.owner_findings):
        placed_findings.append((finding, *_file_and_line(finding, prefix, texts)))
    placed_findings += _release_findings(inspected)
    # these findings are not about an annotation, so they are placed at the manifest's first line
    for finding in inspected.file_findings:
        placed_findings.append((finding, *_file_and_line(finding, "", texts)))
    return placed_findings, applications_read, inspected.comparison


def _inspect(
    settings: Settings,
    environ: Mapping[str, str],
    scope: Scope,
    world: RealWorld,
) -> _Inspected:
    """Read the Applications, followed by the repositories that they write to.

    Findings that require a repository, a forge, or a cluster are created here. All others require
    only the manifests, and are created later.
    """
    # `_with_texts` fills both dictionaries while `discovered` reads the manifests
    texts: dict[str, str] = {}  # path → content of a file from Git
    sets: dict[str, Mapping[str, Any]] = {}  # `namespace/name` → ApplicationSet
    manifests = _with_texts(world.applications(), texts, sets)
    discovery = discovered(manifests, scope, world.locate)
    apps = discovery.applications

    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    file_findings = list(findings_in_files(apps, settings, world, now))
    owner_findings = [
        *_reverted_patches(apps, sets, scope, world),
        *_required_signatures(apps, scope, world),
    ]
    # Finding conflicts between subscriptions requires all of them. If Applications were passed
    # over, some subscriptions are unknown, so the list remains empty.
    git_subs = [] if world.passed_over() else _subscriptions_to_git(discovery, scope)

    comparison = None
    if settings.lint.from_image_updater:
        job = replace(job_of(settings, (), environ), dry=True)
        reads_cluster = "cluster" in sources(settings, environ)
        comparison = migration(discovery, job, world, in_cluster=reads_cluster)

    paths = settings.sources.applications
    about_configs = [*config_findings(paths, git_subs, world.locate)]
    prefixes = branch_prefixes(paths, world.locate)
    about_branches = [*open_branch_findings(git_subs, world.forge_if_known, prefixes)]
    return _Inspected(
        discovery=discovery,
        texts=texts,
        passed_over=world.passed_over(),
        git_subs=git_subs,
        repository_findings=[*about_configs, *about_branches],
        owner_findings=owner_findings,
        file_findings=file_findings,
        comparison=comparison,
    )


def _finding_without_place(severity: Severity, message: str, hint: str) -> Placed:
    """Return a finding that has no file or line."""
    return Finding(noted(severity, message, hint)), "", 0


def _unknown_name_findings(inspected: _Inspected, scope: Scope) -> list[Placed]:
    """Return a finding for each name in the options that matches no Application or HelmRelease."""
    discovery = inspected.discovery
    releases = [release.application for release in discovery.helm_releases]
    excluded_apps = (*discovery.outside, *inspected.passed_over)
    problems = unknown_names(
        scope.narrow.names, [*discovery.applications, *releases], excluded_apps
    )
    return [
        _finding_without_place(problem.severity, problem.message, problem.hint)
        for problem in problems
    ]


def _annotation_findings(
    inspected: _Inspected, scope: Scope, *, compares: bool
) -> Sequence[Finding]:
    """Return the findings about annotations.

    If Argo CD Image Updater (AIU) is in use, or if a comparison with it was requested (`compares`),
    the findings include remarks for users who are migrating from it.
    """
    discovery = inspected.discovery
    findings = findings_of_all((*discovery.applications, *discovery.templates), scope.defaults)
    uses_image_updater = bool(discovery.updaters or discovery.updater_config)
    if compares or uses_image_updater:
        findings += missing_method_findings(discovery.applications)
    if discovery.updater_config and not compares:
        message = "a run does not read Image Updater's ConfigMap"
        hint = "run image-update lint --from-image-updater to see its keys as options"
        findings += (Finding(noted("info", message, hint), origin=discovery.updater_config.origin),)

    excluded_keys = {app.key for app in discovery.outside}
    subs = [sub for sub in inspected.git_subs if sub.application.key not in excluded_keys]
    return findings + shared_place_findings(subs)


def _release_findings(inspected: _Inspected) -> Iterator[Placed]:
    """Yield a finding for each flaw (annotation mistake) in Flux's HelmReleases."""
    for release in inspected.discovery.helm_releases:
        for flaw in release.flaws:
            finding = finding_of_flaw(release.application, flaw)
            # A flaw without a key means that this copy of the manifest is not in Git. The copy that
            # `run` reads may well be in Git.
            if not flaw.key:
                finding = replace(finding, trouble=finding.trouble.as_warning())
            yield finding, *_file_and_line(finding, "", inspected.texts)


def _finding_of_problem(problem: Problem) -> Placed:
    """Convert a problem that occurred while reading a source of Applications to a finding with its
    file and line.

    A message such as `apps/web.yaml:12: …` is split into the location and the rest.
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

    # Problems with a single Application, and advice about unread sources, are only warnings.
    is_warning = bool(problem.application) or problem.advice
    severity: Severity = "warning" if is_warning else "error"
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
    """Yield a warning for each live Application (updated in the cluster instead of in Git) whose
    owner would revert the update. An ApplicationSet is reported only once, for its first
    Application.

    `sets` contains the ApplicationSets that generate Applications, keyed by `namespace/name`.
    """
    reported_sets: set[str] = set()
    for app in apps:
        subs = subscribe(app, scope.defaults).subscriptions
        live_subs = [sub for sub in subs if sub.method == "argocd"]
        if not live_subs or app.generated_by in reported_sets:
            continue

        # what reverts updates, such as "ApplicationSet argocd/web", or "" if nothing does
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
    """Yield a remark for each combination of an Argo CD project and a repository that requires
    signed commits, placed at the first Application to which this applies.

    This is only a remark, because whether a run signs its commits depends on its options.
    """
    reported: set[tuple[str, str]] = set()  # (project, repository)
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


def _subscriptions_to_git(discovery: Discovered, scope: Scope) -> list[Subscription]:
    """Return all subscriptions that write to a Git repository, including those excluded by the
    options.
    """
    apps = [subscribe(app, scope.defaults) for app in (*discovery.applications, *discovery.outside)]
    subs: list[Subscription] = []
    for app_or_release in (*apps, *discovery.helm_releases):
        subs += app_or_release.subscriptions
    return [sub for sub in subs if sub.method == "git"]


def _path_and_line(origin: str) -> tuple[str, int]:
    """Split `path:line` into the path and the line, which is 0 if `origin` does not include one."""
    path, _, line = origin.rpartition(":")
    if path and line.isdigit():
        return path, int(line)
    return origin, 0


def _with_texts(
    manifests: Iterable[Found],
    texts: dict[str, str],
    sets: dict[str, Mapping[str, Any]],
) -> Iterator[Found]:
    """Yield the manifests. Before yielding each one, record what `lint` will need later in two
    dictionaries.

    `texts` receives the content of files from Git, keyed by the path in the manifest's origin.
    `sets` receives the ApplicationSets that generate manifests, keyed by `namespace/name`.
    """
    for manifest in manifests:
        if manifest.owner is not None:
            sets[manifest.generated_by] = manifest.owner
        if manifest.text:
            path, _ = _path_and_line(manifest.origin)
            texts[path] = manifest.text
        yield manifest


def _file_and_line(finding: Finding, prefix: str, texts: Mapping[str, str]) -> tuple[str, int]:
    """Return the file and line of the annotation that a finding is about, or of the manifest if
    there is no such annotation.

    `prefix` is the annotation prefix. `texts` contains the content of files from Git, keyed by
    path.
    """
    path, start = _path_and_line(finding.origin)  # where the manifest starts
    if not finding.key or path in NO_FILES:
        return path, start

    text = texts.get(path)
    if not finding.field:
        return path, line_of(path, start, f"{prefix}{finding.key}", finding.value, text=text)

    # The annotation was derived from an ImageUpdater, whose fields `alias` and `imageName` are
    # combined in an `image-list`.
    value = finding.value
    if finding.field == "imageName":
        value = value.partition("=")[2]
    return path, line_of(path, start, finding.field, value, sure=True, text=text)


LARGEST_DOCUMENT = 1_000_000  # characters; larger documents are not searched for a field
# the maximum number of lines to examine for an annotation, because a List may contain thousands of
# Applications with the same keys
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
    """Return the line of an annotation in the YAML document that starts at line `start`, or `start`
    if the annotation is not found. Lines are numbered from 1.

    A line matches if it contains `key` (with its prefix) and the first line of `value`. If no line
    contains both, the first line with the key is returned; but with `sure`, only if no other line
    contains the key, because a List is a single document with many Applications. `text` is the
    content of a file that is not on this machine.
    """
    lines, begin, end = _document_lines(path, start, text)
    key_lines = _lines_with_key(path, key, text)  # for the whole file, in ascending order
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
    """Return the line of a field in the YAML document that starts at line `start`.

    `field` is the field's path of keys and indices, such as ("spec", "applicationRefs", 0). If the
    field does not exist, return the line of its closest existing parent. If the document is too
    large, or is not valid YAML, return `start`.
    """
    lines, begin, end = _document_lines(path, start, None)
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
        # The line is that of the key or, in a sequence, of the item. The next part is found in the
        # value.
        key_or_item, node = _part_of(node, part)
        if key_or_item is None:
            break
        lines_before = text.count("\n", 0, key_or_item.start)  # within the document
        line = begin + lines_before + 1  # `begin` is numbered from 0
    return line


def _part_of(node: Node | None, part: str | int) -> tuple[Node | None, Node | None]:
    """Return the key and value of `part` in a YAML node, or (None, None) if `part` does not exist.

    In a mapping, `part` is a key. In a sequence, `part` is an index, and the item is returned
    twice, because items have no keys.
    """
    collection = resolved(node) if node else None  # follows an alias
    if collection is None:
        return None, None
    if collection.kind == "sequence" and isinstance(part, int) and part < len(collection.children):
        item = collection.children[part]
        return item, item
    if collection.kind == "mapping" and isinstance(part, str):
        for key, value in pairs(collection):
            if key.value == part:
                return key, value
    return None, None


def _document_lines(path: str, start: int, text: str | None) -> tuple[list[str], int, int]:
    """Return all lines of a file, the index of a YAML document's first line, and the index of the
    line after the document's last.

    `start` is the number of the document's first line, starting from 1. The indices start from 0.
    """
    lines, separators = _lines_and_separators(path, text)
    begin = max(start, 1) - 1
    later_separators = separators[bisect_left(separators, begin + 1) :]
    end = later_separators[0] if later_separators else len(lines)
    return lines, begin, end


@lru_cache(maxsize=8)
def _lines_and_separators(path: str, text: str | None) -> tuple[list[str], list[int]]:
    """Return a file's lines, and the indices of the document separators among them. Both lists are
    empty if the file cannot be read.

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
    """Return the indices of all lines in which the key is followed by a colon, a quote, a space, or
    the end of the line.
    """
    lines, _ = _lines_and_separators(path, text)
    word_ends = ("", ":", '"', "'", " ")
    numbers = []
    for number, line in enumerate(lines):
        _, found_key, after_key = line.partition(key)  # "" without the key
        if found_key and after_key[:1] in word_ends:
            numbers.append(number)
    return numbers

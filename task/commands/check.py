"""`check`: judges every change to a tracked version between two commits, as `run` would.

`check` does not write to the repository or its memory. Steps: the files that the change touches →
the Applications on both sides → the entries whose version or name differs → the base's config and
memory → registry responses and proofs → a decision for each entry.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice

from task.commands.check_promotions import sources_named, with_sources
from task.commands.check_report import check_report
from task.deciding.cautions import cautions
from task.deciding.decide import is_state_path, state_path
from task.deciding.job import Job, Move, error_decision
from task.deciding.judged_changes import (
    Judgement,
    Judging,
    NotJudged,
    Pair,
    Sides,
    Touched,
    Version,
    asks_of,
    facts_needed_by_version,
    governed_pair,
    judged,
    left_behind,
    line_of,
    paired,
    touched_entry,
    versions,
)
from task.deciding.state_changes import state_changes
from task.deciding.target import target_places
from task.deciding.verify import LastChecks, verified
from task.deciding.weigh import Facts, as_questions
from task.errors import SourceError, TargetError, TaskError, Trouble
from task.landing.before_deciding import CONFIG, answers_to, govern_asks, with_missing
from task.landing.overridden import overridden
from task.landing.ports import ChangeToJudge, Side, World
from task.model import (
    Answer,
    Compared,
    Decision,
    Flaw,
    Place,
    Problem,
    Question,
    Report,
    Snapshot,
    Subscription,
    Timings,
)
from task.pipeline.discover import discovered, subscriptions_of
from task.pipeline.overlooked import Seen, refuse_ambiguous, unknown_names
from task.repository_config.config import PATH as CONFIG_PATH
from task.repository_config.config import RepositoryConfig
from task.repository_config.reading import config_in
from task.text import counted

# Files with these suffixes are never Applications, states, configs, or targets.
_UNRELATED_SUFFIXES = frozenset(
    (
        ".adoc", ".bat", ".c", ".cc", ".cpp", ".cs", ".css", ".csv", ".gif", ".go", ".h", ".html",
        ".ico", ".ipynb", ".java", ".jpeg", ".jpg", ".js", ".jsx", ".kt", ".md", ".mdx", ".pdf",
        ".php", ".png", ".ps1", ".py", ".rb", ".rs", ".rst", ".scss", ".sh", ".sql", ".svg", ".swift",
        ".tf", ".tfvars", ".ts", ".tsx", ".webp", ".woff", ".woff2", ".xml", ".zip",
    )
)  # fmt: skip


def may_matter(path: str) -> bool:
    """Return whether a file could be a target, an Application's manifest, a state, or a config.

    Symbolic links and submodules count too, because their names have no suffix.
    """
    return posixpath.splitext(path)[1].lower() not in _UNRELATED_SUFFIXES


@dataclass(frozen=True)
class TrackedEntries:
    """The entries that are written to this repository and branch."""

    pairs: Sequence[Pair]  # each entry before and after the change
    subscriptions: Sequence[Subscription]  # the subscriptions of both sides


@dataclass(frozen=True)
class Affected:
    """The tracked entries that the change affects."""

    sides: Sides
    touched: tuple[Touched, ...]
    not_judged: tuple[NotJudged, ...]


def check(job: Job, world: World, compared: Compared) -> Report:
    """Judge how a change (a pull request) affects the versions that image-list entries track, and
    return the report.

    `compared` contains the two sides of the change: its base and its head.
    """
    began = world.now()
    change = world.change(compared)
    if not any(map(may_matter, change.paths)):
        _log_no_change(change, world)
        timings = _timings(job, began, began, world)  # no Applications were read
        return check_report(job, 0, (), (), change.commits, timings)

    before = _applications_on_side(change, "base", job, world)
    after = _applications_on_side(change, "merged", job, world)
    problems = (*after.problems, *_name_problems(after.seen, job))
    read_at = world.now()

    entries = _tracked_entries(change, before, after)
    affected = _affected_entries(change, entries, job)
    problems += _warn_if_no_entries(entries.subscriptions, after.seen, change)
    problems += _state_problems(affected.sides, entries.subscriptions)
    problems += _config_problems(affected.sides)
    problems += tuple(_warnings_about_unjudged(affected, entries.pairs, after.seen))

    decisions, warnings = _decide(change, affected, before.seen, job, world)
    if not decisions and not problems:
        _log_no_change(change, world)
    return check_report(
        job,
        after.seen.considered,
        decisions,
        (*problems, *warnings),
        change.commits,
        _timings(job, began, read_at, world),
    )


def _timings(job: Job, began: float, read_at: float, world: World) -> Timings:
    """Return how long it took to read the Applications (from `began` to `read_at`), and to decide.

    A check does nothing after deciding, so the last phase takes no time.
    """
    return Timings(
        started=job.terms.now, find=read_at - began, land=world.now() - read_at, follow=0.0
    )


def _log_no_change(change: ChangeToJudge, world: World) -> None:
    files = counted(len(change.paths), "changed file")
    world.log("debug", f"no tracked version has changed ({files})")


@dataclass(frozen=True)
class SideSeen:
    """The Applications on one side of a change."""

    seen: Seen
    problems: tuple[Problem, ...]


def _applications_on_side(change: ChangeToJudge, side: Side, job: Job, world: World) -> SideSeen:
    """Return the Applications on one side of the change: either in the base, or after merging the
    change into the base ("merged").
    """
    try:
        manifests = list(change.applications(side))
    except SourceError:
        if side == "merged":
            raise
        manifests = []  # a folder that the change adds may be missing in the base
    discovery = discovered(manifests, job.scope, world.locate)
    subscribed = subscriptions_of(discovery, job.scope, ())
    seen = Seen(
        subscribed,
        annotated=discovery.applications,
        skipped=(),
        outside=discovery.outside,
    )
    return SideSeen(seen, discovery.problems)


def _name_problems(seen: Seen, job: Job) -> tuple[Problem, ...]:
    """Return a problem for each name in the options that matches no Application.

    Raises `UsageError` if a name that a person typed matches Applications in several namespaces.
    """
    narrow = job.scope.narrow  # the options that filter Applications
    if narrow.typed:
        refuse_ambiguous(narrow.names, seen.everyone)  # raises the `UsageError`
    return unknown_names(
        narrow.names,
        seen.everyone,
        seen.outside,
        strict=False,
        narrowing="--namespace, --project, or --selector",
    )


def _tracked_entries(
    change: ChangeToJudge,
    before: SideSeen,
    after: SideSeen,
) -> TrackedEntries:
    """Return the image-list entries of both sides that are written to the change's repository and
    branch. Each entry is a pair: before and after the change.
    """
    in_base = _entries_written_here(before.seen, change)
    in_change = _entries_written_here(after.seen, change)
    return TrackedEntries(paired(in_base, in_change), [*in_base, *in_change])


def _warn_if_no_entries(
    entries: Sequence[Subscription],
    seen: Seen,
    change: ChangeToJudge,
) -> tuple[Problem, ...]:
    """Return a warning if there are no entries to judge, because the check would then always pass.

    `seen` contains the Applications after the change.
    """
    if entries:
        return ()
    if _all_subscriptions(seen):
        message = f"none of the Applications write to {change.repo} on {change.branch}"
        hint = "check --applications, and the repository URL in the Applications"
    else:
        message = f"no Application with an image-list was found ({seen.considered} considered)"
        hint = "check --applications: without Applications, every change passes"
    return (Problem(Trouble.warning("source", message, hint)),)


def _all_subscriptions(seen: Seen) -> list[Subscription]:
    return [sub for subscribed in seen.subscribed for sub in subscribed.subscriptions]


def _entries_written_here(seen: Seen, change: ChangeToJudge) -> list[Subscription]:
    """Return the subscriptions (image-list entries with their write-back targets) that are written
    to the change's repository and branch.

    Only the two commits are compared, so the running images are removed from the Applications.
    """
    entries = []
    for sub in _all_subscriptions(seen):
        # an Application's branch may be given as "main",
        # "refs/heads/main", or "HEAD", or not at all
        base = (sub.base or change.default).removeprefix("refs/heads/")
        if base == "HEAD":
            base = change.default
        is_on_branch = sub.method == "git" and base == change.branch
        if is_on_branch and change.concerns(sub.repo):
            app_in_git = replace(sub.application, live=())
            entries.append(replace(sub, application=app_in_git))
    return entries


def _affected_entries(
    change: ChangeToJudge,
    entries: TrackedEntries,
    job: Job,
) -> Affected:
    """Read the files on both sides. Return the entries whose version or name the change alters
    (`touched`), and the entries that cannot be judged.
    """
    subs = entries.subscriptions
    places: list[Place] = [*CONFIG]
    # a change to a state file is reported even if no Application uses the file
    places += [Place(path) for path in change.paths if is_state_path(path)]
    places += [Place(state_path(sub)) for sub in subs]
    for sub in subs:
        places += target_places(sub)
    urls = tuple(dict.fromkeys(sub.repo for sub in subs))
    sides = Sides(
        base=_read_side(change, "base", places, urls, subs, job),
        merged=_read_side(change, "merged", places, urls, subs, job),
        paths=frozenset(change.paths),
    )

    results = [touched_entry(pair, sides, job.terms) for pair in entries.pairs]
    results += [left_behind(pair, sides, job.terms) for pair in entries.pairs]
    return Affected(
        sides,
        touched=tuple(result for result in results if isinstance(result, Touched)),
        not_judged=tuple(result for result in results if isinstance(result, NotJudged)),
    )


def _read_side(
    change: ChangeToJudge,
    side: Side,
    places: Collection[Place],
    urls: Collection[str],
    subs: Sequence[Subscription],
    job: Job,
) -> Snapshot:
    """Return the files on one side of the change: those at `places`, plus all others that the
    subscriptions need.

    `urls` are the URLs under which the Applications refer to the repository.
    """
    snapshot = change.snapshot(side, places, urls)
    return with_missing(snapshot, subs, job.terms, change)


def _state_problems(sides: Sides, subs: Iterable[Subscription]) -> tuple[Problem, ...]:
    """Return the problems caused by changes to state files."""
    applications = {state_path(sub): sub.application.key for sub in subs}
    return state_changes(sides.base.files, sides.merged.files, sides.paths, applications)


def _config_problems(sides: Sides) -> tuple[Problem, ...]:
    """Return a warning if the change alters the repository's config, or an error if the config has
    become unreadable.
    """
    if not _changes_config(sides):
        return ()
    place = f"{CONFIG_PATH}:1"
    try:
        config_in(sides.merged.files)
    except TaskError as error:
        return (Problem(error.trouble, place=place),)
    # the change only deletes a file that could be mistaken for the config
    if CONFIG_PATH not in sides.paths:
        return ()
    message = f"the change alters {CONFIG_PATH}; the new rules apply once it is merged"
    hint = "review the new rules first: this check uses the base's rules"
    return (Problem(Trouble.warning("not-permitted", message, hint), place=place),)


def _changes_config(sides: Sides) -> bool:
    """Return whether a change touches the config, or a file that people could mistake for the
    config.
    """
    return any(place.path in sides.paths for place in CONFIG)


def _warnings_about_unjudged(
    affected: Affected, pairs: Sequence[Pair], after: Seen
) -> Iterator[Problem]:
    """Yield a warning, with the reason, for each entry that is not judged, or that is only judged
    by the base's annotations because the change removes the entry.

    `pairs` are the entries before and after the change, and `after` contains the Applications after
    the change.
    """
    for unjudged in affected.not_judged:
        if not unjudged.broken:
            yield _unchecked_warning(unjudged.pair.effective, str(unjudged.error))

    flaws = _errors_in_annotations(after)
    # entries whose version the change alters, but which the change also removes
    judged_by_base_rules = [
        touched.pair.before for touched in affected.touched if not touched.pair.after
    ]
    for pair in pairs:
        if pair.before is None or pair.after is not None:
            continue
        reason = _why_removed(pair.before, after, flaws)
        if pair.before in judged_by_base_rules:
            yield _base_rules_warning(pair.before, reason)
        else:
            yield _unchecked_warning(pair.before, reason)
    yield from _warnings_about_new_entries(pairs, flaws)


_Flaws = Mapping[tuple[str, str], Flaw]  # keyed by Application and entry text; the text may be ""


def _warnings_about_new_entries(pairs: Sequence[Pair], flaws: _Flaws) -> Iterator[Problem]:
    """Yield a warning for each error in the annotations of an Application to which the change may
    add entries. A broken new entry is not in `pairs`.

    Errors in an Application without new entries are left out, because they break entries that were
    already in the base, and those entries have warnings of their own.
    """
    all_apps = {pair.effective.application.key for pair in pairs}
    apps_with_new_entries = {
        pair.effective.application.key for pair in pairs if pair.before is None
    }
    only_in_base = all_apps - apps_with_new_entries
    for app, text in sorted(flaws):
        if app not in only_in_base:
            yield _flaw_problem(app, flaws[app, text])


def _errors_in_annotations(seen: Seen) -> _Flaws:
    """Return the errors in the Applications' annotations."""
    flaws: dict[tuple[str, str], Flaw] = {}
    for subscribed in seen.subscribed:
        for flaw in subscribed.flaws:
            if flaw.severity == "error":
                entry_text = flaw.entry.text if flaw.entry else ""
                flaws[subscribed.application.key, entry_text] = flaw
    return flaws


def _why_removed(sub: Subscription, after: Seen, flaws: _Flaws) -> str:
    """Return the reason why an entry of the base (`sub`) no longer exists after the change. `flaws`
    are the errors in the annotations after the change.
    """
    app = sub.application.key
    apps_in_change = {subscribed.application.key for subscribed in after.subscribed}
    if app not in apps_in_change:
        return "the change removes the Application or its image-list"
    flaw = flaws.get((app, sub.entry.text))
    # an error in another annotation, such as write-back-target, breaks all entries
    if flaw is None:
        flaws_of_app = [flaw for (key, _), flaw in flaws.items() if key == app]
        flaw = flaws_of_app[0] if flaws_of_app else None
    if flaw:
        return f"the change breaks {flaw.key or 'image-list'}: {flaw.message}"
    return "the change removes it from image-list or moves its write-back target"


def _unchecked_warning(sub: Subscription, reason: str) -> Problem:
    """Return the warning for an entry that is not judged."""
    name = sub.entry.alias or sub.entry.image.name
    return _warning_about_gone(sub, f"{name} is not checked: {reason}")


def _base_rules_warning(sub: Subscription, reason: str) -> Problem:
    """Return the warning for an entry whose version the change alters, but which it also removes.
    Such an entry is judged by the base's annotations.
    """
    name = sub.entry.alias or sub.entry.image.name
    return _warning_about_gone(sub, f"{name} is checked against the base's annotations: {reason}")


def _warning_about_gone(sub: Subscription, message: str) -> Problem:
    hint = "merge this only if its versions no longer need to be checked"
    return Problem(Trouble.warning("source", message, hint), application=sub.application.key)


def _flaw_problem(app: str, flaw: Flaw) -> Problem:
    message = f"{flaw.text or flaw.key} is not checked: {flaw.message}"
    trouble = Trouble.warning(flaw.rule, message, flaw.hint)
    return Problem(trouble, application=app, key=flaw.key, value=flaw.value)


def _decide(
    change: ChangeToJudge,
    affected: Affected,
    before: Seen,
    job: Job,
    world: World,
) -> tuple[list[Decision], list[Problem]]:
    """Return a decision for each version that the change writes, and the warnings.

    If an entry's version cannot be judged, its decision is an error. `before` contains the base's
    Applications, including the sources of promotions.
    """
    branch = affected.sides.base.branch
    broken = [
        _broken_decision(unjudged, branch) for unjudged in affected.not_judged if unjudged.broken
    ]
    if not affected.touched:
        return broken, []
    try:
        touched, sides, config = _with_config(change, affected, job)
    except TaskError as error:
        failed = [_failed_decision(entry, error, branch) for entry in affected.touched]
        return [*broken, *failed], []

    written, unreadable = _written_versions(touched, sides, job)
    source_names = sources_named(change.messages)
    with_source, source_problems = with_sources(
        written, source_names, before.subscribed, job, world
    )
    judging = Judging(sides, job.terms, config)
    judgements = [*unreadable, *_judge_versions(change, with_source, judging, world)]

    decisions = _verified_decisions(judgements, sides, job, world)
    placed = [
        _with_file_and_line(decision, sides, judgement.touched, job)
        for decision, judgement in zip(decisions, judgements, strict=True)
    ]
    warnings = [warning for judgement in judgements for warning in judgement.warnings]
    return [*broken, *placed], [*source_problems, *warnings, *cautions(placed)]


def _verified_decisions(
    judgements: Sequence[Judgement], sides: Sides, job: Job, world: World
) -> list[Decision]:
    """Return the decisions after the final checks, such as those of the images' proofs (signatures
    and provenance).

    If another entry writes a refused version anyway, the decision mentions this. Only entries that
    exist on both sides count as writers.
    """
    last_checks = LastChecks(world.registry, world.prove, world.always_prove)
    moves = verified([judgement.move for judgement in judgements], last_checks)
    decisions = [move.decision for move in moves]

    on_both_sides = []
    for decision, judgement in zip(decisions, judgements, strict=True):
        pair = judgement.touched.pair
        if pair.before is not None and pair.after is not None:
            on_both_sides.append(decision)
    return overridden(sides.merged, decisions, on_both_sides, job.terms)


def _broken_decision(unjudged: NotJudged, branch: str) -> Decision:
    """Return the error for an entry that the change makes unreadable."""
    sub = unjudged.pair.effective
    decision = error_decision(sub, sub.entry.image, unjudged.error, branch)
    # The error's subject is the file. The error affects the
    # whole file, so it is reported at line 1.
    return replace(decision, line=1 if unjudged.error.subject else 0)


def _failed_decision(touched: Touched, error: TaskError, branch: str) -> Decision:
    """Return the error for an entry whose version could not be judged."""
    sub = touched.pair.effective
    decision = error_decision(sub, sub.image_at(touched.new), error, branch)
    return replace(decision, current=touched.old)


def _with_file_and_line(decision: Decision, sides: Sides, touched: Touched, job: Job) -> Decision:
    """Return the decision with the file and the line at which the change writes the version."""
    current = replace(decision.current, file=touched.new.file or decision.current.file)
    line = line_of(sides.merged, touched, job.terms)
    return replace(decision, current=current, line=line)


def _with_config(
    change: ChangeToJudge,
    affected: Affected,
    job: Job,
) -> tuple[list[Touched], Sides, RepositoryConfig]:
    """Apply the repository's config from the base to the entries of both sides. Return the entries,
    the sides, and the config.

    If the base's config is unreadable and the change alters it, the change's config is used
    instead.
    """
    sides = affected.sides
    base = sides.base
    try:
        config_in(base.files)
    except TargetError:
        if not _changes_config(sides):
            raise
        base = _with_repaired_config(sides)

    asks_of_entries = [asks_of(touched) for touched in affected.touched]
    all_asks = tuple(chain.from_iterable(asks_of_entries))
    governed, snapshot, job_with_config = govern_asks(all_asks, base, job, change)

    entries = []
    remaining = iter(governed)  # in the same order as `all_asks`
    for touched, asks in zip(affected.touched, asks_of_entries, strict=True):
        governed_asks = list(islice(remaining, len(asks)))
        entries.append(replace(touched, pair=governed_pair(touched.pair, governed_asks)))
    return entries, replace(sides, base=snapshot), job_with_config.wording.config


def _with_repaired_config(sides: Sides) -> Snapshot:
    """Return the base's snapshot (the files of a branch at one commit), but with the config files
    taken from the change.
    """
    config_paths = [place.path for place in CONFIG]
    base = sides.base
    files = {path: file for path, file in base.files.items() if path not in config_paths}
    for path in config_paths:
        repaired = sides.merged.files.get(path)
        if repaired:
            files[path] = repaired
    return replace(base, files=files)


def _written_versions(
    entries: Sequence[Touched],
    sides: Sides,
    job: Job,
) -> tuple[list[Version], list[Judgement]]:
    """Return the versions that the change writes to the touched entries. For each entry whose state
    file is unreadable, return an error judgement instead.
    """
    written: list[Version] = []
    unreadable: list[Judgement] = []
    for touched in entries:
        try:
            written += versions(touched, sides, job.terms.now)
        except TaskError as error:
            decision = _failed_decision(touched, error, sides.base.branch)
            unreadable.append(Judgement(touched, Move(decision)))
    return written, unreadable


def _judge_versions(
    change: ChangeToJudge,
    written: Sequence[Version],
    judging: Judging,
    world: World,
) -> list[Judgement]:
    """Return a judgement of each version, after looking up the facts that the rules need (such as
    an image's creation time).

    `judging` contains the rules and the files, but no facts yet.
    """
    check = judging.terms.check
    branch = judging.sides.base.branch

    @cache
    def exists(question: Question) -> Answer | None:
        """Query the registry, unless queries are turned off."""
        if check == "never":
            return None
        return world.registry((question,)).get(question)

    def earlier(path: str, most: int, marked: Collection[str]) -> Iterable[tuple[str, str]]:
        """Return a file's previous versions on the branch, newest first, each with its commit."""
        texts = change.earlier(branch, path, most, marked)
        return ((commit, text) for commit, text in texts if text is not None)

    # These two functions look up a single fact whenever a rule needs it. All other facts are looked
    # up together, before any version is judged.
    facts = Facts(earlier=earlier, exists=exists)
    refused_rules = frozenset(judging.config.refused)
    judging = replace(judging, facts=facts, refused=refused_rules)
    needed = [fact for version in written for fact in facts_needed_by_version(version, judging)]
    answers = answers_to(as_questions(needed), world)

    with_answers = replace(judging, facts=replace(facts, answers=answers))
    return [judged(version, with_answers) for version in written]

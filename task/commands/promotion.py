"""`promote`: pairs sources with targets, reads the sources' versions from Git, and offers these
versions to the targets.

Each target decides according to its own rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import cache
from glob import escape
from itertools import chain

from task.annotations.application import Narrow, considered, is_glob, parse_selector
from task.commands.branches import read_branches
from task.commands.status import past_builds
from task.deciding.decide import Identity, current_reading, places, reading, state_of
from task.deciding.hiding import refuse_hidden
from task.deciding.job import Ask, DeployedSource, Job, Promoted, Promotion, Terms
from task.deciding.target import all_live, earlier_reading, live_reading, resolve, target_of
from task.deciding.weigh import key_of
from task.errors import SourceError, TaskError, Trouble, UsageError
from task.landing.before_deciding import with_missing
from task.landing.ports import Batch, World
from task.model import (
    Build,
    Decision,
    Image,
    Memory,
    Problem,
    Reading,
    Snapshot,
    Subscribed,
    Subscription,
    TargetKind,
    Tracker,
    Unusable,
    Verdict,
    Written,
)
from task.output.image_status import PastBuild
from task.pipeline.match import Matched, asks_for_images, siblings_of
from task.pipeline.overlooked import Seen, refuse_ambiguous, unknown_names, untracked_problem
from task.policy.builds import alike
from task.templates.commit_message import build_trailers, commit_references
from task.urls import host_and_path

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class SourceVersion:
    """The version and build of one source entry, or the error if they cannot be determined."""

    subscription: Subscription
    image: Image
    build: Build = Build()
    newest: Written = Written()  # the newest build ever written at the source
    pinned: bool = False  # whether the file contains the digest
    # returns the time when the version was written, which it reads from Git, or "" if unknown
    since: Callable[[], str] = field(default=str, compare=False)
    went_back: Callable[[], bool] = field(default=bool, compare=False)  # the same as in `Promoted`
    error: TaskError | None = None

    @property
    def source(self) -> str:
        """The key of the source Application, as shown in reports."""
        return self.subscription.application.key

    @property
    def promoted(self) -> Promoted:
        """This version as the source of a promotion."""
        return Promoted(
            source=self.source,
            newest=self.newest,
            pinned=self.pinned,
            since=self.since,
            went_back=self.went_back,
        )


@dataclass(frozen=True)
class Recipient:
    """A target (an Application that receives versions), with the source entries that may provide a
    version for it. An entry is an element of an image-list.
    """

    target: Subscribed
    # one item for each of the target's subscriptions
    source_entries: tuple[tuple[Subscription, ...], ...]
    entries_for_broken: tuple[
        Subscription, ...
    ] = ()  # source entries for those entries of the target that are broken

    @property
    def all_source_entries(self) -> tuple[Subscription, ...]:
        """All source entries. They may contain duplicates."""
        return (*chain.from_iterable(self.source_entries), *self.entries_for_broken)


def check_promotion(promotion: Promotion) -> None:
    """Raise `UsageError` for an invalid selector, or for a `--to` pattern with an unknown
    placeholder or unbalanced braces. A valid pattern is "production/{name}".
    """
    for flag, selector in (
        ("--from-selector", promotion.source_selector),
        ("--to-selector", promotion.target_selector),
    ):
        try:
            parse_selector(selector)  # parsed only to detect errors
        except UsageError as error:
            # the original message names `--selector`, an option of other commands
            raise UsageError(
                error.message.replace("--selector", flag, 1),
                hint=error.hint,
            ) from None

    # all Applications have the same placeholders
    names = list(_placeholder_values(Tracker("", "")))
    placeholders = ", ".join(f"{{{name}}}" for name in names)
    hint = f"use one of {placeholders}"
    for pattern in promotion.targets:
        for name in _PLACEHOLDER.findall(pattern):
            if name not in names:
                raise UsageError(
                    f"--to: unknown placeholder {{{name}}} in {pattern!r}",
                    hint=hint,
                )
        outside_placeholders = _PLACEHOLDER.sub("", pattern)
        if "{" in outside_placeholders or "}" in outside_placeholders:
            raise UsageError(
                f"--to: unbalanced braces in {pattern!r}",
                hint=hint,
            )


def _placeholder_values(source: Tracker) -> Mapping[str, str]:
    """Return the values of the `--to` placeholders for a source."""
    return {
        "namespace": source.namespace,
        "name": source.name,
        "project": source.project,
    }


def pairs_of(
    subscribed: Sequence[Subscribed],
    promotion: Promotion,
) -> tuple[list[Recipient], list[Problem]]:
    """Return pairs of a target and its source entries, and the problems with the options, such as a
    name that matches no Application.

    `subscribed` are all Applications, and `promotion` contains the options that choose sources and
    targets. An Application is never its own source. Raises `UsageError` if a name matches
    Applications in several namespaces.
    """
    apps = [item.application for item in subscribed]
    selection = Narrow(promotion.sources, selector=promotion.source_selector)
    sources = [item for item in subscribed if considered(item.application, selection)]
    source_apps = [source.application for source in sources]
    refuse_ambiguous(promotion.sources, source_apps)
    # A pattern that matches nothing is only an error if nothing else is promoted.
    problems = list(unknown_names(promotion.sources, apps, strict=not sources))
    if not sources:
        # If all names in --from are known, they must have been excluded by the selector.
        return [], problems or [_no_match_problem("--from-selector", promotion.source_selector)]

    targets_by_source = _targets_by_source(source_apps, apps, promotion)
    target_keys = _keys_of_targets(targets_by_source)
    entries = [sub for source in sources for sub in source.subscriptions]
    entry_index = _SourceEntries(entries, targets_by_source, promotion)
    pairs = [entry_index.pair(item) for item in subscribed if item.application.key in target_keys]

    # A pattern with placeholders, such as `production/{name}`, need not match for every source.
    plain_patterns = [pattern for pattern in promotion.targets if not _PLACEHOLDER.search(pattern)]
    problems += unknown_names(plain_patterns, apps, strict=not pairs)
    if not pairs and not problems:
        problems.append(_no_target_problem(promotion, apps, targets_by_source))
    problems += _images_without_source(promotion.images, entries)
    return pairs, problems


def _images_without_source(
    names: Iterable[str],
    entries: Sequence[Subscription],
) -> Iterator[Problem]:
    """Yield an error for each `--alias` that matches no source entry."""
    hint = "use an alias or image name from the image-list annotation"
    for name in names:
        is_in_a_source = any(_has_a_name_of(sub, (name,)) for sub in entries)
        if not is_in_a_source:
            message = f"--alias {name}: not found in any source"
            yield Problem(Trouble("annotation", message, hint))


def _targets_by_source(
    sources: Sequence[Tracker],
    apps: Sequence[Tracker],
    promotion: Promotion,
) -> Mapping[str, frozenset[str]]:
    """Return the keys of each source's targets, keyed by source. Sources with the same targets
    share one set.

    Raises `UsageError` if a name matches targets in several namespaces.
    """
    apps_by_name: dict[str, list[Tracker]] = {}
    for app in apps:
        apps_by_name.setdefault(app.name, []).append(app)
    selection = Narrow(selector=promotion.target_selector)
    selected = frozenset(app.key for app in apps if considered(app, selection))

    # keyed by the filled-in `--to` patterns, which are identical for many sources
    targets_by_names: dict[tuple[str, ...], frozenset[str]] = {}
    targets_by_source = {}
    for source in sources:
        if not promotion.targets:  # without --to, --to-selector alone chooses the targets
            targets_by_source[source.key] = selected
            continue

        names = tuple(_filled_pattern(pattern, source) for pattern in promotion.targets)
        for name in names:
            # A source is never its own target, so the name cannot refer to the source itself.
            same_name = apps_by_name.get(name, ())
            refuse_ambiguous(
                (name,),
                [app for app in same_name if app.key != source.key and app.key in selected],
            )

        if names not in targets_by_names:
            matching: set[str] = set()
            for pattern in promotion.targets:
                matching |= _matching_apps(pattern, source, apps, apps_by_name)
            targets_by_names[names] = selected.intersection(matching)
        targets_by_source[source.key] = targets_by_names[names]
    return targets_by_source


def _filled_pattern(pattern: str, source: Tracker, quote: Callable[[str], str] = str) -> str:
    """Fill in a `--to` pattern with the values of one source, each passed through `quote`:
    "production/{name}" → "production/web".
    """
    values = _placeholder_values(source)
    return _PLACEHOLDER.sub(lambda placeholder: quote(values[placeholder[1]]), pattern)


def _matching_apps(
    pattern: str,
    source: Tracker,
    apps: Sequence[Tracker],
    apps_by_name: Mapping[str, Sequence[Tracker]],
) -> set[str]:
    """Return the keys of the Applications that match a `--to` pattern after filling in the values
    of a source.

    A filled-in value is never treated as a glob. Names without globs are looked up in
    `apps_by_name`, because there may be thousands of sources, each with its own pattern.
    """
    has_namespace = "/" in pattern
    name_pattern = pattern.rpartition("/")[2]
    candidates = apps
    if not is_glob(name_pattern):
        candidates = apps_by_name.get(_filled_pattern(name_pattern, source), ())

    # the namespace may still be a glob: "prod-*/web"
    filled_glob = re.compile(translate(_filled_pattern(pattern, source, escape)))
    matching = set()
    for app in candidates:
        full_name = app.key if has_namespace else app.name
        if filled_glob.match(full_name):
            matching.add(app.key)
    return matching


def _keys_of_targets(targets_by_source: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the keys of the Applications that are targets of at least one source other than
    themselves.
    """
    # Many sources share the same set of targets, so each set is only added once.
    sources_by_targets: dict[frozenset[str], list[str]] = {}
    for source, targets in targets_by_source.items():
        sources_by_targets.setdefault(targets, []).append(source)
    keys: set[str] = set()
    for targets, sources in sources_by_targets.items():
        if len(sources) > 1:  # each target has at least one source other than itself
            keys |= targets
        else:
            keys |= targets - {sources[0]}
    return keys


class _SourceEntries:
    """The entries of all sources, indexed by image. Entries whose alias is in `--alias` are also
    indexed by alias.
    """

    def __init__(
        self,
        entries: Iterable[Subscription],
        targets_by_source: Mapping[str, frozenset[str]],
        promotion: Promotion,
    ) -> None:
        """`entries` are the entries of all sources. `targets_by_source` contains the keys of each
        source's targets.
        """
        self._targets_by_source = targets_by_source
        self._by_image: dict[str, list[Subscription]] = {}
        self._by_alias: dict[str, list[Subscription]] = {}
        for sub in entries:
            entry = sub.entry
            if _has_a_name_of(sub, promotion.images):
                self._by_image.setdefault(entry.image.identity, []).append(sub)
            if entry.alias in promotion.images:
                self._by_alias.setdefault(entry.alias, []).append(sub)

    def pair(self, target: Subscribed) -> Recipient:
        """Return a target with the source entries for each of its entries and for its broken
        entries (those with an invalid annotation).
        """
        source_entries = tuple(
            tuple(self._entries_for(target, sub)) for sub in target.subscriptions
        )
        broken_images = {flaw.entry.image.identity for flaw in target.flaws if flaw.entry}
        entries_for_broken: list[Subscription] = []
        for image in broken_images:
            entries_for_broken += self._entries_promoted_to(target, self._by_image.get(image, ()))
        return Recipient(
            target, source_entries=source_entries, entries_for_broken=tuple(entries_for_broken)
        )

    def _entries_for(self, target: Subscribed, sub: Subscription) -> list[Subscription]:
        """Return the source entries that may provide a version for `sub`, an entry of the target:
        those with the same image and alias, or else those with the same image, or else those with
        the same alias.
        """
        alias = sub.entry.alias
        same_image = self._entries_promoted_to(
            target, self._by_image.get(sub.entry.image.identity, ())
        )
        if not same_image:
            return self._entries_promoted_to(target, self._by_alias.get(alias, ()))
        same_image_and_alias = [
            source_sub for source_sub in same_image if source_sub.entry.alias == alias
        ]
        return same_image_and_alias or same_image

    def _entries_promoted_to(
        self, target: Subscribed, entries: Iterable[Subscription]
    ) -> list[Subscription]:
        """Return the source entries whose Application is promoted to the target, without the
        target's own entries.
        """
        target_key = target.application.key
        promoted = []
        for sub in entries:
            source_key = sub.application.key
            if source_key != target_key and target_key in self._targets_by_source[source_key]:
                promoted.append(sub)
        return promoted


def _no_target_problem(
    promotion: Promotion,
    apps: Iterable[Tracker],
    targets_by_source: Mapping[str, frozenset[str]],
) -> Problem:
    """Return the error for a promotion that has no targets. The error names the option that matches
    nothing, or that matches only the source itself.
    """
    selector = promotion.target_selector
    patterns = " ".join(promotion.targets)
    if selector:
        selection = Narrow(selector=selector)
        if not any(considered(app, selection) for app in apps):
            return _no_match_problem("--to-selector", selector)

    flag = "--to" if patterns else "--to-selector"
    text = patterns or selector
    has_targets = any(targets_by_source.values())
    if has_targets:  # each target is its only source; otherwise, there would be a pair
        hint = "specify other Applications, for example production/{name}"
        message = (
            f"{flag}: {text!r} matches only the source itself, and an Application cannot be"
            " promoted to itself"
        )
        return Problem(Trouble("source", message, hint))
    if patterns and selector:
        return _no_match_problem("--to and --to-selector", f"{patterns} {selector}")
    return _no_match_problem(flag, text)


def _no_match_problem(flag: str, text: str) -> Problem:
    """Return the error for an option value that matches no Application."""
    hint = "check --applications; Applications without an image-list are ignored"
    return Problem(Trouble("source", f"{flag}: no Application matches {text!r}", hint))


def _has_a_name_of(sub: Subscription, names: Sequence[str]) -> bool:
    """Return whether any of the names is the alias or image of the entry. True if there are no
    names.
    """
    if not names:
        return True
    image = sub.entry.image
    return any(name in (sub.entry.alias, image.name, image.identity) for name in names)


def wanted(pairs: Iterable[Recipient]) -> list[Subscription]:
    """Return the source entries whose versions matter to at least one target, without
    duplicates.
    """
    by_identity = {sub.identity: sub for pair in pairs for sub in pair.all_source_entries}
    return list(by_identity.values())


def asks_to_promote(
    pairs: Sequence[Recipient],
    versions: Sequence[SourceVersion],
    promotion: Promotion,
) -> Matched:
    """Return an ask (a request to decide about one image) for each entry of a target that is
    offered a version, and a decision for each entry whose source must not be promoted.

    `pairs` are the targets with their source entries, and `versions` are the versions of all source
    entries. Raises `UsageError` if the sources of a target have different versions.
    """
    versions_by_entry = {version.subscription.identity: version for version in versions}
    asks: list[Ask] = []
    decisions: list[Decision] = []
    for pair in pairs:
        for sub, source_subs in zip(pair.target.subscriptions, pair.source_entries, strict=True):
            if not source_subs:  # the image is not in any source
                continue
            offered_versions = [
                versions_by_entry[source_sub.identity] for source_sub in source_subs
            ]
            common_version = _common_version(sub, offered_versions)
            ask = _promotion_ask(sub, common_version, pair.target, promotion)
            refusal = _refusal(ask, offered_versions, promotion)
            if refusal:
                decisions.append(refusal)
            else:
                asks.append(ask)
    problems, unusable = _errors_of_broken_entries(pairs, versions_by_entry)
    return Matched(tuple(asks), tuple(decisions), problems, unusable)


def _errors_of_broken_entries(
    pairs: Sequence[Recipient], versions_by_entry: Mapping[Identity, SourceVersion]
) -> tuple[tuple[Problem, ...], tuple[Unusable, ...]]:
    """Return the problems with the targets' annotations, and the errors for those broken entries
    that would have been offered a version.

    `versions_by_entry` contains the sources' versions, keyed by the identity of the source entry.
    """
    problems: list[Problem] = []
    unusable: list[Unusable] = []
    for pair in pairs:
        images = [
            versions_by_entry[source_sub.identity].image for source_sub in pair.all_source_entries
        ]
        # Without subscriptions, there are no asks for the entries that are not broken.
        broken = asks_for_images([replace(pair.target, subscriptions=())], images)
        unusable += broken.unusable
        problems += broken.problems
    return tuple(problems), tuple(unusable)


def _promotion_ask(
    sub: Subscription,
    version: SourceVersion,
    target: Subscribed,
    promotion: Promotion,
) -> Ask:
    """Return the ask (a request to decide about one image) that offers a source's version to an
    entry (`sub`) of the target.
    """
    # The build comes from a state file that other people can write to, so the build's URL must not
    # be contacted or shown. The URL of the expected repository, however, may be.
    repository = ""
    expected_repository = promotion.repository
    is_from_expected = bool(expected_repository) and (
        host_and_path(version.build.repository) == host_and_path(expected_repository)
    )
    if is_from_expected:
        repository = expected_repository
    return Ask(
        sub,
        candidates=(sub.image_at(version.image),),
        siblings=siblings_of(sub, target),
        build=replace(version.build, repository=repository),
        promoted=version.promoted,
    )


def _common_version(sub: Subscription, offered_versions: Sequence[SourceVersion]) -> SourceVersion:
    """Return the version that all sources offer to an entry (`sub`). It is taken from the source
    that knows most about the version: a pinned digest, a digest, or a build.

    Versions that could not be read are ignored, unless there are no others. Raises `UsageError` if
    the sources offer different versions.
    """
    without_errors = [version for version in offered_versions if version.error is None]
    compared_versions = without_errors or offered_versions
    best = max(
        compared_versions,
        key=lambda version: (
            version.pinned,
            bool(version.image.digest),
            version.build != Build(),
        ),
    )
    for offered_version in compared_versions:
        if alike(offered_version.image, best.image):
            continue
        # sorted, so that the message is always the same
        first, second = sorted((offered_version, best), key=lambda version: version.source)
        raise UsageError(
            f"{sub.application.key} would get two versions of {sub.entry.image.name}:"
            f" {first.image.version} from {first.source} and {second.image.version} from"
            f" {second.source}",
            hint=(
                "pass only one of them with --from, or use {namespace}, {name}, or {project} in"
                " --to to tell them apart"
            ),
        )
    return best


def _refusal(
    ask: Ask, offered_versions: Sequence[SourceVersion], promotion: Promotion
) -> Decision | None:
    """Return the decision that refuses an ask (a request to decide about one image) if one of its
    sources must not be promoted, because the source's version is unknown or the source is not
    healthy. Otherwise, return None.
    """
    current = live_reading(ask.subscription)  # a refusal does not require the target's files
    source = ask.promoted.source if ask.promoted else ""
    for source_version in offered_versions:
        verdict = _objection_to_source(source_version, promotion)
        if verdict:
            return Decision(ask.subscription, ask.offered, verdict, current, source=source)
    return None


def _objection_to_source(source_version: SourceVersion, promotion: Promotion) -> Verdict | None:
    """Return the verdict that prevents a source's version from being promoted, or None if the
    version may be promoted.
    """
    error = source_version.error
    if error:
        because = f"{source_version.source}: {error.message}"
        return Verdict("error", error.rule, because, hint=error.hint, exit=error.exit)
    if not promotion.healthy:
        return None
    reason = unhealthy(source_version)
    return Verdict("refuse", "not-healthy", f"{source_version.source} {reason}") if reason else None


def unhealthy(version: SourceVersion) -> str:
    """Return why a source is not Synced and Healthy at the version in Git, or "" if it is. The
    reason is phrased to follow the source's name: "is not synced: its sync status is OutOfSync".
    """
    app = version.subscription.application
    has_status = bool(app.sync or app.health)
    if not has_status:
        return "has no Argo CD status: use --applications cluster or argocd"
    if app.sync != "Synced":
        return f"is not synced: its sync status is {app.sync or 'empty'}"
    if app.health != "Healthy":
        return f"is not healthy: its health status is {app.health or 'empty'}"
    running_images = all_live(version.subscription)
    for image in running_images:
        if _is_wanted_version(version.image, image):
            return ""
    running_versions = dict.fromkeys(image.version for image in running_images)
    shown_versions = ", ".join(running_versions) or "no version of it"
    return f"is not running {version.image.version}: Argo CD shows {shown_versions}"


def _is_wanted_version(wanted: Image, running: Image) -> bool:
    """Return whether the running image is the wanted one. The digests are compared if both images
    have one, and otherwise the tags.
    """
    if wanted.digest and running.digest:
        return wanted.digest == running.digest
    return bool(wanted.tag) and wanted.tag == running.tag


# how many versions of a file to read to find out when the source received its version
_MOST_VERSIONS = 100


def source_versions(subs: Sequence[Subscription], job: Job, world: World) -> list[SourceVersion]:
    """Return the current version of each of these image-list entries. It comes from the cluster for
    entries that are patched live, and otherwise from Git.

    If a version cannot be read, the result for that entry is the error. Several repositories are
    read at the same time.
    """
    live_versions = [_known_version(sub, live_reading(sub)) for sub in subs if sub.method != "git"]
    asks_in_git = tuple(Ask(sub, (sub.entry.image,)) for sub in subs if sub.method == "git")
    # --only-repository restricts where the run writes, but a source may be in any repository.
    job = replace(job, only=())

    def read(batch: Batch) -> list[SourceVersion]:
        """Return the versions of the entries on one branch."""
        places_of_asks = chain.from_iterable(map(places, batch.asks))
        snapshot = batch.repository.snapshot(batch.base, places_of_asks)
        branch_subs = [ask.subscription for ask in batch.asks]
        snapshot = with_missing(snapshot, branch_subs, job.terms, batch.repository)
        return [_version_in_git(snapshot, sub, job.terms, world) for sub in branch_subs]

    def failed(asks: Sequence[Ask], error: TaskError, _base: str) -> list[SourceVersion]:
        """Return an error for each entry on a branch that cannot be read."""
        return [_version_with_error(ask.subscription, error) for ask in asks]

    by_branch = read_branches(Matched(asks_in_git), job, world, read, failed)
    return [*live_versions, *chain.from_iterable(by_branch)]


def _version_in_git(
    snapshot: Snapshot, sub: Subscription, terms: Terms, world: World
) -> SourceVersion:
    """Return an entry's version in a snapshot (a branch's files at one commit), or the error if the
    version cannot be read.
    """
    try:
        kind = resolve(sub, snapshot)
        in_git = reading(snapshot, sub, terms)
        current = current_reading(snapshot, sub, kind, in_git)
        refuse_hidden(snapshot.files, sub, kind, target_of(sub, kind))
        memory = state_of(snapshot, sub).images.get(key_of(sub), Memory())
    except TaskError as error:
        return _version_with_error(sub, error)
    newest = memory.written or Written()
    is_rolled_back = memory.rollback is not None and alike(memory.rollback, current)

    def read_past_builds(most: int) -> tuple[PastBuild, ...]:
        """Read the entry's most recent builds from Git, at most `most` of them."""
        return _past_builds_of_source(snapshot, sub, kind, current, world, most)

    # The history is only read if a target needs it.
    return replace(
        _known_version(sub, current, newest),
        since=cache(lambda: _time_of_current(current, read_past_builds(1))),
        went_back=cache(
            lambda: (
                is_rolled_back
                or _had_before_newest(current, newest, read_past_builds(_MOST_VERSIONS))
            )
        ),
    )


def _past_builds_of_source(
    snapshot: Snapshot,
    sub: Subscription,
    kind: TargetKind,
    current: Reading,
    world: World,
    most: int,
) -> tuple[PastBuild, ...]:
    """Return the most recent builds in the source's file with their commits, newest first, or () if
    the current version is not stored in a file.

    At most `most` builds are returned, and at most `_MOST_VERSIONS` versions of the file are read.
    """
    path = current.file
    if not path:
        return ()
    repository = world.repository(sub.repo, sub)
    try:
        (versions_by_path,) = repository.written(snapshot.branch, [(path,)], _MOST_VERSIONS)
    finally:
        repository.close()

    file_versions = versions_by_path.get(path, ())
    target = target_of(sub, kind)
    # Pairs of a version of the file and the image's version in it. This is a generator for the same
    # reason as in `with_history`.
    values = (
        (version, earlier_reading(snapshot.files, target, path, version.text or ""))
        for version in file_versions
    )
    may_have_older_versions = len(file_versions) == _MOST_VERSIONS
    return past_builds(values, most, cut=may_have_older_versions)


def _time_of_current(current: Reading, builds: Sequence[PastBuild]) -> str:
    """Return the time of the commit that wrote the current version, or "" if that commit is unknown
    because the newest of the file's `builds` is not the current version.
    """
    if not builds:
        return ""
    newest_build = builds[0]
    if (newest_build.tag, newest_build.digest) != (current.tag, current.digest):
        return ""
    return newest_build.at


def _had_before_newest(current: Reading, newest: Written, builds: Sequence[PastBuild]) -> bool:
    """Return whether the file contained the current version before the newest one.

    `newest` is the newest build ever written, and `builds` are the file's builds, newest first. If
    `newest` is not among them, return True, so that a rollback is never promoted by mistake.
    """
    versions = [_version_of(build) for build in builds]
    for number, version in enumerate(versions):
        if alike(version, newest):
            earlier_versions = versions[number + 1 :]  # `versions` starts with the newest version
            return any(alike(earlier, current) for earlier in earlier_versions)
    return True


def _version_of(build: PastBuild) -> Written:
    return Written(build.tag, build.digest)


def _known_version(
    sub: Subscription, current: Reading, newest: Written = Written()
) -> SourceVersion:
    """Return the version of an entry (`sub`), as read from Git or the cluster (`current`). Its
    build is included if it is `newest`, the newest build ever written. If no version was found,
    return an error.
    """
    if not current.tag and not current.digest:
        error = SourceError(
            f"neither Git nor the cluster has a version of {sub.entry.image.name}",
            hint="wait for the source's first build, or pass another source with --from",
        )
        return _version_with_error(sub, error)
    # The state remembers the newest build. After a rollback, Git contains an older build.
    remembered = newest if alike(newest, current) else Written()
    # If the file only contains the tag, the state may still know the digest from the build's event.
    digest = current.digest or remembered.digest or remembered.image_digest
    image = replace(sub.entry.image, tag=current.tag, digest=digest)
    return SourceVersion(
        sub, image=image, build=remembered.build, newest=newest, pinned=bool(current.digest)
    )


def _version_with_error(sub: Subscription, error: TaskError) -> SourceVersion:
    """Return the error for an entry whose version cannot be determined."""
    image_without_version: Image = replace(sub.entry.image, tag="", digest="")
    return SourceVersion(sub, image=image_without_version, error=error)


def match_promotion(seen: Seen, job: Job, world: World) -> tuple[Job, Matched]:
    """Return the asks for `promote`: requests to decide about the sources' versions for their
    targets. Also return the job with the promoted images.

    Raises `UsageError` if the sources of a target have different versions.
    """
    promotion = job.promotion or Promotion()
    pairs, problems = pairs_of(seen.subscribed, promotion)
    versions = source_versions(wanted(pairs), job, world)
    matched = asks_to_promote(pairs, versions, promotion)

    has_errors = any(problem.severity == "error" for problem in problems)
    has_common_image = bool(matched.asks or matched.decisions or matched.unusable)
    if pairs and not has_common_image and not has_errors:  # if there are errors, they are the cause
        hint = "track the same image on both sides, or pass an alias that both have: --alias ALIAS"
        message = "no target tracks an image that its source tracks"
        problems.append(untracked_problem(message, hint, required=job.require_match))

    matched = replace(matched, problems=(*problems, *matched.problems))
    return with_promoted(job, matched, world), matched


def with_promoted(job: Job, matched: Matched, world: World) -> Job:
    """Return the job with the promoted images. If all of them were built from the same source
    commit, that commit is also added to the commit message and to the deployments that the run
    reports.
    """
    candidates = [ask.offered for ask in matched.asks]
    candidates += [judged.candidate for judged in (*matched.decisions, *matched.unusable)]
    # if a source could not be read, its image has no version
    images = tuple(dict.fromkeys(image for image in candidates if image.version))

    commit, repository = _common_source(matched.asks)
    trailers = build_trailers(commit, references=commit_references(commit, repository))
    return replace(
        job,
        images=images,
        wording=replace(job.wording, trailers=(*trailers, *job.wording.trailers)),
        deployed=_deployments_to_show(job, matched, commit, repository, world),
    )


def _common_source(asks: Sequence[Ask]) -> tuple[str, str]:
    """Return (commit, repository) if the builds of all asks have the same source commit, or else
    ("", ""). The repository is "" unless it is the repository given on the command line.
    """
    sources = {(ask.build.commit, ask.build.repository) for ask in asks if ask.build}
    return sources.pop() if len(sources) == 1 else ("", "")


def _deployments_to_show(
    job: Job, matched: Matched, commit: str, repository: str, world: World
) -> DeployedSource | None:
    """Return the source whose forge displays the deployments (`--deployments`), or None if no
    deployments are displayed.

    `commit` and `repository` are the common source of all builds. If there is no common source, log
    a warning, because the forge then has no commit to attach the deployments to.
    """
    if job.deployed is None or not matched.asks:  # not requested, or nothing is deployed
        return None
    if commit and repository:
        return replace(job.deployed, commit=commit)
    built_from = job.deployed.repository
    commits = {ask.build.commit for ask in matched.asks if ask.build and ask.build.repository}
    if len(commits) > 1:
        why = f"the images were built from several commits of {built_from}"
    else:
        why = f"the sources' state does not record which commit of {built_from} was built"
    world.log("warning", f"deployments are not shown: {why}")
    return None

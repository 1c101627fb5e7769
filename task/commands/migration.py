"""`lint --from-image-updater`: compares how Argo CD Image Updater (AIU) and Image Update handle an
Application.

AIU 1.x only touches Applications that an ImageUpdater resource selects. Older versions do not have
that resource and read the annotations instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from task.annotations.image_updater import NAME, ConfigOption, options_of
from task.annotations.keys import (
    DEPRECATED,
    Faulty,
    doubts,
    parse_credential_source,
    write_back_method,
)
from task.annotations.subscription import attempted, subscribe
from task.commands.status import StatusDetails, rows_of
from task.deciding.job import Job
from task.deciding.target import own_reading
from task.deciding.weigh import may_ask
from task.errors import Malformed
from task.image import parse_image_list
from task.landing.ports import World
from task.model import Application, Entry, Problem, Subscribed, Subscription
from task.output.image_status import ImageStatus
from task.pipeline.discover import Discovered
from task.pipeline.match import asks_for_all
from task.policy.strategies import STRATEGIES
from task.text import counted, without_logins
from task.urls import without_login

How = Literal["git", "live", "nothing"]
BY_ANNOTATIONS = "its annotations"


@dataclass(frozen=True)
class Side:
    """How one of the two tools (AIU or Image Update) handles an Application."""

    how: How  # "git" (it commits), "live" (it patches the Application in the cluster), or "nothing"
    files: tuple[str, ...] = ()
    repo: str = ""
    branch: str = ""  # "" means the default branch
    head: str = ""  # the name template for a pull request's head branch
    because: str = ""  # why the tool does not update the Application


@dataclass(frozen=True)
class TrackedImage:
    """An `image-list` entry, and how both tools handle it."""

    alias: str
    name: str
    constraint: str
    strategy_now: str  # the strategy that AIU uses
    strategy: str  # the strategy that Image Update uses; "" if the entry is broken
    version: str = ""  # the current version in Git or the cluster
    version_from: str = ""  # a file, "status", "spec", or "sources"; "" if the version is unknown
    read: bool = True  # whether Git or the live Application could be read


@dataclass(frozen=True)
class MigratedApplication:
    """An Application before and after the migration."""

    application: str
    selected_by: str
    now: Side  # how AIU handles it
    here: Side  # how Image Update handles it
    images: tuple[TrackedImage, ...]
    logins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # problems with the Application's files, such as a hidden value

    @property
    def changes(self) -> bool:
        """Whether Image Update would write to a different place, or might pick a different tag."""
        if (self.now.how, self.now.files) != (self.here.how, self.here.files):
            return True
        return any(image.strategy not in ("", image.strategy_now) for image in self.images)


def migrated_application(
    app: Application,
    subscribed: Subscribed,
    lenient_subs: Sequence[Subscription],
    status: Sequence[ImageStatus],
    problems: Sequence[Problem],
    *,
    updaters: bool,
    in_cluster: bool,
) -> MigratedApplication:
    """Return an Application before and after the migration from Argo CD Image Updater (AIU).

    `subscribed` contains the Application's images as Image Update interprets them. `lenient_subs`
    are its images with mistakes ignored, because AIU ignores most mistakes. `status` and `problems`
    result from reading the images. `updaters` specifies whether there are ImageUpdaters, and
    `in_cluster` whether secrets can be read from the cluster.
    """
    before = _aiu_side(app, lenient_subs, skipped=updaters and not app.reference)
    after = _our_side(subscribed)
    blocker = _first_that_breaks(problems)  # the problem that prevents updates, or None
    if blocker:
        after = Side("nothing", because=_problem_in_words(blocker))
        # If the Application has no status, the type of its source is only known from Git. Neither
        # tool updates a plain directory.
        has_type = any(sub.source.kind for sub in lenient_subs)
        if before.how == "git" and blocker.rule == "target" and not has_type:
            before = after

    subs = subscribed.subscriptions
    status_by_entry = {row.subscription.entry.text: row for row in status}
    images = []
    for entry in parse_image_list(app.annotations.get("image-list", "")):
        if isinstance(entry, Entry):  # otherwise, the entry is a mistake, which `lint` reports
            row = status_by_entry.get(entry.text)
            images.append(_tracked_image(app, entry, subs, row, has_blocker=bool(blocker)))

    logins = _credentials_needed(subs, in_cluster=in_cluster)
    notes = [_problem_in_words(problem) for problem in problems]
    return MigratedApplication(
        application=app.key,
        selected_by=_selected_by(app, updaters=updaters),
        now=before,
        here=after,
        images=tuple(images),
        logins=tuple(dict.fromkeys(logins)),
        notes=tuple(dict.fromkeys(note for note in notes if note != after.because)),
    )


def _selected_by(app: Application, *, updaters: bool) -> str:
    """Return what causes AIU to handle an Application: an ImageUpdater, its annotations, or nothing
    ("no ImageUpdater"). `updaters` specifies whether there are ImageUpdaters.
    """
    if not app.reference:
        return "no ImageUpdater" if updaters else BY_ANNOTATIONS
    if app.from_resource:
        return app.reference
    return f"{app.reference}, which defers to its annotations"


def _first_that_breaks(problems: Sequence[Problem]) -> Problem | None:
    """Return the first problem that prevents updates of the Application, which is an error in its
    write-back target or its source. Return None if there is no such problem.
    """
    for problem in problems:
        if problem.severity == "error" and problem.rule in ("target", "source"):
            return problem
    return None


def _problem_in_words(problem: Problem) -> str:
    return f"{problem.message}; {problem.hint}" if problem.hint else problem.message


def _our_side(subscribed: Subscribed) -> Side:
    """Return how Image Update handles an Application: it commits to Git, patches the live
    Application, or does nothing. The first image represents all of them, because the write-back
    annotations apply to the whole Application.
    """
    subs = subscribed.subscriptions
    if not subs:
        errors = [flaw.message for flaw in subscribed.flaws if flaw.severity == "error"]
        return Side("nothing", because=errors[0] if errors else "it has no image to update")
    sub = subs[0]
    if sub.method != "git":
        return Side("live")
    head = sub.head_template
    if not head and sub.pull_request:
        head = "its own branch"
    return _where_it_commits(subs, head)


def _aiu_side(app: Application, subs: Sequence[Subscription], *, skipped: bool) -> Side:
    """Return how AIU (Argo CD Image Updater) handles an Application: it commits to Git if the
    write-back method is git, and otherwise patches the live Application.

    `skipped` means that AIU ignores the Application, because there are ImageUpdaters but none of
    them selects it.
    """
    if skipped:
        return Side(
            "nothing",
            because="no ImageUpdater selects it, and Image Updater 1.x requires one",
        )
    if not app.annotations.get("image-list"):
        return Side("nothing", because="it has no image-list")

    method = "argocd"  # AIU's default
    annotation = app.annotations.get("write-back-method", "")
    if annotation:
        try:
            method, _ = write_back_method(annotation)
        except Faulty as error:
            return Side("nothing", because=str(error))

    for sub in subs:
        if sub.target == "manifests" or sub.source.kind == "Directory":
            return Side("nothing", because="Image Updater does not support plain directories")
    if method != "git":
        return Side("live")
    if not subs:
        return Side("nothing", because="it has no writable source")
    return _where_it_commits(subs, subs[0].head_template)


def _where_it_commits(subs: Sequence[Subscription], head: str) -> Side:
    """Return how a tool handles an Application if it commits the subscriptions' files to Git."""
    files = tuple(dict.fromkeys(sub.path or "/" for sub in subs))
    return Side(
        "git", files=files, repo=without_login(subs[0].repo), branch=subs[0].base, head=head
    )


def _tracked_image(
    app: Application,
    entry: Entry,
    subs: Sequence[Subscription],
    row: ImageStatus | None,
    *,
    has_blocker: bool,
) -> TrackedImage:
    """Return how both tools handle an image-list entry, and the entry's current version.

    `subs` are the Application's subscriptions, and `row` is the entry's status, if known.
    `has_blocker` means that a problem prevents updates, in which case the running version is
    preferred to the version in the file.
    """
    # empty if the entry is broken
    strategies = [sub.policy.strategy for sub in subs if sub.entry.text == entry.text]
    version = ""
    version_from = ""
    is_read = True
    if row:
        version, version_from = _version_and_source(row, has_blocker=has_blocker)
        is_read = row.read
    return TrackedImage(
        alias=entry.alias,
        name=entry.image.name,
        constraint=entry.constraint,
        strategy_now=_strategy_of_aiu(app.annotations, entry),
        strategy=strategies[0] if strategies else "",
        version=version,
        version_from=version_from,
        read=is_read,
    )


def _version_and_source(row: ImageStatus, *, has_blocker: bool) -> tuple[str, str]:
    """Return the current version, and where it was found: a file, "the live Application", "status",
    "spec", or "sources". Both are "" if the version is unknown.

    If a problem prevents updates (`has_blocker`), the running version is preferred to the version
    in the file.
    """
    in_git = row.in_git
    prefers_live = has_blocker and bool(row.live)
    if in_git.version and not prefers_live:
        return in_git.version, in_git.file or "the live Application"
    if row.live:
        return row.live[0].version, "status"
    if row.kind:
        # no files are passed, so this only reads the spec
        in_spec = own_reading({}, row.subscription, row.kind)
        if in_spec.version:
            return in_spec.version, "spec"
    if row.in_sources.version:
        return row.in_sources.version, "sources"
    return "", ""


def _strategy_of_aiu(annotations: Mapping[str, str], entry: Entry) -> str:
    """Return the update strategy that AIU uses for an entry.

    The strategy comes from the annotation for the entry's alias, if there is one, or else from the
    annotation for all entries. AIU falls back to semver if neither exists or if the strategy is
    unknown.
    """
    value = ""
    if entry.alias:
        value = annotations.get(f"{entry.alias}.update-strategy", "")
    if not value:
        value = annotations.get("update-strategy", "")
    name = value.strip().lower().partition(":")[0]
    strategy = DEPRECATED.get(name, name)
    return strategy if strategy in STRATEGIES else "semver"


def _credentials_needed(subs: Sequence[Subscription], *, in_cluster: bool) -> Iterable[str]:
    """Yield descriptions of the credentials that the pipeline step needs or reads itself: those for
    each subscription's Git repository and registry. `in_cluster` specifies whether secrets can be
    read from the cluster.
    """
    how_read = "which needs credential options or --applications cluster"
    if in_cluster:
        how_read = "which is read from the cluster"
    for sub in subs:
        if sub.method == "git" and sub.credentials:
            yield f"Git: {sub.credentials}, {how_read}"
        elif sub.method == "git":
            yield f"Git: {without_login(sub.repo)}"

        if not sub.policy.pull_secret:
            continue
        try:
            login = parse_credential_source(sub.policy.pull_secret)
        except Malformed:
            continue  # `lint` reports this error
        note = ""
        if not may_ask(sub, "auto"):
            note = " (only for scan: this image's rules do not need the registry)"
        if login.kind == "ext":
            yield f"registry: the script {login.script} in the step's image, and --allow-exec{note}"
        elif login.kind == "env":
            yield f"registry: the variable {login.env}, and --allow-env {login.env}{note}"
        else:
            yield f"registry: {login.kind} {login.namespace}/{login.name}, {how_read}{note}"


HOW_IN_WORDS = {
    "git": "commits",
    "live": "patches the live Application",
    "nothing": "does nothing",
}


@dataclass(frozen=True)
class Migration:
    """What changes if Image Update replaces Argo CD Image Updater."""

    rows: tuple[MigratedApplication, ...]
    config: tuple[ConfigOption, ...]
    config_origin: str  # "" if the ConfigMap was not read


def migration(found: Discovered, job: Job, world: World, *, in_cluster: bool) -> Migration:
    """Return how each of the Applications in `found` changes if Image Update replaces Argo CD Image
    Updater (AIU), together with AIU's ConfigMap as options of Image Update.

    `job` must be a dry run. `in_cluster` specifies whether secrets can be read from the cluster.
    """
    defaults = job.scope.defaults
    all_subscribed = [subscribe(app, defaults) for app in found.applications]
    details = StatusDetails(builds=0)
    statuses, problems = rows_of(asks_for_all(all_subscribed), job, world, details)

    statuses_by_app: dict[str, list[ImageStatus]] = {}
    for image_status in statuses:
        key = image_status.subscription.application.key
        statuses_by_app.setdefault(key, []).append(image_status)
    problems_by_app: dict[str, list[Problem]] = {}
    for problem in problems:
        problems_by_app.setdefault(problem.application, []).append(problem)

    rows = []
    for app, subscribed in zip(found.applications, all_subscribed, strict=True):
        # AIU does not recognize these keys, so it ignores them
        ignored = {key for key, _ in doubts(app.annotations)}
        recognized = {key: text for key, text in app.annotations.items() if key not in ignored}
        _, lenient_subs = attempted(replace(app, annotations=recognized), defaults)
        row = migrated_application(
            app,
            subscribed,
            lenient_subs,
            statuses_by_app.get(app.key, ()),
            problems_by_app.get(app.key, ()),
            updaters=found.updaters > 0,
            in_cluster=in_cluster,
        )
        rows.append(row)

    config = found.updater_config
    if not config:
        return Migration(tuple(rows), (), "")
    return Migration(tuple(rows), options_of(config.item), config.origin)


def lines(migration: Migration) -> Iterator[str]:
    """Yield lines of text that present the Applications, the credentials that the step needs, and
    the options derived from the ConfigMap.
    """
    # A note shared by several Applications is printed only once, below them: an unreachable server
    # affects many Applications.
    apps_by_note = Counter(note for row in migration.rows for note in row.notes)
    for row in migration.rows:
        own_notes = [note for note in row.notes if apps_by_note[note] == 1]
        yield from _row_lines(row, own_notes)
    for note, number_of_apps in apps_by_note.items():
        if number_of_apps > 1:
            yield f"{counted(number_of_apps, 'Application')}: {note}"
    if migration.rows:
        yield from _summary_lines(migration.rows)

    if not migration.config_origin:
        command = f"kubectl get configmap {NAME} --namespace argocd --output yaml"
        yield (
            f"Image Updater's ConfigMap was not read. To include it, run {command}, and pass the"
            " output as another file, or use - for stdin"
        )
        return
    yield f"Image Updater's ConfigMap ({migration.config_origin}) as options:"
    for option in migration.config:
        description = "; ".join(filter(None, (option.option, option.note)))
        yield f"    {option.key:28} {description}"


def _row_lines(row: MigratedApplication, notes: Sequence[str]) -> Iterator[str]:
    """Yield the lines for one Application: how both tools handle it, its images, and its notes."""
    yield row.application
    if row.selected_by != BY_ANNOTATIONS:
        yield f"    selected by     {row.selected_by}"
    if row.now == row.here:
        yield f"    as before       {_side_in_words(row.here)}"
    else:
        yield f"    Image Updater   {_side_in_words(row.now)}"
        yield f"    Image Update    {_side_in_words(row.here)}"
    for image in row.images:
        yield f"    image           {_image_line(image, row)}"
    for note in notes:
        yield f"    note            {note}"


def _summary_lines(rows: Sequence[MigratedApplication]) -> Iterator[str]:
    """Yield the lines for the credentials that the step needs, and for the number of Applications
    that change.
    """
    yield "Credentials that the step needs:"
    logins = Counter(login for row in rows for login in row.logins)
    for login, number in sorted(logins.items()):
        yield f"    {login} ({counted(number, 'Application')})"

    words = {"git": "Git", "live": "live", "nothing": "nothing"}
    unchanged_rows = [row for row in rows if not row.changes]
    parts = [f"{len(unchanged_rows)} as before"]
    changes = Counter((row.now.how, row.here.how) for row in rows if row.now.how != row.here.how)
    for (before, after), number in sorted(changes.items()):
        parts.append(f"{number} from {words[before]} to {words[after]}")
    others = len(rows) - len(unchanged_rows) - changes.total()
    if others:
        parts.append(f"{others} with a different file or strategy")
    yield f"{counted(len(rows), 'Application')}: {', '.join(parts)}"


def _side_in_words(side: Side) -> str:
    """Return a description of what a tool does with an Application: "commits values.yaml to main of
    https://…", or "does nothing: …".
    """
    words = HOW_IN_WORDS[side.how]
    if side.how == "git":
        files = ", ".join(side.files)
        branch = side.branch or "the default branch"
        head = f" through the head branch {side.head}" if side.head else ""
        words += f" {files} to {branch} of {side.repo}{head}"
    return f"{words}: {side.because}" if side.because else words


def _image_line(tracked: TrackedImage, row: MigratedApplication) -> str:
    """Return a line about an entry of an Application: "web=ghcr.io/acme/web  semver ~1.2; 1.2.3,
    from values.yaml".
    """
    name = f"{tracked.alias}={tracked.name}" if tracked.alias else tracked.name
    rule = " ".join(filter(None, (tracked.strategy or "broken", tracked.constraint)))
    line = f"{name}  {rule}"
    if tracked.strategy != tracked.strategy_now:
        line += f" (Image Updater: {tracked.strategy_now})"

    if tracked.version:
        source = tracked.version_from
        if source in ("status", "spec", "sources"):
            source = f"the Application's {source}"
        return f"{line}; {tracked.version}, from {source}"
    if row.here.how == "nothing":
        return line
    if not tracked.read:
        return f"{line}; its version is unknown"
    return f"{line}; no current version found: the first build will set the tag"


def as_json(migration: Migration) -> dict[str, object]:
    """Return the Applications and the ConfigMap as plain data."""
    rows = [_without_unknown(asdict(row) | {"changes": row.changes}) for row in migration.rows]
    options = [_without_unknown(asdict(option)) for option in migration.config]
    return {"applications": rows, "config": options if migration.config_origin else None}


def _without_unknown(data: object) -> object:
    """Return the data without credentials, and with null for unknown values."""
    if isinstance(data, dict):
        return {key: _without_unknown(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_without_unknown(value) for value in data]
    if isinstance(data, str):
        return without_logins(data) or None
    return data

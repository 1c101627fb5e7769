"""`lint --from-image-updater`: compares how Argo CD Image Updater (AIU) and Image Update
handle an Application.

AIU 1.x only touches Applications that an ImageUpdater selects. Older versions do not have that
resource, and read the annotations.
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
    """How one of the two tools handles an Application."""

    how: How
    files: tuple[str, ...] = ()
    repo: str = ""
    branch: str = ""  # "" means the default branch
    head: str = ""  # the template for a pull request's head branch
    because: str = ""  # why the tool does not update the Application


@dataclass(frozen=True)
class TrackedImage:
    """An `image-list` entry, and how both tools handle it."""

    alias: str
    name: str
    constraint: str
    strategy_now: str
    strategy: str  # "" if the entry is broken
    version: str = ""  # the current version in Git or the cluster
    version_from: str = ""  # a file, "status", "spec", or "sources"; "" if the version is unknown
    read: bool = True  # whether Git or the live Application could be read


@dataclass(frozen=True)
class MigratedApplication:
    """An Application before and after the migration."""

    application: str
    selected_by: str
    now: Side
    here: Side
    images: tuple[TrackedImage, ...]
    logins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # problems with the Application's files, such as a hidden value

    @property
    def changes(self) -> bool:
        """Whether Image Update would write to a different place, or might pick a different tag."""
        same = (self.now.how, self.now.files) == (self.here.how, self.here.files)
        return not same or any(
            tracked_image.strategy not in ("", tracked_image.strategy_now)
            for tracked_image in self.images
        )


def row_of(
    app: Application,
    subscribed: Subscribed,
    meant: Sequence[Subscription],
    status: Sequence[ImageStatus],
    problems: Sequence[Problem],
    *,
    updaters: bool,
    in_cluster: bool,
) -> MigratedApplication:
    """Return an Application before and after the migration.

    `status` has the status of the Application's images. `meant` has its subscriptions with mistakes
    ignored, because AIU ignores most mistakes. `updaters` is whether there are ImageUpdaters.
    `in_cluster` is whether secrets can be read from the cluster.
    """
    listed = parse_image_list(app.annotations.get("image-list", ""))
    entries = [entry for entry in listed if isinstance(entry, Entry)]
    read = {row.subscription.entry.text: row for row in status}
    before = _now(app, meant, skipped=updaters and not app.reference)
    here = _our_side(subscribed)
    broken = _first_that_breaks(problems)
    if broken:
        here = Side("nothing", because=_problem_in_words(broken))
        # If the Application has no status, only Git shows the source's type. Neither tool updates a
        # plain directory.
        typed = any(sub.source.kind for sub in meant)
        if before.how == "git" and broken.rule == "target" and not typed:
            before = here
    return MigratedApplication(
        app.key,
        _selected_by(app, updaters=updaters),
        before,
        here,
        tuple(
            _image(
                app,
                entry,
                subscribed.subscriptions,
                read.get(entry.text),
                hidden=bool(broken),
            )
            for entry in entries
        ),
        tuple(dict.fromkeys(_logins(subscribed.subscriptions, in_cluster=in_cluster))),
        tuple(
            dict.fromkeys(told for told in map(_problem_in_words, problems) if told != here.because)
        ),
    )


def _selected_by(app: Application, *, updaters: bool) -> str:
    """Return the reason that AIU handles an Application."""
    if not app.reference:
        return "no ImageUpdater" if updaters else BY_ANNOTATIONS
    if app.from_resource:
        return app.reference
    return f"{app.reference}, which defers to its annotations"


def _first_that_breaks(problems: Sequence[Problem]) -> Problem | None:
    """Return the first problem that prevents updates of the Application."""
    for problem in problems:
        if problem.severity == "error" and problem.rule in ("target", "source"):
            return problem
    return None


def _problem_in_words(problem: Problem) -> str:
    return f"{problem.message}; {problem.hint}" if problem.hint else problem.message


def _our_side(subscribed: Subscribed) -> Side:
    if not subscribed.subscriptions:
        flaw = next(
            (flaw.message for flaw in subscribed.flaws if flaw.severity == "error"),
            "it has no image to update",
        )
        return Side("nothing", because=flaw)
    first = subscribed.subscriptions[0]
    if first.method != "git":
        return Side("live")
    return _where_it_commits(
        subscribed.subscriptions,
        first.head_template or ("its own branch" if first.pull_request else ""),
    )


def _now(app: Application, subs: Sequence[Subscription], *, skipped: bool) -> Side:
    """Return how AIU handles an Application. Unless the method is git, AIU patches the live
    Application.
    """
    if skipped:
        return Side(
            "nothing",
            because="no ImageUpdater selects it, and Image Updater 1.x requires one",
        )
    if not app.annotations.get("image-list"):
        return Side("nothing", because="it has no image-list")
    text = app.annotations.get("write-back-method", "")
    try:
        method = write_back_method(text)[0] if text else "argocd"
    except Faulty as error:
        return Side("nothing", because=str(error))
    if any(sub.target == "manifests" or sub.source.kind == "Directory" for sub in subs):
        return Side("nothing", because="Image Updater does not support plain directories")
    if method != "git":
        return Side("live")
    if not subs:
        return Side("nothing", because="it has no writable source")
    return _where_it_commits(subs, subs[0].head_template)


def _where_it_commits(subs: Sequence[Subscription], head: str) -> Side:
    files = tuple(dict.fromkeys(sub.path or "/" for sub in subs))
    return Side("git", files, without_login(subs[0].repo), subs[0].base, head)


def _image(
    app: Application,
    entry: Entry,
    subs: Sequence[Subscription],
    row: ImageStatus | None,
    *,
    hidden: bool,
) -> TrackedImage:
    """Return how both tools handle an entry. A file that is hidden does not show the running
    version.
    """
    strategy = next((sub.policy.strategy for sub in subs if sub.entry.text == entry.text), "")
    version, source = _version_and_source(row, hidden=hidden) if row else ("", "")
    strategy_now = _strategy_of_aiu(app.annotations, entry)
    is_read = row is None or row.read
    return TrackedImage(
        entry.alias,
        entry.image.name,
        entry.constraint,
        strategy_now,
        strategy,
        version,
        source,
        is_read,
    )


def _version_and_source(row: ImageStatus, *, hidden: bool) -> tuple[str, str]:
    """Return the current version, and the place where it was found."""
    if row.in_git.version and not (hidden and row.live):
        return row.in_git.version, row.in_git.file or "the live Application"
    if row.live:
        return row.live[0].version, "status"
    if row.kind and (version := own_reading({}, row.subscription, row.kind).version):
        return version, "spec"
    if row.in_sources.version:
        return row.in_sources.version, "sources"
    return "", ""


def _strategy_of_aiu(annotations: Mapping[str, str], entry: Entry) -> str:
    """Return the strategy that AIU uses. AIU reads an image's keys only under an alias, and falls
    back to semver.
    """
    own = annotations.get(f"{entry.alias}.update-strategy", "") if entry.alias else ""
    given = own or annotations.get("update-strategy", "")
    word = given.strip().lower().partition(":")[0]
    strategy = DEPRECATED.get(word, word)
    return strategy if strategy in STRATEGIES else "semver"


def _logins(subs: Sequence[Subscription], *, in_cluster: bool) -> Iterable[str]:
    """Yield the credentials that the step needs or reads itself."""
    read = (
        "which is read from the cluster"
        if in_cluster
        else "which needs credential options or --applications cluster"
    )
    for sub in subs:
        if sub.method == "git":
            yield (
                f"Git: {sub.credentials}, {read}"
                if sub.credentials
                else f"Git: {without_login(sub.repo)}"
            )
        if not sub.policy.pull_secret:
            continue
        try:
            login = parse_credential_source(sub.policy.pull_secret)
        except Malformed:
            continue  # `lint` reports this error
        asked = (
            ""
            if may_ask(sub, "auto")
            else " (only for scan: this image's rules do not need the registry)"
        )
        if login.kind == "ext":
            yield (
                f"registry: the script {login.script} in the step's image, and --allow-exec{asked}"
            )
        elif login.kind == "env":
            yield f"registry: the variable {login.env}, and --allow-env {login.env}{asked}"
        else:
            yield f"registry: {login.kind} {login.namespace}/{login.name}, {read}{asked}"


HOWS = {
    "git": "commits",
    "live": "patches the live Application",
    "nothing": "does nothing",
}


@dataclass(frozen=True)
class Migration:
    """The changes that happen if Image Update replaces Argo CD Image Updater."""

    rows: tuple[MigratedApplication, ...]
    config: tuple[ConfigOption, ...]
    config_origin: str  # "" if the ConfigMap was not read


def migration(found: Discovered, job: Job, world: World, *, in_cluster: bool) -> Migration:
    """Return a row for each Application, with the current versions in Git. `job` must be a dry
    run.
    """
    subscribed = [(app, subscribe(app, job.scope.defaults)) for app in found.applications]
    read, problems = rows_of(
        asks_for_all([subscribed_app for _, subscribed_app in subscribed]),
        job,
        world,
        StatusDetails(builds=0),
    )
    status: dict[str, list[ImageStatus]] = {}
    for row in read:
        status.setdefault(row.subscription.application.key, []).append(row)
    unread: dict[str, list[Problem]] = {}
    for problem in problems:
        unread.setdefault(problem.application, []).append(problem)
    rows = []
    for app, subscribed_app in subscribed:
        # AIU does not recognize these keys and ignores them
        doubtful = {key for key, _ in doubts(app.annotations)}
        understood = replace(
            app,
            annotations={key: text for key, text in app.annotations.items() if key not in doubtful},
        )
        meant = attempted(understood, job.scope.defaults)[1]
        said = status.get(app.key, ())
        wrong = unread.get(app.key, ())
        rows.append(
            row_of(
                app,
                subscribed_app,
                meant,
                said,
                wrong,
                updaters=found.updaters > 0,
                in_cluster=in_cluster,
            )
        )
    config = found.updater_config
    return Migration(
        tuple(rows),
        options_of(config.item) if config else (),
        config.origin if config else "",
    )


def lines(migration: Migration) -> Iterator[str]:
    """Yield the rows and the ConfigMap as text."""
    # a server that is down affects many Applications
    shared = Counter(note for row in migration.rows for note in row.notes)
    for row in migration.rows:
        yield from _row_lines(row, [note for note in row.notes if shared[note] == 1])
    for note, number in shared.items():
        if number > 1:
            yield f"{counted(number, 'Application')}: {note}"
    if migration.rows:
        yield from _summary(migration.rows)
    if not migration.config_origin:
        command = f"kubectl get configmap {NAME} --namespace argocd --output yaml"
        yield (
            f"Image Updater's ConfigMap was not read. To include it, run {command}, and pass the"
            " output as another file, or use - for stdin"
        )
        return
    yield f"Image Updater's ConfigMap ({migration.config_origin}) as options:"
    for option in migration.config:
        yield f"    {option.key:28} {'; '.join(filter(None, (option.option, option.note)))}"


def _row_lines(row: MigratedApplication, notes: Sequence[str]) -> Iterator[str]:
    """Yield the changes for one Application."""
    yield row.application
    if row.selected_by != BY_ANNOTATIONS:
        yield f"    selected by     {row.selected_by}"
    if row.now == row.here:
        yield f"    as before       {_side(row.here)}"
    else:
        yield f"    Image Updater   {_side(row.now)}"
        yield f"    Image Update    {_side(row.here)}"
    for image in row.images:
        yield f"    image           {_image_line(image, row)}"
    for note in notes:
        yield f"    note            {note}"


def _summary(rows: Sequence[MigratedApplication]) -> Iterator[str]:
    """Yield the credentials that the step needs, and how many Applications change."""
    yield "Credentials that the step needs:"
    logins = Counter(login for row in rows for login in row.logins)
    for login, number in sorted(logins.items()):
        yield f"    {login} ({counted(number, 'Application')})"
    changed = [row for row in rows if row.now.how != row.here.how]
    kinds = Counter((row.now.how, row.here.how) for row in changed)
    words = {
        "git": "Git",
        "live": "live",
        "nothing": "nothing",
    }
    moved = [
        f"{number} from {words[before]} to {words[after]}"
        for (before, after), number in sorted(kinds.items())
    ]
    same = sum(not row.changes for row in rows)
    yield f"{counted(len(rows), 'Application')}: {', '.join((f'{same} as before', *moved))}"


def _side(side: Side) -> str:
    words = HOWS[side.how]
    if side.how == "git":
        head = f" through the head branch {side.head}" if side.head else ""
        words += (
            f" {', '.join(side.files)} to {side.branch or 'the default branch'} of"
            f" {side.repo}{head}"
        )
    return f"{words}: {side.because}" if side.because else words


def _image_line(tracked: TrackedImage, row: MigratedApplication) -> str:
    name = f"{tracked.alias}={tracked.name}" if tracked.alias else tracked.name
    rule = " ".join(filter(None, (tracked.strategy or "broken", tracked.constraint)))
    before = (
        f" (Image Updater: {tracked.strategy_now})"
        if tracked.strategy != tracked.strategy_now
        else ""
    )
    source = (
        f"the Application's {tracked.version_from}"
        if tracked.version_from in ("status", "spec", "sources")
        else tracked.version_from
    )
    if tracked.version:
        return f"{name}  {rule}{before}; {tracked.version}, from {source}"
    if row.here.how == "nothing":
        return f"{name}  {rule}{before}"
    unknown = (
        "no current version found: the first build will set the tag"
        if tracked.read
        else "its version is unknown"
    )
    return f"{name}  {rule}{before}; {unknown}"


def as_json(moved: Migration) -> dict[str, object]:
    """Return the rows and the ConfigMap as plain data."""
    return {
        "applications": [
            _without_unknown(asdict(row) | {"changes": row.changes}) for row in moved.rows
        ],
        "config": [_without_unknown(asdict(option)) for option in moved.config]
        if moved.config_origin
        else None,
    }


def _without_unknown(data: object) -> object:
    """Return the data without credentials, and with null for unknown values."""
    if isinstance(data, dict):
        return {key: _without_unknown(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_without_unknown(value) for value in data]
    return (without_logins(data) or None) if isinstance(data, str) else data

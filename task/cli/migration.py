"""The part of `lint --from-image-updater` that reads Git, and the forms in which it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from task.annotations.image_updater import NAME, ConfigOption, options_of
from task.annotations.keys import doubts
from task.annotations.subscription import attempted, subscribe
from task.cli.update import job_of
from task.commands.migration import BY_ANNOTATIONS, Comparison, Side, TrackedImage, row_of
from task.commands.status import Look, rows_of
from task.landing.ports import World
from task.model import Application, ImageStatus, Problem
from task.pipeline.discover import Discovered
from task.pipeline.match import asks_for_all
from task.settings import Settings
from task.text import counted, without_logins
from task.wiring.argo import sources

HOWS = {"git": "commits", "live": "patches the live Application", "nothing": "does nothing"}


@dataclass(frozen=True)
class Migration:
    """What changes if Image Update takes over from Argo CD Image Updater."""

    rows: tuple[Comparison, ...]
    config: tuple[ConfigOption, ...]
    config_origin: str  # "" if the ConfigMap was not read


def migration(found: Discovered, settings: Settings, environ: Mapping[str, str], world: World) -> Migration:
    """Return a row for each Application, with what Git says now."""
    job = replace(job_of(settings, (), environ), dry=True)
    subscribed = [(app, subscribe(app, job.scope.defaults)) for app in found.applications]
    read, problems = rows_of(asks_for_all([one for _, one in subscribed]), job, world, Look(builds=0))
    status: dict[str, list[ImageStatus]] = {}
    for row in read:
        status.setdefault(row.subscription.application.key, []).append(row)
    unread: dict[str, list[Problem]] = {}
    for problem in problems:
        unread.setdefault(problem.application, []).append(problem)
    in_cluster = "cluster" in sources(settings, environ)
    rows = [
        row_of(
            app,
            one,
            attempted(_without_doubts(app), job.scope.defaults)[1],
            status.get(app.key, ()),
            unread.get(app.key, ()),
            updaters=found.updaters > 0,
            in_cluster=in_cluster,
        )
        for app, one in subscribed
    ]
    config = found.updater_config
    return Migration(tuple(rows), options_of(config.item) if config else (), config.origin if config else "")


def _without_doubts(app: Application) -> Application:
    """Return the Application without the keys that Image Updater does not know, and passes over."""
    doubtful = {key for key, _ in doubts(app.annotations)}
    return replace(app, annotations={key: one for key, one in app.annotations.items() if key not in doubtful})


def lines(one: Migration) -> Iterator[str]:
    """Yield the rows and the ConfigMap for people."""
    shared = Counter(note for row in one.rows for note in row.notes)  # a dead server concerns many
    for row in one.rows:
        yield row.application
        if row.selected_by != BY_ANNOTATIONS:
            yield f"    selected by     {row.selected_by}"
        if row.now == row.here:
            yield f"    as before       {_side(row.here)}"
        else:
            yield f"    Image Updater   {_side(row.now)}"
            yield f"    Image Update    {_side(row.here)}"
        yield from (f"    image           {_image(image, row)}" for image in row.images)
        yield from (f"    note            {note}" for note in row.notes if shared[note] == 1)
    yield from (f"{counted(number, 'Application')}: {note}" for note, number in shared.items() if number > 1)
    if one.rows:
        yield "Logins that the step needs:"
        logins = Counter(login for row in one.rows for login in row.logins)
        yield from (f"    {login} ({counted(number, 'Application')})" for login, number in sorted(logins.items()))
        kinds = Counter((row.now.how, row.here.how) for row in one.rows if row.now.how != row.here.how)
        words = {"git": "Git", "live": "live", "nothing": "nothing"}
        moved = [f"{number} from {words[now]} to {words[here]}" for (now, here), number in sorted(kinds.items())]
        same = sum(not row.changes for row in one.rows)
        yield f"{counted(len(one.rows), 'Application')}: {', '.join((f'{same} as before', *moved))}"
    if not one.config_origin:
        command = f"kubectl get configmap {NAME} --namespace argocd --output yaml"
        yield f"Image Updater's ConfigMap was not read. {command} prints it: give it as one more file, or - for stdin"
        return
    yield f"Image Updater's ConfigMap ({one.config_origin}) as options:"
    for option in one.config:
        yield f"    {option.key:28} {'; '.join(filter(None, (option.option, option.note)))}"


def _side(side: Side) -> str:
    told = HOWS[side.how]
    if side.how == "git":
        head = f", by the head branch {side.head}" if side.head else ""
        told += f" {', '.join(side.files)} to {side.branch or 'the default branch'} of {side.repo}{head}"
    return f"{told}: {side.because}" if side.because else told


def _image(one: TrackedImage, row: Comparison) -> str:
    name = f"{one.alias}={one.name}" if one.alias else one.name
    rule = " ".join(filter(None, (one.strategy or "broken", one.constraint)))
    before = f" (Image Updater: {one.strategy_now})" if one.strategy != one.strategy_now else ""
    source = (
        f"the {one.version_from} of the Application" if one.version_from in ("status", "spec") else one.version_from
    )
    if one.version:
        return f"{name}  {rule}{before}; {one.version}, from {source}"
    if row.here.how == "nothing":
        return f"{name}  {rule}{before}"
    unknown = "nothing says its version: the first build is the first tag" if one.read else "its version is not known"
    return f"{name}  {rule}{before}; {unknown}"


def as_json(one: Migration) -> dict[str, object]:
    """Return the rows and the ConfigMap as plain data."""
    return {
        "applications": [_json(asdict(row) | {"changes": row.changes}) for row in one.rows],
        "config": [_json(asdict(option)) for option in one.config] if one.config_origin else None,
    }


def _json(data: object) -> object:
    """Return the data without logins, and with null for what is not known."""
    if isinstance(data, dict):
        return {key: _json(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_json(value) for value in data]
    return (without_logins(data) or None) if isinstance(data, str) else data

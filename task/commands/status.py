"""`status`: shows each image in Git, running, in the registry, held, proposed, and written before. It only reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from task import shutdown
from task.commands.image_status import (
    image_status,
    paths_of,
    unread,
    versions_to_read,
    with_history,
    with_requests,
    without_git,
)
from task.commands.scan import chosen
from task.deciding.decide import failed_asks, holds_of_others, places
from task.deciding.job import Ask, Job
from task.deciding.weigh import question_about
from task.errors import TargetError, TaskError
from task.landing.before_deciding import CONFIG, Governed, gatherer, govern
from task.landing.contention import Contention
from task.landing.live import patch, said_live
from task.landing.ports import Batch, World
from task.landing.waiting import waiting_on
from task.model import ImageStatus, Judged, OpenRequest, Problem, Snapshot, Status, Verdict
from task.output.report_json import exit_code
from task.pipeline.deliver import branches_of_requests, prepare
from task.pipeline.discover import discover
from task.pipeline.match import (
    AT_ONCE,
    Matched,
    asks_for_all,
    asks_for_images,
    by_branch,
    by_login,
    by_repository,
    left_out,
)
from task.policy.strategies import needs
from task.threads import in_threads

_PAGE = 500  # images whose history is in memory at a time


@dataclass(frozen=True)
class Look:
    """What to read beyond Git and what runs."""

    newest: bool = False  # the newest tags in the registries
    builds: int = 5  # how many of the last builds
    requests: bool = False  # open pull requests, even if no Application asks for them


@dataclass(frozen=True)
class _Rows:
    """What is known about some images, and the problems."""

    rows: tuple[ImageStatus, ...] = ()
    problems: tuple[Problem, ...] = ()


def status(job: Job, world: World, look: Look) -> Status:
    """Return the status of the images of these Applications, or only of `job.images`. `job` must be dry."""
    seen, problems = discover(job, world)
    matched = asks_for_images(seen.subscribed, job.images) if job.images else asks_for_all(seen.subscribed)
    problems += matched.problems + tuple(_problem(one) for one in matched.unusable)
    problems += left_out(matched, job)
    rows, unread_ones = rows_of(matched, job, world, look)
    problems += unread_ones
    if look.newest:
        rows, more = _with_newest(rows, job, world)
        problems += more
    rows = [_with_pages(row, world) for row in rows]
    rows.sort(key=lambda row: (row.subscription.application.key, row.subscription.entry.alias, row.subscription.path))
    problems = tuple(dict.fromkeys(problems))
    code = shutdown.code() or int(exit_code((), problems))
    return Status(tuple(rows), problems, seen.considered, code, job.terms.now)


def rows_of(matched: Matched, job: Job, world: World, look: Look) -> tuple[list[ImageStatus], tuple[Problem, ...]]:
    """Return what Git and the live Applications say about what was matched, and the problems with reading it."""
    groups = by_login(by_repository(matched, job), world)
    found = in_threads(lambda asks: _of_repository(asks, job, world, look), groups, AT_ONCE)
    if not job.only:
        found += [_of_live(ask, job, world) for ask in matched.live]
    return [row for one in found for row in one.rows], tuple(chain.from_iterable(one.problems for one in found))


def _with_pages(row: ImageStatus, world: World) -> ImageStatus:
    repo = row.subscription.repo
    return replace(row, builds=tuple(replace(one, url=world.commit_page(repo, one.commit)) for one in row.builds))


def _problem(decision: Judged) -> Problem:
    key, verdict = decision.subscription.application.key, decision.judged
    return Problem(application=key, rule=verdict.rule, message=verdict.because, hint=verdict.hint, exit=verdict.exit)


def _of_repository(asks: Sequence[Ask], job: Job, world: World, look: Look) -> _Rows:
    try:
        repository = world.repository(asks[0].subscription.repo, asks[0].subscription)
    except TaskError as error:
        return _unread(asks, error)
    try:
        rows: tuple[ImageStatus, ...] = ()
        problems: tuple[Problem, ...] = ()
        for base, members in by_branch(repository, asks).items():
            try:
                found = _of_branch(Batch(repository, base, tuple(members)), job, world, look)
            except TaskError as error:  # a branch that is missing hides no other
                found = _unread(members, error)
            rows, problems = rows + found.rows, problems + found.problems
        return _Rows(rows, problems)
    except TaskError as error:
        return _unread(asks, error)
    finally:
        repository.close()


def _unread(asks: Sequence[Ask], error: TaskError) -> _Rows:
    """Return what is known without Git. The error is reported once for each Application."""
    subs = [ask.subscription for ask in asks]
    return _Rows(tuple(map(without_git, subs)), tuple(dict.fromkeys(unread(sub, error) for sub in subs)))


def _of_branch(batch: Batch, job: Job, world: World, look: Look) -> _Rows:
    pushed = [ask for ask in batch.asks if ask.subscription.head_template and not ask.subscription.pull_request]
    expected = branches_of_requests(batch if job.images else replace(batch, asks=tuple(pushed)))
    wanted = (place for ask in batch.asks for place in places(ask))
    snapshot = batch.repository.snapshot(batch.base, chain(CONFIG, wanted), expected, CONFIG)
    rows: list[ImageStatus] = []
    problems: list[Problem] = []
    governed, broken = Governed(batch.asks, snapshot, job.wording), None
    try:
        governed = govern(batch.asks, snapshot, batch.repository, job)
    except TargetError as error:  # of the repository's config: what Git says is shown all the same
        broken = error
        problems += dict.fromkeys(unread(ask.subscription, error) for ask in batch.asks)
    batch, snapshot = replace(batch, asks=governed.asks), governed.snapshot
    elsewhere = holds_of_others(snapshot, (ask.subscription for ask in batch.asks), job.terms)
    for ask in batch.asks:
        row, wrong = image_status(snapshot, ask.subscription, job.terms)
        if not row.hold or row.scope == "freeze":
            other = elsewhere.get(ask.subscription.identity)
            row = replace(row, hold=other, scope="application") if other else row
        rows.append(row)
        problems += wrong

    rows = _with_heads(rows, replace(batch, asks=tuple(pushed)), snapshot, expected, job)

    if job.images:
        contention = Contention(f"moving {batch.base}", job.deadline, world)
        gather = gatherer(batch, job, world)
        if broken:
            decisions = failed_asks(batch.asks, broken, job.terms).decisions
        else:
            plan = prepare(batch, governed, gather, contention, job, world)
            decisions = (*plan.settled, *(one for prepared in plan.commits for one in prepared.decisions))
        verdicts = {one.subscription.identity: one.judged for one in decisions}
        rows = [replace(row, would=verdicts.get(row.subscription.identity)) for row in rows]

    if look.requests or any(ask.subscription.pull_request for ask in batch.asks):
        rows, unseen = with_requests(rows, batch, world)
        problems += unseen

    if look.builds and rows:
        most = versions_to_read(look.builds)
        try:
            pages = [rows[start : start + _PAGE] for start in range(0, len(rows), _PAGE)]
            paths = [tuple(path for row in page for path in paths_of(row)) for page in pages]
            written = batch.repository.written(snapshot.branch, paths, most)
            rows = [
                with_history(row, snapshot, versions, look.builds, job.terms)
                for page, versions in zip(pages, written, strict=True)
                for row in page
            ]
        except TaskError as error:
            because = f"the history of {snapshot.branch} is not known: {error.message}"
            problems.append(Problem(rule=error.rule, message=because, hint=error.hint, exit=int(error.exit)))
    return _Rows(tuple(rows), tuple(problems))


def _with_heads(
    rows: Sequence[ImageStatus], batch: Batch, snapshot: Snapshot, names: Collection[str], job: Job
) -> list[ImageStatus]:
    """Add what waits on a head branch that is pushed without a request."""
    waits: dict[tuple[str, ...], OpenRequest] = {}
    for name in names:
        asks = [
            ask for ask in batch.asks if ask.subscription.head_template == name and not ask.subscription.pull_request
        ]
        wanted = tuple(place for ask in asks for place in places(ask))
        if wanted and (head := batch.repository.head_snapshot(name, wanted)):
            there, _unread = waiting_on(head, snapshot, (ask.subscription for ask in asks), job.terms)
            waits |= {one.subscription.identity: OpenRequest("", "", name, one.image.version) for one in there}
    return [replace(row, request=waits.get(row.subscription.identity)) for row in rows]


def _of_live(ask: Ask, job: Job, world: World) -> _Rows:
    """Return the status of an Application that is patched live, about which Git says nothing."""
    row = replace(without_git(ask.subscription), kind="live")
    would: Verdict | None = None
    if job.images:
        would = patch([ask], job, world).decisions[0].judged
    live = world.live()
    if live is None:
        because = "what the live Application says is not known: these Applications come from files"
        hint = "use --applications cluster or argocd"
        key = ask.subscription.application.key
        return _Rows(
            (replace(row, would=would),),
            (Problem(application=key, rule="source", message=because, hint=hint, severity="warning"),),
        )
    try:
        _manifest, _version, said = said_live(ask.subscription, live)
    except TaskError as error:
        return _Rows((replace(row, would=would),), (unread(ask.subscription, error),))
    return _Rows((replace(row, read=True, in_git=said, would=would),))


def _with_newest(rows: Sequence[ImageStatus], job: Job, world: World) -> tuple[list[ImageStatus], tuple[Problem, ...]]:
    """Add the newest tag that the rules admit to each row, and return why there is none."""
    asks = tuple(Ask(row.subscription, (replace(row.subscription.entry.image, digest=""),)) for row in rows)
    found, young = chosen(Matched(asks), job.terms, world.registry)
    newest = {ask.subscription.identity: ask.candidates[0] for ask in found.asks if ask.candidates[0].tag}
    pinned = {
        row.subscription.identity: replace(
            question_about(row.subscription, newest[row.subscription.identity]), facts=("digest",)
        )
        for row in rows
        if row.subscription.identity in newest and (row.in_git.digest or needs(row.subscription.policy, "digest"))
    }
    answers = world.registry(tuple(dict.fromkeys(pinned.values()))) if pinned else {}
    # Either the registry did not answer, or the rules admit none of its tags, which is no error.
    told = [(one, _problem(one)) for one in found.decisions]
    problems = [why if one.verdict == "error" else replace(why, severity="warning") for one, why in told]
    unanswered = {one.subscription.identity for one in found.decisions if one.verdict == "error"}
    made = []
    for row in rows:
        image = newest.get(row.subscription.identity)
        if image and (question := pinned.get(row.subscription.identity)):
            answer, app = answers[question], row.subscription.application.key
            if answer.error:
                problems.append(unread(row.subscription, answer.error))
                unanswered.add(row.subscription.identity)
            elif not answer.exists:
                because = f"the registry has no {image.reference}"
                problems.append(Problem(application=app, rule="not-in-registry", message=because, severity="warning"))
            image = replace(image, digest=answer.digest) if answer.exists else None
        identity = row.subscription.identity
        until = young.get(identity, "")
        made.append(replace(row, newest=image, too_young_until=until, unanswered=identity in unanswered))
    return made, tuple(problems)

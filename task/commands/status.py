"""`status`: reports each image's version in Git, in the cluster, and in the registry, together with
its hold, request, and past builds.

This command is read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from task.commands.branches import read_branches
from task.commands.scan import chosen
from task.deciding.cautions import file_cautions
from task.deciding.decide import (
    NOTHING,
    Identity,
    failed_asks,
    file_of,
    holds_of_others,
    places,
    reading,
    state_path,
    states_of,
)
from task.deciding.hiding import refuse_hidden
from task.deciding.job import Ask, Job, Terms
from task.deciding.target import all_live, earlier_reading, own_reading, resolve, target_of
from task.deciding.weigh import key_of, question_about
from task.editors.state_file import read_state
from task.errors import TargetError, TaskError, Trouble
from task.landing.before_deciding import CONFIG, gatherer, govern, with_own_memory_branch
from task.landing.contention import Contention
from task.landing.head_branches import lists_in, memory_branch_warnings
from task.landing.live import patch, said_live
from task.landing.ports import Batch, World
from task.landing.waiting_list import BuildKey, ListedRelease, key_of_entry
from task.model import (
    Answer,
    Decision,
    Fact,
    FileVersion,
    Hold,
    Memory,
    Problem,
    Proposed,
    Question,
    Reading,
    Snapshot,
    State,
    Subscription,
)
from task.output.image_status import ImageStatus, OpenRequest, PastBuild, Status
from task.pipeline.deliver import branches_of_requests, prepare
from task.pipeline.discover import discover
from task.pipeline.match import Matched, asks_for_all, asks_for_images, warn_if_all_excluded
from task.policy.builds import active, holding
from task.policy.strategies import needs
from task.templates.commit_message import trailer_of
from task.urls import without_login

Versions = Sequence[FileVersion]


def without_git(sub: Subscription) -> ImageStatus:
    """Return an image's status from its Application alone, without reading Git: the running
    versions, and a hold (an order that keeps a version) that is set by an annotation.
    """
    hold = Hold(sub.locked) if sub.locked else None
    return ImageStatus(
        sub,
        branch=sub.base,
        read=False,
        live=all_live(sub),
        hold=hold,
    )


def image_status(
    snapshot: Snapshot,
    sub: Subscription,
    terms: Terms,
) -> tuple[ImageStatus, tuple[Problem, ...]]:
    """Return an image's status from a snapshot (the files of a branch at one commit), and the
    problems that occurred while reading it.

    The status contains the version in Git, and, from the state file, the hold (an order that keeps
    a version) and the build that the hold defers. Anything that cannot be read is left out.
    """
    row = replace(without_git(sub), branch=snapshot.branch)
    problems: list[Problem] = []
    # The fields are set one by one, so that the fields set so far are kept if there is an error.
    try:
        kind = resolve(sub, snapshot)
        row = replace(row, kind=kind, read=True, in_git=reading(snapshot, sub, terms))
        if not row.in_git.version and not row.live:
            # before the first build, only the chart or the kustomization contains a version
            row = replace(row, in_sources=own_reading(snapshot.files, sub, kind))
        image = sub.image_at(row.in_git)
        problems += file_cautions(snapshot.files, sub, kind, image, terms)
        refuse_hidden(snapshot.files, sub, kind, target_of(sub, kind))
    except TaskError as error:
        problems.append(unread(sub, error))

    try:
        states = states_of(snapshot, sub)
        state = states.get(file_of(snapshot, sub, states), NOTHING)
    except TaskError as error:
        return row, (*problems, unread(sub, error))
    # what the state file records about this image
    memory = state.images.get(key_of(sub), Memory())
    row = replace(row, deferred=memory.deferred)
    if not row.hold:  # otherwise, Flux's own annotations prevent the updates
        row = _with_remembered_hold(row, state, memory, terms.now)
    return row, tuple(problems)


def _with_remembered_hold(row: ImageStatus, state: State, memory: Memory, now: str) -> ImageStatus:
    """Return the row with the active hold (an order that keeps a version) on the image or on its
    Application, or else with an active freeze.

    `state` and `memory` are what the state file records about the Application and the image.
    """
    hold = holding(state, memory, now)
    if hold:
        is_for_image = active(memory.hold, now)
        return replace(row, hold=hold, scope="image" if is_for_image else "application")
    freeze = row.subscription.freeze
    if freeze:
        return replace(row, hold=freeze, scope="freeze")
    return row


def unread(sub: Subscription, error: TaskError) -> Problem:
    """Return the problem for an image that could not be read."""
    return Problem(error.trouble, application=sub.application.key)


def paths_of(row: ImageStatus) -> tuple[str, ...]:
    """Return the files whose history is relevant to an image: the file that contains its version,
    and the state file if a build is deferred.
    """
    paths = []
    if row.in_git.file:
        paths.append(row.in_git.file)
    if row.deferred:
        paths.append(state_path(row.subscription))
    return tuple(paths)


def versions_to_read(builds: int) -> int:
    """Return how many versions of a file must be read to find this many builds.

    This is more than the number of builds, because some versions only change other lines.
    """
    return 3 * builds + 1


def with_history(
    row: ImageStatus,
    snapshot: Snapshot,
    versions: Mapping[str, Versions],
    most: int,
    terms: Terms,
) -> ImageStatus:
    """Return the row with the image's most recent builds (at most `most`), and the time since
    which its deferred build has been deferred.

    `versions` maps each of the files in `paths_of` to its versions, newest first, at most
    `versions_to_read(most)` of each file.
    """
    builds: tuple[PastBuild, ...] = ()
    sub = row.subscription
    path = row.in_git.file
    if path and row.kind:
        target = target_of(sub, row.kind, carry=terms.carry)
        file_versions = versions.get(path, ())
        # a generator, so that no more versions are parsed than `past_builds` needs
        values = (
            (version, earlier_reading(snapshot.files, target, path, version.text or ""))
            for version in file_versions
        )
        may_have_older_versions = len(file_versions) == versions_to_read(most)
        builds = past_builds(values, most, sub.entry.image.name, cut=may_have_older_versions)
    since = _deferred_since(row, snapshot, versions.get(state_path(sub), ()))
    return replace(row, builds=builds, deferred_at=since)


def past_builds(
    values: Iterable[tuple[FileVersion, Reading | None]],
    most: int,
    image: str = "",
    *,
    cut: bool = False,
) -> tuple[PastBuild, ...]:
    """Return an image's most recent builds (at most `most`), newest first: each value that a file
    has contained, such as tag "1.2", with the commit that wrote the value.

    `values` contains the versions of the file, newest first, each with the value in it (None if it
    cannot be parsed). `cut` means that there may be older versions that are not in `values`.
    `image` is the image's name.
    """
    # A period is a series of successive versions with the same value.
    # It is stored as the value and the period's oldest version so
    # far, because the oldest version is the one that wrote the value.
    periods: list[tuple[Reading, FileVersion]] = []
    number_of_builds = 0  # the number of periods in which the file contained the image
    previous_value: Reading | None = None
    for file_version, value in values:
        if value is None:
            continue
        is_same_period = previous_value is not None and value.version == previous_value.version
        if is_same_period:
            periods[-1] = (value, file_version)
        else:
            periods.append((value, file_version))
            if value.version:  # otherwise, the file did not contain the image
                number_of_builds += 1
        previous_value = value
        # the next period has begun, so the first `most` periods are complete
        if number_of_builds > most:
            break

    oldest_is_incomplete = cut and number_of_builds <= most
    if oldest_is_incomplete:
        # an older version that is not in `values` may have written the value of the oldest period
        periods = periods[:-1]
    builds = [
        _past_build(value, file_version, image)
        for value, file_version in periods
        if value.version and file_version.commit
    ]
    return tuple(builds[:most])


def _past_build(value: Reading, version: FileVersion, image: str) -> PastBuild:
    """Return the build for a value that a file has contained, with the commit that wrote the value,
    and with that commit's trailers. `image` is the image's name.
    """
    message = version.message
    return PastBuild(
        tag=value.tag,
        digest=value.digest,
        commit=version.commit,
        at=version.at,
        by=version.by,
        pipeline_run=without_login(trailer_of(message, "Pipeline-Run")),
        proof=without_login(trailer_of(message, "Proof", image)),
        event=without_login(trailer_of(message, "Event", image)),
    )


def _deferred_since(row: ImageStatus, snapshot: Snapshot, versions: Versions) -> str:
    """Return since when the state file has continuously contained the row's deferred build (one
    that a hold or a freeze keeps back), or "" if there is no such build or the time is unknown.

    `versions` are the versions of the state file, newest first.
    """
    sub = row.subscription
    deferred = row.deferred
    if deferred is None:
        return ""
    since = ""
    for version in versions:
        try:
            states = read_state(version.text or "")
        except TaskError:
            continue
        state = states.get(file_of(snapshot, sub, states), NOTHING)
        memory = state.images.get(key_of(sub), Memory())
        if memory.deferred is None or memory.deferred.version != deferred.version:
            # the build was first deferred in the version read just before this one, which is newer
            break
        since = version.at
    return since


MOST = 50  # how many head branches per repository are looked up at the forge


def with_listed(rows: Sequence[ImageStatus], snapshot: Snapshot) -> list[ImageStatus]:
    """Return the rows with the pull requests for their builds and releases (ends of holds) that are
    waiting on head branches. They are taken from the branches' lists on the memory branch.

    If a list does not record a request, the request's `url` and `number` are "". If several
    versions of an image are waiting, its row receives the last one.
    """
    requests_by_build: dict[BuildKey, OpenRequest] = {}
    requests_by_release: dict[ListedRelease, OpenRequest] = {}
    for waiting_list in lists_in(snapshot.memory_files):
        request = OpenRequest(url="", number="", head=waiting_list.head, tag="")
        recorded = waiting_list.request
        if recorded:
            request = replace(request, url=recorded.url, number=recorded.number)
        for build in waiting_list.builds:
            requests_by_build[build.key] = replace(request, tag=build.tag or build.version)
        for release in waiting_list.releases:
            requests_by_release[release] = request

    rows_with_requests = []
    for row in rows:
        request_of_build = requests_by_build.get(key_of_entry(row.subscription))
        request_of_release = _request_ending_hold(row, requests_by_release)
        rows_with_requests.append(
            replace(row, request=request_of_build, ends_with=request_of_release)
        )
    return rows_with_requests


def _request_ending_hold(
    row: ImageStatus,
    requests_by_release: Mapping[ListedRelease, OpenRequest],
) -> OpenRequest | None:
    """Return the pull request that ends the row's hold (an order that keeps a version) once it is
    merged, or None if there is no such request.

    `requests_by_release` contains the requests, keyed by the release (the end of a hold) that they
    propose.
    """
    sub = row.subscription
    image = key_of(sub) if row.scope == "image" else ""  # "" stands for all images
    for release, request in requests_by_release.items():
        place = (release.application, release.folder, release.image)
        if release.hold == row.hold and place == (sub.application.key, sub.home, image):
            return request
    return None


def with_requests(
    rows: list[ImageStatus],
    batch: Batch,
    world: World,
) -> tuple[list[ImageStatus], tuple[Problem, ...]]:
    """Return the rows with the forge's current data about the requests for waiting builds, and the
    problems that occurred while reading the requests.

    Requests that are no longer open are removed. If the forge (the Git host) cannot be used, the
    rows are returned unchanged.
    """
    repo = batch.asks[0].subscription.repo
    ordered_heads: dict[str, None] = {}  # a dictionary that serves as an ordered set
    for row in rows:
        for request in (row.request, row.ends_with):
            if request:
                ordered_heads[request.head] = None
    heads = list(ordered_heads)
    if not heads:
        return rows, ()

    try:
        forge = world.forge(repo)
    except TaskError as error:  # the token is missing or the forge is unknown
        world.log(
            "info",
            f"cannot show open pull requests in {without_login(repo)}: {error.message}",
        )
        return rows, ()
    try:
        # limited, because each look-up takes a request to the forge
        heads_to_look_up = heads[:MOST]
        proposed_by_head = {head: forge.find(batch.base, head) for head in heads_to_look_up}
    except TaskError as error:
        message = f"cannot read open pull requests in {without_login(repo)}: {error.message}"
        return rows, (Problem(error.saying(message).as_warning()),)
    if len(heads) > MOST:
        world.log(
            "warning",
            f"{without_login(repo)}: only {MOST} of {len(heads)} head branches were checked",
        )

    rows_with_requests = []
    for row in rows:
        request = _with_forge_data(row.request, proposed_by_head)
        ends_with = _with_forge_data(row.ends_with, proposed_by_head)
        rows_with_requests.append(replace(row, request=request, ends_with=ends_with))
    return rows_with_requests, ()


def _with_forge_data(
    request: OpenRequest | None,
    proposed_by_head: Mapping[str, Proposed | None],
) -> OpenRequest | None:
    """Return a request with the forge's current data, or None if the request is no longer open.

    `proposed_by_head` contains the result for each head branch that was looked up: its request, or
    None if there is none. A request whose head branch was not looked up is returned unchanged.
    """
    if request is None or request.head not in proposed_by_head:
        return request
    proposed = proposed_by_head[request.head]
    if proposed is None:
        return replace(request, url="", number="")
    if proposed.state != "open":
        return None
    return replace(request, url=proposed.url, number=proposed.number)


_ROWS_PER_PAGE = 500  # how many images' histories are in memory at a time


@dataclass(frozen=True)
class StatusDetails:
    """What to read besides Git and the running versions."""

    newest: bool = False  # whether to read the newest tags in the registries
    builds: int = 5  # how many past builds to read
    # whether to read open pull requests even if no Application uses pull requests
    requests: bool = False
    dates: bool = False  # whether to read when the newest tags were created


# the statuses of some images, and the problems with reading them
Rows = tuple[Sequence[ImageStatus], Sequence[Problem]]


def status(job: Job, world: World, details: StatusDetails) -> Status:
    """Return the status of all images in these Applications, or only of `job.images`. `details`
    specifies what to read besides Git and the running versions.

    `job` must be a dry run.
    """
    seen, problems = discover(job, world)
    if job.images:
        matched = asks_for_images(seen.subscribed, job.images)
    else:
        matched = asks_for_all(seen.subscribed)
    problems += matched.problems
    problems += tuple(
        Problem(unusable.judged.trouble, application=unusable.subscription.application.key)
        for unusable in matched.unusable
    )
    problems += warn_if_all_excluded(matched, job)

    rows, read_problems = rows_of(matched, job, world, details)
    problems += read_problems
    if details.newest:
        rows, registry_problems = _with_newest(rows, job, world, dates=details.dates)
        problems += registry_problems

    rows = sorted((_with_pages(row, world) for row in rows), key=_sort_key)
    problems = tuple(dict.fromkeys(problems))
    return Status(tuple(rows), problems=problems, considered=seen.considered, at=job.terms.now)


def _sort_key(row: ImageStatus) -> tuple[str, str, str]:
    """Return the key by which images are sorted: Application, alias, and file."""
    sub = row.subscription
    return sub.application.key, sub.entry.alias, sub.path


def rows_of(
    matched: Matched,
    job: Job,
    world: World,
    details: StatusDetails,
) -> tuple[list[ImageStatus], tuple[Problem, ...]]:
    """Return the status of each matched image. It comes from Git or, for images that are patched in
    the cluster, from the live Application. Also return the problems that occurred while reading.
    """
    parts = read_branches(
        matched,
        job,
        world,
        read=lambda batch: _rows_of_branch(batch, job, world, details),
        failed=lambda asks, error, _base: _rows_without_git(asks, error),
    )
    if not job.only:  # with `--only-repository`, separate runs handle live Applications
        parts += [_row_of_live(ask, job, world) for ask in matched.live]

    rows: list[ImageStatus] = []
    problems: list[Problem] = []
    for part_rows, part_problems in parts:
        rows += part_rows
        problems += part_problems
    return rows, tuple(problems)


def _with_pages(row: ImageStatus, world: World) -> ImageStatus:
    """Return the row with the web page of each past build's commit."""
    repo = row.subscription.repo
    builds = tuple(
        replace(past_build, url=world.commit_page(repo, past_build.commit))
        for past_build in row.builds
    )
    return replace(row, builds=builds)


def _rows_without_git(asks: Sequence[Ask], error: TaskError) -> Rows:
    """Return the statuses of these asks' images without reading Git, and the error, once for each
    Application.
    """
    subs = [ask.subscription for ask in asks]
    rows = [without_git(sub) for sub in subs]
    problems = dict.fromkeys(unread(sub, error) for sub in subs)
    return rows, list(problems)


def _rows_of_branch(batch: Batch, job: Job, world: World, details: StatusDetails) -> Rows:
    """Return the statuses of the images in a batch (all asks for one branch), and the problems that
    occurred while reading them.
    """
    # the head branches are only needed to decide as a run would
    expected_heads = branches_of_requests(batch) if job.images else []
    places_to_read = chain(CONFIG, chain.from_iterable(map(places, batch.asks)))
    snapshot = batch.repository.snapshot(batch.base, places_to_read, expected_heads, CONFIG)
    problems: list[Problem] = []

    # apply the repository's config to the batch, the snapshot, and the job
    config_error = None  # the error in the repository's config, if there is one
    try:
        snapshot = with_own_memory_branch(snapshot, batch.repository)
        batch, snapshot, job = govern(batch, snapshot, job)
    except TargetError as error:  # the statuses are shown nevertheless
        config_error = error
        problems += dict.fromkeys(unread(ask.subscription, error) for ask in batch.asks)

    rows, read_problems = _rows_of_snapshot(batch, snapshot, job.terms)
    problems += [*memory_branch_warnings(snapshot), *read_problems]

    # what a run would decide about the images
    if job.images:
        decisions = _decisions_of_run(batch, snapshot, config_error, job, world)
        by_identity = {decision.subscription.identity: decision for decision in decisions}
        rows = [_with_verdict(row, by_identity.get(row.subscription.identity)) for row in rows]

    # open pull requests
    if details.requests or any(ask.subscription.pull_request for ask in batch.asks):
        rows, request_problems = with_requests(rows, batch, world)
        problems += request_problems

    # past builds
    if details.builds and rows:
        try:
            rows = _with_builds(rows, batch, snapshot, details.builds, job.terms)
        except TaskError as error:
            because = f"cannot read the history of {snapshot.branch}: {error.message}"
            problems.append(Problem(error.saying(because)))
    return rows, problems


def _rows_of_snapshot(
    batch: Batch,
    snapshot: Snapshot,
    terms: Terms,
) -> tuple[list[ImageStatus], list[Problem]]:
    """Return each image's status, read from a branch's files and its lists of waiting builds."""
    subs = [ask.subscription for ask in batch.asks]
    other_holds = holds_of_others(snapshot, subs, terms)
    rows: list[ImageStatus] = []
    problems: list[Problem] = []
    for sub in subs:
        row, row_problems = image_status(snapshot, sub, terms)
        rows.append(_with_hold_of_others(row, other_holds.get(sub.identity)))
        problems += row_problems
    return with_listed(rows, snapshot), problems


def _with_hold_of_others(row: ImageStatus, other_hold: Hold | None) -> ImageStatus:
    """Return the row with the hold from a different state file, if there is one. A row that already
    has a hold other than a freeze is returned unchanged.
    """
    has_own_hold = row.hold is not None and row.scope != "freeze"
    if other_hold is None or has_own_hold:
        return row
    return replace(row, hold=other_hold, scope="application")


def _decisions_of_run(
    batch: Batch,
    snapshot: Snapshot,
    config_error: TargetError | None,
    job: Job,
    world: World,
) -> Sequence[Decision]:
    """Return what a run would decide about the images in the batch (all asks for one branch). If
    the repository's config contains an error, each decision is that error.
    """
    if config_error:
        return failed_asks(batch.asks, config_error, job.terms).decisions
    # required by `prepare`, although nothing is pushed
    contention = Contention(f"moving {batch.base}", job.deadline, world)
    plan = prepare(batch, snapshot, gatherer(batch, job, world), contention, job, world)
    decisions = list(plan.without_commit)
    for prepared in plan.commits:
        decisions += prepared.decisions
    return decisions


def _with_builds(
    rows: Sequence[ImageStatus],
    batch: Batch,
    snapshot: Snapshot,
    most: int,
    terms: Terms,
) -> list[ImageStatus]:
    """Return the rows, each with its image's most recent builds (at most `most`).

    The history is read in pages of `_ROWS_PER_PAGE` rows, because it takes up a lot of memory.
    """
    pages = [rows[start : start + _ROWS_PER_PAGE] for start in range(0, len(rows), _ROWS_PER_PAGE)]
    paths_of_pages = [tuple(chain.from_iterable(map(paths_of, page))) for page in pages]
    written = batch.repository.written(snapshot.branch, paths_of_pages, versions_to_read(most))
    rows_with_builds = []
    for page, versions in zip(pages, written, strict=True):
        rows_with_builds += [with_history(row, snapshot, versions, most, terms) for row in page]
    return rows_with_builds


def _with_verdict(row: ImageStatus, decision: Decision | None) -> ImageStatus:
    """Return the row with what a run would decide about the image, if that is known."""
    if decision is None:
        return row
    return replace(row, would=decision.judged, overridden_by=decision.overridden_by)


def _row_of_live(ask: Ask, job: Job, world: World) -> Rows:
    """Return the status of an image whose Application is patched live (in the cluster), so that the
    image is not in Git, and the problems that occurred while reading it.
    """
    sub = ask.subscription
    row = replace(without_git(sub), kind="live")
    if job.images:
        decision = patch([ask], job, world).decisions[0]
        row = replace(row, would=decision.judged)

    live = world.live()
    if live is None:
        because = "the live Applications were not read, because these Applications are from files"
        hint = "use --applications cluster or argocd"
        warning = Trouble.warning("source", because, hint)
        return [row], [Problem(warning, application=sub.application.key)]
    try:
        _manifest, _version, current = said_live(sub, live)
    except TaskError as error:
        return [row], [unread(sub, error)]
    return [replace(row, read=True, in_git=current)], []


def _with_newest(
    rows: Sequence[ImageStatus],
    job: Job,
    world: World,
    *,
    dates: bool,
) -> tuple[list[ImageStatus], tuple[Problem, ...]]:
    """Return the rows, each with the newest tag in the registry that its rules admit, and a problem
    for each row without such a tag.

    With `dates`, the creation times of the newest tags are also added.
    """
    rows_with_tags, problems = _with_newest_tags(rows, job, world)
    questions = _questions_about_newest(rows_with_tags, dates=dates)
    answers = world.registry(tuple(dict.fromkeys(questions.values()))) if questions else {}
    rows_with_facts = []
    for row in rows_with_tags:
        question = questions.get(row.subscription.identity)
        if question is None:
            rows_with_facts.append(row)
            continue
        row_with_facts, answer_problems = _with_answer(row, question, answers[question])
        rows_with_facts.append(row_with_facts)
        problems += answer_problems
    return rows_with_facts, tuple(problems)


def _with_newest_tags(
    rows: Sequence[ImageStatus], job: Job, world: World
) -> tuple[list[ImageStatus], list[Problem]]:
    """Return the rows, each with the newest tag that its rules admit (chosen as `scan` does), and a
    problem for each row without such a tag.
    """
    asks = []
    for row in rows:
        image = replace(row.subscription.entry.image, digest="")
        asks.append(Ask(row.subscription, (image,)))
    # Each ask now has its newest tag, or has become a decision that states why there is none.
    # `old_enough_at` contains the time at which a newer tag reaches its minimum age.
    matched, old_enough_at = chosen(Matched(tuple(asks)), job.terms, world.registry)
    newest = {
        ask.subscription.identity: ask.candidates[0]
        for ask in matched.asks
        if ask.candidates[0].tag  # a locked image receives no tag
    }
    without_response = {
        decision.subscription.identity
        for decision in matched.decisions
        if decision.verdict == "error"
    }
    rows_with_tags = []
    for row in rows:
        identity = row.subscription.identity
        row_with_tag = replace(
            row,
            newest=newest.get(identity),
            newest_at="",
            too_young_until=old_enough_at.get(identity, ""),
            unanswered=identity in without_response,
        )
        rows_with_tags.append(row_with_tag)
    return rows_with_tags, [_problem_without_newest(decision) for decision in matched.decisions]


def _questions_about_newest(
    rows: Iterable[ImageStatus],
    *,
    dates: bool,
) -> dict[Identity, Question]:
    """Return the questions about the rows' newest images, keyed by the identity of the
    subscription. There are no questions for rows about which everything is known.
    """
    questions = {}
    for row in rows:
        facts = _facts_needed_of_newest(row, dates=dates)
        if facts and row.newest:
            question = question_about(row.subscription, row.newest)
            questions[row.subscription.identity] = replace(question, facts=facts)
    return questions


def _facts_needed_of_newest(row: ImageStatus, *, dates: bool) -> tuple[Fact, ...]:
    """Return the facts that are needed about a row's newest tag: when it was created (with
    `dates`), and its digest (if the version in Git has a digest, or if the strategy compares
    digests).
    """
    facts: tuple[Fact, ...] = ("created",) if dates else ()
    if row.in_git.digest or needs(row.subscription.policy, "digest"):
        facts += ("digest",)
    return facts


def _problem_without_newest(decision: Decision) -> Problem:
    """Return the problem that explains why a row has no newest tag.

    Either the registry did not respond, which is an error, or the rules admit none of its tags,
    which is only a warning.
    """
    trouble = decision.judged.trouble
    if decision.verdict != "error":
        trouble = trouble.as_warning()
    return Problem(trouble, application=decision.subscription.application.key)


def _with_answer(
    row: ImageStatus,
    question: Question,
    answer: Answer,
) -> tuple[ImageStatus, tuple[Problem, ...]]:
    """Return the row with the registry's response about its newest tag, and any problem with the
    response.

    If the tag was deleted after it was listed, the row has no newest tag.
    """
    image = question.image
    sub = row.subscription
    newest = None
    if answer.exists:
        # if the digest was not requested, it is irrelevant and not shown
        digest = answer.digest if "digest" in question.facts else ""
        newest = replace(image, digest=digest)
    row = replace(row, newest=newest, newest_at=answer.created)
    if answer.error:
        return replace(row, unanswered=True), (unread(sub, answer.error),)
    if answer.exists:
        return row, ()
    missing_tag = Problem(
        Trouble.warning("not-in-registry", f"the registry has no {image.reference}"),
        application=sub.application.key,
    )
    return row, (missing_tag,)

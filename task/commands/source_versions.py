"""`promote`: reads from Git which versions the sources have, and which builds, and offers them to the targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from task.commands.image_status import past_builds
from task.commands.promotion import SourceVersion, asks_to_promote, pairs_of, wanted
from task.deciding.decide import current_reading, missing_places, places, reading, state_of
from task.deciding.job import Ask, Job, Promotion, Terms
from task.deciding.target import earlier_reading, live_reading, resolve, target_of
from task.deciding.weigh import key_of
from task.errors import SourceError, TaskError
from task.landing.ports import World
from task.model import Image, Memory, Reading, Snapshot, Subscription, TargetKind, Written
from task.pipeline.match import AT_ONCE, Matched, by_branch, by_login, by_repository
from task.pipeline.overlooked import Seen, untracked_problem
from task.policy.builds import alike
from task.templates.commit_message import build_trailers, commit_references
from task.threads import in_threads

_VERSIONS = 100  # of the source's file that are read to find when it got its version


def source_versions(subs: Sequence[Subscription], job: Job, world: World) -> list[SourceVersion]:
    """Return the version of each entry, reading several repositories at the same time. A failure concerns one entry."""
    found = [_known(sub, live_reading(sub)) for sub in subs if sub.method != "git"]
    asks = tuple(Ask(sub, (sub.entry.image,)) for sub in subs if sub.method == "git")
    groups = by_login(by_repository(Matched(asks), replace(job, only=())), world)
    for of_group in in_threads(lambda asks: _of_repository(asks, job.terms, world), groups, AT_ONCE):
        found += of_group
    return found


def _of_repository(asks: Sequence[Ask], terms: Terms, world: World) -> list[SourceVersion]:
    """Return the versions of the entries in one repository."""
    first = asks[0].subscription
    try:
        repository = world.repository(first.repo, first)
    except TaskError as error:
        return [_unknown(ask.subscription, error) for ask in asks]
    try:
        found = []
        for base, members in by_branch(repository, asks).items():
            snapshot = repository.snapshot(base, (place for ask in members for place in places(ask)))
            more = [place for ask in members for place in missing_places(snapshot, ask.subscription, terms)]
            if more:
                files = repository.read_more(snapshot, tuple(dict.fromkeys(more))).files
                snapshot = replace(snapshot, files={**snapshot.files, **files})
            found += [_version(snapshot, ask.subscription, terms, world) for ask in members]
        return found
    except TaskError as error:
        return [_unknown(ask.subscription, error) for ask in asks]
    finally:
        repository.close()


def _version(snapshot: Snapshot, sub: Subscription, terms: Terms, world: World) -> SourceVersion:
    try:
        kind = resolve(sub, snapshot)
        now = current_reading(snapshot, sub, kind, reading(snapshot, sub, terms))
        memory = state_of(snapshot, sub).images.get(key_of(sub), Memory())
    except TaskError as error:
        return _unknown(sub, error)
    known = _known(sub, now, memory.written or Written())
    return replace(known, since=cache(lambda: _since(snapshot, sub, kind, now, world)))


def _since(snapshot: Snapshot, sub: Subscription, kind: TargetKind, now: Reading, world: World) -> str:
    """Return the time of the commit that wrote the present version, or "" if it is not known."""
    if not now.file:
        return ""
    repository = world.repository(sub.repo, sub)
    try:
        (versions,) = repository.written(snapshot.branch, [(now.file,)], _VERSIONS)
    finally:
        repository.close()
    of_file = versions.get(now.file, ())
    target = target_of(sub, kind)
    said = ((one, earlier_reading(snapshot.files, target, now.file, one.text or "")) for one in of_file)
    found = past_builds(said, 1, cut=len(of_file) == _VERSIONS)
    return found[0].at if found and (found[0].tag, found[0].digest) == (now.tag, now.digest) else ""


def _known(sub: Subscription, now: Reading, newest: Written = Written()) -> SourceVersion:
    if not (now.tag or now.digest):
        error = SourceError(
            f"neither Git nor the cluster has a version of {sub.entry.image.name}",
            hint="wait for the first build of the source, or name another source with --from",
        )
        return _unknown(sub, error)
    # The state remembers the newest build, and after a rollback Git says another one.
    known = newest if alike(newest, now) else Written()
    digest = now.digest or known.digest or known.image_digest
    image = replace(sub.entry.image, tag=now.tag, digest=digest)
    return SourceVersion(sub, image, known.build, newest, pinned=bool(now.digest))


def _unknown(sub: Subscription, error: TaskError) -> SourceVersion:
    bare: Image = replace(sub.entry.image, tag="", digest="")
    return SourceVersion(sub, bare, error=error)


def match_promotion(seen: Seen, job: Job, world: World) -> tuple[Job, Matched]:
    """Return the asks of `promote`: versions of sources, for their targets. Raises `UsageError` if they conflict."""
    promotion = job.promotion or Promotion()
    pairs, problems = pairs_of(seen.subscribed, promotion)
    known = source_versions(wanted(pairs), job, world)
    matched = asks_to_promote(pairs, known, promotion)
    wrong = any(one.severity == "error" for one in problems)
    if pairs and not (wrong or matched.asks or matched.decisions or matched.unusable):
        hint = "let both sides track the same image, or name an alias that both have: --alias ALIAS"
        message = "no target tracks an image of its source"
        problems.append(untracked_problem(message, hint, required=job.require_match))
    matched = replace(matched, problems=(*problems, *matched.problems))
    return with_promoted(job, matched, world), matched


def with_promoted(job: Job, matched: Matched, world: World) -> Job:
    """Return the job with the promoted images, and with their source commit if all have the same."""
    settled = (*matched.decisions, *matched.unusable)
    offered = [*(ask.offered for ask in matched.asks), *(one.candidate for one in settled)]
    images = tuple(dict.fromkeys(image for image in offered if image.version))
    builds = {(ask.build.commit, ask.build.repository) for ask in matched.asks if ask.build}
    commit, repository = builds.pop() if len(builds) == 1 else ("", "")
    of_build = build_trailers(commit, references=commit_references(commit, repository))
    wording = replace(job.wording, trailers=(*of_build, *job.wording.trailers))
    deployed = replace(job.deployed, commit=commit) if job.deployed and commit and repository else None
    if job.deployed and not deployed and matched.asks:
        why = f"the sources' state does not say which one commit of {job.deployed.repository} was built"
        world.log("warning", f"deployments are not shown: {why}")
    return replace(job, images=images, wording=wording, deployed=deployed)

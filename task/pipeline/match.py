"""Matching Applications with images: which asks need Git, which are already settled, and which
belong together.

A wrong annotation is an error only if its entry matches, or may match, one of the event's images.
Otherwise, it is a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from task.annotations.write_back import Neighbours
from task.deciding.job import Ask, Intent, Job
from task.errors import Exit, Trouble
from task.landing.ports import Repository, World
from task.model import (
    Decision,
    Flaw,
    Image,
    Judged,
    Problem,
    Subscribed,
    Subscription,
    Tracked,
    Tracker,
    Unusable,
    Verdict,
)
from task.output.words import ELSEWHERE
from task.pipeline.overlooked import Seen, about_others
from task.text import FEW, and_more
from task.urls import normal_url, without_login

AT_ONCE = 8  # repositories processed in parallel; more threads would only wait for each other


@dataclass(frozen=True)
class Matched:
    """An event's asks (each is one image of an Application, with the builds offered for it), and
    everything that could be settled without an ask.
    """

    asks: tuple[Ask, ...]
    decisions: tuple[Decision, ...] = ()
    problems: tuple[Problem, ...] = ()
    unusable: tuple[Unusable, ...] = ()  # entries with a mistake

    @property
    def in_git(self) -> tuple[Ask, ...]:
        """The asks that need Git."""
        return tuple(ask for ask in self.asks if ask.subscription.method == "git")

    @property
    def live(self) -> tuple[Ask, ...]:
        """The asks for Applications that are patched live (`write-back-method: argocd`)."""
        return tuple(ask for ask in self.asks if ask.subscription.method == "argocd")


def match_images(seen: Seen, job: Job, world: World) -> tuple[Job, Matched]:  # noqa: ARG001 - as `scan` is called
    """Return the asks for the built images, or for a person's command."""
    if job.intent:
        return job, asks_by_hand(seen.subscribed, job.intent, job.aliases)
    return job, asks_for_images(seen.subscribed, job.images)


def asks_for_images(subscribed: Sequence[Subscribed], images: Sequence[Image]) -> Matched:
    """Find the `image-list` entries that track one of the built images.

    Return an ask for each: the entry's subscription with the images that match it. A broken entry
    that matches, or that may match, becomes an error.
    """
    built: dict[str, list[Image]] = {}  # by the image's name, for any tag
    for image in images:
        built.setdefault(image.identity, []).append(image)

    asks = []
    # marks a subscription if its values file is in another Application's folder
    neighbours = Neighbours(item.application for item in subscribed)
    for item in subscribed:
        for sub in item.subscriptions:
            matching = built.get(sub.entry.image.identity)
            if matching:
                siblings = siblings_of(sub, item)
                asks.append(Ask(neighbours.noted(sub), tuple(matching), siblings=siblings))

    problems, unusable = _judge_all_flaws(subscribed, built)
    return Matched(tuple(asks), problems=problems, unusable=_first_of_each(unusable))


def _judge_all_flaws(
    subscribed: Sequence[Subscribed], built: dict[str, list[Image]]
) -> tuple[tuple[Problem, ...], list[Unusable]]:
    """Return the problems with the annotations, and the broken entries that match a built image.

    A flaw is a mistake in an annotation. `built` contains the images by name. Warnings about
    Applications that do not use the built images are combined, so that other teams' mistakes do not
    fill the log.
    """
    unusable = []  # broken entries for a built image
    problems: list[Problem] = []  # shown one by one
    # combined, because these Applications do not use the built images
    mistakes_of_others: list[Problem] = []
    warnings_of_others: list[Problem] = []
    for item in subscribed:
        entries = [sub.entry for sub in item.subscriptions]
        entries += [flaw.entry for flaw in item.flaws if flaw.entry]
        uses_images = any(entry.image.identity in built for entry in entries)
        for flaw in item.flaws:
            judged = _judge_flaw(item.application, flaw, built)
            if judged is None:
                continue
            if isinstance(judged, Unusable):
                unusable.append(judged)
            elif uses_images or judged.severity == "error":
                problems.append(judged)
            elif flaw.severity == "warning":
                warnings_of_others.append(judged)
            else:
                mistakes_of_others.append(judged)
    problems += _of_others(mistakes_of_others, warnings_of_others)
    return tuple(problems), unusable


def asks_for_all(subscribed: Sequence[Subscribed]) -> Matched:
    """Return an ask without a tag for each `image-list` entry, and an error for each broken one."""
    asks = []
    unusable = []
    problems = []
    # marks a subscription if its values file is in another Application's folder
    neighbours = Neighbours(item.application for item in subscribed)
    for item in subscribed:
        for sub in item.subscriptions:
            image = replace(sub.entry.image, digest="")
            asks.append(Ask(neighbours.noted(sub), (image,), siblings=siblings_of(sub, item)))

        # Every image in a broken entry counts as built, so that each of these entries is unusable.
        broken_entries = [flaw.entry for flaw in item.flaws if flaw.entry]
        as_if_built = {entry.image.identity: [entry.image] for entry in broken_entries}
        for flaw in item.flaws:
            judged = _judge_flaw(item.application, flaw, as_if_built)
            if judged is None:  # cannot happen here: it means that an entry's image was not built
                continue
            is_unreadable_entry = (
                flaw.severity == "error" and flaw.entry is None and bool(flaw.text)
            )
            if isinstance(judged, Unusable):
                unusable.append(judged)
            elif is_unreadable_entry:  # an error, even if `judged` is only a warning
                problems.append(_problem(item.application, flaw))
            else:
                problems.append(judged)
    return Matched(
        tuple(asks),
        problems=tuple(problems),
        unusable=_first_of_each(unusable),
    )


def asks_by_hand(
    subscribed: Sequence[Subscribed],
    intent: Intent,
    images: Sequence[str],
) -> Matched:
    """Return the asks for a person's command (`intent`), such as `hold`: one for each image of the
    Applications. `images` limits them to the images with these names or aliases.

    If the command is about a version that failed, only the entries for its image are used. Every
    mistake in the annotations becomes a problem, because otherwise a broken entry would be skipped
    silently.
    """
    asks = []
    problems = []
    all_names: set[str] = set()
    # marks a subscription if its values file is in another Application's folder
    neighbours = Neighbours(item.application for item in subscribed)
    for item in subscribed:
        for sub in item.subscriptions:
            entry = sub.entry
            names = {entry.alias, entry.image.name, entry.image.identity}
            all_names |= names
            if images and names.isdisjoint(images):
                continue
            if intent.failed and intent.failed.identity != entry.image.identity:
                continue
            siblings = siblings_of(sub, item)
            asks.append(Ask(neighbours.noted(sub), (), intent=intent, siblings=siblings))
        problems += [_problem(item.application, flaw) for flaw in item.flaws]

    hint = "use an alias or image name from the image-list annotation"
    for name in images:
        if name not in all_names:
            message = f"--alias {name}: not found in any of these Applications"
            problems.append(Problem(Trouble("annotation", message, hint)))
    if intent.failed and not asks and subscribed:
        message = f"--failed: none of these Applications tracks {intent.failed.name}"
        hint = "use the image name from the image-list annotation, with the tag that was tested"
        problems.append(Problem(Trouble("usage", message, hint, exit=Exit.USAGE)))
    return Matched(tuple(asks), problems=tuple(problems))


def siblings_of(sub: Subscription, of: Subscribed) -> tuple[Subscription, ...]:
    """Return the subscriptions (images) of the same Application that are written to the same
    repository and head branch. If there are pull requests, their updates may be waiting on that
    branch.
    """
    return tuple(
        other
        for other in of.subscriptions
        if other.head_template == sub.head_template and other.repo == sub.repo
    )


def _judge_flaw(
    app: Tracker,
    flaw: Flaw,
    built: dict[str, list[Image]],
) -> Unusable | Problem | None:
    """Return the consequence of a flaw (a mistake in an Application's annotations), given that
    these images were built.

    `built` contains the images by name. A broken entry for one of them is unusable. An unreadable
    entry that mentions one of them is an error. Other mistakes are warnings. None means that
    `overlooked` reports the mistake.
    """
    problem = _problem(app, flaw)
    if flaw.severity != "error":
        return problem
    warning = replace(problem, trouble=flaw.trouble.as_warning())

    if flaw.entry is None:
        for images in built.values():
            for image in images:
                _, _, last_part = image.repository.rpartition("/")  # `web` in `acme/web`
                if last_part in flaw.text:
                    return problem
        return warning

    matching = built.get(flaw.entry.image.identity)
    if matching:
        verdict = Verdict.of(flaw.trouble)
        return Unusable(Tracked(app, flaw.entry), matching[0], verdict, strategy=flaw.strategy)
    # `overlooked` warns about misspelled keys, in one line for many Applications
    return None if flaw.misspelled else warning


def _problem(app: Tracker, flaw: Flaw) -> Problem:
    """Return the problem that the report shows for a mistake in an Application's annotations."""
    return Problem(
        flaw.trouble,
        application=app.key,
        key=flaw.key,
        value=flaw.value,
    )


def _of_others(mistakes: Sequence[Problem], warnings: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return a limited number of warnings about Applications that do not use the built images.

    The first few Applications with mistakes get one line per mistake. All other mistakes share one
    line. So do all plain warnings, such as those about deprecated names.
    """
    apps_with_mistakes = {problem.application for problem in mistakes}
    first_apps = sorted(apps_with_mistakes)[:FEW]
    single_lines = []
    other_mistakes = []  # (Application, annotation key)
    for problem in mistakes:
        if problem.application in first_apps:
            single_lines.append(problem)
        else:
            other_mistakes.append((problem.application, problem.key))
    warned_keys = [(problem.application, problem.key) for problem in warnings]
    return (
        *single_lines,
        *about_others(other_mistakes, "invalid annotations, so their images are not updated"),
        *about_others(warned_keys, "annotations that work but that lint warns about"),
    )


def _first_of_each(unusable: Sequence[Unusable]) -> tuple[Unusable, ...]:
    """Return the first error for each `image-list` entry. The `lint` command shows the others."""
    first_errors: dict[tuple[str, str], Unusable] = {}
    for item in unusable:
        entry = (item.subscription.application.key, item.subscription.entry.text)
        first_errors.setdefault(entry, item)
    return tuple(first_errors.values())


def without_the_broken(matched: Matched) -> tuple[Matched, tuple[Decision, ...]]:
    """Remove the asks for each repository that a failed Application uses (for `--atomic`), and
    return error decisions for them.

    An ask is one image of an Application, with the builds offered for it.
    """
    errors_by_repo: dict[str, Judged] = {}
    for judged in (*matched.decisions, *matched.unusable):
        if judged.verdict == "error":
            for source in judged.subscription.application.sources:
                errors_by_repo[normal_url(source.repo)] = judged

    remaining_asks = []
    error_decisions = []
    for ask in matched.asks:
        error = errors_by_repo.get(normal_url(ask.subscription.repo))
        if error is None:
            remaining_asks.append(ask)
        else:
            error_decisions.append(Decision(ask.subscription, ask.offered, not_written(error)))
    return replace(matched, asks=tuple(remaining_asks)), tuple(error_decisions)


def not_written(broken: Judged) -> Verdict:
    """Return the verdict for a decision that is not carried out because `broken` is an error and
    `--atomic` is set.
    """
    name = broken.subscription.application.key
    because = f"not written, because {name} failed and --atomic is set"
    hint = f"fix {name}, or leave out --atomic"
    return Verdict("error", broken.rule, because, hint, broken.exit)


def by_branch(repository: Repository, asks: Sequence[Ask]) -> dict[str, list[Ask]]:
    """Group the asks by the base branch that their updates target. An ask without a base branch
    targets the repository's default branch.

    Raises `TaskError` if there is no default branch, or if Git cannot be reached.
    """
    default_branch = ""
    needs_default_branch = any(not ask.subscription.base for ask in asks)
    if needs_default_branch:
        # If there are pull requests, their head branches are read later, and their tips are fetched
        # together with the base's tip.
        any_request = any(ask.subscription.pull_request for ask in asks)
        default_branch = repository.default_branch(tip=not any_request)
    branches: dict[str, list[Ask]] = {}
    for ask in asks:
        branches.setdefault(ask.subscription.base or default_branch, []).append(ask)
    return branches


def by_repository(matched: Matched, job: Job) -> list[tuple[Ask, ...]]:
    """Group the asks that write to Git by repository, even if its URL is spelled in several ways.

    With `--only-repository`, the asks for other repositories are left out.
    """
    selected = {normal_url(without_login(url)) for url in job.only}
    groups: dict[str, list[Ask]] = {}
    for ask in matched.in_git:
        repo = ask.subscription.repo
        if selected and normal_url(without_login(repo)) not in selected:
            continue
        groups.setdefault(normal_url(repo), []).append(ask)
    return [tuple(asks) for asks in groups.values()]


def warn_if_all_excluded(matched: Matched, job: Job) -> tuple[Problem, ...]:
    """Return a warning if `--only-repository` excludes all Applications. The warning names them and
    their repositories.

    Excluding only some of them is not a mistake, because the pipeline runs once for each
    repository.
    """
    if not job.only or not matched.asks:
        return ()
    any_included = bool(by_repository(matched, job))
    if any_included:
        return ()
    places = {}  # keyed by Application
    for ask in matched.asks:
        sub = ask.subscription
        place = without_login(sub.repo) if sub.method == "git" else "in the cluster"
        places[sub.application.key] = place
    named = and_more([f"{name} ({place})" for name, place in sorted(places.items())])
    which = "in this run"
    if job.images:
        which = "that track the image" if len(job.images) == 1 else "that track the images"
    message = f"--only-repository excludes all Applications {which}: {named}"
    hint = "use a repository URL from an Application, or omit --only-repository"
    return (Problem(Trouble.warning(ELSEWHERE, message, hint)),)


def by_login(groups: Sequence[Sequence[Ask]], world: World) -> list[tuple[Ask, ...]]:
    """Split each group of asks (images of Applications) by Git credentials, so that no Application
    writes with another Application's credentials.
    """
    parts: list[tuple[Ask, ...]] = []
    for asks in groups:
        # The credentials depend only on these three values, which identify the owner.
        owners = set()
        for ask in asks:
            sub = ask.subscription
            namespace = sub.application.namespace if sub.credentials.startswith("secret:") else ""
            owners.add((sub.credentials, namespace, sub.application.project))
        logins: dict[str, list[Ask]] = {}
        for ask in asks:
            # with a single owner, all asks have the same credentials, so nothing is looked up
            login = world.login(ask.subscription) if len(owners) > 1 else ""
            logins.setdefault(login, []).append(ask)
        parts += [tuple(members) for members in logins.values()]
    return parts

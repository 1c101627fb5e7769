"""Pure: `promote`: which Applications give what they run to which others, and what becomes an ask like an event's.

What a source has comes from Git (`source_versions`). Each target decides by its own rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import escape

from task.annotations.narrow import Narrow, check_selector, considered
from task.errors import Exit, TaskError, UsageError
from task.model import Application, Build, Decision, Image, Problem, Subscribed, Subscription, Verdict
from task.pipeline.decide import Ask
from task.pipeline.match import Matched, asks_for_images, siblings_of
from task.pipeline.overlooked import unknown_names
from task.pipeline.target import all_live, live_reading

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Promotion:
    """What the command line says of `promote`."""

    sources: tuple[str, ...] = ()  # globs of `name` or `namespace/name`, as all patterns here
    targets: tuple[str, ...] = ()  # with {namespace}, {name} and {project} of a source
    source_selector: str = ""
    target_selector: str = ""
    images: tuple[str, ...] = ()  # aliases or names; () is all
    healthy: bool = False  # only what Argo CD calls Synced and Healthy


@dataclass(frozen=True)
class SourceVersion:
    """What one entry of a source has: its version and build, or why that is not known."""

    subscription: Subscription
    image: Image
    build: Build = Build()
    error: TaskError | None = None

    @property
    def source(self) -> str:
        """The Application, as reports have it."""
        return self.subscription.application.key


@dataclass(frozen=True)
class Pair:
    """One Application that gets something, and the entries of others that may give it."""

    target: Subscribed
    sources: tuple[Subscription, ...]


def check_promotion(promotion: Promotion) -> None:
    """Raise `UsageError` for a pattern or selector that cannot be read, before any server is asked."""
    for flag, selector in (
        ("--from-selector", promotion.source_selector),
        ("--to-selector", promotion.target_selector),
    ):
        try:
            check_selector(Narrow(selector=selector))
        except UsageError as error:
            raise UsageError(error.message.replace("--selector", flag, 1), hint=error.hint) from None
    known = ", ".join(f"{{{name}}}" for name in _facts(Application("", "", {}, ())))
    for pattern in promotion.targets:
        for name in _PLACEHOLDER.findall(pattern):
            if name not in _facts(Application("", "", {}, ())):
                raise UsageError(f"--to: nothing is known as {{{name}}} in {pattern!r}", hint=f"write one of {known}")


def _facts(source: Application) -> Mapping[str, str]:
    """What may stand in `--to`, of a source."""
    return {"namespace": source.namespace, "name": source.name, "project": source.project}


def pairs_of(asking: Sequence[Subscribed], promotion: Promotion) -> tuple[list[Pair], list[Problem]]:
    """Which Application gets something from which entries; an error where one side fits nothing.

    No Application is its own source.
    """
    apps = [one.application for one in asking]
    wanted = Narrow(promotion.sources, selector=promotion.source_selector)
    sources = [one for one in asking if considered(one.application, wanted)]
    problems = list(unknown_names(promotion.sources, apps, strict=not sources))
    if not sources:
        return [], problems or [_nobody("--from-selector", promotion.source_selector)]
    plain = [pattern for pattern in promotion.targets if not _PLACEHOLDER.search(pattern)]
    problems += unknown_names(plain, apps)
    pairs = []
    for target in asking:
        giving = [one for one in sources if one is not target and _fits(target.application, one.application, promotion)]
        entries = [sub for one in giving for sub in one.subscriptions if _named(sub, promotion.images)]
        if giving:
            pairs.append(Pair(target, tuple(entries)))
    if not (pairs or problems):
        patterns = " ".join((*promotion.targets, promotion.target_selector)).strip()
        problems.append(_nobody("--to", patterns))
    for name in promotion.images:
        if not any(_named(sub, (name,)) for one in sources for sub in one.subscriptions):
            hint = "name an alias of the annotation image-list, or the image as it stands there"
            problems.append(Problem("", "annotation", f"--image {name}: no source has it", hint))
    return pairs, problems


def _nobody(flag: str, text: str) -> Problem:
    hint = "see what --applications reads; only Applications with an image-list count"
    return Problem("", "source", f"{flag}: no Application fits {text!r}", hint, exit=int(Exit.CONFIGURATION))


def _fits(target: Application, source: Application, promotion: Promotion) -> bool:
    facts = {name: escape(text) for name, text in _facts(source).items()}
    filled = tuple(_PLACEHOLDER.sub(lambda found: facts[found[1]], one) for one in promotion.targets)
    return considered(target, Narrow(filled, selector=promotion.target_selector))


def _named(sub: Subscription, names: Sequence[str]) -> bool:
    return not names or bool({sub.entry.alias, sub.entry.image.name, sub.entry.image.identity} & set(names))


def wanted(pairs: Iterable[Pair], promotion: Promotion) -> list[Subscription]:
    """The entries of sources whose version matters to any target; each once."""
    found = {
        id(source): source
        for pair in pairs
        for sub in pair.target.subscriptions
        for source in _givers(sub, pair.sources, promotion)
    }
    for pair in pairs:  # an entry that is broken names its image as well
        broken = {flaw.entry.image.identity for flaw in pair.target.flaws if flaw.entry}
        found |= {id(one): one for one in pair.sources if one.entry.image.identity in broken}
    return list(found.values())


def _givers(sub: Subscription, sources: Iterable[Subscription], promotion: Promotion) -> list[Subscription]:
    """The entries that a target's entry may take from: those of the same image, the same alias among them first.

    Another image of the same alias is meant only if `--image` names that alias.
    """
    sources = list(sources)
    same = [one for one in sources if one.entry.image.identity == sub.entry.image.identity]
    alias = sub.entry.alias
    if same:
        return [one for one in same if one.entry.alias == alias] or same
    return [one for one in sources if alias and alias in promotion.images and one.entry.alias == alias]


def asks_to_promote(pairs: Iterable[Pair], known: Sequence[SourceVersion], promotion: Promotion) -> Matched:
    """An ask for each entry that gets a version, and the decisions about those that get none.

    Raises `UsageError` where sources have different versions for one target.
    """
    by_entry = {id(one.subscription): one for one in known}
    asks: list[Ask] = []
    decisions: list[Decision] = []
    problems: list[Problem] = []
    for pair in pairs:
        target = pair.target
        for sub in target.subscriptions:
            givers = [by_entry[id(one)] for one in _givers(sub, pair.sources, promotion)]
            if givers:
                found = _ask(sub, _one_of(sub, givers), target)
                refusal = _refusal(found, givers, promotion)
                decisions += [refusal] if refusal else []
                asks += [] if refusal else [found]
        images = [by_entry[id(one)].image for one in pair.sources if id(one) in by_entry]
        flawed = asks_for_images([replace(target, subscriptions=())], images)
        decisions += flawed.decisions
        problems += flawed.problems
    return Matched(tuple(asks), tuple(decisions), tuple(problems))


def _ask(sub: Subscription, given: SourceVersion, target: Subscribed) -> Ask:
    image = replace(sub.entry.image, tag=given.image.tag, digest=given.image.digest)
    return Ask(sub, (image,), siblings=siblings_of(sub, target), build=given.build, source=given.source)


def _one_of(sub: Subscription, givers: Sequence[SourceVersion]) -> SourceVersion:
    """What all of them have; the one that says most of it. Raises `UsageError` where they differ."""
    known = [one for one in givers if one.error is None] or givers
    best = max(known, key=lambda one: (bool(one.image.digest), one.build != Build()))
    for one in known:
        if not _alike(one.image, best.image):
            first, second = sorted((one, best), key=lambda given: given.source)
            raise UsageError(
                f"{sub.application.key} would get two versions of {sub.entry.image.name}: {first.image.version} of "
                f"{first.source} and {second.image.version} of {second.source}",
                hint="let --from name one of them, or tell them apart by {namespace}, {name} or {project} in --to",
            )
    return best


def _alike(one: Image, other: Image) -> bool:
    """Whether two readings are of one version; a digest decides where both have one."""
    return one.tag == other.tag and (not (one.digest and other.digest) or one.digest == other.digest)


def _refusal(ask: Ask, givers: Sequence[SourceVersion], promotion: Promotion) -> Decision | None:
    """The decision about a target whose source cannot or may not give its version."""
    current = live_reading(ask.subscription)
    for one in givers:
        if one.error:
            because = f"{one.source}: {one.error.message}"
            verdict = Verdict("error", one.error.rule, because, one.error.hint, int(one.error.exit))
            return Decision(ask.subscription, ask.offered, verdict, current, source=ask.source)
        if promotion.healthy and (why := unhealthy(one)):
            verdict = Verdict("refuse", "not-healthy", f"{one.source} {why}")
            return Decision(ask.subscription, ask.offered, verdict, current, source=ask.source)
    return None


def unhealthy(one: SourceVersion) -> str:
    """Why a source is not Synced and Healthy with what Git says of it; "" where it is."""
    app = one.subscription.application
    if not (app.sync or app.health):
        return "has no status of Argo CD: read Applications from cluster or argocd"
    if app.sync != "Synced":
        return f"is not synced: Argo CD says {app.sync or 'nothing'}"
    if app.health != "Healthy":
        return f"is not healthy: Argo CD says {app.health or 'nothing'}"
    running = all_live(one.subscription)
    if any(_runs(one.image, image) for image in running):
        return ""
    versions = ", ".join(dict.fromkeys(image.version for image in running)) or "nothing of it"
    return f"does not run {one.image.version}: Argo CD says {versions}"


def _runs(wanted: Image, running: Image) -> bool:
    if wanted.digest and running.digest:
        return wanted.digest == running.digest
    return bool(wanted.tag) and wanted.tag == running.tag

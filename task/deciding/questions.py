"""Pure code that finds what to ask about builds beyond the event and Git, and applies the answers.

A fact is asked only if a rule needs it. With semver and alphabetical, a run asks nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from task.deciding.job import Promoted
from task.errors import AnnotationError, Exit, TaskError
from task.model import (
    Answer,
    Build,
    Decision,
    Fact,
    Image,
    Memory,
    Policy,
    Question,
    Reading,
    Subscription,
    Unchecked,
    Verdict,
    Written,
)
from task.policy.judge import objection
from task.policy.order import commits, compare, version_of
from task.policy.platforms import accepts
from task.policy.strategies import needs, rules_of


@dataclass(frozen=True)
class Offer:
    """One image on offer, and what is known about its build."""

    image: Image
    build: Build
    pinned: bool = False  # whether the digest is written even if no rule requires it
    promoted: Promoted | None = None  # of `promote`


@dataclass(frozen=True)
class Questions:
    """The questions to answer before deciding."""

    ancestry: tuple[tuple[str, str, str], ...] = ()  # (repository, new commit, old commit)
    registry: tuple[Question, ...] = ()


def question_about(sub: Subscription, image: Image) -> Question:
    """Return the question about an image, with its login, and without facts yet."""
    image = replace(sub.entry.image, tag=image.tag, digest=image.digest)
    return Question(image, (), sub.policy.platforms, sub.policy.pull_secret, sub.application.namespace)


def may_ask(sub: Subscription, check: str) -> bool:
    """Tell whether a decision about this entry can need a registry."""
    policy = sub.policy
    curious = policy.pin_digest or policy.platforms or rules_of(policy).needs
    return check != "never" and bool(check == "always" or curious)


def facts_of(
    sub: Subscription, offer: Offer, current: Reading, memory: Memory, check: str
) -> tuple[tuple[Question, Fact], ...]:
    """Return the facts needed to decide about an offer over `current`, one at a time."""
    policy, image, build = sub.policy, offer.image, offer.build
    about = question_about(sub, image)
    found: list[tuple[Question, Fact]] = []
    if not image.digest and needs(policy, "digest"):
        found.append((about, "digest"))
    if policy.platforms:
        found.append((about, "platforms"))
    if check == "always":
        found.append((about, "exists"))
    if not needs(policy, "created") or not _counts(image, current, policy):
        return tuple(found)
    known = memory.written
    old = known.build if known and version_of(known) == version_of(current) else Build()
    if check != "always" and old == Build() and (build.sequence is not None or build.commit):
        return tuple(found)  # the first build with an identity; it distinguishes the next one
    if not build.created and not _told_apart(build, old):
        found.append((about, "created"))
        found += [] if old.created else [(question_about(sub, image_of(sub, current)), "created")]
    elif build.created and not old.created and not _told_apart(build, old):
        found.append((question_about(sub, image_of(sub, current)), "created"))
    return tuple(found)


def _counts(image: Image, current: Reading, policy: Policy) -> bool:
    """Tell whether the tag in Git may be the newer one. It is not if the rules no longer admit it."""
    if not version_of(current) or (image.tag == current.tag and image.digest in ("", current.digest)):
        return False
    return not current.tag or objection(current.tag, policy) is None


def _told_apart(new: Build, old: Build) -> bool:
    """Tell whether the builds differ by more than the date, or may. Git's history is asked before the registry."""
    no_dates = (replace(new, created=""), replace(old, created=""))
    return bool(compare(*no_dates, {}).relation) or commits(*no_dates) is not None


def image_of(sub: Subscription, current: Reading) -> Image:
    """Return the image that Git has now."""
    return replace(sub.entry.image, tag=current.tag, digest=current.digest)


def combined(needed: Iterable[tuple[Question, Fact]]) -> tuple[Question, ...]:
    """Combine the facts into one question for each image."""
    found: dict[Question, dict[Fact, None]] = {}
    for about, fact in needed:
        found.setdefault(about, {})[fact] = None
    return tuple(replace(about, facts=tuple(facts)) for about, facts in found.items())


def registry_objection(sub: Subscription, answer: Answer | None) -> Verdict | None:
    """Return the refusal or error that follows from the registry's answer, or None."""
    if answer is None or answer.error:
        return None
    if not answer.exists:
        return Verdict("refuse", "not-in-registry", "the registry has no such image")
    wanted = sub.policy.platforms
    if wanted and answer.platforms and not suits(wanted, answer.platforms):
        has = ", ".join(answer.platforms[:10])
        return Verdict("refuse", "platforms", f"the image is for {has}, and platforms wants {', '.join(wanted)}")
    return None


def suits(wanted: Sequence[str], platforms: Iterable[str]) -> bool:
    """Tell whether an image is for one of the wanted platforms."""
    return any(accepts(wanted, *_parts(one)) for one in platforms)


def _parts(platform: str) -> tuple[str, str, str]:
    os, _, rest = platform.partition("/")
    arch, _, variant = rest.partition("/")
    return os, arch, variant


def registry_error(decision: Decision, error: TaskError) -> Decision:
    """Return the decision as an error, with what the registry said."""
    rule = error.rule if isinstance(error, AnnotationError) else "registry"
    return replace(decision, judged=Verdict("error", rule, error.message, error.hint, int(error.exit)))


def dated(image: Image, build: Build, answer: Answer | None) -> Written:
    """Return the build on offer, with the creation date that the registry has for it."""
    created = build.created or (answer.created if answer else "")
    return Written(image.tag, image.digest, replace(build, created=created))


def memory_with_date(memory: Memory, current: Reading, answer: Answer | None) -> Memory:
    """Return the memory, with the registry's creation date for the build that Git has now."""
    if answer is None or not answer.created:
        return memory
    known = memory.written
    if known is not None and version_of(known) != version_of(current):
        return memory
    old = known or Written(current.tag, current.digest)
    return replace(memory, written=replace(old, build=replace(old.build, created=old.build.created or answer.created)))


def unchecked(answer: Answer | None, needed: Iterable[Fact], sub: Subscription) -> Unchecked | None:
    """Return which of the needed facts are unknown, what that means and why, or None if there was an answer."""
    if answer is None or answer.error is None:
        return None
    meanings = {
        "platforms": f"not checked whether the image is for {' or '.join(sub.policy.platforms)}",
        "created": "it is not known which build is newer, so the one that arrives later counts as newer",
        "labels": "the commit message lacks the image's labels",
    }
    told = [fact for fact in dict.fromkeys(needed) if fact in meanings]
    if not told:  # only another Application has asked
        return None
    message = f"{'; '.join(meanings[fact] for fact in told)}: {answer.error.message}"
    # The image is written all the same, so to run it again would not help.
    hint = "" if answer.error.exit == Exit.TEMPORARY else answer.error.hint
    if "created" in told:
        hint = hint or "give --sequence or --created"
    return Unchecked(message, hint or "with --registry-check always, this is an error")

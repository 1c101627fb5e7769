"""Pure code for what is asked of the rules: a subscription and the images on offer; and what needs no Git to decide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from task.deciding.job import Intent, Outcome, Promoted, Terms
from task.deciding.move import error_decision
from task.errors import TaskError
from task.image import live_image
from task.model import Build, Decision, Image, Reading, Subscription, Verdict
from task.policy.judge import objection

OF_VERSIONS = ("not-a-version", "constraint")  # the rules of a strategy that compares versions


@dataclass(frozen=True)
class Ask:
    """A subscription, and the images of the event that are of its repository: one for each tag that was built."""

    subscription: Subscription
    candidates: tuple[Image, ...]
    intent: Intent | None = None
    # all subscriptions of an Application whose updates may wait on the same head branch
    siblings: tuple[Subscription, ...] = ()
    build: Build | None = None  # of the candidates; None is that of the event
    promoted: Promoted | None = None  # where `promote` found the candidate

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What identifies it, whatever the repository's config makes of its subscription."""
        return self.subscription.identity

    def terms(self, terms: Terms) -> Terms:
        """Return the terms of the run, with this ask's own build and source if it has them."""
        return terms if self.build is None else replace(terms, build=self.build, promoted=self.promoted)

    @property
    def offered(self) -> Image:
        """The image on offer. For a person's intent, it is the image that the entry names."""
        return self.candidates[0] if self.candidates else self.subscription.entry.image


def settled_without_git(ask: Ask, terms: Terms, *, config_read: bool = True) -> Decision | None:
    """Return the decision about an ask, if it does not depend on Git; otherwise None.

    Before the repository's config is read, a `tagOrder` there may still admit a tag that is no version.
    """
    if ask.intent:
        return None
    sub, first = ask.subscription, ask.candidates[0]
    if terms.require_live and not first_live(sub):
        because = f"no live image of the Application is {sub.entry.image.name} (--require-live)"
        return Decision(sub, first, Verdict("refuse", "not-live", because))
    if sub.suspended:
        return Decision(sub, first, Verdict("defer", "held", sub.suspended))
    refusals = [objection(image.tag, sub.policy) for image in ask.candidates]
    if refusals[0] is None or None in refusals:
        return None
    if not config_read and not sub.policy.tag_order and any(one and one.rule in OF_VERSIONS for one in refusals):
        return None
    return Decision(sub, first, refusals[0], live_reading(sub))


def first_live(sub: Subscription) -> Image | None:
    """Return the first live image that belongs to the entry, or has its `kustomize.image-name`."""
    return next(iter(all_live(sub)), None)


def all_live(sub: Subscription) -> tuple[Image, ...]:
    """Return the live images with the entry's `kustomize.image-name`, else those that belong to the entry."""
    live = [image for image in map(live_image, sub.application.live) if image is not None]
    names = [live_image(sub.keys.kustomize_name)] if sub.keys.kustomize_name else []
    for wanted in (*names, sub.entry.image):
        found = [image for image in live if wanted is not None and image.identity == wanted.identity]
        if found:
            return tuple(found)
    return ()


def live_reading(sub: Subscription) -> Reading:
    """Return the image that runs, from the Application's status. All fields are "" if the status does not say."""
    image = first_live(sub)
    return Reading(image.name, image.tag, image.digest) if image else Reading()


def failed_asks(asks: Iterable[Ask], error: TaskError, terms: Terms, *, config_read: bool = True) -> Outcome:
    """Return an error decision for each ask. An ask that the rules refuse without Git stays refused."""
    return Outcome(
        tuple(
            settled_without_git(ask, terms, config_read=config_read)
            or error_decision(ask.subscription, ask.offered, error)
            for ask in asks
        )
    )

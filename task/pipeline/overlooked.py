"""Pure code that finds mistakes that would otherwise go unnoticed: annotations without effect,
untracked images, and unknown names.

A run that has no effect because of a mistake must not look successful. Each of the event's
Applications gets its own warning. All other Applications share one line, so that one team's typo
does not fill every pipeline's log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from task.annotations.application import Narrow, considered, is_glob
from task.annotations.keys import Doubt, doubts
from task.errors import Exit, Trouble, UsageError
from task.image import parse_image_list
from task.model import Application, Entry, Flaw, Image, Problem, Subscribed, Tracker
from task.text import FEW, and_more, differ

LETTERS = 2  # how many characters may differ in a misspelled name


@dataclass(frozen=True)
class Seen:
    """The Applications that were read."""

    subscribed: Sequence[Subscribed]  # Applications with entries, and HelmReleases
    annotated: Sequence[Application]  # all Applications with annotations that were read
    skipped: Sequence[Application]  # only the metadata was read, because they don't use the images
    outside: Sequence[Application] = ()  # excluded by the narrowing options

    @property
    def considered(self) -> int:
        """The number of Applications that track images."""
        skipped = [app for app in self.skipped if app.annotations.get("image-list")]
        return len(self.subscribed) + len(skipped)

    @property
    def everyone(self) -> tuple[Tracker, ...]:
        """All Applications within the narrowing options."""
        # Applications with an image-list are in `annotated`, and the rest are HelmReleases.
        releases = (
            subscribed.application
            for subscribed in self.subscribed
            if "image-list" not in subscribed.application.annotations
        )
        return (*self.annotated, *releases, *self.skipped)

    def tracked(self) -> dict[str, Image]:
        """Return all images in `image-list` annotations and HelmReleases, by identity (the name
        without a tag).
        """
        # without duplicates, because many Applications have the same image-list
        texts = dict.fromkeys(
            app.annotations.get("image-list", "") for app in (*self.annotated, *self.skipped)
        )
        images: dict[str, Image] = {}
        for text in texts:
            for entry in parse_image_list(text):
                if isinstance(entry, Entry):  # otherwise, it is the error for an unreadable entry
                    images[entry.image.identity] = entry.image
        for subscribed in self.subscribed:
            for sub in subscribed.subscriptions:
                images[sub.entry.image.identity] = sub.entry.image
        return images


def unread_keys(seen: Seen, images: Collection[Image]) -> tuple[Problem, ...]:
    """Return warnings about annotations that have no effect, such as misspelled ones.

    An Application gets its own warnings if it uses one of the images, or if it does not have an
    `image-list`. All other Applications share a single warning. Without images, every Application
    with subscriptions counts as using them.
    """
    identities = {image.identity for image in images} if images else None  # None: all images
    using_apps = set()  # the keys of the Applications that use one of the images
    already_reported = set()  # (Application, annotation key) for which there is an error
    for subscribed in seen.subscribed:
        app_key = subscribed.application.key
        flaws = _flaws_of(subscribed, identities)
        if flaws or _uses_any(subscribed, identities):
            using_apps.add(app_key)
        already_reported |= {(app_key, flaw.key) for flaw in flaws if flaw.misspelled}

    problems = []
    first_keys_of_others = []  # (Application, annotation key)
    for app in (*seen.annotated, *seen.skipped):
        without_effect = {
            key: why
            for key, why in doubts(app.annotations)
            if (app.key, key) not in already_reported
        }
        if app.key in using_apps or not app.annotations.get("image-list"):
            problems += [_doubt_warning(app, key, why) for key, why in without_effect.items()]
        elif without_effect:  # the shared warning shows only one key for each Application
            first_key = next(iter(without_effect))
            first_keys_of_others.append((app.key, first_key))
    return (*problems, *about_others(first_keys_of_others, "annotations that have no effect"))


def _flaws_of(subscribed: Subscribed, identities: Collection[str] | None) -> list[Flaw]:
    """Return the mistakes (flaws) in an Application's entries for these images, which are given by
    name without a tag. None means all entries.
    """
    flaws = []
    for flaw in subscribed.flaws:
        if flaw.entry is None:
            continue
        if identities is None or flaw.entry.image.identity in identities:
            flaws.append(flaw)
    return flaws


def _uses_any(subscribed: Subscribed, identities: Collection[str] | None) -> bool:
    """Return whether an Application uses one of these images, or any image at all if `identities`
    is None.
    """
    if identities is None:
        return bool(subscribed.subscriptions)
    return any(sub.entry.image.identity in identities for sub in subscribed.subscriptions)


def _doubt_warning(app: Application, key: str, why: Doubt) -> Problem:
    """Return the warning about an annotation that has no effect."""
    return Problem(
        why.trouble.as_warning(), application=app.key, key=key, value=app.annotations[key]
    )


def about_others(keys: Iterable[tuple[str, str]], what: str) -> tuple[Problem, ...]:
    """Return at most one warning about annotations of Applications that do not use the images. The
    annotations are given as pairs (Application, annotation key).

    The warning counts the Applications, and names the first few of them, each with its first key.
    `what` completes the sentence "3 other Applications have …".
    """
    first_keys: dict[str, str] = {}
    for app, key in keys:
        first_keys.setdefault(app, key)
    number = len(first_keys)
    if not number:
        return ()
    names = [f"{app} ({key})" if key else app for app, key in sorted(first_keys.items())]
    subject = f"{number} other Applications have" if number > 1 else "one other Application has"
    message = f"{subject} {what}: {and_more(names)}"
    hint = "image-update lint shows each annotation and how to fix it"
    return (Problem(Trouble.warning("annotation", message, hint)),)


def untracked(seen: Seen, images: Sequence[Image]) -> tuple[Image, ...]:
    """Return the images that do not match any `image-list` entry, not even a broken one."""
    tracked = set()  # names without tags
    unreadable_texts = []  # the texts of entries that cannot be parsed
    for subscribed in seen.subscribed:
        for sub in subscribed.subscriptions:
            tracked.add(sub.entry.image.identity)
        for flaw in subscribed.flaws:
            if flaw.entry:
                tracked.add(flaw.entry.image.identity)
            elif flaw.text:
                unreadable_texts.append(flaw.text)

    without_entry = {image.identity: image for image in images if image.identity not in tracked}
    # an unreadable entry may match any image whose name appears in its text
    return tuple(
        image for image in without_entry.values() if not _is_mentioned(image, unreadable_texts)
    )


def _is_mentioned(image: Image, texts: Iterable[str]) -> bool:
    """Return whether one of these strings contains the last part of the image's name."""
    last_part = image.repository.rpartition("/")[2]
    return any(last_part in text for text in texts)


def untracked_problems(
    seen: Seen,
    images: Sequence[Image],
    *,
    all_were_read: bool,
    required: bool,
) -> tuple[Problem, ...]:
    """Return a warning for each of these untracked images (no Application uses them), with a hint
    that names similar tracked images. If a match is `required`, return errors instead.

    `all_were_read` means that all Applications to consider were read, so the number of tracked
    images is known.
    """
    if not images:
        return ()
    tracked = seen.tracked()
    problems = []
    for image in images:
        similar = [tracked[key].name for key in _nearest(image.identity, tracked)]
        if len(similar) == 1:
            hint = f"did you mean {similar[0]}?"
        elif similar:
            hint = f"did you mean one of these: {', '.join(similar)}?"
        elif not all_were_read:  # the number of tracked images is unknown
            hint = "use the image name from image-list"
        elif len(tracked) > 1:
            hint = f"{len(tracked)} other images are tracked; use the image name from image-list"
        elif tracked:
            hint = "one other image is tracked; use the image name from image-list"
        else:
            hint = (
                "no Application with an image-list was found: check --applications and the filters"
            )
        message = f"no Application tracks {image.name}"
        problems.append(untracked_problem(message, hint, required=required))
    return tuple(problems)


def untracked_problem(message: str, hint: str, *, required: bool) -> Problem:
    """Return a warning about an untracked image, or an error if a match is `required`."""
    if required:
        return Problem(Trouble("untracked", message, hint, exit=Exit.NOTHING_UPDATED))
    return Problem(Trouble.warning("untracked", message, hint))


def refuse_ambiguous(names: Iterable[str], apps: Sequence[Tracker]) -> None:
    """Raise `UsageError` if a name on the command line has no namespace, and Applications in
    several namespaces have that name.

    `rollback web` must not roll back every team's `web`.
    """
    for name in names:
        if is_glob(name) or "/" in name:
            continue
        matching = {app.key for app in apps if app.name == name}
        refuse_several(name, sorted(matching))


def refuse_several(name: str, matches: Sequence[str]) -> None:
    """Raise `UsageError` if a name without a namespace has more than one match."""
    if len(matches) > 1:
        message = f"{name!r} matches Applications in several namespaces: {and_more(matches)}"
        hint = f"use {matches[0]}, or '*/{name}' for all of them"
        raise UsageError(message, hint=hint)


def unknown_names(
    names: Iterable[str],
    here: Sequence[Tracker],
    outside: Sequence[Tracker] = (),
    *,
    strict: bool = False,
    narrowing: str = "--namespace, --project, or --selector",
) -> tuple[Problem, ...]:
    """Return an error for each name on the command line that no Application in `here` has, and a
    warning for each pattern (`web-*`) without a match (an error if `strict`).

    `outside` are the Applications excluded by the options in `narrowing`.
    """
    problems = []
    for name in names:
        only_name = Narrow((name,))
        if any(considered(app, only_name) for app in here):
            continue
        is_pattern = is_glob(name)
        if is_pattern:
            message = f"no Application matches {name!r}"
            similar = []
        else:
            message = f"there is no Application named {name!r}"
            with_namespace = "/" in name
            app_names = [app.key if with_namespace else app.name for app in (*here, *outside)]
            similar = _nearest(name, app_names)

        is_excluded = any(considered(app, only_name) for app in outside)
        hint = "use an Application that is in --applications and has Image Updater's annotations"
        if is_excluded:
            hint = f"check {narrowing}: an Application with that name is excluded"
        elif similar:
            hint = f"did you mean {', '.join(similar)}? Otherwise, {hint}"
        if is_pattern and not strict:
            trouble = Trouble.warning("source", message, hint)
        else:
            trouble = Trouble("source", message, hint)
        problems.append(Problem(trouble))
    return tuple(problems)


def _nearest(name: str, names: Iterable[str]) -> list[str]:
    """Return the first few names that differ from `name` by at most two characters. If there are
    none, return those with the same last part, such as `ghcr.io/acme/web` for `docker.io/web`.
    """
    # For names that differ by more than LETTERS, `differ` returns LETTERS + 1, because counting
    # further would be slow.
    differences = {other: differ(name, other, LETTERS + 1) for other in names}
    similar = sorted((number, other) for other, number in differences.items() if number <= LETTERS)
    if similar:
        return [other for _, other in similar[:FEW]]
    last_part = name.rpartition("/")[2]
    same_last_part = [other for other in differences if other.rpartition("/")[2] == last_part]
    return sorted(same_last_part)[:FEW]

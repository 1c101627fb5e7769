"""`status --fail-on`: finds the images that need attention, and since when. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from task.errors import Exit, Trouble
from task.model import Problem
from task.output.image_status import ImageStatus, Status
from task.output.status_views import differs, is_behind, name, says
from task.text import printable
from task.timestamps import epoch_seconds, readable


@dataclass(frozen=True)
class Reason:
    """A reason why an image needs attention. `since` and `words` are only called if `is_true`
    returns True, so the fields of the image that they rely on are not None.
    """

    is_true: Callable[[ImageStatus], bool]
    since: Callable[[ImageStatus], str]  # RFC 3339, or "" if unknown
    words: Callable[[ImageStatus], str]
    hint: str


def _is_on_hold(image_status: ImageStatus) -> bool:
    # a freeze is not a reason, because it ends on its own
    return image_status.hold is not None and image_status.scope != "freeze"


def _present_since(image_status: ImageStatus) -> str:
    """Return when the current version in Git was written, or "" if this is unknown because the
    newest of the image's past builds is not that version.
    """
    if not image_status.builds:
        return ""
    newest_build = image_status.builds[0]
    in_git = image_status.in_git
    if (newest_build.tag, newest_build.digest) != (in_git.tag, in_git.digest):
        return ""
    return newest_build.at


def _running_versions(image_status: ImageStatus) -> str:
    return ", ".join(dict.fromkeys(image.tag or image.digest for image in image_status.live))


REASONS: Mapping[str, Reason] = {
    "behind": Reason(
        is_behind,
        lambda image: image.newest_at,
        lambda image: (
            f"is behind: Git has {says(image)}, the registry "
            f"{image.newest.version if image.newest else ''}"
        ),
        "update it with image-update scan, or hold it",
    ),
    "held": Reason(
        _is_on_hold,
        lambda image: image.hold.at if image.hold else "",
        lambda image: f"is on hold: {image.hold.reason if image.hold else ''}",
        "end the hold with image-update release",
    ),
    "differs": Reason(
        differs,
        _present_since,
        lambda image: f"differs: Git has {says(image)}, but {_running_versions(image)} is running",
        "check the Application in Argo CD: it may be out of sync, or not synced automatically",
    ),
    "waits": Reason(
        lambda image: image.request is not None,
        lambda _one: "",  # it is unknown when a request received this version
        lambda image: (
            f"is waiting: {image.request.tag if image.request else ''} is proposed but not merged"
        ),
        "merge or close the request",
    ),
}


def late_images(found: Status, wanted: Collection[str], older_than: int) -> tuple[Problem, ...]:
    """Return an error for each image and each reason why it has needed attention for at least
    `older_than` seconds.

    `wanted` contains the reasons in `--fail-on`, such as "behind" or "held". If it is unknown how
    long a reason has applied, the image is included.
    """
    return tuple(_late_images(found, wanted, older_than))


def _late_images(
    found: Status,
    wanted: Collection[str],
    older_than: int,
) -> Iterator[Problem]:
    """Yield an error for each image and each `wanted` reason that has applied for at least
    `older_than` seconds, or for an unknown time.
    """
    now = epoch_seconds(found.at)
    for row in found.images:
        for rule, reason in REASONS.items():
            if rule not in wanted or not reason.is_true(row):
                continue
            since = reason.since(row)
            is_recent = since and now - epoch_seconds(since) < older_than
            if is_recent:
                continue
            suffix = f", since {readable(since)}" if since else ""
            message = printable(f"{name(row)} {reason.words(row)}{suffix}")
            yield Problem(
                Trouble(rule, message, reason.hint, exit=Exit.NOTHING_UPDATED),
                application=row.subscription.application.key,
            )

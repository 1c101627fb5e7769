"""Renders the result of `status` for people and programs: as JSON (docs/status.md), text, a table,
or a page.

The text, the table, and the page use the same wording. Errors and warnings are in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from task.model import Hold, Image, Verdict
from task.output.image_status import ImageStatus, OpenRequest, PastBuild, Status
from task.output.report_json import constraint_of, indented_json, problem_as_json
from task.output.report_text import rendered
from task.output.words import NOT_READ, OVERRIDDEN, VERDICTS
from task.policy.builds import hold_text
from task.policy.judge import objection
from task.policy.strategies import rules_of
from task.text import counted, printable, without_logins
from task.timestamps import readable
from task.urls import without_login

SCHEMA = "image-update/status/v1"
# Number of images whose plain data is in memory at once. With one image at a time, each
# `json.dumps` call would leave 2.6 kB for the garbage collector.
_AT_ONCE = 100


def as_json(status: Status) -> dict[str, Any]:
    """Return the status as plain data. Absent values are None, never omitted."""
    return {
        "schema": SCHEMA,
        "at": status.at or None,
        "images": [_image_as_data(image_status) for image_status in status.images],
        "errors": [problem_as_json(problem) for problem in status.problems],
    }


def json_lines(status: Status) -> Iterator[str]:
    """Yield the status as one JSON document, in chunks of whole lines.

    Building the data or text of all images at once would use more memory than the status itself.
    """
    without_images = indented_json(as_json(replace(status, images=())))
    if not status.images:
        yield f"{without_images}\n"
        return
    before, _empty_list, after = without_images.partition('"images": []')
    yield f'{before}"images": [\n'
    for start in range(0, len(status.images), _AT_ONCE):
        end = start + _AT_ONCE
        chunk = indented_json([_image_as_data(image) for image in status.images[start:end]])
        # The JSON of a chunk is a complete list. Only its elements are yielded, indented one level
        # deeper.
        elements = chunk.removeprefix("[\n").removesuffix("\n]")
        indented_elements = elements.replace("\n", "\n  ")
        has_next_chunk = end < len(status.images)
        comma = "," if has_next_chunk else ""
        yield f"  {indented_elements}{comma}\n"
    yield f"  ]{after}\n"


def _image_as_data(image_status: ImageStatus) -> dict[str, Any]:
    """Return an image's status as one element of `images` in the JSON status."""
    sub = image_status.subscription
    is_live = image_status.kind == "live"  # a live Application is not in Git
    newest = image_status.newest
    hold = image_status.hold
    request = image_status.request
    would = image_status.would
    return {
        "application": sub.application.key,
        "alias": sub.entry.alias or None,
        "image": sub.entry.image.name,
        "strategy": sub.policy.strategy,
        "constraint": constraint_of(sub),
        "repository": None if is_live else without_login(sub.repo) or None,
        "branch": None if is_live else image_status.branch or None,
        "file": image_status.in_git.file or None,
        "current": _version(image_status.in_git.tag, image_status.in_git.digest),
        "live": [_version(image.tag, image.digest) for image in image_status.live],
        "newest": _version(newest.tag, newest.digest) if newest else None,
        "too_young_until": image_status.too_young_until or None,
        "hold": _hold_as_data(hold, image_status) if hold else None,
        "deferred": _deferred_as_data(image_status),
        "pull_request": _request_as_data(request) if request else None,
        "builds": [_build_as_data(build) for build in image_status.builds],
        "would": _would_as_data(would) if would else None,
    }


def _hold_as_data(hold: Hold, image_status: ImageStatus) -> dict[str, Any]:
    """Return the member `hold` of an image in the JSON status: the hold that blocks its updates."""
    request = image_status.ends_with
    return {
        "reason": without_logins(hold.reason),
        "by": hold.by or hold.source or None,
        "at": hold.at or None,
        "until": hold.until or None,
        "scope": image_status.scope,
        "ends_with": (request.url or request.head) if request else None,
    }


def _deferred_as_data(image_status: ImageStatus) -> dict[str, Any] | None:
    """Return the member `deferred` of an image in the JSON status: the build that is waiting
    because of a hold, and when it started to wait.
    """
    if image_status.deferred is None:
        return None
    version = _version(image_status.deferred.tag, image_status.deferred.digest)
    return {**version, "at": image_status.deferred_at or None}


def _request_as_data(request: OpenRequest) -> dict[str, Any]:
    """Return the member `pull_request` of an image in the JSON status."""
    return {
        "url": request.url or None,
        "number": int(request.number) if request.number.isdecimal() else None,
        "head": request.head,
        "tag": request.tag or None,
    }


def _build_as_data(build: PastBuild) -> dict[str, Any]:
    """Return a build as one element of an image's `builds` in the JSON status."""
    return {
        **_version(build.tag, build.digest),
        "commit": build.commit,
        "at": build.at or None,
        "by": build.by or None,
        "pipeline_run": build.pipeline_run or None,
        "proof": build.proof or None,
        "event": build.event or None,
        "url": build.url or None,
    }


def _would_as_data(verdict: Verdict) -> dict[str, str]:
    """Return the member `would` of an image in the JSON status: what a run would decide about the
    image passed to `status`.
    """
    return {
        "verdict": verdict.verdict,
        "rule": verdict.rule,
        "because": without_logins(verdict.because),
    }


def _version(tag: str, digest: str) -> dict[str, str | None]:
    return {"tag": tag or None, "digest": digest or None}


# The most important fact for each state. The states are in order of importance.
STATES = {
    "held": "hold", "waiting": "waits", "proposed": "request", "behind": "newest", "differs": "runs",
    "unknown": "newest", "ok": "would be",
}  # fmt: skip
_WOULD_BE = VERDICTS | {"update": "updated", "error": "an error"}
SCOPES = {
    "application": " (all images of the Application)",
    "image": " (this image)",
    "freeze": "",
}
DIGEST = 19  # characters of a digest, enough to distinguish it from others


def state(image_status: ImageStatus) -> str:
    """Return the most important state of an image: one of the keys of `STATES`, such as "held"."""
    if image_status.hold:
        return "held"
    if image_status.deferred:
        return "waiting"
    if image_status.request:
        return "proposed"
    if not image_status.read:
        return "unknown"
    if is_behind(image_status):
        return "behind"
    if differs(image_status):
        return "differs"
    return "unknown" if image_status.unanswered else "ok"


def is_behind(image_status: ImageStatus) -> bool:
    """Return whether the registry has a newer tag that the rules admit."""
    newest = image_status.newest
    if newest is None or not image_status.read:
        return False
    if _is_the_one_in_git(image_status, newest):
        return False
    return not _is_older(image_status, newest.tag)


def differs(image_status: ImageStatus) -> bool:
    """Return whether all running images differ from the one in Git. Return False if the running
    images or the one in Git are unknown.
    """
    if not image_status.in_git.version or not image_status.live:
        return False
    for running_image in image_status.live:
        if _is_the_one_in_git(image_status, running_image):
            return False
    return True


def ordered(status: Status) -> list[ImageStatus]:
    """Return the images sorted by urgency (those that may need attention first), then by
    Application and alias.
    """
    states = list(STATES)
    return sorted(status.images, key=lambda image_status: states.index(state(image_status)))


def note(image_status: ImageStatus) -> str:
    """Return a short explanation of an image's state: the most important fact for that state, and
    what would happen to a build if one was passed to `status`.
    """
    label_of_state = STATES[state(image_status)]
    shown_labels = ("newest", "runs", "would be")  # the other facts are clear without their labels
    parts = []
    for label, text in facts(image_status):
        if label in (label_of_state, "would be"):
            parts.append(f"{label} {text}" if label in shown_labels else text)
    return "; ".join(parts)


def name(image_status: ImageStatus) -> str:
    """Return `alias=image`."""
    entry = image_status.subscription.entry
    return f"{entry.alias}={entry.image.name}" if entry.alias else entry.image.name


def says(image_status: ImageStatus) -> str:
    """Return the version in Git in a short form."""
    if not image_status.read:
        return NOT_READ
    return _short_version(image_status.in_git.tag, image_status.in_git.digest) or "(none)"


def facts(image_status: ImageStatus) -> Iterator[tuple[str, str]]:
    """Yield the facts about an image as pairs of a label and a text, such as "runs" and "v1.2".

    Each recent build is a separate fact. All but the first have the label "".
    """
    yield "tracks", rules(image_status)
    yield _written_in(image_status)
    if image_status.live:
        running = [_short_version(image.tag, image.digest) for image in image_status.live]
        yield "runs", ", ".join(dict.fromkeys(running))
    newest = image_status.newest
    if newest:
        yield "newest", _short_version(newest.tag, newest.digest)
    elif image_status.unanswered:
        yield "newest", "unknown: the registry did not answer"
    if image_status.too_young_until:
        yield "too young", f"a newer tag, until {image_status.too_young_until}"
    if image_status.hold:
        yield "hold", _held_by(image_status, image_status.hold)
    deferred = image_status.deferred
    if deferred:
        version = _short_version(deferred.tag, deferred.digest)
        since = f", since {readable(image_status.deferred_at)}" if image_status.deferred_at else ""
        yield "waits", f"{version}{since}"
    request = image_status.request
    if request:
        place = f"in {request.url}" if request.url else f"on branch {request.head}"
        yield "request", f"{request.tag} {place}"
    if image_status.would:
        yield "would be", _verdict_words(image_status.would, image_status.overridden_by)
    for number, build in enumerate(image_status.builds):
        label = "builds" if number == 0 else ""  # the first build's label applies to all builds
        yield label, build_line(build)


def _held_by(image_status: ImageStatus, hold: Hold) -> str:
    """Return a text about the hold that blocks an image's updates: its reason and end, and the pull
    request, if any, that ends the hold when merged.
    """
    reason = without_logins(hold_text(hold)).removeprefix("held").lstrip(": ")
    words = f"{reason}{SCOPES[image_status.scope]}"
    request = image_status.ends_with
    if request is None:
        return words
    name_of_request = f"#{request.number}" if request.number else request.head
    return f"{words}; ends when {name_of_request} is merged" if name_of_request else words


def _written_in(image_status: ImageStatus) -> tuple[str, str]:
    """Return a label and a text that state the written version, and whether it is in Git or in the
    live Application.
    """
    if image_status.kind == "live":
        return "Argo CD", f"{says(image_status)} in the live Application"
    place = f" in {image_status.in_git.file}" if image_status.in_git.file else ""
    branch = f" on {image_status.branch}" if image_status.branch else ""
    repository = without_login(image_status.subscription.repo)
    return "Git", f"{says(image_status)}{place}{branch} of {repository}"


def _verdict_words(verdict: Verdict, overridden_by: str) -> str:
    """Return what a run would do, such as `updated: admitted: …`: a word for the verdict, its rule,
    and its reason. A word that would be repeated appears only once.

    `overridden_by` is the Application or alias that would write a refused image anyway.
    """
    word = _WOULD_BE[verdict.verdict]
    because = without_logins(verdict.because)
    if verdict.verdict == "defer":  # nothing has happened yet, so change the tense
        build, verb, reason = because.rpartition(" is waiting: ")
        if verb:
            because = f"{build} would wait: {reason}"
    if overridden_by:
        return (
            f"{OVERRIDDEN}: {verdict.rule}: {because};"
            f" but {overridden_by} writes it to the same place"
        )
    if verdict.rule != word:
        return f"{word}: {verdict.rule}: {because}"
    if because.startswith(word):
        return because
    return f"{word}: {because}"


def rules(image_status: ImageStatus) -> str:
    """Return the rules for an image's tags and updates, such as `semver ~1.2; pin-digest`."""
    sub = image_status.subscription
    policy = sub.policy
    constraint = constraint_of(sub) or ""
    words = [f"{policy.strategy} {constraint}".rstrip()]
    if policy.allow is not None:
        words.append(f"allow-tags {policy.allow}")
    if policy.ignore:
        words.append(f"ignore-tags {', '.join(policy.ignore)}")
    if policy.tag_order:
        words.append(f"tag-order {policy.tag_order}")
    if policy.platforms:
        words.append(f"platforms {', '.join(policy.platforms)}")
    if policy.pin_digest:
        words.append("pin-digest")
    if sub.pull_request:
        words.append("by pull request")
    if sub.head_template:
        words.append(f"to branch {sub.head_template}")
    return "; ".join(words)


def build_line(build: PastBuild) -> str:
    """Return the description of one of an image's recent builds: its version, when and by whom it
    was written, and the commit.
    """
    version = _short_version(build.tag, build.digest)
    author = f"by {build.by}" if build.by else ""
    words = (version, build.at, build.commit[:12], author, build.event, build.pipeline_run)
    return "  ".join(filter(None, words))


def summary(status: Status) -> str:
    """Return a sentence with the numbers of images, Applications, images in each state, errors, and
    warnings.
    """
    apps = {image_status.subscription.application.key for image_status in status.images}
    states = Counter(state(image_status) for image_status in status.images)
    severities = Counter(problem.severity for problem in status.problems)
    words = [f"{states[state_name]} {state_name}" for state_name in STATES if states[state_name]]
    if severities["error"]:
        words.append(counted(severities["error"], "error"))
    if severities["warning"]:
        words.append(counted(severities["warning"], "warning"))

    sentence = f"{counted(len(status.images), 'image')} of {counted(len(apps), 'Application')}"
    if words:
        sentence = f"{sentence}: {', '.join(words)}"
    if status.at:
        sentence = f"{sentence}, as of {status.at}"
    return sentence


def _is_older(image_status: ImageStatus, tag: str) -> bool:
    """Return whether a tag is older than the tag in Git.

    If Git contains no tag, or one that the rules do not admit, return False.
    """
    tag_in_git = image_status.in_git.tag
    policy = image_status.subscription.policy
    is_comparable = tag_in_git != "" and objection(tag_in_git, policy) is None
    if not is_comparable:
        return False
    return bool(rules_of(policy).older(tag, tag_in_git))


def _is_the_one_in_git(image_status: ImageStatus, image: Image) -> bool:
    """Return whether an image is, or may be, the one in Git.

    Digests are compared if both are known, and tags otherwise. If neither can be compared, the
    images may be the same.
    """
    in_git = image_status.in_git
    if in_git.digest and image.digest:
        return in_git.digest == image.digest
    if in_git.tag == image.tag or not image.tag:
        return True
    return in_git.tag == "" and in_git.digest != ""  # only the digest is in Git


def _short_version(tag: str, digest: str) -> str:
    """Return `tag@digest` with a shortened digest, or only the tag or digest if the other is ""."""
    short_digest = f"{digest[:DIGEST]}…" if len(digest) > DIGEST else digest
    return "@".join(filter(None, (tag, short_digest)))


MARKS = {
    "held": "~",
    "waiting": "~",
    "proposed": ">",
    "behind": "<",
    "differs": "-",
    "unknown": "?",
    "ok": "=",
}
SYMBOLS = {
    **MARKS,
    "held": "◷",
    "waiting": "◷",
    "proposed": "↗",
    "behind": "↓",
    "differs": "≠",
    "ok": "✓",
}
STYLES = {
    "held": "cyan", "waiting": "cyan", "proposed": "magenta", "behind": "yellow", "differs": "yellow",
    "unknown": "yellow", "ok": "dim",
}  # fmt: skip


def plain(status: Status, *, brief: bool = False) -> str:
    """Return the status as plain text: one line for each image, and a summary at the end.

    Unless `brief`, each image's line is followed by the facts about the image.
    """
    lines: list[str] = []
    for image_status in ordered(status):
        words = "  ".join(filter(None, _words(image_status, brief=brief)))
        lines.append(f"{state(image_status):8}  {words}")
        if not brief:
            lines += [f"      {label:8} {text}" for label, text in facts(image_status)]
    lines.append(summary(status))
    return "\n".join(map(printable, lines)) + "\n"


def table(status: Status, console: Console, *, brief: bool = False) -> str:
    """Return the status as text for a console: one line for each image, and a summary at the end.
    No line is wider than the console.

    Unless `brief`, each image's line is followed by the facts about the image.
    """
    symbols = SYMBOLS if console.encoding.startswith("utf") else MARKS
    images = ordered(status)
    rows: list[tuple[Text, ...]] = []
    for image_status in images:
        name_of_state = state(image_status)
        mark = f"{symbols[name_of_state]} {name_of_state:8}"
        words = _words(image_status, brief=brief)
        rows.append((Text(mark, STYLES[name_of_state]), *map(_cell, words)))

    last_line = Text(summary(status), "bold")
    if brief:
        return rendered(console, _grid(rows), last_line)
    parts: list[RenderableType] = []
    for image_status, row in zip(images, rows, strict=True):
        fact_rows = [
            (Text(f"{label:8}", "dim"), _cell(text)) for label, text in facts(image_status)
        ]
        parts.append(Text("  ").join(row))
        parts.append(Padding(_grid(fact_rows), (0, 0, 0, 6)))
    return rendered(console, *parts, last_line)


def _words(image_status: ImageStatus, *, brief: bool) -> tuple[str, str, str, str]:
    """Return the parts of an image's line: the Application, the image, the version in Git, and the
    note. The note is "" unless `brief`.
    """
    return (
        image_status.subscription.application.key,
        name(image_status),
        says(image_status),
        note(image_status) if brief else "",
    )


def _cell(text: str) -> Text:
    """Return untrusted text as the content of a table cell."""
    return Text(printable(text))


def _grid(rows: Sequence[tuple[Text, ...]]) -> Table:
    """Return a table without borders or a heading, with one column for each cell in a row."""
    grid = Table.grid(padding=(0, 2))
    if rows:
        for _ in rows[0]:
            grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


PAGE_MARKS = {
    "held": "defer", "waiting": "defer", "proposed": "update",
    "behind": "warning", "differs": "warning", "unknown": "warning",
}  # fmt: skip


def page(status: Status) -> str:
    """Return the status as an HTML page."""
    # Imported lazily, because jinja2 takes up 2 MB of a pod's memory, and most runs do not render a
    # page.
    from task.output.report_page import render  # noqa: PLC0415

    return render(
        "status.html.j2",
        status=status,
        title=summary(replace(status, at="")),
        images=ordered(status),
        problems=list(map(problem_as_json, status.problems)),
        commits=lambda image: {build.commit[:12]: build.url for build in image.builds},
        facts=facts,
        name=name,
        note=note,
        says=says,
        state=state,
        marks=PAGE_MARKS,
    )

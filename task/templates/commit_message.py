"""Renders commit messages: AIU's default text, or the output of the user's template, followed by
Git trailers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from json import dumps
from typing import TYPE_CHECKING, Any

from task.errors import Malformed
from task.templates.change import AppChanges, Change
from task.templates.go_template.values import FailedTemplate, GoMap
from task.text import shortened

if TYPE_CHECKING:
    from task.templates.go_template.template import Template

SUBJECT = 72  # characters; GitHub truncates longer subjects
DIGEST = 19  # characters of a digest, enough to distinguish it from others
MOST_LINES = 200  # maximum number of changes shown, if there are several Applications
MOST_NAMES = 100  # maximum number of Applications listed per change
MOST_TRAILERS = 50  # maximum number of trailers with the same key
LONGEST = 64 * 1024
EMPTY = "Update parameters"  # AIU's message for a template with empty output
# more than for branch names, because an operator's template may print thousands of changes
STEPS = 2_000_000
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
# `git interpret-trailers` and `git am` treat `---` as the end of a message, and `git commit
# --cleanup=scissors` does the same with a scissors line. A leading space prevents that.
DIVIDER = re.compile(r"^(?=---\s|---$|\S -{8,} >8 -{8,})", re.MULTILINE)
KEY = re.compile(r"[A-Za-z0-9-]+")
# Control characters and line endings would break the line. U+202A–202E and U+2066–2069 can reverse
# text on the screen.
_UNSAFE_IN_LINE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]+"
)
LONGEST_VALUE = 1000
# Argo CD's repo-server reads these trailers from the synced revision's commit message
REFERENCE = "Argocd-reference-commit-"

Trailer = tuple[str, str]  # key and value


@dataclass(frozen=True)
class Message:
    """A commit message, and a warning if the user's template failed."""

    text: str
    warning: str = ""


def check_template(text: str) -> None:
    """Raise Malformed if the template cannot be parsed."""
    _template_of(text)


def _template_of(text: str) -> Template:
    """Parse a template. Raises Malformed if it is invalid."""
    # Imported lazily, because most runs have no template, and the template language is slow to
    # import.
    from task.templates.go_template.template import parse  # noqa: PLC0415

    return parse(text)


def wants_labels(template: str | None) -> bool:
    """Return whether the template prints image labels, which can be read only from a registry."""
    return template is not None and ".Labels" in template


def commit_message(
    template: str | None,
    apps: Sequence[AppChanges],
    trailers: Sequence[Trailer] = (),
    lines: Sequence[str] = (),
) -> Message:
    """Return the complete commit message: the text, followed by the trailers (`Key: value` lines).

    The text is the template's output, or the default text if `template` is None or fails at run
    time. It is followed by `lines`, one for each deferred build (not written yet). The trailers
    about the changes come first, followed by `trailers`. If one of the latter has the key `Image`,
    no other trailers with that key are added.

    Raises Malformed for a template that cannot be parsed, and for an invalid trailer key.
    """
    message = message_text(template, apps)
    last_paragraph = _trailer_paragraph(apps, trailers)
    text = cleaned_message(message.text) or EMPTY
    if lines:
        held_back = [one_line(line) for line in lines[:MOST_LINES]]
        text = cleaned_message("\n".join((text, "", "Held back:", *held_back)))
    if last_paragraph:
        return replace(message, text=f"{text}\n\n{last_paragraph}")
    return replace(message, text=f"{text}\n")


def _trailer_paragraph(apps: Sequence[AppChanges], trailers: Sequence[Trailer]) -> str:
    """Return the trailers about the changes, followed by the user's `trailers`, as `Key: value`
    lines.

    If the user provides an `Image` trailer, no other trailers with that key are added.
    """
    changes = [change for app in apps for change in app.changes]
    new_images = []
    user_has_image_trailer = any(key == "Image" for key, _ in trailers)
    if not user_has_image_trailer:
        new_images = [
            replace(change.image, tag=change.new_tag, digest=change.new_digest).reference
            for change in changes
        ]
    values_by_key = {
        "Image": new_images,
        "Application": [f"{app.namespace}/{app.name}" for app in apps],
        "Promoted-From": [change.promoted_from for change in changes if change.promoted_from],
        "Proof": [f"{change.image.name} {change.proof}" for change in changes if change.proof],
        "Event": [f"{change.image.name} {change.event}" for change in changes if change.event],
    }
    own_trailers: list[Trailer] = []
    for key, values in values_by_key.items():
        own_trailers += _trailers_with_key(key, values)
    return trailer_lines([*own_trailers, *trailers])


def message_text(template: str | None, apps: Sequence[AppChanges]) -> Message:
    """Return the commit message without trailers: the template's output, or the default text if
    there is no template.

    If the template fails at run time, return the default text with a warning, as in AIU. Raises
    Malformed for a template that cannot be parsed.
    """
    if template is None:
        return Message(default_text(apps))
    try:
        return Message(_template_of(template).render(_message_template_data(apps), STEPS))
    except FailedTemplate as error:
        return Message(
            default_text(apps),
            f"the commit message template failed, so the default is used: {error.message}",
        )


def cleaned_message(text: str) -> str:
    """Return the text cleaned up as `git commit` would do it, truncated to `LONGEST`, and without
    control characters. Lines that would end the message early, such as `---`, are indented by one
    space.

    Commits are created with `git fast-import`, which does not clean up messages.
    """
    # the conditions only save time: most messages need none of these three substitutions
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.replace("\n", "").isprintable():
        text = UNSAFE.sub("", text)
    text = "\n".join(line.rstrip() for line in text[:LONGEST].split("\n"))
    if "\n\n\n" in text:
        text = re.sub(r"\n{3,}", "\n\n", text)
    text = text.strip("\n")
    if "--" in text:
        text = DIVIDER.sub(" ", text)
    return text


def default_text(apps: Sequence[AppChanges]) -> str:
    """Return the text for a message without a template: a subject line with the version, and a line
    for each distinct change with the names of its Applications.

    The wording is AIU's: `updates image acme/api tag '1.0' to '1.1' for web`.
    """
    app_names: dict[str, list[str]] = {}  # keyed by the change's line
    for app in apps:
        lines_of_app = dict.fromkeys(map(_change_line, app.changes))  # a dict, to drop duplicates
        for line in lines_of_app:
            app_names.setdefault(line, []).append(one_line(app.name))
    lines: list[str] = []
    for line, names in islice(app_names.items(), MOST_LINES):
        lines += _wrapped_lines(line, names)
    if len(app_names) > MOST_LINES:
        lines.append(f"and {len(app_names) - MOST_LINES} more changes")
    return "\n".join((_subject(apps), "", *lines, ""))


def _subject(apps: Sequence[AppChanges]) -> str:
    """Return the default text's subject line, such as "build: automatic update of web to 1.2.0".

    If there are several Applications, the subject names the image: "build: automatic update of
    acme/api to 1.2.0 for web, shop".
    """
    changes = [change for app in apps for change in app.changes]
    is_promotion = bool(changes) and all(change.promoted_from for change in changes)
    verb = "promote" if is_promotion else "automatic update of"
    versions = list(dict.fromkeys(map(new_version, changes)))
    to_version = ""
    if len(versions) > 2:
        to_version = f" to {len(versions)} versions"
    elif versions:
        to_version = f" to {' and '.join(versions)}"
    if len(apps) == 1:
        return f"build: {verb} {_app_names(apps)}{to_version}"

    image_names = {one_line(change.name) for change in changes}
    images = f"{len(image_names)} images"
    if len(image_names) == 1:
        images = image_names.pop()
    subject = f"build: {verb} {images}{to_version} for {_app_names(apps)}"
    if len(subject) > SUBJECT:
        subject = f"build: {verb} {images}{to_version} for {len(apps)} Applications"
    return subject


def new_version(change: Change) -> str:
    """Return the new tag, or the start of the new digest if the tag is unchanged or missing."""
    tag = one_line(change.new_tag)
    if tag and tag != change.old_tag:
        return tag
    short_digest = one_line(change.new_digest)[:DIGEST]
    return short_digest or tag


def old_version(change: Change) -> str:
    """Return the old tag, or the start of the old digest if the tag is unchanged or missing.

    This equals `new_version` of the reverse change.
    """
    reverse_change = replace(
        change,
        new_tag=change.old_tag,
        new_digest=change.old_digest,
        old_tag=change.new_tag,
    )
    return new_version(reverse_change)


def _change_line(change: Change) -> str:
    """Return the change's line in the default text, without the names of the Applications: `updates
    image acme/api tag '1.0' to '1.1'`.
    """
    name = one_line(change.name)
    old = one_line("@".join(filter(None, (change.old_tag, change.old_digest))))
    new = one_line("@".join(filter(None, (change.new_tag, change.new_digest))))
    line = f"updates image {name} tag '{old}' to '{new}'"
    if change.promoted_from:
        line += f", promoted from {one_line(change.promoted_from)}"
    return line


def _wrapped_lines(line: str, names: Sequence[str]) -> list[str]:
    """Return a change's line, wrapped at `SUBJECT` characters, with the names of its Applications
    at the end.

    At most `MOST_NAMES` names are listed.
    """
    first_name, *other_names = names[:MOST_NAMES]
    words = [f"for {first_name},", *(f"{name}," for name in other_names)]
    if len(names) > MOST_NAMES:
        words.append(f"and {len(names) - MOST_NAMES} more")
    finished_lines = []
    current_line = line
    for word in words:
        if len(f"{current_line} {word}") > SUBJECT:
            finished_lines.append(current_line)
            current_line = "   "  # the indentation minus the space that precedes each word
        current_line = f"{current_line} {word}"
    return [*finished_lines, current_line.rstrip(",")]  # no comma after the last name


def _app_names(apps: Sequence[AppChanges]) -> str:
    """Return the names of the Applications, separated by commas."""
    return ", ".join(one_line(app.name) for app in apps)


def distinct_changes(apps: Sequence[AppChanges]) -> list[Change]:
    """Return the changes to all Applications, without duplicates."""
    changes: dict[tuple[str, str, str], Change] = {}
    for app in apps:
        for change in app.changes:
            changes.setdefault(_name_and_versions(change), change)
    return list(changes.values())


def _name_and_versions(change: Change) -> tuple[str, str, str]:
    """Return the image's name, the old version, and the new version as they appear in a message.

    Changes that look the same in a message are treated as duplicates.
    """
    return one_line(change.name), one_line(change.old), one_line(change.new)


def _message_template_data(apps: Sequence[AppChanges]) -> Mapping[str, Any]:
    """Return the data for a commit message template: AIU's fields, and our own `.Applications`."""
    # If several Applications have labels with the same name, the first Application's label wins.
    changes_in_reverse = [change for app in reversed(apps) for change in reversed(app.changes)]
    return {
        "AppName": _app_names(apps),
        "AppChanges": _changes_data(apps),
        "Labels": _labels_of_images(changes_in_reverse),
        "Applications": [
            {
                "Name": one_line(app.name),
                "Namespace": one_line(app.namespace),
                "Changes": _changes_data([app]),
            }
            for app in apps
        ],
    }


def _changes_data(apps: Sequence[AppChanges]) -> list[dict[str, Any]]:
    """Return the changes, without duplicates, as the template field `.AppChanges` or `.Changes`."""
    data = []
    for change in distinct_changes(apps):
        name, old, new = _name_and_versions(change)
        data.append(
            {
                "Image": name,
                "OldTag": old,
                "NewTag": new,
                "Labels": _labels_of_images([change]),
            }
        )
    return data


def _labels_of_images(changes: Iterable[Change]) -> Mapping[str, str]:
    """Return the labels of all images. If two labels have the same name, the last one wins."""
    return GoMap(
        {one_line(key): one_line(text) for change in changes for key, text in change.labels.items()}
    )


def _trailers_with_key(key: str, values: Sequence[str]) -> list[Trailer]:
    """Return a trailer with this key for each distinct value, at most `MOST_TRAILERS`.

    If there are more values, add a trailer with the total number, such as `Application-Count: 80`.
    """
    distinct_values = list(dict.fromkeys(values))
    trailers = [(key, value) for value in distinct_values[:MOST_TRAILERS]]
    if len(distinct_values) > MOST_TRAILERS:
        trailers.append((f"{key}-Count", str(len(distinct_values))))
    return trailers


# How the subject line begins, by command. A hold is an order to keep a version, and a release ends
# it.
VERBS = {
    "hold": "hold",
    "release": "release",
    "rollback": "roll back",
    "failed": "remember a failed version of",
}


def subject(command: str, apps: Sequence[AppChanges], build: str = "", why: str = "") -> str:
    """Return the subject line for a command, such as "roll back web from 1.2 to 1.1" or "hold web:
    broken login".

    `command` is a key of `VERBS`. For any other command, the commit does not change an image, but
    only records that `build` is deferred (not written yet). `why` is the reason, used in a subject
    without versions.
    """
    verb = VERBS.get(command, f"hold back {one_line(build)} of")
    changes = [change for app in apps for change in app.changes]
    old_versions = {old_version(change) for change in changes}
    new_versions = {new_version(change) for change in changes}

    # the subject names a version only if it is the same for all changes
    end = ""
    if command == "rollback" and len(old_versions) == 1 and "" not in old_versions:
        end = f" from {old_versions.pop()}"
    if len(new_versions) == 1:
        end += f" to {new_versions.pop()}"
    elif why and not changes:
        end += f": {one_line(why)}"

    line = f"{verb} {_app_names(apps)}{end}"
    if len(line) > SUBJECT and len(apps) > 1:
        line = f"{verb} {len(apps)} Applications{end}"
    return one_line(line, 2 * SUBJECT)  # truncated only beyond twice the usual length


def hold_message(
    subject: str,
    template: str | None,
    apps: Sequence[AppChanges],
    lines: Sequence[str],
    trailers: Sequence[Trailer] = (),
) -> Message:
    """Return the message for a commit that changes holds (orders to keep a version), or that only
    records deferred builds: the subject, `lines` with one line per image, and the trailers.

    If an image changes and there is a template, the template produces the subject and the text, and
    `subject` is ignored.
    """
    changed_apps = [app for app in apps if app.changes]
    if template is not None and changed_apps:
        return commit_message(template, changed_apps, trailers, lines)
    if changed_apps:
        last_paragraph = _trailer_paragraph(changed_apps, trailers)
    else:  # the commit changes only state files
        app_trailers = [
            ("Application", f"{app.namespace}/{app.name}") for app in apps[:MOST_TRAILERS]
        ]
        last_paragraph = trailer_lines([*app_trailers, *trailers])
    body = [one_line(line) for line in lines[:MOST_LINES]]
    text = cleaned_message("\n".join((subject, "", *body))) or EMPTY
    return Message(f"{text}\n\n{last_paragraph}")


def one_line(text: str, longest: int = LONGEST_VALUE) -> str:
    """Return the text on one line, without control characters, truncated to `longest`
    characters.
    """
    line = text if text.isprintable() else _UNSAFE_IN_LINE.sub(" ", text)
    line = line.strip()
    if len(line) <= longest:
        return line
    return line[: longest - len("…")].rstrip() + "…"


def trailer_lines(trailers: Iterable[Trailer]) -> str:
    """Return the trailers as `Key: value` lines, in order, without duplicates.

    Raises Malformed for an invalid key.
    """
    lines: dict[str, None] = {}  # serves as an ordered set
    for key, value in trailers:
        if not KEY.fullmatch(key):
            raise Malformed(
                f"{key!r} is not a trailer key",
                "use letters, digits, and dashes: --trailer Ticket=ABC-1",
            )
        text = one_line(value)
        if text:
            lines[f"{key}: {text}\n"] = None
    return "".join(lines)


def commit_references(
    sha: str,
    repository: str = "",
    author: str = "",
    date: str = "",
    message: str = "",
) -> list[Trailer]:
    """Return the trailers that Argo CD uses to refer to an image's source commit, such as
    `Argocd-reference-commit-sha: …`. Return [] if `sha` is "".

    Argo CD shows them next to the synced revision. `author` is `Name <address>`, and `date` is RFC
    3339. The commit message's body is encoded as a JSON string, as Argo CD expects. Empty values
    are skipped.
    """
    if not sha:
        return []
    subject, _, body = message.strip().partition("\n")
    body = body.strip()
    values = {
        "author": author,
        "date": date,
        "subject": subject,
        "sha": sha.lower(),
        "repourl": repository,
    }
    if body:
        # Truncate the body before encoding it, because a truncated JSON string cannot be parsed. An
        # escape takes up to six characters (\u2026), or twelve for an emoji (a surrogate pair). The
        # two quotes take fewer characters than one escape.
        longest_escape = 12 if max(body) > "\uffff" else 6
        longest_body = LONGEST_VALUE // longest_escape - 2
        values["body"] = dumps(shortened(body, longest_body))
    return [(REFERENCE + variable, value) for variable, value in values.items() if value.strip()]


def trailer_of(message: str, key: str, about: str = "") -> str:
    """Return the value of the first trailer with this key at the end of a commit message, or "".

    If `about` is set, only values that begin with that word are considered, and the rest of the
    value is returned: for the key "Proof" and an image, `ghcr.io/acme/api signed` yields `signed`.
    """
    _, _, last_paragraph = message.replace("\r\n", "\n").rstrip("\n").rpartition("\n\n")
    start_of_value = f"{about} " if about else ""
    for line in last_paragraph.split("\n"):
        line_key, colon, value = line.partition(":")
        if not colon or line_key.lower() != key.lower():
            continue
        value = value.strip()
        if value.startswith(start_of_value):
            return one_line(value.removeprefix(about).strip())
    return ""


def build_trailers(
    source_commit: str = "",
    pipeline_run: str = "",
    more: Sequence[Trailer] = (),
    references: Sequence[Trailer] = (),
) -> tuple[Trailer, ...]:
    """Return all trailers in order: first those about the build (`Source-Commit` and
    `Pipeline-Run`, unless empty), then `more` (the user's own), and finally `references` (which
    Argo CD shows).
    """
    trailers: list[Trailer] = []
    if source_commit:
        trailers.append(("Source-Commit", source_commit))
    if pipeline_run:
        trailers.append(("Pipeline-Run", pipeline_run))
    return (*trailers, *more, *references)

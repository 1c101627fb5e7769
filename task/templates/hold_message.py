"""Makes the message of a commit that holds, releases, rolls back, or only remembers an event."""

from __future__ import annotations

from collections.abc import Sequence

from task.templates.commit_message import (
    EMPTY,
    MOST_LINES,
    MOST_TRAILERS,
    SUBJECT,
    AppChanges,
    Message,
    commit_message,
    tidy,
)
from task.templates.trailers import Trailer, one_line, trailer_lines

VERBS = {"hold": "hold", "release": "release", "rollback": "roll back"}


def subject(command: str, apps: Sequence[AppChanges]) -> str:
    """Return the subject line: what the command does with these Applications."""
    verb = VERBS.get(command, "remember for")
    line = f"{verb} {', '.join(one_line(app.name) for app in apps)}"
    return line if len(line) <= SUBJECT or len(apps) == 1 else f"{verb} {len(apps)} Applications"


def hold_message(
    subject: str,
    template: str | None,
    apps: Sequence[AppChanges],
    lines: Sequence[str],
    trailers: Sequence[Trailer] = (),
) -> Message:
    """Return the message: subject, one line for each image, trailers.

    If an image changes and the user has a template, the template makes subject and text, as for any update.
    """
    changing = [app for app in apps if app.changes]
    if template is not None and changing:
        return commit_message(template, changing, trailers, lines)
    body = [one_line(line) for line in lines[:MOST_LINES]]
    if changing:  # take the trailers, the last paragraph, from the message that an update would have
        last = commit_message(None, changing, trailers).text.rstrip("\n").rpartition("\n\n")[2] + "\n"
    else:
        names = (f"{app.namespace}/{app.name}" for app in apps[:MOST_TRAILERS])
        last = trailer_lines((*(("Application", name) for name in names), *trailers))
    text = tidy("\n".join((subject, "", *body))) or EMPTY
    return Message(f"{text}\n\n{last}")

"""The message of a commit that holds, releases, rolls back or remembers."""

from __future__ import annotations

from collections.abc import Sequence

from task.templates.commit_message import EMPTY, MOST_LINES, SUBJECT, AppChanges, Message, commit_message, tidy
from task.templates.trailers import Trailer, one_line, trailer_lines

VERBS = {"hold": "hold", "release": "release", "rollback": "roll back"}


def subject(command: str, apps: Sequence[AppChanges]) -> str:
    """What is done with these Applications, in one line."""
    verb = VERBS.get(command, "remember for")
    line = f"{verb} {', '.join(one_line(one.name) for one in apps)}"
    return line if len(line) <= SUBJECT or len(apps) == 1 else f"{verb} {len(apps)} Applications"


def hold_message(
    subject: str,
    template: str | None,
    apps: Sequence[AppChanges],
    told: Sequence[str],
    trailers: Sequence[Trailer] = (),
) -> Message:
    """Subject, one line for each image, trailers. If an image changes, the user's own template is used, if any."""
    changing = [one for one in apps if one.changes]
    if template is not None and changing:
        return commit_message(template, changing, trailers)
    body = [one_line(line) for line in told[:MOST_LINES]]
    if changing:  # the trailers are the last paragraph of the message that an update would have
        own = commit_message(None, changing, trailers).text.rstrip("\n").rpartition("\n\n")[2] + "\n"
    else:
        own = trailer_lines((*(("Application", f"{one.namespace}/{one.name}") for one in apps[:50]), *trailers))
    text = tidy("\n".join((subject, "", *body))) or EMPTY
    return Message(f"{text}\n\n{own}")

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
    new_version,
    old_version,
    tidy,
)
from task.templates.trailers import Trailer, one_line, trailer_lines

VERBS = {"hold": "hold", "release": "release", "rollback": "roll back"}


def subject(command: str, apps: Sequence[AppChanges], build: str = "", why: str = "") -> str:
    """Return the subject line: what the command does with these Applications, to which version, or why.

    A run that only keeps `build` back says so.
    """
    verb = VERBS.get(command, f"hold back {one_line(build)} of")
    changes = [change for app in apps for change in app.changes]
    olds, news = ({f(change) for change in changes} for f in (old_version, new_version))
    end = f" from {olds.pop()}" if command == "rollback" and len(olds) == 1 and "" not in olds else ""
    end += f" to {news.pop()}" if len(news) == 1 else f": {one_line(why)}" if why and not changes else ""
    line = f"{verb} {', '.join(one_line(app.name) for app in apps)}"
    line = line if len(line + end) <= SUBJECT or len(apps) == 1 else f"{verb} {len(apps)} Applications"
    return one_line(line + end, 2 * SUBJECT)


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

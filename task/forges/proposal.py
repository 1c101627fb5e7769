"""A pull request's title and body, within a forge's limits, and the hidden marks in the body.

Images, tags, and names come from others, so `task.output.markdown` shows them as code.

The marks delimit our part, and store data for later runs. People may add text before and after our
part, and change the title: both are kept. The marks also record the labels and people that were
set. If one of these is missing from the request, a person has removed it. Those that are not
recorded still have to be set. The proposed and declined builds are read from the head branch's
list, not from the body.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from unicodedata import east_asian_width

from task.command_kinds import kind_of
from task.model import Proposal, Proposed
from task.output.markdown import Row, code, folded, link
from task.output.markdown import builds as table_of
from task.templates.change import AppChanges, Change
from task.templates.commit_message import one_line
from task.text import counted

LONGEST_TITLE = 255  # characters: the limit of GitLab, Gitea, and Bitbucket
# Maximum characters in a body, according to the forges' documentation and error messages. Forges
# not listed here accept as many as GitHub.
LONGEST_BODY: Mapping[str, int] = {
    "github": 65_536,
    "bitbucket": 32_768,
    "bitbucket-server": 32_768,
    "azure": 4_000,
}
LIFE = """\
- **you merge it**: the changes go to the base branch, and Argo CD deploys them.
- **you close it**: these builds and older ones are skipped. A newer build opens another request. A rollback's hold ends; a hold that was to end with the merge stays in place.
- **you push to it**: your commit is kept. Later builds are committed on top of it.
- **you change its title, labels, or people, or add text before or after this block**: your changes are kept.
- **a newer build arrives**: it replaces the older one."""
ROOM_FOR_IMAGES = 120  # maximum characters for the versions of several images in a title
ROOM_FOR_LATER = 300  # characters for the marks that record the title, labels, and people
# An invisible character that breaks up mentions and references.
BREAK = "\u200b"
MENTION = re.compile(r"(?<!\w)([@#!$%&~^])(?=\w)|\b(GH-)(?=\d)")
COMMENT = re.compile(r"<!--|\[//\]")
TRAILER = re.compile(r"[A-Za-z0-9-]+: \S.*")
FENCE = re.compile(r"`{3,}")
# Hidden text: an HTML comment, or, if HTML is shown as text, an unused link definition.
HIDDEN = "<!-- {}: {} -->"
HIDDEN_WITHOUT_HTML = "[//]: # ({}: {})"
WITHOUT_HTML = ("bitbucket", "bitbucket-server")
BEGIN = "image-update-begin"
END = "image-update-end"
DESCRIBED = "image-update-commit"
TITLE = "image-update-title"
SETTLED = "image-update-set"
ABOUT = {
    BEGIN: (
        "Image Update replaces the text between its markers, and keeps the text before and after"
        " them"
    ),
    END: "the text below is kept",
}
HIDING = r"(?:<!--|\[//\]: # \()\s*"
ANY = re.compile(rf"^{HIDING}image-update(?:-[a-z]+)?: .*$", re.MULTILINE)
SEPARATOR = "\n\n"  # a blank line between the parts of a body
SHOWN_DIGEST = 19  # characters: `sha256:` and twelve digits
KEY = 8  # number of hexadecimal digits in the key of a label or person


@dataclass(frozen=True)
class Content:
    """The parts of a pull request's body."""

    apps: Sequence[AppChanges]
    text: str = ""  # from the author's template, without subject and trailers (`message_parts`)
    # Links for the reader. Empty ones are omitted.
    source: str = ""  # the source commit's page, else its id
    run: str = ""  # the pipeline's web page
    compare: str = ""  # the forge's page comparing base and head
    commit: str = ""  # the described head commit; "" if unknown
    base: str = ""  # the request's base branch
    # Markdown below the table, if there is room: the source range, and how to undo the change
    besides: Sequence[str] = ()


def longest_body(forge: str) -> int:
    """Return the maximum number of characters that a forge allows in a body or comment."""
    return LONGEST_BODY.get(forge, 65_536)


def title(message: str) -> str:
    """Return the commit message's first line as a title: truncated to the forges' limit, and
    without mentions.
    """
    first_line = message.strip().partition("\n")[0]
    # leaves room for the invisible breaks in mentions
    shortened = one_line(first_line, LONGEST_TITLE - 20)
    return _without_mentions(shortened)[:LONGEST_TITLE]


def headline(
    command: str,
    subject: str,
    apps: Sequence[AppChanges],
    back: Sequence[AppChanges] = (),
) -> str:
    """Return a pull request's title: `web: ghcr.io/acme/web 1.0.0 → 1.1.0`, or for several
    Applications, `3 Applications: …`.

    `apps` contains each Application's changes, and `back` only the rollbacks requested by a person.
    If there are any rollbacks, the title mentions only these, so that it does not depend on other
    waiting builds. For a `command` run by a person, the title begins with the commit's `subject`.
    """
    if back:
        back_names, back_changes = _in_short(back)
        return title(f"roll back {back_names}: {back_changes}")
    if not apps:
        return title(subject)
    names, changes = _in_short(apps)
    kind = kind_of(command)
    is_automatic_update = kind.writes and not kind.by_hand
    if is_automatic_update:
        return title(f"{names}: {changes}")
    if subject.endswith(f" {names}"):  # the names need not be repeated
        return title(f"{subject}: {changes}")
    return title(f"{subject}; {names}: {changes}")


def _in_short(apps: Sequence[AppChanges]) -> tuple[str, str]:
    """Return two short texts for a title, such as `web` and `ghcr.io/acme/web 1.0.0 → 1.1.0`: one
    for the Applications, and one for their changes.
    """
    names = apps[0].name if len(apps) == 1 else f"{len(apps)} Applications"
    changes = [change for app in apps for change in app.changes]
    # each image's (name, new tag, new digest), without duplicates
    images = dict.fromkeys((change.image.name, *_version(change)) for change in changes)
    if len(images) > 1:
        return names, _each_in_short(list(images))
    return names, _one_in_short(changes)


def _one_in_short(changes: Sequence[Change]) -> str:
    """Return the image, the old version, and the new version: `ghcr.io/acme/web 1.0.0 → 1.1.0`.

    All `changes` must set the same image to the same new version. If their old versions differ, no
    old version is shown.
    """
    image_name = changes[0].image.name
    new_tag, new_digest = _version(changes[0])
    old_versions = {(change.old_tag, change.old_digest) for change in changes}
    old_tag = ""
    old_digest = ""
    if len(old_versions) == 1:
        old_tag, old_digest = old_versions.pop()

    only_digest_changes = not new_tag or old_tag == new_tag
    old = _tag_or_digest(old_tag, old_digest, both=only_digest_changes)
    new = _tag_or_digest(new_tag, new_digest, both=only_digest_changes)
    return " ".join(filter(None, (image_name, old, "→", new)))


def _tag_or_digest(tag: str, digest: str, *, both: bool) -> str:
    """Return the tag, or the shortened digest if there is no tag. With `both`, return the tag and
    the digest, such as `latest@sha256:0123456789ab`.
    """
    if tag and not both:
        return tag
    return "@".join(filter(None, (tag, digest[:SHOWN_DIGEST])))


def _each_in_short(images: Sequence[tuple[str, str, str]]) -> str:
    """Return as many new versions of the `images` (name, tag, digest) as fit in a title, but at
    least one, and the number of the remaining images: `web 1.1.0, api 2.0.0 and 3 more images`.

    After a squash merge, the title is the only record of the versions in the base's history.
    """
    versions = []
    for name, tag, digest in images:
        last_part = name.rpartition("/")[2]
        versions.append(f"{last_part} {tag or digest[:SHOWN_DIGEST]}")

    shown = versions[:1]  # the first is always shown, however long it is
    for version in versions[1:]:
        length_so_far = sum(map(len, shown))
        if length_so_far + len(version) > ROOM_FOR_IMAGES:
            break
        shown.append(version)
    omitted = len(versions) - len(shown)
    text = ", ".join(shown)
    return f"{text} and {counted(omitted, 'more image')}" if omitted else text


def message_parts(message: str) -> tuple[str, str]:
    """Return a commit message's subject, and its remaining text without trailers (lines like
    `Signed-off-by: …` at the end).
    """
    subject, _, text = message.strip().partition("\n")
    paragraphs = text.strip("\n").split("\n\n")
    last_paragraph_lines = paragraphs[-1].strip().split("\n")
    ends_with_trailers = all(TRAILER.fullmatch(line) for line in last_paragraph_lines)
    if ends_with_trailers:
        paragraphs.pop()
    return subject.strip(), "\n\n".join(paragraphs).strip()


def body(content: Content, forge: str = "") -> str:
    """Return a pull request's body as Markdown within the forge's limit: the number of changes, the
    changes, the author's text, and links.

    The body is enclosed in marks (hidden lines for later runs), which are always complete. Other
    parts are truncated or omitted if they are too long.
    """
    supports_html = forge not in WITHOUT_HTML
    mark = HIDDEN if supports_html else HIDDEN_WITHOUT_HTML
    begin = mark.format(BEGIN, ABOUT[BEGIN])
    end = mark.format(END, ABOUT[END])
    if content.commit:
        end = f"{mark.format(DESCRIBED, content.commit)}\n{end}"

    rows = _change_rows(content.apps)
    heading = ""
    if rows:
        heading = f"### Image Update: {counted(len(rows), 'change')} for {code(content.base)}"
    rows_have_source = any(row.source for row in rows)
    links = _links(content, with_source=not rows_have_source)

    # `room` is the number of characters left. The marks, the heading, and the links always fit. The
    # remaining room is for the table, then for the author's text, and then for every other part
    # that fits as a whole.
    room = longest_body(forge) - ROOM_FOR_LATER - sum(map(len, (begin, heading, links, end)))
    table = table_of(rows, room) if rows else ""
    room -= len(table) + len(SEPARATOR)
    text = _fenced(content.text, room)
    room -= len(text) + len(SEPARATOR)
    optional_parts: list[str] = []  # the parts that fit
    for part in (*content.besides, folded("What happens if …", LIFE, html=supports_html)):
        needed = len(part) + len(SEPARATOR)
        if needed <= room:
            room -= needed
            optional_parts.append(part)

    parts = (begin, heading, table, text, links, *optional_parts, end)
    return SEPARATOR.join(filter(None, parts)) + "\n"


def _links(content: Content, *, with_source: bool) -> str:
    """Return one line of Markdown with links for the reader: to the source commit (if
    `with_source`), the pipeline run, and the changes. Unknown links are omitted.
    """
    links = []
    if content.source and with_source:
        links.append(f"Built from {link(content.source)}")
    if content.run:
        links.append(f"Pipeline run: {link(content.run)}")
    if content.compare:
        links.append(f"Changes: {link(content.compare, 'compare')}")
    return " · ".join(links)


def closed_body(found: Proposed, because: str) -> str:
    """Return the new body of the pull request `found`, which we are closing. The reason replaces
    our part of the body, between our marks. Text that people added before and after it is kept.
    """
    _before, our_part, _after = split(found.body)
    mark = HIDDEN_WITHOUT_HTML if our_part.startswith("[//]") else HIDDEN
    reason = f"No updates are waiting anymore, so Image Update closed this request. {code(because)}"
    begin = mark.format(BEGIN, ABOUT[BEGIN])
    end = mark.format(END, ABOUT[END])
    return with_our_part(found.body, SEPARATOR.join((begin, reason, end)))


def _change_rows(apps: Sequence[AppChanges]) -> list[Row]:
    """Return the rows of the table of changes, one for each change of each Application.

    The same change in several files is a single row that lists the files.
    """
    rows: dict[tuple[str, ...], Row] = {}  # by (Application, image, old version, new version)
    files: dict[tuple[str, ...], list[str]] = {}  # of each row
    for app in apps:
        name = f"{app.namespace}/{app.name}" if app.namespace else app.name
        for change in app.changes:
            row = _change_row(name, change)
            key = (name, row.image, row.old, row.new)
            files_of_row = files.setdefault(key, [])
            if row.file and row.file not in files_of_row:
                files_of_row.append(row.file)
            rows[key] = row._replace(file=", ".join(files_of_row))
    return list(rows.values())


def _change_row(application: str, change: Change) -> Row:
    """Return the table row for one change of an Application in one file."""
    old = "@".join(filter(None, (change.old_tag, change.old_digest))) or "(none)"
    new = "@".join(filter(None, _version(change)))
    why = change.why
    if change.promoted_from:
        why = f"{why}, promoted from {change.promoted_from}"
    build = change.build
    source = code(build.commit[:12])
    if build.commit and build.repository.startswith(("https://", "http://")):
        source = link(f"{build.repository}/commit/{build.commit}")
    return Row(
        decision="",
        application=application,
        image=change.image.name,
        old=old,
        new=new,
        why=why,
        source=source,
        file=change.file,
        proof=change.proof,
    )


def _version(change: Change) -> tuple[str, str]:
    return change.new_tag, change.new_digest


def _fenced(text: str, room: int) -> str:
    """Return the author's text in a fenced code block with at most `room` characters in total. The
    fence is longer than any run of backticks in the text, so the text cannot close the block.

    If there is not enough room, the text is truncated, or omitted if almost nothing would fit.
    """
    # Put an invisible break after the first character of everything that starts a comment (`<`
    # BREAK `!--`), so that the text cannot contain our marks.
    without_comments = COMMENT.sub(lambda match: match[0][0] + BREAK + match[0][1:], text.strip())
    shown = _without_mentions(without_comments)
    if not shown:
        return ""
    backtick_runs = FENCE.findall(shown)
    longest_run = max(map(len, backtick_runs), default=2)  # 2: a fence has at least 3 backticks
    fence = "`" * (longest_run + 1)
    room_inside = room - 2 * len(fence) - 10  # 10: `text`, and the line ends
    if room_inside < 40:  # not enough room for anything useful
        return ""
    if len(shown) > room_inside:
        ending = "\n…"
        shown = shown[: room_inside - len(ending)].rstrip() + ending
    return f"{fence}text\n{shown}\n{fence}"


def _without_mentions(text: str) -> str:
    """Return the text with an invisible break in every mention and reference."""
    return MENTION.sub(lambda found: found[0] + BREAK, text)


def value_of(text: str, name: str, pattern: str = "[0-9a-f]{40,64}") -> str:
    """Return the value of our mark (a hidden line in the body) with this name, or "" if there is
    none.

    If several lines look like this mark, the last one is ours, because no other text follows it.
    """
    values = re.findall(rf"^{HIDING}{name}: ({pattern})\s*(?:-->|\))\s*$", text, re.MULTILINE)
    return str(values[-1]) if values else ""


def described(text: str) -> str:
    """Return the head commit that a pull request's body describes, or "" if it describes none."""
    return value_of(text, DESCRIBED)


def split(text: str) -> tuple[str, str, str]:
    """Split a pull request's body into three parts, and return these: people's text before our
    part, our part, and people's text after it. Our part is everything from our first mark to our
    last mark.

    Without marks, the whole body is the first part.
    """
    marks = list(ANY.finditer(text))
    if not marks:
        return text, "", ""
    start = marks[0].start()
    end = marks[-1].end()
    return text[:start], text[start:end], text[end:]


def with_our_part(text: str, ours: str) -> str:
    """Return a pull request's body with `ours` instead of our earlier part. If the body does not
    contain such a part, append `ours` to the body.
    """
    before, earlier_part, after = split(text)
    if not earlier_part and before.strip():
        before = f"{before.rstrip()}{SEPARATOR}"
    if not after.strip():
        after = "\n"
    return f"{before}{ours.strip()}{after}"


def with_mark(text: str, name: str, value: str) -> str:
    """Return a pull request's body with our mark (a hidden line) with this name set to this value.
    Without a value, remove the mark.
    """
    before, ours, after = split(text)
    mark = HIDDEN_WITHOUT_HTML if ours.startswith("[//]") else HIDDEN
    other_lines = [line for line in ours.split("\n") if not re.match(rf"{HIDING}{name}: ", line)]
    if value:
        new_line = mark.format(name, value)
        has_end = bool(other_lines) and f"{END}: " in other_lines[-1]
        if has_end:
            other_lines.insert(-1, new_line)  # insert before the last line
        else:
            other_lines.append(new_line)
    return before + "\n".join(other_lines) + after


def has_changed_title(found: Proposed) -> bool:
    """Return whether a person has changed the title of the pull request: the title's digest is not
    the one that the last run stored in the body.
    """
    return value_of(found.body, TITLE) != digest(found.title)


def digest(title: str) -> str:
    """Return a title's digest, which a mark in the body stores."""
    return sha256(" ".join(title.split()).encode("utf-8", "replace")).hexdigest()


def wish_key(kind: str, name: str = "") -> str:
    """Return a short key for something that a pull request should have (a wish): a label, reviewer,
    or assignee with this name, or `auto-merge`.
    """
    return sha256(f"{kind} {name}".lower().encode("utf-8", "replace")).hexdigest()[:KEY]


def wishes(proposal: Proposal) -> frozenset[str]:
    """Return the keys (see `wish_key`) of everything that a pull request should have: its labels,
    reviewers, and assignees, and auto-merge.
    """
    keys = [wish_key("label", name) for name in proposal.labels]
    keys += [wish_key("reviewer", name) for name in proposal.reviewers]
    keys += [wish_key("assignee", name) for name in proposal.assignees]
    if proposal.auto_merge:
        keys.append(wish_key("auto-merge"))
    return frozenset(keys)


def applied_wishes(text: str) -> frozenset[str]:
    """Return the keys (see `wish_key`) of everything that earlier runs have set on the pull request
    with this body.
    """
    keys = value_of(text, SETTLED, "[0-9a-f]+")  # all keys, concatenated
    return frozenset(keys[start : start + KEY] for start in range(0, len(keys), KEY))


def with_applied_wishes(text: str, keys: frozenset[str]) -> str:
    """Return the body with a mark (a hidden line) that records these keys as set."""
    return with_mark(text, SETTLED, "".join(sorted(keys)))


def lacking(proposal: Proposal, text: str) -> Proposal:
    """Return the proposal with only the labels, people, and auto-merge that no run has set yet on
    the pull request with the body `text`.
    """
    set_before = applied_wishes(text)

    def still_unset(kind: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return the `names` of this kind, such as "label", that no run has set yet."""
        return tuple(name for name in names if wish_key(kind, name) not in set_before)

    return replace(
        proposal,
        labels=still_unset("label", proposal.labels),
        reviewers=still_unset("reviewer", proposal.reviewers),
        assignees=still_unset("assignee", proposal.assignees),
        auto_merge=proposal.auto_merge and wish_key("auto-merge") not in set_before,
    )


def with_fitting_text(
    proposal: Proposal, longest: int, current: Proposed | None = None
) -> Proposal:
    """Return the proposal with its final title and body, within the forge's limits (`longest`
    characters for the body), and with the title's digest in a mark in the body.

    People's changes to the title and body of the open pull request `current`, if any, are kept.
    """
    title = _fitting_title(proposal.title)
    title_mark = digest(title)
    if current and has_changed_title(current):
        title = current.title
        title_mark = value_of(current.body, TITLE)  # so that later runs also keep the title
    body = with_mark(proposal.body, TITLE, title_mark)
    if current:  # keep people's text, and the record of what was set
        our_part = with_applied_wishes(body, applied_wishes(current.body))
        body = with_our_part(current.body, our_part)
    return replace(proposal, title=title, body=_fitting_body(body, longest))


def _fitting_body(body: str, longest: int) -> str:
    """Return the body with at most `longest` characters, if possible. Only the text in our part is
    truncated: the marks at its end and people's text around it are complete.
    """
    excess = len(body) - longest
    if excess <= 0:
        return body
    before, ours, after = split(body)
    text, _, marks = ours.rpartition(SEPARATOR)
    kept_length = max(0, len(text) - excess - len("\n…"))  # leaves room for the ellipsis
    return f"{before}{text[:kept_length]}\n…{SEPARATOR}{marks}{after}"


def _fitting_title(title: str) -> str:
    """Return the title, truncated to the forges' limit.

    Gitea 1.26 counts columns (two for a wide character), and silently truncates longer titles.
    """
    widths = [2 if east_asian_width(character) in "WF" else 1 for character in title]
    if sum(widths) <= LONGEST_TITLE:
        return title
    # the last column of each character, and how many characters fit before the ellipsis
    last_columns = list(accumulate(widths))
    fitting_length = bisect_right(last_columns, LONGEST_TITLE - 1)
    return f"{title[:fitting_length]}…"


def has_same_text(found: Proposed, proposal: Proposal) -> bool:
    """Return whether the pull request `found` already has the proposal's title and body.

    Forges change line endings and drop trailing whitespace.
    """
    same_title = normalized_text(found.title) == normalized_text(proposal.title)
    return same_title and normalized_text(found.body) == normalized_text(proposal.body)


def rewritten_by_another_run(found: Proposed, current: Proposed, proposal: Proposal) -> bool:
    """Return whether another run has changed the pull request's text since the request was `found`.
    This is the case if the `current` text describes neither the same commit as before nor the
    proposal's commit.
    """
    return described(current.body) not in (described(found.body), described(proposal.body))


def normalized_text(text: str) -> str:
    """Return the text with normalized trailing whitespace and line endings, because forges change
    both.
    """
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()

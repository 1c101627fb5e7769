"""A pull request's title and body, within a forge's limits, and the hidden marks in the body.

Images, tags, and names come from others: `task.output.markdown` shows them as code.

The marks delimit our part, and store data for later runs. People may add text before and after our
part, and change the title. Both are kept. The marks also record the labels and people that were
set: if one of them is missing, a person removed it; everything else still has to be set. The
proposed and declined builds are in the head branch's list, and are not read from here.
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
# Characters in a body, from the forges' documentation and error messages; the others accept as many
# as GitHub.
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
ROOM_FOR_IMAGES = 120  # characters in a title for the versions of several images
ROOM_FOR_LATER = 300  # for the marks of the title, and of the labels and people that were set
# Invisible; it breaks up mentions and references.
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
KEY = 8  # hexadecimal digits of the key for a label or person


@dataclass(frozen=True)
class Content:
    """The parts of a request's body."""

    apps: Sequence[AppChanges]
    text: str = ""  # from the author's own template, without subject and trailers (`message_parts`)
    # Links for the reader; "" is omitted.
    source: str = ""  # the source commit's page, else its id
    run: str = ""  # the pipeline's page
    compare: str = ""  # the page with base and head on the forge
    commit: str = ""  # the described head commit; "" if unknown
    base: str = ""  # the request's base branch
    # Markdown below the table, if there is room: the source range, and how to undo the change
    besides: Sequence[str] = ()


def longest_body(forge: str) -> int:
    """Return a forge's limit for a body or comment, in characters."""
    return LONGEST_BODY.get(forge, 65_536)


def title(message: str) -> str:
    """Return the commit message's first line, truncated to the forges' limit, and without
    mentions.
    """
    return _calling_nobody(one_line(message.strip().partition("\n")[0], LONGEST_TITLE - 20))[
        :LONGEST_TITLE
    ]


def headline(
    command: str,
    subject: str,
    apps: Sequence[AppChanges],
    back: Sequence[AppChanges] = (),
) -> str:
    """Return a title with the change (`web: ghcr.io/acme/web 1.0.0 → 1.1.0`) or the number of
    changes.

    `back` has the changes that a person rolled back. If there are any, the title mentions only
    these, so that it does not depend on other waiting builds. `subject` is the commit's subject for
    other actions by a person.
    """
    if back:
        return title("roll back {}: {}".format(*_in_short(back)))
    if not apps:
        return title(subject)
    who, what = _in_short(apps)
    if kind_of(command).writes and not kind_of(command).by_hand:
        return title(f"{who}: {what}")
    joined = ": " if subject.endswith(f" {who}") else f"; {who}: "
    return title(f"{subject}{joined}{what}")


def _in_short(apps: Sequence[AppChanges]) -> tuple[str, str]:
    """Return the Applications and their changes, in a few words each."""
    who = apps[0].name if len(apps) == 1 else f"{len(apps)} Applications"
    changes = [change for app in apps for change in app.changes]
    images = dict.fromkeys((change.image.name, *_version(change)) for change in changes)
    if len(images) > 1:
        return who, _each_in_short(list(images))
    olds = {(change.old_tag, change.old_digest) for change in changes}
    old = olds.pop() if len(olds) == 1 else ("", "")  # no version if there are several
    new = _version(changes[0])
    pinned = not new[0] or old[0] == new[0]  # the digest is what changes
    # `1.1.0`, `latest@sha256:0123456789ab`
    was, now = (
        "@".join(filter(None, (tag, digest[:19] if pinned or not tag else "")))
        for tag, digest in (old, new)
    )
    words = (changes[0].image.name, was, "→", now)
    return who, " ".join(filter(None, words))


def _each_in_short(images: Sequence[tuple[str, str, str]]) -> str:
    """Return the new version of each image, as far as it fits in a title: after a squash merge, the
    base's history has no other record.
    """
    words = [f"{name.rpartition('/')[2]} {tag or digest[:19]}" for name, tag, digest in images]
    shown = words[:1]
    for word in words[1:]:
        if sum(map(len, shown)) + len(word) > ROOM_FOR_IMAGES:
            break
        shown.append(word)
    rest = len(words) - len(shown)
    return ", ".join(shown) + (f" and {counted(rest, 'more image')}" if rest else "")


def message_parts(message: str) -> tuple[str, str]:
    """Return the subject, and the text after it without trailers."""
    subject, _, rest = message.strip().partition("\n")
    blocks = rest.strip("\n").split("\n\n")
    last_lines = blocks[-1].strip().split("\n")
    if all(TRAILER.fullmatch(line) for line in last_lines):
        blocks.pop()
    return subject.strip(), "\n\n".join(blocks).strip()


def body(content: Content, forge: str = "") -> str:
    """Return Markdown within the forge's limit: the number of changes, the changes, the author's
    text, links, and marks.

    Parts that are too long are visibly truncated. The marks are always complete, at the end.
    """
    longest = longest_body(forge)
    html = forge not in WITHOUT_HTML
    shape = HIDDEN if html else HIDDEN_WITHOUT_HTML
    begin, end = (shape.format(name, ABOUT[name]) for name in (BEGIN, END))
    described_here = [shape.format(DESCRIBED, content.commit)] if content.commit else []
    marks = "\n".join([*described_here, end])
    rows = _change_rows(content.apps)
    said = (
        ("Built from", "" if any(row.source for row in rows) else content.source, ""),
        ("Pipeline run:", content.run, ""),
        ("Changes:", content.compare, "compare"),
    )
    links = " · ".join(f"{word} {link(url, name)}" for word, url, name in said if url)
    numbers = (
        f"### Image Update: {counted(len(rows), 'change')} for {code(content.base)}" if rows else ""
    )
    left = longest - sum(map(len, (begin, numbers, links, marks))) - ROOM_FOR_LATER
    table = table_of(rows, left) if rows else ""
    text = _fenced(content.text, left - len(table) - 2)
    left -= len(table) + len(text) + 4
    fitting: list[str] = []
    for part in (*content.besides, folded("What happens if …", LIFE, html=html)):
        if len(part) + 2 <= left:
            left -= len(part) + 2
            fitting.append(part)
    parts = (begin, numbers, table, text, links, *fitting, marks)
    return "\n\n".join(part for part in parts if part) + "\n"


def closed_body(found: Proposed, because: str) -> str:
    """Return the body of a request that we close, with the reason."""
    shape = HIDDEN_WITHOUT_HTML if split(found.body)[1].startswith("[//]") else HIDDEN
    said = f"No updates are waiting anymore, so Image Update closed this request. {code(because)}"
    begin, end = (shape.format(name, ABOUT[name]) for name in (BEGIN, END))
    ours = f"{begin}\n\n{said}\n\n{end}"
    return beside(found.body, ours)


def _change_rows(apps: Sequence[AppChanges]) -> list[Row]:
    """Return a row for each change of each Application.

    A change to several files is one row.
    """
    rows: dict[tuple[str, ...], Row] = {}
    for app in apps:
        name = f"{app.namespace}/{app.name}" if app.namespace else app.name
        for change in app.changes:
            old = "@".join(filter(None, (change.old_tag, change.old_digest))) or "(none)"
            new = "@".join(filter(None, _version(change)))
            build = change.build
            why = (
                f"{change.why}, promoted from {change.promoted_from}"
                if change.promoted_from
                else change.why
            )
            at_home = build.commit and build.repository.startswith(("https://", "http://"))
            source = (
                link(f"{build.repository}/commit/{build.commit}")
                if at_home
                else code(build.commit[:12])
            )
            known = rows.get((name, change.image.name, old, new))
            files = dict.fromkeys(filter(None, (known.file if known else "", change.file)))
            row = Row(
                "",
                name,
                change.image.name,
                old,
                new,
                why,
                source=source,
                file=", ".join(files),
                proof=change.proof,
            )
            rows[name, change.image.name, old, new] = row
    return list(rows.values())


def _version(change: Change) -> tuple[str, str]:
    return change.new_tag, change.new_digest


def _fenced(text: str, room: int) -> str:
    """Return the author's text in a fenced block that the text cannot close."""
    text = _calling_nobody(
        COMMENT.sub(lambda found: found[0][0] + BREAK + found[0][1:], text.strip())
    )
    if not text:
        return ""
    longest_run = max((len(run) for run in FENCE.findall(text)), default=2)
    fence = "`" * (1 + longest_run)
    room -= 2 * len(fence) + 10
    if room < 40:  # not enough room for anything useful
        return ""
    if len(text) > room:
        text = text[: room - 2].rstrip() + "\n…"
    return f"{fence}text\n{text}\n{fence}"


def _calling_nobody(text: str) -> str:
    return MENTION.sub(lambda found: found[0] + BREAK, text)


def value_of(text: str, name: str, pattern: str = "[0-9a-f]{40,64}") -> str:
    """Return our mark's value, or "".

    The last match is our mark, because no other text comes after it.
    """
    found = re.findall(rf"^{HIDING}{name}: ({pattern})\s*(?:-->|\))\s*$", text, re.MULTILINE)
    return str(found[-1]) if found else ""


def described(text: str) -> str:
    """Return the head commit in a body, or "" if there is none."""
    return value_of(text, DESCRIBED)


def split(text: str) -> tuple[str, str, str]:
    """Return the text before our part of a body, our part with its marks, and the text after it."""
    lines = list(ANY.finditer(text))
    if not lines:
        return text, "", ""
    start = lines[0].start()
    end = lines[-1].end()
    return text[:start], text[start:end], text[end:]


def beside(text: str, ours: str) -> str:
    """Return a body with this part instead of our earlier part, or at its end."""
    before, known, after = split(text)
    if not known and before.strip():
        before = f"{before.rstrip()}\n\n"
    return f"{before}{ours.strip()}{after if after.strip() else chr(10)}"


def with_mark(text: str, name: str, value: str) -> str:
    """Return a body with our mark set to this value. Without a value, remove the mark."""
    before, ours, after = split(text)
    shape = HIDDEN_WITHOUT_HTML if ours.startswith("[//]") else HIDDEN
    lines = [line for line in ours.split("\n") if not re.match(rf"{HIDING}{name}: ", line)]
    at = len(lines) - 1 if lines and f"{END}: " in lines[-1] else len(lines)
    if value:
        lines.insert(at, shape.format(name, value))
    return before + "\n".join(lines) + after


def renamed(found: Proposed) -> bool:
    """Return whether a person has changed the request's title."""
    return value_of(found.body, TITLE) != digest(found.title)


def digest(title: str) -> str:
    """Return the digest of the title in the body's mark."""
    return sha256(" ".join(title.split()).encode("utf-8", "replace")).hexdigest()


def wish(kind: str, name: str = "") -> str:
    """Return a key for something that a request should have: a label, a reviewer, an assignee, or
    `auto-merge`.
    """
    return sha256(f"{kind} {name}".lower().encode("utf-8", "replace")).hexdigest()[:KEY]


def wishes(proposal: Proposal) -> frozenset[str]:
    """Return the keys of everything that a request should have."""
    kinds = (
        ("label", proposal.labels),
        ("reviewer", proposal.reviewers),
        ("assignee", proposal.assignees),
    )
    keys = [wish(kind, name) for kind, names in kinds for name in names]
    return frozenset([*keys, wish("auto-merge")] if proposal.auto_merge else keys)


def settled(text: str) -> frozenset[str]:
    """Return the keys of everything that runs have set on the request with this body."""
    keys = value_of(text, SETTLED, "[0-9a-f]+")
    return frozenset(keys[at : at + KEY] for at in range(0, len(keys), KEY))


def with_settled(text: str, keys: frozenset[str]) -> str:
    """Return the body with a mark for everything that is set."""
    return with_mark(text, SETTLED, "".join(sorted(keys)))


def lacking(proposal: Proposal, text: str) -> Proposal:
    """Return the proposal with only the labels and people still to be set on the request with this
    body.
    """
    known = settled(text)

    def new(kind: str, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if wish(kind, name) not in known)

    return replace(
        proposal,
        labels=new("label", proposal.labels),
        reviewers=new("reviewer", proposal.reviewers),
        assignees=new("assignee", proposal.assignees),
        auto_merge=proposal.auto_merge and wish("auto-merge") not in known,
    )


def fitted(proposal: Proposal, longest: int, now: Proposed | None = None) -> Proposal:
    """Return the proposal with a title and body within the forge's limits, and with marks for both.

    People's changes to the title and body of the open request `now` are kept. Our part of the body
    is truncated, but not its marks.
    """
    title = proposal.title
    body = proposal.body
    # Gitea 1.26 counts columns (two for a wide character), and silently truncates longer titles.
    ends = list(accumulate(2 if east_asian_width(letter) in "WF" else 1 for letter in title))
    if ends and ends[-1] > LONGEST_TITLE:
        title = f"{title[: bisect_right(ends, LONGEST_TITLE - 1)]}…"
    if now and renamed(now):
        title = now.title
        body = with_mark(body, TITLE, value_of(now.body, TITLE))
    else:
        body = with_mark(body, TITLE, digest(title))
    if now:
        body = beside(now.body, with_settled(body, settled(now.body)))
    if (more := len(body) - longest) > 0:
        before, ours, after = split(body)
        text, _, marks = ours.rpartition("\n\n")
        body = f"{before}{text[: max(0, len(text) - more - 2)]}\n…\n\n{marks}{after}"
    return replace(proposal, title=title, body=body)


def same(found: Proposed, proposal: Proposal) -> bool:
    """Return whether the request already has this text.

    Forges change line endings and drop trailing whitespace.
    """
    same_title = plain(found.title) == plain(proposal.title)
    return same_title and plain(found.body) == plain(proposal.body)


def overtaken(found: Proposed, now: Proposed, proposal: Proposal) -> bool:
    """Return whether another build has changed the text since the request was found."""
    return described(now.body) not in (described(found.body), described(proposal.body))


def plain(text: str) -> str:
    """Return the text with trailing whitespace and line endings normalized, because forges change
    both.
    """
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()

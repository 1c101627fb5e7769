"""A report → one page of HTML that needs nothing else: no script, no picture, no font, no other server.

Everything in a report was named by others. It goes through `_text`, which leaves no markup in it and shows what would
turn or hide text; a link leads to http and https only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from task.output.report_style import STYLE
from task.text import visible, web_page

JSON = Mapping[str, Any]
_NAMES = {
    "applications": "looked at", "matched": "asking for it", "updated": "updated", "unchanged": "unchanged",
    "refused": "refused", "deferred": "deferred", "failed": "failed",
}  # fmt: skip
_MARKED = ("update", "unchanged", "refuse", "defer", "error", "updated", "refused", "failed", "warning")


def page(report: JSON) -> str:
    """The page of a report that `task.output.saved_report` has checked."""
    images = [_text(one["reference"]) for one in report["images"]]
    title = f"{_text(report['command'])}: {_text(report['status'])}"
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{title}{' ' if images else ''}{', '.join(images[:3])}</title>",
        f"<style>\n{STYLE}</style>\n</head>\n<body>",
        *_header(report, images),
        *_decisions(report["decisions"], report["errors"]),
        *_commits(report["commits"]),
        *_errors(report["errors"]),
        f"<footer>Image Update, {_text(report['schema'])}</footer>\n</body>\n</html>",
    ]
    return "\n".join(parts) + "\n"


def _header(report: JSON, images: Iterable[str]) -> list[str]:
    numbers = report["counts"]
    title, *others = [*images] or [_text(report["command"])]
    counts = "".join(
        f"<li><b>{_text(numbers[name])}</b> {words}</li>"
        for name, words in _NAMES.items()
        if numbers[name] or name == "applications"
    )
    return [
        f'<header>\n<p class="kicker">image-update {_text(report["command"])}</p>',
        f"<h1>{title} {_mark(report['status'])}</h1>",
        *([f'<ul class="images">{"".join(f"<li>{one}</li>" for one in others)}</ul>'] if others else []),
        f'<ul class="counts">{counts}</ul>',
        *_timings(report.get("timings")),
        "</header>",
    ]


def _timings(timings: JSON | None) -> list[str]:
    """When it began, and how long its parts took."""
    if not timings:
        return []
    parts = (("find", "finding the Applications"), ("land", "deciding and pushing"), ("follow", "what follows a push"))
    told = ", ".join(f"{words} {timings[name]:.2f} s" for name, words in parts if timings[name] >= 0.005)  # noqa: PLR2004 - shown as 0.01
    detail = f": {told}" if told else ""
    return [f'<p class="small">{_text(timings["started"])}, {timings["seconds"]:.2f} s{detail}</p>']


def _decisions(decisions: Iterable[JSON], errors: Iterable[JSON]) -> list[str]:
    hints = {(one["application"], one["message"]): one["hint"] for one in errors if one["hint"]}
    lines = ["<main>\n<h2>Decisions</h2>"]
    for app, members in groupby(decisions, key=lambda one: str(one["application"])):
        lines.append(f'<section class="card"><h3>{_text(app)}</h3>')
        lines += [_decision(one, hints) for one in members]
        lines.append("</section>")
    return lines if len(lines) > 1 else [*lines, "<p>No Application takes it.</p>"]


def _decision(one: JSON, hints: Mapping[tuple[str, str], str]) -> str:
    alias = f'<span class="small">{_text(one["alias"])}</span><br>' if one["alias"] else ""
    was, now = _text(one["current"] or "(none)"), _text(one["candidate"] or "(none)")
    change = {
        "update": f'<span class="was">{was}</span> → <b>{now}</b>',
        "unchanged": f"<b>{was}</b>",
    }.get(one["verdict"], f'<b>{was}</b> <span class="was">not {now}</span>')
    more = [f"<p><b>{_text(one['rule'])}</b>: {_text(one['because'])}</p>"]
    if one["verdict"] == "error" and (hint := hints.get((one["application"], one["because"]))):
        more.append(f"<p><b>do:</b> {_text(hint)}</p>")
    terms = " ".join(_text(one[name]) for name in ("strategy", "constraint") if one[name])
    more += [f'<p class="small">{text}</p>' for text in (terms, _text(one["file"] or "")) if text]
    cells = (
        f"<div>{_mark(one['verdict'])}</div>",
        f'<div>{alias}<span class="mono">{_text(one["image"])}</span></div>',
        f'<div class="change">{change}</div>',
        f'<div class="why">{"".join(more)}</div>',
    )
    return f'<div class="row">{"".join(cells)}</div>'


def _commits(commits: Iterable[JSON]) -> list[str]:
    lines = ["<h2>Commits</h2>"]
    for one in commits:
        name = f"<code>{_text(one['commit'])}</code>" if one["commit"] else "would commit"
        facts = [
            ("repository", _linked(one["repository"])),
            (
                "branch",
                _text(one["head"]) + (f" (base {_text(one['branch'])})" if one["head"] != one["branch"] else ""),
            ),
            ("Applications", ", ".join(map(_text, one["applications"]))),
            ("attempts", _text(one["attempts"])),
        ]
        if one["pull_request"]:
            facts.insert(0, ("pull request", _linked(one["pull_request"])))
        terms = "".join(f"<dt>{term}</dt><dd>{words}</dd>" for term, words in facts)
        files = "".join(f"<li><code>{_text(file)}</code></li>" for file in one["files"])
        lines += [
            f'<section class="card"><h3>{name}</h3>',
            f'<div class="body"><dl>{terms}</dl><ul class="files">{files}</ul></div>',
            *([_diff(one["diff"])] if one.get("diff") else []),
            "</section>",
        ]
    return lines if len(lines) > 1 else [*lines, "<p>None.</p>"]


def _diff(diff: str) -> str:
    spans, header = [], True
    for line in diff.removesuffix("\n").split("\n"):
        if line.startswith("diff --git "):
            header = True
        elif line.startswith("@@"):
            header = False
        kind = "file" if header else {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "")
        spans.append(
            f'<span class="{kind}">{_text(line) or " "}</span>' if kind else f"<span>{_text(line) or ' '}</span>"
        )
    return f'<pre class="diff">{"".join(spans)}</pre>'


def _errors(errors: Iterable[JSON]) -> list[str]:
    lines = ["<h2>Errors and warnings</h2>"]
    for one in errors:
        where = f"<b>{_text(one['application'])}</b> " if one["application"] else ""
        hint = f"<p><b>do:</b> {_text(one['hint'])}</p>" if one["hint"] else ""
        rule = f'<span class="small">{_text(one["rule"])}</span>'
        lines.append(
            f'<section class="card"><div class="body"><p>{_mark(one["severity"])} {where}{rule}</p>'
            f"<p>{_text(one['message'])}</p>{hint}</div></section>"
        )
    return [*(lines if len(lines) > 1 else []), "</main>"]


def _mark(word: str) -> str:
    kind = f" {word}" if word in _MARKED else ""
    return f'<span class="mark{kind}">{_text(word)}</span>'


def _linked(url: str) -> str:
    shown = _text(url)
    if web_page(url):
        return f'<a href="{shown}" rel="noopener noreferrer nofollow">{shown}</a>'
    return shown


def _text(value: object) -> str:
    """A text of others as HTML: no markup, nothing that hides or turns what stands beside it.

    Nor a command of a runner, where the page is printed: `#` is written as a reference.
    """
    found = visible(str(value))
    for char, name in (("&", "&amp;"), ("#", "&#35;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        found = found.replace(char, name)
    return found

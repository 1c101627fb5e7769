"""Report → the few short results that a host's next step reads (contract, section 10).

All together stay below 2 KiB: Tekton's limit of 4096 bytes is shared with other steps and
is hit after the push. No name may look to Tekton Chains as if this step had built the image.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from task.model import Report
from task.words.outcome import current, public_url, status

LIMIT = 2048
DOTENV_PREFIX = "IMAGE_UPDATE_RESULT_"
NAMES = (
    "status",
    "updated",
    "commit",
    "pull-request",
    "repository",
    "branch",
    "tag",
    "digest",
    "applications",
    "applications-count",
    "image_ARTIFACT_INPUTS",
)


def results(report: Report) -> Mapping[str, str]:
    """Every result, always; "" where there is nothing to say."""
    commit = min(report.commits, key=lambda one: one.stands, default=None)  # the first that was written
    image = report.images[0] if report.images else None
    updated = sorted({one.subscription.application.key for one in report.decisions if one.verdict.verdict == "update"})
    found = {
        "status": status(report),
        "updated": "true" if updated and not report.dry else "false",  # a hold's memory alone changes no image
        "commit": (commit.commit or "") if commit else "",
        "pull-request": (commit.pull_request or "") if commit else "",
        "repository": _cut(public_url(commit.repo)) if commit else "",
        "branch": _cut(commit.head) if commit else "",
        "tag": image.tag if image else "",
        "digest": image.digest if image else "",
        "applications": "",
        "applications-count": str(len(updated)),
        "image_ARTIFACT_INPUTS": _inputs(report),
    }
    room = LIMIT - 1 - sum(len(name) + len(value.encode()) for name, value in found.items())
    return {**found, "applications": _fitting(updated, room)}


def _cut(text: str, size: int = 300) -> str:
    return text.encode()[:size].decode(errors="ignore")


def _inputs(report: Report) -> str:
    """Chains reads it as a material of this run; an image without a digest is none."""
    image = report.images[0] if report.images else None
    if image is None:
        return json.dumps({"uri": "", "digest": ""})
    return json.dumps({"uri": _cut(image.name + (f":{image.tag}" if image.tag else ""), 400), "digest": image.digest})


def _fitting(names: Sequence[str], room: int) -> str:
    """A JSON list of as many names as fit."""
    kept: list[str] = []
    size = 2
    for name in names:
        size += len(json.dumps(name, ensure_ascii=False).encode()) + 2
        if size > room:
            break
        kept.append(name)
    return json.dumps(kept, ensure_ascii=False)


def repositories(report: Report) -> str:
    """The repositories that are written, for one run each with `--only-repository`: a JSON list on one line."""
    return json.dumps(sorted({public_url(commit.repo) for commit in report.commits}), ensure_ascii=False) + "\n"


def dotenv(found: Mapping[str, str]) -> str:
    """GitLab's dotenv report: letters, digits and `_` in keys, one line each.

    Later jobs get these lines as variables, which win over a component's inputs. So no name may be that of an option:
    `IMAGE_UPDATE_PULL_REQUEST=` made the second update of a pipeline push where it should have proposed.
    """
    lines = (f"{DOTENV_PREFIX}{name.upper().replace('-', '_')}={_one_line(value)}\n" for name, value in found.items())
    return "".join(lines)


def github_output(found: Mapping[str, str]) -> str:
    """`name=value` lines for $GITHUB_OUTPUT; no value of ours holds a line break."""
    return "".join(f"{name}={_one_line(value)}\n" for name, value in found.items())


def _one_line(value: str) -> str:
    return " ".join(value.splitlines())


def github_summary(report: Report) -> str:
    """A Markdown table for $GITHUB_STEP_SUMMARY."""
    rows = ["| Application | Image | Was | Now | Decision |", "|---|---|---|---|---|"]
    for one in report.decisions[:500]:
        cells = (
            one.subscription.application.key,
            one.subscription.entry.image.name,
            current(one) or "",
            one.candidate.version,
            f"{one.verdict.verdict} ({one.verdict.rule}): {one.verdict.because}",
        )
        rows.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    commits = [
        f"\nCommit `{one.commit}` on `{_cell(one.head)}` of {_cell(public_url(one.repo))}"
        for one in report.commits
        if one.commit and not one.stands
    ]
    requests = dict.fromkeys(f"\nPull request: <{url}>" for one in report.commits if (url := _page(one.pull_request)))
    return "\n".join([f"### Image Update: {status(report)}", "", *rows, *commits, *requests]) + "\n"


def _page(url: str | None) -> str:
    """The address of a request, as Markdown takes it: a forge's own word is not trusted to be one."""
    known = url is not None and url.startswith(("https://", "http://"))
    return "".join(char for char in url or "" if char.isprintable() and char not in " <>\"'`\\") if known else ""


def _cell(text: str) -> str:
    """Text of others, made harmless inside a Markdown table."""
    cleaned = "".join(char if char.isprintable() else " " for char in text)
    for char in "\\`|<>[]*_":
        cleaned = cleaned.replace(char, f"\\{char}" if char not in "<>" else {"<": "&lt;", ">": "&gt;"}[char])
    return cleaned

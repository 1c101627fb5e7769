"""The human-readable lines of a report. Texts, tables, pages, summaries, and comments all use the
same order and wording.

JSON, results, and metrics use the verdicts' actual names instead, because pipelines rely on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from task.errors import Exit
from task.text import and_more, counted

JSON = Mapping[str, Any]
# The words for the verdicts, most important first.
VERDICTS = {
    "error": "failed",
    "defer": "held",
    "update": "updated",
    "refuse": "skipped",
    "unchanged": "current",
}
# The words that `check` uses, because it does not change anything itself.
CHECKED = {
    "error": "not judged",
    "refuse": "refused",
    "defer": "held",
    "update": "admitted",
    "unchanged": "unchanged",
}
FOLDED = ("refuse", "unchanged")  # verdicts that neither change anything nor require action
OVERRIDDEN = "overridden"  # a refused version that another Application or alias writes anyway
NOT_READ = "not read"
NO_VERSION = "(none)"
MOST_IMAGES = 3  # maximum number of images listed on one line
# the rule of the warning for an `--only-repository` that excludes all matching Applications
ELSEWHERE = "only-repository"
ACTS = {
    1: "please report this defect",
    2: "for the pipeline's author",
    3: "for the Application's owner",
    4: "for the platform team",
    5: "nothing was updated",
    6: "for the developer",
    75: "run it again",
    130: "run it again",
    143: "run it again",
}
AUTHOR = "for the author of the change"  # for exit code 5 of `check`


class Line(NamedTuple):
    """A decision in human-readable form."""

    verdict: str
    word: str  # "updated", "would update", "proposed", …
    application: str
    image: str  # `alias=image`
    old: str
    new: str  # "" if the version does not change
    offered: str  # the unwritten candidate, if `old` stays and the run has several images
    rule: str
    because: str
    fix: str
    file: str  # the changed file; for `check`, with the line

    def version(self, arrow: str = "→") -> str:
        """Return the versions, such as `1.1 → 1.2`, or only the current version if it does not
        change. A candidate that was not written is appended as "offered".
        """
        change = f"{self.old} {arrow} {self.new}" if self.new else self.old
        return f"{change}, offered {self.offered}" if self.offered else change

    @property
    def folded(self) -> bool:
        """True if the decision neither changes anything nor requires action."""
        return self.verdict in FOLDED and self.word not in (OVERRIDDEN, CHECKED["refuse"])

    @property
    def why(self) -> str:
        """The reason, such as `constraint: 2.0 is not allowed`.

        It starts with the rule, except for an update or a deferred build.
        """
        if self.verdict in ("update", "defer"):
            # The line already contains the word "held".
            return self.because.removeprefix("held").lstrip(":; ") or self.rule
        return f"{self.rule}: {self.because}"


def lines(report: JSON) -> list[Line]:
    """Return a line for each of the report's decisions, sorted by verdict in the order of
    `VERDICTS` (or `CHECKED`, for `check`): failures first. Otherwise, the report's order is kept.
    """
    run = _run_of(report)
    order = list(CHECKED if run.checks else VERDICTS)

    def rank(line: Line) -> int:
        """Return the sort position of a line's verdict. Unknown verdicts, from later versions, come
        last.
        """
        return order.index(line.verdict) if line.verdict in order else len(order)

    return sorted((_line_of(decision, run) for decision in report["decisions"]), key=rank)


class _Run(NamedTuple):
    """The parts of a run's report that are needed to describe its decisions."""

    dry: bool
    checks: bool  # whether the command is `check`, which judges a change
    is_rollback: bool
    has_one_image: bool
    heads: Collection[tuple[str, str]]  # head branches with a pull request, as (repository, name)
    hints: Mapping[tuple[str, str], str]  # hints for errors, keyed by Application and message


def _run_of(report: JSON) -> _Run:
    """Return the parts of a report that are needed to describe its decisions."""
    heads_with_request = set()
    for commit in report["commits"]:
        if commit["pull_request"]:
            heads_with_request.add((commit["repository"], commit["head"]))
    hints = {}
    for error in report["errors"]:
        hints[error["application"], error["message"]] = error["hint"]
    return _Run(
        dry=is_only_prediction(report),
        checks=report["command"] == "check",
        is_rollback=report["command"] == "rollback",
        has_one_image=len(report["images"]) == 1,
        heads=heads_with_request,
        hints=hints,
    )


def _line_of(decision: JSON, run: _Run) -> Line:
    """Return the human-readable line for one of this run's decisions."""
    verdict: str = decision["verdict"]
    shows_change = run.checks or verdict == "update"  # `check` judges existing changes
    candidate = decision["candidate"] or ""
    image = decision["image"]
    fix = ""
    if verdict == "error":
        fix = run.hints.get((decision["application"], decision["because"])) or ""
    without_version = NO_VERSION if decision["target"] else NOT_READ
    old = decision["current"] or without_version
    # If a run has only one image, the reader already knows its version.
    is_candidate_known = verdict == "unchanged" or run.has_one_image
    is_candidate_current = decision["candidate"] == old
    shows_offer = not (shows_change or is_candidate_known or is_candidate_current)
    return Line(
        verdict=verdict,
        word=_word_of(decision, run),
        application=decision["application"],
        image=f"{decision['alias']}={image}" if decision["alias"] else image,
        old=old,
        new=candidate if shows_change else "",
        offered=candidate if shows_offer else "",
        rule=decision["rule"],
        because=f"{_source_words(decision)}{decision['because']}{_origin_words(decision)}",
        fix=fix,
        file=_file_of(decision) if shows_change else "",
    )


def _file_of(decision: JSON) -> str:
    """Return a decision's file, with the line number if it is known. Older reports do not contain
    line numbers.
    """
    file: str = decision["file"] or ""
    line = decision.get("line")
    return f"{file}:{line}" if file and line else file


def _word_of(decision: JSON, run: _Run) -> str:
    """Return the word for what happened, or would happen, to a decision's candidate, such as
    "updated" or "would update".
    """
    verdict: str = decision["verdict"]
    if decision.get("overridden_by"):  # absent from older reports
        return OVERRIDDEN
    if run.checks:
        return CHECKED.get(verdict, verdict)
    if verdict != "update":
        return VERDICTS.get(verdict, verdict)
    if run.is_rollback:
        return "would roll back" if run.dry else "rolled back"
    if run.dry:
        return "would update"
    is_on_head_branch = decision["head"] != decision["branch"]
    has_request = (decision["repository"], decision["head"]) in run.heads
    if is_on_head_branch and has_request:
        return "proposed"
    return VERDICTS[verdict]


def _source_words(decision: JSON) -> str:
    """Return the source of a promotion as the start of a reason, such as "from staging/web: ", or
    "" for any other decision.

    Older reports do not contain the member `from`.
    """
    return f"from {decision['from']}: " if decision.get("from") else ""


def _origin_words(decision: JSON) -> str:
    """Return the end of a reason: the candidate's event, its proof, and what writes the image
    anyway, as far as these are known.

    Older reports do not contain these members.
    """
    words = ""
    if decision.get("event"):
        words += f", {decision['event']}"
    proof = proof_words(decision)
    if proof:
        words += f", proof: {proof}"
    overridden_by = decision.get("overridden_by")
    if overridden_by:
        words += f"; but {overridden_by} writes it to the same place"
    return words


def shown_and_folded_lines(all_lines: Sequence[Line]) -> tuple[list[Line], list[Line], str]:
    """Return the lines to show at once, the lines to collapse (show only on demand), and the title
    for the collapsed lines, such as "3 current, 1 skipped".

    If all lines could be collapsed, all are shown at once.
    """
    shown_lines = [line for line in all_lines if not line.folded]
    folded_lines = [line for line in all_lines if line.folded]
    if not shown_lines:
        return folded_lines, [], ""
    counts = Counter(line.word for line in folded_lines)
    title = ", ".join(f"{number} {word}" for word, number in counts.items())
    return shown_lines, folded_lines, title


def problems_outside_lines(report: JSON) -> list[JSON]:
    """Return the errors and warnings in the report that no decision's line already shows."""
    shown_in_lines = {
        (decision["application"], decision["because"]) for decision in report["decisions"]
    }
    return [
        problem
        for problem in report["errors"]
        if (problem["application"], problem["message"]) not in shown_in_lines
    ]


def outcome(report: JSON, named: Callable[[str], str] = str) -> str:
    """Return a short summary of a run's outcome: the number of decisions of each kind, and the
    Applications that failed, such as `1 failed (argocd/api), 2 updated`.

    `named` escapes a name for the output format.
    """
    all_lines = lines(report)
    failed_apps = dict.fromkeys(line.application for line in all_lines if line.verdict == "error")
    words = []
    for word, number in Counter(line.word for line in all_lines).items():
        text = f"{number} {word.replace('would', 'to')}"  # "2 to update"
        if word in (VERDICTS["error"], CHECKED["error"]):
            text += _in_brackets(failed_apps, named)
        words.append(text)

    errors = [
        problem for problem in problems_outside_lines(report) if problem["severity"] == "error"
    ]
    if errors:
        position = 1 if failed_apps else 0  # after the number of failed lines, which comes first
        words.insert(position, _error_words(errors, named))
    words += _words_for_other_commits(report, all_lines)
    return ", ".join(words) or nothing_decided(report)


def _words_for_other_commits(report: JSON, all_lines: Sequence[Line]) -> Iterator[str]:
    """Yield words for commits that no decision's line mentions, such as a commit made by `hold`."""
    if report["command"] == "check":
        return
    has_update = any(line.verdict == "update" for line in all_lines)
    if report["status"] == "updated" and not has_update:
        yield "would commit" if is_only_prediction(report) else "committed"
    # absent from older reports
    if any(commit.get("rollback") for commit in report["commits"]):
        yield "rolled back"


def _error_words(errors: Sequence[JSON], named: Callable[[str], str]) -> str:
    """Return the number of errors, and the Applications they affect, such as `2 errors
    (argocd/api)`.
    """
    applications = dict.fromkeys(error["application"] for error in errors if error["application"])
    names = _in_brackets(applications, named) if applications else ""
    are_about_rollouts = all(error["rule"] == "rollout" for error in errors)
    if are_about_rollouts:
        # an Application has two errors if both its rollout and its rollback failed
        return f"{counted(len(applications), 'failed rollout')}{names}"
    return f"{counted(len(errors), 'error')}{names}"


def _in_brackets(applications: Iterable[str], named: Callable[[str], str]) -> str:
    """Return Application names in brackets. `named` escapes a name for the output format.

    If there are many Applications, only the first few are named.
    """
    names = [named(application) for application in applications]
    return f" ({and_more(names)})"


def headline(report: JSON) -> str:
    """Return the summary line: the command, its images (or else its Applications), the outcome, the
    exit code, and who needs to act.
    """
    subjects = [image["reference"] for image in report["images"]]
    if not subjects:
        applications = [decision["application"] for decision in report["decisions"]]
        subjects = list(dict.fromkeys(applications))
    words = ("image-update", report["command"], and_more(subjects, MOST_IMAGES))
    line = f"{' '.join(filter(None, words))}: {outcome(report)}"
    end = exit_words(report)
    return f"{line}; {end}" if end else line


def proof_words(decision: JSON) -> str:
    """Return the proof of a decision's candidate, such as `signature; signer=…`, or ""."""
    proof = decision.get("proof") or {}
    return "; ".join(
        str(value) if key == "kind" else f"{key}={value}" for key, value in proof.items() if value
    )


def exit_words(report: JSON) -> str:
    """Return the exit code, and who needs to act, such as `exit code 4 (for the platform team)`.

    The result is "" for success, because the run may still fail if an output cannot be written. It
    is also "" for older reports, which do not contain an exit code.
    """
    code = report.get("exit_code")
    if not code:
        return ""
    if code == Exit.NOTHING_UPDATED and report["command"] == "check":
        return f"exit code {code} ({AUTHOR})"
    if code in ACTS:
        return f"exit code {code} ({ACTS[code]})"
    return f"exit code {code}"


def own_commits(report: JSON) -> Iterator[JSON]:
    """Yield the commits that the run created or would create.

    For a commit from a different run, only the request is shown.
    """
    for commit in report["commits"]:
        is_prediction = commit["commit"] is None
        # null for a commit from a different run; absent from older reports
        is_own = commit.get("through", "") is not None
        if is_prediction or is_own:
            yield commit


def requests(report: JSON) -> list[str]:
    """Return the URLs of the report's pull requests."""
    urls = [commit["pull_request"] for commit in report["commits"]]
    return list(dict.fromkeys(filter(None, urls)))


def waiting_words(waited: JSON) -> str:
    """Return a description of a build that was waiting on a head branch (the branch of a pull
    request) before the run, and of what happened to that build.
    """
    version = waited["tag"] or waited["digest"]
    words = (waited["application"], waited["alias"], version)
    build = " ".join(filter(None, words))
    place = waited["pull_request"] or waited["head"]
    return f"{build} on {place}: {waited['because']}"


def is_only_prediction(report: JSON) -> bool:
    """Return whether a report only predicts what would happen, because nothing was written."""
    if "dry_run" in report:
        return bool(report["dry_run"])
    # absent from older reports
    has_prediction = any(commit["commit"] is None for commit in report["commits"])
    return report["command"] == "plan" or has_prediction


def commit_name(report: JSON, commit: JSON) -> str:
    """Return a name for what the run did on a branch: "commit", "rollback commit", "would commit",
    or "nothing left" if the memory branch (which stores the state files) became empty and was
    deleted.
    """
    if not commit["commit"]:
        return "would commit" if is_only_prediction(report) else "nothing left"
    return "rollback commit" if commit.get("rollback") else "commit"


def nothing_decided(report: JSON) -> str:
    """Return a short summary of the outcome of a run that made no decisions."""
    if report["command"] == "check" and report["status"] != "failed":
        return "no tracked version has changed"
    if report["status"] == "failed" or not report["images"]:
        return "nothing was done"
    number_read = report["counts"]["applications"]
    are_all_excluded = any(error["rule"] == ELSEWHERE for error in report["errors"])
    where = "in these repositories " if are_all_excluded else ""
    how_many = f"{number_read} read" if number_read else "none with an image-list was found"
    return f"no Application {where}tracks it ({how_many})"

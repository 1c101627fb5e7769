"""Report → Prometheus text: what the last run did, and counters that go on where the file left off.

No label holds what others named: Applications and repositories would make a series each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from task.errors import Exit
from task.model import Report
from task.output.outcome import counts, status

PREFIX = "image_update_"
# Each family: its kind and its help. Documentation is checked against this table.
FAMILIES = {
    "runs_total": ("counter", "Runs, by command and status."),
    "decisions_total": ("counter", "Decisions, by verdict and the rule that made them."),
    "commits_total": ("counter", "Commits that landed."),
    "attempts_total": ("counter", "Attempts that these commits took; more than one each where others were faster."),
    "problems_total": ("counter", "Errors and warnings."),
    "run_seconds_total": ("counter", "Seconds that runs took."),
    "last_run_timestamp_seconds": ("gauge", "When the last run ended."),
    "last_success_timestamp_seconds": ("gauge", "When the last run ended whose exit code was 0."),
    "last_run_exit_code": ("gauge", "Exit code of the last run."),
    "last_run_duration_seconds": ("gauge", "Seconds that the last run took."),
    "last_run_applications": ("gauge", "Applications of the last run: looked at, and asking for the image."),
    "last_run_decisions": ("gauge", "Decisions of the last run, by verdict and rule."),
    "last_run_commits": ("gauge", "Commits of the last run."),
    "last_run_pull_requests": ("gauge", "Pull requests of the last run."),
    "last_run_attempts": ("gauge", "Attempts that the commits of the last run took."),
}
_KEPT = ("last_success_timestamp_seconds",)

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]


def metrics(report: Report, *, seconds: float, now: float, before: str = "") -> str:
    """The text of the file after a run that took `seconds` and ended at `now` (Unix time).

    `before` is what the file held: its counters are added to. What cannot be read there counts as nothing.
    """
    samples = _kept(before)
    for key, value in _counted(report, seconds).items():
        samples[key] = samples.get(key, 0.0) + value
    samples |= _gauges(report, seconds, now)
    lines = []
    for family, (kind, words) in FAMILIES.items():
        found = sorted((labels, value) for (name, labels), value in samples.items() if name == family)
        if found:
            lines += [f"# HELP {PREFIX}{family} {words}", f"# TYPE {PREFIX}{family} {kind}"]
            lines += [f"{PREFIX}{family}{_text(labels)} {_number(value)}" for labels, value in found]
    return "\n".join(lines) + "\n"


def _counted(report: Report, seconds: float) -> Samples:
    landed = [one for one in report.commits if one.commit and not one.stands]
    return {
        ("runs_total", (("command", report.command), ("status", status(report)))): 1,
        ("commits_total", ()): len(landed),
        ("attempts_total", ()): sum(one.attempts for one in landed),
        ("run_seconds_total", ()): seconds,
        **{("problems_total", (("severity", name),)): _problems(report, name) for name in ("error", "warning")},
        **{("decisions_total", labels): number for labels, number in _decisions(report).items()},
    }


def _gauges(report: Report, seconds: float, now: float) -> Samples:
    landed, number = [one for one in report.commits if one.commit and not one.stands], counts(report)
    success: Samples = {("last_success_timestamp_seconds", ()): now} if report.exit == Exit.OK else {}
    return success | {
        ("last_run_timestamp_seconds", ()): now,
        ("last_run_exit_code", ()): report.exit,
        ("last_run_duration_seconds", ()): seconds,
        ("last_run_applications", (("state", "considered"),)): number["applications"],
        ("last_run_applications", (("state", "matched"),)): number["matched"],
        ("last_run_commits", ()): len(landed),
        ("last_run_pull_requests", ()): sum(bool(one.pull_request) for one in report.commits),
        ("last_run_attempts", ()): sum(one.attempts for one in landed),
        **{("last_run_decisions", labels): value for labels, value in _decisions(report).items()},
    }


def _decisions(report: Report) -> Mapping[Labels, int]:
    found: dict[Labels, int] = {}
    for one in report.decisions:
        labels = (("rule", one.verdict.rule), ("verdict", one.verdict.verdict))
        found[labels] = found.get(labels, 0) + 1
    return found


def _problems(report: Report, severity: str) -> int:
    return sum(one.severity == severity for one in report.problems)


def _kept(text: str) -> Samples:
    """The counters of the file, and the time of the last success."""
    found: Samples = {}
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        name, labels = _series(series)
        known = FAMILIES.get(name, ("", ""))[0] == "counter" or name in _KEPT
        number = _read(value)
        if known and labels is not None and number is not None:
            found[name, labels] = number
    return found


def _series(text: str) -> tuple[str, Labels | None]:
    """`image_update_x{a="b"}` → ("x", (("a", "b"),)); labels None where it is not as we write it."""
    name, brace, rest = text.partition("{")
    if not name.startswith(PREFIX) or (brace and not rest.endswith('"}')):
        return "", None
    pairs = [part.partition('="') for part in rest[:-2].split('",')] if brace else []
    # Our own labels are names of commands, rules and the like: nothing in them is ever escaped.
    if any(not (key.isidentifier() and equals and _plain(value)) for key, equals, value in pairs):
        return "", None
    return name.removeprefix(PREFIX), tuple((key, value) for key, _, value in pairs)


def _plain(value: str) -> bool:
    return value.replace("-", "").replace("_", "").isalnum()


def _read(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _text(labels: Sequence[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.3f}"

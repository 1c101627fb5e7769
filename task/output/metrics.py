"""Creates Prometheus metrics from a report: gauges for the last run, and counters that continue
from the values in the existing metrics file.

Application and repository names are not used as labels, because each name would create a separate
time series.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

from prometheus_client import CollectorRegistry, Metric, generate_latest, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from task.errors import Exit
from task.files import read_text
from task.model import Report
from task.output.report_json import counts, status

PREFIX = "image_update_"
# Each family's type, help, and labels. A test compares docs/observability.md with this table.
FAMILIES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "runs_total": ("counter", "Runs, by command and status.", ("command", "status")),
    "decisions_total": ("counter", "Decisions, by verdict and the rule that made them.", ("rule", "verdict")),
    "commits_total": ("counter", "Commits that landed.", ()),
    "attempts_total": ("counter", (
        "Push attempts for these commits; more than one per commit if others pushed, too."
    ), ()),
    "rollbacks_total": ("counter", (
        "Commits that restored the earlier version after a failed rollout."
    ), ()),
    "problems_total": ("counter", "Errors and warnings.", ("severity",)),
    "run_seconds_total": ("counter", "Total duration of runs in seconds.", ()),
    "last_run_timestamp_seconds": ("gauge", "End time of the last run.", ()),
    "last_success_timestamp_seconds": ("gauge", "End time of the last run with exit code 0.", ()),
    "last_run_exit_code": ("gauge", "Exit code of the last run.", ()),
    "last_run_duration_seconds": ("gauge", "Duration of the last run in seconds.", ()),
    "last_run_applications": (
        "gauge", "Applications in the last run: read, and tracking the image.", ("state",),
    ),
    "last_run_decisions": ("gauge", (
        "Decisions in the last run, by verdict and rule."
    ), ("rule", "verdict")),
    "last_run_commits": ("gauge", "Commits in the last run.", ()),
    "last_run_rollbacks": ("gauge", (
        "Commits in the last run that restored the earlier version."
    ), ()),
    "last_run_pull_requests": ("gauge", "Pull requests in the last run.", ()),
    "last_run_attempts": ("gauge", "Push attempts for the commits in the last run.", ()),
}  # fmt: skip
_LAST_SUCCESS = "last_success_timestamp_seconds"
_LARGEST = 1024 * 1024  # maximum size of a metrics file that we read, in bytes; ours are about 3 KB
_LONGEST_LINE = 500  # characters; our lines have about 80

Samples = Mapping[tuple[str, ...], float]  # keyed by the values of the family's labels


class _Families(Collector):
    """A collector of metric families that were computed beforehand.

    `prometheus_client.Counter` would add a `_created` series to each family.
    """

    def __init__(self, families: Iterable[Metric]) -> None:
        self.families = families

    def collect(self) -> Iterable[Metric]:
        """Return the metric families."""
        return self.families


def write_metrics(report: Report, path: str, seconds: float) -> None:
    """Replace the metrics file at `path` with one that includes this run, which took `seconds`.

    Counters continue from the values in the existing file, if it is readable. Raises `OSError` if
    the file cannot be written.
    """
    path = os.path.realpath(path)  # so that a symbolic link is kept
    text_before = ""
    with suppress(OSError):  # the file does not exist yet, or is writable but unreadable
        if os.path.isfile(path) and os.path.getsize(path) <= _LARGEST:
            text_before = read_text(path, errors="replace")

    registry = metrics(
        report,
        seconds=seconds,
        now=time.time(),
        before=text_before,
    )
    is_pipe_or_device = os.path.exists(path) and not os.path.isfile(path)
    if is_pipe_or_device:  # a pipe or device cannot be replaced with a regular file
        with open(path, "wb") as stream:
            stream.write(generate_latest(registry))
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # atomically, so that the node exporter never reads a partial file
    write_to_textfile(path, registry)


def metrics(report: Report, *, seconds: float, now: float, before: str = "") -> CollectorRegistry:
    """Return the metrics after a run that took `seconds` and ended at `now` (Unix time), as a
    registry.

    `before` is the text of the previous metrics file. Counters continue from the values in it.
    Lines that cannot be parsed are dropped.
    """
    earlier_samples = _samples_to_continue(before)
    samples_of_run = _samples_of_run(report, seconds=round(seconds, 3), now=now)
    if report.exit == Exit.OK:
        samples_of_run[_LAST_SUCCESS] = {(): now}
    else:
        samples_of_run[_LAST_SUCCESS] = earlier_samples.get(_LAST_SUCCESS, {})
    registry = CollectorRegistry()
    registry.register(_Families(_families(samples_of_run, earlier_samples)))
    return registry


def _samples_of_run(report: Report, *, seconds: float, now: float) -> dict[str, Samples]:
    """Return the samples of one run, keyed by family, without the time of the last success.

    A family is one metric, such as "runs_total". Its samples are keyed by the values of the
    family's labels. The run took `seconds` and ended at `now` (Unix time).
    """
    landed = [commit for commit in report.commits if commit.commit and not commit.already_there]
    attempts = sum(commit.attempts for commit in landed)
    rollbacks = len([commit for commit in landed if commit.rollback])
    pull_requests = len([commit for commit in report.commits if commit.pull_request])
    verdicts = [decision.judged for decision in report.decisions]
    decisions: Samples = Counter((str(verdict.rule), str(verdict.verdict)) for verdict in verdicts)
    severities = Counter(problem.severity for problem in report.problems)
    number_of = counts(report)
    return {
        "runs_total": {(report.command, status(report)): 1},
        "decisions_total": decisions,
        "commits_total": {(): len(landed)},
        "attempts_total": {(): attempts},
        "rollbacks_total": {(): rollbacks},
        "problems_total": {
            ("error",): severities["error"],
            ("warning",): severities["warning"],
        },
        "run_seconds_total": {(): seconds},
        "last_run_timestamp_seconds": {(): now},
        "last_run_exit_code": {(): report.exit},
        "last_run_duration_seconds": {(): seconds},
        "last_run_applications": {
            ("considered",): number_of["applications"],
            ("matched",): number_of["matched"],
        },
        "last_run_decisions": decisions,
        "last_run_commits": {(): len(landed)},
        "last_run_rollbacks": {(): rollbacks},
        "last_run_pull_requests": {(): pull_requests},
        "last_run_attempts": {(): attempts},
    }


def _families(
    samples_of_run: Mapping[str, Samples],
    earlier_samples: Mapping[str, Samples],
) -> list[Metric]:
    """Return the families (metrics) that have samples. Counters continue from the earlier samples.

    Both parameters map each family's name to its samples, which are keyed by label values.
    """
    families: list[Metric] = []
    for name, (kind, description, labels) in FAMILIES.items():
        family_type = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
        family = family_type(PREFIX + name, description, labels=labels)
        samples = samples_of_run[name]
        values_before = earlier_samples.get(name, {}) if kind == "counter" else {}
        for label_values in sorted(samples.keys() | values_before.keys()):
            value = samples.get(label_values, 0) + values_before.get(label_values, 0)
            family.add_metric(label_values, value)
        if family.samples:
            families.append(family)
    return families


def _samples_to_continue(text: str) -> Mapping[str, Samples]:
    """Return the samples in the previous metrics file that the next file continues from: the
    counters, and the time of the last success. They are keyed by family, and then by label values.

    Other lines are ignored.
    """
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for line in text.splitlines():
        if not line.startswith(PREFIX) or len(line) > _LONGEST_LINE:
            continue
        with suppress(ValueError):  # the line cannot be parsed
            for family in text_string_to_metric_families(line):
                for sample in family.samples:
                    name = sample.name.removeprefix(PREFIX)
                    if _is_to_continue(name, sample):
                        _, _, labels = FAMILIES[name]
                        label_values = tuple(sample.labels[label] for label in labels)
                        samples.setdefault(name, {})[label_values] = sample.value
    return samples


def _is_to_continue(name: str, sample: Sample) -> bool:
    """Return whether the next metrics file continues from this sample in the family `name`.

    It does so for counters and for the time of the last success, but not for samples with
    unexpected labels or impossible values.
    """
    kind, _description, labels = FAMILIES.get(name, ("", "", ()))
    is_continued = kind == "counter" or name == _LAST_SUCCESS
    has_its_labels = sample.labels.keys() == set(labels)
    is_plausible = 0 <= sample.value < float("inf")
    return is_continued and has_its_labels and is_plausible

"""Writes a report to wherever the host reads it: stdout, files, result folders, GitHub's command files."""

import os
import sys
from collections.abc import Mapping

from task.errors import UsageError
from task.model import Report
from task.settings import Output
from task.words.outcome import json_text
from task.words.screen import screen


def publish(report: Report, output: Output, environ: Mapping[str, str]) -> None:
    """Write everything; a place that cannot be written is a `UsageError` that names it. No format: nothing on stdout."""
    if output.report:
        _write(output.report, json_text(report), "--report")
    if output.results_dir or output.dotenv or environ.keys() & {"GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"}:
        _for_hosts(report, output, environ)
    if output.format:
        sys.stdout.write(json_text(report) if output.format == "json" else screen(report))
        sys.stdout.flush()


def _for_hosts(report: Report, output: Output, environ: Mapping[str, str]) -> None:
    from task.words.results import dotenv, github_output, github_summary, results

    found = results(report)
    if output.results_dir:
        for name, value in found.items():
            _write(os.path.join(output.results_dir, name), value, "--results-dir")
    if output.dotenv:
        _write(output.dotenv, dotenv(found), "--dotenv")
    if path := environ.get("GITHUB_OUTPUT"):
        _write(path, github_output(found), "GITHUB_OUTPUT", "a")
    if path := environ.get("GITHUB_STEP_SUMMARY"):
        _write(path, github_summary(report), "GITHUB_STEP_SUMMARY", "a")


def _write(path: str, text: str, option: str, mode: str = "w") -> None:
    try:
        if folder := os.path.dirname(path):
            os.makedirs(folder, exist_ok=True)
        with open(path, mode, encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(
            f"{option}: cannot write {path!r}: {error.strerror}", hint="name a place that this user may write"
        ) from None


def publish_failure(report: Report, output: Output, environ: Mapping[str, str]) -> None:
    """As `publish`, for a run that ended early: a place that cannot be written is passed over."""
    for part in (
        output._replace(results_dir="", dotenv=""),
        Output(results_dir=output.results_dir, format=""),
        Output(dotenv=output.dotenv, format=""),
    ):
        try:
            publish(report, part, {} if part.format == "" else environ)
        except UsageError:
            continue

"""Formats the findings of `lint` as text, for GitHub's log, and for other programs."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from task import DOCS, __version__
from task.annotations.lint import Finding
from task.commands.migration import Migration, as_json
from task.errors import Severity
from task.output.log import escaped, properties
from task.text import counted, exact_json, printable, without_logins

SCHEMA = "image-update/lint/v1"
SARIF_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

# sources that are not files; a line number in stdin helps people, but not programs
NO_FILES = ("stdin", "cluster", "argocd")
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
_IN_GITHUB = {
    "error": "error",
    "warning": "warning",
    "info": "notice",
}
_IN_SARIF = {
    "error": "error",
    "warning": "warning",
    "info": "note",
}
_IN_GITLAB = {
    "error": "major",
    "warning": "minor",
    "info": "info",
}
Placed = tuple[Finding, str, int]  # a finding, its file (or ""), and its line


def as_text(
    placed_findings: Sequence[Placed],
    applications_read: int,
    first_lines: Iterable[str] = (),
) -> str:
    """Return the findings as human-readable text: the `first_lines`, one or two lines per finding,
    and a line with totals, such as the number of Applications read.

    Each finding begins with `file:line`, which editors can open.
    """
    lines = list(first_lines)
    for finding, path, line in placed_findings:
        place = f"{path}:{line}" if line else path
        parts = (place, finding.severity, finding.application, finding.message)
        lines.append(": ".join(filter(None, parts)))
        if finding.hint:
            lines.append(f"    fix: {finding.hint}")
    severities = Counter(finding.severity for finding, _, _ in placed_findings)
    nouns = {
        "error": "error",
        "warning": "warning",
        "info": "remark",
    }
    counts = [counted(severities[severity], nouns[severity]) for severity in SEVERITIES]
    lines.append(f"{counted(applications_read, 'Application')} read: {', '.join(counts)}")
    return "\n".join(map(printable, lines)) + "\n"


def as_annotation(finding: Finding, path: str, line: int) -> str:
    """Return a finding as a GitHub annotation for a file and line."""
    file = "" if path in NO_FILES else path
    attributes = properties(finding.application or "manifest", file, line)
    message = f"{finding.message}; {finding.hint}" if finding.hint else finding.message
    return f"::{_IN_GITHUB[finding.severity]} {attributes}::{escaped(printable(message))}\n"


def as_report(placed_findings: Iterable[Placed], comparison: Migration | None = None) -> str:
    """Return the findings, and the comparison with Argo CD Image Updater, as JSON in the format
    described in docs/report.md.
    """
    report: dict[str, object] = {
        "schema": SCHEMA,
        "findings": [_finding_as_json(*placed) for placed in placed_findings],
    }
    if comparison:
        report["from_image_updater"] = as_json(comparison)
    return _as_json_text(report)


def _finding_as_json(finding: Finding, path: str, line: int) -> dict[str, object]:
    """Return a finding for the JSON report. Empty values become null."""
    is_in_file = path not in NO_FILES
    return {
        "application": finding.application or None,
        "key": finding.key or None,
        "value": without_logins(finding.value) or None,
        "severity": finding.severity,
        "message": without_logins(finding.message),
        "hint": without_logins(finding.hint) or None,
        "file": path if path and is_in_file else None,
        "line": line if line and is_in_file else None,
    }


def junit(placed_findings: Sequence[Placed]) -> str:
    """Return JUnit XML with a test case for each finding. Only errors are failures."""
    errors = [finding for finding, _, _ in placed_findings if finding.severity == "error"]
    counts = {
        "tests": str(max(len(placed_findings), 1)),
        "failures": str(len(errors)),
        "errors": "0",
    }
    root = ET.Element("testsuites", {"name": "image-update lint", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "image-update lint", **counts})
    if not placed_findings:  # a single test case that passes
        case = {"name": "annotations", "classname": "image-update"}
        ET.SubElement(suite, "testcase", case)

    for finding, path, line in placed_findings:
        subject, message, details = _words_of_finding(finding, path, line)
        case = {"name": f"{subject}: {message}", "classname": subject}
        if path and path not in NO_FILES:
            case |= {"file": _in_workspace(path), "line": str(max(line, 1))}
        element = ET.SubElement(suite, "testcase", case)
        if finding.severity == "error":
            failure = {"message": message, "type": _check_name(finding)}
            ET.SubElement(element, "failure", failure).text = details
        else:
            ET.SubElement(element, "system-out").text = f"{finding.severity}: {details}"

    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def sarif(placed_findings: Sequence[Placed]) -> str:
    """Return the findings as SARIF 2.1.0, which GitHub code scanning and many editors can read."""
    results = [
        _sarif_result(finding, path, line, fingerprint)
        for (finding, path, line), fingerprint in zip(
            placed_findings, _fingerprints(placed_findings), strict=True
        )
    ]
    rules = sorted({_check_name(finding) for finding, _, _ in placed_findings})
    driver = {
        "name": "image-update lint",
        "version": __version__,
        "informationUri": f"{DOCS}/lint.md",
        "rules": [{"id": rule} for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return _as_json_text(
        {
            "$schema": SARIF_SCHEMA,
            "version": "2.1.0",
            "runs": [run],
        }
    )


def _sarif_result(finding: Finding, path: str, line: int, fingerprint: str) -> dict[str, Any]:
    """Return a finding as a SARIF result. `fingerprint` identifies the finding across reports."""
    subject, message, _ = _words_of_finding(finding, path, line)
    text = f"{subject}: {message}"
    if finding.hint:
        text += f". Fix: {_clean(finding.hint)}"
    # GitHub rejects the whole file if any result lacks a location, but accepts any path.
    uri = quote(_file_or_application(finding, path), safe="/:")
    location = {
        "artifactLocation": {"uri": uri},
        "region": {"startLine": max(line, 1)},
    }
    return {
        "ruleId": _check_name(finding),
        "level": _IN_SARIF[finding.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"imageUpdateLint/v1": fingerprint},
    }


def gitlab(placed_findings: Sequence[Placed]) -> str:
    """Return the findings as a GitLab Code Quality report, which merge requests show in their
    diffs.
    """
    issues = []
    for (finding, path, line), fingerprint in zip(
        placed_findings, _fingerprints(placed_findings), strict=True
    ):
        _, _, details = _words_of_finding(finding, path, line)
        place = {"path": _file_or_application(finding, path), "lines": {"begin": max(line, 1)}}
        issues.append(
            {
                "description": details.replace("\n", "; "),
                "check_name": _check_name(finding),
                "fingerprint": fingerprint,
                "severity": _IN_GITLAB[finding.severity],
                "location": place,
            }
        )
    return _as_json_text(issues)


# Machine-readable formats, keyed by the value of --output.
REPORTS: Mapping[str, Callable[[Sequence[Placed]], str]] = {
    "json": as_report,
    "junit": junit,
    "sarif": sarif,
    "gitlab": gitlab,
}


def _words_of_finding(finding: Finding, path: str, line: int) -> tuple[str, str, str]:
    """Return a finding's subject, message, and full text including the fix.

    The subject is the Application, or else the file and line.
    """
    place = f"{path}:{line}" if line else path
    subject = _clean(finding.application or place or "manifests")
    message = _clean(finding.message)
    details = f"{subject}: {message}"
    if finding.hint:
        details += f"\nfix: {_clean(finding.hint)}"
    return subject, message, details


def _check_name(finding: Finding) -> str:
    """Return the name of the annotation that the finding is about, without the image's alias."""
    return _clean(finding.key.rpartition(".")[2]) or "applications"


def _file_or_application(finding: Finding, path: str) -> str:
    """Return the file's path relative to the current directory. If there is no file, return the
    Application's name instead, because the tools that read these reports require a path.
    """
    if path and path not in NO_FILES:
        return _in_workspace(path)
    return _clean(finding.application) or "."


def _in_workspace(path: str) -> str:
    """Return a local path relative to the current directory, as expected by the tools that read
    these reports.
    """
    if "//" in path:  # REPO//PATH is not a local path
        return _clean(path)
    relative = os.path.relpath(path)
    return _clean(path if relative.startswith("..") else relative)


def _fingerprints(placed_findings: Sequence[Placed]) -> Iterator[str]:
    """Yield a hash for each finding, in order. A finding has the same hash in the next report, even
    if its line number has changed.

    Findings that differ only in their line are numbered, so every hash is unique.
    """
    occurrences = Counter[str]()  # how often each finding has appeared so far
    for finding, path, _ in placed_findings:
        parts = (
            _file_or_application(finding, path),
            finding.application,
            finding.key,
            finding.value,
            finding.message,
        )
        identity = "\0".join(map(without_logins, parts))
        occurrences[identity] += 1
        numbered_identity = f"{identity}\0{occurrences[identity]}"
        yield hashlib.sha256(numbered_identity.encode(errors="replace")).hexdigest()


def _clean(text: str) -> str:
    return printable(without_logins(text))


def _as_json_text(value: Any) -> str:
    return exact_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n"

"""Writes output for the CI system: the report, a few short results for the next step, and the
secrets to mask in the log.

All results together are kept below 2 KiB, because a task's steps share Tekton's limit of 4096
bytes, and a step that exceeded the limit would fail after its push. Tekton Chains takes results
named `*IMAGE_URL`, `*IMAGE_DIGEST`, `IMAGES`, or `*ARTIFACT_OUTPUTS` for images that the step has
built, so our results do not use such names.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TextIO
from urllib.parse import quote

from task.errors import UsageError
from task.model import Commit, Image, Problem, Report
from task.option import RESULTS_PREFIX
from task.output.code_quality import code_quality
from task.output.console import say, stdout_console, unwritable, write_stdout
from task.output.markdown import summary
from task.output.report_json import as_json, json_text, status
from task.output.report_text import plain, table
from task.output.words import outcome
from task.settings import HandedOptions, ResultOptions
from task.text import exact_json, one_line, printable
from task.urls import web_page, without_login

LIMIT = 2048
LONGEST_MESSAGE = 300
_SHORT_MESSAGE = 30  # bytes that remain for the message if all other values are as long as allowed
_BYTES_FOR_NAMES = 100  # bytes reserved for Application names
NAMES = (
    "status", "updated", "commit", "pull-request", "repository", "branch", "tag", "digest", "applications",
    "applications-count", "rolled-back", "message", "image_ARTIFACT_INPUTS",
)  # fmt: skip


def results(report: Report) -> Mapping[str, str]:
    """Return all results (name → value). Their total size is less than `LIMIT` bytes.

    Results without a value are "", because a pipeline fails if it reads a result that was never
    written. A long message is truncated, and only as many Application names are included as fit.
    """
    applications = sorted({decision.subscription.application.key for decision in report.updates})
    values = _short_results(report, len(applications))
    used_bytes = sum(len(name) + len(value.encode()) for name, value in values.items())
    # stay below the limit, including the brackets around the JSON array of names
    remaining_bytes = LIMIT - 1 - used_bytes - len("[]")

    # the message must leave some of the remaining bytes for the Application names
    message_bytes = max(remaining_bytes - _BYTES_FOR_NAMES, _SHORT_MESSAGE)
    message = cut(_main_message(report), min(LONGEST_MESSAGE, message_bytes))
    remaining_bytes -= len(message.encode())
    fitting_names = _names_within(remaining_bytes, applications)
    return {
        **values,
        "message": message,
        "applications": json.dumps(fitting_names, ensure_ascii=False),
    }


def _short_results(report: Report, application_count: int) -> dict[str, str]:
    """Return all results, with an empty message and no Application names.

    `application_count` is the number of Applications that were updated. A value that exceeds its
    maximum size becomes "". For tags, digests (`sha512:…`), and commit IDs, the maximum is the
    length of the longest valid value; all other limits are high enough for typical values.
    """
    image = report.images[0] if report.images else None
    commit = _first_commit(report)
    # a run that only records a hold on the memory branch has not updated any image
    is_updated = application_count > 0 and not report.dry
    is_rolled_back = any(written.rollback for written in report.commits)
    values = dict.fromkeys(NAMES, "") | {
        "status": status(report),
        "updated": "true" if is_updated else "false",
        "applications-count": str(application_count),
        "rolled-back": "true" if is_rolled_back else "false",
        "image_ARTIFACT_INPUTS": _artifact_inputs(image),
    }
    if image:
        values |= {
            "tag": _if_it_fits(128, image.tag),
            "digest": _if_it_fits(135, image.digest),
        }
    if commit:
        values |= {
            "commit": _if_it_fits(64, commit.commit),
            "pull-request": web_page(commit.pull_request, 400),
            "repository": _if_it_fits(250, without_login(commit.repo)),
            "branch": _if_it_fits(250, commit.head),
        }
    return values


def _first_commit(report: Report) -> Commit | None:
    """Return the commit to report as the result `commit`, or None if there is none.

    The run's own commits take precedence over earlier commits, and new commits over commits that
    already existed. A commit that updates an image takes precedence over a commit that only records
    something, such as a hold.
    """
    updated = {
        (decision.subscription.repo, decision.subscription.application.key)
        for decision in report.updates
    }

    def precedence(commit: Commit) -> tuple[bool, bool]:
        """Return a sort key that puts preferred commits first (False sorts before True)."""
        updates_image = any((commit.repo, app) in updated for app in commit.applications)
        return commit.already_there, not updates_image

    return min(report.commits or report.earlier, key=precedence, default=None)


def _artifact_inputs(image: Image | None) -> str:
    """Return the result that Tekton Chains records as an input of this run: a JSON object with the
    image's reference and digest.

    A value that is too long becomes "". The JSON object always contains both members, because a
    Tekton step fails if its object result lacks a declared member.
    """
    uri = ""
    digest = ""
    if image:
        uri = f"{image.name}:{image.tag}" if image.tag else image.name
        digest = image.digest
    return json.dumps({"uri": _if_json_fits(400, uri), "digest": _if_json_fits(135, digest)})


def _if_json_fits(size: int, text: str) -> str:
    """Return the text, or "" if it needs more than `size` characters in a JSON string."""
    json_characters = len(json.dumps(text)) - len('""')
    return text if json_characters <= size else ""


def _names_within(size: int, names: Iterable[str]) -> list[str]:
    """Return the first names, as many as fit in a JSON array of `size` bytes (not counting the
    brackets).
    """
    fitting: list[str] = []
    used_bytes = 0
    for name in names:
        used_bytes += len(json.dumps(name, ensure_ascii=False).encode()) + len(", ")
        if used_bytes > size:
            break
        fitting.append(name)
    return fitting


def _main_message(report: Report) -> str:
    """Return the first error, prefixed with its Application, or else a summary of the decisions."""
    for problem in report.problems:
        if problem.severity != "error":
            continue
        if problem.application:
            return f"{problem.application}: {problem.message}"
        return problem.message
    return outcome(as_json(report))


def cut(text: str, size: int) -> str:
    """Return the text as one line of at most `size` bytes, without terminal or runner commands."""
    line = printable(one_line(text)).encode(errors="replace")
    if len(line) > size:
        ellipsis = "…".encode()
        bytes_before_ellipsis = size - len(ellipsis)
        line = line[:bytes_before_ellipsis] + ellipsis
    # a character that was cut in half is dropped
    return line.decode(errors="ignore")


def _if_it_fits(size: int, text: str | None) -> str:
    """Return the value, or "" if it is longer than `size` bytes or contains an invisible character.

    Git allows branch names that a terminal displays in reverse. Such a name cannot be cleaned up,
    because it would then refer to a different branch.
    """
    # anything that cannot be encoded, such as a byte that is not valid UTF-8, becomes "?"
    value = (text or "").encode(errors="replace").decode()
    fits = len(value.encode()) <= size
    return value if fits and value.isprintable() else ""


def repositories(report: Report) -> str:
    """Return the repositories that the report's commits belong to, without credentials, as a JSON
    array on one line.

    A pipeline can start a run with `--only-repository` for each repository.
    """
    repos = sorted({without_login(commit.repo) for commit in report.commits})
    return exact_json(json.dumps(repos, ensure_ascii=False)) + "\n"


def dotenv(values: Mapping[str, str]) -> str:
    """Return the results as a GitLab dotenv report: one line per result, whose key contains only
    letters, digits, and `_`.

    Later jobs receive these lines as variables, and variables override a component's inputs. So a
    key must not equal the name of an option's variable: `IMAGE_UPDATE_PULL_REQUEST=` once made a
    pipeline's second update push to the branch.
    """
    lines = []
    for name, value in values.items():
        variable = f"{RESULTS_PREFIX}{name.upper().replace('-', '_')}"
        # The runner expands variables in these values (an error message may contain
        # "$CI_JOB_TOKEN"), and turns "$$" into "$".
        escaped = _one_line(value).replace("$", "$$")
        lines.append(f"{variable}={escaped}\n")
    return "".join(lines)


def github_output(values: Mapping[str, str]) -> str:
    """Return the results as `name=value` lines for $GITHUB_OUTPUT.

    Line breaks in values are replaced with spaces, because a value could otherwise set additional
    outputs.
    """
    return "".join(f"{key}={_one_line(value)}\n" for key, value in values.items())


def _one_line(value: str) -> str:
    return " ".join(value.splitlines())


# Machine-readable formats, keyed by the value of --output.
FORMS: Mapping[str, Callable[[Report], str]] = {
    "json": json_text,
    "repositories": repositories,
    "gitlab": code_quality,
}
LARGEST_SUMMARY = 250_000  # characters; GitHub discards summaries larger than 1 MiB
GITHUB = ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")


def check_places(output: ResultOptions, environ: Mapping[str, str]) -> None:
    """Raise `UsageError` if a destination's path cannot be written to. Call this before doing any
    work.
    """
    places = {
        "--results-dir": _results_folder(output) if output.results_dir else "",
        "--report": _report_path(output),
        "--dotenv": output.dotenv,
        **{variable: environ.get(variable, "") for variable in GITHUB},
    }
    for option, path in places.items():
        if path:
            _check_place(option, path, is_folder=option == "--results-dir")


def _check_place(option: str, path: str, *, is_folder: bool) -> None:
    """Raise `UsageError` if the file or folder at a path cannot be written to.

    `option` is the option or variable that specifies the path. A missing folder is created, except
    for `--report`.
    """
    folder = path if is_folder else (os.path.dirname(path) or ".")
    # a missing folder suggests a misspelled name, or a volume that is not mounted
    if option == "--report" and not os.path.isdir(folder):
        raise _unwritable_error(option, path, f"there is no folder {folder!r}")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise _unwritable_error(option, path, error.strerror) from None
    if os.path.isdir(path) and not is_folder:
        raise _unwritable_error(option, path, "it is a folder")
    existing_path = path if os.path.exists(path) else folder
    if not os.access(existing_path, os.W_OK):
        raise _unwritable_error(option, path, "permission denied")


def publish(report: Report, output: ResultOptions, environ: Mapping[str, str]) -> list[UsageError]:
    """Write the report to all of its destinations, and return an error for each destination that
    could not be written.
    """
    errors = []
    if output.report:
        errors += _write_outputs([("--report", _report_path(output), json_text(report), "w")])

    errors += hand_over(results(report), output, environ)

    summary_path = environ.get("GITHUB_STEP_SUMMARY")
    if summary_path:
        markdown = summary(as_json(report), LARGEST_SUMMARY, diffs=True)
        errors += _write_outputs([("GITHUB_STEP_SUMMARY", summary_path, markdown, "a")])

    format_report = FORMS.get(output.output)
    text = format_report(report) if format_report else shown(report, environ)
    stdout_error = write_stdout(text)
    # in `plan | head`, the pipe is closed early, which is harmless
    is_harmless = report.dry and isinstance(stdout_error, BrokenPipeError)
    if stdout_error and not is_harmless:
        errors.append(unwritable(stdout_error))
    return errors


def tell(
    command: str,
    message: str,
    output: HandedOptions,
    environ: Mapping[str, str],
    *,
    commit: str = "",
    problems: tuple[Problem, ...] = (),
    code: int = 0,
) -> None:
    """Write the results for a command that does not write to Git.

    `code` is the command's exit code. On success, the result named `message` is the argument
    `message`; on failure, it is the first error in `problems`. Raises `UsageError` if a destination
    cannot be written.
    """
    report = Report(
        command, images=(), considered=0, decisions=(), commits=(), problems=problems, exit=code
    )
    values = {**results(report), "commit": commit}
    succeeded = code == 0
    if succeeded:
        values["message"] = cut(message, LONGEST_MESSAGE)
    errors = hand_over(values, output, environ)
    if errors:
        raise errors[0]


def hand_over(
    values: Mapping[str, str],
    output: HandedOptions,
    environ: Mapping[str, str],
) -> list[UsageError]:
    """Write the results (name → value) to where the next step reads them: to whichever of the
    results folder, the dotenv file, and GitHub's output file are set.

    Return an error for each destination that could not be written.
    """
    writes = []  # (option, path, text, mode)
    if output.results_dir:
        folder = _results_folder(output)
        for name, value in values.items():
            writes.append(("--results-dir", os.path.join(folder, name), value, "w"))
    if output.dotenv:
        writes.append(("--dotenv", output.dotenv, dotenv(values), "w"))
    # A job's steps all share GitHub's files, so append to them.
    github_output_path = environ.get("GITHUB_OUTPUT")
    if github_output_path:
        writes.append(("GITHUB_OUTPUT", github_output_path, github_output(values), "a"))
    return _write_outputs(writes)


def _write_outputs(writes: list[tuple[str, str, str, str]]) -> list[UsageError]:
    """Write each (option, path, text, mode), and return an error for each file that could not be
    written.

    `option` is named in the error message. `mode` is "w" to replace the file, or "a" to append to
    it. Missing folders are created, except for `--report` and `--html`.
    """
    errors = []
    for option, path, text, mode in writes:
        may_create_folder = option not in ("--report", "--html")
        try:
            if may_create_folder:
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(
                path,
                mode,
                encoding="utf-8",
                errors="backslashreplace",
                newline="",
            ) as file:
                file.write(text)
        except OSError as error:
            errors.append(_unwritable_error(option, path, error.strerror))
    return errors


def write_page(text: str, path: str) -> None:
    """Write the HTML page for `--html`. The path `-` means stdout."""
    if path == "-":
        say(text)
        return
    errors = _write_outputs([("--html", path, text, "w")])
    if errors:
        raise errors[0]


def shown(report: Report, environ: Mapping[str, str]) -> str:
    """Return the report in a human-readable format: a colored table on a terminal, or plain text
    for pipes and logs.
    """
    console = stdout_console(environ)
    if console:
        return table(as_json(report), console)
    return plain(as_json(report))


def _results_folder(output: HandedOptions) -> str:
    """Return the results folder, resolving `FILE/..`.

    A Tekton StepAction knows each result's path, but not the folder, so it passes `<path of a
    result>/..`.
    """
    return os.path.normpath(output.results_dir)


def _report_path(output: ResultOptions) -> str:
    """Return the report's path.

    If `--report` is a folder, such as Tekton's workspace `report`, the report is `report.json` in
    that folder.
    """
    if os.path.isdir(output.report):
        return os.path.join(output.report, "report.json")
    return output.report


def _unwritable_error(option: str, path: str, why: str | None) -> UsageError:
    return UsageError(
        f"{option}: cannot write {path!r}: {why}",
        hint="use a path that this user can write to",
    )


SHORTEST = 4  # characters; masking shorter values would garble the log
_PEM_FRAMES = ("-----BEGIN ", "-----END ")


def mask(names: Iterable[str], environ: Mapping[str, str], stream: TextIO | None = None) -> None:
    """Have GitHub's runner mask the values of these variables in its log, line by line, as well as
    their encoded forms in URLs and Basic headers.

    The runner already masks a workflow's `secrets`, but not a token from a different step or from a
    variable on a self-hosted runner. We never print secrets, but messages from git, ssh, or a
    server may contain them.
    """
    values_to_mask: dict[str, None] = {}
    for variable in names:
        for line in environ.get(variable, "").splitlines():
            secret = line.strip()
            # the first and last lines of a PEM key are not secret
            if len(secret) < SHORTEST or line.startswith(_PEM_FRAMES):
                continue
            url_encoded = quote(secret, safe="", errors="surrogateescape")
            base64_encoded = b64encode(secret.encode(errors="surrogateescape")).decode()
            values_to_mask |= dict.fromkeys((secret, url_encoded, base64_encoded))
    commands = [f"::add-mask::{value.replace('%', '%25')}\n" for value in values_to_mask]
    out = stream or sys.stderr
    with suppress(OSError):  # if the log cannot be written, it cannot leak a secret
        out.write("".join(commands))
        out.flush()

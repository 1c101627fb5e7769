"""Output for the CI system: the report, a few short results for the next step, and the secrets to
mask in its log.

The results stay below 2 KiB in total, because all steps share Tekton's limit of 4096 bytes, and a
step that exceeds the limit fails after its push. Tekton Chains treats results named `*IMAGE_URL`,
`*IMAGE_DIGEST`, `IMAGES`, or `*ARTIFACT_OUTPUTS` as images that the step has built, so our results
do not have such names.
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
_SHORT_MESSAGE = 30  # bytes left for the message if all other values have their maximum length
_OF_APPLICATIONS = 100  # bytes that the message leaves for Application names
NAMES = (
    "status", "updated", "commit", "pull-request", "repository", "branch", "tag", "digest", "applications",
    "applications-count", "rolled-back", "message", "image_ARTIFACT_INPUTS",
)  # fmt: skip


def results(report: Report) -> Mapping[str, str]:
    """Return all results.

    Results without a value are "", because a pipeline fails if it reads a result that was not
    written. A name that is too long is omitted, because a truncated name would refer to something
    else. The report has the full name.
    """
    commit = _first_commit(report)
    image = report.images[0] if report.images else None
    updated = sorted({decision.subscription.application.key for decision in report.updates})
    # a run that only writes a hold to memory has not updated any image
    is_updated = bool(updated) and not report.dry
    values = dict.fromkeys(NAMES, "") | {
        "status": status(report),
        "updated": "true" if is_updated else "false",
        "applications-count": str(len(updated)),
        "rolled-back": "true" if any(item.rollback for item in report.commits) else "false",
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
    used_bytes = sum(len(key) + len(value.encode()) for key, value in values.items())
    remaining_bytes = LIMIT - 1 - used_bytes - len("[]")
    message_bytes = min(LONGEST_MESSAGE, max(remaining_bytes - _OF_APPLICATIONS, _SHORT_MESSAGE))
    message = cut(_main_message(report), message_bytes)
    fitting_names = _names_within(remaining_bytes - len(message.encode()), updated)
    return {
        **values,
        "message": message,
        "applications": json.dumps(fitting_names, ensure_ascii=False),
    }


def _first_commit(report: Report) -> Commit | None:
    """Return the first commit that was written.

    A commit that updates an image takes precedence over one that only stores an event.
    """
    updated = {
        (decision.subscription.repo, decision.subscription.application.key)
        for decision in report.updates
    }

    def order(commit: Commit) -> tuple[bool, bool]:  # False sorts before True
        has_image = any((commit.repo, app) in updated for app in commit.applications)
        return commit.already_there, not has_image

    return min(report.commits or report.earlier, key=order, default=None)


def _artifact_inputs(image: Image | None) -> str:
    """Return the result that Tekton Chains records as an input of this run.

    A Tekton step fails if its object result lacks a declared member.
    """
    uri = ""
    digest = ""
    if image:
        uri = f"{image.name}:{image.tag}" if image.tag else image.name
        digest = image.digest
    inputs = {"uri": (uri, 400), "digest": (digest, 135)}
    fitting = {
        name: text if len(json.dumps(text)) <= longest + len('""') else ""
        for name, (text, longest) in inputs.items()
    }
    return json.dumps(fitting)


def _names_within(room: int, names: Iterable[str]) -> list[str]:
    """Return as many names as fit in a JSON array of the given size in bytes."""
    fitting: list[str] = []
    used_bytes = 0
    for name in names:
        used_bytes += len(json.dumps(name, ensure_ascii=False).encode()) + len(", ")
        if used_bytes > room:
            break
        fitting.append(name)
    return fitting


def _main_message(report: Report) -> str:
    """Return the first error, or else the number of decisions of each kind."""
    for problem in report.problems:
        if problem.severity == "error":
            return (
                f"{problem.application}: {problem.message}"
                if problem.application
                else problem.message
            )
    return outcome(as_json(report))


def cut(text: str, size: int) -> str:
    """Truncate the text to `size` bytes, on one line without terminal or runner commands."""
    line = printable(one_line(text)).encode(errors="replace")
    if len(line) <= size:
        return line.decode(errors="ignore")
    ellipsis = "…".encode()
    return (line[: size - len(ellipsis)] + ellipsis).decode(errors="ignore")


def _if_it_fits(size: int, text: str | None) -> str:
    """Return the value, or "" if it is longer than `size` bytes or contains an invisible character.

    Git allows branch names that a terminal shows reversed, and a changed name would refer to a
    different branch.
    """
    line = (text or "").encode(errors="replace").decode()
    return line if len(line.encode()) <= size and line.isprintable() else ""


def repositories(report: Report) -> str:
    """Return the repositories that would be written to, as a JSON array on one line.

    A pipeline can start a run with `--only-repository` for each repository.
    """
    repos = sorted({without_login(commit.repo) for commit in report.commits})
    return exact_json(json.dumps(repos, ensure_ascii=False)) + "\n"


def dotenv(values: Mapping[str, str]) -> str:
    """Return the results as a GitLab dotenv report: one line each, with only letters, digits, and
    `_` in the keys.

    Later jobs get these lines as variables, and variables override a component's inputs. So a key
    must not be the name of an option's variable: `IMAGE_UPDATE_PULL_REQUEST=` made a pipeline's
    second update push to the branch.
    """
    # The runner expands variables in these values, and "$$" becomes "$". An error message may
    # contain "$CI_JOB_TOKEN".
    lines = {
        f"{RESULTS_PREFIX}{name.upper().replace('-', '_')}": _one_line(value)
        for name, value in values.items()
    }
    return "".join(f"{name}={value.replace('$', '$$')}\n" for name, value in lines.items())


def github_output(values: Mapping[str, str]) -> str:
    """Return the results as `name=value` lines for $GITHUB_OUTPUT.

    A value with a line break would need a delimiter, so that it cannot set additional outputs. Our
    values do not have line breaks.
    """
    return "".join(f"{key}={_one_line(value)}\n" for key, value in values.items())


def _one_line(value: str) -> str:
    return " ".join(value.splitlines())


# The formats for programs, by the value of --output.
FORMS: Mapping[str, Callable[[Report], str]] = {
    "json": json_text,
    "repositories": repositories,
    "gitlab": code_quality,
}
LARGEST_SUMMARY = 250_000  # characters; GitHub drops summaries of more than 1 MiB
GITHUB = ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")


def check_places(output: ResultOptions, environ: Mapping[str, str]) -> None:
    """Raise `UsageError` for a path that cannot be written to. Call this before doing any work."""
    places = {
        "--results-dir": _folder(output) if output.results_dir else "",
        "--report": _report(output),
        "--dotenv": output.dotenv,
        **{variable: environ.get(variable, "") for variable in GITHUB},
    }
    for option, path in places.items():
        if not path:
            continue
        is_folder = option == "--results-dir"
        parent = path if is_folder else (os.path.dirname(path) or ".")
        # the name is misspelled, or the volume is not mounted
        if option == "--report" and not os.path.isdir(parent):
            raise _unwritable(option, path, f"there is no folder {parent!r}")
        try:
            os.makedirs(parent, exist_ok=True)
        except OSError as error:
            raise _unwritable(option, path, error.strerror) from None
        if os.path.isdir(path) and not is_folder:
            raise _unwritable(option, path, "it is a folder")
        existing = path if os.path.exists(path) else parent
        if not os.access(existing, os.W_OK):
            raise _unwritable(option, path, "permission denied")


def publish(report: Report, output: ResultOptions, environ: Mapping[str, str]) -> list[UsageError]:
    """Write the report to all of its destinations, and return an error for each one that could not
    be written.
    """
    errors = []
    if output.report:
        errors += _write([("--report", _report(output), json_text(report), "w")])
    errors += hand_over(results(report), output, environ)
    if path := environ.get("GITHUB_STEP_SUMMARY"):
        markdown = summary(as_json(report), LARGEST_SUMMARY, diffs=True)
        errors += _write([("GITHUB_STEP_SUMMARY", path, markdown, "a")])
    form = FORMS.get(output.output)
    stdout_error = write_stdout(form(report) if form else shown(report, environ))
    # `plan | head` closes the pipe early, which is harmless
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
    """Write the results of a command that does not write to Git.

    After an error, the message is the error.

    Raises `UsageError` if a destination cannot be written.
    """
    report = Report(
        command, images=(), considered=0, decisions=(), commits=(), problems=problems, exit=code
    )
    values = {**results(report), "commit": commit}
    if not code:
        values["message"] = cut(message, LONGEST_MESSAGE)
    errors = hand_over(values, output, environ)
    if errors:
        raise errors[0]


def hand_over(
    values: Mapping[str, str],
    output: HandedOptions,
    environ: Mapping[str, str],
) -> list[UsageError]:
    """Write the results where the next step reads them.

    Return an error for each destination that could not be written.
    """
    writes = []
    if output.results_dir:
        writes += [
            ("--results-dir", os.path.join(_folder(output), name), text, "w")
            for name, text in values.items()
        ]
    if output.dotenv:
        writes.append(("--dotenv", output.dotenv, dotenv(values), "w"))
    # All steps of a job share GitHub's files, so a step appends to them.
    if path := environ.get("GITHUB_OUTPUT"):
        writes.append(("GITHUB_OUTPUT", path, github_output(values), "a"))
    return _write(writes)


def _write(writes: list[tuple[str, str, str, str]]) -> list[UsageError]:
    """Write each (option, path, text, mode), and return an error for each one that could not be
    written.
    """
    errors = []
    for option, path, text, mode in writes:
        try:
            if option not in ("--report", "--html"):
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
            errors.append(_unwritable(option, path, error.strerror))
    return errors


def write_page(text: str, path: str) -> None:
    """Write a page for `--html`; `-` means stdout."""
    if path == "-":
        say(text)
    elif errors := _write([("--html", path, text, "w")]):
        raise errors[0]


def shown(report: Report, environ: Mapping[str, str]) -> str:
    """Return the report for people: a table with colors on a terminal, or plain text for pipes and
    logs.
    """
    if console := stdout_console(environ):
        return table(as_json(report), console)
    return plain(as_json(report))


def _folder(output: HandedOptions) -> str:
    """Return the results folder, resolving `FILE/..`.

    A Tekton StepAction knows the path of each result but not the folder, so it passes `<path of a
    result>/..`.
    """
    return os.path.normpath(output.results_dir)


def _report(output: ResultOptions) -> str:
    """Return the report's path.

    If the path is a folder, such as Tekton's workspace `report`, the file is `report.json`.
    """
    return (
        os.path.join(output.report, "report.json")
        if os.path.isdir(output.report)
        else output.report
    )


def _unwritable(option: str, path: str, why: str | None) -> UsageError:
    return UsageError(
        f"{option}: cannot write {path!r}: {why}",
        hint="use a path that this user can write to",
    )


SHORTEST = 4  # characters; masking shorter values would garble the log
_FRAMES = ("-----BEGIN ", "-----END ")


def mask(names: Iterable[str], environ: Mapping[str, str], stream: TextIO | None = None) -> None:
    """Have GitHub's runner mask the values of these variables, line by line, including the encoded
    forms in URLs and Basic headers.

    The runner masks values from a workflow's `secrets`, but not a token from a different step or
    from a variable on a self-hosted runner. We do not print secrets, but messages from git, ssh, or
    a server may contain them.
    """
    values: dict[str, None] = {}
    for variable in names:
        for line in environ.get(variable, "").splitlines():
            text = line.strip()
            if len(text) >= SHORTEST and not line.startswith(_FRAMES):
                encoded = b64encode(text.encode(errors="surrogateescape")).decode()
                values |= dict.fromkeys((text, quote(text, safe=""), encoded))
    out = stream or sys.stderr
    with suppress(OSError):  # if the log cannot be written, it cannot leak a secret
        out.write("".join(f"::add-mask::{value.replace('%', '%25')}\n" for value in values))
        out.flush()

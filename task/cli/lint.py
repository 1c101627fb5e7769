"""`lint`: checks the annotations of all Applications, and lists every problem at once."""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import typer

from task.annotations.lint import Finding, Severity, of_flaw, shared_places, told_once
from task.annotations.subscription import subscribe
from task.cli import options
from task.cli.annotation_lines import line_of, line_of_field
from task.cli.holds import held
from task.cli.records import settings_of
from task.cli.repository_configs import config_findings
from task.cli.update import scope_of
from task.errors import Exit, TaskError, UsageError
from task.model import Subscription
from task.output.log import Log
from task.output.stdout import say
from task.pipeline.discover import Discovered, FoundManifest, Scope, discovered
from task.pipeline.overlooked import unknown_names
from task.settings import Settings
from task.text import counted, exact_json, printable, without_logins
from task.wiring import world_of
from task.wiring.application_sources import sources

SCHEMA = "image-update/lint/v1"
NO_FILES = ("stdin", "cluster", "argocd")  # a line of stdin helps people, but belongs to no file
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
Placed = tuple[Finding, str, int]  # a finding, its file (or "") and its line


def lint(
    context: typer.Context,
    source: options.Sources = None,
    *,
    holds: options.Holds = False,
    applications: options.Applications = None,
    clusters: options.Clusters = "",
    render: options.Render = None,
    follow_apps: options.FollowApps = 0,
    application: options.Application = None,
    selector: options.Selector = "",
    project: options.Project = None,
    namespace: options.Namespace = None,
    argocd_namespace: options.ArgocdNamespace = "argocd",
    annotation_prefix: options.AnnotationPrefix = "argocd-image-updater.argoproj.io/",
    strategy: options.Strategy = "semver",
    pin_digest: options.PinDigest = False,
    output: options.LintOutput = "text",
    log_level: options.LogLevel = "info",
    log_format: options.LogFormat = "auto",
    allow_protocol: options.AllowProtocol = None,
    rewrite_url: options.RewriteUrl = None,
    git_username: options.GitUsername = "",
    git_password_file: options.GitPasswordFile = "",
    git_credentials_url: options.GitCredentialsUrl = None,
    basic_auth_directory: options.BasicAuthDirectory = "",
    github_app_id: options.GithubAppId = "",
    github_app_installation_id: options.GithubAppInstallationId = "",
    github_app_key_file: options.GithubAppKeyFile = "",
    ssh_key_file: options.SshKeyFile = "",
    ssh_directory: options.SshDirectory = "",
    ssh_known_hosts_file: options.SshKnownHostsFile = "",
    ssh_host_key: options.SshHostKey = None,
    ca_file: options.CaFile = "",
    git_config: options.GitConfig = True,
    kubeconfig: options.Kubeconfig = "",
    kube_context: options.KubeContext = "",
    argocd_server: options.ArgocdServer = "",
    argocd_auth_token_file: options.ArgocdAuthTokenFile = "",
    argocd_plaintext: options.ArgocdPlaintext = False,
    argocd_insecure: options.ArgocdInsecure = False,
    argocd_ca_file: options.ArgocdCaFile = "",
    argocd_root_path: options.ArgocdRootPath = "",
    argocd_header: options.ArgocdHeader = None,
) -> int:
    """Check the annotations of all Applications, and the repository's config, and list every problem with its fix."""
    settings, environ, log = settings_of("lint", _given(context)), context.obj.environ, context.obj.log
    if not sources(settings, environ):
        hint = "name their folder or file, as in image-update lint apps/, or . for the files here"
        raise UsageError("nothing says where to read Applications from", hint=hint)
    in_json = settings.output.format == "json"
    try:
        found, read = _collect(settings, environ, log)
    except TaskError as error:
        if isinstance(error, UsageError) and context.params["source"]:
            # The source is an argument here, and the variable of --applications may say something else.
            error = UsageError(error.message.removeprefix("--applications: "), hint=error.hint)
        if in_json:
            say(_in_json([(Finding("", "", "", "error", str(error), error.hint, ""), "", 0)]))
        raise error from None
    if in_json:
        say(_in_json(found))
    elif log.form == "github":
        say("".join(_as_command(*one) for one in found), commands=True)
    else:
        say(_as_text(found, read))
    return int(Exit.CONFIGURATION) if any(one.severity == "error" for one, _, _ in found) else int(Exit.OK)


def _given(context: typer.Context) -> Mapping[str, Any]:
    """Return the options, with each SOURCE as one of the `--applications`. Its variable counts if neither is given."""
    given, listed = context.params, context.get_parameter_source("applications")
    if not given["source"]:
        return given
    named = given["applications"] if listed and listed.name == "COMMANDLINE" else ()
    return {**given, "applications": (*given["source"], *named)}


def _collect(settings: Settings, environ: Mapping[str, str], log: Log) -> tuple[list[Placed], int]:
    """Return all findings, and how many Applications were read."""
    scope = scope_of(settings)
    world = world_of(settings, environ, log, scope)
    try:
        texts: dict[str, str] = {}
        found = discovered(_with_texts(world.applications(), texts), scope, world.locate)
        apps = [*found.applications, *(one.application for one in found.helm_releases)]
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        on_hold = list(held(apps, settings, world, now))
        written = [] if world.passed_over() else _written(found, scope)
        placed: list[Placed] = list(config_findings(settings.applications, written, world.locate))
    finally:
        world.close()
    read = found.read + len(world.passed_over())
    if not (read or found.templates or found.problems):
        hint = "name their folder or file, as in image-update lint apps/"
        placed.append(
            (Finding("", "", "", "warning", "no Application was found, so nothing was checked", hint, ""), "", 0)
        )
    for problem in found.problems:
        place, _, message = problem.message.partition(": ")
        path, line = _origin(place)
        if not os.path.exists(path):
            path, line, message = "", 0, problem.message
        if problem.field and line:
            line = line_of_field(path, line, problem.field)
        finding = Finding(
            problem.application,
            problem.key,
            problem.value,
            # A problem of one Application, or advice about what was not read, is only a warning.
            "warning" if problem.application or problem.advice else "error",
            message,
            problem.hint,
            origin="",
        )
        placed.append((finding, path, line))
    unknown = unknown_names(scope.narrow.names, apps, (*found.outside, *world.passed_over()))
    placed += [(Finding("", "", "", one.severity, one.message, one.hint, ""), "", 0) for one in unknown]
    told = told_once((*found.applications, *found.templates), scope.defaults)
    outside = {app.key for app in found.outside}
    told += shared_places(sub for sub in written if sub.application.key not in outside)
    placed += [(one, *_place(one, settings.annotation_prefix, texts)) for one in told]
    for release in found.helm_releases:
        for flaw in release.flaws:
            finding = of_flaw(release.application, flaw)
            if not flaw.key:  # it is about the place of the release, which may be elsewhere in the repository
                finding = replace(finding, severity="warning")
            placed.append((finding, *_place(finding, "", texts)))
    return placed + [(one, *_place(one, "", texts)) for one in on_hold], read


def _written(found: Discovered, scope: Scope) -> list[Subscription]:
    """Return all that writes to a repository, what the narrowing options exclude included."""
    subscribed = [subscribe(app, scope.defaults) for app in (*found.applications, *found.outside)]
    every = (sub for one in (*subscribed, *found.helm_releases) for sub in one.subscriptions)
    return [sub for sub in every if sub.method == "git" and not sub.flaw]


def _origin(origin: str) -> tuple[str, int]:
    """Split `path:line` into path and line. The line is 0 if there is none."""
    path, _, line = origin.rpartition(":")
    return (path, int(line)) if path and line.isdigit() else (origin, 0)


def _with_texts(manifests: Iterable[FoundManifest], texts: dict[str, str]) -> Iterator[FoundManifest]:
    """Yield the manifests, and put the texts of those from Git into `texts`, by the path in their origin."""
    for one in manifests:
        if one.text:
            texts[_origin(one.origin)[0]] = one.text
        yield one


def _place(one: Finding, prefix: str, texts: Mapping[str, str]) -> tuple[str, int]:
    """Return the file and line of the annotation, or else of the manifest."""
    path, start = _origin(one.origin)
    if not one.key or path in NO_FILES:
        return path, start
    if one.field:
        # An `image-list` has what the fields `alias` and `imageName` say, of each image.
        value = one.value.partition("=")[2] if one.field == "imageName" else one.value
        return path, line_of(path, start, one.field, value, sure=True, text=texts.get(path))
    return path, line_of(path, start, f"{prefix}{one.key}", one.value, text=texts.get(path))


def _in_json(found: Iterable[Placed]) -> str:
    listed = {"schema": SCHEMA, "findings": [_as_json(*one) for one in found]}
    return exact_json(json.dumps(listed, indent=2, ensure_ascii=False)) + "\n"


def _as_json(one: Finding, path: str, line: int) -> dict[str, object]:
    return {
        "application": one.application or None,
        "key": one.key or None,
        "value": without_logins(one.value) or None,
        "severity": one.severity,
        "message": without_logins(one.message),
        "hint": without_logins(one.hint) or None,
        "file": path if path and path not in NO_FILES else None,
        "line": line if line and path not in NO_FILES else None,
    }


def _as_text(found: Sequence[Placed], read: int) -> str:
    lines = []
    for one, path, line in found:
        where = f"{path}:{line}" if line else path
        subject = one.application or where
        lines.append(f"{one.severity:7} {f'{subject}  ' if subject else ''}{one.message}")
        if one.hint:
            lines.append(f"        fix: {one.hint}")
        if one.application and where:
            lines.append(f"        at: {where}")
    errors, warnings, remarks = (sum(one.severity == kind for one, _, _ in found) for kind in _SEVERITIES)
    counts = (counted(errors, "error"), counted(warnings, "warning"), counted(remarks, "remark"))
    lines.append(f"{counted(read, 'Application')} read: {', '.join(counts)}")
    return "\n".join(map(printable, lines)) + "\n"


def _as_command(one: Finding, path: str, line: int) -> str:
    """Return a GitHub annotation for the file and line."""
    kind = {"error": "error", "warning": "warning", "info": "notice"}[one.severity]
    place = f"file={_escaped(path, prop=True)},line={line}" if line and path not in NO_FILES else ""
    title = f"title={_escaped(one.application or 'manifest', prop=True)}"
    text = f"{one.message}; {one.hint}" if one.hint else one.message
    return f"::{kind} {','.join(filter(None, (place, title)))}::{_escaped(text)}\n"


def _escaped(text: str, *, prop: bool = False) -> str:
    text = printable(text).replace("%", "%25")
    return text.replace(":", "%3A").replace(",", "%2C") if prop else text

"""Generate the parts of the hosts' manifests that list options, results, and secrets from one table.

    python -m scripts.hosts

The parameters come from the commands' options (`task/settings.py`). The texts for results and secrets are below. In each
file, the lines between two markers are regenerated. The rest is written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from task.ci.publish import NAMES
from task.cli.call import HOSTED, defaults
from task.option import (
    ENV_PREFIX,
    PARAMETER_PREFIX,
    Option,
    every_choice,
    every_line,
    every_pair,
    every_word,
)
from task.settings import SECRETS, options_of

ROOT = Path(__file__).resolve().parent.parent
TASK = ROOT / "tekton/task/image-update/image-update.yaml"
STEP_ACTION = ROOT / "tekton/stepaction/image-update/image-update.yaml"
TEMPLATE = ROOT / "argo-workflows/image-update/manifests.yaml"
CLUSTER_TEMPLATE = ROOT / "argo-workflows/image-update-cluster/manifests.yaml"
ACTION = ROOT / "action.yml"
COMPONENT = ROOT / "templates/image-update.yml"
MARKED = re.compile(
    r"^( *)(?:#|<!--) (\w+): `python -m scripts\.hosts` writes what follows.*\n([\s\S]*?)^ *(?:#|<!--) end of the \2",
    re.MULTILINE,
)
NOTE = (
    "# Generated from ../image-update/manifests.yaml by `python -m scripts.hosts`: do not edit.\n"
)

# The parameters, in form order. Dashboards show a field for each, and a form has at most fifty-five fields, including
# those that the host adds (GitHub adds nine secrets). So this list only has the parameters that people fill in, those
# that the commands require, and files. To add a parameter, add it here. Everything else goes through `options`.
FORM = (
    "image", "image-digest", "images-from", "names", "alias", "from", "to", "failed", "healthy", "reason", "until",
    "by", "discard", "revision", "base", "head", "applications", "application", "clusters", "require-match", "pin-digest",
    "commit-message-template", "signing-key", "pull-request", "auto-merge", "comment", "forge-token-file",
    "git-username", "git-password-file", "git-credentials-url", "ssh-directory", "basic-auth-directory", "ca-file",
    "kubeconfig", "argocd-auth-token-file", "registries-conf", "verify", "wait", "wait-timeout", "dry-run", "output",
    "report", "html", "log-level",
)  # fmt: skip
MOST = 55
OPTIONS = (
    "More options for the command that do not have a parameter here, one {each}, as --name value or --name=value. "
    "The reference lists them."
)
COMMAND = f"Command to run: {', '.join(HOSTED[:-1])}, or {HOSTED[-1]}."
# The form fields of a template that is submitted on its own.
ASKED = (
    "command", "image", "applications", "names", "alias", "to", "failed", "from", "reason", "until",
    "by", "discard", "healthy", "revision",
)  # fmt: skip
# `applications` sets the source for `lint`. Its options for interactive use are not parameters.
ONLY_OF_LINT = ("source", "holds", "from-image-updater")
RESULTS = {
    "status": "updated, unchanged, refused, or failed. For plan and dry-run, the result that a run would have. "
    "For hold, updated means that the hold was written.",
    "updated": "true or false: whether an image was pushed or proposed. "
    "Always false for plan, dry-run, and hold.",
    "commit": "ID of the commit, or of an earlier run's commit that already has this build. Empty if there is none, as for plan.",
    "pull-request": "URL of the pull request. Empty if there is none.",
    "repository": "Git repository that was written to.",
    "branch": "Branch that was written to.",
    "tag": "Image tag.",
    "digest": "Image digest. Empty if the build did not provide one.",
    "applications": "Updated Applications as a JSON list, truncated if it is too long. applications-count has the full number. "
    "For plan and dry-run, the Applications that would be updated.",
    "applications-count": "Number of updated Applications.",
    "rolled-back": "true or false: whether a rollout failed and the earlier version was restored.",
    "message": "First error, otherwise the outcome. One line of at most 300 bytes.",
    "image_ARTIFACT_INPUTS": "The image as an input of this run (uri, digest), for Tekton Chains.",
}
# The results of a step that was skipped or did not start. They must never report success.
FALLBACKS = {
    "status": "failed", "updated": "false", "applications": "[]", "applications-count": "0", "rolled-back": "false",
    "image_ARTIFACT_INPUTS": '{"uri":"","digest":""}',
}  # fmt: skip
SECRET_WORDS = {
    "git-token": "Token with push access. Only sent to the URLs in git-credentials-url.",
    "git-password": "Password for git-username, sent to the same URLs.",
    "ssh-key": "Private SSH key without a passphrase.",
    "github-app-key": "Private key of the GitHub App set with github-app-id.",
    "argocd-auth-token": "Token for Argo CD's API, used with applications: argocd.",
    "forge-token": "Token for pull requests, if the Git token does not have the permission.",
    "registry-password": "Password for registry-username, used for registry-credentials-for.",
    "cloudevent-token": "Token that is sent to cloudevent-url.",
}


@dataclass(frozen=True)
class Parameter:
    """A step parameter: an option of one or more commands."""

    name: str
    default: str
    help: str
    is_path: bool = False

    @property
    def variable(self) -> str:
        """The variable that the host uses to pass the parameter."""
        return PARAMETER_PREFIX + self.name.upper().replace("-", "_")


@dataclass(frozen=True)
class Host:
    """A host's syntax for parameters, variables, results, and secrets."""

    parameter: str
    reference: str
    variable: str
    result: str = ""
    hidden: str = ""
    settled: tuple[str, ...] = ()  # options that the host sets itself, so they are not parameters
    paths: str = ""  # base of relative paths
    values: Mapping[str, str] = field(default_factory=dict)  # instead of the plain parameter
    words: Mapping[str, tuple[str, str]] = field(
        default_factory=dict
    )  # a different default and help text
    command: str = ""  # appended to the default of the parameter `command`
    array: str = ""  # syntax for array parameters, or "" if the host does not have arrays


TEKTON = Host(
    parameter="- {{name: {name}, type: string, default: {default}, description: {help}}}",
    reference="$(params.{name})",
    variable="- {{name: {variable}, value: {value}}}",
    result="- {{name: {name}, type: {type}, {properties}description: {help}}}",
    hidden="- {{name: {variable}, valueFrom: {{secretKeyRef: "
    "{{name: $(params.secret), key: {key}, optional: true}}}}}}",
    settled=("basic-auth-directory", "ca-file"),
    array="- {{name: {name}, type: array, default: [], description: {help}}}",
    paths="Relative to the workspace source.",
    values={
        "ssh-directory": "$(workspaces.ssh-directory.path)$(params.ssh-directory)",
        "report": "$(workspaces.report.path)$(params.report)",
    },
    words={
        "ssh-directory": ("", "Folder like ~/.ssh, if the workspace ssh-directory is not bound."),
        "report": ("", "Write the JSON report to this file, if the workspace report is not bound."),
    },
)
ENUM = f", enum: [{', '.join(HOSTED)}]"
HOSTS: Mapping[Path, Host] = {
    TASK: TEKTON,
    STEP_ACTION: replace(TEKTON, paths="Relative to source-directory.", values={}, words={}),
    TEMPLATE: Host(
        parameter="- {{name: {name}, value: {default}{choices}, description: {help}}}",
        reference='"{{{{inputs.parameters.{name}}}}}"',
        variable="- {{name: {variable}, value: {value}}}",
        result="- {{name: {name}, valueFrom: {{path: /out/{name}, default: {fallback}}}, description: {help}}}",
        hidden="- {{name: {variable}, valueFrom: {{secretKeyRef: "
        '{{name: "{{{{inputs.parameters.secret}}}}", key: {key}, optional: true}}}}}}',
        settled=("basic-auth-directory", "ca-file"),
        paths="Files from the artifact source are in source/….",
        values={"report": "\"{{=inputs.parameters.report == 'true' ? '/out/report.json' : ''}}\""},
        words={
            "ssh-directory": (
                "/credentials/ssh",
                "Folder like ~/.ssh. The Secret ssh-secret is mounted here.",
            ),
            "report": (
                "false",
                "Store the JSON report as the artifact `report`. Requires an artifact repository (true or false).",
            ),
        },
        command=ENUM,
    ),
    ACTION: Host(
        parameter="{name}: {{default: {default}, description: {help}}}",
        reference="${{{{ inputs.{name} }}}}",
        variable="{variable}: {value}",
        result="{name}: {{description: {help}}}",
        hidden="{variable}: ${{{{ inputs.{key} }}}}",
        paths="Relative to the workspace.",
    ),
    COMPONENT: Host(
        parameter="{name}: {{default: {default}{choices}, description: {help}}}",
        reference="$[[ inputs.{name} ]]",
        variable="{variable}: {value}",
        settled=("report",),
        paths="Relative to the project.",
        command=ENUM.replace("enum", "options"),
    ),
}


def parameters() -> tuple[Parameter, ...]:
    """Return the parameters that all hosts have: the options of the commands that hosts can call."""
    found: dict[str, dict[str, list[str]]] = {}
    options: dict[str, Option] = {}
    for command in HOSTED:
        for one, _, option in options_of(command):
            if one.name in ("results_dir", "dotenv") or option.old_name:
                continue
            if one.name.replace("_", "-") in ONLY_OF_LINT:
                continue
            named = "names" if option.argument else (option.flag or one.name)
            name = named.removeprefix("--").replace("_", "-")
            found.setdefault(name, {}).setdefault(_help(option, one.default), []).append(command)
            options.setdefault(name, option)
    if unknown := set(FORM) - found.keys():
        raise ValueError(f"no command has {sorted(unknown)}")
    return tuple(
        Parameter(
            name,
            defaults().get(name, ""),
            _without_dashes(_told(found[name])),
            options[name].metavar in ("FILE", "SOURCE"),
        )
        for name in FORM
    )


def _without_dashes(text: str) -> str:
    """Return the help text with parameter names instead of options, and mark options that go into `options`."""
    text = re.sub(r"--([a-z-]+)", lambda flag: flag[1] if flag[1] in FORM else flag[0], text)
    return re.sub(r"(--[a-z-]+)", r"\1 (in options)", text)


def _told(helps: Mapping[str, list[str]]) -> str:
    """Return the help for `run`, otherwise the help for each command that accepts the option."""
    for text, commands in helps.items():
        if "run" in commands:
            return text
    return " ".join(
        f"For {' and '.join(filter(None, (', '.join(commands[:-1]), commands[-1])))}: {text}"
        for text, commands in helps.items()
    )


def _help(option: Option, default: object) -> str:
    """Return the option's help with its accepted values. Hosts do not provide stdin."""
    text = option.help.replace('"', "'").replace(", - (stdin)", "")
    if isinstance(default, bool) or not (default or option.metavar):
        return f"{text.rstrip('.')} (true or false)."
    choices = option.metavar.split("|")
    if choices[1:] and not all(choice in text for choice in choices):
        return f"{text.rstrip('.')} ({', '.join(choices)})."
    if option.read in (every_line, every_pair):
        return f"{text} One value per line."
    return (
        f"{text} Separate several with commas or spaces."
        if option.read in (every_word, every_choice)
        else text
    )


def of_host(host: Host) -> Iterator[Parameter]:
    """Yield a host's parameters, starting with `command`."""
    yield Parameter("command", "run", COMMAND)
    for one in parameters():
        if one.name not in host.settled:
            default, told = host.words.get(one.name, (one.default, one.help))
            yield Parameter(one.name, default, f"{told} {host.paths}" if one.is_path else told)
    each = "in each element" if host.array else "per line"
    yield Parameter("options", "", OPTIONS.format(each=each))


def secrets() -> Mapping[str, str]:
    """Return the variables for secrets by key, without those that CI systems set."""
    return {
        one.removeprefix(ENV_PREFIX).lower().replace("_", "-"): one
        for one in SECRETS
        if one.startswith(ENV_PREFIX)
    }


# The parts between markers, as lines without indentation.


def _parameters(host: Host) -> Iterator[str]:
    return (_declared(host, one) for one in of_host(host))


def _arguments(host: Host) -> Iterator[str]:
    every = {one.name: one for one in of_host(host)}
    return (_declared(host, every[name]) for name in ASKED)


def _declared(host: Host, one: Parameter) -> str:
    if one.name == "options" and host.array:
        return host.array.format(name=one.name, help=_quoted(one.help))
    choices = host.command if one.name == "command" else ""
    return host.parameter.format(
        name=one.name, default=_quoted(one.default), help=_quoted(one.help), choices=choices
    )


def _variables(host: Host) -> Iterator[str]:
    for one in of_host(host):
        handed_over = one.name == "command" or (one.name == "options" and host.array)
        if not handed_over:  # passed as arguments instead
            value = host.values.get(one.name) or host.reference.format(name=one.name)
            yield host.variable.format(variable=one.variable, value=value)


def _results(host: Host) -> Iterator[str]:
    for name in NAMES:
        is_object = name == "image_ARTIFACT_INPUTS"
        yield host.result.format(
            name=name,
            type="object" if is_object else "array" if name == "applications" else "string",
            properties="properties: {uri: {type: string}, digest: {type: string}}, "
            if is_object
            else "",
            fallback=_quoted(FALLBACKS.get(name, "")),
            help=_quoted(RESULTS[name]),
        )


def _secrets(host: Host) -> Iterator[str]:
    for key, variable in secrets().items():
        yield host.hidden.format(variable=variable, key=key)


def _inputs_for_secrets(host: Host) -> Iterator[str]:
    return (
        _declared(host, Parameter(key, "", f"{SECRET_WORDS[key]} From a secret."))
        for key in secrets()
    )


def _table_of_parameters(host: Host) -> Iterator[str]:
    yield from ("| name | default | meaning |", "|---|---|---|")
    for one in of_host(host):
        yield f"| `{one.name}` | {f'`{one.default}`' if one.default else ''} | {one.help} |"


def _table_of_secrets(_host: Host) -> Iterator[str]:
    yield from ("| key | variable | meaning |", "|---|---|---|")
    for key, variable in secrets().items():
        yield f"| `{key}` | `{variable}` | {SECRET_WORDS[key]} |"


def _table_of_results(_host: Host) -> Iterator[str]:
    yield from ("| name | meaning |", "|---|---|")
    for name in NAMES:
        yield f"| `{name}` | {RESULTS[name]} |"


PARTS: Mapping[str, Callable[[Host], Iterator[str]]] = {
    "parameters": _parameters,
    "arguments": _arguments,
    "variables": _variables,
    "results": _results,
    "secrets": _secrets,
    "inputs": _inputs_for_secrets,
}
TABLES: Mapping[str, Callable[[Host], Iterator[str]]] = {
    "parameters": _table_of_parameters,
    "secrets": _table_of_secrets,
    "results": _table_of_results,
}


def rendered(path: Path, text: str) -> str:
    """Return the text of a manifest, or of the README next to it, with regenerated parts."""
    host = next(host for manifest, host in HOSTS.items() if manifest.parent == path.parent)
    parts = PARTS if path in HOSTS else TABLES

    def part(found: re.Match[str]) -> str:
        pad = found[1]
        lines = "".join(f"{pad}{line}\n" for line in parts[found[2]](host))
        start, end = (place - found.start() for place in found.span(3))
        return found[0][:start] + lines + found[0][end:]

    return MARKED.sub(part, text)


def files() -> Mapping[Path, str]:
    """Return the text of every file with generated parts."""
    readmes = (TASK.with_name("README.md"), TEMPLATE.with_name("README.md"))
    found = {path: rendered(path, path.read_text(encoding="utf-8")) for path in (*HOSTS, *readmes)}
    whole = found[TEMPLATE].replace(
        "\nkind: WorkflowTemplate\n", "\nkind: ClusterWorkflowTemplate\n", 1
    )
    return {**found, CLUSTER_TEMPLATE: NOTE + whole}


def main() -> None:
    """Regenerate all files."""
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


if __name__ == "__main__":
    main()

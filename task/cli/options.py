"""Every option, declared once: its name, what it takes, its default and its help.

Two doors read this table: `task.cli.door` reads plain command lines (a pipeline's, in a
millisecond), `task.cli.app` builds the Typer application from it (help, completion, and the
words for a mistake). Documentation and hosts' manifests are checked against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ENV_PREFIX = "IMAGE_UPDATE_"
# What has a variable and no option: secrets are never arguments.
SECRETS = (
    "IMAGE_UPDATE_GIT_TOKEN", "IMAGE_UPDATE_GIT_PASSWORD", "IMAGE_UPDATE_SSH_KEY", "IMAGE_UPDATE_GITHUB_APP_KEY",
    "IMAGE_UPDATE_ARGOCD_AUTH_TOKEN", "IMAGE_UPDATE_FORGE_TOKEN", "IMAGE_UPDATE_REGISTRY_PASSWORD",
    "IMAGE_UPDATE_CLOUDEVENT_TOKEN",
)  # fmt: skip
RESULTS_PREFIX = "IMAGE_UPDATE_RESULT_"  # what the dotenv file of one job gives to the next
Takes = Literal["text", "words", "lines", "flag", "number", "choice"]


@dataclass(frozen=True)
class Option:
    """One option. `words` and `lines` may be repeated; `words` splits at commas and white space."""

    name: str
    takes: Takes
    help: str
    panel: str
    default: str = ""
    choices: tuple[str, ...] = ()
    metavar: str = "TEXT"
    commands: tuple[str, ...] = ("run", "plan", "scan", "hold", "release", "rollback")
    positional: bool = False  # given without its name, required

    @property
    def variable(self) -> str:
        """The environment variable that gives it."""
        return ENV_PREFIX + self.name.upper().replace("-", "_")

    @property
    def field(self) -> str:
        """Its name in Python."""
        return self.name.replace("-", "_")


EVENT, FIND, RULES, COMMIT, GIT, RESULTS = "The image", "Applications", "Rules", "The commit", "Git", "Results and log"
HELD, ARGO, REGISTRY, REQUEST = "What is held", "Argo CD and Kubernetes", "The registry", "Pull requests"
EVENT_COMMANDS, BY_HAND = ("run", "plan"), ("hold", "release", "rollback")
TAKING = (*EVENT_COMMANDS, "scan")
TELLING = ("run", "scan", *BY_HAND)
LINT = (*TAKING, *BY_HAND, "lint")
CLUSTER = (*LINT, "wait")

OPTIONS = (
    Option(
        "image",
        "lines",
        "Image just built; several by commas, white space, newlines or as a JSON list. "
        "Of hold, release and rollback: only this alias.",
        EVENT,
        metavar="REF",
        commands=(*EVENT_COMMANDS, *BY_HAND),
    ),
    Option("image-digest", "text", "Digest of the single --image.", EVENT, metavar="sha256:…", commands=EVENT_COMMANDS),
    Option("tag", "text", "Tag of an --image that has only a digest.", EVENT, metavar="TAG", commands=EVENT_COMMANDS),
    Option(
        "images-from",
        "lines",
        "What a builder wrote about the images it pushed; the format is recognised.",
        EVENT,
        metavar="FILE",
        commands=EVENT_COMMANDS,
    ),
    Option(
        "sequence",
        "text",
        "Number of this build: a higher one is newer; else the CI system's own variables tell.",
        EVENT,
        metavar="N",
        commands=EVENT_COMMANDS,
    ),
    Option(
        "created",
        "text",
        "When the image was created: RFC 3339, or seconds since 1970.",
        EVENT,
        metavar="TIME",
        commands=EVENT_COMMANDS,
    ),
    Option(
        "app",
        "words",
        "Applications: NAME or NAMESPACE/NAME, globs allowed.",
        HELD,
        metavar="APP",
        commands=(*BY_HAND, "wait"),
        positional=True,
    ),
    Option(
        "to",
        "text",
        "What to go back to: a tag, tag@digest, previous, or 3-back.",
        HELD,
        metavar="TAG",
        commands=("rollback",),
    ),
    Option(
        "unknown-tag",
        "flag",
        "Go back to a tag even if neither Git's history nor the registry knows it.",
        HELD,
        commands=("rollback",),
    ),
    Option("reason", "text", "Why; everybody who is held back reads it.", HELD, commands=("hold", "rollback")),
    Option(
        "until",
        "text",
        "When the hold ends by itself: a date, a time (RFC 3339), or 90m, 12h, 3d.",
        HELD,
        metavar="DATE",
        commands=("hold", "rollback"),
    ),
    Option(
        "by",
        "text",
        "Who; else the CI system's own variables tell.",
        HELD,
        metavar="NAME",
        commands=("hold", "rollback"),
    ),
    Option("hold", "flag", "Hold what is rolled back to.", HELD, default="true", commands=("rollback",)),
    Option("discard", "flag", "Drop what was deferred in place of applying it.", HELD, commands=("release",)),
    Option("holds", "flag", "Also ask repositories that need a login what is held.", HELD, commands=("lint",)),
    Option("dry-run", "flag", "Show the diff, as plan does; write nothing.", HELD, commands=("scan", *BY_HAND)),
    Option(
        "applications",
        "lines",
        "cluster, argocd, a file or folder of manifests, - (stdin), or REPO//PATH?ref=REF.",
        FIND,
        metavar="SOURCE",
        commands=CLUSTER,
    ),
    Option(
        "application",
        "words",
        "Only Applications of this name (glob, or NAMESPACE/NAME).",
        FIND,
        metavar="NAME",
        commands=(*TAKING, "lint"),
    ),
    Option(
        "selector", "text", "Only Applications with these labels: a=b,c!=d,e,!f.", FIND, metavar="LABELS", commands=LINT
    ),
    Option("project", "words", "Only Applications of this project (glob).", FIND, metavar="NAME", commands=LINT),
    Option("namespace", "words", "Only Applications of this namespace (glob).", FIND, metavar="NAME", commands=LINT),
    Option(
        "argocd-namespace",
        "text",
        "Namespace of Argo CD's control plane; decides the override file's name.",
        FIND,
        default="argocd",
        metavar="NAME",
        commands=CLUSTER,
    ),
    Option(
        "annotation-prefix",
        "text",
        "Prefix of the annotations.",
        FIND,
        default="argocd-image-updater.argoproj.io/",
        metavar="PREFIX",
        commands=LINT,
    ),
    Option(
        "strategy",
        "choice",
        "Strategy where no annotation names one.",
        RULES,
        default="semver",
        choices=("semver", "newest-build", "alphabetical", "digest"),
        commands=LINT,
    ),
    Option("allow-downgrade", "flag", "Accept a version older than the present one.", RULES, commands=TAKING),
    Option("require-live", "flag", "Only where status.summary.images holds the image.", RULES, commands=TAKING),
    Option("require-update", "flag", "Exit 5 when nothing was updated.", RULES, commands=TAKING),
    Option("require-match", "flag", "Exit 5 when an --image is tracked by no Application.", RULES, commands=TAKING),
    Option("pin-digest", "flag", "Write tag@sha256:….", RULES, commands=LINT),
    Option("carry-parameters", "flag", "Carry the spec's parameters along in an override file.", RULES, default="true"),
    Option("atomic", "flag", "One failing Application stops its whole commit.", COMMIT),
    Option("git-author-name", "text", "Author and committer.", COMMIT, default="image-update", metavar="NAME"),
    Option(
        "git-author-email", "text", "Their address.", COMMIT, default="image-update@noreply.invalid", metavar="ADDRESS"
    ),
    Option(
        "commit-message-template", "text", "Go template of the commit message, as AIU takes it.", COMMIT, metavar="FILE"
    ),
    Option("trailer", "lines", "One more trailer of the commit message.", COMMIT, metavar="KEY=VALUE"),
    Option("sign-off", "flag", "Add Signed-off-by, with the author.", COMMIT),
    Option(
        "signing-key",
        "text",
        "Sign commits: a file, the key itself (by the variable), or the id of a key in the keyring.",
        COMMIT,
        metavar="KEY",
    ),
    Option(
        "signing-format",
        "choice",
        "What kind of key it is.",
        COMMIT,
        default="openpgp",
        choices=("openpgp", "ssh"),
    ),
    Option(
        "source-commit",
        "text",
        "Commit that the image was built from; else the CI system's own variables tell.",
        COMMIT,
        metavar="SHA",
        commands=EVENT_COMMANDS,
    ),
    Option("source-repository", "text", "Repository of that commit.", COMMIT, metavar="URL", commands=EVENT_COMMANDS),
    Option(
        "pipeline-run",
        "text",
        "What links to this run of the pipeline; else the CI system's own variables tell.",
        COMMIT,
        metavar="URL",
    ),
    Option("deadline", "number", "Seconds that a contended branch is tried.", GIT, default="120", metavar="SECONDS"),
    Option(
        "stall-timeout",
        "number",
        "Seconds without a byte after which a transfer is ended.",
        GIT,
        default="60",
        metavar="SECONDS",
    ),
    Option("git-cache-dir", "text", "Keep what was fetched here for later runs (a volume).", GIT, metavar="DIR"),
    Option("allow-protocol", "words", "One more Git transport: file.", GIT, metavar="NAME", commands=CLUSTER),
    Option(
        "rewrite-url",
        "lines",
        "Reach a repository under another URL; longest prefix wins.",
        GIT,
        metavar="PREFIX=REPLACEMENT",
        commands=CLUSTER,
    ),
    Option("git-username", "text", "User name for Git over https.", GIT, metavar="NAME", commands=CLUSTER),
    Option(
        "git-password-file",
        "text",
        "File with the password or token; or IMAGE_UPDATE_GIT_TOKEN, IMAGE_UPDATE_GIT_PASSWORD.",
        GIT,
        metavar="FILE",
        commands=CLUSTER,
    ),
    Option(
        "git-credentials-url",
        "lines",
        "Which URLs that user name, password or token may be sent to.",
        GIT,
        metavar="PREFIX",
        commands=CLUSTER,
    ),
    Option(
        "basic-auth-directory",
        "text",
        "Folder with .git-credentials and .gitconfig, or username and password.",
        GIT,
        metavar="DIR",
        commands=CLUSTER,
    ),
    Option("github-app-id", "text", "GitHub App that pushes.", GIT, metavar="ID", commands=CLUSTER),
    Option("github-app-installation-id", "text", "Where that App is installed.", GIT, metavar="ID", commands=CLUSTER),
    Option(
        "github-app-key-file",
        "text",
        "Its private key; or IMAGE_UPDATE_GITHUB_APP_KEY.",
        GIT,
        metavar="FILE",
        commands=CLUSTER,
    ),
    Option(
        "ssh-key-file",
        "text",
        "Private SSH key without passphrase; or IMAGE_UPDATE_SSH_KEY.",
        GIT,
        metavar="FILE",
        commands=CLUSTER,
    ),
    Option(
        "ssh-directory",
        "text",
        "Folder with private keys, known_hosts and config, as ~/.ssh.",
        GIT,
        metavar="DIR",
        commands=CLUSTER,
    ),
    Option(
        "ssh-known-hosts-file",
        "text",
        "Host keys of SSH servers; only these are trusted.",
        GIT,
        metavar="FILE",
        commands=CLUSTER,
    ),
    Option(
        "ssh-host-key", "lines", "One more known host, as ssh-keyscan prints it.", GIT, metavar="LINE", commands=CLUSTER
    ),
    Option(
        "ca-file",
        "text",
        "Certificate authorities to trust besides the system's; a file or folder.",
        GIT,
        metavar="FILE",
        commands=CLUSTER,
    ),
    Option(
        "git-config",
        "flag",
        "Heed what the user's and system's git configuration say of servers.",
        GIT,
        default="true",
        commands=CLUSTER,
    ),
    Option(
        "kubeconfig",
        "text",
        "Which cluster; else KUBECONFIG, ~/.kube/config, or the pod's own.",
        ARGO,
        metavar="FILE",
        commands=CLUSTER,
    ),
    Option("kube-context", "text", "Context of the kubeconfig.", ARGO, metavar="NAME", commands=CLUSTER),
    Option(
        "argocd-server",
        "text",
        "Argo CD's API server, HOST[:PORT]; else ARGOCD_SERVER, ARGOCD_OPTS.",
        ARGO,
        metavar="HOST",
        commands=CLUSTER,
    ),
    Option(
        "argocd-auth-token-file",
        "text",
        "File with its token; or IMAGE_UPDATE_ARGOCD_AUTH_TOKEN, ARGOCD_AUTH_TOKEN.",
        ARGO,
        metavar="FILE",
        commands=CLUSTER,
    ),
    Option("argocd-plaintext", "flag", "Reach it over http.", ARGO, commands=CLUSTER),
    Option("argocd-insecure", "flag", "Do not check its certificate.", ARGO, commands=CLUSTER),
    Option(
        "argocd-ca-file", "text", "Certificate authorities to trust for it.", ARGO, metavar="FILE", commands=CLUSTER
    ),
    Option("argocd-root-path", "text", "Path below which it is served.", ARGO, metavar="PATH", commands=CLUSTER),
    Option(
        "argocd-header",
        "lines",
        "One more header, NAME: VALUE; a secret one by the variable.",
        ARGO,
        metavar="HEADER",
        commands=CLUSTER,
    ),
    Option("refresh", "flag", "Ask Argo CD to look at Git now (with cluster and argocd).", ARGO, default="true"),
    Option("refresh-parents", "flag", "Also refresh the Applications that manage those written.", ARGO),
    Option("wait", "flag", "Wait until what was written is synced and healthy; exit 6 when it fails.", ARGO),
    Option(
        "wait-timeout",
        "number",
        "Seconds to wait at most.",
        ARGO,
        default="600",
        metavar="SECONDS",
        commands=(*TAKING, *BY_HAND, "wait"),
    ),
    Option("revision", "text", "The commit that is waited for.", ARGO, metavar="SHA", commands=("wait",)),
    Option(
        "repository", "text", "Only sources of this repository must be at it.", ARGO, metavar="URL", commands=("wait",)
    ),
    Option(
        "kubernetes-events",
        "flag",
        "Write an Event ImagesUpdated on each Application, as AIU does (with cluster).",
        ARGO,
    ),
    Option(
        "registry-check",
        "choice",
        "Whether to ask the registry: only what a rule needs, all, or nothing.",
        REGISTRY,
        default="auto",
        choices=("auto", "always", "never"),
    ),
    Option("registries-conf", "text", "AIU's registries.conf.", REGISTRY, metavar="FILE"),
    Option(
        "registry-username", "text", "User name for a registry, beside Docker's config files.", REGISTRY, metavar="NAME"
    ),
    Option(
        "registry-password-file",
        "text",
        "File with its password or token; or IMAGE_UPDATE_REGISTRY_PASSWORD.",
        REGISTRY,
        metavar="FILE",
    ),
    Option(
        "registry-credentials-for",
        "words",
        "Which registries or repositories they are for: ghcr.io, ghcr.io/acme.",
        REGISTRY,
        metavar="PREFIX",
    ),
    Option(
        "registry-cache-dir",
        "text",
        "Keep what is known of images here for later runs (a volume).",
        REGISTRY,
        metavar="DIR",
    ),
    Option(
        "allow-env", "words", "Variable that a pull-secret annotation may name (env:NAME).", REGISTRY, metavar="NAME"
    ),
    Option("allow-exec", "flag", "Allow credentials by a script (ext:/path).", REGISTRY),
    Option(
        "verify",
        "text",
        "Write only what is signed (cosign) with one of the public keys in this file, and pin its digest.",
        REGISTRY,
        metavar="FILE",
    ),
    Option(
        "verify-identity",
        "text",
        "Likewise without keys: who must have signed; needs the extra sigstore.",
        REGISTRY,
        metavar="IDENTITY",
    ),
    Option("verify-issuer", "text", "Who must have vouched for that identity.", REGISTRY, metavar="URL"),
    Option(
        "verify-timeout",
        "number",
        "Seconds to wait for a signature that is made after the push (Tekton Chains).",
        REGISTRY,
        default="0",
        metavar="SECONDS",
    ),
    Option("pull-request", "flag", "Open or update a pull request in place of pushing to the base branch.", REQUEST),
    Option("pull-request-label", "lines", "Label of the request.", REQUEST, metavar="NAME"),
    Option(
        "pull-request-reviewer",
        "lines",
        "Who is asked to review it; GitHub teams as ORG/TEAM.",
        REQUEST,
        metavar="NAME",
    ),
    Option("pull-request-assignee", "lines", "Who it is assigned to.", REQUEST, metavar="NAME"),
    Option("pull-request-draft", "flag", "Open it as a draft.", REQUEST),
    Option("auto-merge", "flag", "Let the forge merge it when its checks have passed.", REQUEST),
    Option(
        "forge",
        "text",
        "The forge where no URL tells: github, gitlab, gitea, bitbucket, bitbucket-server, azure; =URL says where.",
        REQUEST,
        metavar="NAME[=URL]",
    ),
    Option(
        "forge-token-file",
        "text",
        "File with the token for the forge's API; or IMAGE_UPDATE_FORGE_TOKEN.",
        REQUEST,
        metavar="FILE",
    ),
    Option("forge-username", "text", "User name that goes with it (Bitbucket).", REQUEST, metavar="NAME"),
    Option("only-repository", "lines", "Do only what lands in this repository.", GIT, metavar="URL"),
    Option(
        "output",
        "choice",
        "What stdout carries; repositories: a JSON list of those that are written.",
        RESULTS,
        default="text",
        choices=("text", "json", "repositories"),
        commands=LINT,
    ),
    Option(
        "report-file",
        "text",
        "A JSON report: what --report or --output json wrote; - is stdin.",
        RESULTS,
        metavar="FILE",
        commands=("report",),
        positional=True,
    ),
    Option(
        "html",
        "text",
        "Make one self-contained page of it: here, or on stdout where no file is named.",
        RESULTS,
        metavar="[OUT]",
        commands=("report",),
    ),
    Option("report", "text", "Also write the JSON report here.", RESULTS, metavar="FILE"),
    Option("results-dir", "text", "One file per result (Tekton, Argo Workflows).", RESULTS, metavar="DIR"),
    Option("dotenv", "text", "Results as KEY=VALUE lines (GitLab).", RESULTS, metavar="FILE"),
    Option(
        "metrics-file",
        "text",
        "Prometheus metrics of the run; counters go on where the file left off.",
        RESULTS,
        metavar="FILE",
        commands=TELLING,
    ),
    Option(
        "cloudevent-url",
        "text",
        "Send a CloudEvent for each commit; a token by IMAGE_UPDATE_CLOUDEVENT_TOKEN.",
        RESULTS,
        metavar="URL",
        commands=TELLING,
    ),
    Option(
        "log-level",
        "choice",
        "How much the log says.",
        RESULTS,
        default="info",
        choices=("error", "warning", "info", "debug"),
        commands=CLUSTER,
    ),
    Option(
        "log-format",
        "choice",
        "How the log is written; auto: github in GitHub Actions, else text.",
        RESULTS,
        default="auto",
        choices=("auto", "text", "json", "github"),
        commands=CLUSTER,
    ),
)

COMMANDS = {
    "run": "Commit a built image to every Application that asks for it.",
    "plan": "The same decisions and the exact diff; writes nothing.",
    "scan": "Ask the registries for the newest allowed tag of every image, then go on as run does.",
    "hold": "Keep images as they are: later events are remembered, not written.",
    "release": "Lift a hold, and write the newest event that it deferred.",
    "rollback": "Write an older tag and hold it there, in one commit.",
    "wait": "Wait until Argo CD has synced a revision and its Applications are healthy.",
    "report": "Show the report of a run again, or make a page of it.",
    "lint": "Check the annotations of all Applications, every problem at once.",
    "demo": "See it happen: a throw-away repository, one event, decisions, diff and commit.",
}


def options_of(command: str) -> tuple[Option, ...]:
    """The options a command takes."""
    return tuple(option for option in OPTIONS if command in option.commands)

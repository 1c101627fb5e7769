"""Every option, once: what it is called, what it takes, its help and its group in the help.

A command names the options it takes in its signature (`tag: options.Tag = ""`), and Typer does the rest. Each option
has a variable: `--git-author-name` is IMAGE_UPDATE_GIT_AUTHOR_NAME. The functions below are what Typer calls with the
value it has found; they hold what the reference promises beyond Typer:

- White space around a value is no part of it, and a blank value counts as not given.
- A variable that holds several values has them on lines of their own. Typer would split it at every blank.
"""

# Here and in the commands there is no `from __future__ import annotations`: Typer would evaluate a thousand texts at
# each start, which takes a tenth of a second.

import os
from typing import Annotated, Any, get_args, get_origin

import typer

from task.errors import UsageError

ENV_PREFIX = "IMAGE_UPDATE_"
RESULTS_PREFIX = "IMAGE_UPDATE_RESULT_"  # what the dotenv file of one job gives to the next
# What has a variable and no option: secrets are never arguments.
SECRETS = (
    "IMAGE_UPDATE_GIT_TOKEN", "IMAGE_UPDATE_GIT_PASSWORD", "IMAGE_UPDATE_SSH_KEY", "IMAGE_UPDATE_GITHUB_APP_KEY",
    "IMAGE_UPDATE_ARGOCD_AUTH_TOKEN", "IMAGE_UPDATE_FORGE_TOKEN", "IMAGE_UPDATE_REGISTRY_PASSWORD",
    "IMAGE_UPDATE_CLOUDEVENT_TOKEN",
)  # fmt: skip

# The groups of the help.
EVENT, FIND, RULES, COMMIT, GIT, RESULTS = "The image", "Applications", "Rules", "The commit", "Git", "Results and log"
HELD, ARGO, REGISTRY, REQUEST = "What is held", "Argo CD and Kubernetes", "The registry", "Pull requests"

Texts = list[str] | None


def wrong(param: typer.CallbackParam, value: str, hint: str) -> UsageError:
    """The error for a value that an option does not take."""
    return UsageError(f"{param.opts[0]}: {value!r} is not what it takes", hint=f"{hint} (or set {param.envvar})")


def one_text(param: typer.CallbackParam, value: str | None) -> str:
    """A text without the white space around it."""
    text = (value or "").strip()
    if not text and param.default is not None:
        text = str(param.default)
    if param.required and not text:
        raise typer.BadParameter("it is blank", param=param)
    return text


def one_of(param: typer.CallbackParam, value: str) -> str:
    """One of the words of the option's metavar."""
    text, choices = one_text(param, value), str(param.metavar).split("|")
    if text not in choices:
        raise wrong(param, text, f"choose from {', '.join(choices)}")
    return text


def seconds(param: typer.CallbackParam, value: str) -> float:
    """A number of seconds, up to eleven days."""
    text = one_text(param, value)
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e6:  # this also keeps out inf and nan
        raise wrong(param, text, "write a number of seconds")
    return number


def commit_id(param: typer.CallbackParam, value: str) -> str:
    """A commit's id, which is all that a later step can look up."""
    text = one_text(param, value).lower()
    if text and not (set(text) <= set("0123456789abcdef") and 7 <= len(text) <= 64):  # as git has them
        raise wrong(param, text, "write the commit's id, 40 hexadecimal digits")
    return text


def author_part(param: typer.CallbackParam, value: str) -> str:
    """A name or an address that git takes."""
    text = one_text(param, value)
    if not text.isprintable() or set(text) & set("<>"):
        raise wrong(param, text, "leave out < > and control characters")
    return text


def switch(context: typer.Context, param: typer.CallbackParam, value: bool) -> bool:  # noqa: FBT001 - as Typer calls it
    """On or off. A blank variable is neither; Typer would take it for off."""
    blank = _from_variable(context, param) and not os.environ[str(param.envvar)].strip()
    return bool(param.default) if blank else value


def every_text(context: typer.Context, param: typer.CallbackParam, values: Texts) -> tuple[str, ...]:
    """Each value as it is, and all of the variable as one value: the option's reader splits it itself."""
    texts = [os.environ[str(param.envvar)]] if _from_variable(context, param) else values or ()
    return tuple(text for one in texts if (text := one.strip()))


def every_line(context: typer.Context, param: typer.CallbackParam, values: Texts) -> tuple[str, ...]:
    """Each value as it is, and each line of the variable."""
    texts = every_text(context, param, values)
    if not _from_variable(context, param):
        return texts
    return tuple(line for text in texts for one in text.splitlines() if (line := one.strip()))


def every_word(context: typer.Context, param: typer.CallbackParam, values: Texts) -> tuple[str, ...]:
    """The words of all values: white space and commas separate them, wherever they are written."""
    words = tuple(word for text in every_text(context, param, values) for word in text.replace(",", " ").split())
    if param.required and not words:
        raise typer.BadParameter("it is blank", param=param)
    return words


def every_pair(context: typer.Context, param: typer.CallbackParam, values: Texts) -> tuple[tuple[str, str], ...]:
    """`KEY=VALUE` lines."""
    found = []
    for text in every_line(context, param, values):
        key, equals, value = text.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise wrong(param, text, f"write {param.metavar}")
        found.append((key.strip(), value.strip()))
    return tuple(found)


def _from_variable(context: typer.Context, param: typer.CallbackParam) -> bool:
    source = context.get_parameter_source(str(param.name))
    return source is not None and source.name == "ENVIRONMENT"


def _variable(flag: str) -> str:
    return ENV_PREFIX + flag.removeprefix("--").upper().replace("-", "_")


def option(name: str, panel: str, help: str, metavar: str, *, read: Any = one_text) -> Any:  # noqa: A002
    """An option as Typer takes it, with its variable; Typer calls `read` with what was given."""
    return typer.Option(
        name,
        envvar=_variable(name),
        metavar=metavar,
        help=help,
        rich_help_panel=panel,
        parser=str,  # whatever the default is: `read` takes a text
        callback=read,
        autocompletion=(lambda: metavar.split("|")) if read is one_of else None,
    )


def flag(name: str, panel: str, help: str) -> Any:  # noqa: A002 - as Typer calls it
    """`--x/--no-x`. The variable is that of `--x`."""
    no = name.replace("--", "--no-", 1)
    return typer.Option(f"{name}/{no}", envvar=_variable(name), help=help, rich_help_panel=panel, callback=switch)


Image = Annotated[
    Texts,
    option(
        "--image",
        EVENT,
        "Image just built; several by commas, white space, newlines or as a JSON list. "
        "Of hold, release and rollback: only this alias.",
        "REF",
        read=every_text,
    ),
]
ImageDigest = Annotated[str, option("--image-digest", EVENT, "Digest of the single --image.", "sha256:…")]
Tag = Annotated[str, option("--tag", EVENT, "Tag of an --image that has only a digest.", "TAG")]
ImagesFrom = Annotated[
    Texts,
    option(
        "--images-from",
        EVENT,
        "What a builder wrote about the images it pushed; the format is recognised.",
        "FILE",
        read=every_line,
    ),
]
Sequence = Annotated[
    str,
    option(
        "--sequence",
        EVENT,
        "Number of this build: a higher one is newer; else the CI system's own variables tell.",
        "N",
    ),
]
Created = Annotated[
    str, option("--created", EVENT, "When the image was created: RFC 3339, or seconds since 1970.", "TIME")
]

App = Annotated[
    Texts,
    typer.Argument(
        envvar=_variable("--app"),
        metavar="APP...",
        help="Applications: NAME or NAMESPACE/NAME, globs allowed.",
        rich_help_panel=HELD,
        callback=every_word,
    ),
]
To = Annotated[str, option("--to", HELD, "What to go back to: a tag, tag@digest, previous, or 3-back.", "TAG")]
UnknownTag = Annotated[
    bool,
    flag("--unknown-tag", HELD, "Go back to a tag even if neither Git's history nor the registry knows it."),
]
Reason = Annotated[str, option("--reason", HELD, "Why; everybody who is held back reads it.", "TEXT")]
Until = Annotated[
    str, option("--until", HELD, "When the hold ends by itself: a date, a time (RFC 3339), or 90m, 12h, 3d.", "DATE")
]
By = Annotated[str, option("--by", HELD, "Who; else the CI system's own variables tell.", "NAME")]
Hold = Annotated[bool, flag("--hold", HELD, "Hold what is rolled back to.")]
Discard = Annotated[bool, flag("--discard", HELD, "Drop what was deferred in place of applying it.")]
Holds = Annotated[bool, flag("--holds", HELD, "Also ask repositories that need a login what is held.")]

Applications = Annotated[
    Texts,
    option(
        "--applications",
        FIND,
        "cluster, argocd, a file or folder of manifests, - (stdin), or REPO//PATH?ref=REF.",
        "SOURCE",
        read=every_line,
    ),
]
Application = Annotated[
    Texts,
    option("--application", FIND, "Only Applications of this name (glob, or NAMESPACE/NAME).", "NAME", read=every_word),
]
Selector = Annotated[str, option("--selector", FIND, "Only Applications with these labels: a=b,c!=d,e,!f.", "LABELS")]
Project = Annotated[
    Texts, option("--project", FIND, "Only Applications of this project (glob).", "NAME", read=every_word)
]
Namespace = Annotated[
    Texts, option("--namespace", FIND, "Only Applications of this namespace (glob).", "NAME", read=every_word)
]
ArgocdNamespace = Annotated[
    str,
    option(
        "--argocd-namespace", FIND, "Namespace of Argo CD's control plane; decides the override file's name.", "NAME"
    ),
]
AnnotationPrefix = Annotated[str, option("--annotation-prefix", FIND, "Prefix of the annotations.", "PREFIX")]

Strategy = Annotated[
    str,
    option(
        "--strategy",
        RULES,
        "Strategy where no annotation names one.",
        "semver|newest-build|alphabetical|digest",
        read=one_of,
    ),
]
AllowDowngrade = Annotated[
    bool,
    flag("--allow-downgrade", RULES, "Accept a version older than the present one."),
]
RequireLive = Annotated[
    bool,
    flag("--require-live", RULES, "Only where status.summary.images holds the image."),
]
RequireUpdate = Annotated[bool, flag("--require-update", RULES, "Exit 5 when nothing was updated.")]
RequireMatch = Annotated[
    bool,
    flag("--require-match", RULES, "Exit 5 when an --image is tracked by no Application."),
]
PinDigest = Annotated[bool, flag("--pin-digest", RULES, "Write tag@sha256:….")]
CarryParameters = Annotated[
    bool,
    flag("--carry-parameters", RULES, "Carry the spec's parameters along in an override file."),
]

Atomic = Annotated[bool, flag("--atomic", COMMIT, "One failing Application stops its whole commit.")]
GitAuthorName = Annotated[str, option("--git-author-name", COMMIT, "Author and committer.", "NAME", read=author_part)]
GitAuthorEmail = Annotated[str, option("--git-author-email", COMMIT, "Their address.", "ADDRESS", read=author_part)]
CommitMessageTemplate = Annotated[
    str, option("--commit-message-template", COMMIT, "Go template of the commit message, as AIU takes it.", "FILE")
]
Trailer = Annotated[
    Texts,
    option("--trailer", COMMIT, "One more trailer of the commit message.", "KEY=VALUE", read=every_pair),
]
SignOff = Annotated[bool, flag("--sign-off", COMMIT, "Add Signed-off-by, with the author.")]
SigningKey = Annotated[
    str,
    option(
        "--signing-key",
        COMMIT,
        "Sign commits: a file, the key itself (by the variable), or the id of a key in the keyring.",
        "KEY",
    ),
]
SigningFormat = Annotated[
    str, option("--signing-format", COMMIT, "What kind of key it is.", "openpgp|ssh", read=one_of)
]
SourceCommit = Annotated[
    str,
    option(
        "--source-commit",
        COMMIT,
        "Commit that the image was built from; else the CI system's own variables tell.",
        "SHA",
        read=commit_id,
    ),
]
SourceRepository = Annotated[str, option("--source-repository", COMMIT, "Repository of that commit.", "URL")]
PipelineRun = Annotated[
    str,
    option(
        "--pipeline-run",
        COMMIT,
        "What links to this run of the pipeline; else the CI system's own variables tell.",
        "URL",
    ),
]

PullRequest = Annotated[
    bool,
    flag("--pull-request", REQUEST, "Open or update a pull request in place of pushing to the base branch."),
]
PullRequestLabel = Annotated[
    Texts, option("--pull-request-label", REQUEST, "Label of the request.", "NAME", read=every_line)
]
PullRequestReviewer = Annotated[
    Texts,
    option(
        "--pull-request-reviewer",
        REQUEST,
        "Who is asked to review it; GitHub teams as ORG/TEAM.",
        "NAME",
        read=every_line,
    ),
]
PullRequestAssignee = Annotated[
    Texts, option("--pull-request-assignee", REQUEST, "Who it is assigned to.", "NAME", read=every_line)
]
PullRequestDraft = Annotated[bool, flag("--pull-request-draft", REQUEST, "Open it as a draft.")]
AutoMerge = Annotated[
    bool,
    flag("--auto-merge", REQUEST, "Let the forge merge it when its checks have passed."),
]
Forge = Annotated[
    str,
    option(
        "--forge",
        REQUEST,
        "The forge where no URL tells: github, gitlab, gitea, bitbucket, bitbucket-server, azure; =URL says where.",
        "NAME[=URL]",
    ),
]
ForgeTokenFile = Annotated[
    str,
    option(
        "--forge-token-file", REQUEST, "File with the token for the forge's API; or IMAGE_UPDATE_FORGE_TOKEN.", "FILE"
    ),
]
ForgeUsername = Annotated[str, option("--forge-username", REQUEST, "User name that goes with it (Bitbucket).", "NAME")]

Output = Annotated[
    str,
    option(
        "--output",
        RESULTS,
        "What stdout carries; repositories: a JSON list of those that are written.",
        "text|json|repositories",
        read=one_of,
    ),
]
ReportFile = Annotated[
    str,
    typer.Argument(
        envvar=_variable("--report-file"),
        metavar="FILE",
        help="A JSON report: what --report or --output json wrote; - is stdin.",
        rich_help_panel=RESULTS,
        callback=one_text,
    ),
]
Html = Annotated[
    str,
    option(
        "--html", RESULTS, "Make one self-contained page of it: here, or on stdout where no file is named.", "[OUT]"
    ),
]
DryRun = Annotated[bool, flag("--dry-run", RESULTS, "Show the diff, as plan does; write nothing.")]
Report = Annotated[str, option("--report", RESULTS, "Also write the JSON report here.", "FILE")]
ResultsDir = Annotated[str, option("--results-dir", RESULTS, "One file per result (Tekton, Argo Workflows).", "DIR")]
Dotenv = Annotated[str, option("--dotenv", RESULTS, "Results as KEY=VALUE lines (GitLab).", "FILE")]
MetricsFile = Annotated[
    str,
    option("--metrics-file", RESULTS, "Prometheus metrics of the run; counters go on where the file left off.", "FILE"),
]
CloudeventUrl = Annotated[
    str,
    option(
        "--cloudevent-url",
        RESULTS,
        "Send a CloudEvent for each commit; a token by IMAGE_UPDATE_CLOUDEVENT_TOKEN.",
        "URL",
    ),
]
LogLevel = Annotated[
    str, option("--log-level", RESULTS, "How much the log says.", "error|warning|info|debug", read=one_of)
]
LogFormat = Annotated[
    str,
    option(
        "--log-format",
        RESULTS,
        "How the log is written; auto: github in GitHub Actions, else text.",
        "auto|text|json|github",
        read=one_of,
    ),
]

Deadline = Annotated[
    float, option("--deadline", GIT, "Seconds that a contended branch is tried.", "SECONDS", read=seconds)
]
StallTimeout = Annotated[
    float,
    option("--stall-timeout", GIT, "Seconds without a byte after which a transfer is ended.", "SECONDS", read=seconds),
]
GitCacheDir = Annotated[
    str, option("--git-cache-dir", GIT, "Keep what was fetched here for later runs (a volume).", "DIR")
]
AllowProtocol = Annotated[
    Texts, option("--allow-protocol", GIT, "One more Git transport: file.", "NAME", read=every_word)
]
RewriteUrl = Annotated[
    Texts,
    option(
        "--rewrite-url",
        GIT,
        "Reach a repository under another URL; longest prefix wins.",
        "PREFIX=REPLACEMENT",
        read=every_pair,
    ),
]
GitUsername = Annotated[str, option("--git-username", GIT, "User name for Git over https.", "NAME")]
GitPasswordFile = Annotated[
    str,
    option(
        "--git-password-file",
        GIT,
        "File with the password or token; or IMAGE_UPDATE_GIT_TOKEN, IMAGE_UPDATE_GIT_PASSWORD.",
        "FILE",
    ),
]
GitCredentialsUrl = Annotated[
    Texts,
    option(
        "--git-credentials-url",
        GIT,
        "Which URLs that user name, password or token may be sent to.",
        "PREFIX",
        read=every_line,
    ),
]
BasicAuthDirectory = Annotated[
    str,
    option(
        "--basic-auth-directory", GIT, "Folder with .git-credentials and .gitconfig, or username and password.", "DIR"
    ),
]
GithubAppId = Annotated[str, option("--github-app-id", GIT, "GitHub App that pushes.", "ID")]
GithubAppInstallationId = Annotated[
    str, option("--github-app-installation-id", GIT, "Where that App is installed.", "ID")
]
GithubAppKeyFile = Annotated[
    str, option("--github-app-key-file", GIT, "Its private key; or IMAGE_UPDATE_GITHUB_APP_KEY.", "FILE")
]
SshKeyFile = Annotated[
    str, option("--ssh-key-file", GIT, "Private SSH key without passphrase; or IMAGE_UPDATE_SSH_KEY.", "FILE")
]
SshDirectory = Annotated[
    str, option("--ssh-directory", GIT, "Folder with private keys, known_hosts and config, as ~/.ssh.", "DIR")
]
SshKnownHostsFile = Annotated[
    str, option("--ssh-known-hosts-file", GIT, "Host keys of SSH servers; only these are trusted.", "FILE")
]
SshHostKey = Annotated[
    Texts, option("--ssh-host-key", GIT, "One more known host, as ssh-keyscan prints it.", "LINE", read=every_line)
]
CaFile = Annotated[
    str, option("--ca-file", GIT, "Certificate authorities to trust besides the system's; a file or folder.", "FILE")
]
GitConfig = Annotated[
    bool,
    flag("--git-config", GIT, "Heed what the user's and system's git configuration say of servers."),
]
OnlyRepository = Annotated[
    Texts, option("--only-repository", GIT, "Do only what lands in this repository.", "URL", read=every_line)
]

Kubeconfig = Annotated[
    str, option("--kubeconfig", ARGO, "Which cluster; else KUBECONFIG, ~/.kube/config, or the pod's own.", "FILE")
]
KubeContext = Annotated[str, option("--kube-context", ARGO, "Context of the kubeconfig.", "NAME")]
ArgocdServer = Annotated[
    str, option("--argocd-server", ARGO, "Argo CD's API server, HOST[:PORT]; else ARGOCD_SERVER, ARGOCD_OPTS.", "HOST")
]
ArgocdAuthTokenFile = Annotated[
    str,
    option(
        "--argocd-auth-token-file",
        ARGO,
        "File with its token; or IMAGE_UPDATE_ARGOCD_AUTH_TOKEN, ARGOCD_AUTH_TOKEN.",
        "FILE",
    ),
]
ArgocdPlaintext = Annotated[bool, flag("--argocd-plaintext", ARGO, "Reach it over http.")]
ArgocdInsecure = Annotated[bool, flag("--argocd-insecure", ARGO, "Do not check its certificate.")]
ArgocdCaFile = Annotated[str, option("--argocd-ca-file", ARGO, "Certificate authorities to trust for it.", "FILE")]
ArgocdRootPath = Annotated[str, option("--argocd-root-path", ARGO, "Path below which it is served.", "PATH")]
ArgocdHeader = Annotated[
    Texts,
    option(
        "--argocd-header",
        ARGO,
        "One more header, NAME: VALUE; a secret one by the variable.",
        "HEADER",
        read=every_line,
    ),
]
Refresh = Annotated[
    bool,
    flag("--refresh", ARGO, "Ask Argo CD to look at Git now (with cluster and argocd)."),
]
RefreshParents = Annotated[
    bool,
    flag("--refresh-parents", ARGO, "Also refresh the Applications that manage those written."),
]
Wait = Annotated[
    bool,
    flag("--wait", ARGO, "Wait until what was written is synced and healthy; exit 6 when it fails."),
]
WaitTimeout = Annotated[float, option("--wait-timeout", ARGO, "Seconds to wait at most.", "SECONDS", read=seconds)]
ExpectImage = Annotated[
    bool,
    flag("--expect-image", ARGO, "With --wait: exit 6 where the image runs in the Application with other tags only."),
]
Revision = Annotated[str, option("--revision", ARGO, "The commit that is waited for.", "SHA")]
Repository = Annotated[str, option("--repository", ARGO, "Only sources of this repository must be at it.", "URL")]
KubernetesEvents = Annotated[
    bool,
    flag("--kubernetes-events", ARGO, "Write an Event ImagesUpdated on each Application, as AIU does (with cluster)."),
]

RegistryCheck = Annotated[
    str,
    option(
        "--registry-check",
        REGISTRY,
        "Whether to ask the registry: only what a rule needs, all, or nothing.",
        "auto|always|never",
        read=one_of,
    ),
]
RegistriesConf = Annotated[str, option("--registries-conf", REGISTRY, "AIU's registries.conf.", "FILE")]
RegistryUsername = Annotated[
    str, option("--registry-username", REGISTRY, "User name for a registry, beside Docker's config files.", "NAME")
]
RegistryPasswordFile = Annotated[
    str,
    option(
        "--registry-password-file",
        REGISTRY,
        "File with its password or token; or IMAGE_UPDATE_REGISTRY_PASSWORD.",
        "FILE",
    ),
]
RegistryCredentialsFor = Annotated[
    Texts,
    option(
        "--registry-credentials-for",
        REGISTRY,
        "Which registries or repositories they are for: ghcr.io, ghcr.io/acme.",
        "PREFIX",
        read=every_word,
    ),
]
RegistryCacheDir = Annotated[
    str, option("--registry-cache-dir", REGISTRY, "Keep what is known of images here for later runs (a volume).", "DIR")
]
AllowEnv = Annotated[
    Texts,
    option(
        "--allow-env", REGISTRY, "Variable that a pull-secret annotation may name (env:NAME).", "NAME", read=every_word
    ),
]
AllowExec = Annotated[bool, flag("--allow-exec", REGISTRY, "Allow credentials by a script (ext:/path).")]
Verify = Annotated[
    str,
    option(
        "--verify",
        REGISTRY,
        "Write only what is signed (cosign) with one of the public keys in this file, and pin its digest.",
        "FILE",
    ),
]
VerifyIdentity = Annotated[
    str,
    option(
        "--verify-identity",
        REGISTRY,
        "Likewise without keys: who must have signed; needs the extra sigstore.",
        "IDENTITY",
    ),
]
VerifyIssuer = Annotated[str, option("--verify-issuer", REGISTRY, "Who must have vouched for that identity.", "URL")]
VerifyTimeout = Annotated[
    float,
    option(
        "--verify-timeout",
        REGISTRY,
        "Seconds to wait for a signature that is made after the push (Tekton Chains).",
        "SECONDS",
        read=seconds,
    ),
]


def variables() -> set[str]:
    """The variables of all options."""
    aliases = [one for one in globals().values() if get_origin(one) is Annotated]
    return {str(info.envvar) for alias in aliases for info in get_args(alias)[1:]}

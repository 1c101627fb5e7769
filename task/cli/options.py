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
import re
from typing import Annotated, Any, get_args, get_origin

import typer

from task.errors import UsageError
from task.text import is_address, is_name

ENV_PREFIX = "IMAGE_UPDATE_"
RESULTS_PREFIX = "IMAGE_UPDATE_RESULT_"  # prefix of the lines in a dotenv file that one job passes to the next
# Secrets have a variable and no option, because arguments are visible to other processes.
SECRETS = (
    "IMAGE_UPDATE_GIT_TOKEN", "IMAGE_UPDATE_GIT_PASSWORD", "IMAGE_UPDATE_SSH_KEY", "IMAGE_UPDATE_GITHUB_APP_KEY",
    "IMAGE_UPDATE_ARGOCD_AUTH_TOKEN", "IMAGE_UPDATE_FORGE_TOKEN", "IMAGE_UPDATE_REGISTRY_PASSWORD",
    "IMAGE_UPDATE_CLOUDEVENT_TOKEN",
)  # fmt: skip

# The groups of the help.
EVENT, FIND, RULES, COMMIT, GIT, RESULTS = "The image", "Applications", "Rules", "The commit", "Git", "Results and log"
HELD, ARGO, REGISTRY, REQUEST = "What is held", "Argo CD and Kubernetes", "The registry", "Pull requests"

FROM_CI = "By default the CI system's variables tell."

Texts = list[str] | None


# Placeholders that Tekton, Argo Workflows, GitHub Actions and GitLab leave as they are if a name in them is unknown.
PLACEHOLDER = re.compile(
    r"\$\((?:tasks|params|context|workspaces|steps|results)\.[^()]*\)|\$?\{\{[^{}]*\}\}|\$\[\[[^\[\]]*\]\]"
)


def wrong(param: typer.CallbackParam, value: str, what: str, hint: str) -> UsageError:
    """Return the error for a bad value. `what` says what the value is not."""
    return UsageError(f"{param.opts[0]}: {value!r} is not {what}", hint=hint)


def filled_in(param: typer.CallbackParam, text: str) -> str:
    """Return the text. Raises an error if it still has a placeholder of the CI system."""
    if found := PLACEHOLDER.search(text):
        raise UsageError(
            f"{param.opts[0]}: the pipeline did not replace {found.group()[:200]}",
            hint="check the names in it, and that the step which makes the value runs before this one",
        )
    return text


def one_text(param: typer.CallbackParam, value: str | None) -> str:
    """Return a text without the white space around it."""
    text = filled_in(param, (value or "").strip())
    if not text and param.default is not None:
        text = str(param.default)
    if param.required and not text:
        raise typer.BadParameter("it is blank", param=param)
    return text


def one_of(param: typer.CallbackParam, value: str) -> str:
    """Return one of the words in the option's metavar."""
    text, choices = one_text(param, value), str(param.metavar).split("|")
    if text not in choices and text != param.default:
        raise wrong(param, text, "one of its values", f"choose from {', '.join(choices)}")
    return text


def seconds(param: typer.CallbackParam, value: str) -> float:
    """Return a number of seconds, up to eleven days."""
    text = one_text(param, value)
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e6:  # this comparison also refuses inf and nan
        raise wrong(param, text, "a number of seconds", "write a number, such as 120")
    return number


def count(param: typer.CallbackParam, value: str) -> int:
    """Return a whole number up to 50."""
    text = one_text(param, value)
    if not (text.isascii() and text.isdigit() and len(text) <= 2 and int(text) <= 50):
        raise wrong(param, text, "a whole number from 0 to 50", "write a number, such as 5")
    return int(text)


def commit_id(param: typer.CallbackParam, value: str) -> str:
    """Return a full or abbreviated commit id, because later steps cannot look up anything else."""
    text = one_text(param, value).lower()
    if text and not (set(text) <= set("0123456789abcdef") and 7 <= len(text) <= 64):  # as git prints them
        raise wrong(param, text, "the id of a commit", "write its 40 hexadecimal digits, as git rev-parse prints them")
    return text


def author_name(context: typer.Context, param: typer.CallbackParam, value: str) -> str:
    """Return a name that git accepts; "" if none is given, since the repository's config may have one."""
    if not _is_given(context, param) or not value.strip():
        return ""
    text = one_text(param, value)
    if not is_name(text):
        hint = "leave out < > and control characters; --git-author-email takes the address"
        raise wrong(param, text, "a name that Git takes", hint)
    return text


def author_email(context: typer.Context, param: typer.CallbackParam, value: str) -> str:
    """Return an e-mail address; "" if none is given, since the repository's config may have one."""
    if not _is_given(context, param) or not value.strip():
        return ""
    text = one_text(param, value)
    if not is_address(text):
        raise wrong(param, text, "an e-mail address", "write the address alone, such as bot@example.com")
    return text


def switch(context: typer.Context, param: typer.CallbackParam, value: bool) -> bool:  # noqa: FBT001 - as Typer calls it
    """Return whether the option is on. A blank variable counts as not given; Typer would take it for off."""
    blank = _from_variable(context, param) and not os.environ[str(param.envvar)].strip()
    return bool(param.default) if blank else value


def open_switch(context: typer.Context, param: typer.CallbackParam, value: bool) -> bool | None:  # noqa: FBT001
    """Return True or False, or None if neither is given, because the repository's config may say it."""
    return value if _is_given(context, param) else None


def every_text(context: typer.Context, param: typer.CallbackParam, values: Texts) -> tuple[str, ...]:
    """Return the values unchanged. The variable is one value, which the option's reader splits itself."""
    texts = [os.environ[str(param.envvar)]] if _from_variable(context, param) else values or ()
    return tuple(filled_in(param, text) for one in texts if (text := one.strip()))


def every_line(context: typer.Context, param: typer.CallbackParam, values: Texts) -> tuple[str, ...]:
    """Split the variable into its lines, one value each. Values of the option stay as they are."""
    texts = every_text(context, param, values)
    if not _from_variable(context, param):
        return texts
    return tuple(line for text in texts for one in text.splitlines() if (line := one.strip()))


def every_word(context: typer.Context, param: typer.CallbackParam, values: Texts) -> tuple[str, ...]:
    """Split all values into words, at white space and commas, both in options and in the variable."""
    words = tuple(word for text in every_text(context, param, values) for word in text.replace(",", " ").split())
    if param.required and not words:
        raise typer.BadParameter("it is blank", param=param)
    return words


def every_choice(context: typer.Context, param: typer.CallbackParam, values: Texts) -> tuple[str, ...]:
    """Return the words, which must be in the option's metavar and are separated by commas."""
    words, choices = every_word(context, param, values), str(param.metavar).split(",")
    for word in words:
        if word not in choices:
            raise wrong(param, word, "one of its values", f"choose from {', '.join(choices)}")
    return words


def every_pair(context: typer.Context, param: typer.CallbackParam, values: Texts) -> tuple[tuple[str, str], ...]:
    """Parse `KEY=VALUE` lines."""
    found = []
    for text in every_line(context, param, values):
        key, equals, value = text.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise wrong(param, text, f"of the form {param.metavar}", f"write {param.metavar}")
        found.append((key.strip(), value.strip()))
    return tuple(found)


def _from_variable(context: typer.Context, param: typer.CallbackParam) -> bool:
    source = context.get_parameter_source(str(param.name))
    return source is not None and source.name == "ENVIRONMENT"


def _is_given(context: typer.Context, param: typer.CallbackParam) -> bool:
    """Tell whether the command line has the option, or a variable that is not blank."""
    source = context.get_parameter_source(str(param.name))
    if source is None or source.name == "DEFAULT":
        return False
    return source.name != "ENVIRONMENT" or bool(os.environ[str(param.envvar)].strip())


def variable_of(flag: str) -> str:
    """Return the name of an option's variable."""
    return ENV_PREFIX + flag.removeprefix("--").upper().replace("-", "_")


def option(name: str, panel: str, help: str, metavar: str, *, read: Any = one_text, variable: str = "") -> Any:  # noqa: A002
    """Return a Typer option with its variable. Typer calls `read` with what was given."""
    return typer.Option(
        name,
        envvar=variable or variable_of(name),
        metavar=metavar,
        help=help,
        rich_help_panel=panel,
        parser=str,  # `read` takes a text, whatever type the default has
        callback=read,
        autocompletion=(lambda: metavar.split("|")) if read is one_of else None,
    )


def flag(name: str, panel: str, help: str, *, read: Any = switch) -> Any:  # noqa: A002 - as Typer calls it
    """Return an option `--x/--no-x`. Its variable is that of `--x`."""
    no = name.replace("--", "--no-", 1)
    return typer.Option(f"{name}/{no}", envvar=variable_of(name), help=help, rich_help_panel=panel, callback=read)


Image = Annotated[
    Texts,
    option(
        "--image",
        EVENT,
        "Image that was just built, with its tag or digest. One value may hold several images, separated by commas, "
        "blanks or newlines, or a JSON list.",
        "REF",
        read=every_text,
    ),
]
HeldImage = Annotated[
    Texts,
    option(
        "--image",
        HELD,
        "Act on this image only, named by its alias in image-list. By default all images of the Applications.",
        "ALIAS",
        read=every_text,
    ),
]
PromotedImage = Annotated[
    Texts,
    option(
        "--image",
        FIND,
        "Promote this image only, named by its alias in image-list. By default all images of the Applications.",
        "ALIAS",
        read=every_text,
    ),
]
ImageDigest = Annotated[
    str, option("--image-digest", EVENT, "Digest of the image, if --image names exactly one.", "sha256:…")
]
Tag = Annotated[str, option("--tag", EVENT, "Tag to write for an --image that is given by digest only.", "TAG")]
ImagesFrom = Annotated[
    Texts,
    option(
        "--images-from",
        EVENT,
        "Read the images from a file that the builder wrote (BuildKit, kaniko, ko, Jib, Skaffold or GoReleaser).",
        "FILE",
        read=every_line,
    ),
]
Sequence = Annotated[
    str,
    option(
        "--sequence",
        EVENT,
        f"Number of this build, by which builds are ordered: the higher number is the newer build. {FROM_CI}",
        "N",
    ),
]
Created = Annotated[
    str,
    option("--created", EVENT, "Creation time of the image, in RFC 3339 format or in seconds since 1970.", "TIME"),
]

App = Annotated[
    Texts,
    typer.Argument(
        envvar=variable_of("--app"),
        metavar="APP...",
        help="Applications, each as NAME or NAMESPACE/NAME; globs are allowed.",
        rich_help_panel=HELD,
        callback=every_word,
    ),
]
StatusApp = Annotated[
    Texts,
    typer.Argument(
        envvar=variable_of("--app"),
        metavar="[APP...]",
        help="Applications to show, each as NAME or NAMESPACE/NAME; globs are allowed. By default all.",
        rich_help_panel=FIND,
        callback=every_word,
    ),
]
WaitApp = Annotated[
    Texts,
    typer.Argument(
        envvar=variable_of("--app"),
        metavar="APP...",
        help="Applications to wait for, each as NAME or NAMESPACE/NAME.",
        rich_help_panel=FIND,
        callback=every_word,
    ),
]
To = Annotated[
    str,
    option(
        "--to", HELD, "Version to go back to: a tag, TAG@DIGEST, previous, or N-back (3-back: three versions).", "TAG"
    ),
]
UnknownTag = Annotated[
    bool,
    flag("--unknown-tag", HELD, "Accept a tag that is neither in Git's history nor in the registry."),
]
Reason = Annotated[
    str, option("--reason", HELD, "Why the images are held. It is shown with every update that is held back.", "TEXT")
]
Until = Annotated[
    str,
    option(
        "--until", HELD, "When the hold ends by itself: a date, an RFC 3339 time, or a duration (90m, 12h, 3d).", "DATE"
    ),
]
By = Annotated[str, option("--by", HELD, f"Who holds the images. {FROM_CI}", "NAME")]
Hold = Annotated[bool, flag("--hold", HELD, "Hold the images at the version they are rolled back to.")]
Discard = Annotated[bool, flag("--discard", HELD, "Drop the deferred event, which is otherwise applied.")]
Newest = Annotated[
    bool, flag("--newest", REGISTRY, "Also ask the registries for the newest tag that the rules of each image admit.")
]
Builds = Annotated[
    int,
    option(
        "--builds",
        RESULTS,
        "How many of the last builds to show of each image. 0 does not read the history.",
        "N",
        read=count,
    ),
]
Holds = Annotated[
    bool, flag("--holds", HELD, "Also list the holds, and check the written files, in repositories that need a login.")
]
FromImageUpdater = Annotated[
    bool,
    flag(
        "--from-image-updater",
        FIND,
        "Also compare what Argo CD Image Updater does with each Application with what Image Update will do.",
    ),
]

Applications = Annotated[
    Texts,
    option(
        "--applications",
        FIND,
        "Read Applications from cluster, argocd, a file or folder of manifests, - (stdin), or REPO//PATH?ref=REF.",
        "SOURCE",
        read=every_line,
    ),
]
Sources = Annotated[
    Texts,
    typer.Argument(
        envvar=variable_of("--source"),
        metavar="[SOURCE...]",
        help="Where to read Applications, as for --applications; . is the files here.",
        rich_help_panel=FIND,
        callback=every_line,
    ),
]
Clusters = Annotated[
    str,
    option(
        "--clusters",
        FIND,
        "YAML list of {name, server, labels, annotations}, for the clusters generator of ApplicationSets.",
        "FILE",
    ),
]
Render = Annotated[
    Texts,
    option(
        "--render",
        FIND,
        "Render a source that is a Helm chart or a kustomization of Applications. The programs must be installed.",
        "helm,kustomize",
        read=every_choice,
    ),
]
FollowApps = Annotated[
    int,
    option(
        "--follow-apps",
        FIND,
        "Also read the Applications that Applications deploy from Git (app of apps), so many levels deep.",
        "N",
        read=count,
    ),
]
Application = Annotated[
    Texts,
    option(
        "--application",
        FIND,
        "Consider only Applications with this name, given as NAME or NAMESPACE/NAME; globs are allowed.",
        "NAME",
        read=every_word,
    ),
]
PromoteFrom = Annotated[
    Texts,
    option(
        "--from",
        FIND,
        "Applications whose versions are promoted, each as NAME or NAMESPACE/NAME; globs are allowed.",
        "PATTERN",
        read=every_word,
        variable=variable_of("--promote-from"),
    ),
]
FromSelector = Annotated[
    str, option("--from-selector", FIND, "Promote only from Applications with these labels.", "LABELS")
]
PromoteTo = Annotated[
    Texts,
    option(
        "--to",
        FIND,
        "Applications that get them; {namespace}, {name} and {project} are those of the source.",
        "PATTERN",
        read=every_word,
        variable=variable_of("--promote-to"),
    ),
]
ToSelector = Annotated[str, option("--to-selector", FIND, "Promote only to Applications with these labels.", "LABELS")]
Healthy = Annotated[
    bool,
    flag("--healthy", FIND, "Promote only what Argo CD says is Synced and Healthy, and runs, in the source."),
]
Selector = Annotated[
    str,
    option("--selector", FIND, "Consider only Applications with these labels, for example a=b,c!=d,e,!f.", "LABELS"),
]
Project = Annotated[
    Texts,
    option(
        "--project", FIND, "Consider only Applications of this project; globs are allowed.", "NAME", read=every_word
    ),
]
Namespace = Annotated[
    Texts,
    option(
        "--namespace",
        FIND,
        "Consider only Applications in this namespace; globs are allowed.",
        "NAME",
        read=every_word,
    ),
]
ArgocdNamespace = Annotated[
    str,
    option(
        "--argocd-namespace",
        FIND,
        "Namespace of Argo CD's control plane. The name of the override file depends on it.",
        "NAME",
    ),
]
AnnotationPrefix = Annotated[str, option("--annotation-prefix", FIND, "Prefix of the annotations to read.", "PREFIX")]

Strategy = Annotated[
    str,
    option(
        "--strategy",
        RULES,
        "Update strategy for images without an update-strategy annotation.",
        "semver|newest-build|alphabetical|digest",
        read=one_of,
    ),
]
AllowDowngrade = Annotated[bool, flag("--allow-downgrade", RULES, "Accept a version older than the current one.")]
RequireLive = Annotated[
    bool,
    flag("--require-live", RULES, "Update only Applications whose status.summary.images lists the image."),
]
RequireUpdate = Annotated[bool, flag("--require-update", RULES, "Exit with 5 if nothing was updated.")]
RequireMatch = Annotated[
    bool,
    flag("--require-match", RULES, "Exit with 5 if no Application tracks one of the images."),
]
PinDigest = Annotated[bool, flag("--pin-digest", RULES, "Write the digest together with the tag: TAG@sha256:….")]
CarryParameters = Annotated[
    bool,
    flag(
        "--carry-parameters",
        RULES,
        "Copy the Application's own parameters into every override file. By default only into lists that Image Update "
        "makes.",
        read=open_switch,
    ),
]

RepositoryConfig = Annotated[
    bool,
    flag("--repository-config", COMMIT, "Obey the file .image-update/config of each repository that is written."),
]
Atomic = Annotated[
    bool,
    flag("--atomic", COMMIT, "Commit nothing to a branch if one of its Applications fails."),
]
GitAuthorName = Annotated[
    str,
    option("--git-author-name", COMMIT, "Name of the commit's author and committer.", "NAME", read=author_name),
]
GitAuthorEmail = Annotated[
    str,
    option(
        "--git-author-email",
        COMMIT,
        "E-mail address of the commit's author and committer.",
        "ADDRESS",
        read=author_email,
    ),
]
CommitMessageTemplate = Annotated[
    str,
    option(
        "--commit-message-template",
        COMMIT,
        "File with a Go template for the commit message; the fields are those of Image Updater.",
        "FILE",
    ),
]
Trailer = Annotated[
    Texts,
    option("--trailer", COMMIT, "Add a trailer to the commit message.", "KEY=VALUE", read=every_pair),
]
SignOff = Annotated[
    bool, flag("--sign-off", COMMIT, "Add a Signed-off-by trailer that names the author.", read=open_switch)
]
SigningKey = Annotated[
    str,
    option(
        "--signing-key",
        COMMIT,
        "Sign commits with this private key: a file, or the id of a key in the GnuPG keyring. The variable may hold "
        "the key itself.",
        "KEY",
    ),
]
SigningFormat = Annotated[
    str,
    option(
        "--signing-format",
        COMMIT,
        "Format of the signing key, which is recognised if this is left out.",
        "openpgp|ssh",
        read=one_of,
    ),
]
CommitThrough = Annotated[
    str,
    option(
        "--commit-through",
        COMMIT,
        "What commits: git, or GitHub's API, with which GitHub signs the commit itself.",
        "git|github",
        read=one_of,
    ),
]
SourceCommit = Annotated[
    str,
    option("--source-commit", COMMIT, f"Commit that the image was built from. {FROM_CI}", "SHA", read=commit_id),
]
SourceRepository = Annotated[
    str,
    option("--source-repository", COMMIT, f"Repository that holds the source commit. {FROM_CI}", "URL"),
]
PipelineRun = Annotated[
    str,
    option("--pipeline-run", COMMIT, f"Link to this run of the pipeline, for the commit message. {FROM_CI}", "URL"),
]

PullRequest = Annotated[
    bool,
    flag("--pull-request", REQUEST, "Open or update a pull request instead of pushing to the base branch."),
]
PullRequestLabel = Annotated[
    Texts,
    option("--pull-request-label", REQUEST, "Label to put on the pull request.", "NAME", read=every_line),
]
PullRequestReviewer = Annotated[
    Texts,
    option(
        "--pull-request-reviewer",
        REQUEST,
        "User or team to ask for a review; a GitHub team is given as ORG/TEAM.",
        "NAME",
        read=every_line,
    ),
]
PullRequestAssignee = Annotated[
    Texts,
    option("--pull-request-assignee", REQUEST, "User to assign the pull request to.", "NAME", read=every_line),
]
PullRequestDraft = Annotated[
    bool, flag("--pull-request-draft", REQUEST, "Open the pull request as a draft.", read=open_switch)
]
AutoMerge = Annotated[
    bool,
    flag(
        "--auto-merge",
        REQUEST,
        "Let the Git host merge the pull request once its checks have passed.",
        read=open_switch,
    ),
]
Comment = Annotated[
    bool,
    flag(
        "--comment",
        REQUEST,
        "Write the plan as a comment to the pull request that the CI job runs for. Needs plan or --dry-run.",
    ),
]
Deployments = Annotated[
    bool,
    flag(
        "--deployments",
        REQUEST,
        "Show each update as a deployment of the source commit, on GitHub or GitLab. With --wait also how it ended.",
    ),
]
Forge = Annotated[
    str,
    option(
        "--forge",
        REQUEST,
        "Kind of Git host, if its URL does not show it: github, gitlab, gitea, bitbucket, bitbucket-server or azure. "
        "=URL adds its address.",
        "NAME[=URL]",
    ),
]
ForgeTokenFile = Annotated[
    str,
    option(
        "--forge-token-file",
        REQUEST,
        "File with the token for the Git host's API. IMAGE_UPDATE_FORGE_TOKEN may hold the token itself.",
        "FILE",
    ),
]
ForgeUsername = Annotated[
    str,
    option("--forge-username", REQUEST, "User name that belongs to the API token, for Bitbucket.", "NAME"),
]

Output = Annotated[
    str,
    option(
        "--output",
        RESULTS,
        "What to print on stdout. repositories is a JSON list of the repositories that are written to.",
        "text|json|repositories",
        read=one_of,
    ),
]
LintOutput = Annotated[
    str, option("--output", RESULTS, "How to print the findings on stdout.", "text|json", read=one_of)
]
StatusOutput = Annotated[
    str, option("--output", RESULTS, "How to print the status on stdout.", "text|json", read=one_of)
]
ReportFile = Annotated[
    str,
    typer.Argument(
        envvar=variable_of("--report-file"),
        metavar="FILE",
        help="The JSON report of a run, as --report or --output json wrote it; - reads stdin.",
        rich_help_panel=RESULTS,
        callback=one_text,
    ),
]
Html = Annotated[
    str,
    option(
        "--html",
        RESULTS,
        "Write the report as one self-contained HTML page to this file, or to stdout if no file is given.",
        "[OUT]",
    ),
]
DryRun = Annotated[bool, flag("--dry-run", RESULTS, "Show what would be done, with the diff, and write nothing.")]
Report = Annotated[str, option("--report", RESULTS, "Write the JSON report to this file as well.", "FILE")]
ResultsDir = Annotated[
    str,
    option("--results-dir", RESULTS, "Write each result to a file of its own, as Tekton and Argo expect it.", "DIR"),
]
Dotenv = Annotated[
    str, option("--dotenv", RESULTS, "Write the results as KEY=VALUE lines, as GitLab expects them.", "FILE")
]
MetricsFile = Annotated[
    str,
    option("--metrics-file", RESULTS, "Write Prometheus metrics to this file. Counters in it are carried on.", "FILE"),
]
CloudeventUrl = Annotated[
    str,
    option(
        "--cloudevent-url",
        RESULTS,
        "Send a CloudEvent to this URL for each commit. IMAGE_UPDATE_CLOUDEVENT_TOKEN may hold a token for it.",
        "URL",
    ),
]
LogLevel = Annotated[
    str,
    option(
        "--log-level",
        RESULTS,
        "How much to log on stderr. debug shows each transfer of git and each request to a server.",
        "error|warning|info|debug",
        read=one_of,
    ),
]
LogFormat = Annotated[
    str,
    option(
        "--log-format",
        RESULTS,
        "Format of the log. auto means github in GitHub Actions and text everywhere else.",
        "auto|text|json|github",
        read=one_of,
    ),
]

Deadline = Annotated[
    float,
    option(
        "--deadline",
        GIT,
        "How long to try again when others push to the same branch.",
        "SECONDS",
        read=seconds,
    ),
]
StallTimeout = Annotated[
    float,
    option("--stall-timeout", GIT, "End a transfer that brings no data for this long.", "SECONDS", read=seconds),
]
GitCacheDir = Annotated[
    str, option("--git-cache-dir", GIT, "Keep what was fetched in this folder for later runs, on a volume.", "DIR")
]
AllowProtocol = Annotated[
    Texts,
    option(
        "--allow-protocol",
        GIT,
        "Allow one more Git transport besides https, ssh and http: file, which also means local paths, or git.",
        "file,git,http,https,ssh",
        read=every_choice,
    ),
]
RewriteUrl = Annotated[
    Texts,
    option(
        "--rewrite-url",
        GIT,
        "Reach repositories whose URL begins with PREFIX at REPLACEMENT. The longest prefix wins.",
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
        "File with the password or token for Git over https. IMAGE_UPDATE_GIT_TOKEN may hold it instead.",
        "FILE",
    ),
]
GitCredentialsUrl = Annotated[
    Texts,
    option(
        "--git-credentials-url",
        GIT,
        "Send the user name, password or token only to URLs that begin with this.",
        "PREFIX",
        read=every_line,
    ),
]
BasicAuthDirectory = Annotated[
    str,
    option(
        "--basic-auth-directory",
        GIT,
        "Folder with .git-credentials and .gitconfig, or with the files username and password.",
        "DIR",
    ),
]
GithubAppId = Annotated[str, option("--github-app-id", GIT, "Id of the GitHub App that pushes.", "ID")]
GithubAppInstallationId = Annotated[
    str, option("--github-app-installation-id", GIT, "Id of the GitHub App's installation.", "ID")
]
GithubAppKeyFile = Annotated[
    str,
    option(
        "--github-app-key-file",
        GIT,
        "File with the GitHub App's private key. IMAGE_UPDATE_GITHUB_APP_KEY may hold the key itself.",
        "FILE",
    ),
]
SshKeyFile = Annotated[
    str,
    option(
        "--ssh-key-file",
        GIT,
        "File with a private SSH key without a passphrase. IMAGE_UPDATE_SSH_KEY may hold the key itself.",
        "FILE",
    ),
]
SshDirectory = Annotated[
    str,
    option("--ssh-directory", GIT, "Folder like ~/.ssh, with private keys, known_hosts and config.", "DIR"),
]
SshKnownHostsFile = Annotated[
    str,
    option("--ssh-known-hosts-file", GIT, "File with the host keys of SSH servers. Only these are trusted.", "FILE"),
]
SshHostKey = Annotated[
    Texts,
    option(
        "--ssh-host-key", GIT, "Trust this host key as well, a line as ssh-keyscan prints it.", "LINE", read=every_line
    ),
]
CaFile = Annotated[
    str,
    option("--ca-file", GIT, "File or folder of certificate authorities to trust in addition to the system's.", "FILE"),
]
GitConfig = Annotated[
    bool,
    flag(
        "--git-config",
        GIT,
        "Use what the Git configuration of the user and the system says about servers: logins, URLs, proxies, "
        "certificates.",
    ),
]
OnlyRepository = Annotated[
    Texts,
    option(
        "--only-repository",
        GIT,
        "Write to this repository only; what belongs to other repositories is left out.",
        "URL",
        read=every_line,
    ),
]

Kubeconfig = Annotated[
    str,
    option(
        "--kubeconfig",
        ARGO,
        "Kubeconfig file of the cluster. By default KUBECONFIG, ~/.kube/config, or the pod's service account.",
        "FILE",
    ),
]
KubeContext = Annotated[str, option("--kube-context", ARGO, "Context of the kubeconfig to use.", "NAME")]
ArgocdServer = Annotated[
    str,
    option(
        "--argocd-server",
        ARGO,
        "Address of Argo CD's API server, as HOST or HOST:PORT. By default ARGOCD_SERVER or ARGOCD_OPTS.",
        "HOST",
    ),
]
ArgocdAuthTokenFile = Annotated[
    str,
    option(
        "--argocd-auth-token-file",
        ARGO,
        "File with the token for Argo CD's API. IMAGE_UPDATE_ARGOCD_AUTH_TOKEN may hold it instead.",
        "FILE",
    ),
]
ArgocdPlaintext = Annotated[bool, flag("--argocd-plaintext", ARGO, "Connect to Argo CD's API over plain http.")]
ArgocdInsecure = Annotated[
    bool, flag("--argocd-insecure", ARGO, "Skip the check of the certificate of Argo CD's API server.")
]
ArgocdCaFile = Annotated[
    str,
    option("--argocd-ca-file", ARGO, "File of certificate authorities to trust for Argo CD's API.", "FILE"),
]
ArgocdRootPath = Annotated[str, option("--argocd-root-path", ARGO, "Path under which Argo CD's API is served.", "PATH")]
ArgocdHeader = Annotated[
    Texts,
    option(
        "--argocd-header",
        ARGO,
        "Header to send to Argo CD's API, as NAME: VALUE. Give a secret one in the variable.",
        "HEADER",
        read=every_line,
    ),
]
Refresh = Annotated[
    bool,
    flag(
        "--refresh",
        ARGO,
        "Ask Argo CD to look at Git at once, if Applications are read from cluster or argocd.",
    ),
]
RefreshParents = Annotated[
    bool,
    flag("--refresh-parents", ARGO, "Also refresh the parent Applications of those that were written."),
]
Wait = Annotated[
    bool,
    flag(
        "--wait",
        ARGO,
        "Wait until Argo CD has synced what was written and it is healthy. Exit with 6 if that fails.",
    ),
]
WaitTimeout = Annotated[
    float, option("--wait-timeout", ARGO, "How long to wait for the rollout.", "SECONDS", read=seconds)
]
ExpectImage = Annotated[
    bool,
    flag(
        "--expect-image",
        ARGO,
        "With --wait, exit with 6 if the Application runs the image, but only with other tags.",
    ),
]
OnFailure = Annotated[
    str,
    option(
        "--on-failure",
        ARGO,
        "With --wait, what to do if the rollout fails or times out: nothing, or put back what was there and hold it.",
        "none|rollback",
        read=one_of,
    ),
]
Revision = Annotated[str, option("--revision", ARGO, "Commit that Argo CD must have synced.", "SHA")]
Repository = Annotated[
    str,
    option(
        "--repository",
        ARGO,
        "Repository of that commit. Other sources of the Applications may be at any commit.",
        "URL",
    ),
]
KubernetesEvents = Annotated[
    bool,
    flag(
        "--kubernetes-events",
        ARGO,
        "Write a Kubernetes Event (ImagesUpdated) for each Application, as Image Updater does. Needs cluster.",
    ),
]

RegistryCheck = Annotated[
    str,
    option(
        "--registry-check",
        REGISTRY,
        "When to ask the registry about an image: only if a rule needs it (auto), always, or never.",
        "auto|always|never",
        read=one_of,
    ),
]
RegistriesConf = Annotated[
    str, option("--registries-conf", REGISTRY, "The registries.conf file of Image Updater.", "FILE")
]
RegistryUsername = Annotated[
    str,
    option("--registry-username", REGISTRY, "User name for the registry. Docker's config files are read too.", "NAME"),
]
RegistryPasswordFile = Annotated[
    str,
    option(
        "--registry-password-file",
        REGISTRY,
        "File with the password or token for the registry. IMAGE_UPDATE_REGISTRY_PASSWORD may hold it instead.",
        "FILE",
    ),
]
RegistryCredentialsFor = Annotated[
    Texts,
    option(
        "--registry-credentials-for",
        REGISTRY,
        "Registry or repository that the user name and password are for, such as ghcr.io or ghcr.io/acme.",
        "PREFIX",
        read=every_word,
    ),
]
RegistryCacheDir = Annotated[
    str,
    option(
        "--registry-cache-dir",
        REGISTRY,
        "Keep what is known about images in this folder for later runs, on a volume.",
        "DIR",
    ),
]
AllowEnv = Annotated[
    Texts,
    option(
        "--allow-env",
        REGISTRY,
        "Let pull-secret annotations name this environment variable (env:NAME).",
        "NAME",
        read=every_word,
    ),
]
AllowExec = Annotated[
    bool, flag("--allow-exec", REGISTRY, "Let pull-secret annotations name a script to run (ext:/path).")
]
Verify = Annotated[
    str,
    option(
        "--verify",
        REGISTRY,
        "Write only images with a cosign signature by one of the public keys in this file, and pin their digests.",
        "FILE",
    ),
]
VerifyIdentity = Annotated[
    str,
    option(
        "--verify-identity",
        REGISTRY,
        "Write only images with a keyless cosign signature of this identity. Needs --verify-issuer and the extra "
        "sigstore.",
        "IDENTITY",
    ),
]
VerifyIssuer = Annotated[
    str, option("--verify-issuer", REGISTRY, "OIDC issuer of the identity in --verify-identity.", "URL")
]
VerifyTimeout = Annotated[
    float,
    option(
        "--verify-timeout",
        REGISTRY,
        "How long to wait for a signature that is made after the push, as Tekton Chains does.",
        "SECONDS",
        read=seconds,
    ),
]

# What `--help` shows: the options that most pipelines use, and those that are a command's own. `--help-all` shows all.
COMMON = frozenset({
    "image", "image-digest", "images-from", "applications", "application", "dry-run", "require-match", "pin-digest",
    "pull-request", "auto-merge", "forge-token-file", "git-username", "git-password-file", "git-credentials-url",
    "ssh-directory", "wait", "wait-timeout", "output", "report", "log-level",
    "app", "source", "to", "unknown-tag", "reason", "until", "by", "hold", "discard", "holds", "from-image-updater",
    "revision", "repository", "report-file", "html", "newest", "builds", "promote-from", "promote-to", "from-selector",
    "to-selector", "healthy",
})  # fmt: skip


def variables() -> set[str]:
    """Return the variables of all options."""
    aliases = [one for one in globals().values() if get_origin(one) is Annotated]
    return {str(info.envvar) for alias in aliases for info in get_args(alias)[1:]}

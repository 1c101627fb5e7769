"""Every option of the command line, once: its name, group, help, default and reader are a field of a frozen record.

A command names the records that it takes (`task/cli/command.py`), and gets `Settings` with what was given. Records that
it does not take have their defaults.
"""

from dataclasses import Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, cast, get_args, get_type_hints

from task.errors import UsageError
from task.model import Strategy, Through
from task.option import (
    OPTION,
    Option,
    author_email,
    author_name,
    commit_id,
    count,
    every_choice,
    every_line,
    every_pair,
    every_text,
    every_word,
    one_of,
    prefix,
    seconds,
    secret,
)
from task.secret import Secret

# The groups of the help, in their order.
HELD, EVENT, FIND, RULES, COMMIT = "What is held", "The image", "Applications", "Rules", "The commit"
REQUEST, RESULTS, GIT = "Pull requests", "Results and log", "Git"
ARGO, REGISTRY = "Argo CD and Kubernetes", "The registry"
GROUPS = (HELD, EVENT, FIND, RULES, COMMIT, REQUEST, RESULTS, GIT, ARGO, REGISTRY)

# The commands whose `--help` shows an option that other commands take as well.
BUILDS = ("run", "plan")
NARROWED = (*BUILDS, "scan", "lint")
ROLLED_OUT = ("run", "scan", "promote", "release", "rollback")
WRITERS = (*ROLLED_OUT, "hold")
LOGGED_IN = (*WRITERS, "plan", "status", "lint")

# Secrets have a variable and no option, because arguments are visible to other processes.
GIT_SECRETS = (
    "IMAGE_UPDATE_GIT_TOKEN", "IMAGE_UPDATE_GIT_PASSWORD", "IMAGE_UPDATE_SSH_KEY", "IMAGE_UPDATE_GITHUB_APP_KEY",
    "GITHUB_TOKEN",
)  # fmt: skip
ARGO_TOKENS = ("IMAGE_UPDATE_ARGOCD_AUTH_TOKEN", "ARGOCD_AUTH_TOKEN")
FORGE_TOKENS = ("IMAGE_UPDATE_FORGE_TOKEN", "SYSTEM_ACCESSTOKEN")
SECRETS = (*GIT_SECRETS, *ARGO_TOKENS, *FORGE_TOKENS, "IMAGE_UPDATE_REGISTRY_PASSWORD", "IMAGE_UPDATE_CLOUDEVENT_TOKEN")

FROM_CI = "By default it comes from the CI system's variables."

WAIT_TIMEOUT = Option(ARGO, "How long to wait for the rollout.", "SECONDS", read=seconds, common=(*ROLLED_OUT, "wait"))
HTML = Option(
    RESULTS,
    "Write the report as one self-contained HTML page to this file, or to stdout if no file is given.",
    "[OUT]",
    common=True,
)
TEXT_OUTPUT = Option(RESULTS, "How to print the status on stdout.", "text|json", read=one_of, common=True)


@dataclass(frozen=True)
class EventOptions:
    """The images that were just built, and what identifies their build."""

    image: tuple[str, ...] = Option(
        EVENT,
        "Image that was just built, with its tag or digest. One value may hold several images, separated by "
        "commas, blanks or newlines, or a JSON list.",
        "REF",
        read=every_text,
        common=True,
    ).field(default=())
    image_digest: str = Option(
        EVENT, "Digest of the image, if --image names exactly one.", "sha256:…", common=BUILDS
    ).field(default="")
    tag: str = Option(EVENT, "Tag to write for an --image that is given by digest only.", "TAG").field(default="")
    images_from: tuple[str, ...] = Option(
        EVENT,
        "Read the images from a file that the builder wrote (BuildKit, kaniko, ko, Jib, Skaffold or GoReleaser).",
        "FILE",
        read=every_line,
        common=BUILDS,
    ).field(default=())
    sequence: str = Option(
        EVENT,
        f"Number of this build, by which builds are ordered: the higher number is the newer build. {FROM_CI}",
        "N",
        common=BUILDS,
    ).field(default="")
    created: str = Option(
        EVENT, "Creation time of the image, in RFC 3339 format or in seconds since 1970.", "TIME"
    ).field(default="")
    source_commit: str = Option(
        COMMIT, f"Commit that the image was built from. {FROM_CI}", "SHA", read=commit_id
    ).field(default="")


@dataclass(frozen=True)
class OriginOptions:
    """Where the source code of the image is."""

    source_repository: str = Option(COMMIT, f"Repository that holds the source commit. {FROM_CI}", "URL").field(
        default=""
    )


@dataclass(frozen=True)
class SourceOptions:
    """Where Applications are read."""

    applications: tuple[str, ...] = Option(
        FIND,
        "Read Applications from cluster, argocd, a file or folder of manifests, - (stdin), or REPO//PATH?ref=REF.",
        "SOURCE",
        read=every_line,
        common=True,
    ).field(default=())
    clusters: str = Option(
        FIND, "YAML list of {name, server, labels, annotations}, for the clusters generator of ApplicationSets.", "FILE"
    ).field(default="")
    render: tuple[str, ...] = Option(
        FIND,
        "Render a source that is a Helm chart or a kustomization of Applications. The programs must be installed.",
        "helm,kustomize",
        read=every_choice,
    ).field(default=())
    follow_apps: int = Option(
        FIND,
        "Also read the Applications that Applications deploy from Git (app of apps), up to N levels deep.",
        "N",
        read=count,
    ).field(default=0)
    argocd_namespace: str = Option(
        FIND, "Namespace of Argo CD's control plane. The name of the override file depends on it.", "NAME"
    ).field(default="argocd")


@dataclass(frozen=True)
class NameOptions:
    """Which Applications are considered, by name."""

    application: tuple[str, ...] = Option(
        FIND,
        "Consider only Applications with this name, given as NAME or NAMESPACE/NAME; globs are allowed.",
        "NAME",
        read=every_word,
        common=NARROWED,
    ).field(default=())


@dataclass(frozen=True)
class ScopeOptions:
    """Which Applications are considered, and the defaults for settings that have no annotation."""

    selector: str = Option(
        FIND,
        "Consider only Applications with these labels, for example a=b,c!=d,e,!f.",
        "LABELS",
        common=(*NARROWED, "status"),
    ).field(default="")
    project: tuple[str, ...] = Option(
        FIND, "Consider only Applications of this project; globs are allowed.", "NAME", read=every_word
    ).field(default=())
    namespace: tuple[str, ...] = Option(
        FIND, "Consider only Applications in this namespace; globs are allowed.", "NAME", read=every_word
    ).field(default=())
    annotation_prefix: str = Option(FIND, "Prefix of the annotations to read.", "PREFIX", read=prefix).field(
        default="argocd-image-updater.argoproj.io/"
    )
    strategy: Strategy = Option(
        RULES,
        "Update strategy for images without an update-strategy annotation.",
        "|".join(get_args(Strategy)),
        read=one_of,
    ).field(default="semver")
    pin_digest: bool = Option(
        RULES, "Write the digest together with the tag: TAG@sha256:….", common=(*BUILDS, "scan")
    ).field(default=False)


@dataclass(frozen=True)
class RulesOptions:
    """What the rules accept."""

    allow_downgrade: bool = Option(RULES, "Accept a version older than the current one.").field(default=False)
    require_live: bool = Option(RULES, "Update only Applications whose status.summary.images lists the image.").field(
        default=False
    )


@dataclass(frozen=True)
class RequireOptions:
    """What makes the run exit with 5."""

    require_update: bool = Option(RULES, "Exit with 5 if nothing was updated.").field(default=False)
    require_match: bool = Option(RULES, "Exit with 5 if no Application tracks one of the images.", common=BUILDS).field(
        default=False
    )


@dataclass(frozen=True)
class DecideOptions:
    """What influences decisions besides the rules."""

    carry_parameters: bool | None = Option(
        RULES,
        "Copy the Application's own parameters into every override file. By default only into lists that Image "
        "Update makes.",
    ).field(default=None)
    repository_config: bool = Option(
        COMMIT, "Obey the file .image-update/config of each repository that is written."
    ).field(default=True)
    registry_check: str = Option(
        REGISTRY,
        "When to ask the registry about an image: only if a rule needs it (auto), always, or never.",
        "auto|always|never",
        read=one_of,
    ).field(default="auto")


@dataclass(frozen=True)
class CommitOptions:
    """The commit."""

    atomic: bool = Option(COMMIT, "Commit nothing to a branch if one of its Applications fails.").field(default=False)
    git_author_name: str = Option(
        COMMIT, "Name of the commit's author and committer.", "NAME", read=author_name, shown="image-update"
    ).field(default="")
    git_author_email: str = Option(
        COMMIT,
        "E-mail address of the commit's author and committer.",
        "ADDRESS",
        read=author_email,
        shown="image-update@noreply.invalid",
    ).field(default="")
    commit_message_template: str = Option(
        COMMIT, "File with a Go template for the commit message; the fields are those of Image Updater.", "FILE"
    ).field(default="")
    trailer: tuple[tuple[str, str], ...] = Option(
        COMMIT, "Add a trailer to the commit message.", "KEY=VALUE", read=every_pair
    ).field(default=())
    sign_off: bool | None = Option(COMMIT, "Add a Signed-off-by trailer that names the author.").field(default=None)
    signing_key: Secret = Option(
        COMMIT,
        "Sign commits with this private key: a file, or the id of a key in the GnuPG keyring. The variable "
        "may hold the key itself.",
        "KEY",
        read=secret,
    ).field(default=Secret(""))
    signing_format: str = Option(
        COMMIT, "Format of the signing key. By default it is detected.", "openpgp|ssh", read=one_of
    ).field(default="")
    commit_through: Through = Option(
        COMMIT, "How to commit: with git, or through GitHub's API, which signs the commit.", "git|github", read=one_of
    ).field(default="git")
    push_option: tuple[str, ...] = Option(
        COMMIT,
        "Send this text with each push of changes (git push --push-option), such as ci.skip for GitLab.",
        "TEXT",
        read=every_line,
    ).field(default=())
    pipeline_run: str = Option(
        COMMIT, f"Link to this run of the pipeline, for the commit message. {FROM_CI}", "URL"
    ).field(default="")


@dataclass(frozen=True)
class ForgeOptions:
    """Pull requests, and the API of the Git host."""

    pull_request: bool = Option(
        REQUEST, "Open or update a pull request instead of pushing to the base branch.", common=(*WRITERS, "plan")
    ).field(default=False)
    forge: str = Option(
        REQUEST,
        "Kind of Git host, if its URL does not show it: github, gitlab, gitea, bitbucket, bitbucket-server "
        "or azure. =URL adds its address.",
        "NAME[=URL]",
    ).field(default="")
    forge_token_file: str = Option(
        REQUEST,
        "File with the token for the Git host's API. IMAGE_UPDATE_FORGE_TOKEN may hold the token itself.",
        "FILE",
        common=True,
    ).field(default="")
    forge_username: str = Option(REQUEST, "User name that belongs to the API token, for Bitbucket.", "NAME").field(
        default=""
    )


@dataclass(frozen=True)
class RequestOptions:
    """What a pull request gets."""

    pull_request_label: tuple[str, ...] = Option(
        REQUEST, "Label to put on the pull request.", "NAME", read=every_line
    ).field(default=())
    pull_request_reviewer: tuple[str, ...] = Option(
        REQUEST, "User or team to ask for a review; a GitHub team is given as ORG/TEAM.", "NAME", read=every_line
    ).field(default=())
    pull_request_assignee: tuple[str, ...] = Option(
        REQUEST, "User to assign the pull request to.", "NAME", read=every_line
    ).field(default=())
    pull_request_draft: bool | None = Option(REQUEST, "Open the pull request as a draft.").field(default=None)
    auto_merge: bool | None = Option(
        REQUEST, "Let the Git host merge the pull request once its checks have passed."
    ).field(default=None)


@dataclass(frozen=True)
class CommentOptions:
    """The comment of a plan."""

    comment: bool = Option(
        REQUEST,
        "Write the plan as a comment to the pull request that the CI job runs for. Needs plan or --dry-run.",
        common=("plan",),
    ).field(default=False)


@dataclass(frozen=True)
class DeploymentOptions:
    """The deployments that the Git host of the source code shows."""

    deployments: bool = Option(
        REQUEST,
        "Show each update as a deployment of the source commit, on GitHub or GitLab. With --wait also how it ended.",
    ).field(default=False)


@dataclass(frozen=True)
class HandedOptions:
    """Where a host reads the results."""

    results_dir: str = Option(
        RESULTS, "Write each result to a file of its own, as Tekton and Argo expect it.", "DIR"
    ).field(default="")
    dotenv: str = Option(RESULTS, "Write the results as KEY=VALUE lines, as GitLab expects them.", "FILE").field(
        default=""
    )


@dataclass(frozen=True)
class ResultOptions(HandedOptions):
    """What is printed and written."""

    output: str = Option(
        RESULTS,
        "What to print on stdout. repositories is a JSON list of the repositories that are written to.",
        "text|json|repositories",
        read=one_of,
        common=True,
        brief=("text|json", "What to print on stdout."),
    ).field(default="text")
    report: str = Option(RESULTS, "Write the JSON report to this file as well.", "FILE", common=True).field(default="")


@dataclass(frozen=True)
class SendOptions:
    """What a command that writes may leave out, and whom it tells."""

    dry_run: bool = Option(RESULTS, "Show what would be done, with the diff, and write nothing.", common=True).field(
        default=False
    )
    metrics_file: str = Option(
        RESULTS, "Write Prometheus metrics to this file. Counters in it are carried on.", "FILE"
    ).field(default="")
    cloudevent_url: str = Option(
        RESULTS,
        "Send a CloudEvent to this URL for each commit. IMAGE_UPDATE_CLOUDEVENT_TOKEN may hold a token for it.",
        "URL",
    ).field(default="")


@dataclass(frozen=True)
class LogOptions:
    """The log."""

    log_level: str = Option(
        RESULTS,
        "How much to log on stderr. debug shows each transfer of git and each request to a server.",
        "error|warning|info|debug",
        read=one_of,
        common=True,
    ).field(default="info")
    log_format: str = Option(
        RESULTS,
        "Format of the log. auto means github in GitHub Actions and text everywhere else.",
        "auto|text|json|github",
        read=one_of,
    ).field(default="auto")


@dataclass(frozen=True)
class GitOptions:
    """How repositories are written."""

    deadline: float = Option(
        GIT, "How long to try again when others push to the same branch.", "SECONDS", read=seconds
    ).field(default=120)
    stall_timeout: float = Option(
        GIT, "End a transfer that receives no data for this long.", "SECONDS", read=seconds
    ).field(default=60)
    git_cache_dir: str = Option(GIT, "Keep what was fetched in this folder for later runs, on a volume.", "DIR").field(
        default=""
    )
    only_repository: tuple[str, ...] = Option(
        GIT, "Write to this repository only; what belongs to other repositories is left out.", "URL", read=every_line
    ).field(default=())


@dataclass(frozen=True)
class TransportOptions:
    """How Git servers are reached."""

    allow_protocol: tuple[str, ...] = Option(
        GIT,
        "Allow one more Git transport besides https, ssh and http: file, which also means local paths, or git.",
        "file,git,http,https,ssh",
        read=every_choice,
    ).field(default=())
    rewrite_url: tuple[tuple[str, str], ...] = Option(
        GIT,
        "Reach repositories whose URL begins with PREFIX at REPLACEMENT. The longest prefix wins.",
        "PREFIX=REPLACEMENT",
        read=every_pair,
    ).field(default=())
    git_config: bool = Option(
        GIT,
        "Use what the Git configuration of the user and the system says about servers: logins, URLs, "
        "proxies, certificates.",
    ).field(default=True)


@dataclass(frozen=True)
class AccessOptions:
    """The login for Git servers. `task/git/credentials.py` reads the files that are named here."""

    git_username: str = Option(GIT, "User name for Git over https.", "NAME", common=LOGGED_IN).field(default="")
    git_password_file: str = Option(
        GIT,
        "File with the password or token for Git over https. IMAGE_UPDATE_GIT_TOKEN may hold it instead.",
        "FILE",
        common=LOGGED_IN,
    ).field(default="")
    git_credentials_url: tuple[str, ...] = Option(
        GIT,
        "Send the user name, password or token only to URLs that begin with this.",
        "PREFIX",
        read=every_line,
        common=LOGGED_IN,
    ).field(default=())
    basic_auth_directory: str = Option(
        GIT, "Folder with .git-credentials and .gitconfig, or with the files username and password.", "DIR"
    ).field(default="")
    github_app_id: str = Option(GIT, "Id of the GitHub App that pushes.", "ID").field(default="")
    github_app_installation_id: str = Option(GIT, "Id of the GitHub App's installation.", "ID").field(default="")
    github_app_key_file: str = Option(
        GIT, "File with the GitHub App's private key. IMAGE_UPDATE_GITHUB_APP_KEY may hold the key itself.", "FILE"
    ).field(default="")
    ssh_key_file: str = Option(
        GIT, "File with a private SSH key without a passphrase. IMAGE_UPDATE_SSH_KEY may hold the key itself.", "FILE"
    ).field(default="")
    ssh_directory: str = Option(
        GIT, "Folder like ~/.ssh, with private keys, known_hosts and config.", "DIR", common=LOGGED_IN
    ).field(default="")
    ssh_known_hosts_file: str = Option(
        GIT, "File with the host keys of SSH servers. Only these are trusted.", "FILE"
    ).field(default="")
    ssh_host_key: tuple[str, ...] = Option(
        GIT, "Trust this host key as well, a line as ssh-keyscan prints it.", "LINE", read=every_line
    ).field(default=())
    ca_file: str = Option(
        GIT, "File or folder of certificate authorities to trust in addition to the system's.", "FILE"
    ).field(default="")


@dataclass(frozen=True)
class ArgoOptions:
    """How the cluster and Argo CD are reached."""

    kubeconfig: str = Option(
        ARGO,
        "Kubeconfig file of the cluster. By default KUBECONFIG, ~/.kube/config, or the pod's service account.",
        "FILE",
    ).field(default="")
    kube_context: str = Option(ARGO, "Context of the kubeconfig to use.", "NAME").field(default="")
    argocd_server: str = Option(
        ARGO,
        "Address of Argo CD's API server, as HOST or HOST:PORT. By default ARGOCD_SERVER or ARGOCD_OPTS.",
        "HOST",
        common=True,
    ).field(default="")
    argocd_auth_token_file: str = Option(
        ARGO, "File with the token for Argo CD's API. IMAGE_UPDATE_ARGOCD_AUTH_TOKEN may hold it instead.", "FILE"
    ).field(default="")
    argocd_plaintext: bool = Option(ARGO, "Connect to Argo CD's API over plain http.").field(default=False)
    argocd_insecure: bool = Option(ARGO, "Skip the check of the certificate of Argo CD's API server.").field(
        default=False
    )
    argocd_ca_file: str = Option(ARGO, "File of certificate authorities to trust for Argo CD's API.", "FILE").field(
        default=""
    )
    argocd_root_path: str = Option(ARGO, "Path under which Argo CD's API is served.", "PATH").field(default="")
    argocd_header: tuple[str, ...] = Option(
        ARGO,
        "Header to send to Argo CD's API, as NAME: VALUE. Give a secret one in the variable.",
        "HEADER",
        read=every_line,
    ).field(default=())


@dataclass(frozen=True)
class RolloutOptions:
    """What Argo CD is asked for after a push."""

    refresh: bool = Option(
        ARGO, "Ask Argo CD to look at Git at once, if Applications are read from cluster or argocd."
    ).field(default=True)
    refresh_parents: bool = Option(ARGO, "Also refresh the parent Applications of those that were written.").field(
        default=False
    )
    wait: bool = Option(
        ARGO,
        "Wait until Argo CD has synced what was written and it is healthy. Exit with 6 if that fails.",
        common=ROLLED_OUT,
    ).field(default=False)
    wait_timeout: float = WAIT_TIMEOUT.field(default=600)
    expect_image: bool = Option(
        ARGO, "With --wait, exit with 6 if the Application runs the image, but only with other tags."
    ).field(default=True)
    kubernetes_events: bool = Option(
        ARGO, "Write a Kubernetes Event (ImagesUpdated) for each Application, as Image Updater does. Needs cluster."
    ).field(default=False)


@dataclass(frozen=True)
class AgeOptions:
    """How old a version must be."""

    minimum_age: str = Option(
        RULES, "Take only versions of at least this age, such as 3d or 12h.", "DURATION", common=True
    ).field(default="")


@dataclass(frozen=True)
class UndoOptions:
    """What happens after a failed rollout."""

    on_failure: str = Option(
        ARGO,
        "With --wait, what to do if the rollout fails or times out: nothing, or put back what was there and hold it.",
        "none|rollback",
        read=one_of,
        common=("run", "scan", "promote"),
    ).field(default="none")


@dataclass(frozen=True)
class RegistryOptions:
    """How registries are reached."""

    registries_conf: str = Option(REGISTRY, "The registries.conf file of Image Updater.", "FILE").field(default="")
    registry_username: str = Option(
        REGISTRY, "User name for the registry. Docker's config files are read too.", "NAME", common=("scan",)
    ).field(default="")
    registry_password_file: str = Option(
        REGISTRY,
        "File with the password or token for the registry. IMAGE_UPDATE_REGISTRY_PASSWORD may hold it instead.",
        "FILE",
        common=("scan",),
    ).field(default="")
    registry_credentials_for: tuple[str, ...] = Option(
        REGISTRY,
        "Registry or repository that the user name and password are for, such as ghcr.io or ghcr.io/acme.",
        "PREFIX",
        read=every_word,
    ).field(default=())
    registry_cache_dir: str = Option(
        REGISTRY, "Keep what is known about images in this folder for later runs, on a volume.", "DIR"
    ).field(default="")
    allow_env: tuple[str, ...] = Option(
        REGISTRY, "Let pull-secret annotations name this environment variable (env:NAME).", "NAME", read=every_word
    ).field(default=())
    allow_exec: bool = Option(REGISTRY, "Let pull-secret annotations name a script to run (ext:/path).").field(
        default=False
    )


@dataclass(frozen=True)
class VerifyOptions:
    """What must be proved about an image: a signature by a key, or by an identity that an issuer confirmed."""

    verify: str = Option(
        REGISTRY,
        "Write only images with a cosign signature by one of the public keys in this file, and pin their digests.",
        "FILE",
    ).field(default="")
    verify_identity: str = Option(
        REGISTRY,
        "Write only images with a keyless cosign signature of this identity. Needs --verify-issuer and the "
        "extra sigstore.",
        "IDENTITY",
    ).field(default="")
    verify_issuer: str = Option(REGISTRY, "OIDC issuer of the identity in --verify-identity.", "URL").field(default="")
    verify_timeout: float = Option(
        REGISTRY,
        "How long to wait for a signature or provenance that is made after the push, as Tekton Chains does.",
        "SECONDS",
        read=seconds,
    ).field(default=0)
    trust_root: str = Option(
        REGISTRY,
        "Check signatures without keys against the Sigstore in this trusted root, and not against the public one.",
        "FILE",
    ).field(default="")

    @property
    def wanted(self) -> bool:
        """Whether images need a signature."""
        return bool(self.verify or self.verify_identity)


@dataclass(frozen=True)
class HeldOptions:
    """What a person holds, releases or rolls back."""

    app: tuple[str, ...] = Option(
        HELD,
        "Applications, each as NAME or NAMESPACE/NAME; globs are allowed.",
        "APP...",
        read=every_word,
        common=True,
        required=True,
        argument=True,
    ).field(default=())


@dataclass(frozen=True)
class AliasOptions:
    """Which images of the named Applications are meant."""

    alias: tuple[str, ...] = Option(
        FIND,
        "Act on this image only, named by its alias in image-list. By default all images of the Applications.",
        "ALIAS",
        read=every_word,
        common=True,
    ).field(default=())
    image: tuple[str, ...] = Option(FIND, "Old name of --alias.", "ALIAS", read=every_word, old_name=True).field(
        default=()
    )


@dataclass(frozen=True)
class HoldOptions:
    """A hold."""

    reason: str = Option(
        HELD, "Why the images are held. It is shown with every update that is held back.", "TEXT", common=True
    ).field(default="")
    until: str = Option(
        HELD,
        "When the hold ends by itself: a date, an RFC 3339 time, or a duration (90m, 12h, 3d).",
        "DATE",
        common=True,
    ).field(default="")
    by: str = Option(HELD, f"Who holds the images. {FROM_CI}", "NAME", common=True).field(default="")


@dataclass(frozen=True)
class ReleaseOptions:
    """What is released."""

    discard: bool = Option(HELD, "Drop the build that waits, which is otherwise written.", common=True).field(
        default=False
    )


@dataclass(frozen=True)
class RollbackOptions:
    """A rollback."""

    to: str = Option(
        HELD,
        "Version to go back to: a tag, TAG@DIGEST, previous, or N-back (3-back: three versions).",
        "TAG",
        common=True,
        required=True,
    ).field(default="")
    unknown_tag: bool = Option(
        HELD, "Accept a tag that is neither in Git's history nor in the registry.", common=True
    ).field(default=False)
    hold: bool = Option(HELD, "Hold the images at the version they are rolled back to.", common=True).field(
        default=True
    )


@dataclass(frozen=True)
class PromoteOptions:
    """From which Applications versions are promoted, and to which."""

    promote_from: tuple[str, ...] = Option(
        FIND,
        "Applications whose versions are promoted, each as NAME or NAMESPACE/NAME; globs are allowed.",
        "PATTERN",
        read=every_word,
        flag="--from",
        common=True,
    ).field(default=())
    from_selector: str = Option(FIND, "Promote only from Applications with these labels.", "LABELS", common=True).field(
        default=""
    )
    promote_to: tuple[str, ...] = Option(
        FIND,
        "Applications that get them; {namespace}, {name} and {project} are those of the source.",
        "PATTERN",
        read=every_word,
        flag="--to",
        common=True,
    ).field(default=())
    to_selector: str = Option(FIND, "Promote only to Applications with these labels.", "LABELS", common=True).field(
        default=""
    )
    healthy: bool = Option(
        FIND, "Promote only what Argo CD says is Synced and Healthy, and runs, in the source.", common=True
    ).field(default=False)


@dataclass(frozen=True)
class StatusOptions:
    """What `status` shows."""

    app: tuple[str, ...] = Option(
        FIND,
        "Applications to show, each as NAME or NAMESPACE/NAME; globs are allowed. By default all.",
        "[APP...]",
        read=every_word,
        common=True,
        argument=True,
    ).field(default=())
    output: str = TEXT_OUTPUT.field(default="text")
    builds: int = Option(
        RESULTS,
        "How many of the last builds to show of each image. 0 does not read the history.",
        "N",
        read=count,
        common=True,
    ).field(default=5)
    html: str = HTML.field(default="")
    newest: bool = Option(
        REGISTRY, "Also ask the registries for the newest tag that the rules of each image admit.", common=True
    ).field(default=False)


@dataclass(frozen=True)
class WaitOptions:
    """What `wait` waits for."""

    app: tuple[str, ...] = Option(
        FIND,
        "Applications to wait for, each as NAME or NAMESPACE/NAME.",
        "APP...",
        read=every_word,
        common=True,
        required=True,
        argument=True,
    ).field(default=())
    revision: str = Option(ARGO, "Commit that Argo CD must have synced.", "SHA", common=True, required=True).field(
        default=""
    )
    repository: str = Option(
        ARGO, "Repository of that commit. Other sources of the Applications may be at any commit.", "URL", common=True
    ).field(default="")
    wait_timeout: float = WAIT_TIMEOUT.field(default=600)


@dataclass(frozen=True)
class LintOptions:
    """What `lint` checks."""

    source: tuple[str, ...] = Option(
        FIND,
        "Where to read Applications, as for --applications; . is the files here.",
        "[SOURCE...]",
        read=every_line,
        common=True,
        argument=True,
    ).field(default=())
    holds: bool = Option(
        HELD, "Also list the holds, and check the written files, in repositories that need a login.", common=True
    ).field(default=False)
    from_image_updater: bool = Option(
        FIND,
        "Also compare both: what Argo CD Image Updater does with each Application, and what Image Update will do.",
        common=True,
    ).field(default=False)
    output: str = Option(RESULTS, "How to print the findings on stdout.", "text|json", read=one_of, common=True).field(
        default="text"
    )


@dataclass(frozen=True)
class ReportOptions:
    """The report that is shown again."""

    report_file: str = Option(
        RESULTS,
        "The JSON report of a run, as --report or --output json wrote it; - reads stdin.",
        "FILE",
        common=True,
        required=True,
        argument=True,
    ).field(default="")
    html: str = HTML.field(default="")


# The records that most commands take, for what they do. What only real writers take is in `SendOptions`.
REACHING = (SourceOptions, LogOptions, TransportOptions, AccessOptions, ArgoOptions)
READING = (*REACHING, ScopeOptions)  # Applications
DECIDING = (
    *READING,
    DecideOptions,
    GitOptions,
    ForgeOptions,
    RegistryOptions,
    VerifyOptions,
)  # status, plan and all that write
WRITING = (*DECIDING, CommitOptions, RequestOptions, ResultOptions, RolloutOptions)  # what a commit or its plan needs
UPDATING = (NameOptions, RulesOptions, RequireOptions, *WRITING, UndoOptions)  # run, plan, scan and promote
BUILT = (EventOptions, OriginOptions, *UPDATING, CommentOptions, DeploymentOptions)  # run and plan


@dataclass(frozen=True)
class Settings:
    """All that one call gives."""

    command: str
    event: EventOptions = EventOptions()
    origin: OriginOptions = OriginOptions()
    sources: SourceOptions = SourceOptions()
    names: NameOptions = NameOptions()
    scope: ScopeOptions = ScopeOptions()
    rules: RulesOptions = RulesOptions()
    require: RequireOptions = RequireOptions()
    decide: DecideOptions = DecideOptions()
    commit: CommitOptions = CommitOptions()
    forge: ForgeOptions = ForgeOptions()
    request: RequestOptions = RequestOptions()
    comment: CommentOptions = CommentOptions()
    deployments: DeploymentOptions = DeploymentOptions()
    results: ResultOptions = ResultOptions()
    handed: HandedOptions = HandedOptions()
    send: SendOptions = SendOptions()
    log: LogOptions = LogOptions()
    git: GitOptions = GitOptions()
    transport: TransportOptions = TransportOptions()
    access: AccessOptions = AccessOptions()
    argo: ArgoOptions = ArgoOptions()
    rollout: RolloutOptions = RolloutOptions()
    age: AgeOptions = AgeOptions()
    undo: UndoOptions = UndoOptions()
    registry: RegistryOptions = RegistryOptions()
    verify: VerifyOptions = VerifyOptions()
    held: HeldOptions = HeldOptions()
    alias: AliasOptions = AliasOptions()
    hold: HoldOptions = HoldOptions()
    release: ReleaseOptions = ReleaseOptions()
    rollback: RollbackOptions = RollbackOptions()
    promote: PromoteOptions = PromoteOptions()
    status: StatusOptions = StatusOptions()
    wait: WaitOptions = WaitOptions()
    lint: LintOptions = LintOptions()
    report: ReportOptions = ReportOptions()

    @property
    def dry(self) -> bool:
        """Whether nothing is written."""
        return self.command in ("plan", "status") or self.send.dry_run

    @property
    def pin_digest(self) -> bool:
        """Whether the digest is written as well. What is signed is the digest."""
        return self.scope.pin_digest or self.verify.wanted

    @property
    def aliases(self) -> tuple[str, ...]:
        """The images that the command is limited to, by their aliases; () is all."""
        return self.alias.alias or self.alias.image


@cache
def options_of(record: type) -> tuple[tuple[Field[Any], Any, Option], ...]:
    """Return the options of a record: its fields, each with the type of the value, and the option."""
    hints = get_type_hints(record)
    return tuple((field, hints[field.name], field.metadata[OPTION]) for field in fields(record))


def every_option() -> tuple[tuple[Field[Any], Any, Option], ...]:
    """Return the options of all commands."""
    records = (kind for kind in get_type_hints(Settings).values() if is_dataclass(kind))
    return tuple(one for record in records for one in options_of(cast("type", record)))


def check(settings: Settings) -> None:
    """Raise `UsageError` for the first options that do not go together."""
    _check_verify(settings.verify)
    if settings.alias.alias and settings.alias.image:
        raise UsageError("--alias and --image are both given", hint="leave out --image, the old name of --alias")
    if settings.undo.on_failure == "rollback":
        if not settings.rollout.wait:
            raise UsageError("--on-failure=rollback is given without --wait", hint="give --wait: it sees the failure")
        if settings.forge.pull_request and not settings.request.auto_merge:
            raise UsageError(
                "--on-failure=rollback does not go with a pull request that a person merges",
                hint="give --auto-merge, or leave out --on-failure and run: image-update rollback",
            )
    for option in settings.commit.push_option:
        if not option.isprintable():
            raise UsageError(f"--push-option: {option!r} has a control character", hint="remove it")
    if settings.commit.commit_through == "github":
        _check_api(settings.commit)
    if settings.command == "promote":
        given = settings.promote
        for flag, named in (
            ("--from", given.promote_from or given.from_selector),
            ("--to", given.promote_to or given.to_selector),
        ):
            if not named:
                hint = f"name Applications with {flag}, or their labels with {flag}-selector"
                raise UsageError(f"{flag} is missing", hint=hint)


def _check_verify(given: VerifyOptions) -> None:
    if bool(given.verify_identity) != bool(given.verify_issuer):
        raise UsageError(
            f"{'--verify-identity' if given.verify_identity else '--verify-issuer'} is given alone",
            hint="give --verify-identity and --verify-issuer together: who signed, and which OIDC issuer says so",
        )
    if given.verify and given.verify_identity:
        raise UsageError(
            "--verify and --verify-identity are both given", hint="choose one: a public key, or an identity"
        )


def _check_api(given: CommitOptions) -> None:
    """Raise `UsageError` for what a commit through GitHub's API cannot have: an author, or our signature."""
    options = (
        ("--signing-key", bool(given.signing_key)),
        ("--signing-format", bool(given.signing_format)),
        ("--sign-off", given.sign_off),
        ("--push-option", bool(given.push_option)),
        ("--git-author-name", bool(given.git_author_name)),
        ("--git-author-email", bool(given.git_author_email)),
    )
    if named := [option for option, is_given in options if is_given]:
        raise UsageError(
            f"{', '.join(named)} and --commit-through github are {'all' if named[1:] else 'both'} given",
            hint=f"leave out --commit-through, or {'the others' if named[1:] else named[0]}: "
            "the author is whom the token belongs to, and GitHub signs the commit",
        )

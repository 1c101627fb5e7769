"""All command-line options. Each is a field of a frozen record, declared with its name, default,
group, help, and reader.

`TAKEN` lists the records and `Settings` fields that each command accepts. A command receives a
`Settings` object with the values that were set, and with defaults for everything else.
"""

from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, fields
from functools import cache, partial
from itertools import chain
from typing import Any, get_args, get_type_hints

from task.command_kinds import commands_that, kind_of
from task.errors import UsageError
from task.model import Strategy, Through
from task.option import (
    OPTION,
    Group,
    Option,
    author_email,
    author_name,
    commit_id,
    count,
    every_text,
    flag_of,
    prefix,
    seconds,
    secret,
)
from task.secret import Secret

# The groups of options in the help, in order of appearance.
HELD, EVENT, FIND, RULES = map(Group, ("Holds", "Image", "Applications", "Rules"))
CHANGE = Group("Change")
COMMIT, REQUEST, RESULTS = map(Group, ("Commit", "Pull requests", "Results and logging"))
GIT, ARGO, REGISTRY = map(Group, ("Git", "Argo CD and Kubernetes", "Registry"))
GROUPS = (HELD, CHANGE, EVENT, FIND, RULES, COMMIT, REQUEST, RESULTS, GIT, ARGO, REGISTRY)

# Other commands accept these options too, but only these commands list them in `--help`.
BUILDS = commands_that(lambda command: command.takes_images)
NARROWED = (*BUILDS, "scan", "lint", "check")
ROLLED_OUT = ("run", "scan", "promote", "release", "rollback")
WRITERS = commands_that(lambda command: command.writes)
LOGGED_IN = (*WRITERS, "plan", "status", "lint", "check")

# Secrets have a variable but no option, because other processes can read the arguments.
GIT_SECRETS = (
    "IMAGE_UPDATE_GIT_TOKEN", "IMAGE_UPDATE_GIT_PASSWORD", "IMAGE_UPDATE_SSH_KEY", "IMAGE_UPDATE_GITHUB_APP_KEY",
    "GITHUB_TOKEN",
)  # fmt: skip
ARGO_TOKENS = ("IMAGE_UPDATE_ARGOCD_AUTH_TOKEN", "ARGOCD_AUTH_TOKEN")
FORGE_TOKENS = ("IMAGE_UPDATE_FORGE_TOKEN", "SYSTEM_ACCESSTOKEN")
SECRETS = (
    *GIT_SECRETS,
    *ARGO_TOKENS,
    *FORGE_TOKENS,
    "IMAGE_UPDATE_REGISTRY_PASSWORD",
    "IMAGE_UPDATE_CLOUDEVENT_TOKEN",
)

FROM_CI = "Defaults to the value in the CI system's variables."
WAIT_TIMEOUT = partial(
    ARGO.option,
    600,
    "How long to wait for the rollout.",
    "SECONDS",
    read=seconds,
    common=(*ROLLED_OUT, "wait"),
)


@dataclass(frozen=True)
class EventOptions:
    """The images that were just built, and the identity of their build."""

    image: tuple[str, ...] = EVENT.option(
        (),
        "Newly built image, with its tag or digest. A value can also list several images,"
        " separated by commas, spaces, or newlines, or be a JSON array.",
        "REF",
        read=every_text,
        common=True,
    )
    image_digest: str = EVENT.text(
        "Digest of the image. Valid only with a single image.",
        "sha256:…",
        common=BUILDS,
    )
    tag: str = EVENT.text("Tag to write for an --image that has only a digest.", "TAG")
    images_from: tuple[str, ...] = EVENT.lines(
        "Read the images from a file: a builder's output (BuildKit, kaniko, ko, Jib, Skaffold,"
        " or GoReleaser) or registry events. Use - for stdin.",
        "FILE",
        common=BUILDS,
    )
    images_format: str = EVENT.choice(
        "auto",
        "Format of the --images-from file. registry accepts events from any registry. auto also"
        " accepts builder output and the lines format, which are trusted.",
        "auto|builder|lines|registry|distribution|harbor|quay|docker-hub|github|ecr|google|azure|"
        "artifactory|nexus|gitea|aliyun|cdevents|cloudevents",
    )
    images_registry: str = EVENT.text(
        "Registry as it appears in image references, if its events omit it or use a different"
        " name.",
        "HOST[/PATH]",
    )
    sequence: str = EVENT.text(
        f"Build number. A higher number means a newer build. {FROM_CI}",
        "N",
        common=BUILDS,
    )
    created: str = EVENT.text(
        "Image creation time, in RFC 3339 format or in seconds since 1970.", "TIME"
    )
    source_commit: str = COMMIT.option(
        "",
        f"Commit that the image was built from. {FROM_CI}",
        "SHA",
        read=commit_id,
    )


@dataclass(frozen=True)
class SourceOptions:
    """Where to read Applications from: files, Git repositories, a cluster, or Argo CD."""

    applications: tuple[str, ...] = FIND.lines(
        "Where to read Applications from: cluster, argocd, a file or folder of manifests, -"
        " (stdin), or REPO//PATH?ref=REF.",
        "SOURCE",
        common=True,
    )
    clusters: str = FIND.text(
        "YAML list of {name, server, labels, annotations} for the ApplicationSet clusters"
        " generator.",
        "FILE",
    )
    render: tuple[str, ...] = FIND.choices(
        "Render Helm charts or kustomizations that contain Applications. Helm and Kustomize must be"
        " installed.",
        "helm,kustomize",
    )
    follow_apps: int = FIND.option(
        0,
        "Also read Applications that other Applications deploy from Git (app of apps), up to N"
        " levels deep.",
        "N",
        read=count,
    )
    argocd_namespace: str = FIND.option(
        "argocd",
        "Namespace of the Argo CD control plane. The override file's name depends on it.",
        "NAME",
    )
    kubeconfig: str = ARGO.text(
        "Kubeconfig file for the cluster. Defaults to KUBECONFIG, ~/.kube/config, or the pod's"
        " service account.",
        "FILE",
    )
    kube_context: str = ARGO.text("Kubeconfig context to use.", "NAME")
    argocd_server: str = ARGO.text(
        "Address of the Argo CD API server, as HOST or HOST:PORT. Defaults to the one in"
        " ARGOCD_SERVER or ARGOCD_OPTS.",
        "HOST",
        common=True,
    )
    argocd_auth_token_file: str = ARGO.text(
        "File with the Argo CD API token. Alternatively, set IMAGE_UPDATE_ARGOCD_AUTH_TOKEN.",
        "FILE",
    )
    argocd_plaintext: bool = ARGO.flag("Connect to the Argo CD API over plain HTTP.")
    argocd_insecure: bool = ARGO.flag("Do not verify the Argo CD API server's TLS certificate.")
    argocd_ca_file: str = ARGO.text(
        "File with certificate authorities to trust for the Argo CD API.", "FILE"
    )
    argocd_root_path: str = ARGO.text("Root path of the Argo CD API.", "PATH")
    argocd_header: tuple[str, ...] = ARGO.lines(
        "Header to send to the Argo CD API, as NAME: VALUE. Use the environment variable for"
        " secret headers.",
        "HEADER",
    )


@dataclass(frozen=True)
class ScopeOptions:
    """Which Applications to consider, and the defaults for settings that no annotation
    specifies.
    """

    selector: str = FIND.text(
        "Consider only Applications with matching labels, such as a=b,c!=d,e,!f.",
        "LABELS",
        common=(*NARROWED, "status"),
    )
    project: tuple[str, ...] = FIND.words(
        "Consider only Applications in this project. Globs are allowed.", "NAME"
    )
    namespace: tuple[str, ...] = FIND.words(
        "Consider only Applications in this namespace. Globs are allowed.", "NAME"
    )
    annotation_prefix: str = FIND.option(
        "argocd-image-updater.argoproj.io/",
        "Prefix of the annotations to read.",
        "PREFIX",
        read=prefix,
    )
    strategy: Strategy = RULES.choice(
        "semver",
        "Update strategy for images without an update-strategy annotation.",
        "|".join(get_args(Strategy)),
    )
    pin_digest: bool = RULES.flag(
        "Write the digest along with the tag: TAG@sha256:….",
        common=(*BUILDS, "scan"),
    )


@dataclass(frozen=True)
class RulesOptions:
    """Options that modify the rules."""

    allow_downgrade: bool = RULES.flag("Accept a version older than the current one.")
    require_live: bool = RULES.flag(
        "Update only Applications whose status.summary.images lists the image."
    )


@dataclass(frozen=True)
class TransportOptions:
    """How to connect to Git servers."""

    allow_protocol: tuple[str, ...] = GIT.choices(
        "Allow another Git transport besides https, ssh, and http: file (including local paths)"
        " or git.",
        "file,git,http,https,ssh",
    )
    rewrite_url: tuple[tuple[str, str], ...] = GIT.pairs(
        "Replace PREFIX with REPLACEMENT in repository URLs when connecting. The longest"
        " matching prefix wins.",
        "PREFIX=REPLACEMENT",
    )
    git_config: bool = GIT.flag_on(
        "Use the server settings in the user's and the system's Git configuration: credentials,"
        " URLs, proxies, and certificates."
    )


@dataclass(frozen=True)
class AccessOptions:
    """Credentials for Git servers. `task/git/credentials.py` reads the credential files."""

    git_username: str = GIT.text("Username for Git over HTTPS.", "NAME", common=LOGGED_IN)
    git_password_file: str = GIT.text(
        "File with the password or token for Git over HTTPS. Alternatively, set"
        " IMAGE_UPDATE_GIT_TOKEN.",
        "FILE",
        common=LOGGED_IN,
    )
    git_credentials_url: tuple[str, ...] = GIT.lines(
        "Send the username, password, or token only to URLs that start with this prefix.",
        "PREFIX",
        common=LOGGED_IN,
    )
    basic_auth_directory: str = GIT.text(
        "Folder with .git-credentials and .gitconfig, or with username and password files.",
        "DIR",
    )
    github_app_id: str = GIT.text("ID of the GitHub App to push as.", "ID")
    github_app_installation_id: str = GIT.text("Installation ID of the GitHub App.", "ID")
    github_app_key_file: str = GIT.text(
        "File with the GitHub App's private key. Alternatively, set IMAGE_UPDATE_GITHUB_APP_KEY"
        " to the key.",
        "FILE",
    )
    ssh_key_file: str = GIT.text(
        "File with an SSH private key without a passphrase. Alternatively, set"
        " IMAGE_UPDATE_SSH_KEY to the key.",
        "FILE",
    )
    ssh_directory: str = GIT.text(
        "Folder like ~/.ssh, with private keys, known_hosts, and config.",
        "DIR",
        common=LOGGED_IN,
    )
    ssh_known_hosts_file: str = GIT.text(
        "File with SSH host keys. Only these keys are trusted.", "FILE"
    )
    ssh_host_key: tuple[str, ...] = GIT.lines(
        "Also trust this host key, in the format that ssh-keyscan prints.", "LINE"
    )
    ca_file: str = GIT.text(
        "File or folder with certificate authorities to trust in addition to the system's.", "FILE"
    )


@dataclass(frozen=True)
class GitOptions:
    """How to write to repositories."""

    carry_parameters: bool | None = RULES.option(
        None,
        "Copy the Application's own parameters to every override file. By default, they are"
        " copied only to lists that Image Update creates.",
    )
    deadline: float = GIT.option(
        120,
        "How long to keep retrying when others push to the same branch.",
        "SECONDS",
        read=seconds,
    )
    stall_timeout: float = GIT.option(
        60,
        "Abort a transfer that receives no data for this long.",
        "SECONDS",
        read=seconds,
    )
    git_cache_dir: str = GIT.text(
        "Folder where fetched Git data is cached for later runs, such as a mounted volume.", "DIR"
    )
    only_repository: tuple[str, ...] = GIT.lines(
        "Write only to this repository. Updates to other repositories are skipped.", "URL"
    )
    pull_request: bool = REQUEST.flag(
        "Open or update a pull request instead of pushing to the base branch.",
        common=(*WRITERS, "plan"),
    )


@dataclass(frozen=True)
class ForgeOptions:
    """The Git host's API, and the credentials for it."""

    forge: str = REQUEST.text(
        "Type of Git host, if it cannot be detected from the URL: github, gitlab, gitea,"
        " bitbucket, bitbucket-server, or azure. Append =URL to set its address.",
        "NAME[=URL]",
    )
    forge_token_file: str = REQUEST.text(
        "File with the Git host's API token. Alternatively, set IMAGE_UPDATE_FORGE_TOKEN.",
        "FILE",
        common=True,
    )
    forge_username: str = REQUEST.text("Username for the API token, for Bitbucket.", "NAME")


@dataclass(frozen=True)
class CommitOptions:
    """How to create the commit, and the pull request that proposes it."""

    atomic: bool = COMMIT.flag("Do not commit to a branch if any of its Applications fails.")
    git_author_name: str = COMMIT.option(
        "",
        "Name of the commit author and committer.",
        "NAME",
        read=author_name,
        shown="image-update",
    )
    git_author_email: str = COMMIT.option(
        "",
        "Email address of the commit author and committer.",
        "ADDRESS",
        read=author_email,
        shown="image-update@noreply.invalid",
    )
    commit_message_template: str = COMMIT.text(
        "File with a Go template for the commit message. It can use the same fields as Image"
        " Updater's template.",
        "FILE",
    )
    trailer: tuple[tuple[str, str], ...] = COMMIT.pairs(
        "Add a trailer to the commit message.", "KEY=VALUE"
    )
    sign_off: bool | None = COMMIT.option(None, "Add a Signed-off-by trailer for the author.")
    signing_key: Secret = COMMIT.option(
        Secret(""),
        "Sign commits with this private key: a file, or the ID of a key in the GnuPG keyring."
        " The environment variable can also contain the key itself.",
        "KEY",
        read=secret,
    )
    signing_format: str = COMMIT.choice(
        "",
        "Format of the signing key. By default, it is detected.",
        "openpgp|ssh",
    )
    commit_through: Through = COMMIT.choice(
        "git",
        "How to commit: with git, or through the GitHub API, which signs the commit.",
        "git|github",
    )
    push_option: tuple[str, ...] = COMMIT.lines(
        "Push option to send when pushing changes (git push --push-option), such as ci.skip for"
        " GitLab.",
        "TEXT",
    )
    pipeline_run: str = COMMIT.text(
        f"URL of this pipeline run, for the commit message. {FROM_CI}", "URL"
    )
    pull_request_label: tuple[str, ...] = REQUEST.lines("Label to add to the pull request.", "NAME")
    pull_request_reviewer: tuple[str, ...] = REQUEST.lines(
        "User or team to request a review from. For a GitHub team, use ORG/TEAM.", "NAME"
    )
    pull_request_assignee: tuple[str, ...] = REQUEST.lines(
        "User to assign the pull request to.", "NAME"
    )
    pull_request_draft: bool | None = REQUEST.option(None, "Open the pull request as a draft.")
    auto_merge: bool | None = REQUEST.option(
        None, "Have the Git host merge the pull request once its checks pass."
    )


@dataclass(frozen=True)
class RegistryOptions:
    """How to connect to registries."""

    registries_conf: str = REGISTRY.text("Image Updater's registries.conf file.", "FILE")
    registry_username: str = REGISTRY.text(
        "Username for the registry. Docker config files are also read.",
        "NAME",
        common=("scan", "check"),
    )
    registry_password_file: str = REGISTRY.text(
        "File with the password or token for the registry. Alternatively, set"
        " IMAGE_UPDATE_REGISTRY_PASSWORD.",
        "FILE",
        common=("scan", "check"),
    )
    registry_credentials_for: tuple[str, ...] = REGISTRY.words(
        "Registry or repository that the username and password are for, such as ghcr.io or"
        " ghcr.io/acme.",
        "PREFIX",
    )
    registry_cache_dir: str = REGISTRY.text(
        "Folder where image metadata is cached for later runs, such as a mounted volume.", "DIR"
    )
    allow_env: tuple[str, ...] = REGISTRY.words(
        "Allow pull-secret annotations to use this environment variable (env:NAME).", "NAME"
    )
    allow_exec: bool = REGISTRY.flag("Allow pull-secret annotations to run a script (ext:/path).")


@dataclass(frozen=True)
class VerifyOptions:
    """The signature that an image must have: by a key, or by an identity that an issuer
    confirms.
    """

    verify: str = REGISTRY.text(
        "Write only images with a cosign signature by one of the public keys in this file, and pin"
        " their digests.",
        "FILE",
    )
    verify_identity: str = REGISTRY.text(
        "Write only images with a keyless cosign signature by this identity. Requires"
        " --verify-issuer and the sigstore extra.",
        "IDENTITY",
    )
    verify_issuer: str = REGISTRY.text("OIDC issuer of the identity in --verify-identity.", "URL")
    verify_timeout: float = REGISTRY.option(
        0,
        "How long to wait for a signature or provenance that is created after the push, such as"
        " by Tekton Chains.",
        "SECONDS",
        read=seconds,
    )
    trust_root: str = REGISTRY.text(
        "Verify keyless signatures against the Sigstore instance in this trusted root instead of"
        " the public one.",
        "FILE",
    )

    @property
    def wanted(self) -> bool:
        """Whether images must be signed."""
        return bool(self.verify or self.verify_identity)


@dataclass(frozen=True)
class HandedOptions:
    """Where to write the results for the CI system."""

    results_dir: str = RESULTS.text(
        "Write each result to a separate file in this folder, as Tekton and Argo expect.", "DIR"
    )
    dotenv: str = RESULTS.text(
        "Write the results to this file as KEY=VALUE lines, as GitLab expects.", "FILE"
    )


@dataclass(frozen=True)
class ResultOptions(HandedOptions):
    """What to print, and which files to write."""

    output: str = RESULTS.choice(
        "text",
        "What to print to stdout. repositories prints a JSON array of the repositories to write"
        " to.",
        "text|json|repositories",
        common=True,
        brief=("text|json", "What to print to stdout."),
    )
    report: str = RESULTS.text("Also write the JSON report to this file.", "FILE", common=True)


@dataclass(frozen=True)
class SendOptions:
    """Options of commands that write: dry runs, metrics, and CloudEvents."""

    dry_run: bool = RESULTS.flag(
        "Show what would change, with the diff, without writing anything.",
        common=True,
    )
    metrics_file: str = RESULTS.text(
        "Write Prometheus metrics to this file. Counters continue from the file's previous values.",
        "FILE",
    )
    cloudevent_url: str = RESULTS.text(
        "Send a CloudEvent to this URL for each commit. If the URL requires a token, set"
        " IMAGE_UPDATE_CLOUDEVENT_TOKEN.",
        "URL",
    )


@dataclass(frozen=True)
class RolloutOptions:
    """What to do in Argo CD after a push."""

    refresh: bool = ARGO.flag_on(
        "Have Argo CD refresh right after the push, if Applications are read from cluster or"
        " argocd."
    )
    refresh_parents: bool = ARGO.flag("Also refresh the parents of the updated Applications.")
    wait: bool = ARGO.flag(
        "Wait until Argo CD has synced the change and the Applications are healthy. Exit with 6"
        " if that fails.",
        common=ROLLED_OUT,
    )
    wait_timeout: float = WAIT_TIMEOUT()
    expect_image: bool = ARGO.flag_on(
        "With --wait, exit with 6 if the Application runs the image only with other tags."
    )
    kubernetes_events: bool = ARGO.flag(
        "Create a Kubernetes Event (ImagesUpdated) for each Application, as Image Updater does."
        " Requires --applications cluster."
    )


@dataclass(frozen=True)
class AliasOptions:
    """Which of the Applications' images to act on."""

    alias: tuple[str, ...] = FIND.words(
        "Act only on the image with this alias in image-list. By default, act on all images of"
        " the Applications.",
        "ALIAS",
        common=True,
    )
    image: tuple[str, ...] = FIND.words("Old name for --alias.", "ALIAS", old_name=True)


@dataclass(frozen=True)
class HoldOptions:
    """Options of a hold."""

    reason: str = HELD.text(
        "Why the images are on hold. Shown with every update that is held back.",
        "TEXT",
        common=True,
    )
    until: str = HELD.text(
        "When the hold ends automatically: a date, an RFC 3339 time, or a duration (90m, 12h, 3d).",
        "DATE",
        common=True,
    )
    by: str = HELD.text(f"Who put the images on hold. {FROM_CI}", "NAME", common=True)


@dataclass(frozen=True)
class RollbackOptions:
    """Options of a rollback."""

    to: str = HELD.text(
        "Version to roll back to: a tag, TAG@DIGEST, previous, or N-back (3-back is three"
        " versions back).",
        "TAG",
        common=True,
    )
    failed: str = HELD.text(
        "Roll back only if Git still has this image, which failed its tests. Without --to, roll"
        " back to the last version that ran.",
        "IMAGE",
        common=True,
    )
    unknown_tag: bool = HELD.flag(
        "Accept a tag that is in neither the Git history nor the registry.",
        common=True,
    )
    hold: bool = HELD.flag_on(
        "Hold the images at the version they are rolled back to.",
        common=True,
    )


@dataclass(frozen=True)
class PromoteOptions:
    """Which Applications to promote versions from, and which to promote them to."""

    promote_from: tuple[str, ...] = FIND.words(
        "Applications to promote from, as NAME or NAMESPACE/NAME. Globs are allowed.",
        "PATTERN",
        flag="--from",
        common=True,
    )
    from_selector: str = FIND.text(
        "Promote only from Applications with these labels.",
        "LABELS",
        common=True,
    )
    promote_to: tuple[str, ...] = FIND.words(
        "Applications to promote to. {namespace}, {name}, and {project} stand for the source's.",
        "PATTERN",
        flag="--to",
        common=True,
    )
    to_selector: str = FIND.text(
        "Promote only to Applications with these labels.",
        "LABELS",
        common=True,
    )
    healthy: bool = FIND.flag(
        "Promote only versions that are running in the source, Synced and Healthy.",
        common=True,
    )


@dataclass(frozen=True)
class StatusOptions:
    """What `status` shows."""

    app: tuple[str, ...] = FIND.words(
        "Applications to show, as NAME or NAMESPACE/NAME. Globs are allowed. By default, all are"
        " shown.",
        "[APP...]",
        common=True,
        argument=True,
    )
    output: str = RESULTS.choice(
        "text",
        "Output format.",
        "text|json",
        common=True,
    )
    builds: int = RESULTS.option(
        5,
        "How many recent builds to show for each image. With 0, the history is not read.",
        "N",
        read=count,
        common=True,
    )
    newest: bool = REGISTRY.flag(
        "Also query the registries for the newest tag that each image's rules admit.",
        common=True,
    )

    fail_on: tuple[str, ...] = RESULTS.choices(
        "Exit with 5 if an image is behind the registry, on hold, different from what is"
        " running, or waiting in a pull request.",
        "behind,held,differs,waits",
        common=True,
    )
    older_than: str = RESULTS.text(
        "With --fail-on, fail only if the state has lasted this long, such as 3d or 12h.",
        "DURATION",
        common=True,
    )

    @property
    def asks_for_newest(self) -> bool:
        """Whether to query the registries for the newest tags."""
        return self.newest or "behind" in self.fail_on


@dataclass(frozen=True)
class WaitOptions:
    """What `wait` waits for."""

    app: tuple[str, ...] = FIND.words(
        "Applications to wait for, as NAME or NAMESPACE/NAME. Globs are allowed.",
        "APP...",
        common=True,
        argument=True,
    )
    revision: str = ARGO.text("Commit that Argo CD has to sync.", "SHA", common=True)
    repository: str = ARGO.text(
        "Repository of the commit. The Applications' other sources can be at any commit.",
        "URL",
        common=True,
    )
    wait_timeout: float = WAIT_TIMEOUT()


@dataclass(frozen=True)
class LintOptions:
    """What `lint` checks."""

    source: tuple[str, ...] = FIND.lines(
        "Where to read Applications from, as in --applications. Use . for the current directory.",
        "[SOURCE...]",
        common=True,
        argument=True,
    )
    holds: bool = HELD.flag(
        "Also read repositories that require credentials: list their holds, and check the files"
        " that updates write.",
        common=True,
    )
    from_image_updater: bool = FIND.flag(
        "For each Application, show what Argo CD Image Updater does now and what Image Update"
        " will do.",
        common=True,
    )
    output: str = RESULTS.choice(
        "text",
        "Output format. gitlab prints a GitLab Code Quality report.",
        "text|json|junit|sarif|gitlab",
        common=True,
    )


@dataclass(frozen=True)
class CheckOptions(ResultOptions):
    """The change that `check` judges, and how to report the result."""

    output: str = RESULTS.choice(
        "text",
        "What to print to stdout. gitlab prints a GitLab Code Quality report.",
        "text|json|gitlab",
        common=True,
    )

    base: str = CHANGE.text(
        f"Branch or commit that the change will be merged into, such as origin/main. {FROM_CI}",
        "REF",
        common=True,
    )
    head: str = CHANGE.text(
        "Branch or commit with the change. With --base, it defaults to HEAD. Otherwise, it is"
        " read from the CI system's variables.",
        "REF",
        common=True,
    )
    repository: str = CHANGE.text(
        "Repository that contains both. By default, the checkout in the current directory.",
        "URL",
        common=True,
    )


@dataclass(frozen=True)
class Settings:
    """All settings for one invocation of a command."""

    command: str
    # Each of these records contains options that are accepted by the same commands.
    event: EventOptions = EventOptions()
    sources: SourceOptions = SourceOptions()
    scope: ScopeOptions = ScopeOptions()
    rules: RulesOptions = RulesOptions()
    transport: TransportOptions = TransportOptions()
    access: AccessOptions = AccessOptions()
    git: GitOptions = GitOptions()
    forge: ForgeOptions = ForgeOptions()
    registry: RegistryOptions = RegistryOptions()
    verify: VerifyOptions = VerifyOptions()
    commit: CommitOptions = CommitOptions()
    results: ResultOptions = ResultOptions()
    handed: HandedOptions = HandedOptions()
    send: SendOptions = SendOptions()
    rollout: RolloutOptions = RolloutOptions()
    alias: AliasOptions = AliasOptions()
    hold: HoldOptions = HoldOptions()
    rollback: RollbackOptions = RollbackOptions()
    promote: PromoteOptions = PromoteOptions()
    status: StatusOptions = StatusOptions()
    wait: WaitOptions = WaitOptions()
    lint: LintOptions = LintOptions()
    check: CheckOptions = CheckOptions()
    # Options that are not accepted by the same commands as any of the records.
    source_repository: str = COMMIT.text(f"Repository of the source commit. {FROM_CI}", "URL")
    application: tuple[str, ...] = FIND.words(
        "Consider only this Application, as NAME or NAMESPACE/NAME. Globs are allowed.",
        "NAME",
        common=NARROWED,
    )
    require_update: bool = RULES.flag("Exit with 5 if nothing was updated.")
    require_match: bool = RULES.flag(
        "Exit with 5 if an image is not tracked by any Application.",
        common=BUILDS,
    )
    registry_check: str = REGISTRY.choice(
        "auto",
        "When to query the registry about an image: only if a rule needs it (auto), always, or"
        " never.",
        "auto|always|never",
    )
    comment: bool = REQUEST.flag(
        "Post the plan as a comment on the pull request that the CI job runs for. Requires plan,"
        " check, or --dry-run.",
        common=("plan", "check"),
    )
    deployments: bool = REQUEST.flag(
        "Show each update as a deployment of the source commit on GitHub or GitLab. With --wait,"
        " also show the result of the rollout."
    )
    on_failure: str = ARGO.choice(
        "none",
        "With --wait, what to do if the rollout fails or times out: nothing (none), or restore"
        " the previous version and hold it (rollback).",
        "none|rollback",
        common=("run", "scan", "promote"),
    )
    minimum_age: str = RULES.text(
        "Accept only versions that are at least this old, such as 3d or 12h.",
        "DURATION",
        common=True,
    )
    log_level: str = RESULTS.choice(
        "info",
        "How much to log to stderr. debug shows each Git transfer and each request to a server.",
        "error|warning|info|debug",
        common=True,
    )
    log_format: str = RESULTS.choice(
        "auto",
        "Log format. auto means github in GitHub Actions and text everywhere else.",
        "auto|text|json|github",
    )
    app: tuple[str, ...] = HELD.words(
        "Applications, as NAME or NAMESPACE/NAME. Globs are allowed.",
        "APP...",
        common=True,
        argument=True,
    )
    discard: bool = HELD.flag("Discard the waiting build instead of writing it.", common=True)
    report_file: str = RESULTS.text(
        "JSON report of a run, from --report or --output json. Use - for stdin.",
        "FILE",
        common=True,
        argument=True,
    )
    html: str = RESULTS.text(
        "Write the report as a self-contained HTML page to this file, or to stdout if no file is"
        " given.",
        "[OUT]",
        common=True,
    )

    @property
    def dry(self) -> bool:
        """Whether the command must not write anything."""
        return kind_of(self.command).dry or self.send.dry_run

    @property
    def pin_digest(self) -> bool:
        """Whether to write the digest as well. Signatures require this, because they cover the
        digest.
        """
        return self.scope.pin_digest or self.verify.wanted

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases of the images to which the command is limited; () means all images."""
        return self.alias.alias or self.alias.image


# What each command accepts: records, and names of `Settings` fields. `SendOptions` is only for
# commands that actually write.
Taken = type | str
REACHING: tuple[Taken, ...] = (
    SourceOptions,
    "log_level",
    "log_format",
    TransportOptions,
    AccessOptions,
)
READING = (*REACHING, ScopeOptions)  # commands that read Applications
# for status, plan, and all commands that write
DECIDING = (
    *READING,
    "registry_check",
    GitOptions,
    ForgeOptions,
    RegistryOptions,
    VerifyOptions,
)
# for commands that commit or plan a commit
WRITING = (
    *DECIDING,
    CommitOptions,
    ResultOptions,
    RolloutOptions,
)
# for run, plan, scan, and promote
UPDATING = (
    "application",
    RulesOptions,
    "require_update",
    *WRITING,
    "on_failure",
)
BUILT = (
    EventOptions,
    "source_repository",
    "require_match",
    *UPDATING,
    "comment",
    "deployments",
)  # for run and plan
TAKEN: Mapping[str, tuple[Taken, ...]] = {
    "run": (*BUILT, SendOptions),
    "plan": BUILT,
    "scan": ("minimum_age", *UPDATING, SendOptions),
    "promote": (
        PromoteOptions,
        AliasOptions,
        "minimum_age",
        "source_repository",
        "require_match",
        *UPDATING,
        "deployments",
        SendOptions,
    ),
    "rollback": ("app", AliasOptions, RollbackOptions, HoldOptions, *WRITING, SendOptions),
    "hold": ("app", AliasOptions, HoldOptions, *WRITING, SendOptions),
    "release": ("app", AliasOptions, "discard", *WRITING, SendOptions),
    "status": (
        StatusOptions,
        "html",
        EventOptions,
        "source_repository",
        "application",
        RulesOptions,
        *DECIDING,
        HandedOptions,
    ),
    "wait": (WaitOptions, *REACHING, HandedOptions),
    "lint": (LintOptions, "application", *READING, ForgeOptions, HandedOptions),
    "check": (CheckOptions, "application", *DECIDING, "comment"),
    "report": ("report_file", "html"),
}
REQUIRED = {
    "rollback": ("app",),
    "hold": ("app", "reason"),
    "release": ("app",),
    "wait": ("app", "revision"),
    "report": ("report_file",),
}


def options_of(command: str) -> tuple[tuple[Field[Any], Any, Option], ...]:
    """Return a command's options, each with its field and the type of its value."""
    return tuple(chain.from_iterable(map(_options_taken, TAKEN.get(command, ()))))


@cache
def _options_taken(taken: Taken) -> tuple[tuple[Field[Any], Any, Option], ...]:
    """Return the options that an item in `TAKEN` stands for, each with its field and the type of
    its value.

    The item is either a record class, which contains several options, or the name of a single
    `Settings` field.
    """
    record = Settings if isinstance(taken, str) else taken
    types = get_type_hints(record)
    options = []
    for field in fields(record):
        is_taken = record is taken or field.name == taken
        # False for `Settings` fields that are themselves records
        is_option = OPTION in field.metadata
        if is_taken and is_option:
            options.append((field, types[field.name], field.metadata[OPTION]))
    return tuple(options)


def every_option() -> tuple[tuple[Field[Any], Any, Option], ...]:
    """Return the options of all commands, each of them once."""
    return tuple(dict.fromkeys(chain.from_iterable(map(options_of, TAKEN))))


def check(settings: Settings) -> None:
    """Raise `UsageError` for the first conflict: options that cannot be combined, or an option that
    requires another one.
    """
    _check_verify(settings.verify)
    if settings.alias.alias and settings.alias.image:
        raise UsageError(
            "--alias and --image cannot be combined",
            hint="remove --image, the old name for --alias",
        )
    has_destination = bool(settings.rollback.to or settings.rollback.failed)
    if settings.command == "rollback" and not has_destination:
        raise UsageError(
            "--to is missing or empty",
            hint="set the version to roll back to: a tag, previous, or 3-back (--to, or the"
            " variable IMAGE_UPDATE_TO), or the image that failed (--failed)",
        )
    if settings.on_failure == "rollback":
        _check_rollback_on_failure(settings)
    for text in settings.commit.push_option:
        if not text.isprintable():
            raise UsageError(
                f"--push-option: {text!r} contains a control character", hint="remove it"
            )
    if settings.commit.commit_through == "github":
        _check_api(settings.commit)
    if settings.command == "promote":
        _check_sides(settings.promote)


def _check_rollback_on_failure(settings: Settings) -> None:
    """Raise `UsageError` if the run could not notice that a rollout has failed."""
    if not settings.rollout.wait:
        raise UsageError(
            "--on-failure=rollback requires --wait",
            hint="add --wait, which detects the failure",
        )
    if settings.git.pull_request and not settings.commit.auto_merge:
        raise UsageError(
            "--on-failure=rollback does not work with a pull request that a person merges",
            hint="add --auto-merge, or remove --on-failure and run: image-update rollback",
        )


def _check_sides(options: PromoteOptions) -> None:
    """Raise `UsageError` unless both sides of a promotion are set."""
    sides = {
        "--from": options.promote_from or options.from_selector,
        "--to": options.promote_to or options.to_selector,
    }
    for side, names_or_selector in sides.items():
        if not names_or_selector:
            raise UsageError(
                f"{side} is missing or empty",
                hint=f"list the Applications in {side}, or select them by label with"
                f" {side}-selector",
            )


def _check_verify(options: VerifyOptions) -> None:
    """Raise `UsageError` for an identity without an issuer, an issuer without an identity, or two
    ways to verify.

    A signer is identified by a public key, or by an identity together with the issuer that confirms
    it.
    """
    has_identity = bool(options.verify_identity)
    has_issuer = bool(options.verify_issuer)
    if has_identity != has_issuer:
        message = "--verify-issuer requires --verify-identity"
        if has_identity:
            message = "--verify-identity requires --verify-issuer"
        raise UsageError(
            message,
            hint=(
                "use --verify-identity and --verify-issuer together: the signer, and the OIDC"
                " issuer that confirms it"
            ),
        )
    if options.verify and has_identity:
        raise UsageError(
            "--verify and --verify-identity cannot be combined",
            hint="use one of them: a public key or an identity",
        )


def _check_api(options: CommitOptions) -> None:
    """Raise `UsageError` for options that do not work with commits through the GitHub API, such as
    an author or a signature.
    """
    fields = (
        "signing_key",
        "signing_format",
        "sign_off",
        "push_option",
        "git_author_name",
        "git_author_email",
    )
    flags = [flag_of(field) for field in fields if getattr(options, field)]
    if not flags:
        return
    others = "the other options" if len(flags) > 1 else flags[0]
    raise UsageError(
        f"{', '.join(flags)} and --commit-through github cannot be combined",
        hint=f"remove --commit-through, or {others}: {_why_not_through_api(flags)}",
    )


def _why_not_through_api(flags: Collection[str]) -> str:
    """Return the reason why these flags do not work with commits through the GitHub API, for a
    hint.
    """
    if list(flags) == [flag_of("push_option")]:
        return "the GitHub API does not support push options"
    return "GitHub signs the commit, and the token's owner is its author"

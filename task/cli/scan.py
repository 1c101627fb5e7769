"""`image-update scan`."""

import typer

from task.cli import options
from task.cli.records import settings_of
from task.cli.update import update
from task.errors import UsageError


def scan(
    context: typer.Context,
    *,
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
    allow_downgrade: options.AllowDowngrade = False,
    require_live: options.RequireLive = False,
    require_update: options.RequireUpdate = False,
    require_match: options.RequireMatch = False,
    pin_digest: options.PinDigest = False,
    carry_parameters: options.CarryParameters = True,
    atomic: options.Atomic = False,
    git_author_name: options.GitAuthorName = "image-update",
    git_author_email: options.GitAuthorEmail = "image-update@noreply.invalid",
    commit_message_template: options.CommitMessageTemplate = "",
    trailer: options.Trailer = None,
    sign_off: options.SignOff = False,
    signing_key: options.SigningKey = "",
    signing_format: options.SigningFormat = "",
    commit_through: options.CommitThrough = "git",
    pipeline_run: options.PipelineRun = "",
    repository_config: options.RepositoryConfig = True,
    pull_request: options.PullRequest = False,
    pull_request_label: options.PullRequestLabel = None,
    pull_request_reviewer: options.PullRequestReviewer = None,
    pull_request_assignee: options.PullRequestAssignee = None,
    pull_request_draft: options.PullRequestDraft = False,
    auto_merge: options.AutoMerge = False,
    forge: options.Forge = "",
    forge_token_file: options.ForgeTokenFile = "",
    forge_username: options.ForgeUsername = "",
    dry_run: options.DryRun = False,
    output: options.Output = "text",
    report: options.Report = "",
    results_dir: options.ResultsDir = "",
    dotenv: options.Dotenv = "",
    metrics_file: options.MetricsFile = "",
    cloudevent_url: options.CloudeventUrl = "",
    log_level: options.LogLevel = "info",
    log_format: options.LogFormat = "auto",
    deadline: options.Deadline = 120,
    stall_timeout: options.StallTimeout = 60,
    git_cache_dir: options.GitCacheDir = "",
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
    only_repository: options.OnlyRepository = None,
    kubeconfig: options.Kubeconfig = "",
    kube_context: options.KubeContext = "",
    argocd_server: options.ArgocdServer = "",
    argocd_auth_token_file: options.ArgocdAuthTokenFile = "",
    argocd_plaintext: options.ArgocdPlaintext = False,
    argocd_insecure: options.ArgocdInsecure = False,
    argocd_ca_file: options.ArgocdCaFile = "",
    argocd_root_path: options.ArgocdRootPath = "",
    argocd_header: options.ArgocdHeader = None,
    refresh: options.Refresh = True,
    refresh_parents: options.RefreshParents = False,
    wait: options.Wait = False,
    wait_timeout: options.WaitTimeout = 600,
    expect_image: options.ExpectImage = True,
    on_failure: options.OnFailure = "none",
    kubernetes_events: options.KubernetesEvents = False,
    registry_check: options.RegistryCheck = "auto",
    registries_conf: options.RegistriesConf = "",
    registry_username: options.RegistryUsername = "",
    registry_password_file: options.RegistryPasswordFile = "",
    registry_credentials_for: options.RegistryCredentialsFor = None,
    registry_cache_dir: options.RegistryCacheDir = "",
    allow_env: options.AllowEnv = None,
    allow_exec: options.AllowExec = False,
    verify: options.Verify = "",
    verify_identity: options.VerifyIdentity = "",
    verify_issuer: options.VerifyIssuer = "",
    verify_timeout: options.VerifyTimeout = 0,
) -> int:
    """Ask the registries for the newest allowed tag of every tracked image, then go on as run does."""
    settings = settings_of("scan", context.params)
    if settings.require_match:
        raise UsageError(
            "--require-match: scan is given no image to look for", hint="leave it out; it is for run and plan"
        )
    if settings.check == "never":
        raise UsageError(
            "--registry-check: scan cannot do without the registries", hint="write auto or always, or leave it out"
        )
    return update(settings, context.obj.environ, context.obj.log)

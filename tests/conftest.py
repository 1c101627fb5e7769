"""Sets up the environment for all tests: isolated from the machine, and with the same hypothesis
examples in every CI run.
"""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.argocd_api import ArgoCDServer, argocd_server
from fakes.registry_api import RegistryApi, registry_api
from hypothesis import settings
from support import IN_CI, MEASURE, THOROUGH, clean_environment, scale
from support.real_servers import Nginx, Sshd, nginx, sshd

settings.register_profile("dev", deadline=None, max_examples=100)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=scale(30, at_night=100),
    derandomize=THOROUGH == 1,
    print_blob=True,
)
settings.load_profile("ci" if IN_CI else "dev")

# The tests create many small files. With these in memory, end-to-end tests use an eighth less CPU
# time than on ext4.
IN_MEMORY = Path("/dev/shm")
ROOM = 4_000_000_000  # bytes
if (
    "TMPDIR" not in os.environ
    and IN_MEMORY.is_dir()
    and not os.statvfs(IN_MEMORY).f_flag & getattr(os, "ST_NOEXEC", 0)  # as in Docker containers
    and shutil.disk_usage(IN_MEMORY).free > ROOM
):
    os.environ["TMPDIR"] = str(IN_MEMORY)
    tempfile.tempdir = None  # forget the folder, which pytest has already looked up

# Background jobs of a shell ignore interrupts. The processes that tests start must not inherit
# that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests with whole runs in separate processes, with servers or HTTP services, and property tests
# with many examples. `make test` runs them.
SLOW = {
    "test_ancestry.py",
    "test_application_source_runs.py",
    "test_argocd.py",
    "test_argocd_runs.py",
    "test_bare_store.py",
    "test_bare_store_cost.py",
    "test_bare_store_http.py",
    "test_bare_store_land.py",
    "test_bare_store_race.py",
    "test_bare_store_ssh.py",
    "test_broken_outputs.py",
    "test_build_orders.py",
    "test_build_races.py",
    "test_builds.py",
    "test_bump.py",
    "test_by_a_click.py",
    "test_check_files.py",
    "test_check_runs.py",
    "test_child_environment.py",
    "test_cluster_runs.py",
    "test_command_line.py",
    "test_commit_through.py",
    "test_commits.py",
    "test_committed_by_api.py",
    "test_contention.py",
    "test_credentials_ssh.py",
    "test_day_two_guides.py",
    "test_deployment_runs.py",
    "test_digest_runs.py",
    "test_examples.py",
    "test_fan_out.py",
    "test_forge_azure.py",
    "test_forge_bitbucket_cloud.py",
    "test_forge_bitbucket_data_center.py",
    "test_forge_gitea.py",
    "test_forge_github.py",
    "test_forge_gitlab.py",
    "test_fork_server.py",
    "test_from_image_updater.py",
    "test_git_cache.py",
    "test_git_connection_faults.py",
    "test_git_owner.py",
    "test_git_server_faults.py",
    "test_go_template.py",
    "test_guides.py",
    "test_head_branch_runs.py",
    "test_head_snapshot.py",
    "test_history.py",
    "test_holds.py",
    "test_hostile_git.py",
    "test_hostile_templates.py",
    "test_http.py",
    "test_image_updates.py",
    "test_kubeconfig.py",
    "test_kubernetes.py",
    "test_laws.py",
    "test_minimum_age.py",
    "test_mistakes.py",
    "test_notify.py",
    "test_override_files.py",
    "test_picture.py",
    "test_plan_comment_runs.py",
    "test_promotion_runs.py",
    "test_provenance_runs.py",
    "test_proxy.py",
    "test_published_files.py",
    "test_pull_request_config.py",
    "test_pull_request_forges.py",
    "test_pull_request_runs.py",
    "test_pull_request_wait.py",
    "test_pull_requests.py",
    "test_push_options.py",
    "test_rbac.py",
    "test_real_registry.py",
    "test_real_servers.py",
    "test_redirects.py",
    "test_registry_access.py",
    "test_registry_client.py",
    "test_registry_facts.py",
    "test_registry_lists.py",
    "test_registry_logins.py",
    "test_registry_runs.py",
    "test_registry_signatures.py",
    "test_renamed_bases.py",
    "test_rendered_runs.py",
    "test_rendered_truth.py",
    "test_rendering.py",
    "test_report_command.py",
    "test_repository_config_runs.py",
    "test_repository_secret_runs.py",
    "test_rollback_runs.py",
    "test_rollouts.py",
    "test_runners.py",
    "test_scan.py",
    "test_signals.py",
    "test_signatures.py",
    "test_signing.py",
    "test_site.py",
    "test_ssh_sharing.py",
    "test_stall.py",
    "test_state_file.py",
    "test_start.py",
    "test_status.py",
    "test_story.py",
    "test_terminal.py",
    "test_tutorial.py",
    "test_two_clusters_runs.py",
    "test_undo_runs.py",
    "test_wait_runs.py",
    "test_workflow_commands.py",
    "test_working_folder.py",
    "test_write_back_runs.py",
}

# Tests that check the project's own files. They execute little of the code, so their coverage is
# not measured.
TEXTS = {
    "test_docs.py",
    "test_manifests.py",
    "test_pages.py",
    "test_samples.py",
    "test_security_page.py",
    "test_workflows.py",
}

WAITING = {
    "test_git_connection_faults.py",
    "test_git_server_faults.py",
    "test_live.py",
    "test_stall.py",
    "test_undo_runs.py",
    "test_wait_runs.py",
}


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of workers. For whole runs, it exceeds the number of processors, because
    these runs mostly wait for servers and processes.
    """
    processors = os.cpu_count() or 1
    return max(2, processors * 2 + 1 if _unmeasured(config) else processors)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files that contain none of the selected tests.

    Importing such files takes as long as running the tests of a whole folder, and a worker that has
    imported fewer modules starts programs faster.
    """
    if not collection_path.name.startswith("test_"):
        return None
    if _quick(config):
        return True if collection_path.name in SLOW else None
    if _measured(config):
        return True if _is_unmeasured(collection_path) else None
    return True if _unmeasured(config) and not _may_be_unmeasured(collection_path) else None


def _is_unmeasured(path: Path) -> bool:
    """Return whether coverage is not measured for any test in a file."""
    if path.name in TEXTS:
        return True
    return path.name in SLOW and "mark.measured" not in path.read_text()


def _may_be_unmeasured(path: Path) -> bool:
    """Return whether a file may contain tests whose coverage is not measured. This is verified when
    all tests are collected.
    """
    return path.name in SLOW | TEXTS or any(
        word in path.read_text() for word in ("mark.slow", "mark.servers", "built")
    )


def _measured(config: pytest.Config) -> bool:
    """Return whether only those tests are run whose coverage is measured."""
    return "(measured or" in config.option.markexpr


def _unmeasured(config: pytest.Config) -> bool:
    """Return whether only those tests are run whose coverage is not measured."""
    return "not measured" in config.option.markexpr


def _quick(config: pytest.Config) -> bool:
    """Return whether the tests are run by `make check`."""
    return "not slow" in config.option.markexpr


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, which `make check` leaves out, and move tests that need the built image to
    the front.

    Tests that mostly wait are spread evenly among the others. Otherwise, the processors would be
    idle at the end.
    """
    waiting = [item for item in items if item.path.name in WAITING]
    items[:] = [item for item in items if item.path.name not in WAITING]
    apart = len(items) // (len(waiting) + 1) + 1
    for number, item in enumerate(waiting):
        items.insert(number * (apart + 1), item)
    items.sort(key=lambda item: "built" not in getattr(item, "fixturenames", ()))
    for item in items:
        if item.path.name in SLOW:
            item.add_marker(pytest.mark.slow)
        elif item.path.name in TEXTS:
            item.add_marker(pytest.mark.texts)
        elif item.get_closest_marker("slow") or item.get_closest_marker("servers"):
            assert _may_be_unmeasured(item.path), (
                f"{item.path.name}: add it to SLOW, or its slow tests will not run"
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Stop measuring coverage while a test runs with random inputs, which takes three times as long
    if it is measured. Other tests reach the same lines, unless the test is marked as `measured`.
    """
    is_random = item.get_closest_marker("hypothesis") and not item.get_closest_marker("measured")
    measure = sys.gettrace()
    if not is_random or not measure:
        return (yield)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(measure)


def pytest_collection_finish() -> None:
    """Exclude the fifteen thousand collected tests from all later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _clean_room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Isolate the tests from all settings of the user, the machine, and the CI system."""
    environment = clean_environment(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        for name in set(os.environ) - set(environment):
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def _measured_processes(request: pytest.FixtureRequest, _clean_room: None) -> Iterator[None]:
    """Let the processes that a test marked `measured` starts measure their coverage, if coverage is
    measured at all.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("measured"):
            for name, value in MEASURE.items():
                patch.setenv(name, value)
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory for one test."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name, value in clean_environment(folder).items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def argo_cd() -> Iterator[ArgoCDServer]:
    """A fake Argo CD without Applications."""
    with argocd_server() as running:
        yield running


@pytest.fixture
def oci_registry() -> Iterator[RegistryApi]:
    """A fake registry without images."""
    with registry_api() as running:
        yield running


@pytest.fixture(scope="session")
def repos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the repositories that real servers serve."""
    return tmp_path_factory.mktemp("repos")


@pytest.fixture(scope="session")
def web(tmp_path_factory: pytest.TempPathFactory, repos: Path) -> Iterator[Nginx]:
    """A web server that serves these repositories."""
    with nginx(tmp_path_factory.mktemp("nginx"), repos) as server:
        yield server


@pytest.fixture(scope="session")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """An SSH server."""
    with sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server

"""Build the image on a locally created Debian base, and run the image: `python -m
scripts.containers [runtime|action]`.

Nothing is pulled, and everything is stored in `.cache/image`. This requires root, and the Debian
packages mmdebstrap, buildah, podman, runc, and netavark.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "image"
PROGRAMS = ("mmdebstrap", "buildah", "podman", "runc")
_MADE_BY = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[
    :12
]  # any change to this file results in a new base
BASE = f"localhost/image-update-base:{_MADE_BY}"
MACHINE = dict(
    os.environ
)  # this machine's package settings, saved before a test's clean environment hides them

_PACKAGES = "python3,python3-venv,ca-certificates"
# Use symlinks, as debootstrap does, because the usrmerge package would require perl.
_MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"
_MIRROR = "http://deb.debian.org/debian"
# The official slim images omit these files, too, and so does this image. It also omits the bytecode
# of the standard library.
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
_NO_BYTECODE = 'find "$1/usr/lib/python3"* -name __pycache__ -prune -exec rm -r {} +'
_AUTHORITIES = "/run/image-update-build/authorities.pem"
_PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")


def base() -> str:
    """Return the name of the base image, which is created first if it is missing."""
    with _locked():
        if _said("podman", "image", "exists", BASE, fails=True) is None:
            tar = CACHE / f"base-{_MADE_BY}.tar"
            if not tar.exists():
                _make_base(tar)
            _said("podman", "import", "--quiet", str(tar), BASE)
    return BASE


def build(target: str = "runtime") -> str:
    """Build an image from `Dockerfile` and return its name. Unchanged layers are reused."""
    name, onto = f"localhost/image-update-{target}:tests", base()
    with _locked():
        options = (
            "--isolation",
            "chroot",
            "--layers",
            "--pull-never",
            "--quiet",
            "--target",
            target,
            "--tag",
            name,
        )
        given = ("--build-arg", f"PYTHON_IMAGE={onto}", *_packages_by())
        _said("buildah", "bud", *options, *given, "--file", str(ROOT / "Dockerfile"), str(ROOT))
        _said(
            "podman", "image", "prune", "--force", "--filter", "until=24h"
        )  # layers left over from earlier builds
    return name


def podman(*arguments: str) -> list[str]:
    """Return a podman command line. It must be run with the variables in `environment()`."""
    return ["podman", *arguments]


def run(image: str, *options: str, command: Sequence[str] = ()) -> list[str]:
    """Return the command line that runs an image without privileges and with a read-only root.

    Pods under the `restricted` policy run in the same way.
    """
    rights = (
        "--read-only",
        "--read-only-tmpfs=false",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
    )
    return container(image, *rights, *options, command=command)


def container(image: str, *options: str, command: Sequence[str] = ()) -> list[str]:
    """Return the command line that runs an image on this machine's network. The container is
    removed when it exits.
    """
    limits = (
        "--ulimit=nofile=4096:4096",
        "--ulimit=nproc=10000:10000",
    )  # the default limits of containers may exceed those of this machine
    return podman(
        "run", "--rm", "--pull=never", "--network=host", *limits, *options, image, *command
    )


def size(image: str) -> int:
    """Return the unpacked size of an image in bytes."""
    return int(_said("podman", "image", "inspect", "--format", "{{.Size}}", image) or "")


def environment() -> Mapping[str, str]:
    """Return the variables that point buildah and podman to their configuration and storage in
    `.cache`.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    driver = "vfs" if _filesystem() == "overlay" else "overlay"  # overlay mounts cannot be nested
    _write(
        "storage.conf",
        f'[storage]\ndriver = "{driver}"\ngraphroot = "{CACHE}/store"\nrunroot = "{CACHE}/run"\n',
    )
    # crun does not support hybrid cgroups, and without systemd, there is no journal.
    engine = 'runtime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
    _write("containers.conf", f'[engine]\n{engine}[network]\nnetwork_backend = "netavark"\n')
    kept = {
        name: text
        for name, text in MACHINE.items()
        if name in ("PATH", "HOME") or name.lower().endswith("_proxy")
    }
    return {
        **kept,
        "CONTAINERS_STORAGE_CONF": str(CACHE / "storage.conf"),
        "CONTAINERS_CONF": str(CACHE / "containers.conf"),
    }


def _make_base(tar: Path) -> None:
    """Create a minimal Debian image with Python from the mirror that apt uses on this machine."""
    slim = [f"--dpkgopt=path-exclude={one}" for one in _LEFT_OUT]
    if (
        proxy := (_said("apt-config", "shell", "X", "Acquire::http::Proxy") or "")
        .partition("=")[2]
        .strip()
        .strip("'")
    ):
        slim.append(f'--aptopt=Acquire::http::Proxy "{proxy}"')
    wanted = ("Created-By: Packages", "Codename: bookworm", "Component: main")
    sites = _said("apt-get", "indextargets", "--format", "$(SITE)", *wanted, fails=True) or ""
    mirrors = [
        site
        for site in sites.split()
        if site.startswith("http") and not site.rstrip("/").endswith("-security")
    ]
    partial = tar.with_suffix(".partial.tar")
    _said(
        "mmdebstrap", "--quiet", "--variant=minbase", f"--include={_PACKAGES}", *slim,
        "--dpkgopt=force-unsafe-io", "--aptopt=Acquire::GzipIndexes true", "--aptopt=Acquire::Languages none",
        f"--hook-dir={_MERGED}", f"--customize-hook={_NO_BYTECODE}",
        "bookworm", str(partial), (mirrors or [_MIRROR])[0],
    )  # fmt: skip
    partial.rename(tar)


def _packages_by() -> Iterator[str]:
    """Yield the options that make pip use this machine's package sources during the build.

    The options do not end up in the image.
    """
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env=MACHINE,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    settings = dict(re.findall(r"^(?:global|install|:env:)\.([a-z-]+)='(.*)'$", told, re.MULTILINE))
    lines = [
        "[global]",
        *(f"{key} = {value}" for key, value in settings.items() if key in _PIP_KEYS),
    ]
    authorities = settings.get("cert") or MACHINE.get("SSL_CERT_FILE", "")
    if authorities and os.path.isfile(authorities):
        lines.append(f"cert = {_AUTHORITIES}")
        yield from ("--volume", f"{os.path.realpath(authorities)}:{_AUTHORITIES}:ro")
    yield from (
        "--volume",
        f"{_write('pip.conf', ''.join(f'{line}{chr(10)}' for line in lines))}:/etc/pip.conf:ro",
    )


def _said(program: str, *arguments: str, fails: bool = False) -> str | None:
    """Return a program's output. With `fails`, return None if the program fails."""
    done = subprocess.run(
        [program, *arguments], env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode and not fails:
        raise RuntimeError(
            f"{program} {' '.join(arguments)} exited with {done.returncode}:\n{done.stderr[-4000:]}"
        )
    return None if done.returncode else done.stdout.strip()


def _filesystem() -> str:
    done = subprocess.run(
        ["stat", "--file-system", "--format=%T", str(CACHE)],
        capture_output=True,
        text=True,
        check=False,
    )
    return "overlay" if done.stdout.startswith("overlay") else done.stdout.strip()


def _write(name: str, text: str) -> Path:
    """Write a cache file and return its path. Unchanged files are not rewritten, because another
    process may be reading them.
    """
    path = CACHE / name
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        new = path.with_name(f"{name}.{os.getpid()}")
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    return path


@contextmanager
def _locked() -> Iterator[None]:
    """Run the block in only one process at a time, because tests run in several processes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.stdout.write(f"{build(*sys.argv[1:2])}\n")

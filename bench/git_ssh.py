"""A local Git server over SSH: sshd with throwaway keys."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Ssh(NamedTuple):
    """An SSH server that serves all repositories on this machine to the owner of `key`."""

    port: int
    key: Path
    host_key: str  # the host key, as "TYPE KEY"

    def known_hosts(self, file: Path, port: int) -> Path:
        """Write a known_hosts file with the host key for the port that clients connect to. Return
        the file.
        """
        file.write_text(f"[127.0.0.1]:{port} {self.host_key}\n")
        return file


@contextmanager
def git_ssh(folder: Path) -> Iterator[Ssh]:
    """Run the server during the block. Raises `FileNotFoundError` if sshd is not installed."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not program:
        raise FileNotFoundError("sshd is not installed")
    for name in ("host", "id"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    shutil.copy(folder / "id.pub", folder / "authorized")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        "PidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin prohibit-password\n"
    )
    if not os.getuid():
        Path("/run/sshd").mkdir(exist_ok=True)
    with (folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen(
            [program, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log
        )
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.05)
        yield Ssh(port, folder / "id", " ".join((folder / "host.pub").read_text().split()[:2]))
    finally:
        server.terminate()
        server.wait()


def user() -> str:
    """Return the user to log in as."""
    return getpass.getuser()

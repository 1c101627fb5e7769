"""Detects whether this process runs in a pod."""

from __future__ import annotations

import os
from collections.abc import Mapping

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def in_cluster(environ: Mapping[str, str], service_account: str = SERVICE_ACCOUNT) -> bool:
    """Return whether this process runs in a pod with a service account."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and os.path.exists(
        os.path.join(service_account, "token")
    )

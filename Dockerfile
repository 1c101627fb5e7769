# syntax=docker/dockerfile:1
# Two images of one make: `runtime` for Tekton, Argo Workflows and GitLab, `action` for GitHub.
ARG BASE_IMAGE=python:3.13-slim-trixie

FROM ${BASE_IMAGE} AS builder
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# Dependencies first: this layer lives until a lock changes. The build backend stays out of the result.
COPY requirements.lock requirements-build.lock ./
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/image-update \
 && /opt/build/bin/pip install --quiet --require-hashes -r requirements-build.lock \
 && /opt/build/bin/pip --python /opt/image-update/bin/python3 install --quiet --no-compile --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY task task
RUN /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/build/bin/pip --python /opt/image-update/bin/python3 install --quiet --no-compile --no-deps /wheels/*.whl \
 && /opt/image-update/bin/python3 -m compileall -q /opt/image-update

FROM ${BASE_IMAGE} AS runtime
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="Image Update" \
      org.opencontainers.image.description="Commits a built image to every Argo CD Application that asks for it" \
      org.opencontainers.image.source="https://github.com/argocd-image-update/image-update" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The versions are those of the base image's distribution: they are pinned with it.
# hadolint ignore=DL3008
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      ca-certificates git gpg libnss-wrapper openssh-client openssl \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
# The root file system is read-only where this runs, so no bytecode is ever written there; base images ship none of the
# standard library's. Without a passwd entry ssh refuses to start: libnss-wrapper helps any uid. Group 0 may write home.
RUN python3 -m compileall -q -x '/tests?/' "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
 && echo 'nonroot:x:65532:0:nonroot:/home/nonroot:/usr/sbin/nologin' >> /etc/passwd \
 && mkdir -p /home/nonroot && chown 65532:0 /home/nonroot && chmod 0770 /home/nonroot
COPY --from=builder /opt/image-update /opt/image-update
RUN ln -s /opt/image-update/bin/image-update /usr/local/bin/image-update
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/home/nonroot
USER 65532:0
WORKDIR /home/nonroot
ENTRYPOINT ["/usr/local/bin/image-update"]

# The runner's workspace and command files belong to another uid: a container action runs as root.
FROM runtime AS action
# hadolint ignore=DL3002
USER 0:0
WORKDIR /

# Built when no target is named.
FROM runtime

# syntax=docker/dockerfile:1
# Two images from one build: `runtime` for Tekton, Argo Workflows, and GitLab, and `action` for GitHub.
#
# The base image is pinned, and Renovate updates its digest (.github/renovate.json). To use another base image, pass
# --build-arg PYTHON_IMAGE=registry.example.com/python:3.13. It needs apt and Python 3.11 or newer.
ARG PYTHON_IMAGE=docker.io/library/python:3.13.14-slim-trixie@sha256:6771159cd4fa5d9bba1258caf0b82e6b73458c694d178ad97c5e925c2d0e1a91

FROM ${PYTHON_IMAGE} AS builder
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# Dependencies come first, so that this layer only changes with a lock file. The build backend is not in the final image.
COPY requirements.lock requirements-build.lock ./
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/image-update \
 && /opt/build/bin/pip install --quiet --no-compile --require-hashes -r requirements-build.lock \
 && /opt/build/bin/pip --python /opt/image-update/bin/python3 install --quiet --no-compile --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY task task
# The bytecode is never checked against its source, because copying the files may change their times.
RUN /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/build/bin/pip --python /opt/image-update/bin/python3 install --quiet --no-compile --no-deps /wheels/*.whl \
 && /opt/image-update/bin/python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash \
      -x '/pygments/lexers/' /opt/image-update/lib

# The Git package depends on perl, for commands that are not used here. Both take 90 MB. The files copied here take 6 MB.
# Scanners recognize Git by its control file, as in images without a package manager.
FROM ${PYTHON_IMAGE} AS git
WORKDIR /git
RUN apt-get update -qq \
 && apt-get download -qq git \
 && dpkg-deb --extract git_*.deb package \
 && mkdir -p files/usr/bin files/usr/lib/git-core files/usr/share/doc/git files/var/lib/dpkg/status.d \
 && cp -P package/usr/bin/git package/usr/bin/git-upload-pack package/usr/bin/git-receive-pack files/usr/bin \
 && cp -P package/usr/lib/git-core/git-remote-http package/usr/lib/git-core/git-remote-https files/usr/lib/git-core \
 && cp -R package/usr/share/git-core files/usr/share \
 && cp package/usr/share/doc/git/copyright files/usr/share/doc/git \
 && dpkg-deb --field git_*.deb > files/var/lib/dpkg/status.d/git \
 && dpkg-deb --field git_*.deb Depends > depends \
 && sed -i 's/, */\n/g' depends \
 && sed -n '/perl/!s/^\(lib[^ ]*\).*/\1/p' depends > libraries \
 && rm -r package git_*.deb

FROM ${PYTHON_IMAGE} AS runtime
# gpg cannot sign without gpg-agent. ssh does not start without a passwd entry. libnss-wrapper provides one, because hosts
# can choose any uid. The package versions come from the base image's distribution, and are pinned with it.
# hadolint ignore=DL3008,SC2046
RUN --mount=type=bind,from=git,source=/git/libraries,target=/run/libraries \
    --mount=type=bind,from=git,source=/var/lib/apt/lists,target=/var/lib/apt/lists,rw \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      -o Dpkg::Options::=--force-unsafe-io -o Dpkg::Options::=--path-exclude=/usr/share/locale/* \
      -o Dpkg::Options::=--path-exclude=/usr/share/man/* -o Dpkg::Options::=--path-exclude=/usr/share/doc/* \
      -o Dpkg::Options::=--path-include=/usr/share/doc/*/copyright \
      ca-certificates gpg gpg-agent libnss-wrapper openssh-client $(cat /run/libraries) \
 && rm -rf /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log
COPY --from=git /git/files /
# At run time, the root file system is read-only, so Python cannot write bytecode, and base images do not include it for
# the standard library. Group 0 can write to home, because uids chosen by a host are in this group.
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash \
      -x '/(tests?|idlelib|tkinter|turtledemo|lib2to3|ensurepip|pydoc_data|site-packages|dist-packages)/' \
      "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
 && echo 'nonroot:x:65532:0:nonroot:/home/nonroot:/usr/sbin/nologin' >> /etc/passwd \
 && mkdir -p /home/nonroot && chown 65532:0 /home/nonroot && chmod 0770 /home/nonroot
COPY --from=builder /opt/image-update /opt/image-update
RUN ln -s /opt/image-update/bin/image-update /usr/local/bin/image-update
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/home/nonroot
# Labels come last, so that a new version does not change other layers.
ARG PYTHON_IMAGE
ARG VERSION=0.1.0
ARG REVISION=
ARG CREATED=
LABEL org.opencontainers.image.title="Image Update" \
      org.opencontainers.image.description="Writes the version of a newly built image to Git, for every Argo CD Application that tracks it" \
      org.opencontainers.image.url="https://github.com/argocd-image-update/image-update" \
      org.opencontainers.image.source="https://github.com/argocd-image-update/image-update" \
      org.opencontainers.image.documentation="https://github.com/argocd-image-update/image-update#readme" \
      org.opencontainers.image.vendor="Image Update" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"
USER 65532:0
WORKDIR /home/nonroot
# There is no shell or init in between. The command is process 1, receives SIGTERM, and waits for its children.
ENTRYPOINT ["/usr/local/bin/image-update"]

# A container action runs as root, because the runner's workspace and command files belong to another uid.
FROM runtime AS action
# hadolint ignore=DL3002
USER 0:0
WORKDIR /

# The default target.
FROM runtime

# The programs of terngrad_tf, run by a user without rights. Docker, podman and buildah build it:
#     docker build --tag terngrad_tf .
#     docker run --rm terngrad_tf terngrad mnist_distributed_train --help
# BASE: an image with Python 3.10 to 3.13 and its venv module as python3.
# EXTRAS: of pyproject.toml, with commas between them.
ARG BASE=docker.io/library/python:3.12-slim

FROM ${BASE} AS build
ARG EXTRAS=experiments
RUN python3 -m venv /opt/terngrad_tf
COPY pyproject.toml setup.py README.md LICENSE /source/
COPY slim_data /source/slim_data
COPY terngrad_tf /source/terngrad_tf
# What `terngrad explain` prints; the package links to it.
COPY docs/troubleshooting.md /source/docs/troubleshooting.md
RUN /opt/terngrad_tf/bin/pip install --no-cache-dir "/source[${EXTRAS}]"

FROM ${BASE}
RUN useradd --create-home --uid 1000 trainer
COPY --from=build /opt/terngrad_tf /opt/terngrad_tf
ENV PATH=/opt/terngrad_tf/bin:$PATH TF_CPP_MIN_LOG_LEVEL=2
# A number, so that Kubernetes sees that it is not root.
USER 1000
WORKDIR /home/trainer

# callfuse serve, as a user of its own that may write nothing; what to set and to mount: docs/deploy.md.
ARG PYTHON_VERSION=3.13

FROM python:${PYTHON_VERSION}-slim AS build
# More packages for the image, as in --build-arg MORE_PACKAGES="opentelemetry-distro opentelemetry-exporter-otlp".
ARG MORE_PACKAGES=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src ./src
COPY docs/kinds ./docs/kinds
RUN pip wheel --no-deps --wheel-dir /dist .
# At the path that it has in the image, because its scripts name it; it needs no pip.
# hadolint ignore=DL3013
RUN python -m venv --without-pip /opt/callfuse \
 && pip --python /opt/callfuse/bin/python install "$(ls /dist/callfuse-*.whl)[serve,redis,otel]" ${MORE_PACKAGES}

FROM python:${PYTHON_VERSION}-slim
LABEL org.opencontainers.image.title="callfuse" \
      org.opencontainers.image.description="The fuse on the wire between AI agents and models: catches tool-call loops inside live streams." \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/callfuse /opt/callfuse
# Variables win over a file, so the address is the same whatever file is mounted: the check below and EXPOSE rely on it.
ENV PATH=/opt/callfuse/bin:${PATH} PYTHONUNBUFFERED=1 \
    CALLFUSE_SERVE_HOST=0.0.0.0 CALLFUSE_SERVE_PORT=8100 CALLFUSE_ADMIN_PATH=/_callfuse
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /
EXPOSE 8100
# A store or a vendor that is down is no reason to start another container.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-I", "-c", "import http.client, os, sys; e = os.environ; c = http.client.HTTPConnection('127.0.0.1', int(e['CALLFUSE_SERVE_PORT']), timeout=3); c.request('GET', e['CALLFUSE_ADMIN_PATH'] + '/ready?exclude=store&exclude=upstream'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["callfuse"]
CMD ["serve"]

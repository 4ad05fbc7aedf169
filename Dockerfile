# syntax=docker/dockerfile:1
# The image of a Woma server. docs/DEPLOYMENT.md says how to start a container: Docker's default profiles
# refuse the namespaces that sessions are made of. MIN_ISOLATION lets the server start without them, with a
# warning: a container that holds nothing but Woma is a wall around all sessions. `strong` refuses instead.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p woma && strip target/release/woma

# The Python environment of sessions: 1.6 GB, made from the lock in the binary.
FROM debian:bookworm-slim AS environment
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/target/release/woma /usr/bin/woma
RUN WOMA_DATA_DIR=/opt/woma woma env create > /opt/prefix \
    && ln -s "$(cat /opt/prefix)" /opt/woma/environment \
    && rm -rf /opt/woma/tools

FROM debian:bookworm-slim
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --home-dir /var/lib/woma --create-home --shell /usr/sbin/nologin woma
COPY --from=environment /opt/woma /opt/woma
COPY --from=build /src/target/release/woma /usr/bin/woma
COPY packaging/container/probe.py /usr/lib/woma/probe.py

# No key is built in: on this address, the server starts only with API_KEY, API_KEY_FILE or named keys.
ENV HOST=0.0.0.0 \
    WOMA_DATA_DIR=/var/lib/woma \
    WOMA_ENV=/opt/woma/environment \
    MIN_ISOLATION=restricted
VOLUME /var/lib/woma
USER 10001:10001
# The port of Woma's own defaults, and those of the presets.
EXPOSE 8080 16010 9000 8001 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python3", "/usr/lib/woma/probe.py"]
ENTRYPOINT ["woma"]
CMD ["serve"]

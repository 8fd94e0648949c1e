# croft: the one binary under its four names.
ARG GO_IMAGE=golang:1.26-bookworm
ARG BASE=debian:bookworm-slim

FROM ${GO_IMAGE} AS build
ARG GOPROXY
ARG VERSION=devel
WORKDIR /src
COPY . .
RUN go build -tags libvirt_dlopen -trimpath -ldflags "-s -w -X croft/internal/build.Version=${VERSION}" -o /croft ./cmd/croft

FROM ${BASE}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 8777 croft \
 && useradd --system --uid 8777 --gid 8777 --home-dir /var/lib/croft --create-home croft
COPY --from=build /croft /usr/local/bin/croft
RUN ln -s croft /usr/local/bin/schedule \
 && ln -s croft /usr/local/bin/compute \
 && ln -s croft /usr/local/bin/mdserver
USER croft
ENV CROFT_STATE_DIR=/var/lib/croft
VOLUME /var/lib/croft
ENTRYPOINT ["croft"]

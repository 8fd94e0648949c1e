# croft: the one binary under its four names.
ARG GO_IMAGE=golang:1.26-bookworm
ARG BASE_IMAGE=debian:12-slim

FROM ${GO_IMAGE} AS build
ARG VERSION=devel
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN go build -tags libvirt_dlopen -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /croft ./cmd/croft

FROM ${BASE_IMAGE}
# libvirt0 is opened at run time; the daemon, and QEMU, stay on the host.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates libvirt0 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /croft /usr/local/bin/croft
RUN ln -s croft /usr/local/bin/schedule \
 && ln -s croft /usr/local/bin/compute \
 && ln -s croft /usr/local/bin/mdserver
VOLUME /var/lib/croft
ENTRYPOINT ["croft"]

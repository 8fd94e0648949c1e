# etcd of the version that croft itself is built with, from the same go.mod.
ARG GO_IMAGE=golang:1.26-bookworm
ARG BASE_IMAGE=debian:12-slim

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
RUN CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o /etcd go.etcd.io/etcd/server/v3

FROM ${BASE_IMAGE}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends curl \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --home-dir /var/lib/etcd --create-home etcd
COPY --from=build /etcd /usr/local/bin/etcd
USER etcd
VOLUME /var/lib/etcd
EXPOSE 2379
ENTRYPOINT ["etcd", "--data-dir=/var/lib/etcd/data", "--listen-client-urls=http://0.0.0.0:2379"]
# Old revisions are of no use to croft, which lists again when one it wants is gone.
CMD ["--advertise-client-urls=http://127.0.0.1:2379", "--auto-compaction-mode=periodic", "--auto-compaction-retention=1h"]

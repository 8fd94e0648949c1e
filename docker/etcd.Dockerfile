# etcd of the version that croft itself is built with, from the same go.mod.
ARG GO_IMAGE=golang:1.26-bookworm
ARG BASE=debian:bookworm-slim

FROM ${GO_IMAGE} AS build
ARG GOPROXY
WORKDIR /src
COPY go.mod go.sum ./
RUN CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o /etcd go.etcd.io/etcd/server/v3

FROM ${BASE}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends curl \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 2379 etcd \
 && useradd --system --uid 2379 --gid 2379 --home-dir /var/lib/etcd --create-home etcd \
 && chmod 700 /var/lib/etcd
COPY --from=build /etcd /usr/local/bin/etcd
USER etcd
VOLUME /var/lib/etcd
EXPOSE 2379
# Clients show a certificate of the same authority. What answers the health check listens
# inside the container alone. Old revisions are of no use to croft, which lists again
# when one it wants is gone.
ENTRYPOINT ["etcd", "--data-dir=/var/lib/etcd/data", \
 "--listen-client-urls=https://0.0.0.0:2379", "--client-cert-auth", \
 "--cert-file=/keys/cert.pem", "--key-file=/keys/key.pem", "--trusted-ca-file=/keys/ca.pem", \
 "--listen-metrics-urls=http://127.0.0.1:2381", \
 "--auto-compaction-mode=periodic", "--auto-compaction-retention=1h"]
CMD ["--advertise-client-urls=https://127.0.0.1:2379"]

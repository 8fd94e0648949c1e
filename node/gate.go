package node

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/hosts/audit"
	"croft/internal/delay"
	"croft/node/settings"
	"croft/schedule/images"
	"croft/schedule/resize"
	"croft/schedule/volumes"
	"croft/trust"
	"croft/trust/gate"
	"croft/trust/pki"
)

// gateAnswers bounds how long a starting host waits for the gate to say whether it was forgotten.
const gateAnswers = 2 * time.Second

// OpenGate opens the gate of the cloud that the host of a state directory joined.
func OpenGate(j *trust.Membership, stateDir string) (*gate.Client, error) {
	files := trust.Certificate(stateDir, pki.Hosts)
	id, err := files.Identity()
	if err != nil {
		return nil, err
	}
	return gate.NewClient(gate.ClientConfig{
		Endpoints: j.Gates(stateDir), TLS: files.Client(j.Partition, pki.Kinds(pki.Member)), Host: croft.HostID(id.ID),
		Partition: j.Partition,
	})
}

// followGates periodically asks which hosts serve agents, until ctx ends.
func (h *host) followGates(ctx context.Context, client *gate.Client, of *trust.Membership) error {
	var last []string
	for {
		gates, err := client.Gates(ctx)
		if err == nil && len(gates) > 0 && !slices.Equal(gates, last) {
			client.SetEndpoints(of.GateURLs(gates))
			h.log.Info("agents are served at", "host", h.id, "endpoints", gates)
			if err := trust.KeepGates(h.dir.Path, gates); err != nil {
				h.log.Warn("the list of hosts that serve agents is not stored: the next start will not know the new "+
					"ones",
					"host", h.id, "err", err)
			}
			last = gates
		}
		if delay.For(ctx, gatesEvery) != nil {
			return nil
		}
	}
}

// gatesEvery is the interval at which an agent asks which hosts serve agents.
const gatesEvery = time.Minute

// openCloud opens the cloud of a host: through the gate if the host joined a strict cloud, else etcd, in which mint
// permits creating one.
func openCloud(ctx context.Context, r settings.Reach, stateDir string, mint bool) (cloud, error) {
	if r.Joined.IsStrict() {
		return OpenGate(r.Joined, stateDir)
	}
	store, err := r.Etcd.Open(ctx, mint)
	if err != nil {
		return nil, err
	}
	return cloudIn(store), nil
}

// etcdCloud is the cloud of a host that reaches etcd.
type etcdCloud struct {
	*etcdstore.Store
	compute.Orders
	compute.Registry
	compute.Records
	compute.Volumes
	compute.Backups
	compute.Copies
	audit.Shared
}

func cloudIn(store *etcdstore.Store) etcdCloud {
	return etcdCloud{store, store.Orders, store.Registry, store.Records, store.Volumes, store.Backups, store.Images,
		store.Turn}
}

// requestClaims is the part of the Placement API that ends requests whose processes died.
type requestClaims interface {
	volumes.Claims
	resize.Claims
}

// resizes returns what ends requests to resize instances whose processes died.
func resizes(store *etcdstore.Store, claims resize.Claims, log *slog.Logger) *resize.Manager {
	return &resize.Manager{Partition: store.Partition(), Records: store.Instances, Claims: claims, Log: log}
}

// catalog returns what looks after the images of the cloud's catalog.
func catalog(store *etcdstore.Store, claims volumes.Claims, log *slog.Logger) *images.Manager {
	return &images.Manager{Store: store.Images, Hosts: store.Registry, Snapshots: volumeRequests(store, claims, log),
		Instances: store.Instances, Log: log}
}

// volumeRequests returns what ends requests for volumes whose processes died.
func volumeRequests(store *etcdstore.Store, claims volumes.Claims, log *slog.Logger) *volumes.Manager {
	return &volumes.Manager{Partition: store.Partition(), Store: store.Volumes, Claims: claims, Hosts: store.Registry,
		Instances: store.Instances, Log: log}
}

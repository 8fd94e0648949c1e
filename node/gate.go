package node

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/gate"
	"croft/trust/pki"
)

// startGate returns the handler that serves agents which reach neither etcd nor Placement,
// and starts the caretaker, which looks after what those agents may not see.
func startGate(ctx context.Context, s *settings.Settings, p *Parts, host croft.HostID, admitted *trust.Admission,
	store *etcdstore.Store, log *slog.Logger) (http.Handler, error) {
	claims, err := s.Placement.Client()
	if err != nil {
		return nil, err
	}
	server, err := gate.NewServer(gate.ServerConfig{
		Caller: admitted.Agent, Orders: store, Registry: store, Records: store, Inventory: claims, Usable: store.Usable,
		Gates: func(ctx context.Context) ([]string, error) { return gatesOf(ctx, store) }, Log: log,
	})
	if err != nil {
		return nil, err
	}
	p.Start(ctx, "the gate", func(ctx context.Context) error {
		<-ctx.Done() // the join server, which began later, has ended
		server.Wait()
		claims.Close()
		return nil
	})
	caretaker := &compute.Caretaker{Host: host, Records: store, Inventory: claims, Every: s.Sweep, Log: log}
	p.Start(ctx, "the caretaker", caretaker.Run)
	return server, nil
}

// gatesOf lists where agents of this cloud are served.
func gatesOf(ctx context.Context, store *etcdstore.Store) (all []string, err error) {
	servers, err := store.JoinServers(ctx)
	for _, j := range servers {
		all = append(all, j.ServesAgents()...)
	}
	return all, err
}

// startOtherGate serves agents on a host that serves etcd and did not begin the cloud, if
// agents of the cloud reach no etcd: they go on where the first host does not.
func startOtherGate(ctx context.Context, s *settings.Settings, p *Parts, own *trust.Credentials,
	admitted *trust.Admission, store *etcdstore.Store, log *slog.Logger) error {
	if own == nil {
		return nil
	}
	servers, err := store.JoinServers(ctx)
	if err != nil {
		return err
	}
	if !trust.AnyStrict(servers) || s.JoinListen() == "" {
		return store.PutJoinServer(ctx, own.Host, trust.JoinServer{})
	}
	l, at, err := listenForHosts(ctx, s)
	if err != nil {
		return err
	}
	agents, err := startGate(ctx, s, p, own.Host, admitted, store, log)
	if err == nil {
		err = store.PutJoinServer(ctx, own.Host, trust.JoinServer{Agents: []string{at}})
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	mux.Handle(gate.Prefix, agents)
	serveHosts(ctx, s, p, own, l, mux)
	return nil
}

// gateAnswers is how long a host that starts waits for the gate to say whether it was
// forgotten.
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

// followGates keeps up with which hosts serve agents, until ctx ends.
func (h *host) followGates(ctx context.Context, client *gate.Client, of *trust.Membership) error {
	var last []string
	for {
		gates, err := client.Gates(ctx)
		if err == nil && len(gates) > 0 && !slices.Equal(gates, last) {
			client.SetEndpoints(of.GateURLs(gates))
			h.log.Info("agents are served at", "host", h.id, "endpoints", gates)
			if err := trust.KeepGates(h.dir.Path, gates); err != nil {
				h.log.Warn("which hosts serve agents is not kept, and the next start will not know of those that came",
					"host", h.id, "err", err)
			}
			last = gates
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(gatesEvery):
		}
	}
}

// gatesEvery is how often an agent asks which hosts serve agents.
const gatesEvery = time.Minute

// BehindGate returns the cloud that a host with these settings joined if agents reach
// the gate alone there; else nil.
func BehindGate(s *settings.Settings) (*trust.Membership, error) {
	if len(s.Others) == 0 { // it did not join, or is told to use another cloud
		return nil, nil
	}
	j, err := trust.ReadMembership(s.StateDir)
	if !j.IsStrict() {
		j = nil
	}
	return j, err
}

// openCloud opens the cloud of a host: through the gate if it joined a strict one, else
// etcd, where mint lets it begin one.
func openCloud(ctx context.Context, s *settings.Settings, mint bool) (cloud, error) {
	j, err := BehindGate(s)
	switch {
	case err != nil:
		return nil, err
	case j != nil:
		return OpenGate(j, s.StateDir)
	}
	return s.Etcd.Open(ctx, mint)
}

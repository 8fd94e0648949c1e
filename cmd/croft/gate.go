package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/compute"
	"croft/doctor"
	"croft/etcdstore"
	"croft/internal/durable"
	"croft/trust/gate"
	"croft/trust/pki"
)

// The setting trust: what hosts that join may reach.
const (
	trustDirect = etcdstore.TrustDirect
	trustStrict = etcdstore.TrustStrict
)

// checkTrust refuses a cloud whose hosts would reach nothing.
func (s *hostSettings) checkTrust() error {
	if s.Trust == trustStrict && s.controlListen() == "" {
		return croft.Errorf(croft.Invalid, "trust is strict, so that hosts reach the control process alone: say in control.listen where, such as an address of this machine and port %s", controlPort)
	}
	return nil
}

// startGate serves agents that reach neither etcd nor Placement, at what is returned,
// and looks after what these may not see.
func (s *hostSettings) startGate(ctx context.Context, p *parts, c *control) (http.Handler, error) {
	claims, err := s.Placement.Client()
	if err != nil {
		return nil, err
	}
	server, err := gate.NewServer(gate.ServerConfig{
		Caller: c.agent, Orders: c.store, Registry: c.store, Records: c.store, Inventory: claims, Usable: c.store.Usable, Gates: c.gates, Log: c.log,
	})
	if err != nil {
		return nil, err
	}
	p.start(ctx, "the gate", func(ctx context.Context) error {
		<-ctx.Done() // control, which began later, has ended
		server.Wait()
		claims.Close()
		return nil
	})
	caretaker := &compute.Caretaker{Host: c.trust.host, Records: c.store, Inventory: claims, Every: s.Sweep, Log: c.log}
	p.start(ctx, "the caretaker", caretaker.Run)
	return server, nil
}

// agent is the host whose agent makes a request: one that was not forgotten, with a
// certificate that still counts, also where its connection is older.
func (c *control) agent(r *http.Request) (croft.HostID, error) {
	ctx, cancel := context.WithTimeout(r.Context(), admittedTime)
	defer cancel()
	id, err := c.caller(r.WithContext(ctx))
	switch {
	case err != nil:
		return croft.HostID(id.ID), err
	case id.Kind != pki.Host:
		return "", croft.Errorf(croft.Invalid, "the certificate is of %s %s, and that of a host is wanted", id.Kind, id.ID)
	}
	return croft.HostID(id.ID), nil
}

// gates are where agents of this cloud are served.
func (c *control) gates(ctx context.Context) (all []string, err error) {
	controls, err := c.store.Controls(ctx)
	for _, c := range controls {
		all = append(all, c.ServesAgents()...)
	}
	return all, err
}

// isStrict tells whether hosts that join at one of these reach control alone.
func isStrict(controls []etcdstore.Control) bool {
	return slices.ContainsFunc(controls, func(c etcdstore.Control) bool { return c.Trust == trustStrict })
}

// startOtherGate serves agents on a host that serves etcd too and did not begin the cloud,
// if that is one where agents reach no etcd: they live on where the first host does not.
func (s *hostSettings) startOtherGate(ctx context.Context, p *parts, own *trust, store *etcdstore.Store) error {
	if own == nil {
		return nil
	}
	controls, err := store.Controls(ctx)
	if err != nil {
		return err
	}
	if !isStrict(controls) || s.controlListen() == "" {
		return store.PutControl(ctx, own.host, etcdstore.Control{})
	}
	l, at, err := s.listenForHosts(ctx)
	if err != nil {
		return err
	}
	agents, err := s.startGate(ctx, p, &control{trust: own, store: store, admitted: own.admitted, log: own.log})
	if err == nil {
		err = store.PutControl(ctx, own.host, etcdstore.Control{Agents: []string{at}})
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	mux.Handle(gate.Prefix, agents)
	s.serveHosts(ctx, p, own, l, mux)
	return nil
}

// admittedTime is how long it may take to look whether a host was forgotten.
const admittedTime = 2 * time.Second

// openGate is the cloud of a host that joined one where agents reach control alone.
func (j *membership) openGate(stateDir string) (*gate.Client, error) {
	files := certificates(stateDir, pki.Hosts)
	id, err := files.Identity()
	if err != nil {
		return nil, err
	}
	return gate.NewClient(gate.ClientConfig{
		Endpoints: j.gateURLs(stateDir), TLS: files.Client(j.Partition, pki.Kinds(pki.Member)), Host: croft.HostID(id.ID), Partition: j.Partition,
	})
}

// isStrict tells whether a host joined a cloud where agents reach control alone.
func (j *membership) isStrict() bool { return j != nil && j.Trust == trustStrict }

// gatesFile is where a host remembers the gates that there were when it last asked.
func gatesFile(stateDir string) string { return filepath.Join(stateDir, "gates") }

// gateURLs are the gates that the host of a state directory knows: where it joined, and
// those that it learned of. Without the file it finds them again.
func (j *membership) gateURLs(stateDir string) []string {
	text, _ := os.ReadFile(gatesFile(stateDir))
	return gateURLs(append(strings.Fields(string(text)), j.Control...))
}

func gateURLs(addresses []string) (urls []string) {
	for _, address := range addresses {
		if url := "https://" + address; !slices.Contains(urls, url) {
			urls = append(urls, url)
		}
	}
	return urls
}

// followGates keeps up with which hosts serve agents, until ctx ends.
func (h *host) followGates(ctx context.Context, client *gate.Client, of *membership) error {
	var last []string
	for {
		gates, err := client.Gates(ctx)
		if err == nil && len(gates) > 0 && !slices.Equal(gates, last) {
			client.SetEndpoints(gateURLs(append(gates, of.Control...)))
			h.log.Info("agents are served at", "host", h.id, "endpoints", gates)
			if err := durable.Write(gatesFile(h.dir.Path), []byte(strings.Join(gates, "\n")+"\n"), 0o644); err != nil {
				h.log.Warn("which hosts serve agents is not kept, and the next start will not know of those that came", "host", h.id, "err", err)
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

// gatesEvery is how often an agent asks which hosts serve agents. One that is cut off
// meanwhile still knows the last ones.
const gatesEvery = time.Minute

// at is where the cloud is, for people.
func (j *membership) at() string {
	for _, address := range append(j.Etcd.Endpoints, j.Control...) {
		return address
	}
	return "an unknown address"
}

// behindGate is the cloud that a host with these settings joined, where agents reach
// control alone; else nil.
func (s *hostSettings) behindGate() (*membership, error) {
	if len(s.Others) == 0 { // it did not join, or is told to use another cloud
		return nil, nil
	}
	j, err := readJoined(s.StateDir)
	if !j.isStrict() {
		j = nil
	}
	return j, err
}

// openCloud is the cloud that a host is of: through the gate where it joined one that is
// strict, else etcd's. mint lets it begin one.
func (s *hostSettings) openCloud(ctx context.Context, mint bool) (cloud, error) {
	j, err := s.behindGate()
	switch {
	case err != nil:
		return nil, err
	case j != nil:
		return j.openGate(s.StateDir)
	}
	return s.Etcd.Open(ctx, mint)
}

// lookCloud checks what the host gets its orders from.
func lookCloud(s hostSettings) (doctor.Check, error) {
	j, err := s.behindGate()
	if err != nil || j == nil {
		return doctor.Check{Name: "etcd", Look: lookEtcd(s.Etcd.EtcdSettings)}, err
	}
	return doctor.Check{Name: "control", Look: func(ctx context.Context) doctor.Finding {
		client, err := j.openGate(s.StateDir)
		if err == nil {
			err = errors.Join(client.Usable(ctx), client.Close())
		}
		if err != nil {
			return doctor.Finding{Level: doctor.Fail, Found: err.Error()}
		}
		return doctor.Finding{Level: doctor.OK, Found: "it answers at " + strings.Join(j.Control, ", ") + ", and lets this host in"}
	}}, nil
}

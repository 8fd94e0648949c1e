package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/gate"
	"croft/internal/doctor"
	"croft/internal/pki"
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
// and looks after what these may not see. Where hosts are trusted it serves nothing.
func (s *hostSettings) startGate(ctx context.Context, p *parts, c *control) (http.Handler, error) {
	if s.Trust != trustStrict {
		return http.NotFoundHandler(), nil
	}
	claims, err := s.Placement.client()
	if err != nil {
		return nil, err
	}
	server, err := gate.NewServer(gate.ServerConfig{
		Caller: c.agent, Orders: c.store, Registry: c.store, Records: c.store, Inventory: claims, Usable: c.store.Usable, Log: c.log,
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
	case time.Now().After(r.TLS.VerifiedChains[0][0].NotAfter):
		return croft.HostID(id.ID), croft.Errorf(croft.Invalid, "the certificate of this connection ran out: connect with the new one")
	}
	return croft.HostID(id.ID), nil
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
		Endpoints: j.controlURLs(), TLS: files.Client(j.Partition, pki.Kinds(pki.Member)), Host: croft.HostID(id.ID), Partition: j.Partition,
	})
}

// isStrict tells whether a host joined a cloud where agents reach control alone.
func (j *membership) isStrict() bool { return j != nil && j.Trust == trustStrict }

func (j *membership) controlURLs() []string {
	var urls []string
	for _, address := range j.Control {
		urls = append(urls, "https://"+address)
	}
	return urls
}

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
	return s.Etcd.open(ctx, mint)
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

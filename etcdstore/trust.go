package etcdstore

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// Control is a control process that hosts join and renew their certificates at, or that
// serves their agents where these reach no etcd, or both. Addresses are HOST:PORT, as hosts
// reach them.
type Control struct {
	Addresses []string `json:"addresses,omitempty"` // where hosts join
	Trust     string   `json:"trust,omitempty"`     // what the hosts that join there may reach: TrustDirect or TrustStrict; empty: none may join
	Agents    []string `json:"agents,omitempty"`    // where agents of a strict cloud are served
}

// ServesAgents is where its gate is, if it has one.
func (c Control) ServesAgents() []string {
	if len(c.Agents) == 0 && c.Trust == TrustStrict { // written before there were others
		return c.Addresses
	}
	return c.Agents
}

// TrustDirect lets hosts speak to etcd and Placement themselves, TrustStrict to control
// alone.
const (
	TrustDirect = "direct"
	TrustStrict = "strict"
)

// Joined is what is known of a host that joined through a control process. Without it
// the host's certificates are worth nothing there.
type Joined struct {
	Since        time.Time        `json:"since"`
	Certificates map[string]Stamp `json:"certificates"` // by their authority
}

// Stamp is when a certificate was made, by which authority, and until when it counts.
type Stamp struct {
	By    string    `json:"by"` // the authority's pin
	Made  time.Time `json:"made"`
	Until time.Time `json:"until"`
}

// PutAuthority stores whom of the cloud's hosts everybody may trust, in PEM.
func (s *Store) PutAuthority(ctx context.Context, trusted []byte) error {
	_, err := s.etcd.Put(ctx, s.keys.authority(), string(trusted))
	return s.wrapped(err, "write whom to trust")
}

// Authority returns it. NotFound: nobody has stored any.
func (s *Store) Authority(ctx context.Context) ([]byte, error) {
	got, err := s.etcd.Get(ctx, s.keys.authority())
	if err != nil {
		return nil, s.wrap(err, "read whom to trust")
	}
	if len(got.Kvs) == 0 {
		return nil, croft.Errorf(croft.NotFound, "this cloud has no authority of its own for the certificates of its hosts")
	}
	return got.Kvs[0].Value, nil
}

// PutControl stores where the control process of a host listens, or with no addresses
// that there is none.
func (s *Store) PutControl(ctx context.Context, host croft.HostID, c Control) error {
	if len(c.Addresses)+len(c.Agents) == 0 {
		_, err := s.etcd.Delete(ctx, s.keys.control(host))
		return s.wrapped(err, "remove where control listens")
	}
	_, err := s.etcd.Put(ctx, s.keys.control(host), encode(c))
	return s.wrapped(err, "write where control listens")
}

// Controls are the control processes of the cloud.
func (s *Store) Controls(ctx context.Context) ([]Control, error) {
	got, err := s.etcd.Get(ctx, s.keys.controls(), clientv3.WithPrefix())
	if err != nil {
		return nil, s.wrap(err, "read where control listens")
	}
	var all []Control
	for _, kv := range got.Kvs {
		var c Control
		if err := s.decode(kv.Key, kv.Value, &c); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// Admit makes a host one that joined, with these certificates. Conflict: there is a host
// of that ID, and known does not say so.
func (s *Store) Admit(ctx context.Context, host croft.HostID, known bool, certificates map[string]Stamp) error {
	var compares []clientv3.Cmp
	if !known {
		compares = append(compares, absent(s.keys.host(host)))
	}
	value := encode(Joined{time.Now().UTC().Truncate(time.Second), certificates})
	done, err := s.etcd.Txn(ctx).If(compares...).Then(clientv3.OpPut(s.keys.joined(host), value)).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "there is a host %s already", host)
	}
	return s.wrapped(err, "admit a host")
}

// Renewed notes a certificate that a host got in the place of another. NotFound: it is
// none that joined, or it was forgotten.
func (s *Store) Renewed(ctx context.Context, host croft.HostID, authority string, stamp Stamp) error {
	for {
		// A host may renew those of both authorities at once.
		if err := s.renewed(ctx, host, authority, stamp); !errors.Is(err, croft.Conflict) {
			return err
		}
	}
}

// renewed is one attempt. Conflict: the record changed meanwhile.
func (s *Store) renewed(ctx context.Context, host croft.HostID, authority string, stamp Stamp) error {
	key := s.keys.joined(host)
	got, err := s.etcd.Get(ctx, key)
	if err != nil {
		return s.wrap(err, "read when a host joined")
	}
	if len(got.Kvs) == 0 {
		return errForgotten(host)
	}
	var j Joined
	if err := s.decode(got.Kvs[0].Key, got.Kvs[0].Value, &j); err != nil {
		return err
	}
	if j.Certificates == nil {
		j.Certificates = map[string]Stamp{}
	}
	j.Certificates[authority] = stamp
	done, err := s.etcd.Txn(ctx).If(unchanged(key, got.Kvs[0].ModRevision)).Then(clientv3.OpPut(key, encode(j))).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "host %s renews another certificate at the same time", host)
	}
	return s.wrapped(err, "note a renewal")
}

func errForgotten(host croft.HostID) error {
	return croft.Errorf(croft.NotFound, "host %s is not of this cloud: it was forgotten, and may come back with a token (croft token create)", host)
}

// Joined returns when a host joined. NotFound: it did not, or it was forgotten.
func (s *Store) Joined(ctx context.Context, host croft.HostID) (Joined, error) {
	var j Joined
	got, err := s.etcd.Get(ctx, s.keys.joined(host))
	if err != nil {
		return j, s.wrap(err, "read when a host joined")
	}
	if len(got.Kvs) == 0 {
		return j, errForgotten(host)
	}
	return j, s.decode(got.Kvs[0].Key, got.Kvs[0].Value, &j)
}

// AllJoined are all hosts that joined.
func (s *Store) AllJoined(ctx context.Context) (map[croft.HostID]Joined, error) {
	got, err := s.etcd.Get(ctx, s.keys.allJoined(), clientv3.WithPrefix())
	if err != nil {
		return nil, s.wrap(err, "read when hosts joined")
	}
	all := map[croft.HostID]Joined{}
	for _, kv := range got.Kvs {
		var j Joined
		if err := s.decode(kv.Key, kv.Value, &j); err != nil {
			return nil, err
		}
		all[croft.HostID(last(kv.Key))] = j
	}
	return all, nil
}

package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// Control is a control process that hosts join and renew their certificates at.
type Control struct {
	Addresses []string `json:"addresses"` // HOST:PORT, as hosts reach it
	Pin       string   `json:"pin"`       // of the authority that its certificate is of
	Trust     string   `json:"trust"`     // what the hosts that join there may reach: TrustDirect; empty: none may join
}

// TrustDirect lets hosts speak to etcd themselves.
const TrustDirect = "direct"

// Joined is what is known of a host that joined through a control process. Without it
// the host's certificates are worth nothing there.
type Joined struct {
	Since   time.Time `json:"since"`
	Renewed time.Time `json:"renewed"`
	Until   time.Time `json:"until"` // its certificates count
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
	if len(c.Addresses) == 0 {
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

// Admit makes a host one that joined, with certificates that count so long. Conflict: a
// host of that ID is known, and known is not what the caller expects.
func (s *Store) Admit(ctx context.Context, host croft.HostID, known bool, until time.Time) error {
	stamp := time.Now().UTC().Truncate(time.Second)
	compares := []clientv3.Cmp{absent(s.keys.host(host)), absent(s.keys.joined(host))}
	if known {
		compares = nil
	}
	done, err := s.etcd.Txn(ctx).If(compares...).
		Then(clientv3.OpPut(s.keys.joined(host), encode(Joined{stamp, stamp, until.UTC().Truncate(time.Second)}))).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "there is a host %s already", host)
	}
	return s.wrapped(err, "admit a host")
}

// Renewed notes until when the new certificates of a host count. NotFound: it is none
// that joined, or it was forgotten.
func (s *Store) Renewed(ctx context.Context, host croft.HostID, until time.Time) error {
	key := s.keys.joined(host)
	got, err := s.etcd.Get(ctx, key)
	if err != nil {
		return s.wrap(err, "read when a host joined")
	}
	var j Joined
	if len(got.Kvs) == 0 {
		return errForgotten(host)
	}
	if err := s.decode(got.Kvs[0].Key, got.Kvs[0].Value, &j); err != nil {
		return err
	}
	j.Renewed, j.Until = time.Now().UTC().Truncate(time.Second), until.UTC().Truncate(time.Second)
	done, err := s.etcd.Txn(ctx).If(exists(key)).Then(clientv3.OpPut(key, encode(j))).Commit()
	if err == nil && !done.Succeeded {
		return errForgotten(host)
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

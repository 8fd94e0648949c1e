// Package policies stores in etcd the CRUSH policies, and the numbers of hosts and locations that CRUSH uses. A number
// is never reassigned: a host keeps it until it is forgotten, a location forever.
package policies

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/internal/nearest"
)

// Policies is the store of policies.
type Policies struct {
	conn  *kv.Conn
	hosts string       // prefix of the records of hosts
	may   func() error // whether all programs of this cloud know policies
}

// New makes the store of policies, which writes if may returns nil.
func New(c *kv.Conn, hosts string, may func() error) *Policies { return &Policies{c, hosts, may} }

// stored is the value of a policy's key.
type stored struct {
	Text string `json:"text"`
}

func (s *Policies) keys() Keys { return Keys(s.conn.Prefix) }

func (s *Policies) decode(entry *mvccpb.KeyValue) (croft.CrushPolicy, error) {
	var v stored
	err := s.conn.Decode(entry.Key, entry.Value, &v)
	return croft.CrushPolicy{Name: kv.Last(entry.Key), Text: v.Text, Generation: entry.ModRevision}, err
}

// List returns all policies, by name.
func (s *Policies) List(ctx context.Context) ([]croft.CrushPolicy, error) {
	all := []croft.CrushPolicy{}
	err := s.conn.ReadRange(ctx, "read the policies", s.keys().all(), 0, func(entry *mvccpb.KeyValue) error {
		p, err := s.decode(entry)
		all = append(all, p)
		return err
	})
	return all, err
}

// Find returns a policy. NotFound.
func (s *Policies) Find(ctx context.Context, name string) (croft.CrushPolicy, error) {
	if err := croft.CheckPolicyName(name); err != nil {
		return croft.CrushPolicy{}, err
	}
	got, err := s.conn.Etcd.Get(ctx, s.keys().policy(name))
	if err != nil {
		return croft.CrushPolicy{}, s.conn.Wrap(err, "read policy %s", name)
	}
	if len(got.Kvs) == 0 {
		return croft.CrushPolicy{}, s.missing(ctx, name)
	}
	return s.decode(got.Kvs[0])
}

// missing returns the error about a policy that does not exist.
func (s *Policies) missing(ctx context.Context, name string) error {
	all, _ := s.List(ctx) // only a hint: an error is ignored
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	return croft.Errorf(croft.NotFound, "there is no policy %q%s; `croft policy list` lists all policies", name,
		nearest.Hint(name, names))
}

// Set stores a policy, and replaces the one of the same name if that has the given generation; 0: there must be none;
// nil: any. It returns the policy with its generation. Conflict: the stored policy has another generation. Invalid.
func (s *Policies) Set(ctx context.Context, p croft.CrushPolicy, generation *int64) (croft.CrushPolicy, error) {
	if err := p.Check(); err != nil {
		return p, err
	}
	if err := s.may(); err != nil {
		return p, err
	}
	key := s.keys().policy(p.Name)
	for {
		got, err := s.conn.Etcd.Txn(ctx).Then(clientv3.OpGet(key),
			clientv3.OpGet(s.keys().all(), clientv3.WithPrefix(), clientv3.WithCountOnly())).Commit()
		if err != nil {
			return p, s.conn.Wrap(err, "read policy %s", p.Name)
		}
		var now croft.CrushPolicy
		if entry := kv.First(got.Responses[0]); entry != nil {
			if now, err = s.decode(entry); err != nil {
				return p, err
			}
		}
		switch all := got.Responses[1].GetResponseRange().Count; {
		case generation != nil && *generation != now.Generation:
			return now, changed(p.Name, now.Generation, *generation)
		case now.Generation != 0 && now.Text == p.Text:
			return now, nil
		case now.Generation == 0 && all >= croft.MaxPolicies:
			return p, croft.Errorf(croft.Invalid, "there are %d policies, and may not be more: remove one", all)
		}
		done, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(key, now.Generation)).
			Then(clientv3.OpPut(key, kv.Encode(stored{p.Text}))).Commit()
		if err != nil {
			return p, s.conn.Wrap(err, "write policy %s", p.Name)
		}
		if done.Succeeded { // otherwise another process wrote it, so the retries end
			p.Generation = done.Header.Revision
			return p, nil
		}
	}
}

func changed(name string, now, wanted int64) error {
	return croft.Errorf(croft.Conflict, "policy %s has generation %d, not %d: another request changed it; read it "+
		"again",
		name, now, wanted)
}

// Remove removes a policy of a generation; nil: of any. Instances stay on their hosts. NotFound; Conflict: the policy
// has another generation.
func (s *Policies) Remove(ctx context.Context, name string, generation *int64) error {
	for {
		now, err := s.Find(ctx, name)
		if err != nil {
			return err
		}
		if generation != nil && *generation != now.Generation {
			return changed(name, now.Generation, *generation)
		}
		key := s.keys().policy(name)
		done, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(key, now.Generation)).Then(clientv3.OpDelete(key)).Commit()
		if err != nil {
			return s.conn.Wrap(err, "remove policy %s", name)
		}
		if done.Succeeded {
			return nil
		}
	}
}

// Package policies stores in etcd the CRUSH policies, and the numbers of hosts and locations that CRUSH uses. A number
// is never reassigned: a host keeps it until it is forgotten, a location forever.
package policies

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
	"croft/internal/nearest"
)

// Policies is the store of policies.
type Policies struct {
	conn     *kv.Conn
	hosts    string       // prefix of the records of hosts
	may      func() error // whether all programs of this cloud know policies
	policies shelf.Shelf[croft.CrushPolicy]
}

// stored is the value of a policy's key.
type stored struct {
	Text string `json:"text"`
}

// New makes the store of policies, which writes if may returns nil.
func New(c *kv.Conn, hosts string, may func() error) *Policies {
	s := &Policies{conn: c, hosts: hosts, may: may}
	s.policies = shelf.Shelf[croft.CrushPolicy]{Conn: c, Noun: "policy", Plural: "policies", Prefix: s.keys().all(),
		Decode: func(entry *mvccpb.KeyValue) (croft.CrushPolicy, error) {
			var v stored
			err := c.Decode(entry.Key, entry.Value, &v)
			return croft.CrushPolicy{Name: kv.Last(entry.Key), Text: v.Text, Generation: entry.ModRevision}, err
		},
		Encode:  func(p croft.CrushPolicy) string { return kv.Encode(stored{p.Text}) },
		Stamp:   func(p *croft.CrushPolicy, generation, _ int64) { p.Generation = generation },
		Missing: s.missing,
		Differs: func(name string, now, wanted int64) error {
			return croft.Errorf(croft.Conflict, "policy %s has generation %d, not %d: another request changed it; read it "+
				"again", name, now, wanted)
		},
		Most: croft.MaxPolicies, TooMany: func(n int64) error {
			return croft.Errorf(croft.Invalid, "there are %d policies, and may not be more: remove one", n)
		}}
	return s
}

func (s *Policies) keys() Keys { return Keys(s.conn.Prefix) }

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

// List returns all policies, by name.
func (s *Policies) List(ctx context.Context) ([]croft.CrushPolicy, error) {
	return s.policies.List(ctx, 0)
}

// Find returns a policy. NotFound.
func (s *Policies) Find(ctx context.Context, name string) (croft.CrushPolicy, error) {
	if err := croft.CheckPolicyName(name); err != nil {
		return croft.CrushPolicy{}, err
	}
	return s.policies.Find(ctx, name)
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
	return s.policies.Change(ctx, p.Name, generation, func(now croft.CrushPolicy, there bool) (croft.CrushPolicy,
		error) {
		if there && now.Text == p.Text {
			return now, shelf.ErrSame
		}
		return p, nil
	})
}

// Remove removes a policy of a generation; nil: of any. Instances stay on their hosts. NotFound; Conflict: the policy
// has another generation.
func (s *Policies) Remove(ctx context.Context, name string, generation *int64) error {
	if err := croft.CheckPolicyName(name); err != nil {
		return err
	}
	return s.policies.Remove(ctx, name, generation, nil)
}

// Keys builds the keys of policies and of the numbers for CRUSH; it is the prefix of the partition. The list of all
// keys is in etcdstore.
type Keys string

func (k Keys) all() string { return string(k) + "policies/" }

func (k Keys) last() string                { return string(k) + "crush/last" }
func (k Keys) hosts() string               { return string(k) + "crush/hosts/" }
func (k Keys) locations() string           { return string(k) + "crush/locations/" }
func (k Keys) location(name string) string { return k.locations() + name }

// Host returns the key of a host's number.
func (k Keys) Host(h croft.HostID) string { return k.hosts() + string(h) }

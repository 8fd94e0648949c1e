package clusters

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
)

func (s *Catalogue) implementations() shelf[cluster.Implementation] {
	return shelf[cluster.Implementation]{"implementation", s.keys().implementations(),
		func(v *cluster.Implementation) *int64 { return &v.Generation }}
}

// Implementations implements cluster.Catalogue.
func (s *Catalogue) Implementations(ctx context.Context, appliance string) ([]cluster.Implementation, error) {
	all, err := s.implementations().list(ctx, s.conn, 0)
	if appliance != "" {
		all = slices.DeleteFunc(all, func(i cluster.Implementation) bool { return i.Appliance != appliance })
	}
	slices.SortFunc(all, func(a, b cluster.Implementation) int {
		return cmp.Or(cmp.Compare(a.Appliance, b.Appliance), cmp.Compare(a.Site, b.Site),
			cmp.Compare(a.Revision, b.Revision))
	})
	return all, err
}

// Implementation implements cluster.Catalogue.
func (s *Catalogue) Implementation(ctx context.Context, id cluster.ImplementationID) (cluster.Implementation, error) {
	return s.implementations().find(ctx, s.conn, string(id))
}

// maxImplementation bounds an implementation as stored, in bytes: its template may double in JSON.
const maxImplementation = 1280 << 10

// AddImplementation implements cluster.Catalogue. Its revision is counted beside it, so that no number comes back.
func (s *Catalogue) AddImplementation(ctx context.Context, i cluster.Implementation) (cluster.Implementation, error) {
	_, malformed := croft.ParseClusterID(string(i.ID)) // any UUID
	if err := cmp.Or(s.may(), malformed); err != nil {
		return i, err
	}
	if n := len(kv.Encode(i)); n > maxImplementation {
		return i, croft.Errorf(croft.Invalid, "the implementation has %d bytes as JSON, at most %d are stored: make its "+
			"template shorter", n, maxImplementation)
	}
	k := s.keys()
	i.Project = ""
	key, i0 := k.revision(i.Appliance, i.Site), i
	for {
		got, err := s.conn.Etcd.Txn(ctx).Then(clientv3.OpGet(key), clientv3.OpGet(k.appliance(i.Appliance)),
			clientv3.OpGet(k.site(i.Site)), clientv3.OpGet(k.image(i.Image))).Commit()
		if err != nil {
			return i, s.conn.Wrap(err, "read the revision of an implementation")
		}
		i, revision := i0, int64(0)
		if latest := kv.First(got.Responses[0]); latest != nil {
			if i.Revision, err = strconv.Atoi(string(latest.Value)); err != nil {
				return i, croft.Errorf(croft.Invalid, "%s holds no number: %w", latest.Key, err)
			}
			revision = latest.ModRevision
		} else {
			i.Revision = 0
		}
		i.Revision++
		ifs := []clientv3.Cmp{kv.Unchanged(key, revision)}
		for n, missing := range []error{s.appliances().missing(i.Appliance), s.sites().missing(i.Site), nil} {
			switch named := kv.First(got.Responses[1+n]); {
			case named != nil:
				ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(string(named.Key)), "=",
					named.CreateRevision))
			case missing != nil: // an image may be the cloud's
				return i, missing
			}
		}
		of, err := s.appliances().decode(s.conn, kv.First(got.Responses[1]))
		if err != nil {
			return i, err
		}
		i.Project, i.Generation = of.Project, 0
		written, err := s.implementations().put(ctx, s.projects, string(i.ID), &i, chargeOfImplementation(i), ifs,
			clientv3.OpPut(key, strconv.Itoa(i.Revision)))
		if err != nil || written {
			return i, err
		} // else something changed, so trying again ends
	}
}

// EnableImplementation implements cluster.Catalogue.
func (s *Catalogue) EnableImplementation(ctx context.Context, id cluster.ImplementationID, enabled bool) (
	cluster.Implementation, error) {
	for {
		i, err := s.Implementation(ctx, id)
		if err != nil {
			return i, err
		}
		before := chargeOfImplementation(i)
		i.Enabled = enabled
		_, err = s.implementations().put(ctx, s.projects, string(id), &i,
			instead(before, chargeOfImplementation(i)), nil)
		if croft.KindOf(err) != croft.Conflict { // else somebody else changed it, so trying again ends
			return i, err
		}
	}
}

// RemoveImplementation implements cluster.Catalogue.
func (s *Catalogue) RemoveImplementation(ctx context.Context, id cluster.ImplementationID) error {
	k := s.keys()
	used := k.used("implementations", string(id))
	return s.remove(ctx, s.implementations().missing(string(id)), k.implementation(id),
		func(revision int64) (removal, error) {
			n, err := s.count(ctx, used, revision)
			if err == nil && n > 0 {
				err = croft.Errorf(croft.Conflict, "%d clusters were built by implementation %s: delete those first, or "+
					"disable it", n, id)
			}
			if err != nil {
				return removal{}, err
			}
			i, err := s.Implementation(ctx, id)
			return removal{ifs: []clientv3.Cmp{kv.AbsentBelow(used), kv.Unchanged(k.implementation(id), i.Generation)},
				paid: chargeOfImplementation(i)}, err
		})
}

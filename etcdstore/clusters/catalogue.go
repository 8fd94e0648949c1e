package clusters

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
	"croft/etcdstore/tenants"
	"croft/tenant"
)

// ApplianceStore stores the sites, credentials, appliances, implementations and images from which clusters are built. A
// transaction that adds a record naming a site, an appliance or an image compares that the named one exists. A
// transaction that removes one compares that no such record was added since it was read that none exists.
type ApplianceStore struct {
	conn     *kv.Conn
	may      func() error
	projects *tenants.Projects

	mu       sync.Mutex
	compared time.Time // when the index of implementations was last compared
}

// Kept returns the sources of the charges for the records of the catalogue. Records without a project belong to
// operators and are not charged.
func Kept(c *kv.Conn) []tenants.Source {
	s := &ApplianceStore{conn: c}
	appliances := s.appliances()
	appliances.Charge = chargeOfAppliance // a public appliance of a project has a second record
	return []tenants.Source{s.credentials().Source(), appliances.Source(), s.implementations().Source()}
}

func chargeOfCredential(c cluster.Credential) tenants.Charge {
	c.Generation = 0
	return tenants.Charge{Project: c.Project, Amounts: tenants.SizeOf(tenant.CountCredentials, c)}
}

// chargeOfImplementation returns the charge, which the project of the implementation's appliance pays.
func chargeOfImplementation(i cluster.Implementation) tenants.Charge {
	i.Generation = 0
	return tenants.Charge{Project: i.Project, Amounts: tenants.SizeOf(tenant.CountImplementations, i)}
}

func (s *ApplianceStore) keys() Keys { return Keys(s.conn.Prefix) }

// storedSite is a site as it is stored: with a time in nanoseconds, which clients get in seconds.
type storedSite struct {
	cluster.Site
	BuildTimeout time.Duration `json:"build_timeout,omitempty"`
}

func sitesOf(c *kv.Conn) shelf.Shelf[cluster.Site] {
	stamp := func(v *cluster.Site, generation, created int64) {
		v.Generation, v.CreateRevision = generation, created
	}
	return shelf.Shelf[cluster.Site]{Conn: c, Noun: "site", Prefix: Keys(c.Prefix).sites(), Stamp: stamp,
		Decode: func(stored *mvccpb.KeyValue) (cluster.Site, error) {
			var s storedSite
			err := c.Decode(stored.Key, stored.Value, &s)
			s.Site.BuildTimeout = cluster.Seconds(s.BuildTimeout)
			stamp(&s.Site, stored.ModRevision, stored.CreateRevision)
			return s.Site, err
		},
		Encode: func(s cluster.Site) string {
			stamp(&s, 0, 0)
			return kv.Encode(storedSite{s, time.Duration(s.BuildTimeout)})
		}}
}

func (s *ApplianceStore) credentials() shelf.Shelf[cluster.Credential] {
	return shelf.Shelf[cluster.Credential]{Conn: s.conn, Noun: "credential", Prefix: s.keys().credentials(),
		Stamp:  func(v *cluster.Credential, generation, _ int64) { v.Generation = generation },
		Charge: chargeOfCredential, Projects: s.projects}
}

func (s *ApplianceStore) images() shelf.Shelf[cluster.SiteImage] {
	return shelf.Shelf[cluster.SiteImage]{Conn: s.conn, Noun: "image", Prefix: s.keys().images(),
		Stamp: func(v *cluster.SiteImage, generation, _ int64) { v.Generation = generation }}
}

// Sites implements cluster.ApplianceStore.
func (s *ApplianceStore) Sites(ctx context.Context) ([]cluster.Site, error) {
	return sitesOf(s.conn).List(ctx, 0)
}

// PutSite implements cluster.ApplianceStore.
func (s *ApplianceStore) PutSite(ctx context.Context, site cluster.Site) (cluster.Site, error) {
	site.Health = cluster.Health{}
	if err := cmp.Or(s.may(), cluster.CheckName("a site", site.Name)); err != nil {
		return site, err
	}
	return sitesOf(s.conn).Set(ctx, site.Name, site.Generation, site)
}

// RemoveSite implements cluster.ApplianceStore.
func (s *ApplianceStore) RemoveSite(ctx context.Context, name string) error {
	k := s.keys()
	used := k.used("sites", name)
	return sitesOf(s.conn).Remove(ctx, name, nil, func(_ cluster.Site, revision int64) (shelf.Guard, error) {
		r := shelf.Guard{If: []clientv3.Cmp{kv.NoneSince(k.credentials(), revision),
			kv.NoneSince(k.implementations(), revision), kv.AbsentBelow(used)}}
		credentials, err := s.credentials().List(ctx, revision)
		if err != nil {
			return r, err
		}
		implementations, err := s.implementations().List(ctx, revision)
		if err != nil {
			return r, err
		}
		clusters, err := s.count(ctx, used, revision)
		if err != nil {
			return r, err
		}
		built := count(implementations, func(i cluster.Implementation) bool { return i.Site == name })
		logins := count(credentials, func(c cluster.Credential) bool { return c.Site == name })
		if built+logins > 0 || clusters > 0 {
			return r, croft.Errorf(croft.Conflict, "site %s is used by %d implementations, %d credentials and %d clusters: "+
				"remove those first, or disable the site", name, built, logins, clusters)
		}
		r.Then = append(r.Then, clientv3.OpDelete(k.revisions(name), clientv3.WithPrefix()))
		images, err := s.images().List(ctx, revision)
		for _, i := range images {
			if i.LeaveSite(name) {
				r.If = append(r.If, kv.Unchanged(k.image(i.Name), i.Generation))
				r.Then = append(r.Then, clientv3.OpPut(k.image(i.Name), s.images().Text(i)))
			}
		}
		return r, err
	})
}

// revisionsOf returns the operations that remove the counters of an appliance's implementations, at all sites.
func (s *ApplianceStore) revisionsOf(ctx context.Context, appliance string, revision int64) (ops []clientv3.Op,
	err error) {
	err = s.conn.ReadRange(ctx, "read the revisions of implementations", s.keys().allRevisions(), revision,
		func(stored *mvccpb.KeyValue) error {
			if kv.Last(stored.Key) == appliance {
				ops = append(ops, clientv3.OpDelete(string(stored.Key)))
			}
			return nil
		})
	return ops, err
}

func count[T any](all []T, is func(T) bool) (n int) {
	for _, one := range all {
		if is(one) {
			n++
		}
	}
	return n
}

func (s *ApplianceStore) count(ctx context.Context, prefix string, revision int64) (int64, error) {
	got, err := s.conn.Etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly(),
		clientv3.WithRev(revision))
	if err != nil {
		return 0, s.conn.Wrap(err, "count the clusters that use something")
	}
	return got.Count, nil
}

// Credentials implements cluster.ApplianceStore.
func (s *ApplianceStore) Credentials(ctx context.Context, project croft.Project, user string) ([]cluster.Credential,
	error) {
	if project == "" && user != "" {
		return []cluster.Credential{}, nil
	}
	var all []cluster.Credential
	var err error
	if project == "" {
		all, err = s.credentials().List(ctx, 0)
	} else {
		prefix := s.keys().credentialNames(project)
		if user != cluster.AnyUser {
			prefix += escaped(user) + "/"
		}
		all, err = s.credentials().Indexed(ctx, prefix, func(name *mvccpb.KeyValue) string {
			return string(name.Value)
		})
	}
	slices.SortFunc(all, func(a, b cluster.Credential) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User))
	})
	return all, err
}

// Credential implements cluster.ApplianceStore.
func (s *ApplianceStore) Credential(ctx context.Context, id cluster.CredentialID) (cluster.Credential, error) {
	return s.credentials().Find(ctx, string(id))
}

// checkCredential refuses fields that cannot become part of keys. Invalid.
func checkCredential(c cluster.Credential) error {
	if _, err := croft.ParseClusterID(string(c.ID)); err != nil { // any UUID
		return err
	}
	return cmp.Or(c.Project.Check(), cluster.CheckName("a credential", c.Name), cluster.CheckName("a site", c.Site))
}

// PutCredential implements cluster.ApplianceStore.
func (s *ApplianceStore) PutCredential(ctx context.Context, c cluster.Credential) (cluster.Credential, error) {
	if err := cmp.Or(s.may(), checkCredential(c)); err != nil {
		return c, err
	}
	credentials, k := s.credentials(), s.keys()
	credentials.Guard = func(_ context.Context, before cluster.Credential, c *cluster.Credential) (shelf.Guard, error) {
		name := k.credentialName(*c)
		// existence is enough, even for a change: a site cannot be removed while it has credentials
		there := kv.Exists(k.site(c.Site))
		if c.SiteCreated != 0 {
			there = kv.Created(k.site(c.Site), c.SiteCreated)
		}
		g := shelf.Guard{If: []clientv3.Cmp{there}, Then: []clientv3.Op{clientv3.OpPut(name, string(c.ID))},
			Else:    []clientv3.Op{clientv3.OpGet(k.site(c.Site), clientv3.WithKeysOnly()), clientv3.OpGet(name)},
			Refused: func(answers []*etcdserverpb.ResponseOp) error { return s.refusedCredential(ctx, *c, answers) }}
		if had := k.credentialName(before); before.ID == "" {
			g.If = append(g.If, kv.Absent(name))
		} else if had != name {
			g.If, g.Then = append(g.If, kv.Absent(name)), append(g.Then, clientv3.OpDelete(had))
		}
		return g, nil
	}
	return credentials.Change(ctx, string(c.ID), &c.Generation, func(before cluster.Credential, there bool) (
		cluster.Credential, error) {
		if there && (before.Project != c.Project || before.User != c.User || before.Site != c.Site) {
			return c, croft.Errorf(croft.Invalid, "project, user and site of credential %s cannot change: create another one",
				before.Name)
		}
		return c, nil
	})
}

// refusedCredential returns the error about a credential that was not written, given its site and the holder of its
// name; nil: neither is the reason.
func (s *ApplianceStore) refusedCredential(ctx context.Context, c cluster.Credential,
	answers []*etcdserverpb.ResponseOp) error {
	site, holder := kv.First(answers[0]), kv.First(answers[1])
	switch {
	case site == nil:
		return sitesOf(s.conn).NotFound(ctx, c.Site)
	case c.SiteCreated != 0 && c.SiteCreated != site.CreateRevision:
		return croft.Errorf(croft.Conflict, "site %s was removed while it checked the credential, and a new "+
			"site has its name: check that site, then create the credential again", c.Site)
	case holder != nil && string(holder.Value) != string(c.ID):
		return croft.Errorf(croft.Conflict, "%s has a credential %s in project %s already: choose another name", c.User,
			c.Name, c.Project)
	}
	return nil
}

// RemoveCredential implements cluster.ApplianceStore.
func (s *ApplianceStore) RemoveCredential(ctx context.Context, id cluster.CredentialID) error {
	k := s.keys()
	used := k.used("credentials", string(id))
	return s.credentials().Remove(ctx, string(id), nil, func(c cluster.Credential, revision int64) (shelf.Guard,
		error) {
		n, err := s.count(ctx, used, revision)
		if err == nil && n > 0 {
			err = croft.Errorf(croft.Conflict, "credential %s is needed by %d clusters: delete those first", c.Name, n)
		}
		return shelf.Guard{If: []clientv3.Cmp{kv.AbsentBelow(used)},
			Then: []clientv3.Op{clientv3.OpDelete(k.credentialName(c))}}, err
	})
}

// Images implements cluster.ApplianceStore.
func (s *ApplianceStore) Images(ctx context.Context) ([]cluster.SiteImage, error) {
	return s.images().List(ctx, 0)
}

// PutImage implements cluster.ApplianceStore.
func (s *ApplianceStore) PutImage(ctx context.Context, i cluster.SiteImage) (cluster.SiteImage, error) {
	if err := cmp.Or(s.may(), cluster.CheckName("an image", i.Name)); err != nil {
		return i, err
	}
	return s.images().Set(ctx, i.Name, i.Generation, i)
}

// RemoveImage implements cluster.ApplianceStore.
func (s *ApplianceStore) RemoveImage(ctx context.Context, name string) error {
	k := s.keys()
	return s.images().Remove(ctx, name, nil, func(_ cluster.SiteImage, revision int64) (shelf.Guard, error) {
		all, err := s.implementations().List(ctx, revision)
		if n := count(all, func(i cluster.Implementation) bool { return i.Image == name }); err == nil && n > 0 {
			err = croft.Errorf(croft.Conflict, "image %s is used by %d implementations: remove those first", name, n)
		}
		return shelf.Guard{If: []clientv3.Cmp{kv.NoneSince(k.implementations(), revision)}}, err
	})
}

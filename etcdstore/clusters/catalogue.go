package clusters

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
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
	k := Keys(c.Prefix)
	return []tenants.Source{
		{Prefix: k.credentials(), Charge: func(key, value []byte) (tenants.Charge, error) {
			return decoded(c, key, value, chargeOfCredential)
		}},
		{Prefix: k.appliances(), Charge: func(key, value []byte) (tenants.Charge, error) {
			return decoded(c, key, value, chargeOfAppliance)
		}},
		{Prefix: k.implementations(), Charge: func(key, value []byte) (tenants.Charge, error) {
			return decoded(c, key, value, chargeOfImplementation)
		}},
	}
}

func decoded[T any](c *kv.Conn, key, value []byte, charge func(T) tenants.Charge) (tenants.Charge, error) {
	var v T
	err := c.Decode(key, value, &v)
	return charge(v), err
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

// instead returns the charge for replacing a record by another one of the same project.
func instead(before, after tenants.Charge) tenants.Charge {
	return tenants.Charge{Project: after.Project, Amounts: after.Amounts.Minus(before.Amounts)}
}

func (s *ApplianceStore) keys() Keys { return Keys(s.conn.Prefix) }

func (s *ApplianceStore) sites() shelf[cluster.Site] { return sitesOf(s.keys()) }

func sitesOf(k Keys) shelf[cluster.Site] {
	return shelf[cluster.Site]{"site", k.sites(), func(v *cluster.Site) *int64 { return &v.Generation },
		func(v *cluster.Site) *int64 { return &v.CreateRevision }}
}

func (s *ApplianceStore) credentials() shelf[cluster.Credential] {
	return shelf[cluster.Credential]{"credential", s.keys().credentials(),
		func(v *cluster.Credential) *int64 { return &v.Generation }, nil}
}

func (s *ApplianceStore) images() shelf[cluster.SiteImage] {
	return shelf[cluster.SiteImage]{"image", s.keys().images(), func(v *cluster.SiteImage) *int64 {
		return &v.Generation
	}, nil}
}

// Sites implements cluster.ApplianceStore.
func (s *ApplianceStore) Sites(ctx context.Context) ([]cluster.Site, error) {
	return s.sites().list(ctx, s.conn, 0)
}

// PutSite implements cluster.ApplianceStore.
func (s *ApplianceStore) PutSite(ctx context.Context, site cluster.Site) (cluster.Site, error) {
	site.Health = cluster.Health{}
	if err := cmp.Or(s.may(), cluster.CheckName("a site", site.Name)); err != nil {
		return site, err
	}
	_, err := s.sites().put(ctx, s.projects, site.Name, &site, tenants.Charge{}, nil)
	return site, err
}

// RemoveSite implements cluster.ApplianceStore.
func (s *ApplianceStore) RemoveSite(ctx context.Context, name string) error {
	k := s.keys()
	used := k.used("sites", name)
	return s.remove(ctx, s.sites().missing(name), k.site(name), func(revision int64) (removal, error) {
		r := removal{ifs: []clientv3.Cmp{kv.NoneSince(k.credentials(), revision),
			kv.NoneSince(k.implementations(), revision), kv.AbsentBelow(used)}}
		credentials, err := s.credentials().list(ctx, s.conn, revision)
		if err != nil {
			return r, err
		}
		implementations, err := s.implementations().list(ctx, s.conn, revision)
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
		r.ops = append(r.ops, clientv3.OpDelete(k.revisions(name), clientv3.WithPrefix()))
		images, err := s.images().list(ctx, s.conn, revision)
		for _, i := range images {
			before := i.Generation
			if i.Generation = 0; i.LeaveSite(name) {
				r.ifs = append(r.ifs, kv.Unchanged(k.image(i.Name), before))
				r.ops = append(r.ops, clientv3.OpPut(k.image(i.Name), kv.Encode(i)))
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

// removal is the removal of a record that was unused at a revision.
type removal struct {
	ifs  []clientv3.Cmp
	ops  []clientv3.Op
	paid tenants.Charge // charge to give back
}

// remove removes a key by the removal that prepare returns; prepare is called again after each concurrent change.
// absent is the error if the key does not exist.
func (s *ApplianceStore) remove(ctx context.Context, absent error, key string,
	prepare func(revision int64) (removal, error)) error {
	for {
		got, err := s.conn.Etcd.Get(ctx, key, clientv3.WithKeysOnly())
		if err != nil {
			return s.conn.Wrap(err, "read %s", key)
		}
		if len(got.Kvs) == 0 {
			return absent
		}
		r, err := prepare(got.Header.Revision)
		if err != nil {
			return err
		}
		done, _, err := s.projects.Commit(ctx, tenants.Change{Project: r.paid.Project,
			Charge: tenant.Amounts{}.Minus(r.paid.Amounts),
			If:     append(r.ifs, kv.Unchanged(key, got.Kvs[0].ModRevision)),
			Then:   append(r.ops, clientv3.OpDelete(key)), What: "remove " + key})
		if err != nil || done != 0 {
			return err
		}
	}
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
		all, err = s.credentials().list(ctx, s.conn, 0)
	} else {
		prefix := s.keys().credentialNames(project)
		if user != cluster.AnyUser {
			prefix += escaped(user) + "/"
		}
		all, err = s.credentials().indexed(ctx, s.conn, prefix, func(name *mvccpb.KeyValue) string {
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
	return s.credentials().find(ctx, s.conn, string(id))
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
	k := s.keys()
	name := k.credentialName(c)
	// existence is enough, even for a change: a site cannot be removed while it has credentials
	there := kv.Exists(k.site(c.Site))
	if c.SiteCreated != 0 {
		there = kv.Created(k.site(c.Site), c.SiteCreated)
	}
	ifs, ops := []clientv3.Cmp{there}, []clientv3.Op{clientv3.OpPut(name, string(c.ID))}
	before, err := s.Credential(ctx, c.ID)
	pay := chargeOfCredential(c)
	if err == nil {
		pay = instead(chargeOfCredential(before), pay)
	}
	switch had := k.credentialName(before); {
	case croft.KindOf(err) == croft.NotFound:
		ifs = append(ifs, kv.Absent(name))
	case err != nil:
		return c, err
	case before.Project != c.Project || before.User != c.User || before.Site != c.Site:
		return c, croft.Errorf(croft.Invalid, "project, user and site of credential %s cannot change: create another one",
			before.Name)
	case had != name:
		ifs, ops = append(ifs, kv.Absent(name)), append(ops, clientv3.OpDelete(had))
	}
	written, err := s.credentials().put(ctx, s.projects, string(c.ID), &c, pay, ifs, ops...)
	if err == nil && !written {
		at, missing := s.sites().find(ctx, s.conn, c.Site)
		if missing != nil {
			return c, missing
		}
		if c.SiteCreated != 0 && c.SiteCreated != at.CreateRevision {
			return c, croft.Errorf(croft.Conflict, "site %s was removed while it checked the credential, and a new "+
				"site has its name: check that site, then create the credential again", c.Site)
		}
		err = croft.Errorf(croft.Conflict, "%s has a credential %s in project %s already: choose another name", c.User,
			c.Name, c.Project)
	}
	return c, err
}

// RemoveCredential implements cluster.ApplianceStore.
func (s *ApplianceStore) RemoveCredential(ctx context.Context, id cluster.CredentialID) error {
	k := s.keys()
	used := k.used("credentials", string(id))
	return s.remove(ctx, s.credentials().missing(string(id)), k.credential(id), func(revision int64) (removal, error) {
		c, err := s.Credential(ctx, id)
		if err != nil {
			return removal{}, err
		}
		n, err := s.count(ctx, used, revision)
		if err == nil && n > 0 {
			err = croft.Errorf(croft.Conflict, "credential %s is needed by %d clusters: delete those first", c.Name, n)
		}
		// the name belongs to exactly this version, which the transaction compares
		return removal{[]clientv3.Cmp{kv.AbsentBelow(used), kv.Unchanged(k.credential(id), c.Generation)},
			[]clientv3.Op{clientv3.OpDelete(k.credentialName(c))}, chargeOfCredential(c)}, err
	})
}

// Images implements cluster.ApplianceStore.
func (s *ApplianceStore) Images(ctx context.Context) ([]cluster.SiteImage, error) {
	return s.images().list(ctx, s.conn, 0)
}

// PutImage implements cluster.ApplianceStore.
func (s *ApplianceStore) PutImage(ctx context.Context, i cluster.SiteImage) (cluster.SiteImage, error) {
	if err := cmp.Or(s.may(), cluster.CheckName("an image", i.Name)); err != nil {
		return i, err
	}
	_, err := s.images().put(ctx, s.projects, i.Name, &i, tenants.Charge{}, nil)
	return i, err
}

// RemoveImage implements cluster.ApplianceStore.
func (s *ApplianceStore) RemoveImage(ctx context.Context, name string) error {
	k := s.keys()
	return s.remove(ctx, s.images().missing(name), k.image(name), func(revision int64) (removal, error) {
		all, err := s.implementations().list(ctx, s.conn, revision)
		if n := count(all, func(i cluster.Implementation) bool { return i.Image == name }); err == nil && n > 0 {
			err = croft.Errorf(croft.Conflict, "image %s is used by %d implementations: remove those first", name, n)
		}
		return removal{ifs: []clientv3.Cmp{kv.NoneSince(k.implementations(), revision)}}, err
	})
}

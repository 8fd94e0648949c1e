package clustertest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"croft"
	"croft/cluster"
)

// Stores combines the stores of clusters.
type Stores interface {
	cluster.Records
	cluster.ApplianceStore
	cluster.Accounts
}

// Store implements Stores in memory; it can be used in the synctest bubble that it was created in. It stores values
// encoded, so that fields that are not encoded are lost, and no caller shares memory with it.
type Store struct{ memory }

// memory is the content of a Store.
type memory struct {
	// Before is called before each operation with its name. If it returns an error, the operation returns that and does
	// nothing. Nil: nothing fails.
	Before func(op string) error
	// After is called after an operation was performed: an error means that the answer is lost.
	After func(op string) error

	mu       sync.Mutex
	revision int64
	limits   map[croft.Project]int
	records  map[croft.ClusterID]value
	events   map[croft.ClusterID][]string
	holders  map[croft.ClusterID]int64 // by creation revision
	accounts map[accountKey]string
	follows  map[*follow]bool

	sites           map[string]value
	credentials     map[cluster.CredentialID]value
	appliances      map[string]value
	implementations map[cluster.ImplementationID]value
	revisions       map[string]int // the last assigned ones, by appliance and site
	images          map[string]value
}

var _ Stores = (*Store)(nil)

// value is an encoded value with the revisions of its creation and its last write.
type value struct {
	text          string
	made, written int64
}

type accountKey struct {
	cluster croft.ClusterID
	user    string
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{memory{
		limits:          map[croft.Project]int{},
		records:         map[croft.ClusterID]value{},
		events:          map[croft.ClusterID][]string{},
		holders:         map[croft.ClusterID]int64{},
		accounts:        map[accountKey]string{},
		follows:         map[*follow]bool{},
		sites:           map[string]value{},
		credentials:     map[cluster.CredentialID]value{},
		appliances:      map[string]value{},
		implementations: map[cluster.ImplementationID]value{},
		revisions:       map[string]int{},
		images:          map[string]value{},
	}}
}

// Limit bounds the number of clusters of a project; beyond it, Create returns OverQuota.
func (s *Store) Limit(p croft.Project, clusters int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits[p] = clusters
}

// Expire ends the hold of a cluster, like the end of its lease.
func (s *Store) Expire(id croft.ClusterID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holders, id)
}

// do performs an operation, exclusively.
func (s *memory) do(ctx context.Context, op string, act func() error) error {
	if s.Before != nil {
		if err := s.Before(op); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	s.mu.Lock()
	err := act()
	s.mu.Unlock()
	if err == nil && s.After != nil {
		err = s.After(op)
	}
	return err
}

// put stores a value at the next revision.
func put[K comparable](s *memory, all map[K]value, key K, v any) int64 {
	s.revision++
	made := all[key].made
	if made == 0 {
		made = s.revision
	}
	all[key] = value{encode(v), made, s.revision}
	return s.revision
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("clustertest: encode %T: %v", v, err)) // our own types: cannot fail
	}
	return string(text)
}

func decode[T any](text string) (v T) {
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(fmt.Sprintf("clustertest: decode %T: %v", v, err))
	}
	return v
}

func noted(v value) cluster.Cluster {
	c := decode[cluster.Cluster](v.text)
	c.Revised = v.written
	return c
}

// living lists the clusters that are not deleted.
func (s *memory) living() (all []cluster.Cluster) {
	for _, v := range s.records {
		if c := noted(v); c.State != cluster.Deleted {
			all = append(all, c)
		}
	}
	return all
}

// Get implements cluster.Records.
func (s *Store) Get(ctx context.Context, id croft.ClusterID) (c cluster.Cluster, err error) {
	err = s.do(ctx, "Get", func() error {
		v, is := s.records[id]
		if !is {
			return noCluster(id)
		}
		c = noted(v)
		return nil
	})
	return c, err
}

func noCluster(id croft.ClusterID) error {
	return croft.Errorf(croft.NotFound, "there is no cluster %s", id)
}

// Named implements cluster.Records.
func (s *Store) Named(ctx context.Context, project croft.Project, name string) (c cluster.Cluster, err error) {
	err = s.do(ctx, "Named", func() error {
		if c = s.named(project, name); c.ID == "" {
			return croft.Errorf(croft.NotFound, "project %s has no cluster %q", project, name)
		}
		return nil
	})
	return c, err
}

func (s *memory) named(project croft.Project, name string) cluster.Cluster {
	for _, c := range s.living() {
		if c.Project == project && c.Name == name {
			return c
		}
	}
	return cluster.Cluster{}
}

// Living implements cluster.Records.
func (s *Store) Living(ctx context.Context, project croft.Project) ([]cluster.Cluster, error) {
	all, err := s.List(ctx, project)
	return slices.DeleteFunc(all, func(c cluster.Cluster) bool { return c.State == cluster.Deleted }), err
}

// List implements cluster.Records.
func (s *Store) List(ctx context.Context, project croft.Project) (all []cluster.Cluster, err error) {
	err = s.do(ctx, "List", func() error {
		for _, v := range s.records {
			if c := noted(v); project == "" || c.Project == project {
				all = append(all, c)
			}
		}
		slices.SortFunc(all, func(a, b cluster.Cluster) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Project, b.Project), a.Created.Compare(b.Created),
				cmp.Compare(a.ID, b.ID))
		})
		return nil
	})
	return all, err
}

// Latest implements cluster.Records.
func (s *Store) Latest(ctx context.Context, project croft.Project, user, appliance string) (n int64, err error) {
	err = s.do(ctx, "Latest", func() error {
		n = s.latest(project, user, appliance)
		return nil
	})
	return n, err
}

func (s *memory) latest(project croft.Project, user, appliance string) (n int64) {
	for id, v := range s.records {
		c := noted(v)
		if c.State != cluster.Deleted && c.Project == project && c.User == user && c.Appliance == appliance {
			n = max(n, s.records[id].made)
		}
	}
	return n
}

// Create implements cluster.Records.
func (s *Store) Create(ctx context.Context, c cluster.Cluster, latest int64) (cluster.Cluster, error) {
	err := s.do(ctx, "Create", func() error {
		if _, is := s.records[c.ID]; is {
			return &croft.TakenError{What: "id", By: string(c.ID),
				Text: fmt.Sprintf("there is a cluster %s already", c.ID)}
		}
		if s.latest(c.Project, c.User, c.Appliance) > latest {
			return croft.Errorf(croft.Conflict, "another cluster of appliance %s was created", c.Appliance)
		}
		if err := s.nameFree(c); err != nil {
			return err
		}
		if err := s.namedExist(c, cluster.Cluster{}); err != nil {
			return err
		}
		has := 0
		for _, other := range s.living() {
			if other.Project == c.Project {
				has++
			}
		}
		if limit, limited := s.limits[c.Project]; limited && has >= limit {
			return croft.Errorf(croft.OverQuota, "project %s has %d clusters", c.Project, has)
		}
		s.write(&c)
		return nil
	})
	return c, err
}

func (s *memory) write(c *cluster.Cluster) {
	c.Revised = put(s, s.records, c.ID, c)
	s.tell(c.ID)
}

// Update implements cluster.Records.
func (s *Store) Update(ctx context.Context, c cluster.Cluster, by *cluster.Holder) (cluster.Cluster, error) {
	err := s.do(ctx, "Update", func() error {
		v, is := s.records[c.ID]
		before := cluster.Cluster{}
		if is {
			before = noted(v)
		}
		switch {
		case !is || v.written != c.Revised:
			return croft.Errorf(croft.Conflict, "cluster %s was changed by another request", c.ID)
		case by != nil && (by.Cluster != c.ID || s.holders[c.ID] != by.Created):
			return croft.Errorf(croft.Conflict, "cluster %s is not ours to change any more", c.ID)
		case before.Project != c.Project || before.User != c.User || before.Appliance != c.Appliance:
			return croft.Errorf(croft.Invalid, "project, user and appliance of a cluster do not change")
		case before.State == cluster.Deleted && c.State != cluster.Deleted:
			return croft.Errorf(croft.Conflict, "cluster %s is deleted", c.ID)
		}
		if c.State == cluster.Deleted {
			maps.DeleteFunc(s.accounts, func(k accountKey, _ string) bool { return k.cluster == c.ID })
		} else if err := s.mayName(c, before); err != nil {
			return err
		}
		s.write(&c)
		return nil
	})
	return c, err
}

// Forget implements cluster.Records.
func (s *Store) Forget(ctx context.Context, id croft.ClusterID) error {
	return s.do(ctx, "Forget", func() error {
		v, is := s.records[id]
		if !is {
			return noCluster(id)
		}
		if noted(v).State != cluster.Deleted {
			return croft.Errorf(croft.Conflict, "cluster %s is not deleted", id)
		}
		delete(s.records, id)
		delete(s.events, id)
		delete(s.holders, id)
		s.tell(id)
		return nil
	})
}

// Hold implements cluster.Records.
func (s *Store) Hold(ctx context.Context, id croft.ClusterID) (h *cluster.Holder, err error) {
	err = s.do(ctx, "Hold", func() error {
		if _, is := s.records[id]; !is {
			return noCluster(id)
		}
		if s.holders[id] != 0 {
			return croft.Errorf(croft.Conflict, "another process acts on cluster %s", id)
		}
		s.revision++
		s.holders[id] = s.revision
		h = &cluster.Holder{Cluster: id, Key: string(id), Created: s.revision}
		return nil
	})
	return h, err
}

// Release implements cluster.Records.
func (s *Store) Release(ctx context.Context, h *cluster.Holder) error {
	return s.do(ctx, "Release", func() error {
		if s.holders[h.Cluster] == h.Created {
			delete(s.holders, h.Cluster)
		}
		return nil
	})
}

// Note implements cluster.Records.
func (s *Store) Note(ctx context.Context, c cluster.Cluster, e cluster.Event) error {
	return s.do(ctx, "Note", func() error {
		if v, is := s.records[c.ID]; !is || v.made > c.Revised {
			return noCluster(c.ID)
		}
		all := append(s.events[c.ID], encode(e.Bounded()))
		s.events[c.ID] = all[max(0, len(all)-cluster.MaxEvents):]
		return nil
	})
}

// Events implements cluster.Records.
func (s *Store) Events(ctx context.Context, id croft.ClusterID) (all []cluster.Event, err error) {
	err = s.do(ctx, "Events", func() error {
		if _, is := s.records[id]; !is {
			return noCluster(id)
		}
		for _, e := range s.events[id] {
			all = append(all, decode[cluster.Event](e))
		}
		return nil
	})
	return all, err
}

// Account implements cluster.Accounts.
func (s *Store) Account(ctx context.Context, id croft.ClusterID, user string) (a cluster.Account, err error) {
	err = s.do(ctx, "Account", func() error {
		text, is := s.accounts[accountKey{id, user}]
		if !is {
			return croft.Errorf(croft.NotFound, "%s has no account on cluster %s", user, id)
		}
		a = decode[cluster.Account](text)
		return nil
	})
	return a, err
}

// AddAccount implements cluster.Accounts.
func (s *Store) AddAccount(ctx context.Context, a cluster.Account) error {
	return s.do(ctx, "AddAccount", func() error {
		v, is := s.records[a.Cluster]
		if !is {
			return noCluster(a.Cluster)
		}
		if state := noted(v).State; state == cluster.Deleting || state == cluster.Deleted {
			return croft.Errorf(croft.Conflict, "cluster %s is being removed", a.Cluster)
		}
		key := accountKey{a.Cluster, a.User}
		if _, is := s.accounts[key]; is {
			return croft.Errorf(croft.Conflict, "%s has an account on cluster %s already", a.User, a.Cluster)
		}
		s.accounts[key] = encode(a)
		return nil
	})
}

// RemoveAccount implements cluster.Accounts.
func (s *Store) RemoveAccount(ctx context.Context, id croft.ClusterID, user string) error {
	return s.do(ctx, "RemoveAccount", func() error {
		key := accountKey{id, user}
		if _, is := s.accounts[key]; !is {
			return croft.Errorf(croft.NotFound, "%s has no account on cluster %s", user, id)
		}
		delete(s.accounts, key)
		return nil
	})
}

// DropAccount implements cluster.Accounts.
func (s *Store) DropAccount(ctx context.Context, a cluster.Account) error {
	return s.do(ctx, "DropAccount", func() error {
		key := accountKey{a.Cluster, a.User}
		if s.accounts[key] != encode(a) {
			return croft.Errorf(croft.NotFound, "%s has another account on cluster %s, or none", a.User, a.Cluster)
		}
		delete(s.accounts, key)
		return nil
	})
}

// AllAccounts implements cluster.Accounts.
func (s *Store) AllAccounts(ctx context.Context) (all []cluster.Account, err error) {
	err = s.do(ctx, "AllAccounts", func() error {
		for _, text := range s.accounts {
			all = append(all, decode[cluster.Account](text))
		}
		return nil
	})
	return all, err
}

// SealAccount implements cluster.Accounts.
func (s *Store) SealAccount(ctx context.Context, a cluster.Account, password cluster.Sealed) error {
	return s.do(ctx, "SealAccount", func() error {
		key := accountKey{a.Cluster, a.User}
		if text, is := s.accounts[key]; !is || text != encode(a) {
			return croft.Errorf(croft.NotFound, "the account of %s on cluster %s was changed", a.User, a.Cluster)
		}
		a.Password = password
		s.accounts[key] = encode(a)
		return nil
	})
}

// Dump returns everything stored as text, to search it for secrets.
func (s *Store) Dump() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all strings.Builder
	add := func(text string) { all.WriteString(text + "\n") }
	for _, v := range s.records {
		add(v.text)
	}
	for _, events := range s.events {
		add(strings.Join(events, "\n"))
	}
	for _, text := range s.accounts {
		add(text)
	}
	for _, kind := range []map[string]value{s.sites, s.appliances, s.images} {
		for _, v := range kind {
			add(v.text)
		}
	}
	for _, v := range s.credentials {
		add(v.text)
	}
	for _, v := range s.implementations {
		add(v.text)
	}
	return all.String()
}

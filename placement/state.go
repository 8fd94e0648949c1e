package placement

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"croft/internal/standard"
)

// sharesTrait marks a provider whose inventory those in its aggregates may use.
const sharesTrait = "MISC_SHARES_VIA_AGGREGATE"

// provider is a resource provider in its tree.
type provider struct {
	providerData
	up        *provider   // parent; nil for a root
	root      *provider   // itself for a root
	children  []*provider // by order of creation
	consumers map[*consumer]struct{}
}

type consumer struct{ consumerData }

// state is all of Placement at one revision. Who holds it guards it: readers and
// one writer.
type state struct {
	revision  int64
	classes   *names
	traits    *names
	shares    id                   // of sharesTrait
	providers map[string]*provider // by UUID
	byName    map[string]*provider
	all       []*provider // by order of creation
	roots     []*provider // likewise
	consumers map[string]*consumer
	projects  map[string]map[*consumer]struct{}
	sharing   map[string][]*provider // aggregate -> sharing providers in it, by order
	index     index
}

func newState(now time.Time) *state {
	s := &state{
		classes:   newNames(standard.Classes(), now),
		traits:    newNames(standard.Traits(), now),
		providers: map[string]*provider{},
		byName:    map[string]*provider{},
		consumers: map[string]*consumer{},
		projects:  map[string]map[*consumer]struct{}{},
		sharing:   map[string][]*provider{},
		index:     newIndex(),
	}
	s.shares = s.traits.intern(sharesTrait)
	return s
}

func (s *state) className(i id) string { return s.classes.name(i) }
func (s *state) traitName(i id) string { return s.traits.name(i) }

// phase orders what one revision changed, so that nothing is mentioned before it is
// there, or after it is gone.
func phase(e Entry) int {
	switch {
	case (e.Kind == KindClass || e.Kind == KindTrait) && !e.Deleted:
		return 0
	case e.Kind == KindProvider && !e.Deleted:
		return 1
	case e.Kind == KindGeneration && !e.Deleted:
		return 2
	case e.Kind == KindConsumer:
		return 3
	case e.Kind == KindProvider:
		return 4
	}
	return 5
}

// apply takes in what one revision changed, or a whole snapshot.
func (s *state) apply(revision int64, entries []Entry) error {
	if revision <= s.revision {
		return nil
	}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(phase(a), phase(b)), cmp.Compare(a.Created, b.Created))
	})
	var changed []*provider
	for _, e := range entries {
		if phase(e) > 1 && changed != nil {
			s.placeAll(changed)
			changed = nil
		}
		p, err := s.applyEntry(e)
		if err != nil {
			return fmt.Errorf("entry %s %s of revision %d: %w", e.Kind, e.ID, e.Modified, err)
		}
		if p != nil {
			changed = append(changed, p)
		}
	}
	s.placeAll(changed)
	s.revision = revision
	return nil
}

// createdAt is the revision at which an entry that exists was created, as far as
// that matters to those who see it change; else 0.
func (s *state) createdAt(k Key) int64 {
	all := s.classes
	switch k.Kind {
	case KindTrait:
		all = s.traits
	case KindProvider:
		if p := s.providers[k.ID]; p != nil {
			return p.order.revision
		}
		return 0
	case KindClass:
	default:
		return 0
	}
	if x := all.byName[k.ID]; x != nil {
		return x.at
	}
	return 0
}

// applyEntry takes in one entry. It returns a provider that has yet to be placed.
func (s *state) applyEntry(e Entry) (*provider, error) {
	switch e.Kind {
	case KindClass:
		return nil, applyName(s.classes, e)
	case KindTrait:
		return nil, applyName(s.traits, e)
	case KindProvider:
		if !e.Deleted {
			return s.putProvider(e)
		}
		s.removeProvider(e.ID)
	case KindGeneration:
		return nil, s.applyGeneration(e)
	case KindConsumer:
		return nil, s.applyConsumer(e)
	}
	return nil, nil // KindName: the providers say it
}

func applyName(n *names, e Entry) error {
	if e.Deleted {
		n.remove(e.ID)
		return nil
	}
	var r nameRecord
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return err
	}
	n.put(e.ID, r.Created, e.Created, e.Modified)
	return nil
}

func (s *state) applyGeneration(e Entry) error {
	p := s.providers[e.ID]
	if p == nil || e.Deleted {
		return nil
	}
	n, err := strconv.ParseInt(string(e.Value), 10, 64)
	if err != nil {
		return err
	}
	p.generation, p.fence = n, e.Modified
	return nil
}

// putProvider takes in a provider's entry, all but its place in the tree.
func (s *state) putProvider(e Entry) (*provider, error) {
	p := s.providers[e.ID]
	if p == nil {
		p = &provider{}
		p.uuid, p.order.revision = e.ID, e.Created
		p.root = p
		s.providers[e.ID] = p
	} else {
		if s.byName[p.name] == p {
			delete(s.byName, p.name)
		}
		s.traits.use(p.traits, -1)
		s.classes.use(p.classes(), -1)
		s.unshare(p)
	}
	listed, old := p.modified != 0, p.providerData
	if err := decodeProvider(&p.providerData, e.Value, s.classes, s.traits); err != nil {
		return nil, err
	}
	p.modified = e.Modified
	if listed {
		p.order.index = old.order.index // its place does not change as long as it exists
	} else {
		s.all = insertProvider(s.all, p)
	}
	s.byName[p.name] = p
	s.traits.use(p.traits, 1)
	s.classes.use(p.classes(), 1)
	s.share(p)
	s.index.update(p, &old, &p.providerData)
	return p, nil
}

func insertProvider(list []*provider, p *provider) []*provider {
	if n := len(list); n == 0 || compareProviders(list[n-1], p) < 0 {
		return append(list, p) // the newest, as nearly always
	}
	at, _ := slices.BinarySearchFunc(list, p, compareProviders)
	return slices.Insert(list, at, p)
}

func dropProvider(list []*provider, p *provider) []*provider {
	at, found := slices.BinarySearchFunc(list, p, compareProviders)
	if !found {
		return list
	}
	return slices.Delete(list, at, at+1)
}

func compareProviders(a, b *provider) int {
	return cmp.Or(a.order.compare(b.order), cmp.Compare(a.uuid, b.uuid))
}

// placeAll joins providers to their parents, of which some may be new themselves.
func (s *state) placeAll(changed []*provider) {
	for _, p := range changed {
		s.place(p)
	}
}

// place joins a provider to the parent that its data name, and gives its subtree
// its root.
func (s *state) place(p *provider) {
	parent := s.providers[p.parent]
	if isRoot := parent == nil; isRoot != s.isListedRoot(p) {
		if isRoot {
			s.roots = insertProvider(s.roots, p)
		} else {
			s.roots = dropProvider(s.roots, p)
		}
	}
	if p.up != parent {
		if p.up != nil {
			p.up.children = dropProvider(p.up.children, p)
		}
		if parent != nil {
			parent.children = insertProvider(parent.children, p)
		}
		p.up = parent
	}
	root := p
	if parent != nil {
		root = parent.root
	}
	setRoot(p, root)
}

func (s *state) isListedRoot(p *provider) bool {
	_, found := slices.BinarySearchFunc(s.roots, p, compareProviders)
	return found
}

func setRoot(p, root *provider) {
	p.root = root
	for _, child := range p.children {
		setRoot(child, root)
	}
}

func (s *state) removeProvider(uuid string) {
	p := s.providers[uuid]
	if p == nil {
		return
	}
	s.traits.use(p.traits, -1)
	s.classes.use(p.classes(), -1)
	s.unshare(p)
	s.index.update(p, &p.providerData, &providerData{})
	delete(s.providers, uuid)
	if s.byName[p.name] == p {
		delete(s.byName, p.name)
	}
	s.all = dropProvider(s.all, p)
	s.roots = dropProvider(s.roots, p)
	if p.up != nil {
		p.up.children = dropProvider(p.up.children, p)
	}
}

func (s *state) share(p *provider) {
	if !hasID(p.traits, s.shares) {
		return
	}
	for _, a := range p.aggregates {
		s.sharing[a] = insertProvider(s.sharing[a], p)
	}
}

func (s *state) unshare(p *provider) {
	for _, a := range p.aggregates {
		if list := dropProvider(s.sharing[a], p); len(list) > 0 {
			s.sharing[a] = list
		} else {
			delete(s.sharing, a)
		}
	}
}

// applyConsumer takes in a consumer's entry and moves what it uses.
func (s *state) applyConsumer(e Entry) error {
	c := s.consumers[e.ID]
	if c != nil {
		s.account(c, -1)
		delete(s.projects[c.project], c)
		if len(s.projects[c.project]) == 0 {
			delete(s.projects, c.project)
		}
	}
	if e.Deleted {
		delete(s.consumers, e.ID)
		return nil
	}
	if c == nil {
		c = &consumer{}
		c.uuid = e.ID
		s.consumers[e.ID] = c
	}
	if err := decodeConsumer(&c.consumerData, e.Value, s.classes); err != nil {
		return err
	}
	c.modified = e.Modified
	s.account(c, 1)
	if s.projects[c.project] == nil {
		s.projects[c.project] = map[*consumer]struct{}{}
	}
	s.projects[c.project][c] = struct{}{}
	return nil
}

// account adds a consumer's allocations to what its providers have in use, or takes
// them off.
func (s *state) account(c *consumer, sign int64) {
	for _, a := range c.allocations {
		p := s.providers[a.provider]
		if p == nil {
			continue
		}
		p.use(a.class, sign*a.n)
		if sign < 0 {
			delete(p.consumers, c)
			continue
		}
		if p.consumers == nil {
			p.consumers = map[*consumer]struct{}{}
		}
		p.consumers[c] = struct{}{}
	}
}

package ledger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"croft/internal/standard"
)

// sharesTrait marks a provider that shares its inventories with members of its aggregates.
const sharesTrait = "MISC_SHARES_VIA_AGGREGATE"

// Provider is a resource provider within its tree.
type Provider struct {
	ProviderData
	up        *Provider   // parent; nil for a root
	root      *Provider   // itself for a root
	children  []*Provider // by order of creation
	consumers map[*Consumer]struct{}
}

// Root returns the root of the provider's tree, which may be p.
func (p *Provider) Root() *Provider { return p.root }

// AppendTree appends the provider and all its descendants to a list.
func (p *Provider) AppendTree(list []*Provider) []*Provider {
	list = append(list, p)
	for _, child := range p.children {
		list = child.AppendTree(list)
	}
	return list
}

// Consumers yields the consumers with allocations from the provider, in any order.
func (p *Provider) Consumers() iter.Seq[*Consumer] { return maps.Keys(p.consumers) }

// Consumer holds allocations.
type Consumer struct{ ConsumerData }

// State is all of Placement at one revision. It is not safe for concurrent use: see memory.
type State struct {
	revision  int64
	classes   *Symbols
	traits    *Symbols
	shares    ID                   // of sharesTrait
	providers map[string]*Provider // by UUID
	byName    map[string]*Provider
	all       []*Provider // by order of creation
	roots     []*Provider // by order of creation
	consumers map[string]*Consumer
	projects  map[string]map[*Consumer]struct{}
	sharing   map[string][]*Provider // aggregate -> its sharing providers, by order of creation
	index     index
}

func newState(now time.Time) *State {
	s := &State{
		classes:   newSymbols(standard.Classes(), now),
		traits:    newSymbols(standard.Traits(), now),
		providers: map[string]*Provider{},
		byName:    map[string]*Provider{},
		consumers: map[string]*Consumer{},
		projects:  map[string]map[*Consumer]struct{}{},
		sharing:   map[string][]*Provider{},
		index:     newIndex(),
	}
	s.shares = s.traits.intern(sharesTrait)
	return s
}

// Classes returns the resource classes.
func (s *State) Classes() *Symbols { return s.classes }

// Traits returns the traits.
func (s *State) Traits() *Symbols { return s.traits }

// ClassName implements Vocabulary.
func (s *State) ClassName(i ID) string { return s.classes.name(i) }

// TraitName implements Vocabulary.
func (s *State) TraitName(i ID) string { return s.traits.name(i) }

// Providers returns all providers, by order of creation.
func (s *State) Providers() []*Provider { return s.all }

// Provider returns a provider; nil: it does not exist.
func (s *State) Provider(uuid string) *Provider { return s.providers[uuid] }

// Consumer returns a consumer; nil: it does not exist.
func (s *State) Consumer(uuid string) *Consumer { return s.consumers[uuid] }

// ProjectConsumers yields the consumers of a project, in any order.
func (s *State) ProjectConsumers(project string) iter.Seq[*Consumer] {
	return maps.Keys(s.projects[project])
}

// phase orders the entries of one revision, so that each entry refers only to existing objects.
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

// apply updates the state with the entries changed by one revision, or with a whole snapshot.
func (s *State) apply(revision int64, entries []Entry) error {
	if revision <= s.revision {
		return nil
	}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(phase(a), phase(b)), cmp.Compare(a.Created, b.Created))
	})
	var changed []*Provider
	for _, e := range entries {
		if phase(e) > 1 && changed != nil {
			s.attachAll(changed)
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
	s.attachAll(changed)
	s.revision = revision
	return nil
}

// createdAt returns the revision at which a class, trait or provider was created; 0 for other entries.
func (s *State) createdAt(k Key) int64 {
	var x *Symbol
	switch k.Kind {
	case KindProvider:
		if p := s.providers[k.ID]; p != nil {
			return p.order.revision
		}
	case KindClass:
		x = s.classes.Get(k.ID)
	case KindTrait:
		x = s.traits.Get(k.ID)
	}
	if x == nil {
		return 0
	}
	return x.at
}

// applyEntry updates the state with one entry. It returns the provider that must still be attached to its parent, if
// any.
func (s *State) applyEntry(e Entry) (*Provider, error) {
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
	return nil, nil // KindName: the providers contain their names
}

func applyName(n *Symbols, e Entry) error {
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

func (s *State) applyGeneration(e Entry) error {
	p := s.providers[e.ID]
	if p == nil || e.Deleted {
		return nil
	}
	n, err := strconv.ParseInt(string(e.Value), 10, 64)
	if err != nil {
		return err
	}
	p.Generation, p.generationRevision = n, e.Modified
	return nil
}

// putProvider updates the state with a provider's entry, except for the tree.
func (s *State) putProvider(e Entry) (*Provider, error) {
	p := s.providers[e.ID]
	if p == nil {
		p = &Provider{}
		p.UUID, p.order.revision = e.ID, e.Created
		p.root = p
		s.providers[e.ID] = p
	} else {
		if s.byName[p.Name] == p {
			delete(s.byName, p.Name)
		}
		s.traits.use(p.Traits, -1)
		s.classes.use(p.classes(), -1)
		s.unshare(p)
	}
	listed, old := p.modified != 0, p.ProviderData
	if err := decodeProvider(&p.ProviderData, e.Value, s.classes, s.traits); err != nil {
		return nil, err
	}
	p.modified = e.Modified
	if listed {
		p.order.index = old.order.index // its position never changes
	} else {
		s.all = insertProvider(s.all, p)
	}
	s.byName[p.Name] = p
	s.traits.use(p.Traits, 1)
	s.classes.use(p.classes(), 1)
	s.share(p)
	s.index.update(p, &old, &p.ProviderData)
	return p, nil
}

func insertProvider(list []*Provider, p *Provider) []*Provider {
	if n := len(list); n == 0 || compareProviders(list[n-1], p) < 0 {
		return append(list, p) // fast path: nearly always the newest
	}
	at, _ := slices.BinarySearchFunc(list, p, compareProviders)
	return slices.Insert(list, at, p)
}

func dropProvider(list []*Provider, p *Provider) []*Provider {
	at, found := slices.BinarySearchFunc(list, p, compareProviders)
	if !found {
		return list
	}
	return slices.Delete(list, at, at+1)
}

func compareProviders(a, b *Provider) int {
	return cmp.Or(a.order.compare(b.order), cmp.Compare(a.UUID, b.UUID))
}

// attachAll attaches providers to their parents, which may be new too. It detaches all of them from their old parents
// first: if two providers change places, attaching one before the other is detached would close a loop.
func (s *State) attachAll(changed []*Provider) {
	for _, p := range changed {
		if p.up != nil && p.up != s.providers[p.Parent] {
			p.up.children = dropProvider(p.up.children, p)
			p.up = nil
		}
	}
	for _, p := range changed {
		s.attach(p)
	}
}

// attach attaches a provider to the parent in its data, and gives its subtree the parent's root.
func (s *State) attach(p *Provider) {
	parent := s.providers[p.Parent]
	if isRoot := parent == nil; isRoot != s.isListedRoot(p) {
		if isRoot {
			s.roots = insertProvider(s.roots, p)
		} else {
			s.roots = dropProvider(s.roots, p)
		}
	}
	if p.up != parent {
		parent.children = insertProvider(parent.children, p)
		p.up = parent
	}
	root := p
	if parent != nil {
		root = parent.root
	}
	setRoot(p, root)
}

func (s *State) isListedRoot(p *Provider) bool {
	_, found := slices.BinarySearchFunc(s.roots, p, compareProviders)
	return found
}

func setRoot(p, root *Provider) {
	p.root = root
	for _, child := range p.children {
		setRoot(child, root)
	}
}

func (s *State) removeProvider(uuid string) {
	p := s.providers[uuid]
	if p == nil {
		return
	}
	s.traits.use(p.Traits, -1)
	s.classes.use(p.classes(), -1)
	s.unshare(p)
	s.index.update(p, &p.ProviderData, &ProviderData{})
	delete(s.providers, uuid)
	if s.byName[p.Name] == p {
		delete(s.byName, p.Name)
	}
	s.all = dropProvider(s.all, p)
	s.roots = dropProvider(s.roots, p)
	if p.up != nil {
		p.up.children = dropProvider(p.up.children, p)
	}
}

func (s *State) share(p *Provider) {
	if !hasID(p.Traits, s.shares) {
		return
	}
	for _, a := range p.Aggregates {
		s.sharing[a] = insertProvider(s.sharing[a], p)
	}
}

func (s *State) unshare(p *Provider) {
	for _, a := range p.Aggregates {
		if list := dropProvider(s.sharing[a], p); len(list) > 0 {
			s.sharing[a] = list
		} else {
			delete(s.sharing, a)
		}
	}
}

// applyConsumer updates the state with a consumer's entry, including the usage of its providers.
func (s *State) applyConsumer(e Entry) error {
	c := s.consumers[e.ID]
	if c != nil {
		s.account(c, -1)
		delete(s.projects[c.Project], c)
		if len(s.projects[c.Project]) == 0 {
			delete(s.projects, c.Project)
		}
	}
	if e.Deleted {
		delete(s.consumers, e.ID)
		return nil
	}
	if c == nil {
		c = &Consumer{}
		c.UUID = e.ID
		s.consumers[e.ID] = c
	}
	if err := decodeConsumer(&c.ConsumerData, e.Value, s.classes); err != nil {
		return err
	}
	c.modified = e.Modified
	s.account(c, 1)
	if s.projects[c.Project] == nil {
		s.projects[c.Project] = map[*Consumer]struct{}{}
	}
	s.projects[c.Project][c] = struct{}{}
	return nil
}

// account adds a consumer's allocations to the usage of its providers, or subtracts them.
func (s *State) account(c *Consumer, sign int64) {
	for _, a := range c.Allocations {
		p := s.providers[a.Provider]
		if p == nil {
			continue
		}
		p.use(a.Class, sign*a.N)
		if sign < 0 {
			delete(p.consumers, c)
			continue
		}
		if p.consumers == nil {
			p.consumers = map[*Consumer]struct{}{}
		}
		p.consumers[c] = struct{}{}
	}
}

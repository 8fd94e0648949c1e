package assertion

import (
	"context"
	"sync"

	"croft"
	"croft/control/federation"
	"croft/tenant/access"
)

// Feed watches the records of peers.
type Feed interface {
	// WatchPeers calls changed with all peers and all mappings, at first and after every change, until ctx ends. Calls
	// do not overlap.
	WatchPeers(ctx context.Context, changed func([]federation.Partition, []federation.Mapping)) error
}

// Book keeps all peers and mappings in memory, so that no request waits for them, and a removed one is rejected as soon
// as the feed reports the removal.
type Book struct {
	feed Feed

	mu       sync.RWMutex
	read     bool
	peers    map[croft.PartitionID]federation.Partition
	mappings map[mapped]federation.Mapping
}

type mapped struct {
	peer   croft.PartitionID
	theirs croft.Project
}

// NewBook returns a book that is empty until Run.
func NewBook(f Feed) *Book { return &Book{feed: f} }

// Run keeps the book up to date until ctx ends.
func (b *Book) Run(ctx context.Context) error { return b.feed.WatchPeers(ctx, b.replace) }

func (b *Book) replace(all []federation.Partition, mappings []federation.Mapping) {
	peers, byProject := map[croft.PartitionID]federation.Partition{}, map[mapped]federation.Mapping{}
	for _, p := range all {
		peers[p.ID] = p
	}
	for _, m := range mappings {
		byProject[mapped{m.Peer, m.Theirs}] = m
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read, b.peers, b.mappings = true, peers, byProject
}

// errUnread is the error of a book that is not filled yet.
var errUnread = croft.Errorf(croft.Unavailable, "the peers of this cloud are still being read: try again")

// Called returns a peer by its UUID or alias. NotFound, Unavailable.
func (b *Book) Called(idOrAlias string) (federation.Partition, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.read {
		return federation.Partition{}, errUnread
	}
	for _, p := range b.peers {
		if string(p.ID) == idOrAlias || p.Alias == idOrAlias {
			return p, nil
		}
	}
	return federation.Partition{}, croft.Errorf(croft.NotFound, "there is no peer %.80q", idOrAlias)
}

// Find is like Called, and also finds a peer that another server added a moment ago.
func (b *Book) Find(ctx context.Context, idOrAlias string) (federation.Partition, error) {
	p, err := b.Called(idOrAlias)
	if croft.KindOf(err) != croft.NotFound {
		return p, err
	}
	if err := access.CatchUp(ctx, b.feed); err != nil {
		return federation.Partition{}, err
	}
	return b.Called(idOrAlias)
}

// learn reads the stored records again, unless the book has a peer's key and a mapping of its project. Unavailable.
func (b *Book) learn(ctx context.Context, peer croft.PartitionID, key string, theirs croft.Project) error {
	p, m, err := b.mapping(peer, theirs)
	if croft.KindOf(err) == croft.Unavailable {
		return nil // the request itself reports it
	}
	if err == nil && m.Project != "" {
		if _, known := p.Peer.Key(key); known {
			return nil
		}
	}
	return access.CatchUp(ctx, b.feed)
}

// mapping returns a peer, and the mapping of its project, or the zero mapping. NotFound: it is not a peer. Unavailable.
func (b *Book) mapping(id croft.PartitionID, theirs croft.Project) (federation.Partition, federation.Mapping, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.read {
		return federation.Partition{}, federation.Mapping{}, errUnread
	}
	p, known := b.peers[id]
	if !known {
		return p, federation.Mapping{}, croft.Errorf(croft.NotFound, "there is no peer %s", id)
	}
	return p, b.mappings[mapped{id, theirs}], nil
}

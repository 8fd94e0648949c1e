package assertion

import (
	"context"
	"sync"

	"croft"
	"croft/access"
	"croft/federation"
)

// Feed tells what is known of peers.
type Feed interface {
	// WatchPeers calls changed with all peers and all mappings, at first and after every change, until ctx ends. Calls
	// do not overlap.
	WatchPeers(ctx context.Context, changed func([]federation.Partition, []federation.Mapping)) error
}

// Book has all peers and mappings in memory, so that no request waits for them, and what was removed counts no more as
// soon as the feed says so.
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

// NewBook returns a book that is empty until it runs.
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

// errUnread is the error of a book that nobody has filled yet.
var errUnread = croft.Errorf(croft.Unavailable, "the peers of this cloud are still being read: try again")

// Called finds a peer by its UUID or its alias. NotFound, Unavailable.
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

// Find is Called, and notices a peer that was added just now at another server.
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

// learn catches up with what is stored unless the book has a peer's key and a mapping of its project. Unavailable.
func (b *Book) learn(ctx context.Context, peer croft.PartitionID, key string, theirs croft.Project) error {
	p, m, err := b.mapping(peer, theirs)
	if croft.KindOf(err) == croft.Unavailable {
		return nil // the request itself is told
	}
	if err == nil && m.Project != "" {
		if _, known := p.Peer.Key(key); known {
			return nil
		}
	}
	return access.CatchUp(ctx, b.feed)
}

// mapping returns a peer, and what its project is mapped to; empty: nothing. NotFound: it is no peer. Unavailable.
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

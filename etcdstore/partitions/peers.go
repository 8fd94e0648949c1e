package partitions

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/control/federation"
	"croft/control/federation/assertion"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
	"croft/tenant/access"
)

var (
	_ federation.PeerStore = (*Partitions)(nil)
	_ assertion.Pins       = (*Partitions)(nil)
)

// peer is the value of a peer's key. The alias equals the one in the registry: one transaction writes both.
type peer struct {
	Alias string `json:"alias"`
	federation.Peer
}

func (s *Partitions) peerKeys() PeerKeys { return PeerKeys(s.conn.Prefix) }

// readPeers adds the data of peers to partitions, at a revision.
func (s *Partitions) readPeers(ctx context.Context, all []known, revision int64) error {
	got, err := s.conn.Etcd.Get(ctx, s.peerKeys().peers(), clientv3.WithPrefix(), clientv3.WithRev(revision))
	if err != nil {
		return s.conn.Wrap(err, "list the peers")
	}
	for _, stored := range got.Kvs {
		i := slices.IndexFunc(all, func(p known) bool { return string(p.ID) == kv.Last(stored.Key) })
		if i < 0 {
			continue // the registry has lost it: it is in no list, and forwards nothing
		}
		var p peer
		if err := s.conn.Decode(stored.Key, stored.Value, &p); err != nil {
			return err
		}
		all[i].Peer = &p.Peer
	}
	return nil
}

// unchangedBelow compares that no key below a prefix was written since a revision.
func unchangedBelow(prefix string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(prefix).WithPrefix(), "<", revision+1)
}

// PutPeer implements federation.PeerStore.
func (s *Partitions) PutPeer(ctx context.Context, id croft.PartitionID,
	settle func([]federation.Partition) (federation.Partition, error)) (federation.Partition, error) {
	for {
		all, revision, err := s.read(ctx)
		if err != nil {
			return federation.Partition{}, err
		}
		var plain []federation.Partition
		e := entry{Added: time.Now().UTC().Truncate(time.Second)}
		for _, p := range all {
			plain = append(plain, p.Partition)
			if p.ID == id {
				e = p.entry
			}
		}
		next, err := settle(plain)
		if err != nil {
			return next, err
		}
		e.Alias = next.Alias
		k := s.peerKeys()
		done, err := s.conn.Etcd.Txn(ctx).
			If(unchangedBelow(s.keys.registry(), revision), unchangedBelow(k.peers(), revision)).
			Then(clientv3.OpPut(s.keys.partition(id), kv.Encode(e)),
				clientv3.OpPut(k.peer(id), kv.Encode(peer{next.Alias, *next.Peer}))).Commit()
		if err != nil {
			return next, s.conn.Wrap(err, "write peer %s", id)
		}
		if done.Succeeded {
			return next, nil
		}
	}
}

// cut returns the operations that end the exchange with a peer: they remove its record and its mappings, which are few.
func (s *Partitions) cut(ctx context.Context, id croft.PartitionID) (still clientv3.Cmp, ops []clientv3.Op, err error) {
	all, revision, err := s.mappings(ctx)
	if err != nil {
		return still, nil, err
	}
	k := s.peerKeys()
	ops = []clientv3.Op{clientv3.OpDelete(k.peer(id))}
	for _, m := range all {
		if m.Peer == id {
			ops = append(ops, clientv3.OpDelete(k.mapping(m)))
		}
	}
	return unchangedBelow(k.mappings(), revision), ops, nil
}

// RemovePeer implements federation.PeerStore. A partition without an import is forgotten.
func (s *Partitions) RemovePeer(ctx context.Context, id croft.PartitionID) error {
	for {
		still, ops, err := s.cut(ctx, id)
		if err != nil {
			return err
		}
		key := s.peerKeys().peer(id)
		got, err := s.conn.Etcd.Get(ctx, key)
		if err != nil {
			return s.conn.Wrap(err, "read peer %s", id)
		}
		if len(got.Kvs) == 0 {
			return croft.Errorf(croft.NotFound, "peer %s was removed meanwhile", id)
		}
		same := kv.Created(key, got.Kvs[0].CreateRevision)
		forget := clientv3.OpTxn([]clientv3.Cmp{kv.Absent(s.keys.head(id))},
			[]clientv3.Op{clientv3.OpDelete(s.keys.partition(id))}, nil)
		done, err := s.conn.Etcd.Txn(ctx).If(same, still).Then(append(ops, forget)...).Commit()
		if err != nil {
			return s.conn.Wrap(err, "remove peer %s", id)
		}
		if done.Succeeded {
			return nil
		}
	}
}

// Mappings implements federation.PeerStore.
func (s *Partitions) Mappings(ctx context.Context) ([]federation.Mapping, error) {
	all, _, err := s.mappings(ctx)
	return all, err
}

func (s *Partitions) mappings(ctx context.Context) (all []federation.Mapping, revision int64, err error) {
	got, err := s.conn.Etcd.Get(ctx, s.peerKeys().mappings(), clientv3.WithPrefix())
	if err != nil {
		return nil, 0, s.conn.Wrap(err, "list the projects that peers have here")
	}
	for _, stored := range got.Kvs {
		var m federation.Mapping
		if err := s.conn.Decode(stored.Key, stored.Value, &m); err != nil {
			return nil, 0, err
		}
		all = append(all, m)
	}
	return all, got.Header.Revision, nil
}

// mostMappings is the maximum number of mappings of a peer, so that one transaction can remove them all.
const mostMappings = 100

// mostOfProject is the maximum number of mappings of one project here to projects of a peer, so that other projects can
// have mappings too.
const mostOfProject = 10

// PutMapping implements federation.PeerStore. A mapping whose role changes stays bound to its project, unless a new
// project is named.
func (s *Partitions) PutMapping(ctx context.Context, m federation.Mapping) error {
	k := s.peerKeys()
	project := s.home.Project(m.Project)
	mappings := s.mappingsOf(m)
	mappings.Guard = func(ctx context.Context, _ federation.Mapping, next *federation.Mapping) (
		g shelf.Guard, err error) {
		_, now, err := s.conn.Commit(ctx, kv.Txn{Then: []clientv3.Op{clientv3.OpGet(k.peer(m.Peer),
			clientv3.WithKeysOnly()), clientv3.OpGet(project, clientv3.WithKeysOnly())}},
			"read the mapping of project %s", m.Project)
		if err != nil {
			return g, err
		}
		peer, here := kv.First(now[0]), kv.First(now[1])
		switch {
		case peer == nil:
			return g, croft.Errorf(croft.NotFound, "peer %s was removed meanwhile", m.Peer)
		case here == nil:
			return g, croft.Errorf(croft.NotFound, "there is no project %s: create it first", m.Project)
		}
		all, revision, err := s.mappings(ctx)
		if err != nil {
			return g, err
		}
		g.If = []clientv3.Cmp{kv.Created(k.peer(m.Peer), peer.CreateRevision), kv.Created(project, here.CreateRevision),
			unchangedBelow(k.mappings(), revision)}
		*next, err = settleMapping(all, m)
		return g, err
	}
	_, err := mappings.Change(ctx, k.nameOf(m), nil, func(federation.Mapping, bool) (federation.Mapping, error) {
		return m, nil
	})
	return err
}

// settleMapping returns the form in which a mapping is stored, given all others. Conflict.
func settleMapping(all []federation.Mapping, m federation.Mapping) (federation.Mapping, error) {
	of, own := 0, 0
	for _, other := range all {
		switch {
		case other.Peer != m.Peer:
		case other.Project == m.Project && other.Theirs == m.Theirs:
			m.TheirsID = cmp.Or(m.TheirsID, other.TheirsID)
		case other.Project != m.Project && other.Theirs == m.Theirs:
			return m, croft.Errorf(
				croft.Conflict,
				"their project %s has its members in another project here already: a project of a peer is one project here",
				m.Theirs,
			)
		case other.Project != m.Project:
			of++
		default:
			own++
		}
	}
	if own >= mostOfProject {
		return m, croft.Errorf(
			croft.OverQuota,
			"%d projects of the peer have their members in project %s, which is the "+
				"most: remove one of these mappings first",
			own,
			m.Project,
		)
	}
	if of >= mostMappings {
		return m, croft.Errorf(croft.Conflict, "the peer has %d projects here, which is the most", of)
	}
	return m, nil
}

// mappingsOf returns the mappings of projects, as one noun. Its errors are about m.
func (s *Partitions) mappingsOf(m federation.Mapping) shelf.Shelf[federation.Mapping] {
	return shelf.Shelf[federation.Mapping]{Conn: s.conn, Noun: "mapping", Prefix: s.peerKeys().mappings(),
		Missing: func(context.Context, string) error {
			return croft.Errorf(croft.NotFound, "their project %s has no members in project %s", m.Theirs, m.Project)
		}}
}

// PinMapping implements assertion.Pins.
func (s *Partitions) PinMapping(ctx context.Context, m federation.Mapping, id croft.ProjectID) error {
	_, err := s.mappingsOf(m).Change(ctx, s.peerKeys().nameOf(m), nil, func(now federation.Mapping, there bool) (
		federation.Mapping, error) {
		switch {
		case !there:
			return now, croft.Errorf(croft.Conflict, "their project %s has no members in project %s any more", m.Theirs,
				m.Project)
		case now.TheirsID == id:
			return now, shelf.ErrSame
		case now.TheirsID != "":
			return now, croft.Errorf(
				croft.Conflict,
				"the mapping of their project %s is of another project of that name",
				m.Theirs,
			)
		}
		now.TheirsID = id
		return now, nil
	})
	return err
}

// RemoveMapping implements federation.PeerStore.
func (s *Partitions) RemoveMapping(ctx context.Context, m federation.Mapping) error {
	return s.mappingsOf(m).Remove(ctx, s.peerKeys().nameOf(m), nil, nil)
}

// FollowedPeers is a feed of peers for one follower, which can wait until it has everything stored so far.
type FollowedPeers struct {
	*kv.Tail
	partitions *Partitions
}

var (
	_ assertion.Feed = FollowedPeers{}
	_ access.Behind  = FollowedPeers{}
)

// NewFeed returns a feed for one follower.
func (s *Partitions) NewFeed() FollowedPeers {
	return FollowedPeers{s.conn.NewTail("the peers of this cloud", s.peerKeys().all()), s}
}

// WatchPeers implements assertion.Feed. Records that cannot be read are treated as missing, so they grant no access.
func (f FollowedPeers) WatchPeers(ctx context.Context,
	changed func([]federation.Partition, []federation.Mapping)) error {
	k, c := f.partitions.peerKeys(), f.partitions.conn
	return kv.FollowDecoded(ctx, f.Tail, func(stored *mvccpb.KeyValue) (v any, err error) {
		switch key := string(stored.Key); {
		case strings.HasPrefix(key, k.peers()):
			var p peer
			err = c.Decode(stored.Key, stored.Value, &p)
			v = federation.Partition{ID: croft.PartitionID(kv.Last(stored.Key)), Alias: p.Alias, Peer: &p.Peer}
		case strings.HasPrefix(key, k.mappings()):
			var m federation.Mapping
			err = c.Decode(stored.Key, stored.Value, &m)
			v = m
		}
		return v, err
	}, func(all map[string]any) {
		var peers []federation.Partition
		var mappings []federation.Mapping
		for _, v := range all {
			switch v := v.(type) {
			case federation.Partition:
				peers = append(peers, v)
			case federation.Mapping:
				mappings = append(mappings, v)
			}
		}
		changed(peers, mappings)
	})
}

// PutSigner stores the public half of a key with which a server of the API signs, and the address of that server. It
// reports whether the cloud did not have the key before.
func (s *Partitions) PutSigner(ctx context.Context, one federation.Signer) (added bool, err error) {
	before, err := s.conn.Etcd.Put(ctx, s.peerKeys().signer(one.Key.ID()), kv.Encode(one), clientv3.WithPrevKV())
	if err != nil {
		return false, s.conn.Wrap(err, "write with which key a server signs")
	}
	return before.PrevKv == nil, nil
}

// Signers implements federation.PeerStore.
func (s *Partitions) Signers(ctx context.Context) ([]federation.Signer, error) {
	all, err := kv.ReadAll[federation.Signer](ctx, s.conn, "list with which keys this cloud signs",
		s.peerKeys().signers(),
		0)
	slices.SortStableFunc(all, func(a, b federation.Signer) int {
		return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(a.Key, b.Key))
	})
	return all, err
}

// RemoveSigner implements federation.PeerStore.
func (s *Partitions) RemoveSigner(ctx context.Context, id string) error {
	return shelf.Shelf[federation.Signer]{Conn: s.conn, Noun: "key", Prefix: s.peerKeys().signers(),
		Missing: func(context.Context, string) error {
			return croft.Errorf(croft.NotFound, "this cloud has no key %.40q; `croft partition key list` shows all", id)
		}}.Remove(ctx, id, nil, nil)
}

// Authority implements federation.PeerStore.
func (s *Partitions) Authority(ctx context.Context) (string, error) {
	got, err := s.conn.Etcd.Get(ctx, s.home.Authority)
	if err != nil {
		return "", s.conn.Wrap(err, "read the authority of this cloud")
	}
	for _, stored := range got.Kvs {
		return string(stored.Value), nil
	}
	return "", nil
}

// Package actionlog stores the action log in etcd: by project, in blocks of entries that were written together.
package actionlog

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/control/actions"
	"croft/etcdstore/internal/kv"
	"croft/tenant/access"
)

// Log is the store of the action log.
type Log struct{ conn *kv.Conn }

var _ actions.Store = (*Log)(nil)

// New makes the store of the action log.
func New(c *kv.Conn) *Log { return &Log{c} }

func (s *Log) keys() Keys { return Keys(s.conn.Prefix) }

// Append implements actions.Store. It writes one transaction with a block for each project, and another block for the
// project's refused requests.
func (s *Log) Append(ctx context.Context, b actions.Batch) error {
	type ring struct {
		project croft.Project
		refused bool
	}
	entries := map[ring][]actions.Entry{}
	for _, e := range b.Entries {
		in := ring{e.Project, e.Refused()}
		entries[in] = append(entries[in], e)
	}
	var absent []clientv3.Cmp
	var puts []clientv3.Op
	for in, all := range entries {
		key := s.keys().project(in.project) + blockName(b, len(all), in.refused)
		absent = append(absent, kv.Absent(key))
		puts = append(puts, clientv3.OpPut(key, kv.Encode(all)))
	}
	if len(puts) == 0 {
		return nil
	}
	// If the keys exist, an earlier attempt wrote this batch.
	if _, err := s.conn.Etcd.Txn(ctx).If(absent...).Then(puts...).Commit(); err != nil {
		return s.conn.Wrap(err, "write the action log")
	}
	return nil
}

// fetched is how many blocks are read together.
const fetched = 64

// found is an entry at its place in the log.
type found struct {
	place
	actions.Entry
}

// compare orders entries by time. The order does not depend on the page on which they are.
func (f found) compare(other found) int {
	return cmp.Or(f.Time.Compare(other.Time), compareBlocks(f.block, other.block), cmp.Compare(f.entry, other.entry))
}

// List implements actions.Store. It selects blocks by their keys, and reads them, newest first, until the page is full,
// all at one revision. Servers write concurrently, so the times of neighbouring blocks overlap: an entry is on the page
// once no unread block can have a newer one.
func (s *Log) List(ctx context.Context, scope access.Scope, f actions.Filter) (actions.Page, error) {
	page := actions.Page{Entries: []actions.Entry{}}
	limit := min(cmp.Or(f.Limit, actions.DefaultLimit), actions.MostLimit)
	blocks, revision, err := s.blocks(ctx, scope, f)
	if err != nil {
		return page, err
	}
	behind, err := s.behind(ctx, f.After, revision)
	if err != nil {
		return page, err
	}
	slices.SortFunc(blocks, func(a, b dated) int { return compareBlocks(b.block, a.block) })
	var waiting []found // sorted, newest last
	var last place
	full := func(unread string) bool {
		for n := len(waiting) - 1; n >= 0 && moment(waiting[n].Time) > unread; n-- {
			if len(page.Entries) == limit {
				page.Next = last.String()
				return true
			}
			page.Entries, last = append(page.Entries, waiting[n].Entry), waiting[n].place
			waiting = waiting[:n]
		}
		return false
	}
	for some := range slices.Chunk(blocks, fetched) {
		contents, err := s.read(ctx, some, revision)
		if err != nil {
			return page, err
		}
		for i, b := range some {
			if full(b.written()) {
				return page, nil
			}
			for n, e := range contents[i] {
				here := found{place{b.block, n}, e}
				if f.Has(e) && e.Time.After(b.hidden) && (f.After == "" || here.compare(behind) < 0) {
					waiting = append(waiting, here)
				}
			}
			slices.SortFunc(waiting, found.compare)
		}
	}
	full("")
	return page, nil
}

// behind returns the entry at the end of the previous page. Of a block that was trimmed since, the time of writing
// stands for those of its entries. Invalid.
func (s *Log) behind(ctx context.Context, after string, revision int64) (at found, err error) {
	if at.place, err = parsePlace(after); err != nil || after == "" {
		return at, err
	}
	contents, err := s.read(ctx, []dated{{block: at.block}}, revision)
	if err != nil {
		return at, err
	}
	if at.entry >= 0 && at.entry < len(contents[0]) {
		at.Entry = contents[0][at.entry]
		return at, nil
	}
	nanoseconds, err := strconv.ParseInt(at.written(), 16, 64)
	if err != nil {
		return at, badPlace(after)
	}
	at.Time = time.Unix(0, nanoseconds)
	return at, nil
}

// dated is a block, with the time up to which its entries are hidden from the caller.
type dated struct {
	block
	hidden time.Time
}

// blocks lists the blocks that may contain entries that a filter selects, at a revision.
func (s *Log) blocks(ctx context.Context, scope access.Scope, f actions.Filter) (all []dated, revision int64,
	err error) {
	k := s.keys()
	now, err := s.conn.Etcd.Get(ctx, k.all(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, 0, s.conn.Wrap(err, "read the action log")
	}
	revision = now.Header.Revision
	prefixes := map[string]ended{}
	switch {
	case f.Project != "" && (f.Project.Check() != nil || !scope.Sees(f.Project)):
	case f.Project != "":
		prefixes[k.project(f.Project)], err = s.endOf(ctx, scope, f.Project, revision)
	case scope.All():
		prefixes[k.all()] = ended{}
	default:
		for _, p := range scope.Projects() {
			if prefixes[k.project(p)], err = s.endOf(ctx, scope, p, revision); err != nil {
				return nil, 0, err
			}
		}
	}
	oldest := moment(f.Since)
	for prefix, end := range prefixes {
		err = cmp.Or(err, s.conn.ReadRange(ctx, "list the action log", prefix, revision,
			func(stored *mvccpb.KeyValue) error {
				if b := k.blockAt(stored); b.name >= oldest && b.created > end.revision {
					all = append(all, dated{b, end.At})
				}
				return nil
			}, clientv3.WithKeysOnly()))
	}
	return all, revision, err
}

// endOf returns up to when the log of a project is hidden; nothing is hidden from operators.
func (s *Log) endOf(ctx context.Context, scope access.Scope, p croft.Project, revision int64) (end ended, err error) {
	if scope.All() {
		return end, nil
	}
	got, err := s.conn.Etcd.Get(ctx, s.keys().ended(p), clientv3.WithRev(revision))
	if err != nil {
		return end, s.conn.Wrap(err, "read the action log of project %s", p)
	}
	for _, stored := range got.Kvs {
		err = s.conn.Decode(stored.Key, stored.Value, &end)
		end.revision = stored.ModRevision
	}
	return end, err
}

// read returns the entries of blocks.
func (s *Log) read(ctx context.Context, blocks []dated, revision int64) ([][]actions.Entry, error) {
	var gets []clientv3.Op
	for _, b := range blocks {
		gets = append(gets, clientv3.OpGet(s.keys().block(b.block), clientv3.WithRev(revision)))
	}
	got, err := s.conn.Etcd.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return nil, s.conn.Wrap(err, "read the action log")
	}
	all := make([][]actions.Entry, len(blocks))
	for i, answer := range got.Responses {
		if stored := kv.First(answer); stored != nil {
			if err := s.conn.Decode(stored.Key, stored.Value, &all[i]); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// place is the position of an entry in the log.
type place struct {
	block
	entry int
}

// compareBlocks orders blocks by time.
func compareBlocks(a, b block) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.project, b.project))
}

func (p place) String() string { return p.name + "/" + p.project + "/" + strconv.Itoa(p.entry) }

// parsePlace parses a place. Invalid.
func parsePlace(text string) (place, error) {
	if text == "" {
		return place{}, nil
	}
	words := strings.Split(text, "/")
	if len(words) == 3 {
		if n, err := strconv.Atoi(words[2]); err == nil {
			return place{block{project: words[1], name: words[0]}, n}, nil
		}
	}
	return place{}, badPlace(text)
}

func badPlace(text string) error {
	return croft.Errorf(croft.Invalid, "%.40q is no position in the action log: use the value next of another "+
		"page", text)
}

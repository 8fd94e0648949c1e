package tenants

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/tenant/access"
)

// AccessTokens stores the tokens of tenants and operators, without their secrets. A project is charged for its tokens.
// Therefore tokens are not removed by leases, which could not reduce the usage; Settle removes them some time after
// they expired.
type AccessTokens struct {
	conn     *kv.Conn
	projects *Projects
}

// NewAccessTokens makes the store of access tokens.
func NewAccessTokens(p *Projects) *AccessTokens { return &AccessTokens{p.conn, p} }

func (s *AccessTokens) keys() Keys { return Keys(s.conn.Prefix) }

var _ access.Tokens = (*AccessTokens)(nil)

// Create implements access.Tokens. No token is created in a project that is removed concurrently.
func (s *AccessTokens) Create(ctx context.Context, t access.Token) error {
	return s.create(ctx, t, false)
}

// CreateWithin is like Create, for users whose rights end with the project. NotFound: the project has no record.
func (s *AccessTokens) CreateWithin(ctx context.Context, t access.Token) error {
	return s.create(ctx, t, true)
}

func (s *AccessTokens) create(ctx context.Context, t access.Token, recorded bool) error {
	if err := t.Check(); err != nil { // project and ID become part of the key
		return err
	}
	first, id, err := s.projectOf(ctx, t)
	if err != nil {
		return err
	}
	t.ProjectID = id
	if recorded && first == 0 {
		return croft.Errorf(croft.NotFound, "there is no project %s: ask an operator to create it", t.Project)
	}
	key, write := s.keys().token(t.Project, t.ID), "write a token"
	put := clientv3.OpPut(key, kv.Encode(t))
	var written bool
	if t.Project == "" {
		var done *clientv3.TxnResponse
		if done, err = s.conn.Etcd.Txn(ctx).If(kv.Absent(key)).Then(put).Commit(); err != nil {
			return s.conn.Wrap(err, "%s", write) // if it was written, its secret is unknown to all
		}
		written = done.Succeeded
	} else {
		var revision int64
		revision, err = s.projects.writeCharged(ctx, charging{project: t.Project, amounts: chargeOfToken, record: key,
			entry: s.keys().entriesAboutToken(t) + "charged", write: []clientv3.Op{put}, what: write,
			still: func(ctx context.Context) error { return s.isStill(ctx, t, first) }})
		written = revision != 0
	}
	if err == nil && !written {
		err = croft.Errorf(croft.Conflict, "there is a token %s already", t.ID)
	}
	return err
}

// projectOf returns the revision at which a token's project was created, and its identity; 0: the project has no
// record.
func (s *AccessTokens) projectOf(ctx context.Context, t access.Token) (revision int64, id croft.ProjectID, err error) {
	if t.Project == "" {
		return 0, "", nil
	}
	got, err := s.conn.Etcd.Get(ctx, s.keys().project(t.Project))
	if err != nil {
		return 0, "", s.conn.Wrap(err, "read project %s", t.Project)
	}
	for _, stored := range got.Kvs {
		p, err := s.projects.decodeProject(stored)
		return stored.CreateRevision, p.ID, err
	}
	return 0, "", nil
}

// isStill returns an error unless the project of a token is the one that was created at the given revision. Conflict.
func (s *AccessTokens) isStill(ctx context.Context, t access.Token, first int64) error {
	now, _, err := s.projectOf(ctx, t)
	if err == nil && now != first {
		err = croft.Errorf(croft.Conflict, "project %s was created or removed meanwhile: look at it and try again",
			t.Project)
	}
	return err
}

// Find implements access.Tokens.
func (s *AccessTokens) Find(ctx context.Context, scope access.Scope, id access.TokenID) (access.Token, error) {
	t, _, err := s.find(ctx, scope, id)
	return t, err
}

// find returns a token and its stored record. For an operator, who names no project, it searches all keys.
func (s *AccessTokens) find(ctx context.Context, scope access.Scope, id access.TokenID) (t access.Token,
	stored *mvccpb.KeyValue, err error) {
	if !scope.All() {
		return s.findWithin(ctx, scope, id)
	}
	all, err := s.conn.Etcd.Get(ctx, s.keys().tokens(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return t, nil, s.conn.Wrap(err, "look for a token")
	}
	for _, key := range all.Kvs {
		if kv.Last(key.Key) != string(id) {
			continue
		}
		got, err := s.conn.Etcd.Get(ctx, string(key.Key))
		if err != nil {
			return t, nil, s.conn.Wrap(err, "read the token %s", id)
		}
		for _, one := range got.Kvs { // no entry if it was revoked meanwhile
			if err := s.conn.Decode(one.Key, one.Value, &t); err != nil {
				return access.Token{}, nil, err
			}
			if scope.Sees(t.Project) {
				return t, one, nil
			}
		}
	}
	return access.Token{}, nil, noToken(id)
}

func noToken(id access.TokenID) error {
	return croft.Errorf(croft.NotFound, "there is no token %.16q; `croft token list --for api` shows all", string(id))
}

// findWithin returns a token of one of the projects of a scope. Tokens of other projects add no cost.
func (s *AccessTokens) findWithin(ctx context.Context, scope access.Scope, id access.TokenID) (t access.Token,
	stored *mvccpb.KeyValue, err error) {
	if strings.Contains(string(id), "/") {
		return t, nil, noToken(id)
	}
	var ops []clientv3.Op
	for _, project := range scope.Projects() {
		ops = append(ops, clientv3.OpGet(s.keys().token(project, id)))
	}
	found, err := s.conn.GetMany(ctx, "look for a token", ops)
	if err != nil {
		return t, nil, err
	}
	for _, one := range slices.Concat(found...) {
		err := s.conn.Decode(one.Key, one.Value, &t)
		return t, one, err
	}
	return t, nil, noToken(id)
}

// List implements access.Tokens.
func (s *AccessTokens) List(ctx context.Context, scope access.Scope) ([]access.Token, error) {
	prefixes := []string{s.keys().tokens()}
	if !scope.All() {
		prefixes = nil
		for _, project := range scope.Projects() {
			prefixes = append(prefixes, s.keys().TokensOf(project))
		}
	}
	var all []access.Token
	for _, prefix := range prefixes {
		some, err := kv.ReadAll[access.Token](ctx, s.conn, "list the tokens", prefix, 0)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b access.Token) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// Revoke implements access.Tokens.
func (s *AccessTokens) Revoke(ctx context.Context, scope access.Scope, id access.TokenID) (access.Token, error) {
	t, stored, err := s.find(ctx, scope, id)
	if err != nil {
		return access.Token{}, err
	}
	removed, err := s.remove(ctx, t, stored)
	if err != nil {
		return access.Token{}, s.conn.Wrap(err, "revoke the token %s", id)
	}
	if !removed { // tokens never change, so it was removed
		return access.Token{}, croft.Errorf(croft.NotFound, "the token %s was revoked meanwhile", id)
	}
	return t, nil
}

// remove removes a token that is unchanged since it was read, and reduces the usage of its project.
func (s *AccessTokens) remove(ctx context.Context, t access.Token, stored *mvccpb.KeyValue) (bool, error) {
	key := string(stored.Key)
	ops := []clientv3.Op{clientv3.OpDelete(key)}
	if k := s.keys(); t.Project != "" {
		ops = append(ops, k.repay(t.Project, k.entriesAboutToken(t)+"repaid", chargeOfToken))
	}
	done, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(key, stored.ModRevision)).Then(ops...).Commit()
	return err == nil && done.Succeeded, err
}

// removeExpired removes the tokens that expired long enough ago. It leaves records that cannot be read.
func (s *AccessTokens) removeExpired(ctx context.Context) error {
	if err := s.conn.CheckClock(ctx, time.Now()); err != nil {
		return err
	}
	return s.conn.ReadRange(ctx, "look for expired tokens", s.keys().tokens(), 0, func(stored *mvccpb.KeyValue) error {
		var t access.Token
		if s.conn.Decode(stored.Key, stored.Value, &t) != nil || time.Since(t.Expires) < access.KeptExpired {
			return nil
		}
		if _, err := s.remove(ctx, t, stored); err != nil {
			return s.conn.Wrap(err, "remove the expired token %s", t.ID)
		}
		return nil
	})
}

// FollowedTokens is a feed of tokens for one follower, which can wait until it has everything stored so far.
type FollowedTokens struct {
	*kv.Tail
}

var (
	_ access.TokenFeed = FollowedTokens{}
	_ access.Behind    = FollowedTokens{}
)

// NewFeed returns a feed for one follower.
func (s *AccessTokens) NewFeed() FollowedTokens {
	return FollowedTokens{s.conn.NewTail("the tokens of this cloud", s.keys().tokens())}
}

// Watch implements access.TokenFeed. A record that cannot be read is treated as missing, so it grants no access.
func (f FollowedTokens) Watch(ctx context.Context, all func([]access.Token),
	changed func(access.TokenID, *access.Token)) error {
	read := func(stored *mvccpb.KeyValue) *access.Token {
		var t access.Token
		if f.Conn.Decode(stored.Key, stored.Value, &t) != nil {
			return nil
		}
		return &t
	}
	return f.Follow(ctx, func(listed []*mvccpb.KeyValue) {
		var tokens []access.Token
		for _, stored := range listed {
			if t := read(stored); t != nil {
				tokens = append(tokens, *t)
			}
		}
		all(tokens)
	}, func(stored *mvccpb.KeyValue, present bool) {
		var t *access.Token
		if present {
			t = read(stored)
		}
		changed(access.TokenID(kv.Last(stored.Key)), t)
	})
}

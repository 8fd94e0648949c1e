package tenants

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/tenant"
	"croft/tenant/access"
)

// maxEnded is the maximum number of tokens that one change of members ends: they are removed in its transaction.
const maxEnded = 40

// endings returns the operations that remove the tokens of the users whom a change removes from a project, and the
// comparisons that there are no further tokens. Conflict: there are too many.
func (s *Projects) endings(ctx context.Context, before, after tenant.Tenant) (ifs []clientv3.Cmp, ops []clientv3.Op,
	err error) {
	gone := map[string]bool{}
	for user := range before.Members {
		if _, stays := after.Members[user]; !stays {
			gone[user] = true
		}
	}
	if len(gone) == 0 {
		return nil, nil, nil
	}
	k := s.keys()
	prefix := k.TokensOf(before.Name)
	got, err := s.conn.Etcd.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, nil, s.conn.Wrap(err, "read the tokens of project %s", before.Name)
	}
	// no token is created meanwhile
	ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(prefix), "<", got.Header.Revision+1).WithPrefix())
	for _, stored := range got.Kvs {
		var t access.Token
		if err := s.conn.Decode(stored.Key, stored.Value, &t); err != nil {
			return nil, nil, err
		}
		if !gone[t.User] && !gone[t.CreatedBy] {
			continue // tokens that a removed user has made for others are removed too
		}
		ifs = append(ifs, kv.Unchanged(string(stored.Key), stored.ModRevision))
		ops = append(ops, clientv3.OpDelete(string(stored.Key)),
			k.repay(t.Project, k.entriesAboutToken(t)+"repaid", chargeOfToken))
	}
	if len(ops)/2 > maxEnded {
		return nil, nil, croft.Errorf(croft.Conflict, "the members who are to leave project %s have %d tokens: "+
			"revoke some first, so that at most %d are left", before.Name, len(ops)/2, maxEnded)
	}
	return ifs, ops, nil
}

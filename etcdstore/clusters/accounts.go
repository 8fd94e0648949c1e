package clusters

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
)

// Accounts stores the accounts of users on clusters.
type Accounts struct{ conn *kv.Conn }

func (s *Accounts) keys() Keys { return Keys(s.conn.Prefix) }

// of returns the accounts on a cluster, by the escaped names of their users.
func (s *Accounts) of(id croft.ClusterID, user string) shelf.Shelf[cluster.Account] {
	return shelf.Shelf[cluster.Account]{Conn: s.conn, Noun: "account", Prefix: s.keys().accounts(id),
		Missing: func(context.Context, string) error { return noAccount(id, user) },
		Differs: func(string, int64, int64) error {
			return croft.Errorf(croft.Conflict, "%s has an account on cluster %s already", user, id)
		},
		Most: maxAccounts, TooMany: func(n int64) error {
			return croft.Errorf(croft.OverQuota, "cluster %s has %d accounts, which is the most: remove some", id, n)
		}}
}

// Account implements cluster.Accounts.
func (s *Accounts) Account(ctx context.Context, id croft.ClusterID, user string) (a cluster.Account, err error) {
	return s.of(id, user).Find(ctx, escaped(user))
}

func noAccount(id croft.ClusterID, user string) error {
	return croft.Errorf(croft.NotFound, "%.80q has no account on cluster %.80s", user, id)
}

// maxAccounts bounds the accounts on a cluster.
const maxAccounts = 500

// AddAccount implements cluster.Accounts.
func (s *Accounts) AddAccount(ctx context.Context, a cluster.Account) error {
	accounts := s.of(a.Cluster, a.User)
	accounts.Guard = func(ctx context.Context, _ cluster.Account, _ *cluster.Account) (shelf.Guard, error) {
		c, err := recordsOf(s.conn).Find(ctx, string(a.Cluster))
		if err == nil && (c.State == cluster.Deleting || c.State == cluster.Deleted) {
			err = croft.Errorf(croft.Conflict, "cluster %s is being removed", a.Cluster)
		}
		return shelf.Guard{If: []clientv3.Cmp{kv.Unchanged(s.keys().record(a.Cluster), c.Revised)}}, err
	}
	_, err := accounts.Set(ctx, escaped(a.User), 0, a)
	return err
}

// RemoveAccount implements cluster.Accounts.
func (s *Accounts) RemoveAccount(ctx context.Context, id croft.ClusterID, user string) error {
	return s.of(id, user).Remove(ctx, escaped(user), nil, nil)
}

// DropAccount implements cluster.Accounts.
func (s *Accounts) DropAccount(ctx context.Context, a cluster.Account) error {
	key := s.keys().account(a.Cluster, a.User)
	done, err := s.conn.Etcd.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", kv.Encode(a))).
		Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return s.conn.Wrap(err, "remove an account on cluster %s", a.Cluster)
	}
	if !done.Succeeded {
		return noAccount(a.Cluster, a.User)
	}
	return nil
}

// AllAccounts implements cluster.Accounts.
func (s *Accounts) AllAccounts(ctx context.Context) ([]cluster.Account, error) {
	return kv.ReadAll[cluster.Account](ctx, s.conn, "read the accounts on clusters", s.keys().allAccounts(), 0)
}

// SealAccount implements cluster.Accounts.
func (s *Accounts) SealAccount(ctx context.Context, a cluster.Account, password cluster.Sealed) error {
	key, before := s.keys().account(a.Cluster, a.User), kv.Encode(a)
	a.Password = password
	done, err := s.conn.Etcd.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", before)).
		Then(clientv3.OpPut(key, kv.Encode(a))).Commit()
	if err != nil {
		return s.conn.Wrap(err, "seal an account on cluster %s", a.Cluster)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.NotFound, "the account of %s on cluster %s was changed", a.User, a.Cluster)
	}
	return nil
}

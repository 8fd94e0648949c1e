package clusters

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
)

// Accounts stores the accounts of users on clusters.
type Accounts struct{ conn *kv.Conn }

func (s *Accounts) keys() Keys { return Keys(s.conn.Prefix) }

// Account implements cluster.Accounts.
func (s *Accounts) Account(ctx context.Context, id croft.ClusterID, user string) (a cluster.Account, err error) {
	got, err := s.conn.Etcd.Get(ctx, s.keys().account(id, user))
	if err != nil {
		return a, s.conn.Wrap(err, "read an account on cluster %s", id)
	}
	if len(got.Kvs) == 0 {
		return a, noAccount(id, user)
	}
	return a, s.conn.Decode(got.Kvs[0].Key, got.Kvs[0].Value, &a)
}

func noAccount(id croft.ClusterID, user string) error {
	return croft.Errorf(croft.NotFound, "%.80q has no account on cluster %.80s", user, id)
}

// maxAccounts bounds the accounts on a cluster.
const maxAccounts = 500

// AddAccount implements cluster.Accounts.
func (s *Accounts) AddAccount(ctx context.Context, a cluster.Account) error {
	record, key := s.keys().record(a.Cluster), s.keys().account(a.Cluster, a.User)
	for {
		got, err := s.conn.Etcd.Get(ctx, record)
		if err != nil {
			return s.conn.Wrap(err, "read the record of cluster %s", a.Cluster)
		}
		if len(got.Kvs) == 0 {
			return missing(a.Cluster)
		}
		c, err := decodeCluster(s.conn, got.Kvs[0])
		if err != nil {
			return err
		}
		if c.State == cluster.Deleting || c.State == cluster.Deleted {
			return croft.Errorf(croft.Conflict, "cluster %s is being removed", a.Cluster)
		}
		there, err := s.conn.Etcd.Get(
			ctx,
			s.keys().accounts(a.Cluster),
			clientv3.WithPrefix(),
			clientv3.WithCountOnly(),
		)
		if err != nil {
			return s.conn.Wrap(err, "count the accounts on cluster %s", a.Cluster)
		}
		if there.Count >= maxAccounts {
			return croft.Errorf(
				croft.OverQuota,
				"cluster %s has %d accounts, which is the most: remove some",
				a.Cluster,
				there.Count,
			)
		}
		done, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(record, c.Revised), kv.Absent(key),
			kv.NoneSince(s.keys().accounts(a.Cluster), there.Header.Revision)).
			Then(clientv3.OpPut(key, kv.Encode(a))).Else(clientv3.OpGet(key, clientv3.WithCountOnly())).Commit()
		switch {
		case err != nil:
			return s.conn.Wrap(err, "note an account on cluster %s", a.Cluster)
		case done.Succeeded:
			return nil
		case done.Responses[0].GetResponseRange().Count > 0:
			return croft.Errorf(croft.Conflict, "%s has an account on cluster %s already", a.User, a.Cluster)
		} // otherwise the record changed, so the retries end
	}
}

// RemoveAccount implements cluster.Accounts.
func (s *Accounts) RemoveAccount(ctx context.Context, id croft.ClusterID, user string) error {
	done, err := s.conn.Etcd.Delete(ctx, s.keys().account(id, user))
	if err != nil {
		return s.conn.Wrap(err, "remove an account on cluster %s", id)
	}
	if done.Deleted == 0 {
		return noAccount(id, user)
	}
	return nil
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

package registry

import (
	"context"

	"croft"
	"croft/cluster"
)

// rewrap is the type of a vault's Rewrap.
type rewrap func(v cluster.Sealed, about string) (cluster.Sealed, bool, error)

// rewrapClusters seals the secret values of clusters again, and the passwords of their accounts.
func (r *Registry) rewrapClusters(ctx context.Context, again rewrap) (n int, err error) {
	if r.Records == nil || r.Accounts == nil {
		return 0, nil
	}
	clusters, err := r.Records.List(ctx, "")
	if err != nil {
		return 0, err
	}
	for _, c := range clusters {
		more, err := r.rewrapValues(ctx, c.ID, again)
		if n += more; err != nil {
			return n, croft.Errorf(croft.KindOf(err), "cluster %s: %w", c.Name, err)
		}
	}
	accounts, err := r.Accounts.AllAccounts(ctx)
	if err != nil {
		return n, err
	}
	for _, a := range accounts {
		next, changed, err := again(a.Password, cluster.AboutAccount(r.Partition, a.Cluster, a.User))
		if err == nil && changed {
			err = r.Accounts.SealAccount(ctx, a, next)
		}
		switch {
		case err == nil && changed:
			n++
		case err != nil && croft.KindOf(err) != croft.NotFound: // else it was removed meanwhile
			return n, croft.Errorf(croft.KindOf(err), "the account of %s on cluster %s: %w", a.User, a.Cluster, err)
		}
	}
	return n, nil
}

// rewrapValues seals the secret values of one cluster again. Its manager may change the cluster concurrently.
func (r *Registry) rewrapValues(ctx context.Context, id croft.ClusterID, again rewrap) (int, error) {
	for {
		c, err := r.Records.Get(ctx, id)
		if croft.KindOf(err) == croft.NotFound { // forgotten meanwhile
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		n := 0
		for name, v := range c.Sealed {
			next, changed, err := again(v, cluster.AboutValue(r.Partition, c.ID, name))
			if err != nil {
				return 0, err
			}
			if c.Sealed[name] = next; changed {
				n++
			}
		}
		if n == 0 {
			return 0, nil
		}
		if _, err = r.Records.Update(ctx, c, nil); croft.KindOf(err) != croft.Conflict { // else the record was changed
			return n, err
		}
	}
}

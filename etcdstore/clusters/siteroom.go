package clusters

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
)

// errOvertaken reports that a site got another cluster between the check of its room and the write.
var errOvertaken = errors.New("the site took another cluster meanwhile")

// siteRoom holds the comparisons of a record that newly names a site, so that the site does not exceed its limit of
// clusters.
type siteRoom struct {
	used   string // the prefix of the keys of its clusters; empty: the site has no limit
	latest int64  // the revision at which the latest of these keys was created
}

// siteRoom checks the room at the site of a record, if the site differs from the one before. Conflict: the site has
// reached its limit of clusters.
func (s *Records) siteRoom(ctx context.Context, before, c cluster.Cluster) (siteRoom, error) {
	if c.Site == "" || c.Site == before.Site || c.State == cluster.Deleted {
		return siteRoom{}, nil
	}
	k := s.keys()
	site, err := sitesOf(s.conn).Find(ctx, c.Site)
	if errors.Is(err, croft.NotFound) || err == nil && site.MaxClusters == 0 {
		return siteRoom{}, nil // if the site does not exist, the write fails
	}
	if err != nil {
		return siteRoom{}, err
	}
	used := k.used("sites", c.Site)
	got, err := s.conn.Etcd.Get(ctx, used, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return siteRoom{}, s.conn.Wrap(err, "count the clusters of site %s", c.Site)
	}
	if len(got.Kvs) >= site.MaxClusters {
		return siteRoom{}, cluster.SiteFull(site, len(got.Kvs))
	}
	return siteRoom{used: used, latest: latestOf(got.Kvs)}, nil
}

func latestOf(keys []*mvccpb.KeyValue) (latest int64) {
	for _, key := range keys {
		latest = max(latest, key.CreateRevision)
	}
	return latest
}

func (r siteRoom) compares() []clientv3.Cmp {
	if r.used == "" {
		return nil
	}
	return []clientv3.Cmp{kv.NoneSince(r.used, r.latest)}
}

// look returns the read from which overtaken finds out whether the site got another cluster.
func (r siteRoom) look() []clientv3.Op {
	if r.used == "" {
		return nil
	}
	return []clientv3.Op{clientv3.OpGet(r.used, clientv3.WithPrefix(), clientv3.WithKeysOnly())}
}

func (r siteRoom) overtaken(answers []*etcdserverpb.ResponseOp) bool {
	return r.used != "" && latestOf(answers[0].GetResponseRange().Kvs) > r.latest
}

package checkup

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"croft"
	"croft/cloud/direct"
	"croft/doctor"
	"croft/etcdstore"
	"croft/internal/endpoint"
)

// lookEtcd checks the etcd of these settings, if there is one.
func lookEtcd(s direct.EtcdSettings) func(context.Context) doctor.Result {
	return func(ctx context.Context) doctor.Result {
		if !anybodyAt(ctx, s.Endpoints) {
			return doctor.Result{Level: doctor.OK, Found: "nobody is at " + strings.Join(s.Endpoints, ", ") +
				" yet; croft up starts one"}
		}
		store, err := s.Open(ctx, false)
		switch {
		case croft.KindOf(err) == croft.NotFound:
			return doctor.Result{Level: doctor.OK, Found: "it answers, and holds no cloud yet"}
		case err != nil:
			return doctor.Result{Level: doctor.Fail, Found: err.Error()}
		}
		problems := store.Cluster.Problems(ctx)
		unusable := store.Usable(ctx)
		members := namedMembers(ctx, store)
		_ = store.Close() // it was only read
		switch {
		case unusable != nil:
			return doctor.Result{Level: doctor.Fail, Found: unusable.Error()}
		case len(problems) > 0:
			return doctor.Result{Level: doctor.Warn, Found: strings.Join(problems, "; ")}
		}
		return doctor.Result{Level: doctor.OK, Found: "it answers at " + strings.Join(s.Endpoints, ", ") + members}
	}
}

// namedMembers names in a clause the hosts that serve etcd, if there are several.
func namedMembers(ctx context.Context, store *etcdstore.Store) string {
	all, err := store.Cluster.EtcdMembers(ctx)
	if err != nil || len(all) < 2 {
		return "" // what is wrong with etcd is reported elsewhere
	}
	var names []string
	for _, m := range all {
		names = append(names, fmt.Sprintf("%s (%s)", m.Name, m.Role))
	}
	return "; its members are " + strings.Join(names, ", ")
}

// anybodyAt reports whether there may be an etcd at these endpoints: something listens there, or they are on
// other machines, where etcd is expected.
func anybodyAt(ctx context.Context, endpoints []string) bool {
	for _, member := range endpoints {
		u, err := url.Parse(member)
		if err != nil || !endpoint.IsLoopback(u.Host) {
			return true
		}
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", u.Host)
		if err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

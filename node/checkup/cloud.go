package checkup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"croft"
	"croft/compute"
	"croft/control/cloud/direct"
	"croft/etcdstore"
	"croft/internal/checks"
	"croft/internal/endpoint"
	"croft/mdserver"
	"croft/node"
	"croft/node/doctor"
	"croft/node/settings"
	"croft/trust"
)

// lookCloud checks the cloud that gives the host its orders.
func lookCloud(stateDir string, r settings.Reach) checks.Check {
	if !r.Joined.IsStrict() {
		return checks.Check{Name: "etcd", Look: lookEtcd(r.Etcd)}
	}
	return checks.Check{Name: "control", Look: func(ctx context.Context) checks.Result {
		client, err := node.OpenGate(r.Joined, stateDir)
		if err == nil {
			err = errors.Join(client.Usable(ctx), client.Close())
		}
		if err != nil {
			return checks.Result{Level: checks.Fail, Found: err.Error()}
		}
		return checks.Result{Level: checks.OK, Found: "it answers at " + strings.Join(r.Joined.Servers, ", ") +
			", and lets this host in"}
	}}
}

// lookMetadataServer returns the host whose croft serves metadata to the guests. Older programs do not report the host.
func lookMetadataServer(ctx context.Context, stateDir string, r settings.Reach, bridge string, pid int32) (
	doctor.MetadataServer, error) {
	server, err := mdserver.Served(ctx, bridge, mdserver.Address)
	if err != nil {
		return doctor.MetadataServer{}, err
	}
	found := doctor.MetadataServer{Cloud: string(server.Partition)}
	running, runs := compute.Running(stateDir)
	if server.Partition == "" || runs && running.PID == int(pid) {
		found.Ours = true
		return found, nil
	}
	if found.Ours, err = servesCloud(ctx, stateDir, r, server.Partition); err != nil {
		return found, err
	}
	host, _ := os.ReadFile(filepath.Join(stateDir, "host-id")) // missing before the first start
	if id := strings.TrimSpace(string(host)); id != "" && server.Host != "" && string(server.Host) != id {
		found.Sibling = string(server.Host)
	}
	return found, nil
}

// servesCloud reports whether a partition is this host's, if that is known.
func servesCloud(ctx context.Context, stateDir string, r settings.Reach, served croft.PartitionID) (bool, error) {
	j, err := trust.ReadMembership(stateDir)
	if err != nil {
		return false, err
	}
	if j != nil {
		return served == j.Partition, nil
	}
	if !anybodyAt(ctx, r.Etcd.Endpoints) {
		return false, nil
	}
	store, err := r.Etcd.Open(ctx, false)
	if err != nil {
		return false, nil // the check of etcd explains why
	}
	defer store.Close()
	return served == store.Partition(), nil
}

// lookEtcd checks the etcd of these settings, if there is one.
func lookEtcd(s direct.EtcdSettings) func(context.Context) checks.Result {
	return func(ctx context.Context) checks.Result {
		if !anybodyAt(ctx, s.Endpoints) {
			return checks.Result{Level: checks.OK, Found: "nothing answers at " + strings.Join(s.Endpoints, ", ") +
				" yet; croft up starts one"}
		}
		store, err := s.Open(ctx, false)
		switch {
		case croft.KindOf(err) == croft.NotFound:
			return checks.Result{Level: checks.OK, Found: "it answers, and has no cloud yet"}
		case err != nil:
			return checks.Result{Level: checks.Fail, Found: err.Error()}
		}
		problems := store.Cluster.Problems(ctx)
		unusable := store.Usable(ctx)
		members := namedMembers(ctx, store)
		_ = store.Close() // opened only for reading
		switch {
		case unusable != nil:
			return checks.Result{Level: checks.Fail, Found: unusable.Error()}
		case len(problems) > 0:
			return checks.Result{Level: checks.Warn, Found: strings.Join(problems, "; ")}
		}
		return checks.Result{Level: checks.OK, Found: "it answers at " + strings.Join(s.Endpoints, ", ") + members}
	}
}

// lookClocks compares the clock of this machine with the clocks of its cloud's hosts, if there is a cloud.
func lookClocks(s direct.EtcdSettings) func(context.Context) checks.Result {
	return func(ctx context.Context) checks.Result {
		hosts, err := hostsOf(ctx, s)
		switch {
		case err != nil:
			return checks.Result{Level: checks.Warn, Found: "cannot be compared: " + err.Error()}
		case len(hosts) == 0:
			return checks.Good("there are no other hosts yet")
		}
		ahead, now := map[string]time.Duration{}, time.Now()
		for _, h := range hosts {
			ahead[h.Name] = h.ClockDifference(now)
		}
		return doctor.CompareClocks(ahead)
	}
}

// namedMembers returns a clause with the hosts that serve etcd, if there are several.
func namedMembers(ctx context.Context, store *etcdstore.Store) string {
	all, err := store.Cluster.EtcdMembers(ctx)
	if err != nil || len(all) < 2 {
		return "" // another check reports the problem of etcd
	}
	var names []string
	for _, m := range all {
		names = append(names, fmt.Sprintf("%s (%s)", m.Name, m.Role))
	}
	return "; its members are " + strings.Join(names, ", ")
}

// anybodyAt reports whether there may be an etcd at these endpoints: a server listens there, or they are on other
// machines, where etcd is expected.
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

package checkup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"croft/doctor"
	"croft/mdserver"
	"croft/node"
	"croft/node/settings"
	"croft/trust"
)

// lookCloud checks the cloud that gives the host its orders.
func lookCloud(stateDir string, r settings.Reach) doctor.Check {
	if !r.Joined.IsStrict() {
		return doctor.Check{Name: "etcd", Look: lookEtcd(r.Etcd)}
	}
	return doctor.Check{Name: "control", Look: func(ctx context.Context) doctor.Result {
		client, err := node.OpenGate(r.Joined, stateDir)
		if err == nil {
			err = errors.Join(client.Usable(ctx), client.Close())
		}
		if err != nil {
			return doctor.Result{Level: doctor.Fail, Found: err.Error()}
		}
		return doctor.Result{Level: doctor.OK, Found: "it answers at " + strings.Join(r.Joined.Servers, ", ") +
			", and lets this host in"}
	}}
}

// lookMetadataServer returns which cloud's croft serves metadata to the guests, and whether it is this host's
// cloud, if that is known.
func lookMetadataServer(ctx context.Context, stateDir string, r settings.Reach, bridge string, pid int32) (cloud string,
	ours bool, err error) {
	served, err := mdserver.Served(ctx, bridge, mdserver.Address)
	if err != nil {
		return "", false, err
	}
	mine, _ := os.ReadFile(filepath.Join(stateDir, "croft.pid"))
	if served == "" || strings.TrimSpace(string(mine)) == fmt.Sprint(pid) {
		return string(served), true, nil
	}
	j, err := trust.ReadMembership(stateDir)
	if err != nil {
		return "", false, err
	}
	if j != nil {
		return string(served), served == j.Partition, nil
	}
	if !anybodyAt(ctx, r.Etcd.Endpoints) {
		return string(served), false, nil
	}
	store, err := r.Etcd.Open(ctx, false)
	if err != nil {
		return string(served), false, nil // the check of etcd explains why
	}
	defer store.Close()
	return string(served), served == store.Partition(), nil
}

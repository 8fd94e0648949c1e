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

// lookCloud checks what the host gets its orders from.
func lookCloud(s settings.Settings) (doctor.Check, error) {
	j, err := node.BehindGate(&s)
	if err != nil || j == nil {
		return doctor.Check{Name: "etcd", Look: lookEtcd(s.Etcd.EtcdSettings)}, err
	}
	return doctor.Check{Name: "control", Look: func(ctx context.Context) doctor.Finding {
		client, err := node.OpenGate(j, s.StateDir)
		if err == nil {
			err = errors.Join(client.Usable(ctx), client.Close())
		}
		if err != nil {
			return doctor.Finding{Level: doctor.Fail, Found: err.Error()}
		}
		return doctor.Finding{Level: doctor.OK, Found: "it answers at " + strings.Join(j.Servers, ", ") +
			", and lets this host in"}
	}}, nil
}

// lookMetadataServer tells which cloud's croft serves metadata to the guests, and whether
// that is this host's cloud, as far as it can be told.
func lookMetadataServer(ctx context.Context, s *settings.Settings, bridge string, pid int32) (cloud string, ours bool,
	err error) {
	served, err := mdserver.Served(ctx, bridge, mdserver.Address)
	if err != nil {
		return "", false, err
	}
	mine, _ := os.ReadFile(filepath.Join(s.StateDir, "croft.pid"))
	if served == "" || strings.TrimSpace(string(mine)) == fmt.Sprint(pid) {
		return string(served), true, nil
	}
	j, err := trust.ReadMembership(s.StateDir)
	if err != nil {
		return "", false, err
	}
	if j != nil {
		return string(served), served == j.Partition, nil
	}
	if !anybodyAt(ctx, s.Etcd.Endpoints) {
		return string(served), false, nil
	}
	store, err := s.Etcd.Open(ctx, false)
	if err != nil {
		return string(served), false, nil // the line about etcd says why
	}
	defer store.Close()
	return string(served), served == store.Partition(), nil
}

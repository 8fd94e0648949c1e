package hosts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A member is one of the three members of the etcd cluster.
type member struct {
	role    memberRole
	process *process // nil: not running
}

func (w *world) startMembers() {
	w.t.Helper()
	var cluster []string
	for i := range 3 {
		name := fmt.Sprintf("member%d", i)
		m := &member{role: memberRole{
			Name: name, Dir: filepath.Join(w.dir, name),
			Client: "http://" + w.address(1, 2379+10*i), Peer: "http://" + w.address(1, 2380+10*i),
		}}
		if err := os.MkdirAll(m.role.Dir, 0o700); err != nil {
			w.t.Fatal(err)
		}
		cluster = append(cluster, name+"="+m.role.Peer)
		w.members = append(w.members, m)
	}
	for _, m := range w.members {
		m.role.Cluster = strings.Join(cluster, ",")
		w.startMember(m)
	}
	for _, m := range w.members {
		w.waitForMember(m)
	}
}

func (w *world) startMember(m *member) {
	w.t.Helper()
	m.process = w.begin(m.role.Name, w.as(role{Member: &m.role}))
}

// endpoints returns all members' endpoints, separated by commas.
func (w *world) endpoints() string {
	var all []string
	for _, m := range w.members {
		all = append(all, m.role.Client)
	}
	return strings.Join(all, ",")
}

// kill ends a member as a power failure does.
func (m *member) kill() {
	m.process.end(syscall.SIGKILL)
	m.process = nil
}

// signal sends a signal to a running member.
func (m *member) signal(s syscall.Signal) { _ = m.process.cmd.Process.Signal(s) }

// status queries only this member.
func (w *world) status(ctx context.Context, m *member) (*clientv3.StatusResponse, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.role.Client}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Status(ctx, m.role.Client)
}

// waitForMember returns when a member knows the leader.
func (w *world) waitForMember(m *member) {
	w.t.Helper()
	eventually(w.t, m.role.Name+" knows a leader", func(ctx context.Context) error {
		st, err := w.status(ctx, m)
		if err == nil && st.Leader == 0 {
			err = fmt.Errorf("it knows none")
		}
		return err
	})
}

// leader returns the leading member.
func (w *world) leader() *member {
	w.t.Helper()
	for _, m := range w.members {
		if m.process == nil {
			continue
		}
		if st, err := w.status(w.t.Context(), m); err == nil && st.Leader == st.Header.MemberId {
			return m
		}
	}
	w.t.Fatal("no member leads")
	return nil
}

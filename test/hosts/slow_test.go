package hosts

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// TestAMemberThatFellBehindIsTold stops a member, writes through the others, and resumes it while a command queries its
// status: it answers before it has caught up.
func TestAMemberThatFellBehindIsTold(t *testing.T) {
	w := newCenter(t)
	slow := w.members[0]
	if slow == w.leader() {
		slow = w.members[1]
	}
	want := "etcd at " + slow.role.Client + " is slow, "
	eventually(t, "croft host list tells of the slow member", func(ctx context.Context) error {
		slow.signal(syscall.SIGSTOP)
		err := w.write(ctx, slow, 8000)
		wake := time.AfterFunc(time.Second, func() { slow.signal(syscall.SIGCONT) })
		defer wake.Stop()
		r := w.user("croft", "host", "list")
		slow.signal(syscall.SIGCONT)
		if err == nil && !strings.Contains(r.stderr, want) {
			err = fmt.Errorf("it says %v", r)
		}
		return err
	})
	w.waitForMember(slow)
	eventually(t, "it is slow no more", func(context.Context) error {
		if r := w.user("croft", "host", "list"); r.stderr != "" {
			return fmt.Errorf("it says %v", r)
		}
		return nil
	})
}

// write writes a number of times through all members but one.
func (w *world) write(ctx context.Context, but *member, times int) error {
	var endpoints []string
	for _, m := range w.members {
		if m != but {
			endpoints = append(endpoints, m.role.Client)
		}
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(128)
	for i := range times {
		writers.Go(func() error {
			_, err := client.Put(ctx, "/filler", fmt.Sprint(i))
			return err
		})
	}
	return writers.Wait()
}

package trust

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"croft"
)

type servers []JoinServer

func (s servers) JoinServers(context.Context) ([]JoinServer, error) { return s, nil }

func TestAHostLearnsWhereItRenews(t *testing.T) {
	j := &Membership{Partition: croft.NewPartitionID(), Servers: []string{"10.0.0.1:8777"}}
	own := &Credentials{Partition: j.Partition, stateDir: t.TempDir()}
	follow := func(store servers, want ...string) {
		t.Helper()
		if err := j.FollowServers(t.Context(), own, store); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(j.Servers, want) {
			t.Errorf("it renews at %q, want %q", j.Servers, want)
		}
	}
	follow(nil, "10.0.0.1:8777")
	follow(servers{
		{Addresses: []string{"10.0.0.2:8777"}, Trust: Direct},
		{Addresses: []string{"10.0.0.3:8777"}}, // accepts no joins
	}, "10.0.0.2:8777")
	if kept, err := ReadMembership(own.stateDir); err != nil || kept == nil || !slices.Equal(kept.Servers, j.Servers) {
		t.Errorf("kept: %+v, %v", kept, err)
	}
	if got := own.issuer.(*Client).addresses; !slices.Equal(got, j.Servers) {
		t.Errorf("asks %q", got)
	}
}

// The previous version reads only the old name of the servers in joined.yaml; an administrator may write the new one.
func TestWhatWasJoinedIsReadUnderBothNames(t *testing.T) {
	dir := t.TempDir()
	if err := (Membership{Servers: []string{"10.0.0.1:8777"}}).Write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(MembershipFile(dir))
	if err != nil || !strings.Contains(string(text), "control:\n") || strings.Contains(string(text), "join:") {
		t.Errorf("written: %s, %v", text, err)
	}
	renamed := strings.Replace(string(text), "control:", "join:", 1)
	if err := os.WriteFile(MembershipFile(dir), []byte(renamed), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := ReadMembership(dir)
	if err != nil || !slices.Equal(j.Servers, []string{"10.0.0.1:8777"}) || len(j.Join) > 0 {
		t.Errorf("read: %+v, %v", j, err)
	}
}

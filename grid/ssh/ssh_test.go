package ssh_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"croft/grid/machine"
	"croft/grid/machine/machinetest"
	"croft/grid/ssh"
	"croft/grid/ssh/sshtest"
	"croft/internal/testing/patient"
)

func TestMain(m *testing.M) {
	patient.SideBySide(4)
	goleak.VerifyTestMain(m)
}

// dialer makes a Dialer for the user of a grid.
func dialer(t *testing.T, g *sshtest.Grid, change ...func(*ssh.Config)) *ssh.Dialer {
	t.Helper()
	c := ssh.Config{File: g.ConfigFile()}
	for _, f := range change {
		f(&c)
	}
	d := ssh.New(c)
	t.Cleanup(d.Close)
	return d
}

func TestARemoteIsAMachine(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	d := dialer(t, g)
	machinetest.Run(t, func(*testing.T) machine.Machine { return d.Remote(g.Nodes[0].Unit) }, g.Nodes[0].Cut)
}

func TestOneConnectionForAllPrograms(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{HostCA: true})
	r := dialer(t, g).Remote(g.Nodes[0].Unit)
	who := map[string]bool{}
	for range 3 {
		out, err := machine.Output(patient.Context(t), r, nil, "sh", "-c", `echo "$SSH_CONNECTION $HOME $STATE_DIR"`)
		if err != nil {
			t.Fatal(err)
		}
		who[out] = true
	}
	if len(who) != 1 {
		t.Errorf("got %v, want the same connection, home and state each time", who)
	}
	if _, err := os.Stat(g.Nodes[0].Home); err != nil {
		t.Error(err)
	}
}

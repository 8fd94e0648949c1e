package ssh

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"croft/grid/ssh/sshtest"
	"croft/internal/testing/patient"
)

// The kernel closes the control sockets of a process that is killed. Its masters end then, and leave no socket.
func TestAMasterEndsWithItsOwner(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	d := New(Config{File: g.ConfigFile()})
	defer d.Close()
	r := d.Remote(g.Nodes[0].Unit)
	if err := r.Connect(patient.Context(t)); err != nil {
		t.Fatal(err)
	}
	r.conn.monitor.Close()
	patient.Until(t, "the master ends", func() bool {
		return errors.Is(syscall.Kill(r.conn.pid, 0), syscall.ESRCH)
	})
	if _, err := os.Stat(r.conn.socket); err == nil {
		t.Error("its socket is still there")
	}
}

func TestAMasterThatHangsIsKilled(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	d := New(Config{File: g.ConfigFile()})
	r := d.Remote(g.Nodes[0].Unit)
	if err := r.Connect(patient.Context(t)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(r.conn.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	dir := d.dir
	d.Close()
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is still there", dir)
	}
	patient.Until(t, "the master has ended", func() bool {
		return errors.Is(syscall.Kill(r.conn.pid, 0), syscall.ESRCH)
	})
}

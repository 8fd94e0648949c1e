// Package e2e runs croft as its users do: the built program as a process of its
// own, libvirt and emulated guests for real, and looks from outside, with virsh,
// HTTP and etcd's own client, at what it did and what it left behind.
package e2e

import (
	"os"
	"testing"

	"croft/internal/testing/built"
)

// What TestMain makes once for all tests. The programs have the race detector in them; a race ends up in the log, which
// every test looks at.
var (
	repository string // its root
	binaries   string // directory with croft and its other names
	guestImage string // the small guest
	command    func(name string, args ...string) error
)

func TestMain(m *testing.M) {
	c := built.Config{Name: "e2e", Prefix: ownPrefix(), Race: true, Names: []string{"schedule", "compute", "mdserver"},
		Guest: true, End: endShared}
	os.Exit(built.Run(m, c, func(made built.Made) {
		repository, binaries, guestImage, command = made.Repository, made.Binaries, made.Guest, made.Command
	}))
}

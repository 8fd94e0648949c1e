package e2e

import (
	"os"
	"testing"

	"croft/internal/testing/built"
	"croft/internal/testing/patient"
)

// Set by TestMain for all tests. The programs are built with the race detector; a race is written to the log, which
// every test checks.
var (
	repository string // its root directory
	binaries   string // directory with croft and its other names
	guestImage string // the small guest
	command    func(name string, args ...string) error
)

func TestMain(m *testing.M) {
	patient.SideBySide(3)
	c := built.Config{Name: "e2e", Prefix: ownPrefix(), Race: true, Names: []string{"schedule", "compute", "mdserver"},
		Guest: true, End: endShared}
	os.Exit(built.Run(m, c, func(made built.Made) {
		repository, binaries, guestImage, command = made.Repository, made.Binaries, made.Guest, made.Command
	}))
}

package hosts

import (
	"fmt"
	"os"
	"testing"

	"croft/internal/testing/built"
)

// Set by TestMain for all tests.
var (
	binaries   string // directory with croft and schedule
	guestImage string // the small guest
)

func TestMain(m *testing.M) {
	if text := os.Getenv(roleEnv); text != "" {
		if err := play(text); err != nil {
			fmt.Fprintln(os.Stderr, "hosts:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(built.Run(m, built.Config{Name: "hosts", Race: true, Names: []string{"schedule"}, Guest: true},
		func(made built.Made) {
			binaries, guestImage = made.Binaries, made.Guest
		}))
}

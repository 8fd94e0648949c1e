// Package built builds the programs and the guest image that whole-system tests run.
package built

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"go.uber.org/goleak"
)

// Config selects what a package's tests run, and the name under which they report.
type Config struct {
	Name   string // required; the directory below test/
	Prefix string // of the temporary directory; croft-NAME- by default
	Race   bool   // build with the race detector where CROFT_RACE is set: it takes most of the processor otherwise
	Names  []string
	Guest  bool         // also provide the small guest: CROFT_TEST_GUEST, or a new one
	End    func() error // called after the tests; may be nil
}

// Made contains the paths that exist while the tests run.
type Made struct {
	Repository string // root of the repository
	Binaries   string // directory with croft, and with links named Names to it
	Guest      string // path of the image; empty without Guest
}

// Run builds the programs and the guest, passes their paths to use, runs the tests, checks for leaked goroutines, and
// returns the exit code.
func Run(m interface{ Run() int }, c Config, use func(Made)) int {
	code, err := run(m, c, use)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.Name, err)
		return max(code, 1)
	}
	return code
}

func run(m interface{ Run() int }, c Config, use func(Made)) (int, error) {
	if c.Prefix == "" {
		c.Prefix = "croft-" + c.Name + "-"
	}
	dir, err := os.MkdirTemp("", c.Prefix+"bin-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	made := Made{Binaries: dir}
	if made.Repository, err = filepath.Abs("../.."); err != nil {
		return 1, err
	}
	if err := made.programs(c); err != nil {
		return 1, err
	}
	if c.Guest {
		if made.Guest, err = made.guest(); err != nil {
			return 1, err
		}
	}
	use(made)
	code := m.Run()
	if c.End != nil {
		if err := c.End(); err != nil {
			return 1, err
		}
	}
	if code == 0 {
		err = goleak.Find()
	}
	return code, err
}

func (m Made) programs(c Config) error {
	args := []string{"build", "-tags", "libvirt_dlopen", "-ldflags=-s -w", "-o", filepath.Join(m.Binaries, "croft")}
	if c.Race && os.Getenv("CROFT_RACE") != "" {
		args = append(args, "-race")
	}
	if err := m.Command("go", append(args, "./cmd/croft")...); err != nil {
		return err
	}
	for _, name := range c.Names {
		if err := os.Symlink("croft", filepath.Join(m.Binaries, name)); err != nil {
			return err
		}
	}
	return nil
}

func (m Made) guest() (string, error) {
	if image := os.Getenv("CROFT_TEST_GUEST"); image != "" {
		return filepath.Abs(image)
	}
	image := filepath.Join(m.Binaries, "tiny.qcow2")
	return image, m.Command("scripts/guest/build", image)
}

// Command runs a program in the repository's root.
func (m Made) Command(name string, args ...string) error {
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Dir = m.Repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"croft/internal/checks"
	"croft/internal/wording"
)

const gib = 1 << 30

// Below these limits, a host runs no guest (least) or few (little).
const (
	leastDisk    = 2 * gib
	littleDisk   = 10 * gib
	leastMemory  = gib / 4
	littleMemory = gib
	// littleClockError: leases and certificates tolerate more, but people who compare the logs of two hosts do not.
	littleClockError = time.Second
)

// lookState checks that the state directory is writable and, if QEMU runs as another user, that this user can
// reach the disks in it.
func (c Config) lookState(p Probes) look {
	return func(context.Context) checks.Result {
		dir, err := nearestDir(p, c.StateDir)
		if err != nil {
			return checks.Failure(fmt.Sprintf("state directory %s: %v", c.StateDir, err),
				"name a directory with --state-dir")
		}
		if err := p.Writable(dir); err != nil {
			return checks.Failure(fmt.Sprintf("%s cannot be written: %v", dir, err),
				"run as root, or name another directory with --state-dir")
		}
		if c.Libvirt {
			if closed := closedAbove(p, dir); closed != "" {
				return checks.Failure(closed+" is closed to others, so that libvirt's QEMU cannot reach the disks below it",
					"chmod o+x "+closed+", or name another directory with --state-dir")
			}
		}
		if dir != c.StateDir {
			return checks.Good(c.StateDir + " will be made")
		}
		return checks.Good(dir)
	}
}

// nearestDir returns dir or its nearest existing ancestor.
func nearestDir(p Probes, dir string) (string, error) {
	for {
		f, err := p.File(dir)
		switch {
		case err == nil && f.Mode.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%s is not a directory", dir)
		case !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir):
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}

// closedAbove returns the outermost directory on the path to dir, including dir, that other users may not
// traverse; empty: none.
func closedAbove(p Probes, dir string) string {
	closed := ""
	for {
		if f, err := p.File(dir); err == nil && f.Mode.Perm()&0o001 == 0 {
			closed = dir
		}
		if dir == filepath.Dir(dir) {
			return closed
		}
		dir = filepath.Dir(dir)
	}
}

func lookDisk(p Probes, stateDir string) look {
	return func(context.Context) checks.Result {
		dir, err := nearestDir(p, stateDir)
		if err != nil {
			return checks.Failure(fmt.Sprintf("state directory %s: %v", stateDir, err),
				"name a directory with --state-dir")
		}
		free, err := p.DiskFree(dir)
		if err != nil {
			return checks.Failure(fmt.Sprintf("room at %s: %v", dir, err), "name a directory with --state-dir")
		}
		return measure(free, leastDisk, littleDisk, "free at "+dir,
			"make room, or name a directory on another disk with --state-dir")
	}
}

func lookMemory(p Probes) look {
	return func(ctx context.Context) checks.Result {
		available, total, err := p.Memory(ctx)
		if err != nil {
			return checks.Failure("memory: "+err.Error(), "mount /proc")
		}
		return measure(available, leastMemory, littleMemory,
			fmt.Sprintf("available of %s", size(total)), "end the programs that use it, or offer less with "+
				"memory.reserved")
	}
}

func measure(have, least, little uint64, what, do string) checks.Result {
	found := size(have) + " " + what
	switch {
	case have < least:
		return checks.Failure(found, do)
	case have < little:
		return checks.Warning(found, do)
	}
	return checks.Good(found)
}

func size(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/gib) }

// CompareClocks evaluates by how much the clocks of living hosts, by name, are ahead of the clock of this machine.
func CompareClocks(ahead map[string]time.Duration) checks.Result {
	var far []string
	for host, d := range ahead {
		switch d = d.Round(time.Second); {
		case d >= time.Minute:
			far = append(far, fmt.Sprintf("%s is at least %s ahead", host, wording.Duration(d)))
		case d <= -time.Minute:
			far = append(far, fmt.Sprintf("%s is at least %s behind", host, wording.Duration(-d)))
		}
	}
	if len(far) == 0 {
		return checks.Good("the clocks of all living hosts agree with this one, to a minute or two")
	}
	slices.Sort(far)
	const shown = 5
	if len(far) > shown {
		far = append(far[:shown], fmt.Sprintf("and %d others", len(far)-shown))
	}
	return checks.Warning("compared with this machine's clock, that of "+strings.Join(far, ", that of "),
		"set the clocks, for example with chrony; while they differ by ten minutes nothing expires")
}

func lookClock(p Probes) look {
	const do = "install chrony or systemd-timesyncd; one host alone can do without"
	return func(context.Context) checks.Result {
		c, err := p.Clock()
		switch {
		case err != nil:
			return checks.Warning("ask the kernel about the clock: "+err.Error(), do)
		case !c.Synchronised:
			return checks.Warning("no time service sets the clock", do)
		case c.MaxError > littleClockError:
			return checks.Warning(fmt.Sprintf("the clock may be wrong by %v",
				wording.Exact(c.MaxError.Round(time.Millisecond))), do)
		}
		return checks.Good(fmt.Sprintf("synchronised, wrong by at most %v",
			wording.Exact(c.MaxError.Round(time.Millisecond))))
	}
}

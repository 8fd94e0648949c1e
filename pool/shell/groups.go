package shell

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"croft/pool"
)

// groups makes a control group (cgroup v2) for each hook, below this process's own group. A process cannot leave it by
// clearing its environment or by setsid, so all processes of a hook can be ended. If this process has no permission to
// make control groups, hooks run without one.
type groups struct {
	dir    string // of the groups; empty: hooks run without groups
	former string // of the previous server's groups; empty: unknown
}

// openGroups reads from the state directory where the previous server had its groups, and records the location of this
// server's groups.
func openGroups(state, identity string) *groups {
	file := filepath.Join(state, "cgroup")
	former, _ := os.ReadFile(file) // missing for the first server here
	g := &groups{former: string(former)}
	own := ownGroup()
	if own == "" {
		return g
	}
	g.dir = filepath.Join(own, "croft-hooks-"+identity)
	if err := os.Mkdir(g.dir, 0o755); err != nil && !os.IsExist(err) || !g.work() ||
		os.WriteFile(file, []byte(g.dir), 0o600) != nil {
		_ = os.Remove(g.dir) // either it was not made, or it is empty
		g.dir = ""
	}
	return g
}

// work reports whether the kernel starts processes in groups and can kill them: since Linux 5.14, unless a filter of
// system calls forbids it.
func (g *groups) work() bool {
	one := g.open(pool.Hook{Kind: "try"})
	defer one.close()
	cmd := exec.Command("/bin/sh", "-c", ":")
	one.hold(cmd)
	return one.file != nil && cmd.Run() == nil && one.end() == nil
}

// close removes the empty groups. A group that is not empty holds processes of a resource.
func (g *groups) close() {
	if g.dir != "" {
		g.tidy("*")
		_ = os.Remove(g.dir)
	}
}

// tidy removes the empty groups whose names match a pattern.
func (g *groups) tidy(pattern string) {
	if g.dir == "" {
		return
	}
	dirs, _ := filepath.Glob(filepath.Join(g.dir, pattern)) // the pattern is valid
	for _, dir := range dirs {
		_ = os.Remove(dir) // EBUSY: a process is in it
	}
}

// forget removes the empty groups of a resource.
func (g *groups) forget(id pool.ResourceID) { g.tidy(fmt.Sprintf("%d-*", id)) }

// open makes the group of a hook.
func (g *groups) open(h pool.Hook) *group {
	if g.dir == "" {
		return &group{}
	}
	dir := filepath.Join(g.dir, fmt.Sprintf("%d-%s-%016x", h.Resource, h.Kind, rand.Uint64()))
	if os.Mkdir(dir, 0o755) != nil {
		return &group{} // run the hook without a control group
	}
	file, err := os.Open(dir)
	if err != nil {
		_ = os.Remove(dir)
		return &group{}
	}
	return &group{dir, file}
}

// sweep ends the processes in the selected groups of this or the previous server.
func (g *groups) sweep(those func(pool.HookKind, pool.ResourceID) bool) error {
	for _, parent := range slices.Compact([]string{g.former, g.dir}) {
		if parent == "" {
			continue
		}
		dirs, _ := filepath.Glob(filepath.Join(parent, "*-*-*")) // the pattern is valid
		for _, dir := range dirs {
			part := strings.Split(filepath.Base(dir), "-")
			id, err := strconv.ParseInt(part[0], 10, 64)
			if err != nil || !those(pool.HookKind(part[1]), pool.ResourceID(id)) {
				continue
			}
			if err := (&group{dir: dir}).end(); err != nil {
				return err
			}
		}
	}
	return nil
}

// group is the control group of one hook. The zero group has no control group.
type group struct {
	dir  string
	file *os.File
}

// hold makes a command start in the group.
func (g *group) hold(cmd *exec.Cmd) {
	if g.file == nil {
		return
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(g.file.Fd())
}

// end kills all processes in the group, and returns once they have ended.
func (g *group) end() error {
	if g.dir == "" {
		return nil
	}
	for deadline := time.Now().Add(sweepTime); ; time.Sleep(5 * time.Millisecond) {
		if err := os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0); os.IsNotExist(err) {
			return nil // the group was removed
		} else if err != nil {
			return fmt.Errorf("end the processes of a hook: %w", err)
		}
		text, err := os.ReadFile(filepath.Join(g.dir, "cgroup.events"))
		if err == nil && !strings.Contains(string(text), "populated 1") {
			_ = os.Remove(g.dir)
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the processes of a hook cannot be ended: they are in %s", g.dir)
		}
	}
}

// close removes the group if it is empty.
func (g *group) close() {
	if g.file != nil {
		_ = g.file.Close()
		_ = os.Remove(g.dir)
	}
}

// ownGroup returns the directory of this process's control group (v2); empty: it has none.
func ownGroup() string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if path, v2 := strings.CutPrefix(strings.TrimSpace(line), "0::"); v2 {
			return groupAt(path)
		}
	}
	return ""
}

// groupAt returns the directory of a control group (v2) in the mounted file systems; empty: no mounted file system has
// it.
func groupAt(path string) string {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		mount, fs, _ := strings.Cut(lines.Text(), " - ")
		field := strings.Fields(mount)
		if len(field) < 5 || !strings.HasPrefix(fs, "cgroup2 ") {
			continue
		}
		root := field[3]
		if below, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(below) {
			return filepath.Join(field[4], below)
		}
	}
	return ""
}

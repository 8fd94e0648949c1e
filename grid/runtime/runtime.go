// Package runtime runs units on machines: with podman, docker, systemd-nspawn, runc or systemd, as plain processes, or
// as virtual machines of libvirt.
//
// A runtime is a hard point: a file that defines which programs create, start, stop and list units. Each method is one
// script for a POSIX shell, which first asks the runtime about the existing unit. So every method can be repeated,
// objects without a mark of the cluster stay untouched, and one call costs one round trip. The shell reads a script
// from its standard input, so the content of a unit's files is never an argument of a program. A script is one
// function, so a script that a broken connection cut off does nothing.
package runtime

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"croft"
	"croft/grid/hardpoint"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/unit"
)

//go:embed points/*.yaml
var points embed.FS

// Verbs are what a hard point of the kind runtime may define.
var Verbs = []string{"probe", "prepare", "send", "create", "start", "stop", "remove", "status", "list", "ready", "logs",
	"exec", "adopt"}

// needed are the verbs that every runtime defines.
var needed = []string{"probe", "prepare", "create", "start", "stop", "remove", "status", "list"}

// Config is the configuration from which runtimes are opened.
type Config struct {
	// Repository is the cluster's directory, with hardpoints/runtime/NAME.yaml and the archives of images. nil: there
	// are none.
	Repository fs.FS

	// StateDir is the directory of units on the nodes: an absolute path of letters, digits and the characters /._-
	// only. An empty path means /var/lib/croft/grid for root, and croft/grid in the user's state directory
	// ($XDG_STATE_HOME, ~/.local/state) for other users.
	StateDir string
}

func (c Config) library() hardpoint.Library {
	shipped, err := fs.Sub(points, "points")
	if err != nil {
		panic(err) // the directory is embedded
	}
	return hardpoint.Library{Kind: "runtime", Verbs: Verbs, Shipped: shipped, Repository: c.Repository}
}

// Names lists the runtimes that ship with croft, and the ones in the repository.
func (c Config) Names() ([]string, error) { return c.library().Names() }

// A Runtime runs units. It may be used by several goroutines.
type Runtime struct {
	config     Config
	point      *hardpoint.Point
	definition string // digest of the repository's file about how units are made; shippedOnly: no such file
}

// shippedOnly is the definition of units whose runtime has no file in the repository.
const shippedOnly = "-"

// apart lists the keys of a runtime's file that do not affect how units are made.
var apart = []string{"about", "cannot", "probe", "stop", "remove", "status", "list", "ready", "logs", "exec", "adopt"}

// Open loads a runtime by its name. NotFound, Invalid.
func (c Config) Open(name string) (*Runtime, error) {
	if c.StateDir != "" && (!strings.HasPrefix(c.StateDir, "/") || strings.Trim(c.StateDir, plainPath) != "") {
		return nil, croft.Errorf(croft.Invalid,
			"state directory %q: an absolute path of letters, digits and /._- is wanted",
			c.StateDir)
	}
	p, err := c.library().Load(name)
	if err != nil {
		return nil, err
	}
	for _, verb := range needed {
		if !p.Has(verb) {
			return nil, croft.Errorf(croft.Invalid, "%s: the runtime %s lacks the verb %s", p.From, name, verb)
		}
	}
	return &Runtime{config: c, point: p, definition: cmp.Or(p.Digest(apart...), shippedOnly)}, nil
}

const plainPath = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"

// Name returns the runtime's name.
func (r *Runtime) Name() string { return r.point.Name }

// About returns a description of the runtime in one line.
func (r *Runtime) About() string { return r.point.About }

// Lacks reports whether the runtime does not support a feature. Features are named as in the key cannot of its file.
func (r *Runtime) Lacks(feature string) bool {
	_, lacks := r.point.Cannot[feature]
	return lacks
}

// Executes reports whether the runtime can run programs in its units.
func (r *Runtime) Executes() bool { return r.point.Has("exec") }

// Probe checks that the runtime works on a machine, and returns its version. Unavailable: it does not work.
func (r *Runtime) Probe(ctx context.Context, m machine.Machine) (string, error) {
	out, err := r.run(ctx, m, "probe", unit.Unit{}, needsProgram+`verb_probe`)
	first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return first, err
}

// Prepare makes the image of a unit ready. It sends an archive from the repository if the machine lacks it.
func (r *Runtime) Prepare(ctx context.Context, m machine.Machine, u unit.Unit) error {
	if err := r.check(u); err != nil {
		return err
	}
	_, err := r.run(ctx, m, "prepare", u, needsProgram+prepareScript)
	if !isAbsent(err) {
		return err
	}
	if err := r.send(ctx, m, u); err != nil {
		return err
	}
	if _, err = r.run(ctx, m, "prepare", u, prepareScript); isAbsent(err) {
		return croft.Errorf(croft.Unavailable, "%s prepare: the image %s was sent, but is missing", r.Name(),
			u.Image.Archive)
	}
	return err
}

// Create makes the unit, with its files and its hash. Conflict: a unit of the same name has another hash, or an object
// of this name is not of the unit's cluster.
func (r *Runtime) Create(ctx context.Context, m machine.Machine, u unit.Unit) error {
	if err := r.check(u); err != nil {
		return err
	}
	_, err := r.run(ctx, m, "create", u, needsProgram+createScript)
	return err
}

// Start starts a unit that was created. NotFound: the unit does not exist.
func (r *Runtime) Start(ctx context.Context, m machine.Machine, u unit.Unit) error {
	_, err := r.run(ctx, m, "start", u, needsProgram+startScript)
	return err
}

// Stop stops a unit. When it returns nil, no process of the unit runs. A unit that does not exist counts as stopped.
func (r *Runtime) Stop(ctx context.Context, m machine.Machine, u unit.Unit) error {
	_, err := r.run(ctx, m, "stop", u, needsProgram+stopScript)
	return err
}

// Remove removes a stopped unit, and the files that were made for it. Conflict: the unit runs.
func (r *Runtime) Remove(ctx context.Context, m machine.Machine, u unit.Unit) error {
	_, err := r.run(ctx, m, "remove", u, needsProgram+removeScript)
	return err
}

// List lists the units of a cluster that this runtime has on a machine, sorted by name. A machine without the runtime's
// program has none.
func (r *Runtime) List(ctx context.Context, m machine.Machine, cluster string) ([]plan.Actual, error) {
	out, err := r.run(ctx, m, "list", unit.Unit{Cluster: cluster}, listScript)
	if err != nil {
		return nil, err
	}
	return r.parse(out, cluster)
}

// Status returns the state of one unit. NotFound: the unit does not exist. Conflict: an object of this name is not of
// the unit's cluster.
func (r *Runtime) Status(ctx context.Context, m machine.Machine, u unit.Unit) (plan.Actual, error) {
	out, err := r.run(ctx, m, "status", u, needsProgram+statusScript)
	if err != nil {
		return plan.Actual{}, err
	}
	list, err := r.parse(out, u.Cluster)
	if err == nil && len(list) != 1 {
		err = croft.Errorf(croft.Unavailable, "%s status: %.100q is not one line about %s", r.Name(), out, u.Name())
	}
	if err != nil {
		return plan.Actual{}, err
	}
	return list[0], nil
}

// Ready checks once whether a started unit runs and reports itself ready. It returns the reason if the unit is not
// ready, and "" if it is. NotFound: the unit does not run.
func (r *Runtime) Ready(ctx context.Context, m machine.Machine, u unit.Unit) (string, error) {
	script := readyScript
	if r.point.Has("ready") {
		script += "verb_ready"
	}
	out, err := r.run(ctx, m, "ready", u, needsProgram+script)
	if isAbsent(err) {
		return "", croft.Errorf(croft.NotFound, "%s", strings.TrimSpace(out))
	}
	if isNo(err) {
		err = nil
	} else if err == nil {
		out = ""
	}
	return strings.TrimSpace(out), err
}

// Undo returns a POSIX shell script, undo, that reverts a change on the node: it stops and removes the unit now, and
// then creates and starts the unit before. Either unit may be nil. The script exits with 0 if all of that succeeded. If
// files of before are Kept, Undo also returns a script keep, which must run before the change. It copies these files
// into the directory $kept, from which undo reads them, and exits with 71 if the unit on the node is not the one that
// was applied. Conflict: this runtime cannot restore the unit.
func (r *Runtime) Undo(before, now *unit.Unit) (keep, undo string, err error) {
	if before != nil && before.Kept() {
		if before.VM != nil {
			return "", "", croft.Errorf(croft.Conflict, "the former secrets of %s are on a disk of the machine, which cannot be "+
				"made again without them: take confirm out of the job for one apply", before.Name())
		}
		if keep, err = r.script(verbsOf(keepScript), *before, needsProgram+keepScript); err != nil {
			return "", "", fmt.Errorf("keep the secrets of %s: %w", before.Name(), err)
		}
	}
	undo, err = r.undo(before, now)
	return keep, undo, err
}

func (r *Runtime) undo(before, now *unit.Unit) (string, error) {
	var all strings.Builder
	for _, step := range []struct {
		u       *unit.Unit
		verb    string
		scripts []string
	}{
		{now, "remove", []string{stopScript, removeScript}},
		{before, "create", []string{prepareScript, createScript, startScript}},
	} {
		if step.u == nil {
			continue
		}
		for _, body := range step.scripts {
			text, err := r.script(verbsOf(body), *step.u, needsProgram+body)
			if err != nil {
				return "", fmt.Errorf("undo: %s %s: %w", r.Name(), step.u.Name(), err)
			}
			fmt.Fprintf(&all, "(\n%s\n) || exit\n", text)
		}
	}
	return all.String(), nil
}

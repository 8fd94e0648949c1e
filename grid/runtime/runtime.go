// Package runtime runs units on machines: by podman, docker, systemd-nspawn, runc, systemd, as plain processes, or as
// virtual machines of libvirt.
//
// A runtime is a hard point: a file that says which programs create, start, stop and list what a unit is. Each method
// is
// one script for a POSIX shell that first asks the runtime what is there, so every method can be repeated, nothing that
// carries no mark of the cluster is touched, and one call costs one round trip. Scripts are the input of the shell, so
// nothing of a unit's files is ever an argument of a program; and they are one function, so that half a script, of a
// connection that broke, does nothing.
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

// Config says where runtimes come from.
type Config struct {
	// Repository is the cluster's directory: hardpoints/runtime/NAME.yaml, and the archives of images. nil: neither.
	Repository fs.FS

	// StateDir is where units are kept on the nodes: an absolute path of letters, digits and /._- "":
	// /var/lib/croft/grid
	// for root, and croft/grid in the user's state directory ($XDG_STATE_HOME, ~/.local/state) for others.
	StateDir string
}

func (c Config) library() hardpoint.Library {
	shipped, err := fs.Sub(points, "points")
	if err != nil {
		panic(err) // it is embedded
	}
	return hardpoint.Library{Kind: "runtime", Verbs: Verbs, Shipped: shipped, Repository: c.Repository}
}

// Names lists the runtimes: those that croft brings, and those of the repository.
func (c Config) Names() ([]string, error) { return c.library().Names() }

// A Runtime runs units. It may be used by several goroutines.
type Runtime struct {
	config     Config
	point      *hardpoint.Point
	definition string // what the repository says of how units are made; shippedOnly: nothing
}

// shippedOnly is noted of units of which the repository defines nothing.
const shippedOnly = "-"

// apart are the keys of a runtime's file that do not change what a unit is made of.
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

// Name is the runtime's name.
func (r *Runtime) Name() string { return r.point.Name }

// About is one line about the runtime.
func (r *Runtime) About() string { return r.point.About }

// Lacks reports whether the runtime cannot do what a feature names, as its file does in cannot.
func (r *Runtime) Lacks(feature string) bool {
	_, lacks := r.point.Cannot[feature]
	return lacks
}

// Executes reports whether programs can be run in its units.
func (r *Runtime) Executes() bool { return r.point.Has("exec") }

// Probe asks whether the runtime works on a machine, and for its version. Unavailable: it does not.
func (r *Runtime) Probe(ctx context.Context, m machine.Machine) (string, error) {
	out, err := r.run(ctx, m, "probe", unit.Unit{}, needsProgram+`verb_probe`)
	first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return first, err
}

// Prepare makes the image ready, and sends an archive of the repository that the machine lacks.
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
		return croft.Errorf(croft.Unavailable, "%s prepare: the image %s was sent, and is not there", r.Name(),
			u.Image.Archive)
	}
	return err
}

// Create makes the unit, with its files and its hash. A unit of the same name and another hash is Conflict, and so is
// something that is not of the unit's cluster.
func (r *Runtime) Create(ctx context.Context, m machine.Machine, u unit.Unit) error {
	if err := r.check(u); err != nil {
		return err
	}
	_, err := r.run(ctx, m, "create", u, needsProgram+createScript)
	return err
}

// Start starts a unit that was created. NotFound: it was not.
func (r *Runtime) Start(ctx context.Context, m machine.Machine, u unit.Unit) error {
	_, err := r.run(ctx, m, "start", u, needsProgram+startScript)
	return err
}

// Stop stops a unit; when it returns nil, nothing of the unit runs. One that does not exist is stopped.
func (r *Runtime) Stop(ctx context.Context, m machine.Machine, u unit.Unit) error {
	_, err := r.run(ctx, m, "stop", u, needsProgram+stopScript)
	return err
}

// Remove removes a stopped unit, and the files that were made for it. Conflict: it runs.
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

// Status asks for one unit. NotFound: there is none. Conflict: the name is a stranger's.
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

// Ready asks once whether a unit that was started runs, and says of itself that it works: a reason if not, "" if so.
// NotFound: it does not run.
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

// Undo returns a script for a POSIX shell on the node that takes a change back: it stops and removes now, and then
// creates and starts before. Either may be nil. It ends with exit code 0 if all of that was done. Where files of before
// are Kept there is a script, keep, to be run before the change: it copies them into the directory $kept, in which undo
// finds them, and ends with 71 if they are not there as they were applied. Conflict: this runtime cannot.
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

package runtime

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"croft"
	"croft/grid/hardpoint"
	"croft/grid/machine"
	"croft/grid/unit"
)

// Logs writes the last lines of a unit's output. NotFound: the unit does not exist.
func (r *Runtime) Logs(ctx context.Context, m machine.Machine, u unit.Unit, lines int, w io.Writer) error {
	if _, err := r.Status(ctx, m, u); err != nil {
		return err
	}
	return r.pass(ctx, m, u, "logs", hardpoint.Values{"lines": strconv.Itoa(lines)}, nil, w, w)
}

// Exec runs a program inside a unit. If the program exits with a code other than 0, the error is a *machine.Exit.
// Invalid: the runtime cannot run programs in units. NotFound: the unit does not exist.
func (r *Runtime) Exec(ctx context.Context, m machine.Machine, u unit.Unit, argv []string, stdin io.Reader, stdout,
	stderr io.Writer) error {
	if len(argv) == 0 {
		return croft.Errorf(croft.Invalid, "%s exec %s: which program?", r.Name(), u.Name())
	}
	if !r.point.Has("exec") {
		return croft.Errorf(croft.Invalid, "%s exec %s: this runtime has no way in: log in over the network", r.Name(),
			u.Name())
	}
	if err := hardpoint.Plain(argv...); err != nil {
		return fmt.Errorf("%s exec %s: %w", r.Name(), u.Name(), err)
	}
	if _, err := r.Status(ctx, m, u); err != nil {
		return err
	}
	return r.pass(ctx, m, u, "exec", hardpoint.Values{"words": argv, "interactive": stdin != nil}, stdin, stdout,
		stderr)
}

// pass runs a verb with the caller's streams. The script is an argument of the shell, because the standard input is the
// caller's.
func (r *Runtime) pass(ctx context.Context, m machine.Machine, u unit.Unit, verb string, more hardpoint.Values,
	stdin io.Reader, stdout, stderr io.Writer) error {
	v, err := r.values(u)
	if err != nil {
		return err
	}
	for name, value := range more {
		v[name] = value
	}
	text, err := r.point.Shell(verb, v)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("home=" + machine.Quote(r.config.StateDir) + " name=" + machine.Quote(u.Name()) + "\n" + prelude +
		"umask 022\nverb() {\n" + text + "}\nverb\n")
	p, err := m.Start(ctx, machine.Command{Argv: []string{"sh", "-c", b.String()}, Stdin: stdin, Stdout: stdout,
		Stderr: stderr})
	if err != nil {
		return fmt.Errorf("%s %s %s: %w", r.Name(), verb, u.Name(), err)
	}
	return p.Wait()
}

// Adopt turns an existing object of the runtime into the unit. The object gets the unit's name, and from then on is
// listed with the unit's hash, stopped and removed as the unit. It is not restarted or otherwise changed. Invalid: the
// runtime does not support this. Conflict: another object has the unit's name.
func (r *Runtime) Adopt(ctx context.Context, m machine.Machine, u unit.Unit, existing string) error {
	if !r.point.Has("adopt") {
		return croft.Errorf(croft.Invalid, "adopt %s: the runtime %s cannot mark an existing unit", existing,
			r.Name())
	}
	if err := hardpoint.Plain(existing); err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	taken := ""
	if existing != u.Name() {
		taken = look + `
[ -z "$found" ] || { echo "$name is there already" >&2; exit 71; }`
	}
	_, err := r.runWith(ctx, m, "adopt", u, needsProgram+taken+`
mkdir -p "$dir" || fail adopt 1
verb_adopt; try adopt $?`, hardpoint.Values{"existing": existing})
	return err
}

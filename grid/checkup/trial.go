package checkup

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/grid/runtime"
	"croft/grid/unit"
	"croft/internal/checks"
	"croft/internal/wording"
)

// trialTime limits how long a runtime may take to run a trivial unit, and again to remove it.
const trialTime = time.Minute

// tryRuntime starts a trivial unit with a runtime that has answered, and removes the unit. probed is the output of
// probe.
func (n Node) tryRuntime(ctx context.Context, r *runtime.Runtime, version, probed string) checks.Result {
	named := r.Name() + " " + version
	rooted := r.Lacks("plain")
	if rooted && r.Lacks("rootfs") {
		return checks.Good(fmt.Sprintf("%s answers; no unit was tried, since it needs an image: "+
			"croft grid doctor runtime %s --node %s --image REFERENCE does that", named, r.Name(), n.Name))
	}
	if r.Lacks("novm") {
		return checks.Good(fmt.Sprintf("%s answers; no machine was tried, since it needs an image: "+
			"croft grid doctor runtime %s --node %s --vm-image FILE does that", named, r.Name(), n.Name))
	}
	if err := n.runTrial(ctx, r, rooted); err != nil {
		err = fmt.Errorf("%s answers, and cannot run units: %s", named, strings.Join(strings.Fields(err.Error()), " "))
		return checks.Failure(err.Error(), remedy(r.Name(), probed))
	}
	return checks.Good(named + " ran a unit, and removed it")
}

// remedy says how to repair a runtime that cannot run units.
func remedy(name, probed string) string {
	says := func(line string) bool { return strings.Contains("\n"+probed, "\n"+line+"\n") }
	switch {
	case (name == "quadlet" || strings.HasPrefix(name, "systemd-")) && !says("init=systemd"):
		return "systemd is not the init there: give its jobs another runtime, such as podman or process"
	case !says("uid=0") && name == "process":
		return "log in as root, or set unshare of the runtime to [unshare, --map-root-user]"
	case !says("uid=0"):
		return "log in as root, or give its jobs another runtime"
	}
	return "fix that on the node, or give its jobs another runtime"
}

// runTrial starts a unit, runs a program inside it, and removes the unit, so that nothing remains on the node.
func (n Node) runTrial(ctx context.Context, r *runtime.Runtime, rooted bool) (err error) {
	var word [4]byte
	_, _ = rand.Read(word[:]) // never fails
	u := unit.Unit{Cluster: n.Cluster, Job: "doctor-" + hex.EncodeToString(word[:]), Runtime: r.Name(),
		Command: []string{"sh", "-c", `trap "exit 0" TERM; while :; do sleep 1; done`},
		Options: map[string]string{"stop_seconds": "5"}}
	place := "home=" + machine.Quote(n.StateDir) + " job=" + u.Job + "\n" + trialPlace
	root, err := n.script(ctx, place+trialRoot, rooted)
	if err != nil {
		return fmt.Errorf("make a root directory: %w", err)
	}
	if rooted {
		u.Image.Rootfs = strings.TrimSpace(root)
	}
	defer func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), trialTime)
		defer cancel()
		left := errors.Join(r.Stop(after, n.Machine, u), r.Remove(after, n.Machine, u))
		if _, failed := n.script(after, place+trialEnd, rooted); left == nil {
			left = failed
		}
		if left != nil && err == nil {
			err = fmt.Errorf("remove the unit: %w", left)
		}
	}()
	limited, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	type step func(context.Context, machine.Machine, unit.Unit) error
	for _, do := range []step{r.Prepare, r.Create, r.Start, n.inside(r)} {
		if err := do(limited, n.Machine, u); err != nil {
			if limited.Err() != nil && ctx.Err() == nil {
				return croft.Errorf(croft.Unavailable, "it took more than %s: %w", wording.Duration(trialTime), err)
			}
			return err
		}
	}
	return nil
}

// inside checks that a unit is running. If the runtime supports it, it also runs a program inside the unit.
func (n Node) inside(r *runtime.Runtime) func(context.Context, machine.Machine, unit.Unit) error {
	return func(ctx context.Context, m machine.Machine, u unit.Unit) error {
		now, err := r.Status(ctx, m, u)
		if err == nil && !now.Running {
			err = croft.Errorf(croft.Unavailable, "its unit was started, and is %s", now.Status)
		}
		if err == nil && r.Executes() {
			var said strings.Builder
			if err = r.Exec(ctx, m, u, []string{"sh", "-c", ":"}, nil, io.Discard, &said); err != nil {
				err = fmt.Errorf("run a program in its unit: %w: %s", err, strings.TrimSpace(said.String()))
			}
		}
		if err == nil {
			return nil
		}
		var log strings.Builder
		if r.Logs(ctx, m, u, 3, &log) == nil && strings.TrimSpace(log.String()) != "" {
			err = fmt.Errorf("%w; its last words: %s", err, strings.Join(strings.Fields(log.String()), " "))
		}
		return err
	}
}

// script runs a part of the trial on the node; the shell variable rooted is set if rooted is true.
func (n Node) script(ctx context.Context, text string, rooted bool) (string, error) {
	if rooted {
		text = "rooted=yes\n" + text
	}
	out, err := machine.Output(
		ctx,
		n.Machine,
		strings.NewReader("croft_trial() {\n"+text+"}\ncroft_trial < /dev/null\n"),
		"sh",
		"-s",
	)
	if exit, ended := errors.AsType[*machine.Exit](err); ended {
		err = croft.Errorf(croft.Unavailable, "%s", strings.TrimSpace(exit.Stderr))
	}
	return out, err
}

// trialPlace finds the state directory as the scripts of runtimes do, and sets root to the trial's own directory in it.
const trialPlace = `umask 022
if [ -n "$home" ]; then :
elif [ "$(id -u)" = 0 ]; then home=/var/lib/croft/grid
else home=${XDG_STATE_HOME:-$HOME/.local/state}/croft/grid
fi
root=$home/$job
`

// trialRoot creates a root directory with the node's own shell and the libraries that the shell needs. It prints the
// directory's path.
const trialRoot = `
[ -n "$rooted" ] || return 0
[ -e "$home" ] || new=yes
mkdir -p "$root" || return
[ -z "$new" ] || : > "$root/new"
for at in bin etc usr proc sys dev tmp run root var; do mkdir -p "$root/$at" || return; done
for program in sh sleep; do
	from=$(command -v "$program") && cp -L "$from" "$root/bin/$program" || return
	for library in $(ldd "$from" 2> /dev/null | grep -o '/[^ ]*'); do
		[ -e "$root$library" ] && continue
		mkdir -p "$root${library%/*}" && cp -L "$library" "$root$library" || return
	done
done
echo ID=doctor > "$root/etc/os-release"
echo root:x:0:0::/root:/bin/sh > "$root/etc/passwd"
echo root:x:0: > "$root/etc/group"
echo "$root"
`

// trialEnd removes the root directory, and the state directory if the trial created it.
const trialEnd = `
new=
[ ! -e "$root/new" ] || new=yes
rm -rf "$root" || return
[ -z "$new" ] || rmdir "$home"/* "$home" 2> /dev/null
return 0
`

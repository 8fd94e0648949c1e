// Package checkup checks whether a cluster's directory and its nodes are ready for croft grid. Each finding is one line
// and says what to do about it. The units that it starts to test runtimes are removed again.
package checkup

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/grid/machine"
	"croft/grid/runtime"
	"croft/grid/vcs"
	"croft/internal/checks"
	"croft/internal/wording"
)

// named sets the name of the check in results.
func named(check string, list ...checks.Result) []checks.Result {
	for i := range list {
		list[i].Check = check
	}
	return list
}

// Repository checks the version control of a cluster's directory. system is the value of vcs in cluster.yaml; "none"
// means that the directory is not under version control.
func Repository(ctx context.Context, dir, system string) []checks.Result {
	const check = "repository"
	if system == "none" {
		return named(check, checks.Warning("cluster.yaml says vcs: none",
			"nothing tells an old state from a new one: use git"))
	}
	r, err := vcs.Open(dir, system)
	if err != nil {
		return named(check, checks.Failure(err.Error(), ""))
	}
	wrong, err := r.Examine(ctx)
	if err != nil {
		return named(check, checks.Failure(err.Error(), ""))
	}
	var list []checks.Result
	for _, w := range wrong {
		list = append(list, checks.Result{Level: checks.Fail, Found: w})
	}
	if len(list) > 0 {
		return named(check, list...)
	}
	unknown, err := r.Identity(ctx)
	if err != nil {
		return named(check, checks.Failure(err.Error(), ""))
	}
	for _, w := range unknown {
		list = append(list, checks.Warning(w, ""))
	}
	revision, err := r.Clean(ctx)
	switch croft.KindOf(err) {
	case "":
		list = append(list, checks.Good("revision "+revision))
	case croft.Conflict, croft.NotFound:
		list = append(list, checks.Warning(err.Error(), ""))
	default:
		list = append(list, checks.Failure(err.Error(), ""))
	}
	switch contains, err := r.ContainsUpstream(ctx, revision); {
	case revision == "":
	case err != nil:
		list = append(list, checks.Warning("upstream: "+err.Error(), ""))
	case contains.String() != "yes":
		list = append(list, checks.Warning("others pushed revisions that are missing here", "pull and merge"))
	}
	return named(check, list...)
}

// A Node is a node to check, with the runtimes that its slots use.
type Node struct {
	Name     string
	Machine  machine.Machine
	Runtimes []*runtime.Runtime
	StateDir string // as in runtime.Config
	Cluster  string // the id of the cluster
}

// parallel is the maximum number of nodes that are checked concurrently.
const parallel = 8

// Nodes checks nodes. The findings are in the order of nodes.
func Nodes(ctx context.Context, nodes []Node) []checks.Result {
	found, places := make([][]checks.Result, len(nodes)), make([]string, len(nodes))
	var work errgroup.Group
	work.SetLimit(parallel)
	for i, n := range nodes {
		work.Go(func() error {
			found[i], places[i] = n.examine(ctx)
			return nil
		})
	}
	_ = work.Wait() // examine reports problems as findings, not as errors
	for i, n := range nodes {
		if first := slices.Index(places, places[i]); first < i && places[i] != "" {
			found[i] = append(found[i], checks.Failure("it shares its state directory with "+nodes[first].Name,
				"write a different state_dir into each node's file"))
		}
		found[i] = named("node "+n.Name, found[i]...)
	}
	return slices.Concat(found...)
}

// probe prints KEY=VALUE lines about a machine, and changes nothing on it.
const probe = `
echo "kernel=$(uname -sr 2>/dev/null)"
echo "uid=$(id -u)"
echo "time=$(date +%s)"
init=other
[ ! -d /run/systemd/system ] || init=systemd
echo "init=$init"
[ -r /proc/sys/kernel/random/boot_id ] || echo "lacks=/proc/sys/kernel/random/boot_id"
for program in flock mkdir mv rm cat chmod sha256sum base64 tar mktemp; do
	command -v "$program" > /dev/null 2>&1 || echo "lacks=$program"
done
if [ -n "$home" ]; then :
elif [ "$(id -u)" = 0 ]; then home=/var/lib/croft/grid
else home=${XDG_STATE_HOME:-$HOME/.local/state}/croft/grid
fi
at=$home
while [ ! -e "$at" ] && [ "$at" != / ]; do at=${at%/*}; at=${at:-/}; done
echo "home=$home"
[ -w "$at" ] || echo "readonly=$at"
echo "free=$(df -Pk "$at" 2>/dev/null | awk 'NR == 2 { print $4 }')"
echo "place=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null) $(stat -c %d:%i "$at" 2>/dev/null) $home"
echo "kind=$(stat -f -c %T "$at" 2>/dev/null)"
`

// examine checks one node. Nodes with equal places share a state directory; place is "" if it is unknown.
func (n Node) examine(ctx context.Context) (list []checks.Result, place string) {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	begin := time.Now()
	script := "home=" + machine.Quote(n.StateDir) + "\n" + probe
	out, err := machine.Output(limited, n.Machine,
		strings.NewReader("croft_probe() {\n"+script+"}\ncroft_probe < /dev/null\n"), "sh", "-s")
	if err != nil {
		return []checks.Result{checks.Failure(err.Error(), "")}, ""
	}
	_, after, _ := strings.Cut(out, "\nplace=")
	place, _, _ = strings.Cut(after, "\n")
	took := time.Since(begin)
	list = judge(out, begin.Add(took/2), took)
	for _, r := range n.Runtimes {
		version, err := r.Probe(limited, n.Machine)
		if err != nil {
			list = append(list, checks.Failure(err.Error(), "install it there, or give its jobs another runtime"))
			continue
		}
		list = append(list, n.tryRuntime(ctx, r, version, out))
	}
	return list, place
}

const (
	maxSkew = 5 * time.Minute
	minFree = 512 << 10 // KiB
)

// judge turns the output of probe into findings; now is the local time at which probe ran, and took its duration.
func judge(out string, now time.Time, took time.Duration) []checks.Result {
	has := map[string][]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		has[key] = append(has[key], value)
	}
	one := func(key string) string { return strings.Join(has[key], " ") }
	user := "user " + one("uid")
	if one("uid") == "0" {
		user = "root"
	}
	list := []checks.Result{checks.Good(fmt.Sprintf("%s, %s, init %s, state in %s, answers in %d ms",
		one("kernel"), user,
		one("init"),
		one("home"), took.Milliseconds()))}
	if lacks := one("lacks"); lacks != "" {
		list = append(list, checks.Failure("it lacks "+lacks,
			"install them there: util-linux has flock, coreutils the others"))
	}
	if at := one("readonly"); at != "" {
		list = append(list, checks.Failure(at+" cannot be written",
			"set state_dir of the node to a directory that can"))
	}
	if kind := one("kind"); kind == "tmpfs" || kind == "ramfs" {
		list = append(list, checks.Warning(one("home")+" is in memory: the record of the applied state is lost at a "+
			"reboot",
			"the next apply rebuilds it"))
	}
	if free, err := strconv.ParseInt(one("free"), 10, 64); err == nil && free < minFree {
		list = append(list, checks.Warning(fmt.Sprintf("only %d MiB are free in %s", free>>10, one("home")),
			"make room there"))
	}
	if there, err := strconv.ParseInt(one("time"), 10, 64); err == nil {
		if skew := time.Unix(there, 0).Sub(now).Abs(); skew > maxSkew {
			list = append(list, checks.Warning(
				fmt.Sprintf("its clock differs from this one by %s", wording.Duration(skew.Round(time.Second))),
				"set it by NTP"))
		}
	}
	return list
}

package openstack_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"croft/cluster"
	"croft/cluster/heat/heattest"
)

// TestAnEngineThatDiesInABuildWithOpenStack kills Heat while it builds. With convergence the stack stays in progress
// forever, so our own deadline has to end the build; and its first deletion fails.
func TestAnEngineThatDiesInABuildWithOpenStack(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline of a minute")
	}
	for name, c := range map[string]struct {
		variable string
		options  []string
		want     cluster.FailureCode
	}{
		"convergence": {heattest.Convergence, nil, cluster.FailedDeadline},
		"older":       {heattest.Older, []string{"--no-convergence"}, cluster.FailedBuild},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.variable)
			minute := time.Minute
			must(
				w.registry.Sites().
					Change(t.Context(), "east", cluster.SiteChange{BuildTimeout: (*cluster.Seconds)(&minute)}, nil),
			)(
				t,
			)
			w.fronts["east"].Change(func(f *heattest.Faults) {
				f.Body = func(_ *http.Request, body map[string]any) { spoil(body, "secs", 20) }
			})
			made := w.mustAsk("orphan", 1)
			w.untilIt(made, "the site builds it", false, func(c cluster.Cluster) bool { return c.Remote.ID != "" })
			killEngine(t, w.clouds["east"]["demo"].Dir, c.options...)
			made = w.until(made, cluster.Failed, true)
			if made.Error == nil || made.Error.Code != c.want {
				t.Errorf("the error is %+v, want %s", made.Error, c.want)
			}
			began := time.Now()
			w.remove(made, true)
			t.Logf("%v; it was gone %s after its deletion was asked for", made.Error,
				time.Since(began).Round(time.Second))
		})
	}
}

// killEngine kills the Heat of a directory of up.sh, and starts another one.
func killEngine(t *testing.T, dir string, options ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "run/heat.pid"))
	up := filepath.Join(os.Getenv("CROFT_OPENSTACK"), "up.sh")
	if os.Getenv("CROFT_OPENSTACK") == "" || err != nil {
		t.Skip("this Heat was not started by an up.sh in CROFT_OPENSTACK, so it is not killed")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(up, append(options, "--fake-nova", dir)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

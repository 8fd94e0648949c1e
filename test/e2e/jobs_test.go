package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A gitlabJob is a job as GitLab Runner passes it to its custom executor.
type gitlabJob struct {
	*cloud
	number int
	key    string // to log in with
}

// step calls a step of the executor.
func (j gitlabJob) step(step string, args ...string) result {
	j.t.Helper()
	response := filepath.Join(j.home, fmt.Sprint("job-", j.number, ".json"))
	j.write(response, fmt.Sprintf(`{"id": %d, "token": "glcbt-%d"}`, j.number, j.number))
	return j.runWith([]string{"JOB_RESPONSE_FILE=" + response, "BUILD_FAILURE_EXIT_CODE=101",
		"SYSTEM_FAILURE_EXIT_CODE=102", "CUSTOM_ENV_CI_SERVER_URL=https://gitlab.example",
		"CUSTOM_ENV_CI_RUNNER_ID=7", "CROFT_POOL_ENDPOINTS=" + j.pools}, "croft",
		append([]string{"pool", "runner", "gitlab", step}, args...)...)
}

// run runs a script as a stage of the job.
func (j gitlabJob) run(script string) result {
	j.t.Helper()
	file := filepath.Join(j.home, fmt.Sprint("script-", j.number))
	j.write(file, "#!/usr/bin/env bash\nset -eo pipefail\n"+script+"\n")
	return j.step("run", "--ssh-key", j.key, "--user", "debian", file, "build_script")
}

// TestJobsRunOnGuestsThatAreDiscarded: three jobs of GitLab's custom executor on guests of a pool, two of them at once
// and one whose guest is killed in the middle; each has its own guest, which is gone afterwards.
func TestJobsRunOnGuestsThatAreDiscarded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three boots of Debian take minutes under emulation: make test-guests")
	}
	image := os.Getenv("CROFT_TEST_DEBIAN")
	if image == "" {
		t.Skip("CROFT_TEST_DEBIAN names no image")
	}
	c := newCloud(t, "")
	key := c.newKey()
	c.servePool(fmt.Sprintf(`
ci:
  instance: {resources: "VCPU:1,MEMORY_MB:512,DISK_GB:4", image: %q, keys: [%q], ready: ssh}
  max: 2
  max_prealloc: 1
  max_starting: 2
  tags: [ci]
`, image, key+".pub"))
	job := func(number int) gitlabJob { return gitlabJob{c, number, key} }
	prepare := func(j gitlabJob) {
		if r := j.step("prepare", "--tag", "ci", "--ssh-key", key, "--user", "debian", "--boot-timeout",
			debianPatience.String()); r.exit != 0 {
			t.Errorf("prepare of job %d: %v", j.number, r)
		}
	}
	var work sync.WaitGroup
	names := make([]string, 4)
	for i := 1; i <= 2; i++ {
		work.Go(func() {
			prepare(job(i))
			r := job(i).run("hostname; sudo id -u; echo job > /tmp/trace")
			words := strings.Fields(r.stdout)
			if r.exit != 0 || len(words) != 2 || words[1] != "0" {
				t.Errorf("job %d: %v", i, r)
				return
			}
			names[i] = words[0]
		})
	}
	work.Wait()
	if t.Failed() {
		return
	}
	if names[1] == names[2] || len(c.domains()) != 2 {
		t.Errorf("two jobs at once run on %s and %s; there are the domains %v", names[1], names[2], c.domains())
	}
	if r := job(1).run("exit 3"); r.exit != 101 {
		t.Errorf("a job that fails: %v", r)
	}

	ended := make(chan result)
	go func() { ended <- job(2).run("touch /tmp/began; sleep 1000") }()
	killed := c.show(names[2]).ID
	eventually(t, "the job runs", func(context.Context) error {
		if r := c.schedule("ssh", "--user", "debian", "--identity", key, names[2], "test -e /tmp/began"); r.exit != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	if _, err := virsh("destroy", "croft-"+killed); err != nil {
		t.Fatalf("to kill a guest: %v", err)
	}
	if r := <-ended; r.exit != 102 || !strings.Contains(r.stderr, "croft: ") {
		t.Errorf("a job whose guest was killed: %v", r)
	}
	for i := 1; i <= 2; i++ {
		if r := job(i).step("cleanup"); r.exit != 0 {
			t.Errorf("cleanup of job %d: %v", i, r)
		}
	}
	prepare(job(3))
	r := job(3).run("hostname; cat /tmp/trace || echo clean")
	if words := strings.Fields(r.stdout); r.exit != 0 || len(words) != 2 || words[1] != "clean" ||
		slices.Contains(names, words[0]) {
		t.Errorf("the third job, after %v: %v", names, r)
	}
	if r := job(3).step("cleanup"); r.exit != 0 {
		t.Errorf("cleanup of job 3: %v", r)
	}
	c.emptyPool("ci")
	text, err := exec.Command(filepath.Join(binaries, "croft"), "pool", "ticket", "list", "-o", "json", "--server",
		c.pools).Output()
	var tickets []struct{ State string }
	if err == nil {
		err = json.Unmarshal(text, &tickets)
	}
	for _, ticket := range tickets {
		if ticket.State == "OPEN" {
			t.Errorf("a ticket is open after the jobs: %s", text)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

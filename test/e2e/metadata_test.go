package e2e

import (
	"strings"
	"sync"
	"testing"
)

// TestEverySourceOfMetadata: a guest finds its metadata at the ordered source, and reports from any source that
// cloud-init succeeded, or why it failed.
func TestEverySourceOfMetadata(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	c.write(c.home+"/script", "#!/bin/sh\necho the-script-says $((6 * 7))\n")
	c.write(c.home+"/broken", "#!/bin/sh\nexit 7\n")
	var work sync.WaitGroup
	for name, want := range map[string]string{"nocloud": "metadata: NoCloud disk",
		"config-drive": "metadata: config-2 disk"} {
		work.Go(func() {
			r := c.schedule("--name", name, "--metadata", name, "--tag", "role=front", "--user-data", c.home+"/script",
				"--wait=ready", "--timeout", patience.String(), small, guestImage)
			if r.exit != 0 || !strings.Contains(r.stderr, ", set-up done") {
				t.Errorf("schedule --metadata %s --wait=ready: %v", name, r)
				return
			}
			log := c.must("console", name)
			for _, words := range []string{want, "hostname: " + name, "the-script-says 42"} {
				if !strings.Contains(log, words) {
					t.Errorf("the console of %s lacks %q:\n%s", name, words, log)
				}
			}
		})
	}
	work.Go(func() {
		r := c.schedule("--name", "broken", "--metadata", "server", "--user-data", c.home+"/broken", "--wait=ready",
			"--timeout", patience.String(), small, guestImage)
		if r.exit != 1 ||
			!strings.Contains(r.stderr, "its set-up failed: the user-data script ended with exit code 7") {
			t.Errorf("schedule --wait=ready of a guest whose script fails: %v", r)
		}
		if told := c.must("broken", "-o", "json"); !strings.Contains(told, `"state": "failed"`) ||
			c.show("broken").State != "running" {
			t.Errorf("it is %s\nwant it to run on, with what it told", told)
		}
		c.waitForConsole("broken", "metadata: OpenStack tree")
	})
	work.Wait()
	c.must("destroy", "--wait", "nocloud", "config-drive", "broken")
	if list := c.must("list", "-o", "json"); strings.TrimSpace(list) != "[]" {
		t.Errorf("what is left: %s", list)
	}
}

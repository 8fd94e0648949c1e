package appliances_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// files writes files below a directory.
func files(t *testing.T, dir string, all map[string]string) {
	t.Helper()
	for name, text := range all {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o600)
		if strings.HasPrefix(text, "#!") {
			mode = 0o700
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
}

func content(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestUsersOfTheMasterAreKnownOnAllMembers copies users from one /etc to another, with a fake ssh.
func TestUsersOfTheMasterAreKnownOnAllMembers(t *testing.T) {
	dir := t.TempDir()
	files(t, dir, map[string]string{
		"master/passwd": "root:x:0:0::/root:/bin/sh\nslurm:x:64030:64030::/:/bin/false\n" +
			"debian:x:1000:1000::/home/debian:/bin/bash\nanna:x:1001:1001:Anna:/home/anna:/bin/bash\n" +
			"munge:x:1002:1002::/home/munge:/bin/sh\n",
		"master/group":  "root:x:0:\ndebian:x:1000:\nanna:x:1001:\nlab:x:1500:anna,debian\n",
		"master/shadow": "root:SECRET:1::::::\ndebian:!:1::::::\nanna:$6$hash:1::::::\nmunge:!:1::::::\n",
		"master/croft/peers": "192.0.2.1 c-master master\n192.0.2.2 c-slave-0 slave ssh-ed25519 AAAA\n" +
			"192.0.2.3 c-slave-1 slave\n",
		"c-slave-0/passwd": "root:x:0:0::/root:/bin/sh\nmunge:x:101:101::/:/bin/false\n" +
			"debian:x:1000:1000::/home/debian:/bin/sh\nleft:x:1007:1007::/home/left:/bin/sh\n",
		"c-slave-0/group":  "root:x:0:\nsudo:x:27:debian\ndebian:x:1000:\nleft:x:1007:\n",
		"c-slave-0/shadow": "root:OWN:1::::::\nmunge:*:1::::::\ndebian:!:1::::::\nleft:!:1::::::\n",
		"ssh": "#!/bin/sh\necho \"$1\" >>'" + dir + "/called'\ncd '" + dir +
			"'/${1#root@} && CROFT_ETC=$PWD exec sh -c \"$2\"\n",
	})
	spread := func() error {
		cmd := exec.CommandContext(t.Context(), "python3", "slurm/users.py", "spread")
		cmd.Env = append(os.Environ(), "CROFT_ETC="+dir+"/master", "CROFT_USERS_STATE="+dir+"/state",
			"CROFT_USERS_LOGIN="+dir+"/ssh")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	if err := spread(); err == nil {
		t.Error("a slave that is not there is no failure")
	}
	for file, want := range map[string]string{
		"passwd": "root:x:0:0::/root:/bin/sh\nmunge:x:101:101::/:/bin/false\ndebian:x:1000:1000::/home/debian:/bin/bash\n" +
			"anna:x:1001:1001:Anna:/home/anna:/bin/bash\n",
		"group":  "root:x:0:\nsudo:x:27:debian\ndebian:x:1000:\nanna:x:1001:\nlab:x:1500:anna,debian\n",
		"shadow": "root:OWN:1::::::\nmunge:*:1::::::\ndebian:!:1::::::\nanna:$6$hash:1::::::\n",
	} {
		if got := content(t, dir, "c-slave-0", file); got != want {
			t.Errorf("%s of the slave is\n%s\nwant\n%s", file, got, want)
		}
	}
	files(t, dir, map[string]string{"called": "", "c-slave-1/passwd": "root:x:0:0::/root:/bin/sh\n"})
	if err := spread(); err != nil {
		t.Error(err)
	}
	if got := content(t, dir, "called"); got != "root@c-slave-1\n" {
		t.Errorf("told again were %q, want the slave alone that was away", got)
	}
	if got := content(t, dir, "c-slave-1", "passwd"); !strings.Contains(got, "\nanna:x:1001:") {
		t.Errorf("the slave that was away has %q", got)
	}
	if err := os.Remove(filepath.Join(dir, "called")); err != nil {
		t.Fatal(err)
	}
	if err := spread(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "called")); err == nil {
		t.Error("members that know all are told again")
	}
}

// TestTheNumberOfSlavesFollowsTheQueue runs the program once with fakes of Slurm's commands that answer from files, and
// with a fake API of the cloud.
func TestTheNumberOfSlavesFollowsTheQueue(t *testing.T) {
	const two = "c-slave-0|idle|2\nc-slave-1|allocated|2\n"
	for _, c := range []struct {
		name, queue, nodes, state string
		slaves                    int
		busy                      string // a node that gets a job while it is drained
		want                      string // the changing requests
	}{
		{"jobs that wait for nodes get them", "2|2|(Resources)\n1|1|(Priority)\n", two, "READY", 2, "",
			`PATCH {"slaves": 4}`},
		{"a job of many CPUs needs several nodes", "1|7|(Resources)\n", two, "READY", 2, "", `PATCH {"slaves": 5}`},
		{"a job for more nodes than there are gets them", "5|5|(PartitionConfig)\n", two, "READY", 2, "",
			`PATCH {"slaves": 6}`},
		{"a job that can never run is not waited for", "7|7|(PartitionConfig)\n", two, "READY", 2, "",
			"DELETE /hosts/c-slave-0 "},
		{"never more than the most", "4|4|(PartitionConfig)\n4|4|(Priority)\n", two, "READY", 2, "", `PATCH {"slaves": 6}`},
		{"what waits for something else needs no nodes", "2|2|(Dependency)\n2|2|(BeginTime)\n2|2|(JobHeldUser)\n",
			"c-slave-0|allocated|2\nc-slave-1|mixed|2\n", "READY", 2, "", ""},
		{"an idle node is enough for a small job", "1|1|(Priority)\n", two, "READY", 2, "", ""},
		{"nothing is asked while the cluster changes", "2|2|(Resources)\n", two, "RESIZING", 2, "", ""},
		{"nor while a slave is missing", "2|2|(Resources)\n", two, "READY", 3, "", ""},
		{"a node without jobs is given back", "", two, "READY", 2, "", "DELETE /hosts/c-slave-0 "},
		{"one that gets a job meanwhile stays", "", two, "READY", 2, "c-slave-0", ""},
		{"the last ones stay", "", "c-slave-0|idle|2\n", "READY", 1, "", ""},
		{"as many stay as were asked for", "", "c-slave-0|idle|2\nc-slave-1|idle~|2\nc-slave-2|idle|2\n", "READY", 3,
			"", "DELETE /hosts/c-slave-1 DELETE /hosts/c-slave-2 "},
		{"nodes of a pool are not the cluster's", "", two + "warm-0|idle|2\n", "READY", 2, "",
			"DELETE /hosts/c-slave-0 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			var changes strings.Builder
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				path, own := strings.CutPrefix(r.URL.Path, "/v1/clusters/the-id")
				if !own || r.Header.Get("Authorization") != "Bearer t0ken" {
					http.Error(w, "no", http.StatusForbidden)
					return
				}
				if r.Method != http.MethodGet {
					body, _ := io.ReadAll(r.Body)
					changes.WriteString(strings.TrimSpace(r.Method+" "+path) + " " + string(body))
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"state": c.state, "slaves": c.slaves})
			}))
			defer api.Close()
			dir := t.TempDir()
			conf, _ := json.Marshal(map[string]any{"cluster": "the-id", "url": api.URL, "token": "t0ken",
				"min": 1, "max": 6, "idle": 0})
			files(t, dir, map[string]string{
				"queue": c.queue, "nodes": c.nodes, "conf": string(conf),
				"bin/squeue": "#!/bin/sh\ncat '" + dir + "/queue'\n",
				"bin/sinfo":  "#!/bin/sh\ncat '" + dir + "/nodes'\n",
				"bin/scontrol": "#!/bin/sh\nnode=${2#nodename=}\ncase $3 in\nstate=drain) [ $node = '" + c.busy +
					"' ] && to=draining || to=drained ;;\nstate=resume) to=idle ;;\nesac\n" +
					"sed -i \"s/^$node|[^|]*/$node|$to/\" '" + dir + "/nodes'\n",
				"peers": "192.0.2.1 c-master master\n192.0.2.2 c-slave-0 slave\n192.0.2.3 c-slave-1 slave k\n" +
					"192.0.2.4 c-slave-2 slave\n",
			})
			cmd := exec.CommandContext(t.Context(), "python3", "slurm/follow.py", "once")
			cmd.Env = append(os.Environ(), "PATH="+dir+"/bin:"+os.Getenv("PATH"), "SLURM_FOLLOW="+dir+"/conf",
				"CROFT_PEERS="+dir+"/peers")
			out, err := cmd.CombinedOutput()
			if got := changes.String(); err != nil || got != c.want {
				t.Errorf("asked for %q, want %q (%v)\n%s", got, c.want, err, out)
			}
			if now := content(t, dir, "nodes"); c.busy != "" && !strings.Contains(now, c.busy+"|idle") {
				t.Errorf("a node that is kept takes no jobs: %s", now)
			}
		})
	}
}

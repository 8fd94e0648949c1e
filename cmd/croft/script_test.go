package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
	"croft/internal/testing/script"
)

func TestMain(m *testing.M) {
	testscript.Main(leakFree{m}, map[string]func(){
		"croft": main, "schedule": main, "fission": main, "itabot": main, "lockpick": main,
		"resalloc": main, "resalloc-maint": main, "resalloc-server": main,
		"resalloc-check-vm-ip": main, "resalloc-wait-for-ssh": main,
		"test-machine": machineMain,
	})
}

// leakFree fails if tests left goroutines behind.
type leakFree struct{ m *testing.M }

func (l leakFree) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs the scripts in testdata, which specify the commands.
func TestScripts(t *testing.T) {
	appliances, err := filepath.Abs("../../cluster/appliances")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":        script.Exits("croft"),
			"exits-soon":   exitsSoon,
			"expand":       expand,
			"stdout-empty": stdoutEmpty,
			"bigfile":      bigFile,
			"capture":      capture,
			"cloud": func(ts *testscript.TestScript, neg bool, args []string) {
				startCloud(ts, neg, args)
				etcd := cloudOf(ts).Etcd.Endpoint()
				ts.Defer(func() { etcdtest.CheckDump(named{t, ts.Name()}, etcd) })
			},
			"host":         changeHost,
			"nothing-left": nothingLeft,
			"guest-says":   guestSays,
			"fill-form":    fillForm,
			"free-port":    freePort,
			"break":        breakBooks,
			"ask":          ask,
			"keystone":     startKeystone,
			"issuer":       issuer,
			"disk":         makeDisk,
			"sshds":        startSshds,
			"page":         runPage,
			"machine":      changeMachine,
			"fill":         fillDisk,
			"sshd":         startSshd,
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Getuid() == 0, nil
			case "sshd":
				return haveSshd(), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Setup: func(env *testscript.Env) error {
			env.Values[cloudKey{}] = &scriptCloud{}
			env.Values[machinesKey{}] = &machines{}
			env.Setenv("DOCS", docs)
			env.Values[issuerKey{}] = &scriptIssuer{}
			env.Setenv("CROFT_CLOUD_API_LISTEN", "127.0.0.1:0") // scripts run in parallel
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("APPLIANCES", appliances) // the directory of their texts
			env.Setenv("XDG_CONFIG_HOME", env.WorkDir+"/.config")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each command takes a second to end
			return nil
		},
	})
}

// named is the test of all scripts; its errors name the script.
type named struct {
	testing.TB
	script string
}

// Errorf implements testing.TB. The test of a script itself may have ended.
func (n named) Errorf(format string, args ...any) {
	n.TB.Helper()
	n.TB.Errorf("%s: "+format, append([]any{n.script}, args...)...)
}

// exits-soon CODE COMMAND... repeats the command at growing intervals until it ends with the code.
func exitsSoon(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	pause := 50 * time.Millisecond
	for deadline := time.Now().Add(patient.Longest); ; pause = min(pause*3/2, time.Second) {
		err := ts.Exec(args[1], args[2:]...)
		exit, failed := errors.AsType[*exec.ExitError](err)
		if err == nil && want == 0 || failed && exit.ExitCode() == want {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%q ends with %v still, want %d\nstdout: %sstderr: %s", args[1:], err, want,
				ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
		<-time.After(pause)
	}
}

// expand FILE TEMPLATE writes a file with variables of the environment replaced.
func expand(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[1]), ts.Getenv)), 0o600))
}

// stdout-empty requires that the last command printed no result.
func stdoutEmpty(ts *testscript.TestScript, _ bool, _ []string) {
	if text := ts.ReadFile("stdout"); text != "" {
		ts.Fatalf("stdout is %q, want nothing", text)
	}
}

// capture NAME REGEXP sets a variable to the match of the group in REGEXP in stdout.
func capture(ts *testscript.TestScript, _ bool, args []string) {
	found := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("no match for %s in %q", args[1], ts.ReadFile("stdout"))
	}
	ts.Setenv(args[0], found[1])
	if strings.Contains(args[0], "secret") || strings.Contains(args[0], "token") {
		etcdtest.Issued(found[1])
	}
}

type cloudKey struct{}

// scriptCloud is the script's cloud, if it has one.
type scriptCloud struct{ *testCloud }

func cloudOf(ts *testscript.TestScript) *scriptCloud {
	return ts.Value(cloudKey{}).(*scriptCloud)
}

// cloud HOST=PLACES[:ARCH]... starts a cloud with these hosts, which the script's commands find by the environment.
func startCloud(ts *testscript.TestScript, _ bool, args []string) {
	c, err := newTestCloud(context.Background(), ts.MkAbs("cloud")) // the cloud ends with the script
	ts.Check(err)
	ts.Defer(c.Close)
	cloudOf(ts).testCloud = c
	for _, arg := range args {
		name, places, _ := strings.Cut(arg, "=")
		places, arch, special := strings.Cut(places, ":")
		n, err := strconv.ParseInt(places, 10, 64)
		ts.Check(err)
		var archs []croft.Arch
		if special {
			archs = append(archs, croft.Arch(arch))
		}
		ts.Check(c.AddHost(context.Background(), name, n, archs...))
		ts.Setenv(name, string(c.Hosts[name].ID))
	}
	ts.Setenv("CROFT_ETCD_ENDPOINTS", c.Etcd.Endpoint())
	ts.Setenv("CROFT_PLACEMENT_ENDPOINT", c.Placement.URL)
}

// host start|stop NAME starts or stops a host's agent; its guests stay.
func changeHost(ts *testscript.TestScript, _ bool, args []string) {
	c := cloudOf(ts)
	if args[0] == "start" {
		ts.Check(c.StartHost(context.Background(), args[1]))
	} else {
		ts.Check(c.StopHost(context.Background(), args[1]))
	}
}

// nothing-left requires that the cloud has no record, claim or domain.
func nothingLeft(ts *testscript.TestScript, _ bool, _ []string) {
	left, err := cloudOf(ts).Left(context.Background())
	ts.Check(err)
	if len(left) > 0 {
		ts.Fatalf("left behind: %s", strings.Join(left, ", "))
	}
}

// guest-says NAME STATE [ERROR] makes the guest of that name report the result of its cloud-init, as soon as the guest
// exists.
func guestSays(ts *testscript.TestScript, _ bool, args []string) {
	report := croft.CloudInit{State: croft.CloudInitState(args[1]), At: time.Now().UTC(),
		Error: strings.Join(args[2:], " ")}
	ts.Check(cloudOf(ts).Report(context.Background(), args[0], report))
}

// bigfile NAME SIZE makes a file.
func bigFile(ts *testscript.TestScript, _ bool, args []string) {
	size, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), bytes.Repeat([]byte("#"), size), 0o600))
}

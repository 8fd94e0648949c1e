package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/internal/testing/patient"
)

var expiring = croft.Instance{ID: "0b6f1c9e-7c61-4d3c-9f0a-2f3f6f1f5a10", Name: "web", Project: "lab",
	Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))}

func TestAHookIsToldWhatExpires(t *testing.T) {
	t.Setenv("CROFT_TOKEN", "secret")
	file := filepath.Join(t.TempDir(), "said")
	tell := expiryHook([]string{"/bin/sh", "-c", `env > "$1"; pwd >> "$1"`, "hook", file})
	if err := tell(t.Context(), expiring); err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"EXPIRING_INSTANCE=" + string(expiring.ID), "EXPIRING_NAME=web",
		"EXPIRING_PROJECT=lab", "EXPIRING_AT=2030-01-02T02:04:05Z", "PATH=" + os.Getenv("PATH"), "/"} {
		if !strings.Contains("\n"+string(said), "\n"+want+"\n") {
			t.Errorf("it does not get %s: %s", want, said)
		}
	}
	if strings.Contains(string(said), "secret") {
		t.Errorf("it gets more than it needs: %s", said)
	}
}

func TestAHookThatFailsSaysWhy(t *testing.T) {
	if expiryHook(nil) != nil {
		t.Error("there is a hook without a command")
	}
	for name, c := range map[string]struct {
		command []string
		want    string
	}{
		"it is not there": {[]string{"/nonexistent/tell"}, "/nonexistent/tell"},
		"it fails": {[]string{"/bin/sh", "-c", "echo no mail today >&2; exit 3"},
			"its output: no mail today"},
		"it fails in silence":  {[]string{"/bin/false"}, "its output: nothing"},
		"it says a great deal": {[]string{"/bin/sh", "-c", "yes nonsense | head -n 100000; echo end; exit 1"}, "end"},
	} {
		err := expiryHook(c.command)(t.Context(), expiring)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > hookSays+200 {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A hook that hangs is killed with its child processes.
func TestAHookThatHangsIsEnded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pid")
	var pid []byte
	for patience := 300 * time.Millisecond; len(pid) == 0; patience *= 4 { // a busy machine may not have started it yet
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := expiryHook([]string{"/bin/sh", "-c", "sleep 600 & echo $! > " + name + "; wait"})(ctx, expiring)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "took too long") {
			t.Fatalf("after %s: %v", patience, err)
		}
		pid, _ = os.ReadFile(name) // it may not exist
	}
	patient.Until(t, "what it began has ended", func() bool {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

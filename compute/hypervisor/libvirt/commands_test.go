package libvirt

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"libvirt.org/go/libvirt"

	"croft"
)

// The script behaves as the command in it, for each shell of this machine that a guest may have.
func TestACommandInAGuestIsLimitedInTimeAndOutput(t *testing.T) {
	t.Parallel()
	shells := map[string][]string{"sh": {"/bin/sh"}, "bash": {"bash"}, "busybox": {"busybox", "sh"}}
	for name, shell := range shells {
		if _, err := exec.LookPath(shell[0]); err != nil {
			t.Logf("%s is not tried: %v", name, err)
			continue
		}
		for _, c := range []struct {
			what, within  string
			words         []string
			exit          int
			stdout, other string
		}{
			{"both streams", "60", []string{"sh", "-c", "cat; echo err >&2; exit 7"}, 7, "in", "err\n"},
			{"more than the limit", "60", []string{"sh", "-c", "printf '%40s' x; printf '%30s' y >&2"}, 0,
				strings.Repeat(" ", 20), strings.Repeat(" ", 20)},
			{"words with blanks", "60", []string{"printf", "%s,", "a b", "$c", ""}, 0, "a b,$c,,", ""},
			{"a signal", "60", []string{"sh", "-c", "kill -TERM $$"}, 143, "", "*"},
			{"no such program", "60", []string{"nonesuch"}, 127, "", "*"},
			{"its time is over", "1", []string{"sleep", "1000"}, 124, "", "*"},
		} {
			t.Run(name+": "+c.what, func(t *testing.T) {
				t.Parallel()
				words := append(append(shell[1:], "-c", limited, "croft", "20", c.within), c.words...)
				cmd := exec.CommandContext(t.Context(), shell[0], words...)
				var stdout, other bytes.Buffer
				cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("in"), &stdout, &other
				began := time.Now()
				err := cmd.Run()
				exit := 0
				if failed, is := errors.AsType[*exec.ExitError](err); is {
					exit = failed.ExitCode()
				} else if err != nil {
					t.Fatal(err)
				}
				if exit == 128+int(syscall.SIGTERM) && c.exit == 124 { // busybox
					exit = 124
				}
				if exit != c.exit || stdout.String() != c.stdout || c.other != "*" && other.String() != c.other {
					t.Errorf("exit %d, %q, %q after %v", exit, stdout.String(), other.String(), time.Since(began))
				}
			})
		}
	}
}

func TestAnErrorOfAGuestsAgentIsNoneOfLibvirt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  libvirt.Error
		kind croft.Kind
		says string
	}{
		{libvirt.Error{Code: libvirt.ERR_AGENT_UNRESPONSIVE}, croft.Unavailable, "does not answer"},
		{libvirt.Error{Code: libvirt.ERR_RPC, Domain: libvirt.FROM_RPC, Message: "Unable to encode"}, croft.Unavailable,
			"Unable to encode"},
		{libvirt.Error{Message: "unable to execute QEMU agent command 'guest-exec': Failed to execute child process"},
			croft.Invalid, "does not run it"},
		{libvirt.Error{Message: "The command guest-exec has been disabled for this instance"}, croft.Invalid,
			"permit guest-exec"},
	} {
		err := agentError(c.err)
		if croft.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) || lostConnection(err) {
			t.Errorf("%+v: %v", c.err, err)
		}
	}
}

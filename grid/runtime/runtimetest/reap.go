package runtimetest

import (
	"os/exec"
	"syscall"
	"testing"
)

// reaper waits for the end of its standard input, and then kills the units of the state directories, each with its
// process group and descendants. It kills a unit only if its process is the one that was recorded.
const reaper = `trap '' TERM INT HUP
while read -r _; do :; done
# family PID: it and all that come from it; a container's first process may outlive what began it
family() {
	echo "$1"
	for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do family "$child"; done
}
# kill_if PID SINCE STATE...: the 20th word from the state on is when the process was started
kill_if() {
	pid=$1 since=$2
	shift 2
	[ $# -gt 20 ] && shift 19 && [ "$1" = "$since" ] && kill -9 $(family "$pid") "-$pid"
}
for dir; do
	for f in "$dir"/units/*/pid; do
		pid='' since='' stat=''
		{ read -r pid since _ <"$f" && read -r stat <"/proc/$pid/stat"; } 2>/dev/null
		kill_if "$pid" "$since" ${stat##*) }
	done
done
exit 0`

// Reap ensures that no unit of the supervised runtimes outlives the test, even if the test's process is killed or
// panics: a helper process notices that its standard input ends, and kills the units of the state directories.
func Reap(t testing.TB, stateDirs ...string) {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", reaper, "reaper"}, stateDirs...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // signals to the test's process group do not reach it
	alive, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = alive.Close() // the end of its input makes the reaper work
		if err := cmd.Wait(); err != nil {
			t.Errorf("end what the test left: %v", err)
		}
	})
}

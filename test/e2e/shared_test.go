package e2e

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// shared is the cloud of tests that do not change its settings; nil: none. The first of them starts it, and
// endShared ends it after the last. files is the directory of its settings and its log.
var shared struct {
	*cloud
	files string
}

// sharedCloud returns the shared cloud for a test, with a separate home. The test must destroy its instances, since the
// next one needs an empty cloud; after a failure the next test gets a new cloud.
func sharedCloud(t *testing.T) *cloud {
	t.Helper()
	t.Cleanup(func() {
		switch c := shared.cloud; {
		case c == nil:
			return
		case c.process == nil:
			t.Error("croft up does not run any more")
		default:
			c.lookAtLog()
		}
		if t.Failed() {
			if err := endShared(); err != nil {
				t.Error(err)
			}
		}
	})
	if shared.cloud == nil {
		startShared(t)
	}
	shared.t, shared.home, shared.temporary = t, t.TempDir(), t.TempDir()
	return shared.cloud
}

func startShared(t *testing.T) {
	t.Helper()
	c := &cloud{t: t, home: t.TempDir(), dir: newStateDir(t), network: startNetwork(t)}
	shared.cloud, shared.files = c, newStateDir(t)
	c.begin(shared.files, "")
}

// endShared ends the shared cloud, if any, and removes its files.
func endShared() error {
	c := shared.cloud
	if c == nil {
		return nil
	}
	shared.cloud = nil
	err := c.stop(syscall.SIGTERM)
	if c.log != nil { // it was started
		text, readErr := os.ReadFile(c.log.Name())
		if err = errors.Join(err, readErr, c.log.Close()); strings.Contains(string(text), dataRace) {
			err = errors.Join(err, errors.New("the shared croft up has a data race:\n"+string(text)))
		}
	}
	removeDomains(c.dir)
	removeNetwork(c.network)
	return errors.Join(err, os.RemoveAll(c.dir), os.RemoveAll(shared.files))
}

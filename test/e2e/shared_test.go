package e2e

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// idle are the clouds of tests that do not change their settings, which no test uses at the moment. A test that finds
// none starts one; endShared ends them after the last test.
var idle struct {
	sync.Mutex
	clouds []sharedOne
}

// A sharedOne is a cloud that tests use in turn; files is the directory of its settings and its log.
type sharedOne struct {
	*cloud
	files string
}

// sharedCloud returns a cloud for a test, with a separate home, which no other test uses until this one ends. The test
// must destroy its instances, since the next one needs an empty cloud; after a failure the cloud is ended.
func sharedCloud(t *testing.T) *cloud {
	t.Helper()
	c, found := takeIdle()
	if !found {
		c = startShared(t)
	}
	c.t, c.home, c.temporary = t, t.TempDir(), t.TempDir()
	t.Cleanup(func() {
		if c.process == nil {
			t.Error("croft up does not run any more")
		} else {
			c.lookAtLog()
		}
		if t.Failed() {
			if err := c.endAll(); err != nil {
				t.Error(err)
			}
			return
		}
		idle.Lock()
		defer idle.Unlock()
		idle.clouds = append(idle.clouds, c)
	})
	return c.cloud
}

func takeIdle() (sharedOne, bool) {
	idle.Lock()
	defer idle.Unlock()
	if len(idle.clouds) == 0 {
		return sharedOne{}, false
	}
	c := idle.clouds[0]
	idle.clouds = idle.clouds[1:]
	return c, true
}

func startShared(t *testing.T) sharedOne {
	t.Helper()
	c := sharedOne{&cloud{t: t, home: t.TempDir(), dir: newStateDir(t), network: startNetwork(t)}, newStateDir(t)}
	started := false
	defer func() { // begin may end the test
		if !started {
			_ = c.endAll() // the test has failed with a better message
		}
	}()
	c.begin(c.files, "offer: {disk_ratio: 4}\n") // three clouds share one disk
	started = true
	return c
}

// endShared ends the shared clouds and removes their files.
func endShared() error {
	var errs []error
	for c, found := takeIdle(); found; c, found = takeIdle() {
		errs = append(errs, c.endAll())
	}
	return errors.Join(errs...)
}

func (c sharedOne) endAll() error {
	err := c.stop(syscall.SIGTERM)
	if c.log != nil { // it was started
		text, readErr := os.ReadFile(c.log.Name())
		if err = errors.Join(err, readErr, c.log.Close()); strings.Contains(string(text), dataRace) {
			err = errors.Join(err, errors.New("the shared croft up has a data race:\n"+string(text)))
		}
	}
	removeDomains(c.dir)
	removeNetwork(c.network)
	return errors.Join(err, os.RemoveAll(c.dir), os.RemoveAll(c.files))
}

package libvirt

import (
	"fmt"
	"sync"
	"sync/atomic"

	"libvirt.org/go/libvirt"
)

// loop is libvirt's event loop, one per process. It runs while it has users; without it neither events nor
// keep-alives arrive.
var loop eventLoop

type eventLoop struct {
	mu         sync.Mutex
	registered bool
	users      int
	stop       *atomic.Bool
	running    sync.WaitGroup
}

// join starts the loop for the first user. It must precede opening a connection; its error is the first sign
// that libvirt is not installed.
func (l *eventLoop) join() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.registered {
		quiet()
		if err := libvirt.EventRegisterDefaultImpl(); err != nil {
			return err
		}
		l.registered = true
	}
	l.users++
	if l.users > 1 {
		return nil
	}
	stop := new(atomic.Bool)
	l.stop = stop
	l.running.Go(func() {
		for !stop.Load() {
			// An error is a failed poll(2): the next iteration retries.
			_ = libvirt.EventRunDefaultImpl()
		}
	})
	return nil
}

// leave ends the loop when its last user leaves.
func (l *eventLoop) leave() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users--
	if l.users > 0 {
		return nil
	}
	l.stop.Store(true)
	// A timer that is due at once interrupts the loop's poll.
	timer, err := libvirt.EventAddTimeout(0, func(int) {})
	if err != nil {
		return fmt.Errorf("end libvirt's event loop: %w", err)
	}
	l.running.Wait()
	return libvirt.EventRemoveTimeout(timer)
}

package kill

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// restartDelay is how long after its end a process is restarted, as by a service manager.
const restartDelay = 300 * time.Millisecond

// A process is a server that is restarted whenever it ends, unless it is held down.
type process struct {
	w    *world
	name string
	args []string
	env  []string
	log  string // file
	// the process does not run while this file exists, as if its machine were switched off; empty: always may
	off string

	mu      sync.Mutex
	changed *sync.Cond
	cmd     *exec.Cmd // nil: not running
	held    bool      // must not run
	closed  bool
	starts  int
	faulty  bool // a fault is in progress; one at a time
	done    sync.WaitGroup
}

// begin starts a process and keeps it running until the world ends.
func (w *world) begin(name string, args, env []string) *process {
	p := &process{w: w, name: name, args: args, env: env, log: filepath.Join(w.dir, name+".log"),
		off: filepath.Join(w.dir, name+".off")}
	p.changed = sync.NewCond(&p.mu)
	p.done.Go(p.keep)
	w.t.Cleanup(p.close)
	return p
}

func (p *process) keep() {
	for p.awaitRelease() {
		p.runOnce()
		time.Sleep(restartDelay)
	}
}

// awaitRelease returns when the process may run; false: it must not run again.
func (p *process) awaitRelease() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.held && !p.closed {
		p.changed.Wait()
	}
	return !p.closed
}

func (p *process) runOnce() {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.w.t.Error(err)
		return
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(binaries, "croft"), p.args...)
	cmd.Env, cmd.Dir = append(p.w.environment(), p.env...), p.w.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.mu.Lock()
	if p.held || p.closed || p.isOff() {
		p.mu.Unlock()
		return
	}
	fmt.Fprintf(log, "time=%s level=KILL msg=\"started by the test\"\n", time.Now().Format(time.RFC3339Nano))
	if err := cmd.Start(); err != nil {
		p.mu.Unlock()
		p.w.t.Errorf("start %s: %v", p.name, err)
		return
	}
	p.cmd = cmd
	p.starts++
	p.changed.Broadcast()
	p.mu.Unlock()
	pid := filepath.Join(p.w.dir, p.name+".pid")
	if err := os.WriteFile(pid, fmt.Append(nil, cmd.Process.Pid), 0o600); err != nil {
		p.w.t.Error(err)
	}
	if p.isOff() { // its fence agent did not find it
		p.signal(syscall.SIGKILL)
	}
	err = cmd.Wait()
	_ = os.Remove(pid)
	fmt.Fprintf(log, "time=%s level=KILL msg=\"ended: %v\"\n", time.Now().Format(time.RFC3339Nano), err)
	p.mu.Lock()
	p.cmd = nil
	p.changed.Broadcast()
	p.mu.Unlock()
}

// isOff reports whether the machine of the process is switched off.
func (p *process) isOff() bool {
	_, err := os.Stat(p.off)
	return err == nil
}

// switchOff cuts the power of the machine of the process. It returns when the process has ended.
func (p *process) switchOff() {
	if err := os.WriteFile(p.off, nil, 0o600); err != nil {
		p.w.t.Error(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.cmd != nil {
		_ = p.cmd.Process.Kill() // it may have ended
		p.changed.Wait()
	}
}

// signal sends a signal to the running process, if any.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s) // it may have ended
	}
}

// hold keeps the process down after its next end; release lets it run again.
func (p *process) hold()    { p.setHeld(true) }
func (p *process) release() { p.setHeld(false) }

func (p *process) setHeld(held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	p.changed.Broadcast()
}

// kill kills the process and keeps it down for a while.
func (p *process) kill(down time.Duration) {
	p.hold()
	p.signal(syscall.SIGKILL)
	p.w.sleep(down)
	p.release()
}

// suspend stops the process for a while.
func (p *process) suspend(d time.Duration) {
	p.signal(syscall.SIGSTOP)
	p.w.sleep(d)
	p.signal(syscall.SIGCONT)
}

// suspendOnly stops the process until it is killed.
func (p *process) suspendOnly() { p.signal(syscall.SIGSTOP) }

// claim reserves the process for a fault; false: another fault is in progress.
func (p *process) claim() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faulty {
		return false
	}
	p.faulty = true
	return true
}

func (p *process) unclaim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faulty = false
}

// restart ends the process as a service manager does, and lets it start again.
func (p *process) restart() {
	p.mu.Lock()
	starts := p.starts
	p.mu.Unlock()
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTERM)
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.starts == starts && !p.closed && !p.held {
		p.changed.Wait()
	}
}

// close ends the process for good.
func (p *process) close() {
	p.mu.Lock()
	p.closed = true
	p.changed.Broadcast()
	p.mu.Unlock()
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGKILL)
	p.done.Wait()
}

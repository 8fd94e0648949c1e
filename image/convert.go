package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"croft"
)

const (
	// convertTime is how long a conversion may take, by the clock and by the CPU.
	convertTime = 10 * time.Minute
	// convertMemory is the address space that it may have.
	convertMemory = 2 << 30
)

// convert makes a qcow2 image of a VMDK that was found harmless, by qemu-img, which
// is told both formats and held to limits. Discard the draft.
func (c *Cache) convert(ctx context.Context, src draft) (_ draft, err error) {
	if err := inspectVMDK(src.f, src.size); err != nil {
		return draft{}, err
	}
	free, err := c.free(c.dir)
	if err != nil {
		return draft{}, err
	}
	limit := min(c.max, free-slack)
	if err := c.room(c.dir, src.size); err != nil {
		return draft{}, err
	}
	d, err := newDraft(src.path + ".converted" + tempSuffix)
	if err != nil {
		return draft{}, err
	}
	defer func() {
		if err != nil {
			d.discard()
		}
	}()
	if err := c.qemuImg(ctx, limit, "convert", "-f", "vmdk", "-O", "qcow2", src.path, d.path); err != nil {
		return draft{}, err
	}
	// It may have made the file anew.
	d.f.Close()
	if d.f, err = os.Open(d.path); err != nil {
		return draft{}, fmt.Errorf("convert image: %w", err)
	}
	d.size, err = io.Copy(d.sum, contextReader{ctx, d.f})
	return d, err
}

// contextReader reads until ctx ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// qemuImg runs it with limits, that of a file's size among them.
func (c *Cache) qemuImg(ctx context.Context, fileSize int64, args ...string) error {
	timed, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	limits := []string{
		fmt.Sprintf("--fsize=%d", fileSize), fmt.Sprintf("--as=%d", int64(convertMemory)),
		fmt.Sprintf("--cpu=%d", int64(convertTime.Seconds())), "--nofile=64", "--core=0", "qemu-img",
	}
	cmd := exec.CommandContext(timed, "prlimit", append(limits, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.Dir = c.partDir()
	cmd.WaitDelay = 5 * time.Second
	words := &lastWords{}
	cmd.Stderr = words
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case timed.Err() != nil || endedBy(cmd, syscall.SIGXCPU):
		return croft.Errorf(croft.Invalid, "converting it takes longer than %s: convert it yourself and give a qcow2 image", c.patience)
	case endedBy(cmd, syscall.SIGXFSZ) && fileSize < c.max:
		return croft.Errorf(croft.Unavailable, "converted it does not fit in %s: free some space there", c.dir)
	case endedBy(cmd, syscall.SIGXFSZ):
		return croft.Errorf(croft.Invalid, "converted it has more than the %s that the image cache may hold in all: raise that limit or take a smaller image", human(c.max))
	case errors.Is(err, exec.ErrNotFound) || strings.Contains(words.String(), "failed to execute qemu-img"):
		return croft.Errorf(croft.Unavailable, "converting it needs qemu-img, which is not on this host: install the packages qemu-utils and util-linux")
	}
	return croft.Errorf(croft.Invalid, "it is a VMware disk (VMDK) that qemu-img cannot convert (%s): fetch or make it again", words)
}

func endedBy(cmd *exec.Cmd, signal syscall.Signal) bool {
	if cmd.ProcessState == nil {
		return false
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == signal
}

// lastWords keeps the beginning of what a program says, in one line.
type lastWords struct{ strings.Builder }

func (w *lastWords) Write(b []byte) (int, error) {
	const most = 400
	w.Builder.Write(b[:min(len(b), max(0, most-w.Len()))])
	return len(b), nil
}

func (w *lastWords) String() string { return strings.Join(strings.Fields(w.Builder.String()), " ") }

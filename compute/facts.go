package compute

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/shirou/gopsutil/v3/cpu"
	"github.com/shirou/gopsutil/v3/disk"
	"github.com/shirou/gopsutil/v3/mem"
)

// Facts are the source of the host's inventory.
type Facts struct {
	Name       string   // host name
	Arch       string   // as Go names it: amd64, arm64
	CPUs       int      // logical
	CPUFlags   []string // as Linux names them
	Threads    bool     // more logical CPUs than cores
	MemoryMiB  int64
	DiskGiB    int64 // of the file system with the state directory
	DiskUseGiB int64 // used there by other than croft, rounded up
}

// ReadFacts reads the facts from the machine. ours is the number of bytes below dir that belong to croft.
func ReadFacts(ctx context.Context, dir string, ours int64) (Facts, error) {
	f := Facts{Arch: runtime.GOARCH}
	var err error
	if f.Name, err = os.Hostname(); err != nil {
		return f, fmt.Errorf("read the host's name: %w", err)
	}
	if f.CPUs, err = cpu.CountsWithContext(ctx, true); err != nil {
		return f, fmt.Errorf("count the CPUs: %w", err)
	}
	if cores, err := cpu.CountsWithContext(ctx, false); err == nil && cores > 0 {
		f.Threads = f.CPUs > cores
	}
	if info, err := cpu.InfoWithContext(ctx); err == nil && len(info) > 0 {
		f.CPUFlags = info[0].Flags // no flags, no traits: not worth an error
	}
	memory, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return f, fmt.Errorf("read the memory's size: %w", err)
	}
	f.MemoryMiB = int64(memory.Total >> 20)
	usage, err := disk.UsageWithContext(ctx, dir)
	if err != nil {
		return f, fmt.Errorf("read the size of the file system of %s: %w", dir, err)
	}
	f.DiskGiB = int64(usage.Total >> 30)
	foreign := int64(usage.Total) - int64(usage.Free) - ours
	f.DiskUseGiB = max(0, (foreign+1<<30-1)>>30)
	return f, nil
}

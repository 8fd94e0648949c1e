package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// idleCPU returns the idle time of all the machine's cores together.
func idleCPU() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait ...
	var total time.Duration
	for _, ticks := range fields[4:6] {
		n, _ := strconv.ParseInt(ticks, 10, 64)
		total += time.Duration(n) * time.Second / 100
	}
	return total
}

// syncTime returns how long the disk takes to sync a kilobyte, the lower bound of every durable write.
func syncTime(dir string) (time.Duration, error) {
	const times = 500
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	fd := int(f.Fd())
	if err := syscall.Fallocate(fd, 0, 0, times*1024); err != nil {
		return 0, fmt.Errorf("allocate %s: %w", f.Name(), err)
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	begin := time.Now()
	for range times {
		if _, err := f.Write(make([]byte, 1024)); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(fd); err != nil {
			return 0, err
		}
	}
	return time.Since(begin) / times, nil
}

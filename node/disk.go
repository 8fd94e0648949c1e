package node

import (
	"os"
	"syscall"
)

// onDisk is how many bytes of the file system a file takes, divided by its number of hard links.
func onDisk(entry os.DirEntry) int64 {
	info, err := entry.Info()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Size()
	}
	return st.Blocks * 512 / int64(max(st.Nlink, 1))
}

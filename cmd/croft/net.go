package main

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// isTLS tells whether a URL is one of TLS.
func isTLS(url string) bool { return strings.HasPrefix(url, "https://") }

// isLoopback tells whether host:port can be reached from this machine alone.
func isLoopback(address string) bool {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}

// onDisk is how many bytes of the file system a file takes, its share where
// several names stand for one file.
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

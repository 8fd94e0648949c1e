package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v3/mem"
	gopsnet "github.com/shirou/gopsutil/v3/net"
	"github.com/shirou/gopsutil/v3/process"
	"golang.org/x/sys/unix"
)

// System returns the probes of this machine; the probes that need a hypervisor are nil.
func System() Probes {
	return Probes{
		File:      statFile,
		LookPath:  lookPath,
		Writable:  func(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) },
		DiskFree:  diskFree,
		Memory:    memory,
		Links:     links,
		Listeners: listeners,
		Clock:     clock,
	}
}

func statFile(path string) (File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return File{}, err
	}
	f := File{Mode: info.Mode()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		f.Owner, f.Group = strconv.Itoa(int(s.Uid)), strconv.Itoa(int(s.Gid))
		if u, err := user.LookupId(f.Owner); err == nil {
			f.Owner = u.Username
		}
		if g, err := user.LookupGroupId(f.Group); err == nil {
			f.Group = g.Name
		}
	}
	return f, nil
}

// lookPath also searches directories of daemons that a user's PATH often lacks.
func lookPath(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", err
}

func diskFree(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}

func memory(ctx context.Context) (available, total uint64, err error) {
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return 0, 0, err
	}
	return m.Available, m.Total, nil
}

func links() ([]Link, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []Link
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", i.Name, err)
		}
		l := Link{Name: i.Name}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				l.Addresses = append(l.Addresses, p)
			}
		}
		list = append(list, l)
	}
	return list, nil
}

func listeners(ctx context.Context) ([]Listener, error) {
	sockets, err := gopsnet.ConnectionsWithContext(ctx, "tcp")
	if err != nil {
		return nil, err
	}
	var list []Listener
	for _, s := range sockets {
		addr, err := netip.ParseAddr(s.Laddr.IP)
		if s.Status != "LISTEN" || err != nil {
			continue
		}
		list = append(list, Listener{
			Addr:    netip.AddrPortFrom(addr, uint16(s.Laddr.Port)),
			PID:     s.Pid,
			Program: programOf(ctx, s.Pid),
		})
	}
	return list, nil
}

// programOf returns the process's program; empty: it has ended, or is not visible to us.
func programOf(ctx context.Context, pid int32) string {
	if pid == 0 {
		return ""
	}
	p, err := process.NewProcessWithContext(ctx, pid)
	if err != nil {
		return ""
	}
	if exe, err := p.ExeWithContext(ctx); err == nil {
		return strings.TrimSuffix(filepath.Base(exe), " (deleted)") // replaced by a newer build
	}
	name, err := p.NameWithContext(ctx)
	if err != nil {
		return ""
	}
	return name
}

func clock() (Clock, error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return Clock{}, err
	}
	return Clock{
		Synchronised: state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0,
		MaxError:     time.Duration(t.Maxerror) * time.Microsecond,
	}, nil
}

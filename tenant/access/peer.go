package access

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peerOf asks the kernel who connected to a Unix socket, with SO_PEERCRED and SO_PEERGROUPS. These are the groups of
// the calling process: a user database would include groups that the process may have dropped, and /proc may describe a
// later process with the same PID.
func peerOf(conn syscall.Conn) (p Peer, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return p, fmt.Errorf("look at the connection: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); failed != nil {
			return
		}
		p.UID = cred.Uid
		p.Groups, failed = peerGroups(fd)
		p.Groups = append(p.Groups, cred.Gid)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return Peer{}, fmt.Errorf("ask the kernel for the peer: %w", err)
	}
	return p, nil
}

// peerGroups reads SO_PEERGROUPS, for which golang.org/x/sys has no function.
func peerGroups(fd uintptr) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(len(groups)) * 4
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errno == unix.ERANGE && int(size/4) > len(groups):
			groups = make([]uint32, size/4)
		default:
			return nil, errno
		}
	}
}

package access

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"croft"
)

// OperatorsGroup is the Unix group whose members operate the cloud through the local socket, like root.
const OperatorsGroup = "croft"

// Peer is the process at the other end of a Unix socket, as the kernel recorded it when it connected. Later events,
// such as its end or reuse of its PID, do not change it.
type Peer struct {
	UID    uint32
	Groups []uint32 // including the primary group
}

type peerKey struct{}

// peerOrError is the result of ConnContext.
type peerOrError struct {
	peer Peer
	err  error
}

// ConnContext is for http.Server.ConnContext: it adds the peer of a connection over a Unix socket to the context, even
// if the connection is wrapped, as long as NetConn or SyscallConn leads to the socket. It does not change the contexts
// of other connections.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if conn.LocalAddr().Network() != "unix" {
		return ctx
	}
	for {
		if socket, ok := conn.(syscall.Conn); ok {
			peer, err := peerOf(socket)
			return context.WithValue(ctx, peerKey{}, peerOrError{peer, err})
		}
		wrapped, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return ctx
		}
		conn = wrapped.NetConn()
	}
}

// IsLocal reports whether a request came over a Unix socket of this machine.
func IsLocal(r *http.Request) bool {
	_, ok := r.Context().Value(peerKey{}).(peerOrError)
	return ok
}

// Socket authenticates callers over a Unix socket of this machine: root and the members of OperatorsGroup are
// partition-admins; all others are refused. The server needs ConnContext. The groups are the ones that the calling
// process got, usually at login.
type Socket struct {
	Partition croft.PartitionID

	// Group looks up the ID of OperatorsGroup; by default in the databases of the machine. user.UnknownGroupError: the
	// group does not exist, so only root is an operator.
	Group func() (uint32, error)
}

var _ Authenticator = Socket{}

// Authenticate implements Authenticator.
func (s Socket) Authenticate(_ context.Context, r *http.Request) (Caller, bool, error) {
	found, ok := r.Context().Value(peerKey{}).(peerOrError)
	if !ok {
		return Caller{}, false, nil
	}
	if found.err != nil {
		return Caller{}, false, croft.Errorf(croft.Unavailable,
			"who calls over the local socket cannot be found out: %w", found.err)
	}
	uid := strconv.FormatUint(uint64(found.peer.UID), 10)
	name := "uid " + uid
	if known, err := user.LookupId(uid); err == nil {
		name = known.Username
	}
	if found.peer.UID != 0 {
		if err := s.member(name, found.peer.Groups); err != nil {
			return Caller{}, false, err
		}
	}
	return Caller{Partition: s.Partition, User: name, Roles: []Role{PartitionAdmin}, Via: "socket, uid " + uid},
		true, nil
}

// member refuses callers outside of OperatorsGroup.
func (s Socket) member(name string, groups []uint32) error {
	lookup := s.Group
	if lookup == nil {
		lookup = operatorsGroup
	}
	group, err := lookup()
	if _, none := errors.AsType[user.UnknownGroupError](err); none {
		return croft.Errorf(croft.Denied, "over the local socket root alone operates this cloud, and you are %s: make the "+
			"group %s and join it, or send a token", name, OperatorsGroup)
	}
	if err != nil {
		return croft.Errorf(croft.Unavailable, "look up the group %s: %w", OperatorsGroup, err)
	}
	if !slices.Contains(groups, group) {
		return croft.Errorf(croft.Denied, "over the local socket root and the group %s operate this cloud, and you, %s, are "+
			"not in it: join it and log in again, or send a token", OperatorsGroup, name)
	}
	return nil
}

func operatorsGroup() (uint32, error) {
	g, err := user.LookupGroup(OperatorsGroup)
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(g.Gid, 10, 32)
	return uint32(id), err
}

// longestSocket is the longest path of a Unix socket, in bytes.
const longestSocket = 107

// ListenLocal listens on a Unix socket that every user of the machine may connect to: the kernel identifies the
// callers, and Socket decides. It creates the socket's directory if necessary, which others may traverse but not list,
// and replaces a socket without a listener. Closing the listener removes the socket. Conflict: another process listens
// there. Invalid: the path is too long or not a socket, or other users could put their own socket there.
func ListenLocal(path string) (net.Listener, error) {
	if len(path) > longestSocket {
		return nil, croft.Errorf(croft.Invalid, "the path of the socket has more than %d bytes: %s", longestSocket,
			path)
	}
	if err := ownDirectory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(fmt.Errorf("let others connect to %s: %w", path, err), l.Close())
	}
	return l, nil
}

// ownDirectory creates a directory, or rejects one in which other users could put a socket.
func ownDirectory(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make the directory of the socket: %w", err)
	}
	switch err := os.Mkdir(dir, 0o711); {
	case err == nil:
		if err := os.Chmod(dir, 0o711); err != nil { // independent of the umask
			return fmt.Errorf("make the directory of the socket: %w", err)
		}
		return nil
	case !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("make the directory of the socket: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the directory of the socket: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode()&0o022 != 0 || ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return croft.Errorf(croft.Invalid, "others may put a socket of theirs into %s: it has to be a directory of root or "+
			"of this process's user, which nobody else may write to", dir)
	}
	return nil
}

// removeStale removes the socket of a process that has ended.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return croft.Errorf(croft.Invalid, "%s is there and is no socket: remove it, or choose another path", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(croft.Errorf(croft.Conflict, "another process listens on %s", path), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return croft.Errorf(croft.Conflict, "another process may be listening on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the socket of an earlier process: %w", err)
	}
	return nil
}

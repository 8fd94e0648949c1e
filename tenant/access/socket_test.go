package access_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"croft"
	"croft/internal/connlimit"
	"croft/tenant/access"
)

// operators is the ID of the operators' group in these tests.
const operators = 54321

// local serves an API over a Unix socket that answers with its caller, and returns the path.
func local(t *testing.T, wrap func(net.Listener) net.Listener, s access.Socket) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // so that other users can reach it
		t.Fatal(err)
	}
	path := filepath.Join(dir, "run", "api.sock")
	l, err := access.ListenLocal(path)
	if err != nil {
		t.Fatal(err)
	}
	auth := access.First(s)
	server := &http.Server{ConnContext: access.ConnContext,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			caller, _, err := auth.Authenticate(r.Context(), r)
			if err != nil {
				http.Error(w, err.Error(), croft.HTTPStatus(err))
				return
			}
			_, _ = io.WriteString(w, strings.Join([]string{string(caller.Partition), caller.User,
				string(caller.Roles[0]), caller.Via}, " "))
		})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(wrap(l)) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return path
}

func asIs(l net.Listener) net.Listener { return l }

// hidden is a listener whose connections are wrapped, for example to count them.
type hidden struct{ net.Listener }

type hiddenConn struct{ net.Conn }

func (c hiddenConn) NetConn() net.Conn { return c.Conn }

func (h hidden) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	return hiddenConn{c}, err
}

// who connects to a socket as this user with these groups, on its own thread, and returns the answer.
func who(t *testing.T, path string, uid, gid uint32, groups ...uint32) (answer string) {
	t.Helper()
	dialed := make(chan net.Conn, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		defer close(dialed)
		first := unsafe.Pointer(nil)
		if len(groups) > 0 {
			first = unsafe.Pointer(&groups[0])
		}
		for _, call := range [][4]uintptr{
			{unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0},
			{unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
			{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
		} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				t.Errorf("become user %d: %v", uid, errno)
				return
			}
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Errorf("connect as user %d: %v", uid, err)
			return
		}
		dialed <- conn
	}()
	conn, ok := <-dialed
	if !ok {
		t.FailNow()
	}
	return ask(t, conn)
}

// ask sends a request over a connection, and returns the status and the body.
func ask(t *testing.T, conn net.Conn) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
	got, err := client.Get("http://croft.invalid/")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.Status + ": " + string(body)
}

func TestWhoMayUseTheLocalSocket(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be other users")
	}
	group := func() (uint32, error) { return operators, nil }
	none := func() (uint32, error) { return 0, user.UnknownGroupError(access.OperatorsGroup) }
	many := make([]uint32, 300) // more than fit into the kernel's first answer
	for i := range many {
		many[i] = uint32(60000 + i)
	}
	for _, c := range []struct {
		name     string
		group    func() (uint32, error)
		uid, gid uint32
		groups   []uint32
		want     string
	}{
		{"root", group, 0, 0, nil, "200 OK: partition root partition-admin socket, uid 0"},
		{"root where there is no group", none, 0, 0, nil, "200 OK: partition root partition-admin socket, uid 0"},
		{"a user", group, 54300, 54300, []uint32{54300}, "403 Forbidden: over the local socket root and the group croft " +
			"operate this cloud, and you, uid 54300, are not in it: join it and log in again, or send a token\n"},
		{"a user without groups", group, 54300, 54300, nil, "403 Forbidden: over the local socket root and the group"},
		{"a user in root's group", group, 54300, 0, nil, "403 Forbidden: over the local socket root and the group"},
		{"a user with many groups", group, 54300, 54300, many,
			"403 Forbidden: over the local socket root and the group"},
		{"a user whose ID is the group's", group, operators, 54300, nil, "403 Forbidden: "},
		{"a user where there is no group", none, 54300, 54300, []uint32{operators},
			"403 Forbidden: over the local socket root alone operates this cloud, and you are uid 54300: make the group croft"},
		{"a member", group, 54300, 54300, []uint32{7, operators},
			"200 OK: partition uid 54300 partition-admin socket, uid 54300"},
		{"a member by primary group", group, 54300, operators, nil, "200 OK: partition uid 54300 partition-admin"},
		{"a member of many groups", group, 54300, 54300, append(slices.Clone(many), operators), "200 OK: "},
		{"a user where groups cannot be looked up", func() (uint32, error) { return 0, errors.New("no answer") },
			54300, 54300, nil, "503 Service Unavailable: look up the group croft: no answer\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := local(t, asIs, access.Socket{Partition: "partition", Group: c.group})
			if got := who(t, path, c.uid, c.gid, c.groups...); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAWrappedConnectionHasAPeerToo(t *testing.T) {
	for name, wrap := range map[string]func(net.Listener) net.Listener{
		"by one that shows what it wraps": func(l net.Listener) net.Listener { return hidden{l} },
		"by the limits of croft's servers": func(l net.Listener) net.Listener {
			return connlimit.New(l, connlimit.OfProcess())
		},
	} {
		path := local(t, wrap, access.Socket{Partition: "partition",
			Group: func() (uint32, error) { return uint32(os.Getgid()), nil }})
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, conn); !strings.HasPrefix(got, "200 OK: ") {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestOverTCPThereIsNoPeer(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	r := request(t)
	r = r.WithContext(access.ConnContext(r.Context(), near))
	if _, ok, err := (access.Socket{}).Authenticate(r.Context(), r); ok || err != nil {
		t.Errorf("got %v, %v", ok, err)
	}
}

func TestAConnectionThatEndedIsNobody(t *testing.T) {
	l, err := access.ListenLocal(filepath.Join(t.TempDir(), "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	r := request(t)
	r = r.WithContext(access.ConnContext(r.Context(), conn))
	if _, ok, err := (access.Socket{}).Authenticate(r.Context(), r); ok || croft.KindOf(err) != croft.Unavailable {
		t.Errorf("got %v, %v", ok, err)
	}
}

func TestTheSocketIsForEverybodyAndItsDirectoryIsNot(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	path := filepath.Join(t.TempDir(), "deep", "run", "api.sock")
	l, err := access.ListenLocal(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{
		path: fs.ModeSocket | 0o666, filepath.Dir(path): fs.ModeDir | 0o711,
	} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s is %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if _, err := access.ListenLocal(path); croft.KindOf(err) != croft.Conflict {
		t.Errorf("a second listener: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestASocketThatWasLeftIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as if the process was killed
	_ = l.Close()
	l, err = access.ListenLocal(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestWhereNoSocketMayBe(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.Mkdir(open, 0o755), os.Chmod(open, 0o777), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, says string }{
		"a directory that others write to": {filepath.Join(open, "api.sock"), "others may put a socket of theirs into"},
		"a file":                           {file, "is no socket"},
		"a directory that is a file":       {filepath.Join(file, "api.sock"), "has to be a directory"},
		"a long path":                      {filepath.Join(dir, strings.Repeat("x", 100)), "more than 107 bytes"},
	} {
		if _, err := access.ListenLocal(c.path); croft.KindOf(err) != croft.Invalid ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q in it", name, err, c.says)
		}
	}
	if os.Getuid() == 0 {
		if err := errors.Join(os.Chmod(open, 0o755), os.Chown(open, 54300, 54300)); err != nil {
			t.Fatal(err)
		}
		if _, err := access.ListenLocal(filepath.Join(open, "api.sock")); croft.KindOf(err) != croft.Invalid {
			t.Errorf("a directory of somebody else: %v", err)
		}
	}
}

func TestTheLongestPathOfASocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("x", 107-len(dir)-1))
	l, err := access.ListenLocal(path)
	if err != nil {
		t.Fatalf("%d bytes: %v", len(path), err)
	}
	_ = l.Close()
	if _, err := access.ListenLocal(path + "x"); croft.KindOf(err) != croft.Invalid {
		t.Errorf("%d bytes: %v", len(path)+1, err)
	}
}

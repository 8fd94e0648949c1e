package doctor

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSystemSeesOurOwnSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sockets, err := System().Listeners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := Listener{Addr: netip.MustParseAddrPort(l.Addr().String()), PID: int32(os.Getpid()),
		Program: filepath.Base(exe)}
	if !slices.Contains(sockets, want) {
		t.Errorf("%+v is not among %+v", want, sockets)
	}
}

func TestSystemAnswers(t *testing.T) {
	s := System()
	dir := t.TempDir()
	if f, err := s.File(dir); err != nil || !f.Mode.IsDir() || f.Owner == "" || f.Group == "" {
		t.Errorf("File(%s) = %+v, %v", dir, f, err)
	}
	if _, err := s.File(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := s.LookPath("go"); err != nil {
		t.Error(err)
	}
	if _, err := s.LookPath("no-such-program"); err == nil {
		t.Error("a program that is not there was found")
	}
	if err := s.Writable(dir); err != nil {
		t.Error(err)
	}
	if err := s.Writable(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there is writable")
	}
	if free, err := s.DiskFree(dir); err != nil || free == 0 {
		t.Errorf("DiskFree = %d, %v", free, err)
	}
	if available, total, err := s.Memory(t.Context()); err != nil || available == 0 || available > total {
		t.Errorf("Memory = %d of %d, %v", available, total, err)
	}
	if _, err := s.Clock(); err != nil {
		t.Error(err)
	}
	all, err := s.Links()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, func(l Link) bool {
		return slices.Contains(l.Addresses, netip.MustParsePrefix("127.0.0.1/8"))
	}) {
		t.Errorf("no loopback among %+v", all)
	}
}

package kvm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The program must be correct where it can run, or a good KVM would be rejected: so the test boots it as a
// boot sector in QEMU without KVM.
func TestGuestRunsOnAnEmulatedProcessor(t *testing.T) {
	if len(boot) > 446 {
		t.Fatalf("the program has %d bytes and no longer fits a boot sector", len(boot))
	}
	memory := make([]byte, memorySize)
	load(memory)
	dir := t.TempDir()
	sector := make([]byte, 512)
	copy(sector, boot)
	sector[510], sector[511] = 0x55, 0xaa
	write(t, filepath.Join(dir, "disk"), sector)
	write(t, filepath.Join(dir, "tables"), memory[tables:tables+0x3000])

	cmd := exec.CommandContext(t.Context(), "qemu-system-x86_64", "-machine", "pc,accel=tcg", "-cpu", "max", "-m", "16",
		"-display", "none", "-net", "none", "-monitor", "stdio",
		"-drive", "format=raw,file="+filepath.Join(dir, "disk"),
		"-device", fmt.Sprintf("loader,file=%s,addr=%#x,force-raw=on", filepath.Join(dir, "tables"), tables))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("qemu-system-x86_64 (install qemu-system-x86): %v", err)
	}
	want := fmt.Appendf(nil, "0x%08x", wantResult)
	ask := fmt.Sprintf("xp /1wx %#x\n", resultAt)
	seen := waitFor(out, want, func() { _, _ = io.WriteString(in, ask) })
	_, _ = io.WriteString(in, "quit\n")
	_ = in.Close()
	_ = cmd.Wait()
	if !bytes.Contains(seen, want) {
		t.Errorf("the result never was %s: %s", want, seen)
	}
}

// waitFor repeats ask and reads until want arrives or out ends.
func waitFor(out io.Reader, want []byte, ask func()) []byte {
	var seen []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(seen, want) {
		ask()
		n, err := out.Read(buf)
		seen = append(seen, buf[:n]...)
		if err != nil {
			break
		}
	}
	return seen
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestProofEndsWithItsContext(t *testing.T) {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		t.Logf("%s does not open, there is nothing to end: %v", device, err)
		return
	}
	defer f.Close()
	saved := boot
	boot = []byte{0xeb, 0xfe} // jump to itself
	defer func() { boot = saved }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := proof(ctx, f.Fd()); err == nil {
		t.Error("a guest that never halts counts as proof")
	}
}

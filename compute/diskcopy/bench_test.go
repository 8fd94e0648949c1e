package diskcopy_test

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/compute/diskcopy"
	"croft/internal/testing/freeport"
)

// benchSize is the size of the data that the benchmarks copy: qcow2 clusters that a guest has written.
const benchSize = 512 << 20

// benchDisk makes a qcow2 disk with data in the middle, and holes around it.
func benchDisk(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	raw, disk := filepath.Join(dir, "raw"), filepath.Join(dir, "disk.qcow2")
	f, err := os.Create(raw)
	if err == nil {
		_, err = f.Seek(1<<30, io.SeekStart)
	}
	if err == nil {
		_, err = io.CopyN(f, rand.NewChaCha8([32]byte{3}), benchSize)
	}
	if err == nil {
		err = f.Truncate(4 << 30)
	}
	if err != nil {
		b.Fatal(err)
	}
	run(b, exec.Command("qemu-img", "convert", "-O", "qcow2", raw, disk))
	if err := os.Remove(raw); err != nil {
		b.Fatal(err)
	}
	return disk
}

func run(b *testing.B, cmd *exec.Cmd) {
	b.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Skipf("%s: %v: %s", strings.Join(cmd.Args, " "), err, out)
	}
}

// BenchmarkOverTLS copies a disk as agents do: over HTTP with TLS, with digests, durable at the end.
func BenchmarkOverTLS(b *testing.B) {
	disk := benchDisk(b)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open(disk)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		head := diskcopy.Head{Identity: diskcopy.Identity(info), Size: info.Size()}
		text, _ := json.Marshal(head) // cannot fail
		w.Header().Set("Head", string(text))
		if err := diskcopy.Send(r.Context(), w, f, head, func(int64) {}); err != nil {
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	open := func(ctx context.Context, _ string, _ int64) (head diskcopy.Head, _ io.ReadCloser, err error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			return head, nil, err
		}
		answer, err := server.Client().Do(r)
		if err != nil {
			return head, nil, err
		}
		return head, answer.Body, json.Unmarshal([]byte(answer.Header.Get("Head")), &head)
	}
	to := filepath.Join(b.TempDir(), "copy")
	b.SetBytes(benchSize)
	for b.Loop() {
		if err := diskcopy.Receive(b.Context(), to, 8<<30, open, func(croft.Progress) {}); err != nil {
			b.Fatal(err)
		}
		if err := os.Remove(to); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOverSSH copies the same disk over connections of SSH, with qemu-img convert to a disk that qemu-nbd serves
// on the other side, and with cat, and makes the copy durable. qemu-img has the options with which it is fastest: by
// default it waits for each write, and clears the empty disk first.
func BenchmarkOverSSH(b *testing.B) {
	disk, dir := benchDisk(b), b.TempDir()
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		b.Skip(err)
	}
	key, hostKey := filepath.Join(dir, "id"), filepath.Join(dir, "host")
	for _, file := range []string{key, hostKey} {
		run(b, exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file))
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		b.Skip(err)
	}
	_, port, err := net.SplitHostPort(freeport.For(b, "127.0.0.1"))
	if err != nil {
		b.Fatal(err)
	}
	daemon := exec.Command(sshd, "-D", "-e", "-f", "/dev/null", "-h", hostKey, "-p", port,
		"-o", "ListenAddress=127.0.0.1", "-o", "AuthorizedKeysFile="+key+".pub",
		"-o", "StrictModes=no", "-o", "PidFile=none")
	if err := daemon.Start(); err != nil {
		b.Skip(err)
	}
	defer func() { _ = daemon.Process.Kill(); _ = daemon.Wait() }()
	to := filepath.Join(dir, "copy")
	ssh := "ssh -i " + key + " -p " + port + " -o ConnectionAttempts=20 -o BatchMode=yes -o StrictHostKeyChecking=no " +
		"-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR 127.0.0.1 "
	run(b, exec.Command("sh", "-c", ssh+"true"))
	near, far := filepath.Join(dir, "near"), filepath.Join(dir, "far")
	tunnel := exec.Command("sh", "-c",
		"exec "+strings.Replace(ssh, "127.0.0.1", "-N -L "+near+":"+far+" 127.0.0.1", 1))
	if err := tunnel.Start(); err != nil {
		b.Skip(err)
	}
	defer func() { _ = tunnel.Process.Kill(); _ = tunnel.Wait() }()
	sync := ssh + "'sync " + to + "'"
	for name, command := range map[string]string{
		"cat": ssh + "'cat > " + to + "' < " + disk + " && " + sync,
		"qemu-img": ssh + "'qemu-img create -q -f qcow2 " + to + " 4G && " +
			"qemu-nbd --fork -f qcow2 -k " + far + " " + to +
			"' && qemu-img convert -n -W -m 16 --target-is-zero -O raw " + disk +
			" nbd+unix:///?socket=" + near + " && " + sync,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(benchSize)
			for b.Loop() {
				run(b, exec.CommandContext(b.Context(), "sh", "-c", command))
			}
		})
	}
}

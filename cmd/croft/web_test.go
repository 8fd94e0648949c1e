package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"croft/control/cloud/direct"
	"croft/internal/testing/freeport"
	"croft/internal/testing/patient"
)

// startLimited starts croft with a limit of open descriptors. It ends with the test.
func startLimited(t *testing.T, descriptors int, args ...string) (pid int) {
	t.Helper()
	croft, err := exec.LookPath("croft")
	check(t, err)
	cmd := exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, descriptors), croft},
		args...)...)
	var said bytes.Buffer
	cmd.Stderr, cmd.Dir = &said, t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, "XDG_CONFIG_HOME="+cmd.Dir, "CROFT_TRACES_ENDPOINT=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("croft %s said:\n%s", args, said.String())
		}
	})
	return cmd.Process.Pid
}

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address("127.0.0.1")
	check(t, err)
	return address
}

// askReady waits until an address is ready, and fails the test on a timeout.
func askReady(t *testing.T, address string) {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var last error
	for deadline := patient.Deadline(t); time.Now().Before(deadline) &&
		t.Context().Err() == nil; time.Sleep(50 * time.Millisecond) {
		answer, err := client.Get("http://" + address + "/readyz")
		if err != nil {
			last = err
			continue
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return
		}
		last = errors.New(string(text))
	}
	t.Fatalf("%s is not ready: %v", address, last)
}

func descriptorsOf(t *testing.T, pid int) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	check(t, err)
	return len(all)
}

// Each address gets more idle connections than the process may have descriptors.
func TestIdleConnectionsTakeNotAllDescriptors(t *testing.T) {
	const descriptors, idle = 600, 700
	etcd, placement, api := freeAddress(t), freeAddress(t), freeAddress(t)
	pid := startLimited(t, descriptors, "up", "--insecure", "--hypervisor", "sim", "--state-dir", t.TempDir(),
		"--etcd-listen", etcd, "--placement-listen", placement, "--api-listen", api)
	askReady(t, api)
	before := descriptorsOf(t, pid)
	for _, address := range []string{placement, api, etcd} {
		for range idle {
			c, err := net.DialTimeout("tcp", address, 10*time.Second)
			if err != nil {
				break // it accepts no further connections
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	askReady(t, placement)
	askReady(t, api)
	if now := descriptorsOf(t, pid); now-before >= descriptors/2 {
		t.Errorf("%d descriptors are taken by connections, of %d that the process may have", now-before, descriptors)
	}
}

func memoryOf(t *testing.T, pid int) (kib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(t, err)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	_, err = fmt.Sscan(rest, &kib)
	check(t, err)
	return kib
}

// Headers of up to 1 MiB, Go's default limit, take 275 MB.
func TestManyBigHeadersTakeLittleMemory(t *testing.T) {
	placement := freeAddress(t)
	pid := startLimited(t, 4096, "placement", "--listen", placement, "--data-dir", filepath.Join(t.TempDir(), "data"))
	askReady(t, placement)
	before := memoryOf(t, pid)
	line := "X-Filler: " + strings.Repeat("a", 4000) + "\r\n"
	for range 250 {
		c, err := net.DialTimeout("tcp", placement, 10*time.Second)
		check(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n")
		for i := 0; i < 250 && err == nil; i++ {
			_, err = io.WriteString(c, line)
		}
	}
	askReady(t, placement)
	if grown := memoryOf(t, pid) - before; grown > 80<<10 {
		t.Errorf("250 connections with big headers cost %d MiB", grown>>10)
	}
}

// A web page makes its own name resolve to 127.0.0.1, to which a browser then sends requests with that name.
func TestRequestsForAnothersNameAreRefused(t *testing.T) {
	placement := freeAddress(t)
	startLimited(t, 1024, "placement", "--listen", placement, "--data-dir", filepath.Join(t.TempDir(), "data"))
	askReady(t, placement)
	_, port, _ := net.SplitHostPort(placement)
	own, err := os.Hostname()
	check(t, err)
	for _, path := range []string{"/resource_providers", "/metrics", "/readyz"} {
		for host, want := range map[string]int{
			"evil.example":           http.StatusMisdirectedRequest,
			"evil.example:" + port:   http.StatusMisdirectedRequest,
			"127.0.0.1.evil.example": http.StatusMisdirectedRequest,
			"localhost.evil.example": http.StatusMisdirectedRequest,
			"127.0.0.1:" + port:      http.StatusOK,
			"[::1]:" + port:          http.StatusOK,
			"localhost":              http.StatusOK,
			"LOCALHOST.:" + port:     http.StatusOK,
			own + ":" + port:         http.StatusOK,
		} {
			ask, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+placement+path, nil)
			check(t, err)
			ask.Host = host
			ask.Header.Set("X-Auth-Token", direct.DefaultToken)
			answer, err := http.DefaultClient.Do(ask)
			check(t, err)
			text, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if path == "/metrics" && host == own+":"+port {
				want = http.StatusForbidden // a proxy on this machine may have passed that name on
			}
			if answer.StatusCode != want {
				t.Errorf("%s with Host %s: %s %.100s, want %d", path, host, answer.Status, text, want)
			}
			if want == http.StatusMisdirectedRequest && !strings.Contains(string(text), "server_names") {
				t.Errorf("with Host %s it does not say what to do: %s", host, text)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

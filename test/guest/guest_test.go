package guest_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/internal/testing/freeport"
	"croft/mdserver"
)

// relayEnv is the address to which the test binary relays bytes, when QEMU runs it for a guest's connection to the
// metadata address.
const relayEnv = "CROFT_TEST_RELAY"

func TestMain(m *testing.M) {
	if to := os.Getenv(relayEnv); to != "" {
		relay(to)
		return
	}
	code := m.Run()
	os.RemoveAll(image.dir)
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func relay(to string) {
	conn, err := net.Dial("tcp", to)
	if err != nil {
		os.Exit(1)
	}
	go func() {
		io.Copy(conn, os.Stdin)
		conn.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(os.Stdout, conn)
}

const id = croft.InstanceID("5d1b9c3e-7b8e-4c0a-8e4e-0f4dbe7f3a11")

func theGuest() mdserver.Guest {
	return mdserver.FromOrder(croft.Order{
		Instance: id, Project: "lab", Name: "web-1",
		Spec: croft.Spec{GuestSettings: croft.GuestSettings{Keys: []string{
			"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJUjfV4cxbC5Eg6aqie4wC6OdHHbbHIivxzJq2gTh/hr jo at home, \"x\"",
			"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE2iYCZ6HvyFBkQxAwQ1pGH8z7w3Uo3bqZJXl0yHkq4x",
		}, UserData: []byte("#!/bin/sh\ncat /root/.ssh/authorized_keys\nexit 7\n")}},
	})
}

// askedBy returns the same guest for every request.
type askedBy mdserver.Guest

func (g askedBy) Guest(context.Context, netip.Addr) (mdserver.Guest, error) {
	return mdserver.Guest(g), nil
}

// heard receives the guest's reports about cloud-init.
type heard chan croft.CloudInit

func (h heard) CloudInit(_ context.Context, _ croft.InstanceID, c croft.CloudInit) error {
	h <- c
	return nil
}

func (heard) SetPassword(context.Context, croft.InstanceID, string) error { return nil }

func (heard) Password(context.Context, croft.InstanceID) (string, error) { return "", nil }

var image struct {
	sync.Once
	dir, path string
	err       error
}

// build returns the image named by CROFT_TEST_GUEST, or builds it once for all tests, in a directory that is kept
// until they end.
func build(t *testing.T) string {
	t.Helper()
	image.Do(func() {
		if named := os.Getenv("CROFT_TEST_GUEST"); named != "" {
			image.path, image.err = filepath.Abs(named)
			return
		}
		if image.dir, image.err = os.MkdirTemp("", "croft-guest-"); image.err != nil {
			return
		}
		image.path = filepath.Join(image.dir, "tiny.qcow2")
		out, err := exec.Command("../../scripts/guest/build", image.path).CombinedOutput()
		if err != nil {
			image.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if image.err != nil {
		t.Fatal("build the guest image: ", image.err)
	}
	return image.path
}

// machine is a guest that runs under QEMU, on QEMU's user network.
type machine struct {
	lines   *bufio.Scanner // its console's output
	said    strings.Builder
	web     string // address of its port 80
	monitor string // path of QEMU's monitor
	ended   func() error
}

// boot starts the guest for x86_64.
func boot(t *testing.T, memory int, metadata string, args ...string) *machine {
	t.Helper()
	args = append([]string{"-machine", "pc,accel=tcg"}, args...)
	return start(t, "qemu-system-x86_64", build(t), memory, metadata, args)
}

// start starts an image under an emulator of its architecture; args name the machine type and further devices.
func start(t *testing.T, emulator, image string, memory int, metadata string, args []string) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{web: freeport.For(t, "127.0.0.1"), monitor: filepath.Join(dir, "monitor")}
	network := "user,id=n,net=169.254.169.0/24,hostfwd=tcp:" + m.web + "-:80"
	if metadata != "" {
		binary, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		network += ",guestfwd=tcp:169.254.169.254:80-cmd:" + binary
	}
	args = append([]string{"-m", fmt.Sprint(memory), "-nodefaults", "-nographic", "-snapshot",
		"-drive", "id=root,if=none,format=qcow2,file=" + image, "-device", "virtio-blk-pci,drive=root,bootindex=1",
		"-netdev", network, "-device", "virtio-net-pci,netdev=n", "-device", "virtio-rng-pci",
		"-serial", "stdio", "-monitor", "unix:" + m.monitor + ",server=on,wait=off"}, args...)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	qemu := exec.CommandContext(ctx, emulator, args...)
	qemu.Env = append(os.Environ(), relayEnv+"="+metadata)
	var complaints bytes.Buffer
	qemu.Stderr = &complaints
	console, err := qemu.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	m.ended = sync.OnceValue(qemu.Wait)
	t.Cleanup(func() {
		cancel()
		m.ended()
		if t.Failed() {
			t.Logf("QEMU said %q, the guest's console:\n%s", complaints.String(), m.said.String())
		}
	})
	m.lines = bufio.NewScanner(console)
	return m
}

// until reads the console up to the line that contains all the words.
func (m *machine) until(t *testing.T, words ...string) {
	t.Helper()
	for m.lines.Scan() {
		line := m.lines.Text()
		m.said.WriteString(line + "\n")
		found := true
		for _, w := range words {
			found = found && strings.Contains(line, w)
		}
		if found {
			return
		}
		if strings.Contains(line, " ready: ") {
			break // the last line that it prints without input
		}
	}
	t.Fatalf("the console came to its end, or the guest to being ready, without a line that has %q", words)
}

func (m *machine) answers(t *testing.T) string {
	t.Helper()
	resp, err := http.Get("http://" + m.web + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func (m *machine) pressPower(t *testing.T) {
	t.Helper()
	conn, err := net.Dial("unix", m.monitor)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintln(conn, "system_powerdown")
	m.until(t, "power button: off")
	for m.lines.Scan() {
		m.said.WriteString(m.lines.Text() + "\n")
	}
	if err := m.ended(); err != nil {
		t.Errorf("after the power button QEMU ended with %v", err)
	}
}

// theWholeWay checks everything that a guest does after finding its metadata.
func theWholeWay(t *testing.T, m *machine, source string, reports heard) {
	t.Helper()
	m.until(t, "metadata: "+source, "instance "+string(id))
	m.until(t, "hostname: web-1")
	m.until(t, "ssh: root may log in with 2 key(s)")
	m.until(t, "user-data: running the script")
	m.until(t, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJUjfV4cxbC5Eg6aqie4wC6OdHHbbHIivxzJq2gTh/hr jo at home")
	m.until(t, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE2iYCZ6HvyFBkQxAwQ1pGH8z7w3Uo3bqZJXl0yHkq4x")
	m.until(t, "user-data: the script ended with exit code 7")
	m.until(t, "ready: instance "+string(id)+", hostname web-1, address 169.254.169.")
	if got, want := m.answers(t), "croft instance web-1 "+string(id)+"\n"; got != want {
		t.Errorf("port 80 answers %q, want %q", got, want)
	}
	if reports != nil {
		want := croft.CloudInit{State: croft.CloudInitFailed, Error: "the user-data script ended with exit code 7"}
		if got := <-reports; got.State != want.State || got.Error != want.Error {
			t.Errorf("the guest reports %+v, want %+v", got, want)
		}
	}
	m.pressPower(t)
}

// seedFile returns the path of a metadata disk of the guest.
func seedFile(t *testing.T) string {
	t.Helper()
	var seed bytes.Buffer
	if err := mdserver.WriteSeed(&seed, theGuest()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "seed.iso")
	if err := os.WriteFile(path, seed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// aarch64Firmware is the UEFI of the package qemu-efi-aarch64.
const aarch64Firmware = "/usr/share/AAVMF/AAVMF_CODE.fd"

func TestGuestForAArch64(t *testing.T) {
	image := os.Getenv("CROFT_TEST_GUEST_ARM64")
	if image == "" {
		t.Skip("CROFT_TEST_GUEST_ARM64 names no image; scripts/guest/build --arch arm64 makes one")
	}
	const emulator = "qemu-system-aarch64"
	if _, err := exec.LookPath(emulator); err != nil {
		t.Skipf("%v: install qemu-system-arm", err)
	}
	if _, err := os.Stat(aarch64Firmware); err != nil {
		t.Skipf("%v: install qemu-efi-aarch64", err)
	}
	path := seedFile(t)
	m := start(t, emulator, image, 512, "", []string{"-machine", "virt,accel=tcg", "-cpu", "max,pauth-impdef=on",
		"-drive", "if=pflash,format=raw,readonly=on,file=" + aarch64Firmware,
		"-drive", "id=seed,if=none,format=raw,readonly=on,file=" + path,
		"-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=seed"})
	theWholeWay(t, m, "NoCloud disk", nil)
}

func TestGuestWithADisk(t *testing.T) {
	for name, devices := range map[string][]string{
		"IDE":    {"-device", "ide-cd,drive=seed"},
		"SCSI":   {"-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=seed"},
		"virtio": {"-device", "virtio-blk-pci,drive=seed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := seedFile(t)
			drive := []string{"-drive", "id=seed,if=none,readonly=on,format=raw,file=" + path}
			theWholeWay(t, boot(t, 128, "", append(drive, devices...)...), "NoCloud disk", nil)
		})
	}
}

func TestGuestWithAMetadataServer(t *testing.T) {
	for name, hidden := range map[string]string{"OpenStack tree": "/none", "EC2 tree": "/openstack"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reports := make(heard, 8)
			server, err := mdserver.New(mdserver.Config{Guests: askedBy(theGuest()), Reports: reports,
				Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, hidden) {
					http.NotFound(w, r)
					return
				}
				server.ServeHTTP(w, r)
			}))
			defer web.Close()
			theWholeWay(t, boot(t, 128, web.Listener.Addr().String()), name, reports)
		})
	}
}

// TestGuestWithAConfigDrive: the disk has OpenStack's format, and the report reaches the server although the
// metadata came from the disk.
func TestGuestWithAConfigDrive(t *testing.T) {
	t.Parallel()
	reports := make(heard, 8)
	server, err := mdserver.New(mdserver.Config{Guests: askedBy(theGuest()), Reports: reports,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server)
	defer web.Close()
	path := filepath.Join(t.TempDir(), "seed.iso")
	disk, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(mdserver.WriteConfigDrive(disk, theGuest()), disk.Close()); err != nil {
		t.Fatal(err)
	}
	m := boot(t, 128, web.Listener.Addr().String(), "-drive", "id=seed,if=none,readonly=on,format=raw,file="+path,
		"-device", "virtio-blk-pci,drive=seed")
	theWholeWay(t, m, "config-2 disk", reports)
}

func TestGuestThatCannotUseItsUserDataSaysSo(t *testing.T) {
	g := theGuest()
	g.UserData, g.Keys = []byte("#cloud-config\npackages: [nginx]\n"), nil
	server, err := mdserver.New(mdserver.Config{Guests: askedBy(g), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server)
	defer web.Close()
	m := boot(t, 128, web.Listener.Addr().String())
	m.until(t, "ssh: nobody may log in, there are no keys")
	m.until(t, "user-data: ignored")
	m.until(t, "ready: ")
}

package ssh_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/grid/ssh"
	"croft/grid/ssh/sshtest"
	"croft/grid/unit"
	"croft/internal/testing/patient"
)

func TestAChattyLoginShellBreaksNothingThatIsRead(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/bin/bash"); err != nil {
		t.Skip("there is no bash, which reads ~/.bashrc under sshd")
	}
	g := sshtest.Start(t, sshtest.Options{})
	n := g.Nodes[0]
	for name, rc := range map[string]string{
		"words on both streams":  "echo welcome; echo careful >&2\n",
		"no end of line":         "printf 'welcome'; printf 'careful' >&2\n",
		"what looks like a mark": "echo croft-; printf croft-\n",
		"escapes and zeros":      `printf '\033[2J\000\377'` + "\n",
		"traces":                 "set -x\necho on\n",
		"much":                   "head -c 500000 /dev/zero\n",
		"options":                "set -eu; set -o noclobber\n",
	} {
		write(t, filepath.Join(n.Home, ".bashrc"), rc)
		r := dialer(t, g).Remote(n.Unit)
		out, err := machine.Output(patient.Context(t), r, strings.NewReader("in"), "sh", "-c",
			"cat; echo no >&2; exit 3")
		var exit *machine.Exit
		if out != "in" || !errors.As(err, &exit) || exit.Code != 3 || exit.Stderr != "no\n" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
		r.Close()
	}
	for name, rc := range map[string]string{
		"it ends":                "exit 5\n",
		"it fails":               "exit 0\n",
		"it becomes a program":   "exec true\n",
		"it never stops talking": "yes\n",
	} {
		write(t, filepath.Join(n.Home, ".bashrc"), rc)
		r := dialer(t, g).Remote(n.Unit)
		_, err := machine.Output(patient.Context(t), r, nil, "true")
		if !errors.Is(err, croft.Unavailable) || errors.As(err, new(*machine.Lost)) ||
			!strings.Contains(err.Error(), "n1: the program was not started: ") {
			t.Errorf("%s: %v, want Unavailable, and not Lost", name, err)
		}
		r.Close()
	}
}

func TestAForcedCommandIsNotTakenForTheProgram(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{Sshd: []string{"ForceCommand echo forced; cat"}})
	r := dialer(t, g).Remote(g.Nodes[0].Unit)
	out, err := machine.Output(patient.Context(t), r, strings.NewReader("in"), "true")
	if out != "" || !errors.Is(err, croft.Unavailable) ||
		!strings.Contains(err.Error(), "sshd forces another command") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestAProgramThatAsksForAPasswordGetsNone(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	r := dialer(t, g).Remote(g.Nodes[0].Unit)
	// what sudo does without -n: it reads from the terminal, or with -S from its input
	for _, script := range []string{"read -r password </dev/tty", "read -r password"} {
		_, err := machine.Output(patient.Context(t), r, nil, "bash", "-c", script)
		if err == nil || !errors.As(err, new(*machine.Exit)) {
			t.Errorf("%s: %v, want an Exit", script, err)
		}
	}
}

func TestAGigabyteOfOutput(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	g := sshtest.Start(t, sshtest.Options{})
	r := dialer(t, g).Remote(g.Nodes[0].Unit)
	if _, err := machine.Output(patient.Context(t), r, nil, "head", "-c", "1G", "/dev/zero"); !errors.Is(err,
		croft.Invalid) {
		t.Errorf("what is kept in memory: %v", err)
	}
	n := &counter{}
	p, err := r.Start(patient.Context(t), machine.Command{Argv: []string{"head", "-c", "256M", "/dev/zero"}, Stdout: n})
	if err == nil {
		err = p.Wait()
	}
	if err != nil || n.bytes != 256<<20 {
		t.Errorf("what is passed on: %d bytes, %v", n.bytes, err)
	}
	if out, err := machine.Output(patient.Context(t), r, nil, "echo", "here"); out != "here\n" || err != nil {
		t.Errorf("afterwards: %q, %v", out, err)
	}
}

type counter struct{ bytes int }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += len(p)
	return len(p), nil
}

// A server that says what a test makes it say; it ends with the test.
func server(t *testing.T, talk func(net.Conn)) unit.Node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			work.Go(func() {
				defer c.Close()
				talk(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // it accepts no more
		mu.Lock()
		for _, c := range open {
			_ = c.Close() // its talk ends
		}
		mu.Unlock()
		work.Wait()
	})
	return unit.Node{Name: "odd", Address: l.Addr().String()}
}

func TestServersThatAreNone(t *testing.T) {
	quick := ssh.Config{File: userConfig(t, ""), Timeout: 300 * time.Millisecond}
	for name, c := range map[string]struct {
		talk func(net.Conn)
		why  string
	}{
		"says nothing":             {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, "no answer within 1s"},
		"says its name slowly":     {drip("SSH-2.0-Slow\r\n"), "no answer within 1s"},
		"never ends its name":      {repeat("SSH-2.0-x"), ""},
		"talks before its name":    {repeat("\x1b[2Jhello\r\n"), ""},
		"speaks HTTP":              {say("HTTP/1.1 400 Bad Request\r\n\r\n"), ""},
		"sends garbage":            {say("SSH-2.0-x\r\n" + strings.Repeat("\xff", 4096)), ""},
		"closes each connection":   {func(net.Conn) {}, "reset before the handshake"},
		"speaks an older protocol": {say("SSH-1.5-x\r\n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := ssh.New(quick)
			defer d.Close()
			_, err := machine.Output(patient.Context(t), d.Remote(server(t, c.talk)), nil, "true")
			if !errors.Is(err, croft.Unavailable) || errors.As(err, new(*machine.Lost)) ||
				!strings.Contains(err.Error(), c.why) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func say(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, text)
		_, _ = io.Copy(io.Discard, c)
	}
}

func repeat(text string) func(net.Conn) {
	return func(c net.Conn) {
		for {
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
		}
	}
}

func drip(text string) func(net.Conn) {
	return func(c net.Conn) {
		for _, b := range []byte(text) {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond) // the other side gives up
		}
		_, _ = io.Copy(io.Discard, c) // it gives up later on a busy machine
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d := ssh.New(ssh.Config{File: userConfig(t, "")})
	defer d.Close()
	err = d.Remote(unit.Node{Name: "gone", Address: address}).Connect(patient.Context(t))
	if !errors.Is(err, croft.Unavailable) || !strings.Contains(err.Error(), "gone: connect to ") {
		t.Errorf("got %v", err)
	}
	for _, address := range []string{"", "a b", "x:0", "[::1"} {
		err := d.Remote(unit.Node{Name: "no name", Address: address}).Connect(patient.Context(t))
		if !errors.Is(err, croft.Invalid) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestAMachineThatFallsSilentIsLost(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	n := g.Nodes[0]
	r := dialer(t, g, func(c *ssh.Config) { c.Keepalive = time.Second }).Remote(n.Unit)
	if err := r.Connect(patient.Context(t)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p, err := r.Start(patient.Context(t), machine.Command{Argv: []string{"sleep", "1000"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	n.Suspend()
	err = p.Wait()
	if !errors.As(err, new(*machine.Lost)) || !strings.Contains(err.Error(), "no sign of life: ") {
		t.Errorf("got %v", err)
	}
	n.Resume()
	if len(n.Running()) == 0 {
		t.Log("the program has ended with its connection")
	}
	<-r.Lost()
}

func TestALongUploadDoesNotCountAsSilence(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	r := dialer(t, g, func(c *ssh.Config) { c.Keepalive = time.Second }).Remote(g.Nodes[0].Unit)
	out, err := machine.Output(patient.Context(t), r, nil, "sh", "-c", "sleep 4; echo done")
	if out != "done\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

func TestWhatIsKilledIsLost(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	n := g.Nodes[0]
	r := dialer(t, g).Remote(n.Unit)
	if err := r.Connect(patient.Context(t)); err != nil {
		t.Fatal(err)
	}
	p, err := r.Start(patient.Context(t), machine.Command{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Kill()
	if err := p.Wait(); !errors.As(err, new(*machine.Lost)) {
		t.Errorf("got %v", err)
	}
	if left := n.Running(); len(left) > 0 {
		t.Errorf("power failed, and there is still %q", left)
	}
	if err := connect(t, g, n.Unit); !errors.Is(err, croft.Unavailable) {
		t.Errorf("it is off: %v", err)
	}
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := connect(t, g, n.Unit); err != nil {
		t.Error(err)
	}
}

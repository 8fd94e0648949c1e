package ssh_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"croft"
	"croft/grid/machine"
	"croft/grid/ssh"
	"croft/internal/testing/patient"
)

// lying is a machine that everybody may log in to and that treats each program in a way of its own, in this process.
// The connection ends when session returns false.
func lying(t *testing.T, session func(c xssh.Channel, r *xssh.Request, mark string) bool) *ssh.Remote {
	t.Helper()
	file, key := newKey(t, "ed25519")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := xssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	config := &xssh.ServerConfig{
		PublicKeyCallback: func(xssh.ConnMetadata, xssh.PublicKey) (*xssh.Permissions, error) { return nil, nil },
		BannerCallback:    func(xssh.ConnMetadata) string { return "\x1b[2J" + strings.Repeat("welcome\a", 1000) },
	}
	config.AddHostKey(signer)
	marks := regexp.MustCompile(`croft-[A-Z0-9]+`)
	node := server(t, func(raw net.Conn) {
		_, channels, requests, err := xssh.NewServerConn(raw, config)
		if err != nil {
			return
		}
		go xssh.DiscardRequests(requests)
		for ask := range channels {
			channel, requests, err := ask.Accept()
			if err != nil {
				return
			}
			for r := range requests {
				if r.Type != "exec" {
					_ = r.Reply(false, nil) // as a real one
					continue
				}
				if !session(channel, r, marks.FindString(string(r.Payload))) {
					return
				}
				break
			}
			go xssh.DiscardRequests(requests)
		}
	})
	node.Name, node.HostKey = "liar", xssh.FingerprintSHA256(key)
	d := ssh.New(ssh.Config{File: userConfig(t, file)})
	t.Cleanup(d.Close)
	return d.Remote(node)
}

// userConfig is the ssh configuration of a user who knows no host, with a key, or none if that is empty.
func userConfig(t *testing.T, key string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	write(t, file, "IdentityFile "+cmp.Or(key, "/no/such/key")+"\nIdentityAgent none\nUserKnownHostsFile /dev/null\n"+
		"GlobalKnownHostsFile none\n")
	return file
}

// begin says that the program has begun, as the shell would.
func begin(c xssh.Channel, r *xssh.Request, mark string) {
	_ = r.Reply(true, nil) // its errors are the client's
	_, _ = io.WriteString(c, mark+"\n")
	_, _ = io.WriteString(c.Stderr(), mark+"\n")
}

func status(c xssh.Channel, payload []byte) {
	_, _ = c.SendRequest("exit-status", false, payload)
	_ = c.Close()
}

func TestMachinesThatLie(t *testing.T) {
	type outcome int
	const (
		lost       outcome = iota // nobody knows
		notStarted                // Unavailable, and not Lost
		failed                    // an Exit of 1 to 255
	)
	for name, c := range map[string]struct {
		session func(c xssh.Channel, r *xssh.Request, mark string) bool
		want    outcome
	}{
		"refuses programs": {func(_ xssh.Channel, r *xssh.Request, _ string) bool {
			return r.Reply(false, nil) == nil
		}, lost},
		"closes the connection before it answers": {func(xssh.Channel, *xssh.Request, string) bool {
			return false
		}, lost},
		"closes the connection afterwards": {func(_ xssh.Channel, r *xssh.Request, _ string) bool {
			_ = r.Reply(true, nil) // the connection ends
			return false
		}, lost},
		"closes the session without a word": {func(c xssh.Channel, r *xssh.Request, _ string) bool {
			return r.Reply(true, nil) == nil && c.Close() == nil
		}, lost},
		"says how a program ended that it never began": {func(c xssh.Channel, r *xssh.Request, _ string) bool {
			_ = r.Reply(true, nil) // its errors are the client's
			status(c, make([]byte, 4))
			return true
		}, notStarted},
		"ends a program without saying how": {func(c xssh.Channel, r *xssh.Request, mark string) bool {
			begin(c, r, mark)
			return c.Close() == nil
		}, lost},
		"says so in three bytes": {func(c xssh.Channel, r *xssh.Request, mark string) bool {
			begin(c, r, mark)
			status(c, []byte{0, 0, 0})
			return true
		}, lost},
		"says a signal that there is not": {func(c xssh.Channel, r *xssh.Request, mark string) bool {
			begin(c, r, mark)
			_, _ = c.SendRequest("exit-signal", false, []byte{0, 0, 0, 200, 'x'})
			return c.Close() == nil
		}, lost},
		"says an exit code of more than a byte": {func(c xssh.Channel, r *xssh.Request, mark string) bool {
			begin(c, r, mark)
			status(c, binary.BigEndian.AppendUint32(nil, 257))
			return true
		}, failed},
		"says a code that looks like success": {func(c xssh.Channel, r *xssh.Request, mark string) bool {
			begin(c, r, mark)
			status(c, binary.BigEndian.AppendUint32(nil, 256))
			return true
		}, failed},
		"never stops complaining": {func(c xssh.Channel, r *xssh.Request, _ string) bool {
			_ = r.Reply(true, nil) // its errors are the client's
			for {
				if _, err := c.Stderr().Write(bytes.Repeat([]byte("\x1b[31m"), 1000)); err != nil {
					return true
				}
			}
		}, notStarted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := machine.Output(patient.Context(t), lying(t, c.session), nil, "true")
			var exit *machine.Exit
			isLost := errors.As(err, new(*machine.Lost))
			ok := map[outcome]bool{
				lost: isLost, notStarted: !isLost && errors.Is(err, croft.Unavailable),
				failed: errors.As(err, &exit) && exit.Code >= 1 && exit.Code <= 255,
			}[c.want]
			if !ok {
				t.Errorf("got %v (Lost: %v)", err, isLost)
			}
		})
	}
}

func TestAMachineThatNeverAnswersEndsWithTheContext(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	defer close(block)
	r := lying(t, func(xssh.Channel, *xssh.Request, string) bool { <-block; return false })
	if err := r.Connect(patient.Context(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	p, err := r.Start(ctx, machine.Command{Argv: []string{"true"}})
	if err == nil {
		err = p.Wait()
		if !errors.As(err, new(*machine.Lost)) {
			t.Errorf("got %v, want Lost: it may be running", err)
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Start(ctx, machine.Command{Argv: []string{"true"}}); !errors.Is(err, croft.Unavailable) {
		t.Errorf("a session that is never opened: %v", err)
	}
}

package compute

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/internal/connlimit"
)

const secret = "secret"

// ask calls the API with its token.
func ask(t *testing.T, a *Agent, method, path string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	r.Header.Set("Authorization", "Bearer "+secret)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	(&API{Agent: a, Token: secret}).Handler().ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, from *http.Response) string {
	t.Helper()
	all, err := io.ReadAll(from.Body)
	if err != nil {
		t.Error(err)
	}
	return string(all)
}

func TestAConsoleLogIsSentAsItIs(t *testing.T) {
	t.Parallel()
	_, a := alone(t)
	const path = "/v1/instances/" + string(guest) + "/console"
	for _, c := range []struct {
		name, path string
		log        string
		status     int
		says       string
	}{
		{"none yet", path, "", http.StatusNotFound, "has no console log on this host yet"},
		{"of no instance", "/v1/instances/x/console", "", http.StatusBadRequest, "x"},
		{"one", path, "booted\n", http.StatusOK, "booted\n"},
		{"one that is not followed", path + "?follow=0", "", http.StatusOK, "booted\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.log != "" {
				if err := os.Mkdir(a.dir(guest), 0o700); err != nil {
					t.Fatal(err)
				}
				write(t, a.ConsoleLog(guest), c.log)
			}
			got := ask(t, a, http.MethodGet, c.path)
			said := text(t, got)
			if got.StatusCode != c.status || !strings.Contains(said, c.says) || got.ContentLength > 0 {
				t.Errorf("got %s %q", got.Status, said)
			}
			for header, want := range map[string]string{"Content-Type": "text/plain; charset=utf-8",
				"X-Content-Type-Options": "nosniff"} {
				if got := got.Header.Get(header); got != want {
					t.Errorf("%s: %q", header, got)
				}
			}
			if buffered := got.Header.Get("X-Accel-Buffering") != "no"; buffered == (c.status == http.StatusOK) {
				t.Errorf("a proxy may keep it: %v", buffered)
			}
		})
	}
}

// A followed log is sent as soon as it is written.
func TestAConsoleLogIsFollowed(t *testing.T) {
	t.Parallel()
	for _, follow := range []string{"1", "true"} {
		_, a := alone(t)
		if err := os.Mkdir(a.dir(guest), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, a.ConsoleLog(guest), "one\n")
		server := httptest.NewServer((&API{Agent: a, Token: secret}).Handler())
		defer server.Close()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			server.URL+"/v1/instances/"+string(guest)+"/console?follow="+follow, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		got, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		lines := bufio.NewReader(got.Body)
		for i, want := range []string{"one\n", "two\n"} {
			if i > 0 {
				write(t, a.ConsoleLog(guest), want)
			}
			if line, err := lines.ReadString('\n'); line != want || err != nil {
				t.Errorf("follow=%s: got %q, %v", follow, line, err)
			}
		}
		if err := a.clean(guest); err != nil {
			t.Error(err)
		}
		if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
			t.Errorf("follow=%s: after its end: %q, %v", follow, rest, err)
		}
	}
}

// terminal is a hypervisor with one guest, whose console is one end of a pipe.
type terminal struct {
	logHypervisor
	console io.ReadWriteCloser
}

func (h terminal) OpenConsole(_ context.Context, id croft.InstanceID, _ bool) (io.ReadWriteCloser, error) {
	if id != guest {
		return nil, croft.Errorf(croft.NotFound, "no guest")
	}
	if h.console == nil {
		return nil, croft.Errorf(croft.Conflict, "somebody else is attached")
	}
	return h.console, nil
}

func (h terminal) OpenScreen(ctx context.Context, id croft.InstanceID, takeOver bool) (io.ReadWriteCloser, error) {
	return h.OpenConsole(ctx, id, takeOver)
}

func (terminal) Screenshot(context.Context, croft.InstanceID) ([]byte, error) {
	return nil, croft.Errorf(croft.Conflict, "the machine has no screen")
}

// counted counts its Close calls.
type counted struct {
	io.ReadWriteCloser
	mu     *sync.Mutex
	closed *int
}

func (c counted) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.closed++
	return c.ReadWriteCloser.Close()
}

func TestALiveConsoleIsRefused(t *testing.T) {
	t.Parallel()
	const path = "/v1/instances/" + string(guest) + "/console"
	mine, other := net.Pipe()
	defer other.Close()
	closed := 0
	for _, c := range []struct {
		name, path, protocol string
		hypervisor           func(logHypervisor) Hypervisor
		status               int
		says                 string
	}{
		{"of no instance", "/v1/instances/x/console", ConsoleProtocol,
			func(l logHypervisor) Hypervisor { return terminal{l, nil} }, http.StatusBadRequest, "x"},
		{"without the protocol", path, "", func(l logHypervisor) Hypervisor { return terminal{l, nil} },
			http.StatusUpgradeRequired, ConsoleProtocol},
		{"with another protocol", path, "websocket", func(l logHypervisor) Hypervisor { return terminal{l, nil} },
			http.StatusUpgradeRequired, ConsoleProtocol},
		{"where the hypervisor has none", path, ConsoleProtocol, func(l logHypervisor) Hypervisor { return l },
			http.StatusUpgradeRequired, ConsoleProtocol},
		{"where somebody else is attached", path, ConsoleProtocol,
			func(l logHypervisor) Hypervisor { return terminal{l, nil} }, http.StatusConflict, "somebody else"},
		{"of a screen where somebody else is attached", strings.TrimSuffix(path, "console") + "screen", ConsoleProtocol,
			func(l logHypervisor) Hypervisor { return terminal{l, nil} }, http.StatusConflict, "somebody else"},
		{"where the connection cannot be taken over", path, ConsoleProtocol, func(l logHypervisor) Hypervisor {
			return terminal{l, counted{mine, new(sync.Mutex), &closed}}
		}, http.StatusInternalServerError, "not supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, a := alone(t)
			a.Hypervisor = c.hypervisor(logHypervisor{logbook: l})
			got := ask(t, a, http.MethodPost, c.path, "Upgrade", c.protocol)
			said := text(t, got)
			if got.StatusCode != c.status || !strings.Contains(said, c.says) {
				t.Errorf("got %s %q", got.Status, said)
			}
			upgrade := got.Header.Get("Upgrade") == ConsoleProtocol
			if upgrade != (c.status == http.StatusUpgradeRequired) {
				t.Errorf("it names the protocol: %v", upgrade)
			}
		})
	}
	if closed != 1 {
		t.Errorf("the guest's console was closed %d times", closed)
	}
}

// accepting is a listener that returns given connections.
type accepting chan net.Conn

func (a accepting) Accept() (net.Conn, error) {
	if c, ok := <-a; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (a accepting) Close() error   { return nil }
func (a accepting) Addr() net.Addr { return &net.TCPAddr{} }

func TestALiveConsoleCarriesBytesUntilOneSideEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(client, screen net.Conn, stop func())
	}{
		{"the client", func(client, _ net.Conn, _ func()) { _ = client.Close() }},
		{"the guest", func(_, screen net.Conn, _ func()) { _ = screen.Close() }},
		{"the agent", func(_, _ net.Conn, stop func()) { stop() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, a := alone(t)
				console, screen := net.Pipe()
				defer screen.Close()
				closed, mu := 0, new(sync.Mutex)
				a.Hypervisor = terminal{logHypervisor{logbook: l}, counted{console, mu, &closed}}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				api := &API{Agent: a, Token: secret}
				server := http.Server{Handler: api.Handler(), ReadHeaderTimeout: time.Minute,
					BaseContext: func(net.Listener) context.Context { return ctx }}
				conns := make(accepting, 1)
				go func() { _ = server.Serve(conns) }()
				defer close(conns)
				client, theirs := net.Pipe()
				defer client.Close()
				conns <- theirs
				typing := func(to net.Conn, words string) {
					if _, err := io.WriteString(to, words); err != nil {
						t.Error(err)
					}
				}
				reads := func(from io.Reader, want string) {
					t.Helper()
					got := make([]byte, len(want))
					if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
						t.Errorf("got %q, %v, want %q", got, err, want)
					}
				}
				go typing(client, "POST /v1/instances/"+string(guest)+"/console HTTP/1.1\r\nHost: x\r\n"+
					"Authorization: Bearer secret\r\nUpgrade: "+ConsoleProtocol+"\r\n\r\nearly")
				answer := bufio.NewReader(client)
				head, err := http.ReadResponse(answer, nil)
				if err != nil || head.StatusCode != http.StatusSwitchingProtocols ||
					head.Header.Get("Upgrade") != ConsoleProtocol || head.Header.Get("Connection") != "Upgrade" {
					t.Fatalf("got %+v, %v", head, err)
				}
				reads(screen, "early")
				go typing(screen, "login: ")
				reads(answer, "login: ")
				go typing(client, "root")
				reads(screen, "root")
				left := make(chan struct{})
				go func() {
					api.Wait()
					close(left)
				}()
				synctest.Wait()
				select {
				case <-left:
					t.Error("nobody is attached")
				default:
				}
				c.end(client, screen, stop)
				<-left
				if n, err := answer.Read(make([]byte, 1)); n > 0 || err == nil {
					t.Error("the client reads on")
				}
				if n, err := screen.Read(make([]byte, 1)); n > 0 || err == nil {
					t.Error("the guest's console reads on")
				}
				if mu.Lock(); closed == 0 {
					t.Error("the guest's console is not closed")
				}
				mu.Unlock()
			})
		})
	}
}

// faulty is a side of a console.
type faulty struct {
	read, write error
	closed      chan struct{}
	once        *sync.Once
	late        time.Duration // how long a read lasts after the end
}

func newFaulty(read, write error, late time.Duration) faulty {
	return faulty{read, write, make(chan struct{}), new(sync.Once), late}
}

func (f faulty) Read([]byte) (int, error) {
	if f.read == nil {
		<-f.closed
		time.Sleep(f.late)
		return 0, net.ErrClosed
	}
	return 0, f.read
}

func (f faulty) Write(p []byte) (int, error) { return len(p), f.write }

func (f faulty) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

func TestAConsoleEndsWithBothSidesAndTheirErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		guest faulty
		typed io.Reader // nil: the client's connection
		want  error
		takes time.Duration
	}{
		{"the guest ends", newFaulty(io.EOF, nil, 0), nil, nil, 0},
		{"the guest's console fails", newFaulty(errPlanned, nil, 0), nil, errPlanned, 0},
		{"the client ends", newFaulty(nil, nil, time.Second), strings.NewReader("exit"), nil, time.Second},
		{"the guest takes no input", newFaulty(nil, errPlanned, 0), strings.NewReader("exit"), errPlanned, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := c
				c.guest.closed = make(chan struct{}) // of this bubble
				client, other := net.Pipe()
				defer other.Close()
				if c.typed == nil {
					c.typed = client
				}
				begun := time.Now()
				err := join(t.Context(), client, c.typed, c.guest)
				if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || time.Since(begun) != c.takes {
					t.Errorf("after %s it ends with %v, want %v", time.Since(begun), err, c.want)
				}
				if _, err := client.Write(nil); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("the client's connection is open: %v", err)
				}
				<-c.guest.closed
			})
		})
	}
	for _, err := range []error{nil, net.ErrClosed, io.ErrClosedPipe, errPlanned} {
		if got := ended(err); (got != nil) != errors.Is(err, errPlanned) {
			t.Errorf("%v is %v", err, got)
		}
	}
}

// A client with the token keeps its connection when clients without it connect.
func TestWhoHasTheTokenKeepsTheConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		token string
		keeps bool
	}{{secret, true}, {"guess", false}} {
		l, a := alone(t)
		conns := make(accepting, 2)
		limited := connlimit.New(conns, connlimit.Limits{PerSource: 2, Total: 1, UnprovenOnly: true})
		client, theirs := net.Pipe()
		conns <- theirs
		mine, err := limited.Accept()
		if err != nil {
			t.Fatal(err)
		}
		next := func() {
			another, end := net.Pipe()
			defer another.Close()
			conns <- end
			other, err := limited.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_ = other.Close()
		}
		l.fail = func(call string) error {
			if call == "list" {
				next() // while its request is being answered
			}
			return nil
		}
		r := httptest.NewRequestWithContext(connlimit.Context(t.Context(), mine), http.MethodGet, "/v1/holding", nil)
		r.Header.Set("Authorization", "Bearer "+c.token)
		(&API{Agent: a, Token: secret}).Handler().ServeHTTP(httptest.NewRecorder(), r)
		next()
		if open := mine.SetDeadline(time.Time{}) == nil; open != c.keeps {
			t.Errorf("with the token %s it is open: %v", c.token, open)
		}
		_, _ = client.Close(), mine.Close()
	}
}

// A tail ends when the directory is removed, and ignores all other events next to the log.
func TestTailIgnoresWhatHappensBesideTheLog(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "i")
	beside, within := filepath.Join(parent, "other"), filepath.Join(dir, "other")
	path := filepath.Join(dir, "console.log")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(beside, 0o755)); err != nil {
		t.Fatal(err)
	}
	write(t, within, "x")
	write(t, path, "one ")
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- tail(t.Context(), path, w, true)
		w.Close()
	}()
	for _, step := range []func() error{
		func() error { return nil },
		func() error { return os.Remove(within) },
		func() error { return os.Remove(beside) },
		func() error { return os.Chmod(dir, 0o711) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		write(t, path, "one ")
		got := make([]byte, 4)
		if _, err := io.ReadFull(r, got); err != nil || string(got) != "one " {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	// A file where the directory should be is not a log.
	if err := errors.Join(os.Rename(dir, dir+".0"), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a file in the place of its directory is followed")
	}
}

// deaf accepts no data.
type deaf struct{}

func (deaf) Write([]byte) (int, error) { return 0, errPlanned }

func TestTailEndsWithWhoListens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "console.log")
	write(t, path, "text")
	for _, follow := range []bool{false, true} {
		if err := tail(t.Context(), path, deaf{}, follow); !errors.Is(err, errPlanned) {
			t.Errorf("follow: %v, got %v", follow, err)
		}
	}
	if err := tail(t.Context(), path+"x", io.Discard, true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	write(t, path+".1", "more")
	if got, err := reopened(f, root, "console.log.1", deaf{}); got != f || !errors.Is(err, errPlanned) {
		t.Errorf("before a rotation is followed, the rest is sent: %v", err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "s")) // a file that cannot be opened
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if got, err := reopened(f, root, "s", io.Discard); got != f || err == nil {
		t.Errorf("what cannot be opened is followed: %v", err)
	}
}

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// rival is a server that can be started in a directory with its files.
type rival struct {
	name  string
	start func(dir string) *exec.Cmd
}

func (p plan) startOurs(string) *exec.Cmd {
	return exec.Command(filepath.Join(p.bin, "resalloc-server"))
}

// startOriginal uses Debian's Python, which has Debian's packages.
func (p plan) startOriginal(string) *exec.Cmd {
	cmd := exec.Command("/usr/bin/python3", filepath.Join(p.original, "bin", "resalloc-server"))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+p.original)
	return cmd
}

// with starts the server with these pools, calls do with it, and stops it.
func (r rival) with(ctx context.Context, pools string, do func(server) error) error {
	dir, err := os.MkdirTemp("", "croft-bench-pool-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	if err := configure(dir, pools, address); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := r.start(dir)
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "CONFIG_DIR="+dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	s := server{"http://" + address, dir, &http.Client{Transport: transport}}
	if err := s.await(ctx); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w\n%s", err, text)
	}
	return do(s)
}

// server is a running server, called as resalloc's clients do.
type server struct {
	url  string
	dir  string
	http *http.Client
}

// await returns when the server answers.
func (s server) await(ctx context.Context) error {
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := s.call(ctx, "collectTicket", number(1))
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// settle waits for the first stock, as far as it is visible: until a ticket that is opened a moment later is served at
// once.
func (s server) settle(ctx context.Context) error {
	if _, err := s.ticket(ctx, ""); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(3 * time.Second):
	}
	return ctx.Err()
}

// ticket opens a ticket, waits for its resource and closes it. ready is the time until the ticket had its resource.
func (s server) ticket(ctx context.Context, sandbox string) (ready time.Duration, err error) {
	params := tags("bench")
	if sandbox != "" {
		params += param("<string>" + sandbox + "</string>")
	}
	begun := time.Now()
	id, err := s.call(ctx, "takeTicket", params)
	if err != nil {
		return 0, err
	}
	if _, err := s.call(ctx, "waitTicket", param("<int>"+id+"</int>")); err != nil {
		return 0, err
	}
	ready = time.Since(begun)
	_, err = s.call(ctx, "closeTicket", param("<int>"+id+"</int>"))
	return ready, err
}

// openMany opens tickets that have to wait.
func (s server) openMany(ctx context.Context, n, clients int, tag string) error {
	var work sync.WaitGroup
	errs := make(chan error, clients)
	for range clients {
		work.Go(func() {
			for range n / clients {
				if _, err := s.call(ctx, "takeTicket", tags(tag)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	work.Wait()
	close(errs)
	return <-errs
}

func param(value string) string { return "<param><value>" + value + "</value></param>" }

func tags(tag string) string {
	return param("<array><data><value><string>" + tag + "</string></value></data></array>")
}

func number(n int) string { return param("<int>" + strconv.Itoa(n) + "</int>") }

var (
	faultText = regexp.MustCompile(`(?s)<name>faultString</name>\s*<value><string>(.*?)</string>`)
	integer   = regexp.MustCompile(`<(?:int|i4)>(\d+)</`)
)

// call makes a call. It retries a refused connection, as from a short listen queue, as resalloc's clients can be
// configured to do.
func (s server) call(ctx context.Context, method, params string) (string, error) {
	body := `<?xml version="1.0"?><methodCall><methodName>` + method + `</methodName><params>` + params +
		`</params></methodCall>`
	for try := 0; ; try++ {
		text, err := s.post(ctx, body)
		if err != nil && try < 20 && ctx.Err() == nil && method != "takeTicket" {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil {
			return "", err
		}
		if m := faultText.FindStringSubmatch(text); m != nil {
			return "", fmt.Errorf("%s: %s", method, m[1])
		}
		if m := integer.FindStringSubmatch(text); m != nil {
			return m[1], nil
		}
		return "", nil
	}
}

func (s server) post(ctx context.Context, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/RPC2", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "text/xml")
	resp, err := s.http.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return string(text), err
}

package compute

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"

	"croft"
	"croft/internal/connlimit"
	"croft/internal/httpapi"
)

// API is the agent's HTTP interface, for holders of the token in the host's record. Serve it with a BaseContext that
// ends before the server does, since a client may follow a console forever.
//
//	GET /v1/instances/{id}/console[?follow=1]      log of the serial console, as text
//	POST /v1/instances/{id}/console                the console itself: see ConsoleProtocol
//	POST /v1/instances/{id}/screen                 the screen by the protocol of VNC, likewise
//	POST /v1/instances/{id}/commands               run a command there: a GuestCommand, answered by a CommandAnswer
//	POST /v1/images                                fetch an image: a PullRequest, answered by lines of Pull
//	GET /v1/images                                 the cache: a list of Held as JSON
//	DELETE /v1/images[?image=REFERENCE|SHA256]     remove one image, or all unused ones: the removed ones, a list of Held as JSON
//	GET /v1/holding                                the guests and disks of the host: audit.Contents as JSON
//	GET /v1/usages                                 usage of its guests: a list of Usage as JSON
//	GET /v1/instances/{id}/usage                   its usage in the last day: UsageHistory as JSON
//	DELETE /v1/instances/{id}/files                remove disks without an owner
//	GET /v1/instances/{id}/leaving                 for the target of its move, with the move's key: departure as JSON
//	GET /v1/instances/{id}/leaving/{disk|base}     likewise: the file from the chunk ?from= on, as diskcopy sends it
//	GET /v1/image-copies/{image}/content           for other hosts, with the image's key: likewise
//	GET /v1/image-copies/{image}/upload            how far the upload of an image is: Upload as JSON
//	PUT /v1/image-copies/{image}/upload?offset=N   appends the body to it: Upload as JSON
type API struct {
	Agent *Agent
	Token string // required
	// returns the host whose certificate a request shows; empty: none. nil: the API does not use TLS
	Caller func(*http.Request) croft.HostID

	attached sync.WaitGroup // live consoles
}

// Handler serves the API.
func (api *API) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/instances/{id}/console", api.authorized(api.console))
	mux.Handle("POST /v1/instances/{id}/console", api.authorized(api.attach(Consoles.OpenConsole)))
	mux.Handle("POST /v1/instances/{id}/screen", api.authorized(api.attach(Consoles.OpenScreen)))
	mux.Handle("GET /v1/instances/{id}/screen", api.authorized(api.screen))
	mux.Handle("POST /v1/instances/{id}/commands", api.authorized(newCommands(api).serve))
	mux.Handle("POST /v1/images", api.authorized(api.pull))
	mux.Handle("GET /v1/images", api.authorized(api.cached(held)))
	mux.Handle("DELETE /v1/images", api.authorized(api.cached(removeHeld)))
	mux.Handle("GET /v1/holding", api.authorized(api.contents))
	mux.Handle("GET /v1/usages", api.authorized(api.usages))
	mux.Handle("GET /v1/instances/{id}/usage", api.authorized(api.usage))
	mux.Handle("DELETE /v1/instances/{id}/files", api.authorized(api.removeFiles))
	mux.Handle("GET /v1/instances/{id}/leaving", api.leaving(api.departure))
	mux.Handle("GET /v1/instances/{id}/leaving/{file}", api.leaving(api.copyFile))
	mux.HandleFunc("GET /v1/image-copies/{image}/content", api.sendCopy)
	mux.Handle("GET /v1/image-copies/{image}/upload", api.authorized(api.receiveChunk))
	mux.Handle("PUT /v1/image-copies/{image}/upload", api.authorized(api.receiveChunk))
	return mux
}

func (api *API) authorized(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || api.Token == "" || subtle.ConstantTimeCompare([]byte(given), []byte(api.Token)) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a bearer token is required", http.StatusUnauthorized)
			return
		}
		connlimit.Prove(r.Context())
		next(w, r)
	})
}

func (api *API) console(w http.ResponseWriter, r *http.Request) {
	id, err := croft.ParseInstanceID(r.PathValue("id"))
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	path := api.Agent.ConsoleLog(id)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		http.Error(w, "instance "+string(id)+" has no console log on this host yet", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Accel-Buffering", "no")
	follow := r.URL.Query().Get("follow")
	if err := tail(r.Context(), path, flushing{w, http.NewResponseController(w)}, follow == "1" ||
		follow == "true"); err != nil && r.Context().Err() == nil {
		api.Agent.Log.Warn("the console log could not be sent", "instance", id, "err", err)
	}
}

// flushing flushes after each write.
type flushing struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	return n, errors.Join(err, f.control.Flush())
}

// tail copies a file to w and, with follow, also data that is appended later, across rotations, until ctx ends or the
// file's directory is removed. It never reads from a directory of the same name that is created later, because that
// belongs to another instance.
func tail(ctx context.Context, path string, w io.Writer, follow bool) error {
	dir := filepath.Dir(path)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the console log: %w", err)
	}
	defer func() { _ = root.Close() }()
	f, err := root.Open(filepath.Base(path))
	if err != nil {
		return fmt.Errorf("open the console log: %w", err)
	}
	defer func() { _ = f.Close() }() // f is replaced on rotation
	if !follow {
		_, err := io.Copy(w, f)
		return err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the console log: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	// Watch the directory for writes, and its parent for the directory's removal.
	if err := errors.Join(watcher.Add(dir), watcher.Add(filepath.Dir(dir))); err != nil {
		return fmt.Errorf("watch the console log: %w", err)
	}
	for {
		if _, err := io.Copy(w, f); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			return fmt.Errorf("watch the console log: %w", err)
		case event := <-watcher.Events:
			if event.Name == dir && event.Has(fsnotify.Remove) {
				return nil
			}
		}
		if f, err = reopened(f, root, filepath.Base(path), w); err != nil {
			return err
		}
		switch now, err := os.Lstat(dir); {
		case err == nil && !now.IsDir():
			return fmt.Errorf("follow the console log: %s is no directory any more", dir)
		case err == nil && !isRoot(root, now):
			return nil
		}
	}
}

// isRoot reports whether dir is the opened directory.
func isRoot(root *os.Root, dir os.FileInfo) bool {
	was, err := root.Stat(".")
	return err != nil || os.SameFile(was, dir)
}

// reopened returns the file that now has the name in a directory: f, or after a rotation the new file, after the rest
// of f was copied.
func reopened(f *os.File, dir *os.Root, name string, w io.Writer) (*os.File, error) {
	now, err := dir.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		return f, nil // during a rotation, or while its directory is removed
	}
	if err != nil {
		return f, err
	}
	was, err := f.Stat()
	if err != nil || os.SameFile(was, now) {
		return f, err
	}
	if _, err := io.Copy(w, f); err != nil {
		return f, err
	}
	next, err := dir.Open(name)
	if err != nil {
		return f, err
	}
	return next, f.Close()
}

// ConsoleProtocol is the protocol that an API client upgrades to for a live console: from then on the
// connection carries the console's bytes both ways.
const ConsoleProtocol = "croft-console"

// Wait returns when no console is attached. Call it after the server has ended, because the server does not wait for
// upgraded connections.
func (api *API) Wait() { api.attached.Wait() }

// screen sends a PNG of a guest's screen.
func (api *API) screen(w http.ResponseWriter, r *http.Request) {
	id, err := croft.ParseInstanceID(r.PathValue("id"))
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	consoles, ok := api.Agent.Hypervisor.(Consoles)
	if !ok {
		http.Error(w, "this host's hypervisor has no screens", http.StatusNotFound)
		return
	}
	picture, err := consoles.Screenshot(r.Context(), id)
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	w.Header().Set("Content-Type", "image/png")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(picture) // an error means that the client has gone
}

// attach returns a handler that connects a client to a guest's console or screen until either ends.
func (api *API) attach(open func(Consoles, context.Context, croft.InstanceID, bool) (io.ReadWriteCloser,
	error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { api.attachTo(w, r, open) }
}

func (api *API) attachTo(w http.ResponseWriter, r *http.Request,
	open func(Consoles, context.Context, croft.InstanceID, bool) (io.ReadWriteCloser, error)) {
	id, err := croft.ParseInstanceID(r.PathValue("id"))
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	consoles, ok := api.Agent.Hypervisor.(Consoles)
	if !ok || r.Header.Get("Upgrade") != ConsoleProtocol {
		w.Header().Set("Upgrade", ConsoleProtocol)
		http.Error(w, "a live console wants the protocol "+ConsoleProtocol, http.StatusUpgradeRequired)
		return
	}
	guest, err := open(consoles, r.Context(), id, r.URL.Query().Get("takeover") == "1")
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	defer func() { _ = guest.Close() }() // the attached client is gone
	api.attached.Add(1)
	defer api.attached.Done()
	client, early, err := switchProtocol(w)
	if err != nil {
		return
	}
	defer func() { _ = client.Close() }()
	api.Agent.Log.Info("console attached", "instance", id, "host", api.Agent.Host.ID, "path", r.URL.Path)
	err = join(r.Context(), client, early, guest)
	api.Agent.Log.Info("console left", "instance", id, "host", api.Agent.Host.ID, "err", err)
}

// switchProtocol answers a request for ConsoleProtocol, and takes over its connection. early reads what the client
// sends, also what it has sent before.
func switchProtocol(w http.ResponseWriter) (client net.Conn, early io.Reader, err error) {
	client, early, err = http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return nil, nil, err
	}
	if _, err := fmt.Fprintf(client, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
		ConsoleProtocol); err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return client, early, nil
}

// join copies both ways until one side or ctx ends, then closes both. typed starts with the data that the client sent
// before the protocol changed.
func join(ctx context.Context, client net.Conn, typed io.Reader, guest io.ReadWriteCloser) error {
	end := func() { _ = errors.Join(client.Close(), guest.Close()) }
	stop := context.AfterFunc(ctx, end)
	defer stop()
	var work sync.WaitGroup
	var fromGuest error
	work.Go(func() {
		_, fromGuest = io.Copy(client, guest)
		end()
	})
	_, fromClient := io.Copy(guest, typed)
	end()
	work.Wait()
	return errors.Join(ended(fromGuest), ended(fromClient))
}

// ended returns nil for the errors of a console that ended normally.
func ended(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

// PullRequest is the body of POST /v1/images.
type PullRequest struct {
	Image string `json:"image"` // as in an order
}

// Pull is one line of the answer to POST /v1/images: any number of Progress while the image is fetched, then
// one Image or Error as the last line.
type Pull struct {
	Progress *croft.Progress `json:"progress,omitempty"`
	Image    *Pulled         `json:"image,omitempty"`
	Error    *PullError      `json:"error,omitempty"`
}

// Pulled describes an image in the host's cache.
type Pulled struct {
	Format      string `json:"format"`       // of the file, such as qcow2
	VirtualSize int64  `json:"virtual_size"` // bytes of the disk that guests see
	SHA256      string `json:"sha256"`       // of the file, in hexadecimal digits
}

// PullError says why the image could not be fetched.
type PullError struct {
	Kind    croft.Kind `json:"kind"`
	Message string     `json:"message"`
}

// maxPullRequest bounds a request in bytes; its reference may contain one or two long addresses.
const maxPullRequest = 16 << 10

// pull fetches an image before any instance needs it. It runs until the caller disconnects, and shares the fetch with
// instances that need the same image.
func (api *API) pull(w http.ResponseWriter, r *http.Request) {
	var ask PullRequest
	text, err := httpapi.ReadBody(w, r, maxPullRequest, 0)
	if err == nil {
		err = httpapi.Decode(text, &ask)
	}
	if err != nil || ask.Image == "" {
		http.Error(w, `the body names no image: send {"image": "https://..."}`, http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Accel-Buffering", "no")
	lines := json.NewEncoder(flushing{w, http.NewResponseController(w)})
	// an error means that the caller disconnected, which ends the request
	say := func(p Pull) { _ = lines.Encode(p) }
	say(Pull{Progress: &croft.Progress{}})
	img, err := api.Agent.Images.Fetch(r.Context(), ask.Image, func(p croft.Progress) { say(Pull{Progress: &p}) })
	if err != nil {
		say(Pull{Error: &PullError{Kind: croft.KindOf(err), Message: err.Error()}})
		return
	}
	say(Pull{Image: &Pulled{Format: img.Format, VirtualSize: img.VirtualSize, SHA256: img.Digest}})
}

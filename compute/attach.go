package compute

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"croft"
	"croft/internal/httpapi"
)

// ConsoleProtocol is the protocol that an API client upgrades to for a live console: from then on the
// connection carries the console's bytes both ways.
const ConsoleProtocol = "croft-console"

// Wait returns when no console is attached. Call it after the server has ended, which does not wait for
// upgraded connections.
func (api *API) Wait() { api.attached.Wait() }

// attach connects a client to a guest's console until either ends.
func (api *API) attach(w http.ResponseWriter, r *http.Request) {
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
	guest, err := consoles.OpenConsole(r.Context(), id)
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	defer func() { _ = guest.Close() }() // the attached client is gone
	api.attached.Add(1)
	defer api.attached.Done()
	client, early, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = client.Close() }()
	if _, err := fmt.Fprintf(client, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
		ConsoleProtocol); err != nil {
		return
	}
	api.Agent.Log.Info("console attached", "instance", id, "host", api.Agent.Host.ID)
	err = join(r.Context(), client, early, guest)
	api.Agent.Log.Info("console left", "instance", id, "host", api.Agent.Host.ID, "err", err)
}

// join copies both ways until one side or ctx ends, then closes both. typed begins with what the client sent
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

package compute

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"

	"croft"
	"croft/internal/connlimit"
	"croft/internal/httpapi"
)

// API is the agent's HTTP interface, for holders of the token in the host's record. Serve it with a
// BaseContext that ends before the server does, since a client may follow a console forever.
//
//	GET /v1/instances/{id}/console[?follow=1]      log of the serial console, as text
//	POST /v1/instances/{id}/console                the console itself: see ConsoleProtocol
//	POST /v1/images                                fetch an image: a PullRequest, answered by lines of Pull
//	GET /v1/holding                                what the host has: audit.Contents as JSON
//	GET /v1/usages                                 what its guests use: a list of Usage as JSON
//	DELETE /v1/instances/{id}/files                disks that belong to nobody
type API struct {
	Agent *Agent
	Token string // required

	attached sync.WaitGroup // live consoles
}

// Handler serves the API.
func (api *API) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/instances/{id}/console", api.authorized(api.console))
	mux.Handle("POST /v1/instances/{id}/console", api.authorized(api.attach))
	mux.Handle("POST /v1/images", api.authorized(api.pull))
	mux.Handle("GET /v1/holding", api.authorized(api.contents))
	mux.Handle("GET /v1/usages", api.authorized(api.usages))
	mux.Handle("DELETE /v1/instances/{id}/files", api.authorized(api.removeFiles))
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

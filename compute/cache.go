package compute

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"croft"
	"croft/internal/httpapi"
)

// Cache is a cache of images whose content can be listed and removed. An Images may implement it.
type Cache interface {
	// Held lists the images in the cache, most recently used first.
	Held(ctx context.Context) ([]Held, error)
	// Remove removes the image that a reference or a SHA-256 identifies, and returns it; without either, it removes all
	// images that no disk is based on and that were not used just now. A disk that is based on a removed image keeps
	// its file. NotFound.
	Remove(ctx context.Context, referenceOrDigest string) ([]Held, error)
}

// Held is an image in a cache.
type Held struct {
	Path   string `json:"path"`   // where the host keeps it
	Format string `json:"format"` // of the file, such as qcow2
	// In bytes.
	VirtualSize int64     `json:"virtual_size"`
	Bytes       int64     `json:"bytes"`      // allocated on disk
	SHA256      string    `json:"sha256"`     // of the content, in hexadecimal digits
	Disks       int       `json:"disks"`      // disks linked to this file; disks on other file systems are copies
	Used        time.Time `json:"used"`       // when an instance last used it
	References  []string  `json:"references"` // references that resolved to it and are not forgotten
}

// cached answers with the images that are in the cache, or with the images that were removed from it.
func (api *API) cached(do func(ctx context.Context, c Cache, r *http.Request) ([]Held, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, ok := api.Agent.Images.(Cache)
		if !ok {
			httpapi.Error(w, croft.Errorf(croft.Unavailable, "this host has no cache of images"))
			return
		}
		all, err := do(r.Context(), c, r)
		if err != nil {
			httpapi.Error(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(append([]Held{}, all...)) // never null; ignore clients that went away
	}
}

func held(ctx context.Context, c Cache, _ *http.Request) ([]Held, error) { return c.Held(ctx) }

func removeHeld(ctx context.Context, c Cache, r *http.Request) ([]Held, error) {
	return c.Remove(ctx, r.URL.Query().Get("image"))
}

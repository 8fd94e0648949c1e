package compute

import (
	"encoding/json"
	"net/http"

	"croft"
	"croft/internal/httpapi"
)

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
	Format      string `json:"format"`
	VirtualSize int64  `json:"virtual_size"`
	SHA256      string `json:"sha256"`
}

// PullError says why the image could not be fetched.
type PullError struct {
	Kind    croft.Kind `json:"kind"`
	Message string     `json:"message"`
}

// maxPullRequest bounds a request in bytes; its reference may contain one or two long addresses.
const maxPullRequest = 16 << 10

// pull fetches an image before any instance needs it. It runs while the caller listens, and shares the fetch
// with instances that need the same image.
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
	say := func(p Pull) { _ = lines.Encode(p) } // a caller that stopped listening ends the request
	say(Pull{Progress: &croft.Progress{}})
	img, err := api.Agent.Images.Fetch(r.Context(), ask.Image, func(p croft.Progress) { say(Pull{Progress: &p}) })
	if err != nil {
		say(Pull{Error: &PullError{Kind: croft.KindOf(err), Message: err.Error()}})
		return
	}
	say(Pull{Image: &Pulled{Format: img.Format, VirtualSize: img.VirtualSize, SHA256: img.Digest}})
}

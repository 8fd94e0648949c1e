package compute

import (
	"encoding/json"
	"net/http"

	"croft"
	"croft/internal/httpapi"
)

// PullRequest is the body of POST /v1/images.
type PullRequest struct {
	Image string `json:"image"` // as an order carries it
}

// Pull is one line of the answer to POST /v1/images: of these, the first while the
// image comes, then one of the others, the last word.
type Pull struct {
	Progress *croft.Progress `json:"progress,omitempty"`
	Image    *Pulled         `json:"image,omitempty"`
	Error    *PullError      `json:"error,omitempty"`
}

// Pulled is the image that is in the host's cache now.
type Pulled struct {
	Format      string `json:"format"`
	VirtualSize int64  `json:"virtual_size"`
	SHA256      string `json:"sha256"`
}

// PullError says why the image is not.
type PullError struct {
	Kind    croft.Kind `json:"kind"`
	Message string     `json:"message"`
}

// maxPullRequest bounds a request, whose reference may name a long address or two.
const maxPullRequest = 16 << 10

// pull fetches an image before anybody asks for an instance of it. It goes on while
// the caller listens, and is one with the fetches of instances that want the same.
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
	say := func(p Pull) { _ = lines.Encode(p) } // who does not listen ends the request
	say(Pull{Progress: &croft.Progress{}})
	img, err := api.Agent.Images.Fetch(r.Context(), ask.Image, func(p croft.Progress) { say(Pull{Progress: &p}) })
	if err != nil {
		say(Pull{Error: &PullError{Kind: croft.KindOf(err), Message: err.Error()}})
		return
	}
	say(Pull{Image: &Pulled{Format: img.Format, VirtualSize: img.VirtualSize, SHA256: img.Digest}})
}

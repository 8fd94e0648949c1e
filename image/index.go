package image

import (
	"time"
)

// index records to what each reference resolved. It is an optimization: without it the files stay valid, and
// unpinned images are fetched again.
type index struct {
	References map[string]entry `json:"references"`
}

// entry records the image of a reference.
type entry struct {
	SHA256  string    `json:"sha256"`           // of the file in the cache
	Packed  string    `json:"packed,omitempty"` // SHA-256 of the published file, if it differs
	SHA512  string    `json:"sha512,omitempty"` // of the published file, if requested
	Format  string    `json:"format"`
	Size    int64     `json:"size"`
	Checked time.Time `json:"checked"` // when the server last confirmed that it is the newest
	validator
	Stamp *stamp `json:"stamp,omitempty"` // of a local file
}

// publish records a checksum of the published file.
func (e *entry) publish(d digest) {
	switch {
	case d.algo == "sha512":
		e.SHA512 = d.hex
	case d.algo == "sha256" && d.hex != e.SHA256:
		e.Packed = d.hex
	}
}

// published reports whether the published file has the checksum.
func (e entry) published(d digest) bool {
	return d.algo == "sha512" && e.SHA512 == d.hex || d.algo == "sha256" && e.Packed == d.hex
}

// validator is a server's identification of one version of a file.
type validator struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
}

package image

import (
	"time"
)

// index remembers what each reference led to. It is a convenience: without it the
// files stay what they are, and unpinned images are fetched again.
type index struct {
	References map[string]entry `json:"references"`
}

// entry is what is known of the image a reference led to.
type entry struct {
	SHA256  string    `json:"sha256"`           // of the file in the cache
	Packed  string    `json:"packed,omitempty"` // SHA-256 of the file as published, where that is another
	SHA512  string    `json:"sha512,omitempty"` // as published, where it was asked for
	Format  string    `json:"format"`
	Size    int64     `json:"size"`
	Checked time.Time `json:"checked"` // when the server last said that it is the newest
	validator
	Stamp *stamp `json:"stamp,omitempty"` // of a local file
}

// publish notes a checksum of the file as it was published.
func (e *entry) publish(d digest) {
	switch {
	case d.algo == "sha512":
		e.SHA512 = d.hex
	case d.algo == "sha256" && d.hex != e.SHA256:
		e.Packed = d.hex
	}
}

// published reports whether the file as it was published has the checksum.
func (e entry) published(d digest) bool {
	return d.algo == "sha512" && e.SHA512 == d.hex || d.algo == "sha256" && e.Packed == d.hex
}

// validator is how a server names one version of a file.
type validator struct {
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
}

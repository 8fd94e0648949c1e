package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
)

// candidate is a complete file on the cache's file system that may become an image of the cache.
type candidate struct {
	f    *os.File
	path string
	size int64
	sum  hash.Hash // SHA-256 of the whole file
}

// newCandidate creates the file under a name that sweep removes.
func newCandidate(name string) (candidate, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return candidate{}, fmt.Errorf("make image: %w", err)
	}
	return candidate{f: f, path: name, sum: sha256.New()}, nil
}

func (d candidate) sha256() string { return hex.EncodeToString(d.sum.Sum(nil)) }

// discard closes the file, and removes it unless it was renamed.
func (d candidate) discard() {
	d.f.Close()
	os.Remove(d.path)
}

package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
)

// candidate is a whole file on the cache's file system that may become one of its images.
type candidate struct {
	f    *os.File
	path string
	size int64
	sum  hash.Hash // SHA-256 of all of it
}

// newCandidate makes the file anew; its name is one that a sweep removes.
func newCandidate(name string) (candidate, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return candidate{}, fmt.Errorf("make image: %w", err)
	}
	return candidate{f: f, path: name, sum: sha256.New()}, nil
}

func (d candidate) sha256() string { return hex.EncodeToString(d.sum.Sum(nil)) }

// discard closes the file and removes it where it still has its first name.
func (d candidate) discard() {
	d.f.Close()
	os.Remove(d.path)
}

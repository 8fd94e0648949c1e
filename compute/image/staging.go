package image

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"croft"
	"croft/compute/image/format"
)

const (
	stagingSuffix = ".part"
	// stagingAge is how long a download that is not resumed is kept.
	stagingAge = 7 * 24 * time.Hour
	// syncEvery is the number of bytes between syncs of a download.
	syncEvery = 32 << 20
)

// stagingFile is a file on its way into the cache. Its state file names its version and how much of it is
// durable; after a crash only that much is trusted.
type stagingFile struct {
	f     *os.File
	path  string
	state stagingState
	size  int64 // bytes in the file

	hashed int64 // bytes included in the sums
	sum256 hash.Hash
	sum512 hash.Hash // nil: not needed
}

type stagingState struct {
	Reference string `json:"reference"`
	Synced    int64  `json:"synced"`
	Total     int64  `json:"total,omitempty"` // 0: unknown
	validator
}

// staging is the directory for downloads, on the cache's file system. It is private and its names are
// unpredictable, so that a fetched reference cannot name an earlier download.
type staging struct{ dir string }

// path returns the path of a reference's download.
func (s staging) path(ref Reference) (string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		stem, isState := strings.CutSuffix(filepath.Join(s.dir, e.Name()), ".json")
		if !isState {
			continue
		}
		if state, err := readState(stem + ".json"); err == nil && state.Reference == ref.key() {
			return stem + stagingSuffix, nil
		}
	}
	return filepath.Join(s.dir, rand.Text()+stagingSuffix), nil
}

func readState(name string) (state stagingState, err error) {
	b, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(b, &state)
	}
	return state, err
}

// open opens the download of a reference, with its progress so far.
func (s staging) open(ref Reference, with512 bool) (*stagingFile, error) {
	path, err := s.path(ref)
	if err != nil {
		return nil, fmt.Errorf("open download: %w", err)
	}
	p := &stagingFile{path: path}
	if p.f, err = os.OpenFile(p.path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("open download: %w", err)
	}
	p.restart(with512)
	if state, err := readState(p.statePath()); err == nil {
		p.state = state
		if fi, err := p.f.Stat(); err == nil {
			p.size = max(0, min(fi.Size(), p.state.Synced))
		}
	}
	p.state.Reference = ref.key()
	if err := p.f.Truncate(p.size); err != nil {
		p.f.Close()
		return nil, fmt.Errorf("open download: %w", err)
	}
	return p, nil
}

func (p *stagingFile) statePath() string { return strings.TrimSuffix(p.path, stagingSuffix) + ".json" }

func (p *stagingFile) restart(with512 bool) {
	p.hashed, p.sum256, p.sum512 = 0, sha256.New(), nil
	if with512 {
		p.sum512 = sha512.New()
	}
}

// reset empties the file for another version, or to start again.
func (p *stagingFile) reset(v validator, total int64) error {
	p.size, p.state.Synced = 0, 0
	p.state.validator, p.state.Total = v, total
	p.restart(p.sum512 != nil)
	if err := p.f.Truncate(0); err != nil {
		return err
	}
	return p.save()
}

func (p *stagingFile) save() error { return replaceJSON(p.statePath(), p.state) }

// Write appends, and syncs periodically.
func (p *stagingFile) Write(b []byte) (int, error) {
	n, err := p.f.WriteAt(b, p.size)
	if p.hashed == p.size {
		p.hash(b[:n])
	}
	p.size += int64(n)
	if err == nil && p.size-p.state.Synced >= syncEvery {
		err = p.sync()
	}
	return n, err
}

func (p *stagingFile) hash(b []byte) {
	p.sum256.Write(b)
	if p.sum512 != nil {
		p.sum512.Write(b)
	}
	p.hashed += int64(len(b))
}

// sync makes the file durable and records its size.
func (p *stagingFile) sync() error {
	if p.state.Synced == p.size {
		return nil
	}
	if err := p.f.Sync(); err != nil {
		return err
	}
	p.state.Synced = p.size
	return p.save()
}

// catchUp adds data written by an earlier process to the sums.
func (p *stagingFile) catchUp(ctx context.Context) error {
	buf := make([]byte, 256<<10)
	for p.hashed < p.size {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := p.f.ReadAt(buf[:min(int64(len(buf)), p.size-p.hashed)], p.hashed)
		if n == 0 && err != nil {
			return fmt.Errorf("read download: %w", err)
		}
		p.hash(buf[:n])
	}
	return nil
}

// back drops the last byte, so that a request for the rest is not empty.
func (p *stagingFile) back() error {
	p.size--
	p.state.Synced = min(p.state.Synced, p.size)
	if p.hashed > p.size {
		p.restart(p.sum512 != nil)
	}
	return p.f.Truncate(p.size)
}

// ifRange returns the If-Range validator that requests the rest of this version only; empty: none exists, since a weak
// ETag identifies similar versions, not identical ones. For an image pinned by a checksum the modification time
// suffices: mirrors share it, unlike ETags, and a mismatch is detected by the checksum.
func (p *stagingFile) ifRange(pinned bool) string {
	tag, modified := p.state.ETag, p.state.LastModified
	switch {
	case pinned && modified != "":
		return modified
	case tag != "" && !strings.HasPrefix(tag, "W/"):
		return tag
	}
	return modified
}

// isOther reports whether the server, which may not support If-Range, sends the rest of another version.
func (p *stagingFile) isOther(v validator, pinned bool) bool {
	if asked := p.ifRange(pinned); asked == p.state.LastModified {
		return v.LastModified != "" && v.LastModified != asked
	}
	return v.ETag != "" && v.ETag != p.state.ETag
}

// close keeps the data for the next attempt.
func (p *stagingFile) close() error {
	return errors.Join(p.sync(), p.f.Close())
}

// discard removes the download.
func (p *stagingFile) discard() {
	p.f.Close()
	os.Remove(p.path)
	os.Remove(p.statePath())
}

func (p *stagingFile) digest(algo string) digest {
	h := p.sum256
	if algo == "sha512" {
		h = p.sum512
	}
	return digest{algo, hex.EncodeToString(h.Sum(nil))}
}

// head returns the beginning of the downloaded data.
func (p *stagingFile) head() ([]byte, error) {
	b := make([]byte, min(p.size, format.HeadSize))
	if _, err := p.f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// isResumable reports whether a staging file can be resumed: it is one of a pair and recent.
func isResumable(name string, e fs.DirEntry) bool {
	fi, err := e.Info()
	if err != nil || time.Since(fi.ModTime()) > stagingAge {
		return false
	}
	stem, ext := strings.TrimSuffix(name, filepath.Ext(name)), filepath.Ext(name)
	switch ext {
	case stagingSuffix:
		return isRegular(stem + ".json")
	case ".json":
		return isRegular(stem + stagingSuffix)
	}
	return false
}

// candidate returns the download itself.
func (p *stagingFile) candidate() candidate {
	return candidate{f: p.f, path: p.path, size: p.size, sum: p.sum256}
}

// verify compares a complete file with its expected checksum.
func (p *stagingFile) verify(want digest, source string) error {
	if want == (digest{}) {
		return nil
	}
	if got := p.digest(want.algo); got != want {
		return croft.Errorf(croft.Invalid,
			"its %s is %s and not the %s %s: correct the checksum, or take the image from somewhere else", want.algo,
			got.hex, want.hex, source)
	}
	return nil
}

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

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
	"croft/image/format"
)

const (
	stagingSuffix = ".part"
	// stagingAge is how long a download that nobody takes up again is kept.
	stagingAge = 7 * 24 * time.Hour
	// syncEvery is after how many bytes a download is made safe against a crash.
	syncEvery = 32 << 20
)

// stagingFile is a file on its way into the cache. Beside it lies its state, which names
// the version it is of and how much of it is on the disk for sure; only so much is
// believed after a crash.
type stagingFile struct {
	f     *os.File
	path  string
	state stagingState
	size  int64 // bytes in the file

	hashed int64 // bytes in the sums
	sum256 hash.Hash
	sum512 hash.Hash // nil where nobody asked
}

type stagingState struct {
	Reference string `json:"reference"`
	Synced    int64  `json:"synced"`
	Total     int64  `json:"total,omitempty"` // 0 where the server did not say
	validator
}

// staging holds what is on its way into the cache, in a directory on the same file system. Nobody else gets in, and the
// names in it cannot be foreseen, so that nothing that is fetched can name what was fetched before.
type staging struct{ dir string }

// path is where the download of a reference is, or will be.
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
		if state, err := readState(stem + ".json"); err == nil && state.Reference == ref.String() {
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

// open opens the download of a reference, as far as it came.
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
	p.state.Reference = ref.String()
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

// reset empties the file for another version, or for the same once more.
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

// Write appends, and makes sure from time to time that what was written stays.
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

// sync makes what was written safe and notes how much it is.
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

// catchUp puts into the sums what an earlier process wrote.
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

// back gives up the last byte, so that there is one to ask the server for.
func (p *stagingFile) back() error {
	p.size--
	p.state.Synced = min(p.state.Synced, p.size)
	if p.hashed > p.size {
		p.restart(p.sum512 != nil)
	}
	return p.f.Truncate(p.size)
}

// ifRange is how the server is asked for the rest of this version only, or empty
// where it cannot be: a weak ETag names versions that are alike, not the same. Of
// an image pinned by a checksum the time will do, which mirrors share as they do
// not share ETags; should it mislead, the checksum tells.
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

// isOther reports whether the server, which may not have understood If-Range,
// sends the rest of another version.
func (p *stagingFile) isOther(v validator, pinned bool) bool {
	if asked := p.ifRange(pinned); asked == p.state.LastModified {
		return v.LastModified != "" && v.LastModified != asked
	}
	return v.ETag != "" && v.ETag != p.state.ETag
}

// close keeps what is there for the next attempt.
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

// head returns the beginning of what has come so far.
func (p *stagingFile) head() ([]byte, error) {
	b := make([]byte, min(p.size, format.HeadSize))
	if _, err := p.f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// isResumable reports whether a file among the downloads is of use: one of a pair,
// and young.
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

// candidate is the download itself.
func (p *stagingFile) candidate() candidate {
	return candidate{f: p.f, path: p.path, size: p.size, sum: p.sum256}
}

// verify compares a finished file with the checksum it must have.
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

package runtime

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"croft"
	"croft/grid/machine"
	"croft/grid/unit"
)

// send sends the archive of a unit's image to a machine, decompressed, as input of the verb send.
func (r *Runtime) send(ctx context.Context, m machine.Machine, u unit.Unit) error {
	if !r.point.Has("send") || u.Image.Archive == "" {
		return croft.Errorf(croft.Invalid, "%s: prepare asks for an archive, but there is no %s",
			r.Name(),
			map[bool]string{true: "archive", false: "verb send"}[r.point.Has("send")])
	}
	if err := r.verify(u.Image); err != nil {
		return err
	}
	f, err := r.config.Repository.Open(u.Image.Archive)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	defer f.Close()
	in, err := unpacked(f)
	if err != nil {
		return fmt.Errorf("image %s: %w", u.Image.Archive, err)
	}
	script, err := r.script([]string{"send"}, u, needsProgram+"verb_send <&3; try send $?")
	if err != nil {
		return err
	}
	// The archive is the input of the shell, so the script must be an argument. It contains no files of the unit.
	ctx, cancel := context.WithTimeout(ctx, r.point.Timeout("send"))
	defer cancel()
	_, err = machine.Output(ctx, m, in, "sh", "-c", "exec 3<&0\n"+script)
	return judge(r.Name()+" send "+u.Image.Archive, "", err)
}

// verify compares the archive with the digest in the plan, so that the unit runs the image that the plan showed.
// Conflict: the archive has changed.
func (r *Runtime) verify(i unit.Image) error {
	if r.config.Repository == nil {
		return croft.Errorf(croft.Invalid, "image %s: there is no repository to take it from", i.Archive)
	}
	f, err := r.config.Repository.Open(i.Archive)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return croft.Errorf(croft.NotFound, "image %s: there is no such file in the repository", i.Archive)
	}
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("read image %s: %w", i.Archive, err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != i.Digest {
		return croft.Errorf(croft.Conflict, "image %s: its digest is %s, and %s was planned: it has changed meanwhile",
			i.Archive, got, i.Digest)
	}
	return nil
}

// unpacked returns a reader of a tar file that may be compressed with gzip or zstd.
func unpacked(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	head, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case strings.HasPrefix(string(head), "\x1f\x8b"):
		return gzip.NewReader(b)
	case string(head) == "\x28\xb5\x2f\xfd":
		d, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return b, nil
}

package diskcopy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"croft"
)

// logSuffix names the log of a staging file: a line with the Head, then a record for each chunk that is durable.
const logSuffix = ".log"

// recordSize is the size of a record: index and digest of a chunk.
const recordSize = 8 + sha256.Size

// flushEvery is how often received chunks are made durable.
const flushEvery = time.Second

// Open opens a stream: of the file with this identity from a chunk on, or of a file with another identity from its
// beginning.
type Open func(ctx context.Context, identity string, from int64) (Head, io.ReadCloser, error)

// Receive copies a file to the staging file path, and continues an earlier copy to it. It returns once the file is
// complete and durable, with the digest of the whole verified, or the SHA-256 that open returned. The caller renames it
// and calls Forget. most is the maximum size that the file may have. progress is called with the offset up to which the
// file has arrived.
//
// Invalid: the stream is not what its digests say, or larger than most; the copy then starts again. NoCapacity: the
// file system is full. Unavailable: the stream broke off; another call continues.
func Receive(ctx context.Context, path string, most int64, open Open, progress func(croft.Progress)) error {
	r, err := openReceiver(path)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.catchUp(ctx, progress); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	head, stream, err := open(ctx, r.head.Identity, r.next)
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := r.begin(head, most); err != nil {
		return err
	}
	chunks := r.read(ctx, stream)
	err = r.receive(ctx, chunks, progress)
	cancel() // the stream ends
	for range chunks {
	}
	if errors.Is(err, croft.Invalid) {
		return errors.Join(err, r.discard())
	}
	return err
}

// Forget removes what Receive left next to a staging file that got its final name.
func Forget(path string) error {
	if err := os.Remove(path + logSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// receiver is a staging file and its log.
type receiver struct {
	path      string
	file, log *os.File
	head      Head
	next      int64  // the chunk after the last one that is durable
	logged    []byte // records of the chunks that are durable
	arrived   []byte // records of the chunks that are not

	sum    hash.Hash // of the file up to summed, if its SHA-256 is known
	summed int64
}

// openReceiver opens or creates a staging file. An incomplete record, or a log without a file, is ignored.
func openReceiver(path string) (r *receiver, err error) {
	r = &receiver{path: path, sum: sha256.New()}
	defer func() {
		if err != nil {
			r.close()
			err = full(err)
		}
	}()
	if r.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return r, err
	}
	if r.log, err = os.OpenFile(path+logSuffix, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return r, err
	}
	text, err := io.ReadAll(r.log)
	if err != nil {
		return r, err
	}
	info, err := r.file.Stat()
	if err != nil {
		return r, err
	}
	line, records, complete := bytes.Cut(text, []byte("\n"))
	if !complete || json.Unmarshal(line, &r.head) != nil || info.Size() != r.head.Size {
		r.head = Head{}
		return r, nil
	}
	r.logged = records[:len(records)/recordSize*recordSize]
	if len(r.logged) > 0 {
		r.next = int64(binary.BigEndian.Uint64(r.logged[len(r.logged)-recordSize:])) + 1
	}
	return r, nil
}

func (r *receiver) close() {
	for _, f := range []*os.File{r.file, r.log} {
		if f != nil {
			_ = f.Close() // everything that counts was synced
		}
	}
}

// begin prepares the files for a stream.
func (r *receiver) begin(head Head, most int64) error {
	switch {
	case head.Size < 0 || head.Size > most:
		return croft.Errorf(croft.Invalid, "the disk has %d bytes, more than the %d of the request with all its tables",
			head.Size, most)
	case head.Identity == r.head.Identity && head.Size == r.head.Size && head.From == r.next &&
		head.SHA256 == r.head.SHA256 && head.Identity != "":
		return full(r.trimLog())
	case head.From != 0:
		return croft.Errorf(croft.Invalid, "the stream starts at chunk %d, not at the beginning", head.From)
	}
	r.head, r.next, r.logged, r.summed = head, 0, nil, 0
	r.sum.Reset()
	line, err := json.Marshal(head)
	if err != nil {
		return err
	}
	// The log is empty before the data changes: it never vouches for data of another file.
	if err := errors.Join(r.log.Truncate(0), r.log.Sync()); err != nil {
		return full(err)
	}
	if err := errors.Join(r.file.Truncate(0), r.file.Truncate(head.Size), r.file.Sync()); err != nil {
		return full(err)
	}
	if _, err := r.log.WriteAt(append(line, '\n'), 0); err != nil {
		return full(err)
	}
	return full(r.trimLog())
}

// trimLog cuts off an incomplete record, and lets the next write follow.
func (r *receiver) trimLog() error {
	text, err := json.Marshal(r.head)
	if err != nil {
		return err
	}
	end := int64(len(text) + 1 + len(r.logged))
	if err := r.log.Truncate(end); err != nil {
		return err
	}
	_, err = r.log.Seek(end, io.SeekStart)
	return err
}

// discard makes the next copy start again.
func (r *receiver) discard() error {
	return errors.Join(os.Remove(r.path+logSuffix), os.Remove(r.path))
}

// catchUp hashes the part of the file that an earlier copy received, if its SHA-256 is known.
func (r *receiver) catchUp(ctx context.Context, progress func(croft.Progress)) error {
	if r.head.SHA256 == "" {
		return nil
	}
	buffer := make([]byte, Chunk)
	for end := min(r.next*Chunk, r.head.Size); r.summed < end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := buffer[:min(Chunk, end-r.summed)]
		if _, err := r.file.ReadAt(part, r.summed); err != nil {
			return fmt.Errorf("read what has arrived: %w", err)
		}
		r.hash(part)
		progress(croft.Progress{Done: r.summed, Total: r.head.Size})
	}
	return nil
}

func (r *receiver) hash(part []byte) {
	r.sum.Write(part)
	r.summed += int64(len(part))
}

// hashHole hashes the zeros up to an offset.
func (r *receiver) hashHole(to int64) {
	for r.summed < to {
		r.hash(zeros[:min(Chunk, to-r.summed)])
	}
}

// chunk is a chunk of a stream, or the error at which the stream ends.
type chunk struct {
	index  uint64 // last: the digest is of the whole
	digest []byte
	data   []byte
	err    error
}

// ahead is how many chunks are read from a stream while an earlier one is processed.
const ahead = 4

// read reads the chunks of a stream until it ends, or ctx does. The data of a chunk is valid until ahead further ones
// were taken.
func (r *receiver) read(ctx context.Context, stream io.Reader) <-chan chunk {
	chunks := make(chan chunk, ahead-2) // one more is being read, and one processed
	go func() {
		defer close(chunks)
		in, next := bufio.NewReaderSize(stream, 64<<10), r.next
		var buffers [ahead][frameSize + Chunk]byte
		for n := 0; ; n++ {
			c := r.readChunk(ctx, in, next, buffers[n%ahead][:])
			select {
			case chunks <- c:
			case <-ctx.Done():
				return
			}
			if c.err != nil || c.index == last {
				return
			}
			next = int64(c.index) + 1
		}
	}()
	return chunks
}

// readChunk reads a chunk from next on.
func (r *receiver) readChunk(ctx context.Context, in io.Reader, next int64, buffer []byte) (c chunk) {
	frame := buffer[:frameSize]
	if _, err := io.ReadFull(in, frame); err != nil {
		return chunk{err: broken(ctx, err)}
	}
	c = chunk{index: binary.BigEndian.Uint64(frame), digest: frame[12:]}
	if c.index == last {
		return c
	}
	at, length := int64(c.index)*Chunk, int64(binary.BigEndian.Uint32(frame[8:12]))
	if c.index > uint64(r.head.Size/Chunk) || at >= r.head.Size || int64(c.index) < next ||
		length != min(Chunk, r.head.Size-at) {
		return chunk{err: croft.Errorf(croft.Invalid, "chunk %d is none of the disk's", c.index)}
	}
	c.data = buffer[frameSize : frameSize+length]
	if _, err := io.ReadFull(in, c.data); err != nil {
		return chunk{err: broken(ctx, err)}
	}
	return c
}

// receive writes the chunks of a stream until its end. While chunks are made durable, it receives further ones.
func (r *receiver) receive(ctx context.Context, chunks <-chan chunk, progress func(croft.Progress)) error {
	flushed, flushing, begun := make(chan error, 1), false, time.Now()
	settle := func() (err error) {
		if flushing {
			err, flushing = <-flushed, false
		}
		return full(err)
	}
	err := func() error {
		for c := range chunks {
			switch {
			case c.err != nil:
				return c.err
			case c.index == last:
				return r.check(c.digest)
			}
			if err := r.write(c); err != nil {
				return err
			}
			progress(croft.Progress{Done: int64(c.index)*Chunk + int64(len(c.data)), Total: r.head.Size})
			if time.Since(begun) < flushEvery {
				continue
			}
			if err := settle(); err != nil {
				return err
			}
			records := r.take()
			flushing, begun = true, time.Now()
			go func() { flushed <- r.flush(records) }()
		}
		return ctx.Err()
	}()
	return errors.Join(err, settle(), full(r.flush(r.take())))
}

// write writes a chunk, and hashes it meanwhile.
func (r *receiver) write(c chunk) error {
	at, intact := int64(c.index)*Chunk, false
	var hashing sync.WaitGroup
	hashing.Go(func() {
		intact = r.head.digest(c.data) == [sha256.Size]byte(c.digest)
		if r.head.SHA256 != "" {
			r.hashHole(at)
			r.hash(c.data)
		}
	})
	_, err := r.file.WriteAt(c.data, at)
	hashing.Wait()
	switch {
	case !intact:
		return errDigest(fmt.Sprintf("chunk %d", c.index))
	case err != nil:
		return full(err)
	}
	r.arrived = append(binary.BigEndian.AppendUint64(r.arrived, c.index), c.digest...)
	return nil
}

// take returns the records of the chunks that are not durable yet, to be given to flush.
func (r *receiver) take() []byte {
	records := r.arrived
	r.logged, r.arrived = append(r.logged, records...), nil
	return records
}

// flush makes the received chunks durable, and then their records.
func (r *receiver) flush(records []byte) error {
	if err := r.file.Sync(); err != nil {
		return err
	}
	if _, err := r.log.Write(records); err != nil {
		return err
	}
	return r.log.Sync()
}

// check compares the digest of the whole file.
func (r *receiver) check(digest []byte) error {
	if r.head.SHA256 != "" {
		r.hashHole(r.head.Size)
		if sum := hex.EncodeToString(r.sum.Sum(nil)); sum != r.head.SHA256 {
			return croft.Errorf(croft.Invalid, "the file has the SHA-256 %s, not %s: it is another one, or was changed on the "+
				"way", sum, r.head.SHA256)
		}
		return nil
	}
	sum := newWhole(r.head.Size)
	for _, records := range [][]byte{r.logged, r.arrived} {
		for ; len(records) > 0; records = records[recordSize:] {
			sum.add(binary.BigEndian.Uint64(records), records[8:recordSize])
		}
	}
	if !bytes.Equal(sum.Sum(nil), digest) {
		return errDigest("the disk as a whole")
	}
	return nil
}

// broken is the error of a stream that ended too early.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return croft.Errorf(croft.Unavailable, "the copy broke off: %w", err)
}

// full gives the error of a full file system its kind.
func full(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return croft.Errorf(croft.NoCapacity, "the file system for the disk is full: %w", err)
	}
	return err
}

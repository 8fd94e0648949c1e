package shell

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"croft"
	"croft/internal/filelock"
	"croft/pool"
)

// begun is a file with the output of unfinished starts. After a crash, the next server reads from it what it may have
// to delete. All starts share one file, since creating a file takes longer than a start.
//
// A record is the resource's number, a length, and that many bytes. Numbers are unique, so old records do no harm. The
// file is truncated when it is long and no start is unfinished.
type begun struct {
	mu     sync.Mutex
	file   *os.File
	size   int64
	active int
}

// maxBegun is the length at which the file is truncated at the next opportunity.
const maxBegun = 1 << 20

// openBegun locks the file, so that no two servers share a directory. Conflict.
func openBegun(path string) (*begun, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the file for what unfinished starts print: %w", err)
	}
	if err := filelock.Take(file); err != nil {
		return nil, errors.Join(croft.Errorf(croft.Conflict,
			"another server of pools uses %s; stop it, or give this one a directory of its own", filepath.Dir(path)),
			file.Close())
	}
	b := &begun{file: file}
	if err := b.complete(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the file for what unfinished starts print: %w", err), file.Close())
	}
	return b, nil
}

// complete pads a record that a crash cut off, so that the next write starts a new record.
func (b *begun) complete() error {
	text, err := io.ReadAll(b.file)
	if err != nil {
		return err
	}
	for len(text) > 0 {
		id, body, whole := record(text)
		if !whole {
			if err := b.file.Truncate(b.size); err != nil {
				return err
			}
			b.write(id, body)
			return nil
		}
		b.size += int64(header + len(body))
		text = text[header+len(body):]
	}
	return nil
}

// record parses the record at the start of a text, even if it is incomplete.
func record(text []byte) (id pool.ResourceID, body []byte, whole bool) {
	if len(text) < header {
		return 0, nil, false
	}
	length := int(binary.LittleEndian.Uint32(text[8:]))
	body = text[header:min(len(text), header+length)]
	return pool.ResourceID(binary.LittleEndian.Uint64(text)), body, len(body) == length
}

// header is the length in bytes of a record's number and length.
const header = 12

// write appends output of a start. If the disk is full, the output is dropped: only a later server would need it.
func (b *begun) write(id pool.ResourceID, text []byte) {
	if len(text) == 0 {
		return
	}
	record := binary.LittleEndian.AppendUint64(make([]byte, 0, header+len(text)), uint64(id))
	record = binary.LittleEndian.AppendUint32(record, uint32(len(text)))
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.file.Write(append(record, text...)); err != nil {
		_ = b.file.Truncate(b.size) // a partial record would corrupt the next one
		return
	}
	b.size += int64(len(record) + len(text))
}

func (b *begun) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active++
}

// end records the end of a start. The output of a start that was stopped is kept for a later server.
func (b *begun) end(stopped bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active--; b.active > 0 || b.size < maxBegun || stopped {
		return
	}
	if b.file.Truncate(0) == nil {
		b.size = 0
	}
}

// read returns the output of each start, up to the limit of kept output.
func (b *begun) read() (map[pool.ResourceID][]byte, error) {
	b.mu.Lock()
	text, err := io.ReadAll(io.NewSectionReader(b.file, 0, b.size))
	b.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("read what unfinished starts printed: %w", err)
	}
	kept := map[pool.ResourceID]*capture{}
	for len(text) >= header {
		id, body, _ := record(text)
		if kept[id] == nil {
			kept[id] = newCapture(pool.OutputData)
		}
		_, _ = kept[id].Write(body) // never fails
		text = text[header+len(body):]
	}
	all := map[pool.ResourceID][]byte{}
	for id, c := range kept {
		all[id] = c.output()
	}
	return all, nil
}

func (b *begun) close() error { return b.file.Close() }

// begunWriter keeps the output of one unfinished start.
type begunWriter struct {
	*begun
	id pool.ResourceID
}

// Write never fails.
func (w begunWriter) Write(text []byte) (int, error) {
	w.write(w.id, text)
	return len(text), nil
}

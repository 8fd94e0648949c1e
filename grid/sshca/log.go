package sshca

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/internal/durable"
	"croft/internal/filelock"
)

// Issued is the log entry of a certificate that was issued.
type Issued struct {
	Time       time.Time `json:"time"`
	Serial     uint64    `json:"serial"`
	Kind       Kind      `json:"kind"`
	ID         string    `json:"id"`
	Principals []string  `json:"principals"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Key        string    `json:"key"`         // as in authorized_keys, without a comment
	By         string    `json:"by,omitzero"` // the user of the machine who signed
}

func (a *CA) logFile() string { return filepath.Join(a.Keys, "issued.log") }

// Issued reads the log, oldest entry first. It skips a line that a crash cut off, because the certificate of that line
// was not handed out. NotFound: the directory of keys does not exist here. Invalid: another line cannot be read.
func (a *CA) Issued() ([]Issued, error) {
	if _, err := os.Stat(a.Keys); err != nil {
		return nil, croft.Errorf(croft.NotFound, "read the log of certificates: %w; it is on the machine that signs "+
			"(--keys)", err)
	}
	text, err := os.ReadFile(a.logFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read the log of certificates: %w", err)
	}
	var all []Issued
	err = parseLog(a.logFile(), text, 0, func(e Issued) uint64 {
		all = append(all, e)
		return e.Serial
	})
	return all, err
}

// parseLog calls entry with each entry of a part of the log, which follows the first before lines; entry returns its
// serial number. Invalid: a line is not an entry, and was not cut off by a crash.
func parseLog[T any](file string, text []byte, before int, entry func(T) uint64) error {
	number := before
	for line := range bytes.Lines(text) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var e T
		err := json.Unmarshal(line, &e)
		if err != nil && err.Error() == "unexpected end of JSON input" {
			continue // cut off
		}
		if err != nil || entry(e) == 0 {
			return croft.Errorf(croft.Invalid, "%s:%d: this is no entry: %v; nothing is signed until it is mended",
				file, number, err)
		}
	}
	return nil
}

// A ledger is the log while this process holds its lock.
type ledger struct {
	lock   *os.File
	dir    string
	file   string
	serial uint64 // the last serial number that was given
}

// open locks the log and finds the last serial number. Unavailable: another process holds the lock for longer than
// lockWait.
func (a *CA) open() (*ledger, error) {
	if err := os.MkdirAll(a.Keys, 0o700); err != nil {
		return nil, croft.Errorf(croft.Invalid, "write the log of certificates: %w", err)
	}
	lock, err := a.lockKeys()
	if err != nil {
		return nil, fmt.Errorf("write the log of certificates: %w", err)
	}
	l := &ledger{lock: lock, dir: a.Keys, file: a.logFile()}
	if l.serial, err = l.highest(); err == nil {
		err = l.readNew()
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// lockRepository locks ca/ until the file is closed. Unavailable: another process holds the lock for longer than
// lockWait.
func (a *CA) lockRepository() (*os.File, error) { return lockFile(a.Dir, os.O_RDONLY) }

// lockKeys locks the directory of the private keys until the file is closed, as lockRepository does.
func (a *CA) lockKeys() (*os.File, error) {
	return lockFile(filepath.Join(a.Keys, "lock"), os.O_CREATE|os.O_RDWR)
}

// lockWait is how long a request waits for earlier requests. The first of them may have to read a long log.
const lockWait = 30 * time.Second

func lockFile(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "lock %s: %w", path, err)
	}
	if err := filelock.TakeWithin(f, lockWait); err != nil {
		_ = f.Close() // the file was only opened to lock it
		return nil, croft.Errorf(croft.Unavailable, "lock %s: %w; try again when that one has ended", path, err)
	}
	return f, nil
}

// An index summarizes the start of the log, so that signing reads only the lines after it. It is a cache: where it is
// missing or does not match the log, the whole log is read.
type index struct {
	Size   int64  `json:"size"`   // bytes of the whole lines that the index covers
	Lines  int    `json:"lines"`  // number of these lines
	Serial uint64 `json:"serial"` // the greatest serial number in these lines
	End    []byte `json:"end"`    // SHA-256 of the last indexCheck bytes that it covers
}

const (
	indexCheck = 1 << 10 // bytes at the end of the covered part that tell this log from another one
	indexAfter = 256     // number of lines after the index from which the index is written again
)

func (l *ledger) indexFile() string { return filepath.Join(l.dir, "issued.index") }

// readNew reads the lines after the index, and moves the index forward when there are many.
func (l *ledger) readNew() error {
	f, err := os.Open(l.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return croft.Errorf(croft.Invalid, "read the log of certificates: %w", err)
	}
	defer f.Close()
	at := l.readIndex(f)
	text, err := io.ReadAll(io.NewSectionReader(f, at.Size, math.MaxInt64-at.Size))
	if err != nil {
		return croft.Errorf(croft.Invalid, "read the log of certificates: %w", err)
	}
	err = parseLog(l.file, text, at.Lines, func(e struct{ Serial uint64 }) uint64 {
		at.Serial = max(at.Serial, e.Serial)
		return e.Serial
	})
	if err != nil {
		return err
	}
	l.serial = max(l.serial, at.Serial)
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	lines := bytes.Count(whole, []byte("\n"))
	if lines < indexAfter {
		return nil
	}
	at.Size += int64(len(whole))
	at.Lines += lines
	if at.End, err = endOf(f, at.Size); err != nil {
		return fmt.Errorf("write the index of the log of certificates: %w", err)
	}
	line, err := json.Marshal(at)
	if err != nil {
		return err
	}
	return durable.Write(l.indexFile(), line, 0o600)
}

// readIndex returns the index if it describes the start of this log, else an empty one.
func (l *ledger) readIndex(log *os.File) (at index) {
	text, err := os.ReadFile(l.indexFile())
	if err != nil || json.Unmarshal(text, &at) != nil || at.Size <= 0 || at.Lines <= 0 {
		return index{}
	}
	if end, err := endOf(log, at.Size); err != nil || !bytes.Equal(end, at.End) {
		return index{}
	}
	return at
}

// endOf returns the SHA-256 of the last indexCheck bytes before the offset size of a log. It returns an error if the
// log is shorter than size.
func endOf(log *os.File, size int64) ([]byte, error) {
	end := make([]byte, min(size, indexCheck))
	if _, err := log.ReadAt(end, size-int64(len(end))); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(end)
	return sum[:], nil
}

func (l *ledger) close() { _ = l.lock.Close() } // closing the file releases the lock

func (l *ledger) serialFile() string { return filepath.Join(l.dir, "serial") }

// highest reads the last serial number from its own file, which may survive a loss of the log.
func (l *ledger) highest() (uint64, error) {
	text, err := os.ReadFile(l.serialFile())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, croft.Errorf(croft.Invalid, "read the last serial number: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 63)
	if err != nil {
		return 0, croft.Errorf(croft.Invalid, "%s: %q is no serial number", l.serialFile(), text)
	}
	return n, nil
}

// next takes a serial number. It is greater than the last one, and at least the number of milliseconds since 1970, so
// that no number repeats even after an old copy of this directory was restored.
func (l *ledger) next(now time.Time) (uint64, error) {
	l.serial = max(l.serial+1, uint64(now.UnixMilli()))
	return l.serial, durable.Write(l.serialFile(), []byte(strconv.FormatUint(l.serial, 10)+"\n"), 0o600)
}

// add appends an entry, and returns after it has been flushed to the disk.
func (l *ledger) add(e Issued) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(l.file, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return croft.Errorf(croft.Invalid, "write the log of certificates: %w", err)
	}
	before := ""
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			before = "\n"
		}
	}
	_, err = f.WriteString(before + string(line) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close(), durable.FlushDir(l.dir)); err != nil {
		return fmt.Errorf("write the log of certificates: %w", err)
	}
	return nil
}

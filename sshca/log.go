package sshca

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/internal/durable"
	"croft/internal/filelock"
)

// Issued is a certificate that was issued, as the log has it.
type Issued struct {
	Time       time.Time `json:"time"`
	Serial     uint64    `json:"serial"`
	Kind       Kind      `json:"kind"`
	ID         string    `json:"id"`
	Principals []string  `json:"principals"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Key        string    `json:"key"`         // as in authorized_keys, without a comment
	By         string    `json:"by,omitzero"` // who signed: the user of the machine
}

func (a *CA) logFile() string { return filepath.Join(a.Keys, "issued.log") }

// Issued reads the log, the oldest first. NotFound: there is no directory of keys here. A line that was cut off by a
// crash, whose certificate was not given out, is left out. Invalid: another line cannot be read.
func (a *CA) Issued() ([]Issued, error) {
	if _, err := os.Stat(a.Keys); err != nil {
		return nil, croft.Errorf(croft.NotFound, "read what was issued: %w; that is told where it is signed (--keys)", err)
	}
	text, err := os.ReadFile(a.logFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read what was issued: %w", err)
	}
	var all []Issued
	for i, line := range bytes.Split(text, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e Issued
		err := json.Unmarshal(line, &e)
		if err != nil && err.Error() == "unexpected end of JSON input" {
			continue // cut off
		} else if err != nil || e.Serial == 0 {
			return nil, croft.Errorf(croft.Invalid, "%s:%d: this is no entry: %v; nothing is signed until it is mended",
				a.logFile(), i+1, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// A ledger is the log while it is locked.
type ledger struct {
	lock   *os.File
	dir    string
	file   string
	serial uint64 // the last one
}

// open locks the log and finds the last serial number. Unavailable: somebody else has it for seconds.
func (a *CA) open() (*ledger, error) {
	if err := os.MkdirAll(a.Keys, 0o700); err != nil {
		return nil, croft.Errorf(croft.Invalid, "write down what is issued: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(a.Keys, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "write down what is issued: %w", err)
	}
	if err := filelock.Take(lock); err != nil {
		_ = lock.Close() // it was only to be locked
		return nil, croft.Errorf(croft.Unavailable, "write down what is issued: %s: %w", lock.Name(), err)
	}
	l := &ledger{lock: lock, dir: a.Keys, file: a.logFile()}
	all, err := a.Issued()
	if err == nil {
		l.serial, err = l.highest()
	}
	if err != nil {
		l.close()
		return nil, err
	}
	for _, e := range all {
		l.serial = max(l.serial, e.Serial)
	}
	return l, nil
}

func (l *ledger) close() { _ = l.lock.Close() } // which unlocks

func (l *ledger) serialFile() string { return filepath.Join(l.dir, "serial") }

// highest reads the serial number that was given last, also if the log was lost.
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

// next takes a serial number: greater than the last one, and at least the milliseconds since 1970, so that none repeats
// even where an old copy of this directory was restored.
func (l *ledger) next(now time.Time) (uint64, error) {
	l.serial = max(l.serial+1, uint64(now.UnixMilli()))
	return l.serial, durable.Write(l.serialFile(), []byte(strconv.FormatUint(l.serial, 10)+"\n"), 0o600)
}

// add appends an entry, and returns when it is on the disk.
func (l *ledger) add(e Issued) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(l.file, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return croft.Errorf(croft.Invalid, "write down what is issued: %w", err)
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
		return fmt.Errorf("write down what is issued: %w", err)
	}
	return nil
}

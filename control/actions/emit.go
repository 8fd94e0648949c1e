package actions

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"log/syslog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"croft"
)

// The targets that entries of the log can be sent to in addition to the store.
const (
	ToSyslog  = "syslog"
	ToJournal = "journald"
)

// CheckTarget validates a target for entries: ToSyslog, ToJournal, the absolute path of a file, or empty. Invalid.
func CheckTarget(target string) error {
	if target == "" || target == ToSyslog || target == ToJournal || filepath.IsAbs(target) {
		return nil
	}
	return croft.Errorf(croft.Invalid, "entries of the action log cannot be sent to %.80q: use %s, %s or the absolute path "+
		"of a file", target, ToSyslog, ToJournal)
}

// journalSocket is the socket of systemd-journald for entries.
const journalSocket = "/run/systemd/journal/socket"

// Sender sends entries of the log, as one line of JSON each, to a target that tenants cannot change.
type Sender struct {
	send func(line []byte) error
	log  *slog.Logger

	mu     sync.Mutex
	warned time.Time
}

// NewSender returns a sender to a target; nil if the target is empty. Unavailable: the target does not accept entries.
func NewSender(target string, log *slog.Logger) (*Sender, error) {
	if target == "" {
		return nil, nil
	}
	if err := CheckTarget(target); err != nil {
		return nil, err
	}
	s := &Sender{log: log}
	switch target {
	case ToSyslog:
		w, err := syslog.New(syslog.LOG_INFO|syslog.LOG_AUTHPRIV, "croft")
		if err != nil {
			return nil, croft.Errorf(croft.Unavailable, "send the action log to syslog: %w", err)
		}
		s.send = func(line []byte) error { return w.Info(string(line)) }
	case ToJournal:
		s.send = func(line []byte) error { return sendToJournal(journalSocket, line) }
	default:
		s.send = func(line []byte) error { return appendLine(target, line) }
		if err := appendLine(target, nil); err != nil {
			return nil, croft.Errorf(croft.Unavailable, "send the action log to a file: %w", err)
		}
	}
	return s, nil
}

// Send sends an entry. It logs errors, at most once a minute, since no request fails because of them.
func (s *Sender) Send(e Entry) {
	line, err := json.Marshal(e)
	if err == nil {
		err = s.send(line)
	}
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.warned) > time.Minute {
		s.warned = time.Now()
		s.log.Error("entries of the action log are not sent on", "err", err)
	}
}

// appendLine opens the file for each line, so that the file can be rotated without a signal.
func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if len(line) > 0 {
		_, err = f.Write(append(line, '\n'))
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// sendToJournal sends a line in journald's native protocol. JSON has no line breaks outside of strings, and escapes
// those in strings.
func sendToJournal(socket string, line []byte) error {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = fmt.Fprintf(c, "MESSAGE=%s\nPRIORITY=6\nSYSLOG_IDENTIFIER=croft\n", line)
	return err
}

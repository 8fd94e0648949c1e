package ssh

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"croft/internal/plain"
)

const (
	wordsMax = 64 << 10 // bytes of what ssh says that are kept
	lineMax  = 300      // bytes of a line in messages
)

// words keeps the end of what a process of ssh, and those that it starts, say.
type words struct {
	from  *os.File
	ended chan struct{} // closed when nothing more comes

	mu   sync.Mutex
	text []byte
}

// listen has a command that was not started say its words here. The second file is to be closed once it was.
func listen(cmd *exec.Cmd) (*words, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.Stderr = w
	h := &words{from: r, ended: make(chan struct{})}
	go h.read()
	return h, w, nil
}

func (h *words) read() {
	defer close(h.ended)
	buffer := make([]byte, 4<<10)
	for {
		n, err := h.from.Read(buffer)
		h.mu.Lock()
		h.text = append(h.text, buffer[:n]...)
		if len(h.text) > wordsMax {
			h.text = append(h.text[:0], h.text[len(h.text)-wordsMax/2:]...)
		}
		h.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// all returns all words, once those that say them have ended, or a second has passed.
func (h *words) all() string {
	select {
	case <-h.ended:
	case <-time.After(time.Second): // something that ssh started has not ended with it
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.text)
}

// close ends the reading.
func (h *words) close() {
	_ = h.from.Close() // it was only read
	<-h.ended
}

// why is why a master has ended.
func (h *words) why() error {
	text := said(h.all())
	switch {
	case strings.Contains(text, "not responding"):
		return errors.New("no sign of life: " + text)
	case text == "":
		return errors.New("closed by the machine")
	}
	return errors.New(text)
}

// asides are how lines begin that say nothing about a failure.
var asides = []string{"debug", "OpenSSH_", "@", "Authenticated ", "Transferred: ", "Bytes per second: ", "Exit status ",
	"Warning: Permanently added ", "Killed by signal", "Connection closed by UNKNOWN",
	"kex_exchange_identification: Connection closed by remote host"}

// said returns the last lines of ssh's words that tell something, as one line.
func said(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !startsWithAny(line, asides) && !strings.Contains(line, ": chan_") {
			lines = append(lines, plain.Cut(line, lineMax))
		}
	}
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

func startsWithAny(text string, beginnings []string) bool {
	for _, b := range beginnings {
		if strings.HasPrefix(text, b) {
			return true
		}
	}
	return false
}

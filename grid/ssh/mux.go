package ssh

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// The messages of OpenSSH's PROTOCOL.mux, version 4, as far as they are used here. A message is a length, a type, and
// fields: numbers of 4 bytes, and strings with a length before them.
const (
	muxVersion = 4

	muxHello      = 0x00000001
	muxNewSession = 0x10000002
	muxAlive      = 0x10000004
	muxTerminate  = 0x10000005

	muxExitMessage   = 0x80000004
	muxIsAlive       = 0x80000005
	muxSessionOpened = 0x80000006
	muxDenied        = 0x80000002
	muxFailure       = 0x80000003
)

const muxMessageMax = 256 << 10

// noEscape as an escape character means none.
const noEscape = math.MaxUint32

// A refused is a session that sshd did not open: nothing was started.
type refused struct{ reason string }

func (r *refused) Error() string { return r.reason }

// A mux is a connection to a master of ssh by its control socket, for at most one session.
type mux struct{ conn *net.UnixConn }

// dialMux connects to a master and exchanges greetings.
func dialMux(ctx context.Context, socket string) (*mux, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	m := &mux{conn.(*net.UnixConn)}
	defer context.AfterFunc(ctx, m.Close)()
	if err := m.send(muxHello, uint32(muxVersion)); err != nil {
		m.Close()
		return nil, err
	}
	kind, fields, err := m.receive()
	if version := fields.number(); err == nil && (kind != muxHello || version != muxVersion) {
		err = fmt.Errorf("ssh speaks version %d of its control protocol, not %d", version, muxVersion)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close ends the connection. The master then ends the input of the session's program, and its output when the program
// writes to it next.
func (m *mux) Close() { _ = m.conn.Close() }

// master returns the process ID of the master.
func (m *mux) master() (pid int, err error) {
	if err := m.send(muxAlive, uint32(0)); err != nil {
		return 0, err
	}
	kind, fields, err := m.receive()
	if err == nil && kind != muxIsAlive {
		err = fmt.Errorf("message %#x of ssh's control protocol was not expected", kind)
	}
	_ = fields.number() // that of the request
	return int(fields.number()), err
}

// terminate asks the master to end at once.
func (m *mux) terminate() { _ = m.send(muxTerminate, uint32(1)) }

// start has the login shell run a command with these streams, which are duplicated for the master. Errors: refused;
// else nothing is known.
func (m *mux) start(command string, streams [3]*os.File) error {
	const no = uint32(0) // terminal, X11, agent, subsystem
	if err := m.send(muxNewSession, uint32(0), "", no, no, no, no, uint32(noEscape), "", command); err != nil {
		return err
	}
	for _, f := range streams {
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		var sent error
		if err := raw.Control(func(fd uintptr) {
			_, _, sent = m.conn.WriteMsgUnix([]byte{0}, unix.UnixRights(int(fd)), nil)
		}); err != nil || sent != nil {
			return errors.Join(err, sent)
		}
	}
	kind, fields, err := m.receive()
	_ = fields.number() // that of the request
	switch {
	case err != nil:
		return err
	case kind == muxDenied || kind == muxFailure:
		return &refused{fields.text()}
	case kind != muxSessionOpened:
		return fmt.Errorf("message %#x of ssh's control protocol was not expected", kind)
	}
	return nil
}

// followed waits until the master has closed the session, and returns how the program ended: nil, an Exit, or errNoEnd.
func (m *mux) followed() error {
	end := errNoEnd
	for {
		kind, fields, err := m.receive()
		if err != nil {
			return end
		}
		if kind == muxExitMessage {
			_ = fields.number() // that of the session
			end = exit(int(min(fields.number(), 255)))
		}
	}
}

// send sends a message of numbers and strings.
func (m *mux) send(kind uint32, fields ...any) error {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), kind)
	for _, f := range fields {
		switch f := f.(type) {
		case uint32:
			b = binary.BigEndian.AppendUint32(b, f)
		case string:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(f))), f...)
		}
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err := m.conn.Write(b)
	return err
}

// receive waits for a message.
func (m *mux) receive() (kind uint32, rest fields, err error) {
	var head [8]byte
	if _, err := io.ReadFull(m.conn, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size < 4 || size > muxMessageMax {
		return 0, nil, fmt.Errorf("a message of %d bytes is not of ssh's control protocol", size)
	}
	rest = make(fields, size-4)
	_, err = io.ReadFull(m.conn, rest)
	return binary.BigEndian.Uint32(head[4:]), rest, err
}

// fields are the unread fields of a message.
type fields []byte

// number reads a number; 0: the message has ended.
func (f *fields) number() uint32 {
	if len(*f) < 4 {
		return 0
	}
	n := binary.BigEndian.Uint32(*f)
	*f = (*f)[4:]
	return n
}

// text reads a string; empty: the message has ended.
func (f *fields) text() string {
	n := f.number()
	if uint64(n) > uint64(len(*f)) {
		return ""
	}
	text := string((*f)[:n])
	*f = (*f)[n:]
	return text
}

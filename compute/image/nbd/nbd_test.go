package nbd_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"croft/compute/image/nbd"
)

const mib = 1 << 20

// server is a server of one disk, of which every second MiB is zeros.
type server struct {
	net.Conn
	disk []byte
	read int // bytes that were sent
	// garble changes a chunk of a reply before it is sent; nil: none
	garble func(kind uint16, chunk []byte) []byte
}

func (s *server) send(fields ...any) {
	var b []byte
	for _, f := range fields {
		b, _ = binary.Append(b, binary.BigEndian, f)
	}
	_, _ = s.Write(b) // the client's side fails
}

func (s *server) chunk(handle uint64, kind uint16, payload []byte) {
	b := []byte{0x66, 0x8e, 0x33, 0xef, 0, 1}
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint64(b, handle)
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(payload))), payload...)
	if s.garble != nil {
		b = s.garble(kind, b)
	}
	_, _ = s.Write(b)
}

// serve serves until the client disconnects.
func (s *server) serve() {
	defer s.Close()
	s.send(uint64(0x4e42444d41474943), uint64(0x49484156454F5054), uint16(3))
	_, _ = io.CopyN(io.Discard, s, 4)
	for option := uint32(0); option != 7; {
		var head struct {
			Magic          uint64
			Option, Length uint32
		}
		if binary.Read(s, binary.BigEndian, &head) != nil {
			return
		}
		option = head.Option
		_, _ = io.CopyN(io.Discard, s, int64(head.Length))
		reply := func(kind uint32, data []byte) {
			s.send(uint64(0x3e889045565a9), option, kind, uint32(len(data)), data)
		}
		switch option {
		case 10:
			reply(4, append([]byte{0, 0, 0, 1}, "base:allocation"...))
		case 7:
			reply(3, binary.BigEndian.AppendUint64([]byte{0, 0}, uint64(len(s.disk))))
		}
		reply(1, nil)
	}
	for {
		var request struct {
			Magic          uint32
			Flags, Command uint16
			Handle, Offset uint64
			Length         uint32
		}
		if binary.Read(s, binary.BigEndian, &request) != nil || request.Command == 2 {
			return
		}
		at, end := request.Offset, request.Offset+uint64(request.Length)
		if request.Command == 0 {
			s.read += int(end - at)
			s.chunk(request.Handle, 1, append(binary.BigEndian.AppendUint64(nil, at), s.disk[at:end]...))
			continue
		}
		b := []byte{0, 0, 0, 1}
		for ; at < end; at += mib {
			b = binary.BigEndian.AppendUint32(b, uint32(min(mib, end-at)))
			b = binary.BigEndian.AppendUint32(b, uint32(at/mib%2*3)) // 3: a hole that reads as zeros
		}
		s.chunk(request.Handle, 5, b)
	}
}

// copied returns what a client reads of a server.
func copied(t *testing.T, s *server) ([]byte, error) {
	t.Helper()
	s.disk = make([]byte, 8*mib+4096)
	for at := 0; at < len(s.disk); at += 2 * mib {
		_, _ = rand.NewChaCha8([32]byte{1}).Read(s.disk[at:min(len(s.disk), at+mib)])
	}
	near, far := net.Pipe()
	s.Conn = far
	ended := make(chan struct{})
	go func() { defer close(ended); s.serve() }()
	defer func() { near.Close(); <-ended }()
	c, err := nbd.Open(near)
	if err != nil {
		return nil, err
	}
	var got bytes.Buffer
	err = c.Copy(&got)
	return got.Bytes(), err
}

func TestZerosAreNotTransferred(t *testing.T) {
	s := &server{}
	got, err := copied(t, s)
	if err != nil || !bytes.Equal(got, s.disk) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if s.read != 4*mib+4096 {
		t.Errorf("%d bytes were read", s.read)
	}
}

func TestAServerThatBreaksTheProtocolIsAnError(t *testing.T) {
	const data, status = 1, 5
	at := func(kind uint16, offset int, value byte) func(uint16, []byte) []byte {
		return func(k uint16, chunk []byte) []byte {
			if k == kind {
				chunk[offset] = value
			}
			return chunk
		}
	}
	for name, garble := range map[string]func(uint16, []byte) []byte{
		"another magic":                at(data, 0, 1),
		"another handle":               at(data, 15, 99),
		"a place before the request":   at(data, 27, 255),
		"a place far outside":          at(data, 20, 255),
		"more bytes than asked for":    at(data, 17, 255),
		"an unknown kind":              at(data, 7, 9),
		"an error":                     at(data, 6, 0x80),
		"a status of a strange length": at(status, 19, 13),
		"an extent of no bytes": func(k uint16, chunk []byte) []byte {
			if k == status {
				clear(chunk[24:28])
			}
			return chunk
		},
		"a connection that ends": func(k uint16, chunk []byte) []byte {
			if k == data {
				return append(chunk[:16:16], 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0) // a chunk without its data
			}
			return chunk
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := copied(t, &server{garble: garble}); err == nil {
				t.Error("no error")
			}
		})
	}
}

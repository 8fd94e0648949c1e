// Package nbd reads a whole disk from a server of the NBD protocol. Parts that the server knows to be zeros are not
// transferred. What a server sends is checked; a server that breaks the protocol is an error.
//
// The protocol is described in https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md; of it, this package
// has fixed newstyle negotiation, structured replies and the metadata context base:allocation.
package nbd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	initMagic    = 0x4e42444d41474943 // NBDMAGIC
	optionMagic  = 0x49484156454F5054 // IHAVEOPT
	replyMagic   = 0x3e889045565a9
	requestMagic = 0x25609513
	chunkMagic   = 0x668e33ef

	fixedNewstyle = 1 << 0
	noZeroes      = 1 << 1

	optionGo         = 7
	optionStructured = 8
	optionSetContext = 10

	replyAck     = 1
	replyInfo    = 3
	replyContext = 4
	replyError   = 1 << 31

	infoExport = 0

	commandRead       = 0
	commandDisconnect = 2
	commandStatus     = 7

	chunkDone   = 1 << 0 // flag
	chunkNone   = 0
	chunkData   = 1
	chunkHole   = 2
	chunkStatus = 5
	chunkError  = 1 << 15

	stateZero = 1 << 1
)

const (
	context    = "base:allocation"
	block      = 1 << 20 // bytes in one request to read
	statusSpan = 1 << 30 // bytes in one request for the parts with data
	mostReply  = 1 << 20 // bytes of a reply that is not data
	ahead      = 4       // blocks in memory
)

// Client is a connection to the server of one export.
type Client struct {
	in     *bufio.Reader
	out    io.Writer
	size   int64
	handle uint64 // of the latest request
}

// Open negotiates about the default export of a server. The connection stays the caller's: its end ends every method.
func Open(conn io.ReadWriter) (*Client, error) {
	c := &Client{in: bufio.NewReaderSize(conn, 256<<10), out: conn, size: -1}
	if err := c.negotiate(); err != nil {
		return nil, fmt.Errorf("negotiate about a disk: %w", noEOF(err))
	}
	return c, nil
}

func (c *Client) negotiate() error {
	var hello struct {
		Magic, Option uint64
		Flags         uint16
	}
	if err := c.read(&hello); err != nil {
		return err
	}
	if hello.Magic != initMagic || hello.Option != optionMagic || hello.Flags&fixedNewstyle == 0 {
		return errors.New("the server does not speak fixed newstyle NBD")
	}
	if err := c.write(uint32(fixedNewstyle | hello.Flags&noZeroes)); err != nil {
		return err
	}
	name := uint32(0) // length of the default export's name
	for _, o := range []struct {
		option uint32
		data   []byte
	}{
		{optionStructured, nil},
		{optionSetContext, append(pack(name, uint32(1), uint32(len(context))), context...)},
		{optionGo, pack(name, uint16(0))},
	} {
		if err := c.write(uint64(optionMagic), o.option, uint32(len(o.data)), o.data); err != nil {
			return err
		}
		if err := c.replies(o.option); err != nil {
			return err
		}
	}
	if c.size < 0 {
		return errors.New("the server says no size")
	}
	return nil
}

// replies reads the replies to an option up to the last one.
func (c *Client) replies(option uint32) error {
	contexts := 0
	for {
		var reply struct {
			Magic                uint64
			Option, Type, Length uint32
		}
		if err := c.read(&reply); err != nil {
			return err
		}
		if reply.Magic != replyMagic || reply.Option != option || reply.Length > mostReply {
			return errProtocol
		}
		data := make([]byte, reply.Length)
		if _, err := io.ReadFull(c.in, data); err != nil {
			return err
		}
		switch {
		case reply.Type&replyError != 0:
			return fmt.Errorf("the server refuses option %d: error %d %.200q", option, reply.Type&^replyError, data)
		case reply.Type == replyContext:
			contexts++
		case reply.Type == replyInfo && len(data) >= 10 && binary.BigEndian.Uint16(data) == infoExport:
			if c.size = int64(binary.BigEndian.Uint64(data[2:])); c.size < 0 {
				return errProtocol
			}
		case reply.Type == replyAck && option == optionSetContext && contexts != 1:
			return errors.New("the server does not say where the disk has data")
		case reply.Type == replyAck:
			return nil
		}
	}
}

var errProtocol = errors.New("the server breaks the NBD protocol")

// Size returns the size of the disk in bytes.
func (c *Client) Size() int64 { return c.size }

// part is a part of the disk, or the error after it.
type part struct {
	data []byte
	err  error
}

// Copy writes the content of the disk to w. While w takes one part, the next ones are read. After it failed, the caller
// ends the connection, and abandons the client.
func (c *Client) Copy(w io.Writer) error {
	parts, quit := make(chan part, ahead-2), make(chan struct{}) // one more is being read, and one written
	go func() {
		defer close(parts)
		err := c.readAll(func(data []byte) bool {
			select {
			case parts <- part{data: data}:
				return true
			case <-quit:
				return false
			}
		})
		if err != nil {
			select {
			case parts <- part{err: err}:
			case <-quit:
			}
		}
	}()
	defer close(quit)
	for p := range parts {
		if p.err != nil {
			return fmt.Errorf("read a disk: %w", noEOF(p.err))
		}
		if _, err := w.Write(p.data); err != nil {
			return err
		}
	}
	return c.request(commandDisconnect, 0, 0)
}

var zeros [block]byte

// readAll calls each with the parts of the disk in order, until it returns false.
func (c *Client) readAll(each func([]byte) bool) error {
	var buffers [ahead][block]byte
	n := 0
	for at := int64(0); at < c.size; {
		extents, err := c.extents(at, min(statusSpan, c.size-at))
		if err != nil {
			return err
		}
		for _, e := range extents {
			for end := at + e.length; at < end; {
				data := zeros[:min(block, end-at)]
				if !e.zero {
					data = buffers[n%ahead][:len(data)]
					n++
					if err := c.readAt(data, at); err != nil {
						return err
					}
				}
				if !each(data) {
					return nil
				}
				at += int64(len(data))
			}
		}
	}
	return nil
}

// extent is a part of the disk that is zeros, or may have data.
type extent struct {
	length int64
	zero   bool
}

// extents returns the extents from an offset on: at least one, and at most length bytes.
func (c *Client) extents(at, length int64) (all []extent, err error) {
	if err := c.request(commandStatus, at, uint32(length)); err != nil {
		return nil, err
	}
	left := length
	err = c.chunks(func(kind uint16, size uint32) error {
		if kind != chunkStatus || size < 12 || (size-4)%8 != 0 || size > mostReply {
			return errProtocol
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(c.in, data); err != nil {
			return err
		}
		for data = data[4:]; len(data) > 0 && left > 0; data = data[8:] { // after the ID of the only context
			reported, state := binary.BigEndian.Uint32(data), binary.BigEndian.Uint32(data[4:])
			e := extent{min(int64(reported), left), state&stateZero != 0}
			if e.length == 0 {
				return errProtocol
			}
			left -= e.length
			all = append(all, e)
		}
		return nil
	})
	if err == nil && len(all) == 0 {
		err = errProtocol
	}
	return all, err
}

// readAt fills data from an offset on.
func (c *Client) readAt(data []byte, at int64) error {
	if err := c.request(commandRead, at, uint32(len(data))); err != nil {
		return err
	}
	missing := len(data)
	err := c.chunks(func(kind uint16, size uint32) error {
		var from uint64
		if kind != chunkData && kind != chunkHole || size < 8 {
			return errProtocol
		}
		if err := c.read(&from); err != nil {
			return err
		}
		length := size - 8
		if kind == chunkHole {
			if length != 4 {
				return errProtocol
			}
			if err := c.read(&length); err != nil {
				return err
			}
		}
		// A server sends no byte twice, so the length tells whether all have arrived.
		offset := from - uint64(at)
		if from < uint64(at) || offset > uint64(len(data)) || uint64(length) > uint64(len(data))-offset ||
			int(length) > missing {
			return errProtocol
		}
		missing -= int(length)
		into := data[offset : offset+uint64(length)]
		if kind == chunkHole {
			clear(into)
			return nil
		}
		_, err := io.ReadFull(c.in, into)
		return err
	})
	if err == nil && missing > 0 {
		err = errProtocol
	}
	return err
}

// request sends a request.
func (c *Client) request(command uint16, at int64, length uint32) error {
	c.handle++
	return c.write(uint32(requestMagic), uint16(0), command, c.handle, uint64(at), length)
}

// chunks calls take with the kind and the size of each chunk of the reply to the latest request; take reads the chunk.
func (c *Client) chunks(take func(kind uint16, size uint32) error) error {
	for {
		var chunk struct {
			Magic       uint32
			Flags, Kind uint16
			Handle      uint64
			Size        uint32
		}
		if err := c.read(&chunk); err != nil {
			return err
		}
		var err error
		switch {
		case chunk.Magic != chunkMagic || chunk.Handle != c.handle:
			return errProtocol
		case chunk.Kind&chunkError != 0:
			return c.failure(chunk.Size)
		case chunk.Kind == chunkNone && chunk.Size == 0:
		default:
			err = take(chunk.Kind, chunk.Size)
		}
		if err != nil || chunk.Flags&chunkDone != 0 {
			return err
		}
	}
}

// failure reads the error that a server sends.
func (c *Client) failure(size uint32) error {
	if size < 6 || size > mostReply {
		return errProtocol
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(c.in, data); err != nil {
		return err
	}
	message := data[6:]
	message = message[:min(len(message), int(binary.BigEndian.Uint16(data[4:])), 200)]
	return fmt.Errorf("the server answers with error %d: %q", binary.BigEndian.Uint32(data), message)
}

func (c *Client) read(into any) error { return binary.Read(c.in, binary.BigEndian, into) }

func (c *Client) write(fields ...any) error {
	_, err := c.out.Write(pack(fields...))
	return err
}

// pack encodes numbers and bytes.
func pack(fields ...any) (b []byte) {
	for _, f := range fields {
		b, _ = binary.Append(b, binary.BigEndian, f) // fails only for types of no fixed size
	}
	return b
}

// noEOF is the error for a connection that ended.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

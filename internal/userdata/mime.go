package userdata

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"strings"
)

// maxDepth is how deeply multiparts may be nested.
const maxDepth = 4

// checkMessage checks the parts of a MIME message. Its errors continue "the user-data ...".
func checkMessage(data []byte) error {
	m, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("begins as MIME and its header cannot be read: %w", err)
	}
	return checkPart(textproto.MIMEHeader(m.Header), m.Body, 0)
}

func checkPart(h textproto.MIMEHeader, body io.Reader, depth int) error {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case err != nil && h.Get("Content-Type") != "":
		return fmt.Errorf("is MIME with the type %q, which is invalid: %w", h.Get("Content-Type"), err)
	case !strings.HasPrefix(kind, "multipart/"):
		return checkLeaf(Kind(kind), h.Get("Content-Transfer-Encoding"), body)
	case depth == maxDepth:
		return fmt.Errorf("is MIME with parts within parts, more than %d deep", maxDepth)
	case params["boundary"] == "":
		return errors.New("is MIME with several parts and names no boundary between them")
	}
	parts := multipart.NewReader(body, params["boundary"])
	for n := 0; ; n++ {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) && n > 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("is MIME whose part %d cannot be read: %w", n+1, err)
		}
		if err := checkPart(p.Header, p, depth+1); err != nil {
			return err
		}
	}
}

// checkLeaf checks a part that is not a multipart.
func checkLeaf(kind Kind, encoding string, body io.Reader) error {
	switch strings.ToLower(encoding) {
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("is MIME with a part that does not decode: %w", err)
	}
	if kind == CloudConfig || kind != Script && KindOf(data) == CloudConfig {
		return checkCloudConfig(data)
	}
	return nil
}

// Part is one piece of user-data for Join.
type Part struct {
	Name string // a file name, under which the guest may store the piece
	Data []byte
}

// Join joins pieces as parts of one MIME message, in their order, which is also the order in which cloud-init processes
// them. Equal pieces give equal bytes, so that a guest that reads twice sees no change. A piece that is MIME becomes a
// part that contains its parts.
func Join(parts ...Part) []byte {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	hash := sha256.New()
	for _, p := range parts {
		hash.Write(p.Data)
	}
	boundary := "croft-" + hex.EncodeToString(hash.Sum(nil)[:16])
	w.SetBoundary(boundary) // letters, digits and a dash: never fails
	for _, p := range parts {
		header, text := p.encode()
		to, _ := w.CreatePart(header) // writes to memory: never fails
		to.Write(text)
	}
	w.Close()
	head := "Content-Type: multipart/mixed; boundary=\"" + boundary + "\"\nMIME-Version: 1.0\n\n"
	return append([]byte(head), body.Bytes()...)
}

// encode returns the part's header and body for the message.
func (p Part) encode() (textproto.MIMEHeader, []byte) {
	if KindOf(p.Data) == Multipart {
		if m, err := mail.ReadMessage(bytes.NewReader(p.Data)); err == nil {
			if body, err := io.ReadAll(m.Body); err == nil {
				return textproto.MIMEHeader(m.Header), body
			}
		}
	}
	kind := string(KindOf(p.Data))
	if strings.HasPrefix(kind, "text/") {
		kind += `; charset="utf-8"`
	}
	return textproto.MIMEHeader{
		"Content-Type":              {kind},
		"Content-Transfer-Encoding": {"base64"},
		"Content-Disposition":       {mime.FormatMediaType("attachment", map[string]string{"filename": p.Name})},
	}, wrapped(p.Data)
}

// wrapped returns base64 in lines of 76 characters.
func wrapped(data []byte) []byte {
	text := base64.StdEncoding.EncodeToString(data)
	var out bytes.Buffer
	for len(text) > 76 {
		out.WriteString(text[:76] + "\n")
		text = text[76:]
	}
	out.WriteString(text + "\n")
	return out.Bytes()
}

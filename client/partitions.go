package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"croft"
	"croft/control/api"
	"croft/control/federation"
)

// ExportPartition writes an export of the cloud as it arrives, and returns its header. The last line shows whether the
// export is complete.
func (c *Client) ExportPartition(ctx context.Context, in api.Export, w io.Writer) (h federation.Header, err error) {
	answer, err := c.request(ctx, "GET /v1/export", in)
	if err != nil {
		return h, err
	}
	defer answer.Body.Close()
	seen := &ends{}
	if _, err := io.Copy(io.MultiWriter(ownWriter{w}, seen), answer.Body); err != nil {
		return h, c.unreachable(ctx, err)
	}
	if h, err = seen.header(); err != nil {
		return h, croft.Errorf(croft.Unavailable, "the export is not complete: export again")
	}
	return h, nil
}

// ends keeps the first and the last line that is written to it.
type ends struct {
	first, last []byte
	whole       bool // the first line is complete
}

// Write implements io.Writer.
func (e *ends) Write(text []byte) (int, error) {
	for line := range bytes.Lines(text) {
		if !e.whole {
			e.first = append(e.first, line...)
		}
		if bytes.HasSuffix(e.last, []byte("\n")) {
			e.last = nil
		}
		e.last = append(e.last, line...)
		e.whole = e.whole || bytes.HasSuffix(line, []byte("\n"))
	}
	return len(text), nil
}

// header returns the header of an export. It returns an error if the export is incomplete.
func (e *ends) header() (h federation.Header, err error) {
	var t federation.Trailer
	if err := json.Unmarshal(e.last, &t); err != nil || t.SHA256 == "" {
		return h, io.ErrUnexpectedEOF
	}
	return h, json.Unmarshal(e.first, &h)
}

// ImportPartition shows the export that it reads. changed is false if this same export is already shown.
func (c *Client) ImportPartition(ctx context.Context, in api.Import, from io.Reader) (shown federation.Partition,
	changed bool, err error) {
	at := c.base + pathOf("/v1/import", in)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, ownReader{from})
	if err != nil {
		return shown, false, croft.Errorf(croft.Invalid, "%w", err)
	}
	r.Header.Set("Content-Type", "application/octet-stream")
	c.identify(r.Header)
	answer, err := c.requests.Do(r)
	if err != nil {
		return shown, false, c.unreachable(ctx, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusMultipleChoices {
		return shown, false, problemIn(answer)
	}
	if err := json.NewDecoder(answer.Body).Decode(&shown); err != nil {
		return shown, false, c.unreachable(ctx, err)
	}
	return shown, answer.StatusCode == http.StatusCreated, nil
}

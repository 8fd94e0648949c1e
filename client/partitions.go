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

// partitions implements cloud.Partitions.
type partitions struct{ *Client }

// List implements cloud.Partitions.
func (p partitions) List(ctx context.Context) ([]federation.Partition, error) {
	list, err := p.ListPartitions(ctx)
	return list.Partitions, err
}

// Find implements cloud.Partitions.
func (p partitions) Find(ctx context.Context, idOrAlias string) (federation.Partition, error) {
	return p.GetPartition(ctx, api.PartitionNamed{ID: idOrAlias})
}

// Remove implements cloud.Partitions.
func (p partitions) Remove(ctx context.Context, idOrAlias string) (federation.Partition, error) {
	return p.RemovePartition(ctx, api.PartitionNamed{ID: idOrAlias})
}

// Rows implements cloud.Partitions.
func (p partitions) Rows(ctx context.Context, idOrAlias string, kind federation.Kind,
	each func(json.RawMessage) error) error {
	list, err := p.ListRows(ctx, api.RowsOfKind{PartitionNamed: api.PartitionNamed{ID: idOrAlias}, Kind: kind})
	if err != nil {
		return err
	}
	for _, row := range list.Rows {
		if err := each(row); err != nil {
			return err
		}
	}
	return nil
}

// Export implements cloud.Partitions. It writes data as it arrives; the last line shows whether the export is complete.
func (p partitions) Export(ctx context.Context, name string, w io.Writer) (h federation.Header, err error) {
	answer, err := p.request(ctx, "GET /v1/export", api.Export{Name: name})
	if err != nil {
		return h, err
	}
	defer answer.Body.Close()
	seen := &ends{}
	if _, err := io.Copy(io.MultiWriter(w, seen), answer.Body); err != nil {
		return h, p.unreachable(ctx, err)
	}
	if h, err = seen.header(); err != nil {
		return h, croft.Errorf(croft.Unavailable, "the export of the cloud at %s is not complete: export again", p.base)
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

// Import implements cloud.Partitions.
func (p partitions) Import(ctx context.Context, from io.Reader, alias string) (shown federation.Partition, changed bool,
	err error) {
	at := p.base + pathOf("/v1/import", api.Import{As: alias})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, from)
	if err != nil {
		return shown, false, croft.Errorf(croft.Invalid, "%w", err)
	}
	r.Header.Set("Content-Type", "application/octet-stream")
	p.identify(r.Header)
	answer, err := p.requests.Do(r)
	if err != nil {
		return shown, false, p.unreachable(ctx, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusMultipleChoices {
		return shown, false, problemIn(answer)
	}
	if err := json.NewDecoder(answer.Body).Decode(&shown); err != nil {
		return shown, false, p.unreachable(ctx, err)
	}
	return shown, answer.StatusCode == http.StatusCreated, nil
}

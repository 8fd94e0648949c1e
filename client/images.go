package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"croft"
	"croft/control/api"
)

// UploadCatalogImage appends a chunk of size bytes to the upload of an image. Conflict: the chunk does not start where
// the upload ends now.
func (c *Client) UploadCatalogImage(ctx context.Context, in api.UploadChunk, chunk io.Reader, size int64) (
	now api.Upload, err error) {
	at := c.base + pathOf("/v1/catalog/{name}/upload", in)
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, at, ownReader{chunk})
	if err != nil {
		return now, croft.Errorf(croft.Invalid, "%w", err)
	}
	r.ContentLength = size
	r.Header.Set("Content-Type", "application/octet-stream")
	c.identify(r.Header)
	answer, err := c.requests.Do(r)
	if err != nil {
		return now, c.unreachable(ctx, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusMultipleChoices {
		return now, problemIn(answer)
	}
	if err := json.NewDecoder(answer.Body).Decode(&now); err != nil {
		return now, c.unreachable(ctx, err)
	}
	return now, nil
}

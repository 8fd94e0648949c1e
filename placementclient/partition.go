package placementclient

import (
	"context"
	"net/http"

	"croft"
)

// Home returns the partition in which this Placement keeps its state; empty: it is OpenStack's, or does not report its
// partition.
func (c *Client) Home(ctx context.Context) (croft.PartitionID, error) {
	var told partitionAnswer
	err := c.conn.call(ctx, http.MethodGet, "/", nil, &told)
	return told.partition, err
}

// partitionAnswer reads the answer of GET /; only the header is used.
type partitionAnswer struct{ partition croft.PartitionID }

func (a *partitionAnswer) readHeader(h http.Header) {
	a.partition = croft.PartitionID(h.Get("Croft-Partition"))
}

// decode implements decoder.
func (a *partitionAnswer) decode([]byte) error { return nil }

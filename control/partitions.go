package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"croft"
	"croft/control/api"
	"croft/control/federation"
)

// Bounds of exports and imports.
const (
	transferTime = 10 * time.Minute
	maxImport    = 1 << 30 // bytes
)

func listPartitions(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Partitions.List(ctx)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.PartitionList{Partitions: all})
}

func getPartition(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	p, err := c.Cloud.Partitions.Find(ctx, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, p)
}

func removePartition(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	p, err := c.Cloud.Partitions.Remove(ctx, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, p)
}

func listRows(c *call) error {
	if !c.query.Has("kind") {
		return api.NewProblem(api.BadQuery, "the parameter kind is missing")
	}
	ctx, cancel := c.brief()
	defer cancel()
	list := api.RowList{Rows: []json.RawMessage{}}
	err := c.Cloud.Partitions.Rows(ctx, c.r.PathValue("id"), federation.Kind(c.query.Get("kind")),
		func(row json.RawMessage) error {
			list.Rows = append(list.Rows, row)
			return nil
		})
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, list)
}

func exportPartition(c *call) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), transferTime)
	defer cancel()
	w := &lateAnswer{w: c.w}
	_, err := c.Cloud.Partitions.Export(ctx, c.query.Get("name"), w)
	if err != nil && w.begun { // the client sees that the last line is missing
		return nil
	}
	return err
}

// lateAnswer starts an answer when the first bytes are written, so that an error before them can be the answer.
type lateAnswer struct {
	w     http.ResponseWriter
	begun bool
}

// Write implements io.Writer.
func (a *lateAnswer) Write(text []byte) (int, error) {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "application/octet-stream")
		a.w.Header().Set("Cache-Control", "no-store")
	}
	return a.w.Write(text)
}

func importPartition(c *call) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), transferTime)
	defer cancel()
	p, changed, err := c.Cloud.Partitions.Import(ctx, http.MaxBytesReader(c.w, c.r.Body, maxImport), c.query.Get("as"))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return croft.Errorf(croft.Invalid, "the export is larger than %d MiB", maxImport>>20)
	}
	if err != nil {
		return err
	}
	status := http.StatusOK
	if changed {
		status = http.StatusCreated
	}
	return c.answer(status, p)
}

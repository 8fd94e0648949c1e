package control

import (
	"net/http"

	"croft/control/api"
	"croft/internal/httpapi"
)

// answer writes a document as JSON.
func (c *call) answer(status int, document any) error {
	httpapi.Answer(c.w, status, document)
	return nil
}

func getDocument(c *call) error {
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = c.w.Write(api.Document()) // ignore clients that disconnected
	return nil
}

func getRoot(c *call) error {
	return c.answer(http.StatusOK, api.Cloud{Version: c.Version, Document: api.Hash(), Login: c.Login})
}

func whoami(c *call) error { return c.answer(http.StatusOK, c.caller) }

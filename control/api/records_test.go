package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"croft"
	"croft/control/api"
)

// The key of a move gives its reader the disk.
func TestRecordsLackTheKeyOfAMove(t *testing.T) {
	order := croft.Order{Want: croft.WantLeaving, Move: &croft.Move{Host: "h", Then: croft.WantRunning, Key: "secret"}}
	text, err := json.Marshal(api.Records(croft.Status{Order: &order}))
	if err != nil || strings.Contains(string(text), "secret") || !strings.Contains(string(text), `"leaving"`) {
		t.Errorf("got %s, %v", text, err)
	}
	if order.Move.Key != "secret" {
		t.Error("the stored order has lost its key")
	}
}

package jsonlist_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"croft/internal/jsonlist"
)

func read(text string) (entries []int, rest map[string]json.RawMessage, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	rest, err = jsonlist.Read(d, "list", func() error {
		var n int
		err := d.Decode(&n)
		entries = append(entries, n)
		return err
	})
	return entries, rest, err
}

func TestAListIsReadEntryByEntry(t *testing.T) {
	entries, rest, err := read(`{"before": [1], "list": [7, 8], "after": {"list": [9]}}`)
	if err != nil || !slices.Equal(entries, []int{7, 8}) || len(rest) != 2 || string(rest["after"]) != `{"list": [9]}` {
		t.Errorf("got %v, %s, %v", entries, rest, err)
	}
	for _, none := range []string{`{}`, `{"list": null}`, `{"list": []}`} {
		if entries, _, err := read(none); err != nil || len(entries) > 0 {
			t.Errorf("%s has %v, %v", none, entries, err)
		}
	}
}

func TestAListThatIsCutOffIsAnError(t *testing.T) {
	whole := `{"before": 1, "list": [7, 8], "after": "text"}`
	for end := range whole {
		if _, _, err := read(whole[:end]); err == nil {
			t.Errorf("%s is no error", whole[:end])
		}
	}
	for _, bad := range []string{`[7]`, `{"list": {"7": 8}}`, `{"list": 7}`, `{"list": ["seven"]}`} {
		if _, _, err := read(bad); err == nil {
			t.Errorf("%s is no error", bad)
		}
	}
}

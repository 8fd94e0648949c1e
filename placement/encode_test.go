package placement

import (
	"encoding/json"
	"testing"

	"croft/placement/ledger"
)

func TestAnswersHaveASpaceBehindEachCommaAndColon(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer any
		want   string
	}{
		{"a list of numbers", []int{1, 2}, `[1, 2]`},
		{"an empty object", struct{}{}, `{}`},
		{"strings stay as they are", map[string]string{`a:"b",c`: `\,:`, "<": "&:"},
			`{"<": "&:", "a:\"b\",c": "\\,:"}`},
		{"empty strings", []nullable{"", "x"}, `[null, "x"]`},
		{"inventories in their order", inventoryList{
			{`B"`, inventoryOf(&ledger.Inventory{Total: 8, Reserved: 1, MinUnit: 2, MaxUnit: 4, StepSize: 3, Ratio: 16})},
			{"A", inventoryOf(&ledger.Inventory{Total: 1 << 31, Ratio: 1.5})}},
			`{"B\"": {"total": 8, "reserved": 1, "min_unit": 2, "max_unit": 4, "step_size": 3, "allocation_ratio": 16.0}, ` +
				`"A": {"total": 2147483648, "reserved": 0, "min_unit": 0, "max_unit": 0, "step_size": 0, "allocation_ratio": 1.5}}`},
	} {
		if got := string(encode(c.answer)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// A list writes its inventories without encoding/json; a single inventory is encoded by its tags.
func TestAnInventoryIsTheSameInAListAndAlone(t *testing.T) {
	one := inventoryOf(&ledger.Inventory{Total: 8, Reserved: 1, MinUnit: 2, MaxUnit: 4, StepSize: 3, Ratio: 1e30})
	listed := map[string]json.RawMessage{}
	if err := json.Unmarshal(encode(inventoryList{{"VCPU", one}}), &listed); err != nil {
		t.Fatal(err)
	}
	if got, want := string(listed["VCPU"]), string(encode(one)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

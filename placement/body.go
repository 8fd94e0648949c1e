package placement

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 16 << 20

// read reads the body, validates it and decodes it into a value.
func (q *request) read(want *schema.Schema, into any) error {
	body, err := io.ReadAll(io.LimitReader(q.r.Body, maxBody+1))
	if err != nil {
		return badRequest("The body could not be read: %v", err)
	}
	if len(body) > maxBody {
		return &apiError{status: 413, detail: fmt.Sprintf("The body is longer than %d bytes.", maxBody)}
	}
	v, err := schema.Decode(body)
	if err != nil {
		return badRequest("Malformed JSON: %v", err)
	}
	if err := want.Validate(v); err != nil {
		return badRequest("JSON does not validate: %v", err)
	}
	if err := json.Unmarshal(body, into); err != nil { // of what the schema leaves open
		return badRequest("JSON does not validate: %v", err)
	}
	return nil
}

// encode writes an answer as JSON.
func encode(answer any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer); err != nil {
		panic(fmt.Sprintf("placement: encode %T: %v", answer, err)) // our own plain structs always encode
	}
	return spaced(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// spaced puts a space behind each comma and colon of a compact JSON text, as the original does: clients that look for
// a text in an answer find it in both.
func spaced(text []byte) []byte {
	out := make([]byte, 0, len(text)+len(text)/8)
	quoted, escaped := false, false
	for _, c := range text {
		out = append(out, c)
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ':'):
			out = append(out, ' ')
		}
	}
	return out
}

// nullable is a string that is null where it is empty.
type nullable string

// MarshalJSON implements json.Marshaler.
func (n nullable) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(n))
}

// optional is a string, or null, and whether it was given at all.
type optional struct {
	given bool
	value string
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *optional) UnmarshalJSON(text []byte) error {
	o.given = true
	return json.Unmarshal(text, &o.value)
}

// inventoryRequest is an inventory in a request. Fields that are not given have their defaults.
type inventoryRequest struct {
	Generation schema.Integer `json:"resource_provider_generation"`
	Class      string         `json:"resource_class"`
	Total      schema.Integer `json:"total"`
	Reserved   schema.Integer `json:"reserved"`
	MinUnit    schema.Integer `json:"min_unit"`
	MaxUnit    schema.Integer `json:"max_unit"`
	StepSize   schema.Integer `json:"step_size"`
	Ratio      float64        `json:"allocation_ratio"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *inventoryRequest) UnmarshalJSON(text []byte) error {
	type plain inventoryRequest
	*i = inventoryRequest{MinUnit: 1, MaxUnit: math.MaxInt32, StepSize: 1, Ratio: 1}
	return json.Unmarshal(text, (*plain)(i))
}

// spec returns the inventory for a class.
func (i *inventoryRequest) spec(class string) ledger.InventorySpec {
	return ledger.InventorySpec{Name: class, Inventory: ledger.Inventory{Total: int64(i.Total),
		Reserved: int64(i.Reserved),
		MinUnit:  int64(i.MinUnit), MaxUnit: int64(i.MaxUnit), StepSize: int64(i.StepSize), Ratio: i.Ratio}}
}

// inventoryRequests are inventories by class.
type inventoryRequests schema.Members[inventoryRequest]

// UnmarshalJSON implements json.Unmarshaler.
func (i *inventoryRequests) UnmarshalJSON(text []byte) error {
	return (*schema.Members[inventoryRequest])(i).UnmarshalJSON(text)
}

func (i inventoryRequests) specs() []ledger.InventorySpec {
	var list []ledger.InventorySpec
	for _, m := range i {
		list = append(list, m.Value.spec(m.Name))
	}
	return list
}

// inventoriesRequest is all inventories of a provider in a request.
type inventoriesRequest struct {
	Generation  schema.Integer    `json:"resource_provider_generation"`
	Inventories inventoryRequests `json:"inventories"`
}

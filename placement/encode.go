package placement

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// encode writes an answer as JSON with a space after each comma and colon, as OpenStack's server does, so that clients
// that search an answer for a text find it in both.
func encode(answer any) []byte {
	var w spacer
	e := json.NewEncoder(&w)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer); err != nil {
		panic(fmt.Sprintf("placement: encode %T: %v", answer, err)) // our own plain structs always encode
	}
	return bytes.TrimSuffix(w.text, []byte("\n"))
}

// spacer is a writer that adds the spaces to compact JSON. The encoder must write the text in one piece.
type spacer struct{ text []byte }

// Write implements io.Writer.
func (w *spacer) Write(text []byte) (int, error) {
	w.text = slices.Grow(w.text, len(text)+len(text)/8)
	written := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case ',', ':':
			w.text = append(append(w.text, text[written:i+1]...), ' ')
			written = i + 1
		}
	}
	w.text = append(w.text, text[written:]...)
	return len(text), nil
}

// nullable is a string that is encoded as null if empty.
type nullable string

// MarshalJSON implements json.Marshaler.
func (n nullable) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(n))
}

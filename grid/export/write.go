package export

import (
	"fmt"
	"io"

	"gopkg.in/yaml.v3"
)

// Write writes objects as YAML documents.
func Write(w io.Writer, objects ...Object) error {
	for _, o := range objects {
		text, err := yaml.Marshal(map[string]any(o))
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

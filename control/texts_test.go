package control

import (
	"encoding/json"
	"testing"

	"croft/control/api"
)

// Other users see these texts, on terminals and pages.
func TestTextsForPeopleAreOneLineWithoutInvisibleCharacters(t *testing.T) {
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					MaxLength int    `json:"maxLength"` // of inputs alone
					Pattern   string `json:"pattern"`
				} `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(api.Document(), &document); err != nil {
		t.Fatal(err)
	}
	found := 0
	for name, schema := range document.Components.Schemas {
		for _, text := range []string{"note", "description", "user"} {
			p, has := schema.Properties[text]
			if !has || p.MaxLength == 0 {
				continue
			}
			found++
			if p.Pattern == "" {
				t.Errorf("%s.%s has no pattern", name, text)
			}
		}
	}
	if found < 10 {
		t.Errorf("the document has only %d such texts", found)
	}
}

package args

import (
	"testing"

	"croft"
)

func TestASimilarNameIsSuggestedUnlessTheNameIsRight(t *testing.T) {
	missing := croft.Errorf(croft.NotFound, "there is none")
	for word, want := range map[string]string{
		"wbe": `there is none; did you mean "web"?`,
		"web": "there is none",
		"zzz": "there is none",
	} {
		if got := suggest(word, []string{"web", "webs"}, missing); got.Error() != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}

package cli

import (
	"strings"
	"testing"

	"croft"
)

func TestANotFoundErrorSaysWhatListsTheExistingOnes(t *testing.T) {
	for noun, list := range listings {
		want := "; `" + list + "` shows all"
		for _, sentence := range []string{
			"there is no " + noun + " nope", `there is no ` + noun + ` "no pe"`, `show nope: there is no ` + noun + ` "nope"`,
			`project lab has no ` + noun + ` "nope"`, `there is no ` + noun + ` "nope", or it is not yours`,
			"there is no such " + noun, "there is no " + noun + " 99, or it ended long ago",
		} {
			if got := (Program{}).listing(croft.Errorf(croft.NotFound, "%s", sentence)); got != want {
				t.Errorf("%s: got %q, want %q", sentence, got, want)
			}
			for _, remedy := range []string{`; did you mean "hope"?`, "; `croft x list` shows all", ": create it first"} {
				if got := (Program{}).listing(croft.Errorf(croft.NotFound, "%s%s", sentence, remedy)); got != "" {
					t.Errorf("%s%s: got %q", sentence, remedy, got)
				}
			}
			if got := (Program{}).listing(croft.Errorf(croft.Conflict, "%s", sentence)); got != "" {
				t.Errorf("a Conflict, %s: got %q", sentence, got)
			}
		}
	}
	for _, sentence := range []string{`"eva" is no member of project lab`, "remove image a: it has no image of that name",
		`there is no aggregate "a", and no host is in a location of that name`, `there is no credential with ID "x"`} {
		if (Program{}).listing(croft.Errorf(croft.NotFound, "%s", sentence)) == "" {
			t.Errorf("%s: no remedy", sentence)
		}
	}
	if got := (Program{}).listing(croft.Errorf(croft.NotFound, "instance web has no address: it is stopped")); got !=
		"" {
		t.Errorf("got %q", got)
	}
}

func TestTheCommandsThatListExist(t *testing.T) {
	for noun, list := range listings {
		list, _, _ = strings.Cut(list, " --") // flags
		words := strings.Fields(list)
		if words[0] == "croft" {
			words = words[1:]
		}
		found, rest, err := Program{}.Root("croft").Find(words)
		if err != nil || found.Runnable() && len(rest) > 0 && strings.ToUpper(rest[0]) != rest[0] {
			t.Errorf("%s: %q is no command: %v", noun, list, err)
		}
	}
}

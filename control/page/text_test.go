package page

import (
	"strings"
	"testing"
)

func TestTextsHideNothing(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"markup", "<b>&\"'", "<bdi>&lt;b&gt;&amp;&#34;&#39;</bdi>"},
		{"letters of all scripts", "žlutý 日本", "<bdi>žlutý 日本</bdi>"},
		{"a change of the direction", "a\u202eb\u2066",
			`<bdi>a<span class="code">U+202E</span>b<span class="code">U+2066</span></bdi>`},
		{"an escape of a terminal", "\x1b[31mred", `<bdi><span class="code">U+001B</span>[31mred</bdi>`},
		{"a space without width", "a\u200bb", `<bdi>a<span class="code">U+200B</span>b</bdi>`},
		{"many of them", "a" + strings.Repeat("\x01\x02", 500) + "b", `<bdi>a<span class="code">U+0001</span>` +
			`<span class="code">U+0002</span><span class="code">U+0001</span><span class="code">U+0002</span>` +
			`<span class="code">996 more</span>b</bdi>`},
		{"bytes that are no text", "a\xffb", `<bdi>a<span class="code">U+FFFD</span>b</bdi>`},
	} {
		if got := string(text(c.text)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAddressesToReturnToAreOfThePage(t *testing.T) {
	for address, want := range map[string]string{
		"/ui/instances?name=a": "/ui/instances?name=a", "": Root, "/v1": Root, "//evil.example/ui": Root,
		"https://evil.example/ui": Root, "/uix": Root, "/ui\\evil": Root, "/ui/logout": Root,
		"javascript:alert(1)": Root,
	} {
		if got := local(address); got != want {
			t.Errorf("%s leads to %s, want %s", address, got, want)
		}
	}
}

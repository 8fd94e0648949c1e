package redact_test

import (
	"testing"

	"croft/internal/redact"
)

func TestAnImageIsShownWithoutItsSecrets(t *testing.T) {
	for _, c := range []struct{ name, image, want string }{
		{"no image", "", ""},
		{"a path", "/images/a?b@c.qcow2#sha256=ab", "/images/a?b@c.qcow2#sha256=ab"},
		{"a file", "file:///images/x.qcow2", "file:///images/x.qcow2"},
		{"user and password", "http://alice:s3cret@images.example/x.qcow2", "http://images.example/x.qcow2"},
		{"a token as the user", "https://s3cret@images.example", "https://images.example"},
		{"a signed query", "https://images.example/x.qcow2?sig=s3cret", "https://images.example/x.qcow2"},
		{"its checksum stays", "https://images.example/x?sig=s3cret#sha256=ab", "https://images.example/x#sha256=ab"},
		{"a list beside the image", "https://images.example/x#sums=SHA256SUMS&signed-by=/etc/keys",
			"https://images.example/x#sums=SHA256SUMS&signed-by=/etc/keys"},
		{"secrets of list and signature",
			"https://h/x#sums=https%3A%2F%2Fu%3As3cret%40h%2Fsums%3Fsig%3Ds3cret&signature=S%3Fs3cret",
			"https://h/x#sums=https%3A%2F%2Fh%2Fsums&signature=S"},
		{"no address", "https://u:s3cret@h:port/%zz?s3cret", "h:port/%zz"},
	} {
		if got := redact.Image(c.image); got != c.want {
			t.Errorf("%s: %q is shown as %q, want %q", c.name, c.image, got, c.want)
		}
	}
}

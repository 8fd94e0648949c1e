package format

import "testing"

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 1023: "1023 bytes", 1 << 10: "1 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB",
		1 << 30: "1 GiB", 2500 << 20: "2.4 GiB", 64 << 40: "64 TiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("format.Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

package out

import (
	"fmt"

	"github.com/vbauerster/mpb/v8/decor"
)

func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Bytes formats a size for people.
func Bytes(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("% .1f", decor.SizeB1024(n))
}

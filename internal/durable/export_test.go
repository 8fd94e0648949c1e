package durable

import (
	"os"
	"testing"
)

// WatchFlush calls do for each file or directory instead of flushing it, until the test ends.
func WatchFlush(t *testing.T, do func(*os.File) error) {
	before := flush
	flush = do
	t.Cleanup(func() { flush = before })
}

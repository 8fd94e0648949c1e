package durable

import (
	"os"
	"testing"
)

// WatchFlush has do called for each file or directory in place of flushing it, until the test ends.
func WatchFlush(t *testing.T, do func(*os.File) error) {
	before := flush
	flush = do
	t.Cleanup(func() { flush = before })
}

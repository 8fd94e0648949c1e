package etcdstore_test

import (
	"errors"
	"testing"

	"croft"
	"croft/etcdstore"
)

func TestADirectoryIsOfOneProcess(t *testing.T) {
	c := etcdstore.EmbeddedConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0", Unsynced: true}
	first, err := etcdstore.StartEmbedded(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcdstore.StartEmbedded(t.Context(), c); !errors.Is(err, croft.Conflict) {
		t.Errorf("the second: got %v, want a conflict", err)
	}
	first.Close()
	again, err := etcdstore.StartEmbedded(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

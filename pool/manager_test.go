package pool_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"croft/hook"
	"croft/pool"
	"croft/pool/pooltest"
)

// start runs a manager with real hooks on a store in memory.
func start(t *testing.T, pools string) (*pool.Manager, string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "pools.yaml")
	if err := os.WriteFile(file, []byte(pools), 0o600); err != nil {
		t.Fatal(err)
	}
	hooks, err := hook.New(hook.Config{Dir: dir, Mark: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	m, err := pool.New(pool.Config{Partition: "test", Store: pooltest.NewMemory(), Hooks: hooks, File: file, Me: pool.Server{Name: "one", Machine: "m"}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(5 * time.Second); ; {
		if _, here := m.Leader(); here {
			return m, dir
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody leads")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestATicketGetsWhatTheCommandPrinted(t *testing.T) {
	m, dir := start(t, "p:\n  cmd_new: echo \"hello $RESALLOC_NAME\"\n  cmd_delete: touch "+filepath.Join(t.TempDir(), "gone")+"\n  tags: [a]\n")
	st, err := m.Open(t.Context(), pool.Opening{Tags: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	if st, err = m.Wait(t.Context(), st.ID); err != nil {
		t.Fatal(err)
	}
	if want := "hello p_00000001_"; st.ID != 1 || st.Has == nil || string(st.Has.Data[:len(want)]) != want {
		t.Errorf("got ticket %d with %+v", st.ID, st.Has)
	}
	if err := m.Close(t.Context(), st.ID); err != nil {
		t.Fatal(err)
	}
	t.Log(dir)
}

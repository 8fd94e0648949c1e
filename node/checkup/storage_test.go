package checkup

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"croft/compute/storage"
	"croft/internal/checks"
)

func TestTheDoctorSaysWhatASharedStorageLacks(t *testing.T) {
	t.Parallel()
	const identity = `{"id":"50000000-0000-4000-8000-000000000000","name":"nfs1","partition":"p"}`
	for _, c := range []struct {
		name  string
		make  func(t *testing.T, file string)
		level checks.Level
		found string
	}{
		{"it responds", write(identity), checks.OK, "50000000-0000-4000-8000-000000000000 at "},
		{"nothing is mounted", func(*testing.T, string) {}, checks.Fail, "nothing is mounted at "},
		{"another storage is mounted", write(strings.Replace(identity, "nfs1", "nfs2", 1)), checks.Fail,
			`is the storage "nfs2"`},
		{"its identity is damaged", write("{"), checks.Fail, "is damaged"},
		{"there is no directory", func(t *testing.T, file string) {
			if err := os.Remove(filepath.Dir(file)); err != nil {
				t.Fatal(err)
			}
		}, checks.Fail, "is no directory"},
		{"its server does not respond", hang, checks.Fail, "its server does not respond"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := t.TempDir()
			c.make(t, filepath.Join(path, "croft-storage.json"))
			dir := storage.New(storage.Config{Name: "nfs1", Path: path, Patience: 10 * time.Second})
			if c.name == "its server does not respond" {
				dir.Patience = 50 * time.Millisecond
			}
			got := lookStorage(dir)(t.Context())
			if got.Level != c.level || !strings.Contains(got.Found, c.found) || c.level != checks.OK && got.Do == "" {
				t.Errorf("got %+v, want %v with %q and a remedy", got, c.level, c.found)
			}
		})
	}
}

func write(text string) func(*testing.T, string) {
	return func(t *testing.T, file string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// hang makes a pipe that nobody writes to until the test ends: the open for reading waits as for a server.
func hang(t *testing.T, file string) {
	if err := syscall.Mkfifo(file, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		writer, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			t.Error(err)
			return
		}
		_ = writer.Close()
	})
}

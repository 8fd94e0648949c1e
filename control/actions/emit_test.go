package actions

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/tenant/access"
)

// away is a store that does not answer.
type away struct{}

func (away) Append(context.Context, Batch) error { return croft.Errorf(croft.Unavailable, "away") }
func (away) List(context.Context, access.Scope, Filter) (Page, error) {
	return Page{}, croft.Errorf(croft.Unavailable, "away")
}
func (away) Trim(context.Context, time.Time, ...croft.Project) error { return nil }

func TestEntriesAreInTheFileBeforeTheyAreStored(t *testing.T) {
	file := filepath.Join(t.TempDir(), "actions")
	s, err := NewSender(file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := NewRecorder(away{}, nil)
	r.Emit(s.Send)
	for n := range 3 {
		if n == 2 { // as logrotate does
			if err := os.Rename(file, file+".1"); err != nil {
				t.Fatal(err)
			}
		}
		r.Add(Entry{Operation: "createKey", User: "ann", Project: "lab", Result: "name_taken"})
	}
	for name, lines := range map[string]int{file: 1, file + ".1": 2} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Split(strings.TrimSpace(string(text)), "\n")
		var e Entry
		if err := json.Unmarshal([]byte(all[0]), &e); err != nil || len(all) != lines || e.User != "ann" {
			t.Errorf("%s has %q, %v; want %d lines", name, text, err, lines)
		}
	}
}

func TestTheJournalTakesEntries(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "journal")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := sendToJournal(socket, []byte(`{"user":"a\nb"}`)); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 1000)
	n, err := l.Read(text)
	if want := "MESSAGE={\"user\":\"a\\nb\"}\nPRIORITY=6\nSYSLOG_IDENTIFIER=croft\n"; err != nil || string(text[:n]) != want {
		t.Errorf("the journal got %q, %v", text[:n], err)
	}
}

func TestTargetsAreChecked(t *testing.T) {
	for target, ok := range map[string]bool{"": true, ToSyslog: true, ToJournal: true, "/var/log/croft": true,
		"log": false, "udp://log": false} {
		if err := CheckTarget(target); (err == nil) != ok || err != nil && croft.KindOf(err) != croft.Invalid {
			t.Errorf("%q: %v", target, err)
		}
	}
}

func TestRefusedRequestsMakeRoomForWhatWasDone(t *testing.T) {
	r := NewRecorder(away{}, nil)
	for range mostOfProject {
		r.Add(Entry{Project: "lab", Result: "forbidden_verb"})
	}
	r.Add(Entry{Project: "lab", Operation: "destroyInstance", Result: Done})
	found := false
	for {
		b, some := r.take()
		if !some {
			break
		}
		for _, e := range b.Entries {
			found = found || e.Operation == "destroyInstance"
		}
	}
	if !found {
		t.Error("refused requests pushed out what was done")
	}
}

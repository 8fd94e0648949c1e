package federation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/internal/redact"
)

const partition = "7d5e2e4e-68ae-4b5c-8f9e-000000000001"

// file writes an export with some rows.
func file(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	w := newWriter(&out)
	check(t, w.line(Header{Format: Format, Partition: partition, Name: "east", Revision: 7,
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}))
	for _, r := range rows() {
		check(t, w.row(r))
	}
	check(t, w.end())
	return out.Bytes()
}

func rows() []Row {
	const id = `"7d5e2e4e-68ae-4b5c-8f9e-00000000000`
	return []Row{
		{KindHost, json.RawMessage(`{"id":` + id + `2","name":"host1"}`)},
		{KindProvider, json.RawMessage(`{"id":` + id + `2","name":"host1","inventories":{"VCPU":{"total":4,"reserved":0,` +
			`"min_unit":1,"max_unit":4,"step_size":1,"allocation_ratio":1}}}`)},
		{KindAggregate, json.RawMessage(`{"name":"fast","public":true,"hosts":[` + id + `2"],"generation":3}`)},
		{KindDistance, json.RawMessage(`{"type":"network","a":"fast","b":"slow","distance":3}`)},
		{KindQuota, json.RawMessage(`{"limits":{"VCPU":3},"generation":4}`)},
		{KindProject, json.RawMessage(`{"id":` + id + `5","name":"lab","created":"2026-01-02T03:04:05Z","generation":5}`)},
		{KindDefinition, json.RawMessage(`{"level":"global","kind":"instance","unknown":"allow","generation":6}`)},
		{KindObject, json.RawMessage(`{"kind":"host","id":` + id + `2","properties":{},"tags":["fast"],"generation":6}`)},
		{KindInstance, json.RawMessage(`{"id":` + id + `3","project":"lab","name":"web","state":"scheduled",` +
			`"generation":1,"created":"2026-01-02T03:04:05Z"}`)},
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// parse reads an export and returns its rows.
func parse(text []byte) (h Header, all []Row, err error) {
	err = read(bytes.NewReader(text), func(got Header) error { h = got; return nil }, func(r Row) error {
		all = append(all, r)
		return nil
	})
	return h, all, err
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	h, got, err := parse(file(t))
	check(t, err)
	if diff := cmp.Diff(rows(), got); diff != "" || h.Partition != partition || h.Revision != 7 || h.Name != "east" {
		t.Errorf("header %+v, rows (-want +got): %s", h, diff)
	}
}

func TestAFileThatWasCutOffIsRefused(t *testing.T) {
	whole := file(t)
	for n := range whole {
		if _, _, err := parse(whole[:n]); !errors.Is(err, croft.Invalid) {
			t.Fatalf("cut off after %d of %d bytes: %v", n, len(whole), err)
		}
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for i := range lines[:len(lines)-1] {
		short := bytes.Join(append(append([][]byte{}, lines[:i]...), lines[i+1:]...), nil)
		if _, _, err := parse(short); !errors.Is(err, croft.Invalid) {
			t.Errorf("without line %d: %v", i+1, err)
		}
		twice := bytes.Join(append(append([][]byte{}, lines[:i+1]...), lines[i:]...), nil)
		if _, _, err := parse(twice); !errors.Is(err, croft.Invalid) {
			t.Errorf("with line %d twice: %v", i+1, err)
		}
	}
}

func TestAFileThatWasAlteredIsRefused(t *testing.T) {
	whole := file(t)
	// the last byte is left out: a blank in place of the final newline would be a truncation
	for i, c := range whole[:len(whole)-1] {
		altered := bytes.Clone(whole)
		altered[i] = c ^ 1
		if _, _, err := parse(altered); err == nil {
			t.Errorf("byte %d is %q instead of %q, and nobody notices: %s", i, altered[i], c, altered)
		}
	}
}

func TestAFileOfTheVersionBeforeIsRead(t *testing.T) {
	var out bytes.Buffer
	w := newWriter(&out)
	check(t, w.line(Header{Format: 1, Partition: partition, Revision: 7, Time: time.Unix(0, 0).UTC()}))
	check(t, w.row(rows()[0]))
	check(t, w.end())
	if h, all, err := parse(out.Bytes()); err != nil || h.Format != 1 || len(all) != 1 {
		t.Errorf("got %+v, %d rows, %v", h, len(all), err)
	}
}

func TestFilesThatAreNone(t *testing.T) {
	whole := string(file(t))
	header, rest, _ := strings.Cut(whole, "\n")
	with := func(line string) string { return header + "\n" + line + "\n" + rest }
	for name, c := range map[string]struct{ text, says string }{
		"nothing":              {"", "line 1 of the export: the file was cut off"},
		"something else":       {"hello\n", "no export of a partition"},
		"another JSON":         {`{"kind":"header"}` + "\n", "no export of a partition"},
		"a newer format":       {strings.Replace(whole, `"export":3`, `"export":4,"new":true`, 1), "upgrade"},
		"format 0":             {strings.Replace(whole, `"export":3`, `"export":0`, 1), "this croft knows formats 1 to 3"},
		"no partition":         {strings.Replace(whole, partition, "../home", 1), "not a UUID"},
		"no revision":          {strings.Replace(whole, `"revision":7`, `"revision":0`, 1), "lacks a revision"},
		"a name that is none":  {strings.Replace(whole, `"east"`, `"a/b"`, 1), "not an alias"},
		"the name home":        {strings.Replace(whole, `"east"`, `"home"`, 1), "own partition"},
		"a field nobody knows": {strings.Replace(whole, `"revision"`, `"x":1,"revision"`, 1), `unknown field "x"`},
		"an unknown kind":      {with(`{"kind":"hosts","row":{}}`), `no kind "hosts"; did you mean "host"?`},
		"a row without a row":  {with(`{"kind":"host"}`), "line 2 of the export: host: the row is missing"},
		"a field in a row":     {with(`{"kind":"host","row":{"token":"x"}}`), `unknown field "token"`},
		"an ID with slashes":   {with(`{"kind":"host","row":{"id":"../../home"}}`), "not a UUID"},
		"a project's name":     {with(`{"kind":"project","row":{"name":"a/b"}}`), "not a project name"},
		"a project of an instance": {with(`{"kind":"instance","row":{"id":"` + partition + `","project":"/"}}`),
			"not a project name"},
		"a definition's place": {with(`{"kind":"definition","row":{"level":"x"}}`), "not a level"},
		"an aggregate's name":  {with(`{"kind":"aggregate","row":{"name":"A"}}`), "not the name of an aggregate"},
		"a distance to itself": {with(`{"kind":"distance","row":{"type":"network","a":"x","b":"x"}}`), "two places"},
		"an object's kind":     {with(`{"kind":"object","row":{"kind":"x"}}`), "kind"},
		"a limit":              {with(`{"kind":"quota","row":{"limits":{"VCPU":-2}}}`), "limit"},
		"deeply nested":        {with(`{"kind":"host","row":` + strings.Repeat("[", 20_000) + `}`), "line 2"},
		"a long line":          {with(strings.Repeat("x", maxLine)), "longer than"},
		"two values in a line": {with(`{"kind":"host","row":{}} {}`), "more than one value"},
		"something after it":   {whole + "\n", "follows the last line"},
	} {
		_, _, err := parse([]byte(c.text))
		if !errors.Is(err, croft.Invalid) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: got %.300v, want %q", name, err, c.says)
		}
		if len(fmt.Sprint(err)) > 600 {
			t.Errorf("%s: a message of %d bytes", name, len(fmt.Sprint(err)))
		}
	}
}

func FuzzRead(f *testing.F) {
	whole := file(f)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte(`{"export":1}` + "\n"))
	f.Add([]byte(`{"export":3}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, got, err := parse(text)
		if err != nil {
			if !errors.Is(err, croft.Invalid) {
				t.Errorf("%v is not Invalid", err)
			}
			return
		}
		var again bytes.Buffer
		w := newWriter(&again)
		check(t, w.line(h))
		for _, r := range got {
			check(t, w.row(r))
		}
		check(t, w.end())
		if _, rows, err := parse(again.Bytes()); err != nil || len(rows) != len(got) {
			t.Errorf("what was read cannot be written and read again: %v", err)
		}
	})
}

func TestNoSecretOfAnInstanceIsExported(t *testing.T) {
	inst := croft.Instance{ID: partition, Project: "lab", Name: "web", Session: "secret-session", Spec: croft.Spec{
		Image: "https://user:secret-password@images.example/x.qcow2?sig=secret-query#sha256=ab",
		GuestSettings: croft.GuestSettings{UserData: []byte("secret-user-data"), Keys: []string{"secret-key"},
			Tags: map[string]string{"a": "secret-tag"}}, HostKey: "secret-host-key", Query: "secret-query"}}
	text, err := json.Marshal(InstanceOf(inst))
	check(t, err)
	if strings.Contains(string(text), "secret") || !strings.Contains(string(text),
		`"https://images.example/x.qcow2#sha256=ab"`) {
		t.Errorf("exported: %s", text)
	}
	for image, want := range map[string]string{"": "", "/var/lib/x.img": "/var/lib/x.img", "file:///x": "file:///x",
		"https://token@host": "https://host", "ubuntu?x=y#sums=https://h/s": "ubuntu#sums=https://h/s"} {
		if got := redact.Image(image); got != want {
			t.Errorf("%q is exported as %q, want %q", image, got, want)
		}
	}
	host, err := json.Marshal(HostOf(croft.Host{ID: partition, Name: "host1", Token: "secret", API: "https://secret"}))
	check(t, err)
	if strings.Contains(string(host), "secret") {
		t.Errorf("exported: %s", host)
	}
}

func TestWhichImportIsShown(t *testing.T) {
	h := Header{Partition: partition, Name: "east", Revision: 7}
	shown := func(revision int64) *Partition {
		return &Partition{Alias: "old", Imported: &Imported{Revision: revision}}
	}
	others := []Partition{{ID: "b", Alias: "east"}, {ID: "c", Alias: "east-2"}}
	for name, c := range map[string]struct {
		alias    string
		proposed string
		current  *Partition
		want     string // alias
		kind     croft.Kind
	}{
		"the proposed name is taken twice":  {proposed: "east", want: "east-3"},
		"a name that is free":               {proposed: "west", want: "west"},
		"no name":                           {want: "7d5e2e4e"},
		"an alias that is given":            {alias: "mine", proposed: "east", want: "mine"},
		"an alias that is taken":            {alias: "east", kind: croft.Conflict},
		"it keeps its alias":                {proposed: "west", current: &Partition{Alias: "old"}, want: "old"},
		"it gets another":                   {alias: "new", current: &Partition{Alias: "old"}, want: "new"},
		"something newer is shown":          {current: shown(8), kind: croft.Conflict},
		"something older is shown":          {current: shown(6), want: "old"},
		"the alias of home is never chosen": {proposed: "home", want: "home-2"},
	} {
		h.Name = c.proposed
		p, err := settle(h, nil, c.alias, others, c.current)
		if croft.KindOf(err) != c.kind || err == nil && (p.Alias != c.want || p.Imported.Revision != 7) {
			t.Errorf("%s: alias %q, %v", name, p.Alias, err)
		}
	}
}

func TestAliases(t *testing.T) {
	for alias, ok := range map[string]bool{"east": true, "site1.east-2": true, "a": true, "": false, "home": false,
		"East": false, "a b": false, "a/b": false, "-a": false, "a.": false, strings.Repeat("a", 63): true,
		strings.Repeat("a", 64): false, partition: false} {
		if err := CheckAlias(alias); (err == nil) != ok || err != nil && !errors.Is(err, croft.Invalid) {
			t.Errorf("%q: %v", alias, err)
		}
	}
}

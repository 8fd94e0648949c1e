package transfer_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/placement/transfer"
)

const (
	site  = croft.HostID("11111111-1111-4111-8111-111111111111")
	host  = croft.HostID("22222222-2222-4222-8222-222222222222")
	guest = croft.InstanceID("33333333-3333-4333-8333-333333333333")
	group = "44444444-4444-4444-8444-444444444444"
)

func offer(total int64) croft.Inventory {
	return croft.Inventory{Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1.5}
}

// sample is a state that uses every field.
func sample() *transfer.State {
	return &transfer.State{
		Revision: 7,
		Classes:  []croft.ResourceClass{"CUSTOM_FPGA"},
		Traits:   []croft.Trait{"CUSTOM_GOLD"},
		Providers: []transfer.Provider{
			{ID: site, Name: "a <site> & more", Generation: 1},
			{ID: host, Name: "host", Parent: site, Generation: 12,
				Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: offer(8), "CUSTOM_FPGA": offer(2)},
				Traits:      []croft.Trait{"CUSTOM_GOLD", "HW_CPU_X86_AVX2"}, Aggregates: []string{group}},
		},
		Consumers: []transfer.Consumer{{ID: guest, Generation: 3, Project: "p", User: "u", Type: "INSTANCE",
			Allocations: map[croft.HostID]croft.Resources{host: {croft.VCPU: 2, "CUSTOM_FPGA": 1}}}},
	}
}

func encode(t *testing.T, s *transfer.State) string {
	t.Helper()
	var b bytes.Buffer
	if err := transfer.Encode(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const wantFile = `{"kind":"placement","version":1,"revision":7}
{"kind":"class","name":"CUSTOM_FPGA"}
{"kind":"trait","name":"CUSTOM_GOLD"}
{"kind":"provider","uuid":"11111111-1111-4111-8111-111111111111","name":"a <site> & more","generation":1}
{"kind":"provider","uuid":"22222222-2222-4222-8222-222222222222","name":"host","parent":"11111111-1111-4111-8111-111111111111","generation":12,"inventories":{"CUSTOM_FPGA":{"total":2,"reserved":0,"min_unit":1,"max_unit":2,"step_size":1,"allocation_ratio":1.5},"VCPU":{"total":8,"reserved":0,"min_unit":1,"max_unit":8,"step_size":1,"allocation_ratio":1.5}},"traits":["CUSTOM_GOLD","HW_CPU_X86_AVX2"],"aggregates":["44444444-4444-4444-8444-444444444444"]}
{"kind":"consumer","uuid":"33333333-3333-4333-8333-333333333333","generation":3,"project":"p","user":"u","type":"INSTANCE","allocations":{"22222222-2222-4222-8222-222222222222":{"CUSTOM_FPGA":1,"VCPU":2}}}
{"kind":"end"}
`

// TestTheDocumentedFileIsOne reads the example in the user documentation.
func TestTheDocumentedFileIsOne(t *testing.T) {
	page, err := os.ReadFile("../../docs/users/placement.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```json\n")
	example, _, found := strings.Cut(example, "```")
	if !found {
		t.Fatal("docs/users/placement.md has no example")
	}
	state, err := transfer.Decode(strings.NewReader(example))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(example, encode(t, state)); diff != "" {
		t.Error("written again (-documented +written):", diff)
	}
}

func TestFileHasALineForEverything(t *testing.T) {
	if diff := cmp.Diff(wantFile, encode(t, sample())); diff != "" {
		t.Error("file (-want +got):", diff)
	}
	got, err := transfer.Decode(strings.NewReader(wantFile))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), got); diff != "" {
		t.Error("read again (-want +got):", diff)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestEncodeTellsWhatTheWriterTells(t *testing.T) {
	big := sample()
	for range 1000 { // more than a buffer holds
		big.Classes = append(big.Classes, "CUSTOM_SOMETHING")
	}
	if err := transfer.Encode(broken{}, big); err == nil || err.Error() != "the disk is full" {
		t.Errorf("got %v", err)
	}
}

// change returns the sample file with from replaced by to in one line.
func change(from, to string) string {
	if strings.Count(wantFile, from) == 0 {
		panic("no " + from)
	}
	return strings.Replace(wantFile, from, to, 1)
}

func TestBadFilesAreRefusedByLine(t *testing.T) {
	lines := strings.SplitAfter(wantFile, "\n")
	for _, c := range []struct{ name, file, want string }{
		{"nothing at all", "",
			`line 1: it is empty, want {"kind":"placement","version":1}; is this what croft serve placement export wrote?`},
		{"something else", "hello\n",
			"line 1: it is not a JSON object: invalid character 'h' looking for beginning of " +
				"value"},
		{"no header", strings.Join(lines[1:], ""),
			`line 1: the first line, and no other, is {"kind":"placement","version":1}`},
		{"two headers", lines[0] + wantFile,
			`line 2: the first line, and no other, is {"kind":"placement","version":1}`},
		{"a newer format", change(`"version":1`, `"version":2`),
			"line 1: the format has version 2 and this croft knows " +
				"1; use the croft that wrote it"},
		{"a file that was cut off", strings.Join(lines[:6], ""),
			`line 7: it ends without {"kind":"end"}, so something is missing; export it again`},
		{"a line that was cut off", wantFile[:200], "line 4: it is not a JSON object: unexpected end of JSON input"},
		{"something after the end", wantFile + lines[1], "line 8: something follows the end"},
		{"no kind", change(`"kind":"trait",`, ``), "line 3: it has no kind"},
		{"an unknown kind", change(`"kind":"trait"`, `"kind":"treat"`),
			`line 3: the kind "treat" is unknown, want class, trait, provider, consumer or end`},
		{"an unknown field", change(`"parent"`, `"perent"`), `line 5: json: unknown field "perent"`},
		{"a number that is text", change(`"VCPU":2`, `"VCPU":"2"`), "line 6: json: cannot unmarshal string into Go " +
			"struct field consumerLine.Consumer.allocations of type int64"},
		{"a class that is not custom", change(`"CUSTOM_FPGA"}`, `"FPGA"}`),
			`line 2: resource class "FPGA" is not CUSTOM_ and then A to Z, 0 to 9 and _, 255 at most`},
		{"a trait twice", change(lines[2], lines[2]+lines[2]), "line 4: trait CUSTOM_GOLD is there twice"},
		{"a provider twice", change(lines[4], lines[4]+lines[4]),
			"line 6: provider 22222222-2222-4222-8222-222222222222: it is there twice"},
		{"a name twice", change(`"name":"host"`, `"name":"a <site> & more"`),
			`line 5: provider 22222222-2222-4222-8222-222222222222: its name "a <site> & more" is that of provider 11111111-1111-4111-8111-111111111111 too`},
		{"no name", change(`"name":"host",`, ``),
			"line 5: provider 22222222-2222-4222-8222-222222222222: its name has " +
				"0 characters, want 1 to 200"},
		{"no UUID", change(`"uuid":"2222`, `"uuid":"x222`),
			"line 5: provider x2222222-2222-4222-8222-222222222222: its " +
				"uuid is not a UUID"},
		{"an unknown parent", change(`"parent":"1`, `"parent":"5`),
			"line 5: provider 22222222-2222-4222-8222-222222222222: its parent 51111111-1111-4111-8111-111111111111 has no " +
				"line of its own"},
		{"an ancestor of itself", change(`more",`, `more","parent":"`+string(host)+`",`),
			"line 4: provider 11111111-1111-4111-8111-111111111111: it is its own ancestor"},
		{"an unknown class", change(lines[1], ""),
			"line 4: provider 22222222-2222-4222-8222-222222222222: its resource " +
				"class CUSTOM_FPGA has no line of its own"},
		{"an unknown trait", change(lines[2], ""), "line 4: provider 22222222-2222-4222-8222-222222222222: its trait " +
			"CUSTOM_GOLD has no line of its own"},
		{"a trait of a provider twice", change(`"HW_CPU_X86_AVX2"`, `"CUSTOM_GOLD"`),
			"line 5: provider 22222222-2222-4222-8222-222222222222: it has the trait CUSTOM_GOLD twice"},
		{"an aggregate that is no UUID", change(group, "rack7"),
			`line 5: provider 22222222-2222-4222-8222-222222222222: its aggregate "rack7" is not a UUID`},
		{"half an inventory", change(`"reserved":0,`, ``), "line 5: inventory of CUSTOM_FPGA: reserved is missing"},
		{"an inventory of nothing", change(`"total":8`, `"total":0`),
			"line 5: provider 22222222-2222-4222-8222-222222222222: inventory of VCPU: total is 0, want 1 to 2147483647"},
		{"more reserved than there is", change(`"reserved":0`, `"reserved":3`),
			"line 5: provider 22222222-2222-4222-8222-222222222222: inventory of CUSTOM_FPGA: reserved is 3, more than the " +
				"total of 2"},
		{"a ratio without bounds", change(`1.5`, `1e39`), "line 5: provider 22222222-2222-4222-8222-222222222222: " +
			"inventory of CUSTOM_FPGA: allocation_ratio is 1e+39, want 3.40282e+38 at most"},
		{"a consumer twice", change(lines[5], lines[5]+lines[5]),
			"line 7: consumer 33333333-3333-4333-8333-333333333333: it is there twice"},
		{"a consumer of nothing", change(`{"22222222-2222-4222-8222-222222222222":{"CUSTOM_FPGA":1,"VCPU":2}}`, `{}`),
			"line 6: consumer 33333333-3333-4333-8333-333333333333: it has no allocations, and there are no such consumers"},
		{"a claim of nothing", change(`"VCPU":2}`, `"VCPU":0}`),
			"line 6: consumer 33333333-3333-4333-8333-333333333333: it has 0 of VCPU, want 1 to 2147483647"},
		{"a claim on nobody", change(`{"22222222-`, `{"52222222-`),
			"line 6: consumer 33333333-3333-4333-8333-333333333333: its provider 52222222-2222-4222-8222-222222222222 has " +
				"no line of its own"},
		{"a claim of what is not offered", change(`"VCPU":2}`, `"DISK_GB":2}`),
			"line 6: consumer 33333333-3333-4333-8333-333333333333: it has DISK_GB of provider " +
				"22222222-2222-4222-8222-222222222222, which has no inventory of that"},
		{"no project", change(`"project":"p",`, ``), "line 6: consumer 33333333-3333-4333-8333-333333333333: its " +
			"project has 0 characters, want 1 to 255"},
		{"a type that cannot be", change(`"INSTANCE"`, `"unknown"`),
			`line 6: consumer 33333333-3333-4333-8333-333333333333: its type "unknown" is not A to Z, 0 to 9 and _, 255 at most; leave it out where it is unknown`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := transfer.Decode(strings.NewReader(c.file))
			if !errors.Is(err, croft.Invalid) || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestOrderAndFormsOfUUIDsAreFree(t *testing.T) {
	lines := strings.SplitAfter(wantFile, "\n")
	slices.Reverse(lines[1:6])
	text := strings.Join(lines, "")
	text = strings.ReplaceAll(text, string(host), "22222222222242228222222222222222")
	text = strings.ReplaceAll(text, group, strings.ToUpper(group))
	got, err := transfer.Decode(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(got.Providers)
	if diff := cmp.Diff(sample(), got); diff != "" {
		t.Error("-want +got:", diff)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(wantFile))
	f.Add([]byte(`{"kind":"placement","version":1}` + "\n" + `{"kind":"end"}`))
	f.Add([]byte(strings.ReplaceAll(wantFile, "2222-4222", "22224222")))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := transfer.Decode(bytes.NewReader(text))
		if err != nil {
			if !errors.Is(err, croft.Invalid) || !strings.HasPrefix(err.Error(), "line ") {
				t.Errorf("an error without a line: %v", err)
			}
			return
		}
		once := encode(t, s)
		again, err := transfer.Decode(strings.NewReader(once))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v\n%s", err, once)
		}
		if twice := encode(t, again); once != twice {
			t.Errorf("differs when read again:\n%s\n%s", once, twice)
		}
	})
}

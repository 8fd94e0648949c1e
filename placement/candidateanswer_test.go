package placement

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/placement/ledger"
)

func TestPrefersMinimal(t *testing.T) {
	for value, want := range map[string]bool{
		"return=minimal": true, "respond-async, Return=Minimal": true, "return=representation": false, "": false,
	} {
		if got := prefers(http.Header{"Prefer": {value}}, minimal); got != want {
			t.Errorf("Prefer: %s: got %v", value, got)
		}
	}
}

// loaded runs a server and creates providers with inventories of VCPU, MEMORY_MB and DISK_GB. If nested is set, the
// first one is the parent of the others.
func loaded(tb testing.TB, providers int, nested bool) *Server {
	tb.Helper()
	s, err := New(Config{Store: etcdtest.Embedded(tb).Placement(etcdserver.TxnOps)})
	if err != nil {
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(tb.Context()) }()
	tb.Cleanup(func() {
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	if err := s.WaitReady(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	for i := range providers {
		err := s.ledger.Change(tb.Context(), func(t *ledger.Tx) error {
			parent := ""
			if nested && i > 0 {
				parent = hostID(0)
			}
			if _, _, err := t.CreateProvider(hostID(i), fmt.Sprintf("host-%d", i), parent); err != nil {
				return err
			}
			inventory := ledger.Inventory{Total: 64, MinUnit: 1, MaxUnit: 64, StepSize: 1, Ratio: 1}
			_, err := t.SetInventories(hostID(i), 0, true, []ledger.InventorySpec{
				{Name: "VCPU", Inventory: inventory}, {Name: "MEMORY_MB", Inventory: inventory}, {Name: "DISK_GB",
					Inventory: inventory}})
			if err != nil {
				return err
			}
			_, err = t.SetTraits(hostID(i), 1, []string{"COMPUTE_NODE", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42",
				"HW_CPU_X86_VMX"})
			return err
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

func hostID(i int) string { return fmt.Sprintf("c0f7c0f7-0000-4000-8000-%012x", i) }

// A minimal answer lists the allocations, the capacity and usage of their providers, and the root of each tree.
func TestMinimalAnswer(t *testing.T) {
	s := loaded(t, 2, true)
	r := httptest.NewRequest("GET", "/allocation_candidates?resources=VCPU:4,DISK_GB:1&in_tree="+hostID(1)+"&limit=2",
		nil)
	r.Header = http.Header{"X-Auth-Token": {"admin"}, versionHeader: {"placement 1.39"}, "Prefer": {minimal}}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	const all = `{"VCPU": {"capacity": 64, "used": 0}, "MEMORY_MB": {"capacity": 64, "used": 0}, "DISK_GB": {"capacity": 64, "used": 0}}`
	want := `{"allocation_requests": [{"allocations": {"` + hostID(0) +
		`": {"resources": {"VCPU": 4, "DISK_GB": 1}}}}, ` +
		`{"allocations": {"` + hostID(0) + `": {"resources": {"VCPU": 4}}, "` + hostID(1) +
		`": {"resources": {"DISK_GB": 1}}}}], ` +
		`"provider_summaries": {"` + hostID(0) + `": {"resources": ` + all + `}, "` + hostID(1) + `": {"resources": ` +
		all +
		`, "root_provider_uuid": "` + hostID(0) + `"}}}`
	if got := w.Body.String(); got != want || w.Header().Get("Preference-Applied") != minimal {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// encodedAnswer encodes the answer of candidateAnswer through encoding/json.
func encodedAnswer(a *candidateAnswer, found []ledger.Candidate) []byte {
	type summary struct {
		Resources map[string]map[string]int64 `json:"resources"`
		Traits    []string                    `json:"traits"`
		treeAnswer
	}
	type request struct {
		Allocations map[string]map[string]map[string]int64 `json:"allocations"`
		Mappings    map[string][]string                    `json:"mappings"`
	}
	var answer struct {
		Requests  []request          `json:"allocation_requests"`
		Summaries map[string]summary `json:"provider_summaries"`
	}
	for _, c := range found {
		r := request{map[string]map[string]map[string]int64{}, map[string][]string{}}
		for _, x := range c.Portions {
			id := x.Provider.UUID
			if r.Allocations[id] == nil {
				r.Allocations[id] = map[string]map[string]int64{"resources": {}}
			}
			r.Allocations[id]["resources"][a.st.ClassName(x.Class)] = x.N
		}
		for i, o := range c.Options {
			for _, p := range o.Providers {
				suffix := a.req.Groups[i].Suffix
				r.Mappings[suffix] = append(r.Mappings[suffix], p.UUID)
			}
		}
		answer.Requests = append(answer.Requests, r)
	}
	answer.Summaries = map[string]summary{}
	for _, p := range a.summarized(found) {
		out := summary{map[string]map[string]int64{}, traitNames(&p.ProviderData, a.st),
			treeAnswer{nullable(p.Parent), p.Root().UUID}}
		for i := range p.Inventories {
			inv := &p.Inventories[i]
			out.Resources[a.st.ClassName(inv.Class)] = map[string]int64{"capacity": inv.Capacity(),
				"used": p.Used(inv.Class)}
		}
		answer.Summaries[p.UUID] = out
	}
	return encode(answer)
}

// withCandidates calls use with an answer and the candidates of a request for 1 VCPU, 1 MEMORY_MB and 1 DISK_GB.
func withCandidates(tb testing.TB, s *Server, limit int, use func(*candidateAnswer, []ledger.Candidate)) {
	resources := []ledger.NamedAmount{{Class: "VCPU", N: 1}, {Class: "MEMORY_MB", N: 1}, {Class: "DISK_GB", N: 1}}
	req := &ledger.CandidateRequest{Groups: []ledger.RequestGroup{{Resources: resources}}, Limit: limit, Nested: true}
	err := s.ledger.View(func(st *ledger.State) error {
		found, err := st.Candidates(tb.Context(), req)
		use(&candidateAnswer{st: st, req: req, version: maxVersion}, found)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// TestWrittenCandidatesAreEncodedOnes checks that the two writers of BenchmarkCandidateAnswer agree.
func TestWrittenCandidatesAreEncodedOnes(t *testing.T) {
	withCandidates(t, loaded(t, 3, true), 0, func(a *candidateAnswer, found []ledger.Candidate) {
		var written, encoded any
		if err := json.Unmarshal(a.append(nil, found), &written); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(encodedAnswer(a, found), &encoded); err != nil {
			t.Fatal(err)
		}
		if len(found) != 27 || !reflect.DeepEqual(written, encoded) {
			t.Errorf("%d candidates\nwritten %v\nencoded %v", len(found), written, encoded)
		}
	})
}

// BenchmarkCandidateAnswer compares writing the list of candidates with encoding it. It is the longest answer, and the
// one that schedulers request all the time.
func BenchmarkCandidateAnswer(b *testing.B) {
	s := loaded(b, 256, false)
	for _, limit := range []int{32, 256} {
		withCandidates(b, s, limit, func(a *candidateAnswer, found []ledger.Candidate) {
			b.Run(fmt.Sprintf("written/candidates=%d", limit), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.SetBytes(int64(len(a.append(make([]byte, 0, 512+640*len(found)), found))))
				}
			})
			b.Run(fmt.Sprintf("encoded/candidates=%d", limit), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.SetBytes(int64(len(encodedAnswer(a, found))))
				}
			})
		})
	}
}

func TestPlainStringsAreWrittenAsTheyAre(t *testing.T) {
	for _, s := range []string{"plain", "größe", "a\"b\\c\n\r\t\b\f", "\x00\x7f", "𝄞", "<&>", ""} {
		var back string
		if err := json.Unmarshal(appendString(nil, s), &back); err != nil || back != s {
			t.Errorf("%q reads back as %q, %v", s, back, err)
		}
	}
	if got := appendString(nil, "<&>"); !bytes.Equal(got, []byte(`"<&>"`)) || strings.Contains(string(encode("<&>")),
		"u00") {
		t.Errorf("HTML is escaped: %s", got)
	}
}

package ledger

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// hostEntries returns the store's entries of n equal hosts.
func hostEntries(n int) []Entry {
	st := newState(time.Unix(0, 0))
	var entries []Entry
	revision := int64(1)
	add := func(kind Kind, id string, value []byte) {
		revision++
		entries = append(entries, Entry{Key: Key{kind, id}, Value: value, Created: revision, Modified: revision})
	}
	p := ProviderData{Created: 1, Updated: 1}
	for _, i := range []struct {
		class string
		total int64
	}{{"VCPU", 64}, {"MEMORY_MB", 1 << 20}, {"DISK_GB", 8000}} {
		p.Inventories = append(p.Inventories, Inventory{Class: st.classes.intern(i.class), Total: i.total, MinUnit: 1,
			MaxUnit: i.total, StepSize: 1, Ratio: 1})
	}
	for _, name := range []string{"COMPUTE_NODE", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42", "HW_CPU_X86_VMX"} {
		p.Traits = insertID(p.Traits, st.traits.intern(name))
	}
	for i := range n {
		p.UUID = fmt.Sprintf("c0f7c0f7-0000-4000-8000-%012x", i)
		p.Name = "host-" + p.UUID
		add(KindProvider, p.UUID, encodeProvider(&p, st))
		add(KindName, p.Name, []byte(p.UUID))
		add(KindGeneration, p.UUID, encodeGeneration(2))
	}
	return entries
}

func stateOf(tb testing.TB, entries []Entry) *State {
	tb.Helper()
	st := newState(time.Unix(0, 0))
	if err := st.apply(1<<40, entries); err != nil {
		tb.Fatal(err)
	}
	return st
}

// maxProvider bounds the bytes per provider.
const maxProvider = 1000

func TestAProviderTakesLittleMemory(t *testing.T) {
	const n = 5000
	entries := hostEntries(n)
	before := live()
	st := stateOf(t, entries)
	each := float64(live()-before) / n
	if t.Logf("%.0f bytes a provider", each); each > maxProvider {
		t.Errorf("a provider takes %.0f bytes, want at most %d", each, maxProvider)
	}
	runtime.KeepAlive(st)
	runtime.KeepAlive(entries)
}

// live returns the memory in use, in bytes.
func live() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees what the first one finalized
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("providers=%d", n), func(b *testing.B) {
			entries := hostEntries(n)
			b.ReportAllocs()
			for b.Loop() {
				stateOf(b, entries)
			}
		})
	}
}

func BenchmarkCandidates(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		st := stateOf(b, hostEntries(n))
		for _, limit := range []int{10, 0} {
			b.Run(fmt.Sprintf("providers=%d/limit=%d", n, limit), func(b *testing.B) {
				req := &CandidateRequest{Limit: limit, Nested: true,
					Groups: []RequestGroup{{Resources: []NamedAmount{{"VCPU", 1},
						{"MEMORY_MB", 256}, {"DISK_GB", 1}}}}}
				b.ReportAllocs()
				for b.Loop() {
					found, err := st.Candidates(b.Context(), req)
					if err != nil || len(found) != min(n, max(limit, 0)+n*(1-min(limit, 1))) {
						b.Fatalf("%d candidates, error %v", len(found), err)
					}
				}
			})
		}
	}
}

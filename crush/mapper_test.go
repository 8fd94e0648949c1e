package crush

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestMappingAllocatesNothing(t *testing.T) {
	p := compiled(t, built(1000, 10, 10, 5))
	m, out, x := p.NewMapper(), make([]ID, 0, 3), uint32(0)
	out = m.Map(0, x, 3, nil, out)
	if n := testing.AllocsPerRun(1000, func() { x++; out = m.Map(0, x, 3, nil, out[:0]) }); n != 0 {
		t.Errorf("a mapping allocates %v times", n)
	}
}

// hostOf returns the number of a device's host in a built map with ten devices per host.
func hostOf(id ID) int { return int(id) / 10 }

func TestReplicasAreOnDifferentHostsAndUsable(t *testing.T) {
	p := compiled(t, built(200, 10, 5, 2))
	m := p.NewMapper()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		weights := make(Reweights, p.Devices())
		for i := range weights {
			weights[i] = []Weight{0, One / 2, One}[random.IntN(3)]
		}
		refused := ID(random.IntN(200))
		m.Refuse(func(id ID) bool { return id == refused })
		hosts := map[int]bool{}
		for _, id := range m.Map(0, random.Uint32(), 5, weights, nil) {
			if hosts[hostOf(id)] || weights[id] == 0 || id == refused {
				t.Fatalf("device %d, reweight %v, refused %d, hosts %v", id, weights[id], refused, hosts)
			}
			hosts[hostOf(id)] = true
		}
		if len(hosts) < 4 { // of 20
			t.Fatalf("%d replicas", len(hosts))
		}
	}
}

// TestOnlyWhatIsOutMoves checks that devices that stay in keep their replicas; in firstn the position may change.
func TestOnlyWhatIsOutMoves(t *testing.T) {
	p := compiled(t, built(200, 10, 5, 2))
	m, weights := p.NewMapper(), make(Reweights, p.Devices())
	for i := range weights {
		weights[i] = One
	}
	moved, forced := 0, 0
	for x := range uint32(5000) {
		for i := 50; i < 60; i++ {
			weights[i] = One
		}
		before := m.Map(0, x, 3, weights, nil)
		for i := 50; i < 60; i++ {
			weights[i] = 0
		}
		after := m.Map(0, x, 3, weights, nil)
		for _, id := range before {
			if hostOf(id) == 5 {
				forced++
			}
			if !slices.Contains(after, id) {
				moved++
			}
		}
	}
	if moved != forced || forced == 0 {
		t.Errorf("%d replicas moved, %d had to", moved, forced)
	}
}

func TestWeightsAreShares(t *testing.T) {
	m := built(4, 1, 4)
	for i := range m.Buckets {
		if b := &m.Buckets[i]; b.Type == 1 && b.Items[0].ID == 3 {
			b.Items[0].Weight = 3 * One
		}
		if b := &m.Buckets[i]; b.Type == 2 {
			b.Items[3].Weight = 3 * One
		}
	}
	count := make([]int, 4)
	mapper := compiled(t, m).NewMapper()
	const inputs = 60_000
	for x := range uint32(inputs) {
		count[mapper.Map(0, x, 1, nil, nil)[0]]++
	}
	for id, n := range count {
		want := inputs / 6
		if id == 3 {
			want *= 3
		}
		if n < want*95/100 || n > want*105/100 {
			t.Errorf("device %d has %d of %d, and its weight asks for %d", id, n, inputs, want)
		}
	}
}

func TestATraceTellsWhyEachCandidateWasNotTaken(t *testing.T) {
	p := compiled(t, built(4, 2, 2))
	m := p.NewMapper()
	var seen []Event
	m.Watch(func(e Event) { seen = append(seen, e) })
	got := m.Map(0, 7, 3, Reweights{One, One, 0, One}, nil)
	taken := map[int]ID{}
	why := map[Reason]int{}
	for _, e := range seen {
		if e.Step != 1 {
			t.Errorf("%+v is of another step than the one that chooses", e)
		}
		if e.Why == 0 && e.Leaf {
			taken[e.Position] = e.Item
		}
		why[e.Why]++
	}
	if len(got) != 2 || taken[0] != got[0] || taken[1] != got[1] {
		t.Errorf("%v was placed, and the trace says %v", got, taken)
	}
	if why[Collision] == 0 {
		t.Errorf("a third replica on two hosts collides with none: %v", why)
	}
	m.Refuse(func(ID) bool { return true })
	seen = nil
	if got := m.Map(0, 7, 1, nil, nil); len(got) > 0 || !slices.ContainsFunc(seen, func(e Event) bool {
		return e.Why == Refused
	}) || !slices.ContainsFunc(seen, func(e Event) bool { return e.Why == NoDevice && !e.Leaf }) {
		t.Errorf("%v is placed where all are refused, and the trace says %v", got, seen)
	}
}

func TestWhatPlacesNothing(t *testing.T) {
	p := compiled(t, built(4, 2, 2))
	m := p.NewMapper()
	if got := m.Map(9, 0, 3, nil, nil); len(got) > 0 {
		t.Errorf("an unknown rule places %v", got)
	}
	if got := m.Map(0, 0, 0, nil, nil); len(got) > 0 {
		t.Errorf("of no replicas %v are placed", got)
	}
	if got := m.Map(0, 0, 3, Reweights{}, nil); len(got) > 0 {
		t.Errorf("where no device has a reweight, %v are placed", got)
	}
}

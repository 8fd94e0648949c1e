package crush

import (
	"fmt"
	"testing"
)

// built returns a tree of devices of weight 1; fans are the numbers of items per bucket of each level.
func built(devices int, fans ...int) *Map {
	m := &Map{Tunables: Jewel, Types: []TypeName{{0, "osd"}, {1, "host"}, {2, "rack"}, {3, "row"}, {4, "root"}}}
	var level []Item
	for i := range devices {
		m.Devices = append(m.Devices, Device{ID: ID(i), Name: fmt.Sprintf("osd.%d", i)})
		level = append(level, Item{ID(i), One})
	}
	id := ID(0)
	for n, fan := range append(fans, len(level)) {
		var above []Item
		for len(level) > 0 {
			id--
			some := level[:min(fan, len(level))]
			b := Bucket{ID: id, Name: fmt.Sprintf("%s%d", m.Types[n+1].Name, -id), Type: Type(n + 1), Items: some}
			m.Buckets, level = append(m.Buckets, b), level[len(some):]
			above = append(above, Item{id, b.Weight()})
		}
		level = above
	}
	m.Rules = []Rule{{Name: "replicated_rule", Steps: []Step{{Op: Take, Item: id}, {Op: ChooseLeafFirstn, Type: 1},
		{Op: Emit}}}}
	return m
}

func BenchmarkMapping(b *testing.B) {
	for _, c := range []struct {
		devices int
		fans    []int
	}{{1000, []int{10, 10, 5}}, {10000, []int{10, 20, 10}}} {
		b.Run(fmt.Sprint(c.devices), func(b *testing.B) {
			p := compiled(b, built(c.devices, c.fans...))
			m, out := p.NewMapper(), make([]ID, 0, 3)
			x := uint32(0)
			b.ReportAllocs()
			for b.Loop() {
				out = m.Map(0, x, 3, nil, out[:0])
				x++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "mappings/s")
		})
	}
}

package place

import (
	"fmt"
	"slices"
	"testing"
)

// BenchmarkDecide places 9,000 jobs of one slot each on 1,000 nodes: first with no slot placed, then with all slots
// placed.
func BenchmarkDecide(b *testing.B) {
	dir, f := b.TempDir(), cluster(slices.Repeat([]int{20}, 50)...)
	for i := range 9000 {
		f[fmt.Sprintf("jobs/g%d/j%d.yaml", i/100, i)] = "policy: spread(rack)\nuses: {cpu: 1}\n"
	}
	f.write(b, dir)
	s := loadAt(b, dir)
	b.Run("from nothing", func(b *testing.B) {
		for b.Loop() {
			r, err := Decide(s, Options{})
			if err != nil || len(r.Changes) != 9000 {
				b.Fatal(err)
			}
		}
	})
	placed(b, dir, Options{})
	s = loadAt(b, dir)
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			r, err := Decide(s, Options{})
			if err != nil || len(r.Changes) != 0 {
				b.Fatal(err)
			}
		}
	})
}

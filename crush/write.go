package crush

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// WriteText writes the map in the text form of crushtool, each bucket after its children. ReadText and crushtool -c
// read the same map back, unless a weight above 256 has more than 24 significant bits: both read weights in single
// precision.
func (m *Map) WriteText(to io.Writer) error {
	w := &encoder{m: m, to: bufio.NewWriter(to), names: map[ID]string{}, kinds: map[Type]string{}}
	for _, d := range m.Devices {
		w.names[d.ID] = d.Name
	}
	for _, b := range m.Buckets {
		w.names[b.ID] = b.Name
	}
	for _, t := range m.Types {
		w.kinds[t.Type] = t.Name
	}
	w.tunables()
	w.devices()
	for _, b := range slices.SortedStableFunc(slices.Values(m.Buckets), func(x, y Bucket) int {
		return int(x.Type) - int(y.Type)
	}) {
		w.bucket(b)
	}
	w.line("\n# rules")
	for _, r := range m.Rules {
		w.rule(r)
	}
	return w.to.Flush()
}

// encoder writes a map. The final Flush reports its errors.
type encoder struct {
	m     *Map
	to    *bufio.Writer
	names map[ID]string
	kinds map[Type]string
}

func (w *encoder) line(format string, args ...any) { fmt.Fprintf(w.to, format+"\n", args...) }

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w *encoder) tunables() {
	t := w.m.Tunables
	w.line("# begin crush map")
	w.line("tunable choose_local_tries 0")
	w.line("tunable choose_local_fallback_tries 0")
	w.line("tunable choose_total_tries %d", t.TotalTries)
	w.line("tunable chooseleaf_descend_once %d", bit(t.DescendOnce))
	w.line("tunable chooseleaf_vary_r %d", t.VaryR)
	w.line("tunable chooseleaf_stable %d", bit(t.Stable))
	w.line("tunable straw_calc_version 1")
	w.line("tunable allowed_bucket_algs 54")
}

func (w *encoder) devices() {
	w.line("\n# devices")
	for _, d := range w.m.Devices {
		class := ""
		if d.Class != "" {
			class = " class " + d.Class
		}
		w.line("device %d %s%s", d.ID, d.Name, class)
	}
	w.line("\n# types")
	for _, t := range w.m.Types {
		w.line("type %d %s", t.Type, t.Name)
	}
	w.line("\n# buckets")
}

func (w *encoder) bucket(b Bucket) {
	w.line("%s %s {", w.kinds[b.Type], b.Name)
	w.line("\tid %d", b.ID)
	for _, s := range b.Shadows {
		w.line("\tid %d class %s", s.ID, s.Class)
	}
	w.line("\talg straw2")
	w.line("\thash 0\t# rjenkins1")
	for _, it := range b.Items {
		w.line("\titem %s weight %s", w.names[it.ID], it.Weight)
	}
	w.line("}")
}

// String returns the weight as a decimal fraction, with at least five decimal places as in crushtool, and with more if
// an exact result needs them.
func (w Weight) String() string {
	share := float64(w) / float64(One)
	if text := strconv.FormatFloat(share, 'f', 5, 64); WeightOf(parsed(text)) == w {
		return text
	}
	return strconv.FormatFloat(share, 'f', -1, 64)
}

func parsed(text string) float64 {
	f, _ := strconv.ParseFloat(text, 64) // cannot fail: the number was just formatted
	return f
}

func (w *encoder) rule(r Rule) {
	w.line("rule %s {", r.Name)
	w.line("\tid %d", r.ID)
	kind := r.Kind
	if kind == "" {
		kind = "replicated"
	}
	w.line("\ttype %s", kind)
	if r.Max > 0 {
		w.line("\tmin_size %d", r.Min)
		w.line("\tmax_size %d", r.Max)
	}
	for _, s := range r.Steps {
		w.line("\tstep %s", w.step(s))
	}
	w.line("}")
}

func (w *encoder) step(s Step) string {
	chooses := map[Op]string{ChooseFirstn: "choose firstn", ChooseIndep: "choose indep",
		ChooseLeafFirstn: "chooseleaf firstn", ChooseLeafIndep: "chooseleaf indep"}
	switch s.Op {
	case Take:
		if s.Class != "" {
			return "take " + w.names[s.Item] + " class " + s.Class
		}
		return "take " + w.names[s.Item]
	case SetChooseTries:
		return "set_choose_tries " + strconv.Itoa(s.N)
	case SetChooseLeafTries:
		return "set_chooseleaf_tries " + strconv.Itoa(s.N)
	case Emit:
		return "emit"
	}
	return fmt.Sprintf("%s %d type %s", chooses[s.Op], s.N, w.kinds[s.Type])
}

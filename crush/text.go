package crush

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// maxText bounds the size of a text, in bytes: about 100,000 devices.
const maxText = 32 << 20

// ReadText parses a map in the text form of crushtool. Buckets may come in any order. Buckets without an ID get the
// next free one; so do the shadows of buckets from which a rule takes a class. The error names the line. Features of
// crushtool that this package does not support, such as buckets other than straw2, are errors.
func ReadText(r io.Reader) (*Map, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err != nil {
		return nil, fmt.Errorf("read the map: %w", err)
	}
	if len(data) > maxText {
		return nil, fmt.Errorf("the map is longer than %d MiB", maxText>>20)
	}
	t := &parser{words: wordsOf(string(data)), m: &Map{Tunables: legacy}, ids: map[string]ID{},
		types: map[string]Type{}, used: map[ID]bool{}}
	if err := t.all(); err != nil {
		return nil, err
	}
	if err := t.resolve(); err != nil {
		return nil, err
	}
	return t.m, nil
}

// legacy are the tunables of a text that names none: the tunables from before texts could name them.
var legacy = Tunables{TotalTries: 19}

type word struct {
	text string
	line int
}

// apart separates braces from words.
var apart = strings.NewReplacer("{", " { ", "}", " } ")

func wordsOf(text string) (all []word) {
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		for _, w := range strings.Fields(apart.Replace(line)) {
			all = append(all, word{w, n + 1})
		}
	}
	return all
}

// parser is the state of the parser. It resolves names of items at the end.
type parser struct {
	words []word
	line  int
	m     *Map
	ids   map[string]ID
	types map[string]Type
	used  map[ID]bool // IDs of buckets in use
	// Names to resolve, by bucket, and by rule and step.
	items [][]namedItem
	takes []namedTake
	free  ID
}

type namedItem struct {
	name   string
	weight string // empty: not given
	at     int    // position; -1: the next one
	line   int
}

type namedTake struct {
	rule, step  int
	name, class string
	line        int
}

func (t *parser) wrong(format string, args ...any) error {
	return fmt.Errorf("line %d: %s", t.line, fmt.Sprintf(format, args...))
}

// next returns the next word, or an error that names the expected element.
func (t *parser) next(what string) (string, error) {
	if len(t.words) == 0 {
		return "", t.wrong("the map ends where %s should be", what)
	}
	w := t.words[0]
	t.words, t.line = t.words[1:], w.line
	return w.text, nil
}

func (t *parser) number(what string) (int, error) {
	w, err := t.next(what)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(w, 10, 32)
	if err != nil {
		return 0, t.wrong("%q is no number, and %s should be one", w, what)
	}
	return int(n), nil
}

// accept consumes the next word if it equals text.
func (t *parser) accept(text string) bool {
	if len(t.words) == 0 || t.words[0].text != text {
		return false
	}
	t.line, t.words = t.words[0].line, t.words[1:]
	return true
}

func (t *parser) expect(text string) error {
	w, err := t.next(strconv.Quote(text))
	if err == nil && w != text {
		err = t.wrong("%q is where %q should be", w, text)
	}
	return err
}

func (t *parser) all() error {
	for len(t.words) > 0 {
		w, err := t.next("")
		if err != nil {
			return err
		}
		switch w {
		case "tunable":
			err = t.tunable()
		case "device":
			err = t.device()
		case "type":
			err = t.typeName()
		case "rule":
			err = t.rule()
		case "choose_args":
			err = t.wrong("weight sets (choose_args) are not supported; remove them with ceph osd crush weight-set rm")
		default:
			kind, ok := t.types[w]
			if !ok {
				return t.wrong("%q is none of tunable, device, type, rule and the types of the map", w)
			}
			err = t.bucket(kind)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *parser) tunable() error {
	name, err := t.next("the name of a tunable")
	if err != nil {
		return err
	}
	n, err := t.number("tunable " + name)
	if err != nil {
		return err
	}
	to := &t.m.Tunables
	switch {
	case name == "choose_total_tries" && n >= 0 && n <= maxReplicas:
		to.TotalTries = n
	case name == "chooseleaf_descend_once" && (n == 0 || n == 1):
		to.DescendOnce = n == 1
	case name == "chooseleaf_vary_r" && n >= 0 && n <= 32:
		to.VaryR = n
	case name == "chooseleaf_stable" && (n == 0 || n == 1):
		to.Stable = n == 1
	case (name == "choose_local_tries" || name == "choose_local_fallback_tries") && n == 0:
	case name == "straw_calc_version", name == "allowed_bucket_algs": // settings of buckets other than straw2
	case slices.Contains(tunableNames, name):
		return t.wrong("tunable %s %d is not supported", name, n)
	default:
		return t.wrong("there is no tunable %q: %s", name, strings.Join(tunableNames, ", "))
	}
	return nil
}

var tunableNames = []string{"choose_local_tries", "choose_local_fallback_tries", "choose_total_tries",
	"chooseleaf_descend_once", "chooseleaf_vary_r", "chooseleaf_stable", "straw_calc_version", "allowed_bucket_algs"}

func (t *parser) define(what, name string, id ID) error {
	if _, taken := t.ids[name]; taken {
		return t.wrong("%s %q: the name is given twice", what, name)
	}
	t.ids[name] = id
	return nil
}

func (t *parser) device() error {
	id, err := t.number("the ID of a device")
	if err != nil {
		return err
	}
	name, err := t.next("the name of a device")
	if err != nil {
		return err
	}
	d := Device{ID: ID(id), Name: name}
	if t.accept("class") {
		if d.Class, err = t.next("a class"); err != nil {
			return err
		}
	}
	t.m.Devices = append(t.m.Devices, d)
	return t.define("device", name, d.ID)
}

func (t *parser) typeName() error {
	n, err := t.number("the number of a type")
	if err != nil {
		return err
	}
	name, err := t.next("the name of a type")
	if err != nil {
		return err
	}
	t.types[name] = Type(n)
	t.m.Types = append(t.m.Types, TypeName{Type(n), name})
	return nil
}

func (t *parser) bucket(kind Type) error {
	name, err := t.next("the name of a bucket")
	if err != nil {
		return err
	}
	if err := t.expect("{"); err != nil {
		return err
	}
	b, begun := Bucket{Name: name, Type: kind}, t.line
	var items []namedItem
	for !t.accept("}") {
		w, err := t.next("the end of bucket " + name)
		if err != nil {
			return err
		}
		switch w {
		case "id":
			err = t.bucketID(&b)
		case "alg":
			err = t.only("straw2", "buckets", "")
		case "hash":
			err = t.only("0", "hashes", "rjenkins1")
		case "item":
			var it namedItem
			it, err = t.item()
			items = append(items, it)
		default:
			err = t.wrong("%q in bucket %s is none of id, alg, hash and item", w, name)
		}
		if err != nil {
			return err
		}
	}
	t.m.Buckets, t.items = append(t.m.Buckets, b), append(t.items, items)
	t.line = begun
	return t.define("bucket", name, b.ID)
}

// only accepts only one of the keywords that Ceph allows at this place.
func (t *parser) only(text, what, also string) error {
	w, err := t.next(text)
	if err == nil && w != text && (also == "" || w != also) {
		err = t.wrong("%s of the kind %s are not supported, only %s", what, w, text)
	}
	return err
}

func (t *parser) bucketID(b *Bucket) error {
	n, err := t.number("the ID of a bucket")
	if err != nil {
		return err
	}
	if n >= 0 || t.used[ID(n)] {
		return t.wrong("the ID %d of bucket %s is taken, or not below 0", n, b.Name)
	}
	t.used[ID(n)] = true
	if !t.accept("class") {
		b.ID = ID(n)
		return nil
	}
	class, err := t.next("a class")
	b.Shadows = append(b.Shadows, Shadow{class, ID(n)})
	return err
}

func (t *parser) item() (it namedItem, err error) {
	if it.name, err = t.next("the name of an item"); err != nil {
		return it, err
	}
	it.at, it.line = -1, t.line
	for err == nil {
		switch {
		case t.accept("weight"):
			it.weight, err = t.next("a weight")
		case t.accept("pos"):
			it.at, err = t.number("a position")
		default:
			return it, nil
		}
	}
	return it, err
}

func (t *parser) rule() error {
	name, err := t.next("the name of a rule")
	if err != nil {
		return err
	}
	if err := t.expect("{"); err != nil {
		return err
	}
	r := Rule{Name: name, ID: -1}
	for !t.accept("}") {
		w, err := t.next("the end of rule " + name)
		if err != nil {
			return err
		}
		switch w {
		case "id", "ruleset":
			r.ID, err = t.number("the ID of a rule")
		case "type":
			r.Kind, err = t.next("the kind of a rule")
		case "min_size":
			r.Min, err = t.number(w)
		case "max_size":
			r.Max, err = t.number(w)
		case "step":
			err = t.step(&r)
		default:
			err = t.wrong("%q in rule %s is none of id, type, min_size, max_size and step", w, name)
		}
		if err != nil {
			return err
		}
	}
	if r.ID < 0 {
		return t.wrong("rule %s has no id", name)
	}
	t.m.Rules = append(t.m.Rules, r)
	return nil
}

func (t *parser) step(r *Rule) error {
	w, err := t.next("a step")
	if err != nil {
		return err
	}
	s := Step{}
	switch w {
	case "take":
		s.Op = Take
		var name, class string
		if name, err = t.next("what to take"); err != nil {
			return err
		}
		if t.accept("class") {
			class, err = t.next("a class")
		}
		t.takes = append(t.takes, namedTake{len(t.m.Rules), len(r.Steps), name, class, t.line})
	case "emit":
		s.Op = Emit
	case "noop":
		return nil
	case "set_choose_tries":
		s.Op = SetChooseTries
		s.N, err = t.number(w)
	case "set_chooseleaf_tries":
		s.Op = SetChooseLeafTries
		s.N, err = t.number(w)
	case "choose", "chooseleaf":
		err = t.choose(&s, w == "chooseleaf")
	default:
		return t.wrong("step %q is not supported: take, choose, chooseleaf, emit, set_choose_tries, set_chooseleaf_tries", w)
	}
	r.Steps = append(r.Steps, s)
	return err
}

func (t *parser) choose(s *Step, leaf bool) error {
	way, err := t.next("firstn or indep")
	if err != nil {
		return err
	}
	switch {
	case way == "firstn" && leaf:
		s.Op = ChooseLeafFirstn
	case way == "firstn":
		s.Op = ChooseFirstn
	case way == "indep" && leaf:
		s.Op = ChooseLeafIndep
	case way == "indep":
		s.Op = ChooseIndep
	default:
		return t.wrong("%q is neither firstn nor indep", way)
	}
	if s.N, err = t.number("how many to choose"); err != nil {
		return err
	}
	if err := t.expect("type"); err != nil {
		return err
	}
	name, err := t.next("a type")
	if err != nil {
		return err
	}
	kind, ok := t.types[name]
	if !ok {
		return t.wrong("there is no type %q", name)
	}
	s.Type = kind
	return nil
}

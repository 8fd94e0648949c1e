package state

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"croft/internal/nearest"
)

// fields reads the keys of a map as typed values. A value of the wrong type is reported as a problem and read as the
// zero value.
type fields struct {
	v     *Value // nil: the map is missing
	p     *problems
	named string // the path of the map, ending in a dot
}

// wants reports a value of the wrong kind.
func (f fields) wants(v *Value, key, want string) {
	got := v.Kind.String()
	switch {
	case v.Kind == String && v.Sealed():
		got = "a secret"
	case v.Kind == String:
		got = strconv.Quote(shortened(v.Text))
	case v.Kind != Map && v.Kind != List && v.Text != "":
		got = shortened(v.Text)
	}
	f.p.add(v.At, "%s%s: want %s, not %s", f.named, key, want, got)
}

func shortened(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}

// get returns the value of a key; nil: it is missing, null, or not known before the slot has a node.
func (f fields) get(key string) *Value {
	if f.v == nil || f.v.Kind != Map {
		return nil
	}
	if v := f.v.Fields[key]; v != nil && v.Kind != Null && v.Kind != Anything {
		return v
	}
	return nil
}

// at returns the position of a key's value, or of the map if the key is missing.
func (f fields) at(key string) Position {
	if f.v == nil {
		return Position{}
	}
	if v := f.v.Fields[key]; v != nil {
		return v.At
	}
	return f.v.At
}

func (f fields) text(key string) string {
	if v := f.get(key); v != nil {
		s, _ := f.textOf(v, key)
		return s
	}
	return ""
}

// textOf reads a value as text. A number counts as text if every YAML reader prints it the same way.
func (f fields) textOf(v *Value, key string) (string, bool) {
	switch {
	case v.Kind == Anything:
		return "", true
	case v.Sealed():
		f.p.add(v.At, "%s%s: a secret has no place here: only the content of a file and a value of env can have one", f.named, key)
		return "", false
	case v.Kind == String && v.Plain && misread(v.Text):
		f.p.add(v.At, "%s%s: %s is true or false to some readers of YAML: write it in quotes, %q", f.named, key, v.Text,
			v.Text)
		return "", false
	case v.Kind == String:
		return v.Text, true
	case v.Kind == Int && canonical(v.Text), v.Kind == Float && canonicalFloat(v.Text):
		return v.Text, true
	case v.Kind == Int || v.Kind == Float || v.Kind == Bool:
		f.p.add(v.At, "%s%s: want a text, and YAML reads %s as %s: write it in quotes, %q", f.named, key,
			v.Text, v.Kind, v.Text)
		return "", false
	}
	f.wants(v, key, "a text")
	return "", false
}

// misread reports whether YAML 1.1 reads an unquoted text as a truth value.
func misread(s string) bool {
	return slices.Contains([]string{"y", "n", "yes", "no", "on", "off"}, strings.ToLower(s))
}

func canonical(s string) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == s
}

func canonicalFloat(s string) bool {
	f, err := strconv.ParseFloat(s, 64)
	return err == nil && strings.TrimRight(s, "0123456789") != s && strings.Trim(s, "-.0123456789") == "" &&
		!math.IsInf(f, 0) && !strings.HasPrefix(s, ".")
}

func (f fields) boolean(key string) bool {
	v := f.get(key)
	if v == nil {
		return false
	}
	if v.Kind != Bool {
		f.wants(v, key, "true or false")
		return false
	}
	return strings.EqualFold(v.Text, "true")
}

// number reads a whole number from least to most; it returns otherwise if the key is missing.
func (f fields) number(key string, least, most, otherwise int) int {
	v := f.get(key)
	if v == nil {
		return otherwise
	}
	n, err := strconv.Atoi(v.Text)
	if v.Kind != Int || err != nil || !canonical(v.Text) {
		f.wants(v, key, "a whole number")
		return otherwise
	}
	if n < least || n > most {
		f.p.add(v.At, "%s%s: %d is not from %d to %d", f.named, key, n, least, most)
		return otherwise
	}
	return n
}

// texts reads a list of texts.
func (f fields) texts(key string) []string {
	v := f.get(key)
	if v == nil {
		return nil
	}
	if v.Kind != List {
		f.wants(v, key, "a list of texts, such as [one, two]")
		return nil
	}
	out := make([]string, 0, len(v.Items))
	for _, item := range v.Items {
		s, _ := f.textOf(item, key)
		out = append(out, s)
	}
	return out
}

// textMap reads a map of texts.
func (f fields) textMap(key string) map[string]string {
	v := f.get(key)
	if v == nil {
		return nil
	}
	if v.Kind != Map {
		f.wants(v, key, "a map of texts")
		return nil
	}
	out := make(map[string]string, len(v.Keys))
	for _, name := range v.Keys {
		s, _ := f.textOf(v.Fields[name], key+"."+name)
		out[name] = s
	}
	return out
}

// below returns the fields of a map inside this map.
func (f fields) below(key string) fields {
	v := f.get(key)
	if v != nil && v.Kind != Map {
		f.wants(v, key, "a map")
		v = nil
	}
	return fields{v, f.p, f.named + key + "."}
}

// one reads a text that must be one of a list.
func (f fields) one(key, otherwise string, of ...string) string {
	s := f.text(key)
	if s == "" {
		return otherwise
	}
	if !slices.Contains(of, s) {
		f.p.add(f.at(key), "%s%s: %q is none of %s%s", f.named, key, s, strings.Join(of, ", "), nearest.Hint(s, of))
		return otherwise
	}
	return s
}

// amounts reads a map from names to amounts.
func (f fields) amounts(key string) Amounts {
	in := f.below(key)
	if in.v == nil {
		return nil
	}
	out := make(Amounts, len(in.v.Keys))
	for _, name := range in.v.Keys {
		out[name] = in.amount(name)
	}
	return out
}

// amount reads an amount, in thousandths.
func (f fields) amount(key string) int64 {
	v := f.get(key)
	if v == nil {
		return 0
	}
	n, ok := ParseAmount(v.Text)
	if !ok || v.Kind == Map || v.Kind == List {
		f.wants(v, key, "an amount from 0, such as 4, 0.5, 512M or 2Gi")
	}
	return n
}

// size reads a number of bytes.
func (f fields) size(key string) int64 { return f.amount(key) / 1000 }

var units = []struct {
	name string
	of   float64
}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9},
	{"T", 1e12}, {"m", 1e-3}}

const maxAmount = 9e15 // about 8 PiB

// ParseAmount parses an amount and returns it in thousandths: a number that is not negative, with an optional suffix
// Ki, Mi, Gi, Ti, k, M, G, T or m (a thousandth).
func ParseAmount(s string) (int64, bool) {
	number, times := s, 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			number, times = strings.TrimSpace(rest), u.of
			break
		}
	}
	if number == "" || strings.Trim(number, "0123456789.") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || !(f*times >= 0 && f*times <= maxAmount) {
		return 0, false
	}
	return int64(math.Round(f * times * 1000)), true
}

// FormatAmount formats an amount as a number without a suffix.
func FormatAmount(thousandths int64) string {
	s := strconv.FormatInt(thousandths/1000, 10)
	if rest := thousandths % 1000; rest != 0 {
		s += "." + strings.TrimRight(strconv.FormatInt(1000+rest, 10)[1:], "0")
	}
	return s
}

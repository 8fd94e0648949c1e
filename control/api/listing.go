package api

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Listing has the parameters that lists share. A list has those whose fields its entries have: name (or id), state,
// host, image and labels.
type Listing struct {
	Limit int `query:"limit" json:"-" minimum:"1" maximum:"5000"` // maximum number of entries; all by default

	// Field next of the page before. The pages of a list are in the order of the names of its entries.
	After string `query:"after" json:"-" maxLength:"256"`
	Terms
}

// Terms choose entries of a list: all parameters must match, and of one that is given several times, one value. A value
// that ends with * matches all that begins like it.
type Terms struct {
	// Name, or UUID.
	Name  []string `query:"name"  json:"-" maxItems:"16" maxLength:"256"`
	State []string `query:"state" json:"-" maxItems:"16" maxLength:"64"`   // state in one word
	Host  []string `query:"host"  json:"-" maxItems:"16" maxLength:"256"`  // name or UUID of the host
	Image []string `query:"image" json:"-" maxItems:"16" maxLength:"4096"` // under the name that the request gave

	// A label that the entry has: KEY, or KEY=VALUE.
	Label []string `query:"label" json:"-" maxItems:"16" maxLength:"4096"`

	// A term that the entry must not match: one of these parameters and a value, such as state=failed or
	// label=env=test.
	Not []string `query:"not" json:"-" maxItems:"16" maxLength:"4096"`
}

// More is the part of a list that tells whether there is more of it.
type More struct {
	Next string `json:"next,omitempty"` // after which the next page starts; empty: this is the last page
}

// termFields are the JSON fields that each term is compared with: of each group, the first one that an entry has.
var termFields = map[string][][]string{"name": {{"name", "alias", "type"}, {"id"}}, "state": {{"state"}},
	"host": {{"host"}, {"host_id"}}, "image": {{"image"}}, "label": {{"labels"}}}

// terms returns the parameters of t by their names.
func (t Terms) terms() map[string][]string {
	return map[string][]string{"name": t.Name, "state": t.State, "host": t.Host, "image": t.Image, "label": t.Label}
}

// AboutLabels reports whether a term is about labels.
func (t Terms) AboutLabels() bool { return t.about("label", t.Label) }

// about reports whether a term has values, or is one that entries must not match.
func (t Terms) about(term string, values []string) bool {
	names := func(not string) bool { return strings.HasPrefix(not, term+"=") }
	return len(values) > 0 || slices.ContainsFunc(t.Not, names)
}

// ListingOf returns the parameters of lists with entries of a type.
func ListingOf(entry reflect.Type) []Parameter {
	var all []Parameter
	for _, p := range InputOf(reflect.TypeFor[Listing]()).Parameters {
		if p.Name == "limit" || p.Name == "after" || p.Name == "not" || len(fieldsFor(entry, p.Name)) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// fieldsFor returns the fields of an entry that a term is compared with; nil: it has none.
func fieldsFor(entry reflect.Type, term string) (all []reflect.StructField) {
	visible := reflect.VisibleFields(entry)
	for _, group := range termFields[term] {
		for _, name := range group {
			at := slices.IndexFunc(visible, func(f reflect.StructField) bool {
				tagged, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				return tagged == name
			})
			if at >= 0 {
				all = append(all, visible[at])
				break
			}
		}
	}
	return all
}

// EntryOf returns the type of the entries of a list, which are its first slice of structs, and where they are in it.
// A list has a field Next too.
func EntryOf(list reflect.Type) (entry reflect.Type, index int) {
	for i := range list.NumField() {
		if f := list.Field(i); f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
			return f.Type.Elem(), i
		}
	}
	panic(fmt.Sprintf("%s is no list", list))
}

// Matching returns whether an entry of a type, or what a pointer to one points to, matches the terms; nil: there are
// none, and all match. Invalid.
func (t Terms) Matching(entry reflect.Type) (func(any) bool, error) {
	type condition struct {
		fields []reflect.StructField
		values []string
		not    bool
	}
	var all []condition
	for term, values := range t.terms() {
		if len(values) > 0 {
			all = append(all, condition{fieldsFor(entry, term), values, false})
		}
	}
	for _, text := range t.Not {
		term, value, is := strings.Cut(text, "=")
		if _, known := termFields[term]; !is || !known || len(fieldsFor(entry, term)) == 0 {
			return nil, NewProblem(BadQuery, fmt.Sprintf("the parameter not is %q: write one of %s, = and a value",
				Clip(text), strings.Join(termsOf(entry), ", ")))
		}
		all = append(all, condition{fieldsFor(entry, term), []string{value}, true})
	}
	if all == nil {
		return nil, nil
	}
	return func(v any) bool {
		of := reflect.Indirect(reflect.ValueOf(v))
		for _, c := range all {
			matches := slices.ContainsFunc(c.fields, func(f reflect.StructField) bool {
				field, err := of.FieldByIndexErr(f.Index)
				return err == nil && slices.ContainsFunc(c.values, func(v string) bool { return fits(field, v) })
			})
			if matches == c.not {
				return false
			}
		}
		return true
	}, nil
}

// termsOf returns the names of the terms that entries of a type have.
func termsOf(entry reflect.Type) (all []string) {
	for _, p := range ListingOf(entry) {
		if _, is := termFields[p.Name]; is {
			all = append(all, p.Name)
		}
	}
	return all
}

// fits reports whether a field has a value, or a map the entry KEY or KEY=VALUE.
func fits(field reflect.Value, value string) bool {
	if field.Kind() != reflect.Map {
		return like(textOf(field), value)
	}
	key, want, valued := strings.Cut(value, "=")
	have := field.MapIndex(reflect.ValueOf(key).Convert(field.Type().Key()))
	return have.IsValid() && (!valued || like(textOf(have), want))
}

func textOf(v reflect.Value) string {
	if v.Kind() == reflect.String {
		return v.String()
	}
	return fmt.Sprint(v.Interface())
}

// like reports whether a text is a value, or begins with a value that ends with *.
func like(text, value string) bool {
	beginning, is := strings.CutSuffix(value, "*")
	return text == value || is && strings.HasPrefix(text, beginning)
}

// Page keeps the entries of a list that match (nil: all), and of these the page that l chooses. list is a pointer to a
// list, whose entries are never null afterwards. A limit or a beginning puts them in the order of their names, and of
// the UUIDs of those with one name.
func (l Listing) Page(list any, matches func(any) bool) {
	v := reflect.ValueOf(list).Elem()
	entry, index := EntryOf(v.Type())
	kept := v.Field(index)
	if matches != nil || kept.IsNil() {
		kept = reflect.MakeSlice(kept.Type(), 0, kept.Len())
		for i := range v.Field(index).Len() {
			if one := v.Field(index).Index(i); matches(one.Interface()) {
				kept = reflect.Append(kept, one)
			}
		}
	}
	if l.Limit > 0 || l.After != "" {
		kept = l.cut(kept, fieldsFor(entry, "name"), v.FieldByName("Next"))
	}
	v.Field(index).Set(kept)
}

// cut returns the page of entries that l chooses, and sets next to where the page after it starts.
func (l Listing) cut(all reflect.Value, by []reflect.StructField, next reflect.Value) reflect.Value {
	type keyed struct {
		key string
		at  int
	}
	var order []keyed
	for i := range all.Len() {
		var parts []string
		for _, f := range by {
			parts = append(parts, textOf(all.Index(i).FieldByIndex(f.Index)))
		}
		if key := strings.Join(parts, "/"); key > l.After {
			order = append(order, keyed{key, i})
		}
	}
	slices.SortFunc(order, func(a, b keyed) int { return cmp.Compare(a.key, b.key) })
	if l.Limit > 0 && len(order) > l.Limit {
		order = order[:l.Limit]
		next.SetString(order[l.Limit-1].key)
	}
	page := reflect.MakeSlice(all.Type(), 0, len(order))
	for _, o := range order {
		page = reflect.Append(page, all.Index(o.at))
	}
	return page
}

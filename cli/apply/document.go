package apply

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/control/api"
	"croft/internal/nearest"
	"croft/internal/settings"
	"croft/internal/wording"
	"croft/schedule"
	"croft/schedule/sshkeys"
	"croft/tenant/objects"
)

// document is what a project is to have.
type document struct {
	Keys      map[string]string   `json:"keys,omitempty"`
	Volumes   map[string]volume   `json:"volumes,omitempty"`
	Instances map[string]instance `json:"instances,omitempty"`
}

// names reports whether the document has an instance of this name.
func (d document) names(instance string) bool {
	_, has := d.Instances[instance]
	return has
}

// volume is a disk that outlives instances.
type volume struct {
	Size string `json:"size"` // such as 20G
	// local, shared or the name of a shared storage; local if empty
	Storage string `json:"storage,omitempty"`

	sizeGB int64
}

// instance is a request for an instance, with the names that the request of the API has.
//
// A field that is left out is left as it is: an instance that exists is not compared with it.
type instance struct {
	Query  string `json:"query,omitempty"`
	Size   string `json:"size,omitempty"` // instead of amounts; without both, the cloud's default size
	Image  string `json:"image,omitempty"`
	Policy string `json:"policy,omitempty"`
	// names of stored keys, or lines of authorized_keys
	Keys     []string                 `json:"keys,omitempty"`
	UserData string                   `json:"user_data,omitempty"`
	Volumes  []string                 `json:"volumes,omitempty"` // all of them: others are detached
	Labels   map[string]objects.Value `json:"labels,omitempty"`
	// it may not be removed, as with schedule protect
	Protected *bool    `json:"protected,omitempty"`
	Expires   string   `json:"expires,omitempty"` // after its creation, such as 8h
	In        []string `json:"in,omitempty"`
	Where     []string `json:"where,omitempty"`
	WhereNot  []string `json:"where_not,omitempty"`
	Near      []string `json:"near,omitempty"`
	Far       []string `json:"far,omitempty"`
	Distance  string   `json:"distance,omitempty"`
	croft.GuestSettings
	croft.InstanceSettings

	query   schedule.Query
	expires time.Duration
}

// parse parses a file. Invalid: the error has the file's name and the line.
func parse(file string, text []byte) (d document, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root yaml.Node
	err = decoder.Decode(&root)
	if errors.Is(err, io.EOF) {
		return d, croft.Errorf(croft.Invalid, "%s: it is empty: `croft export` prints a file to begin with", file)
	}
	if err != nil {
		return d, settings.SyntaxError(file, err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return d, croft.Errorf(croft.Invalid, "%s: more than one document: write one", file)
	}
	plain, err := value(root.Content[0], reflect.TypeFor[document](), "")
	if err != nil {
		return d, croft.Errorf(croft.Invalid, "%s:%w", file, err)
	}
	if d, err = decoded(plain); err == nil {
		err = d.check()
	}
	if err != nil {
		return d, croft.Errorf(croft.Invalid, "%s: %w", file, err)
	}
	return d, nil
}

// decoded sets the fields of a document by their names in JSON.
func decoded(plain any) (d document, err error) {
	text, err := json.Marshal(plain)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	return d, err
}

// value returns a node as the value of a type in JSON. An error starts with the line.
func value(n *yaml.Node, t reflect.Type, path string) (any, error) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return nil, placed(n, "%s: anchors and aliases are not allowed: write the value out", path)
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Tag == "!!null" {
		return nil, nil
	}
	p := reflect.PointerTo(t)
	own := p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	switch {
	case own && n.Kind == yaml.ScalarNode:
		return scalar(n, t, path)
	case own:
		return nil, placed(n, "%s: want a single value", path)
	case t.Kind() == reflect.Struct || t.Kind() == reflect.Map:
		return mapping(n, t, path)
	case t.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return nil, placed(n, "%s is a list: write [%s]", path, n.Value)
		}
		list := []any{}
		for i, item := range n.Content {
			v, err := value(item, t.Elem(), path+"["+strconv.Itoa(i)+"]")
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case n.Kind != yaml.ScalarNode:
		return nil, placed(n, "%s: want a single value", path)
	case t.Kind() == reflect.String:
		return n.Value, nil
	}
	return scalar(n, t, path)
}

// scalar returns a number, a boolean or a text.
func scalar(n *yaml.Node, t reflect.Type, path string) (v any, err error) {
	words := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Int64: "a whole number",
		reflect.Int: "a whole number"}
	if words[t.Kind()] != "" {
		into := reflect.New(t)
		if n.Decode(into.Interface()) != nil {
			return nil, placed(n, "%s: want %s, not %q", path, words[t.Kind()], n.Value)
		}
		return into.Elem().Interface(), nil // such as true for yes
	}
	if err := n.Decode(&v); err != nil {
		return nil, placed(n, "%s: %q cannot be read", path, n.Value)
	}
	return v, nil
}

func mapping(n *yaml.Node, t reflect.Type, path string) (any, error) {
	if n.Kind != yaml.MappingNode {
		return nil, placed(n, "%swrite name: value, one on each line", strings.TrimPrefix(path+": ", ": "))
	}
	all := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, at := n.Content[i], strings.TrimPrefix(path+"."+n.Content[i].Value, ".")
		if _, twice := all[key.Value]; twice {
			return nil, placed(key, "%s is set twice", at)
		}
		of := t
		if t.Kind() == reflect.Map {
			of = t.Elem()
		} else {
			fields := fieldsOf(t)
			f, known := fields[key.Value]
			if !known {
				return nil, placed(key, "there is no field %q%s", at,
					nearest.Hint(key.Value, slices.Sorted(maps.Keys(fields))))
			}
			of = f
		}
		v, err := value(n.Content[i+1], of, at)
		if err != nil {
			return nil, err
		}
		all[key.Value] = v
	}
	return all, nil
}

// fieldsOf returns the types of the fields of a struct by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			all[name] = f.Type
		}
	}
	return all
}

func placed(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%d: %w", n.Line, fmt.Errorf(format, args...))
}

// check completes the document. Invalid: a value is wrong.
func (d document) check() error {
	for name, line := range d.Keys {
		key, err := sshkeys.Parse(line)
		if err == nil {
			err = schedule.CheckName(name)
		}
		if err != nil {
			return fmt.Errorf("key %s: %w", name, err)
		}
		d.Keys[name] = key
	}
	for name, v := range d.Volumes {
		var err error
		if v.sizeGB, err = schedule.ParseVolumeSize(v.Size); err == nil {
			err = schedule.CheckName(name)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", name, err)
		}
		if v.Storage == croft.StorageLocal {
			v.Storage = ""
		}
		d.Volumes[name] = v
	}
	user := map[string]string{} // of each volume
	for name, i := range d.Instances {
		err := schedule.CheckName(name)
		if err == nil && i.Query != "" && i.Size == "" { // the server knows the sizes
			i.query, err = schedule.ParseQuery(i.Query)
		}
		for key := range i.Labels {
			err = cmp.Or(err, objects.CheckNewKey(key))
		}
		if err == nil && i.Expires != "" {
			i.expires, err = wording.ParseDuration(i.Expires)
		}
		switch {
		case err != nil:
		case i.Expires != "" && i.expires < time.Second:
			err = croft.Errorf(croft.Invalid, "it expires after %s: use a second or more", i.Expires)
		case i.Size != "" && hasAmounts(i.Query):
			err = croft.Errorf(croft.Invalid, "it has a size, and amounts in its query: leave one of them out")
		case i.Image == "" && i.Machine.NeedsImage():
			err = croft.Errorf(croft.Invalid, "it has no image")
		default:
			err = d.checkVolumes(name, i, user)
		}
		if err != nil {
			return fmt.Errorf("instance %s: %w", name, err)
		}
		if i.Storage == croft.StorageLocal {
			i.Storage = ""
		}
		i.GuestSettings.Keys = nil
		i.GuestSettings.UserData = nil
		d.Instances[name] = i
	}
	return nil
}

// request returns the request for an instance.
func (i instance) request(name string, keys, volumes []string, disks []croft.NewDisk) api.InstanceRequest {
	r := api.InstanceRequest{ID: croft.NewInstanceID(), Name: name, Query: i.Query, Image: i.Image,
		GuestSettings: i.GuestSettings, InstanceSettings: i.InstanceSettings, Volumes: volumes, Disks: disks,
		Size: i.Size, Protected: i.Protected != nil && *i.Protected, Expires: int64(i.expires / time.Second),
		In: i.In, Where: i.Where, WhereNot: i.WhereNot, Near: i.Near, Far: i.Far,
		Distance: i.Distance, Policy: i.Policy}
	r.GuestSettings.Keys = keys
	r.GuestSettings.UserData = []byte(i.UserData)
	return r
}

// hasAmounts reports whether a query is complete, with amounts of resources.
func hasAmounts(query string) bool {
	_, err := schedule.ParseQuery(query)
	return query != "" && err == nil
}

func (d document) checkVolumes(name string, i instance, user map[string]string) error {
	for _, v := range i.Volumes {
		if _, known := d.Volumes[v]; !known {
			return croft.Errorf(croft.Invalid, "the file has no volume %q%s", v,
				nearest.Hint(v, slices.Sorted(maps.Keys(d.Volumes))))
		}
		if other, has := user[v]; has {
			return croft.Errorf(croft.Invalid, "volume %s is attached to %s already", v, other)
		}
		user[v] = name
	}
	return nil
}

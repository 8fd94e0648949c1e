package local

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/cluster"
	"croft/internal/lazyregexp"
	"croft/internal/nearest"
	"croft/internal/shell"
	"croft/internal/userdata"
	"croft/schedule"
)

// The names that user_data may use in addition to parameters.
const (
	nameCluster  = "cluster_id"
	nameName     = "name"
	nameRole     = "role"
	nameIndex    = "index"
	nameSize     = "cluster_size" // number of slaves, without the master
	nameMasterIP = "master_ip"    // only in user_data of slaves
	nameKey      = "key"          // the first public SSH key of the member; empty: it has none
	paramKeyName = "key_name"     // names of keys that the project keeps, separated by commas
)

// fixed are the names that need no declaration.
var fixed = []string{nameCluster, nameName, nameRole, nameIndex, nameSize, nameMasterIP, nameKey,
	cluster.ParamAllowedIP, paramKeyName, cluster.ParamRemoved, cluster.ParamKeys}

// whole matches a name to be replaced, or one that a second dollar sign protects.
var whole = lazyregexp.New(`\$?\$\{[^}\n]*\}?`)

// expand replaces the names in a value. Invalid, with the line: a name is unknown.
func (t *text) expand(path, value string, values map[string]string) (string, error) {
	var wrong error
	at0 := 0
	var out strings.Builder
	for _, m := range whole.Get().FindAllStringIndex(value, -1) {
		out.WriteString(value[at0:m[0]])
		at0 = m[1]
		word := value[m[0]:m[1]]
		if rest, stays := strings.CutPrefix(word, "$$"); stays {
			out.WriteString("$" + rest)
			continue
		}
		name := strings.TrimSuffix(strings.TrimPrefix(word, "${"), "}")
		text, known := values[name]
		if !known && wrong == nil {
			wrong = at(t.line(path, value, m[0]), "%.80s in %s is no name that is known here%s; for the shell of the guest, "+
				"write $%.80s", word, path, nearest.Hint(name, sorted(values)), word)
		}
		out.WriteString(text)
	}
	out.WriteString(value[at0:])
	return out.String(), wrong
}

// uses reports whether a value uses a name.
func uses(value, name string) bool {
	return slices.Contains(whole.Get().FindAllString(value, -1), "${"+name+"}")
}

// values returns the parameters of a text in the form in which they are inserted.
func (t *text) values(given map[string]any) map[string]string {
	all := map[string]string{}
	for name, p := range t.Parameters {
		all[name] = written(p.Default)
		if v, ok := given[name]; ok {
			all[name] = written(v)
		}
	}
	return all
}

func written(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case map[string]any, []any:
		text, err := json.Marshal(v)
		if err == nil {
			return string(text)
		}
	}
	return fmt.Sprint(v)
}

// of returns the description of the members of a role.
func (t *text) of(r cluster.Role) (machine, string) {
	if r == cluster.Master {
		return t.Master, "master"
	}
	return t.Slave, "slave"
}

// made is a machine with all values inserted, except for its user-data.
type made struct {
	query     schedule.Query
	image     string
	named     string // as an image of the cloud's catalog
	public    bool   // see croft.Spec.ImagePublic
	networks  []string
	keys      []string
	ephemeral bool
}

// make expands the values that all members of a role share. Invalid.
func (t *text) make(r cluster.Role, values map[string]string) (made, error) {
	m, path := t.of(r)
	amounts, err := t.expand(path+".resources", m.Resources, values)
	if err != nil {
		return made{}, err
	}
	out := made{networks: m.Networks, ephemeral: m.Ephemeral}
	if out.query, err = queryOf(amounts, m.Traits); err != nil {
		return made{}, at(t.lines[path+".resources"], "%s.resources: %v", path, err)
	}
	if out.image, err = t.expand(path+".image", m.Image, values); err != nil {
		return made{}, err
	}
	if out.image == "" {
		return made{}, at(t.lines[path], "%s has no image", path)
	}
	for _, key := range m.Keys {
		if key, err = t.expand(path+".keys", key, values); err != nil {
			return made{}, err
		}
		out.keys = append(out.keys, key)
	}
	for _, name := range m.Networks {
		if err := croft.CheckNetworkName(name); err != nil {
			return made{}, at(t.lines[path+".networks"], "%v", err)
		}
	}
	return out, nil
}

func queryOf(amounts string, traits []string) (schedule.Query, error) {
	if len(traits) == 0 {
		return schedule.ParseQuery(amounts)
	}
	if !strings.Contains(amounts, "resources=") {
		amounts = "resources=" + amounts
	}
	return schedule.ParseQuery(amounts + "&required=" + strings.Join(traits, ","))
}

// checkMembers expands everything that can be expanded without a cluster.
func (t *text) checkMembers() error {
	params := t.values(nil)
	undecided := false
	for _, p := range t.Parameters {
		undecided = undecided || p.Default == nil
	}
	for _, r := range []cluster.Role{cluster.Master, cluster.Slave} {
		m, path := t.of(r)
		if !undecided {
			if _, err := t.make(r, params); err != nil {
				return err
			}
		}
		values := t.memberValues(params, r, "", 0)
		if r == cluster.Master {
			if uses(m.UserData, nameMasterIP) {
				return at(t.lines["master.user_data"], "master.user_data uses ${master_ip}, which slaves alone know")
			}
		} else {
			values[nameMasterIP] = "192.0.2.1"
		}
		data, err := t.expand(path+".user_data", m.UserData, values)
		if err != nil {
			return err
		}
		if err := userdata.Check([]byte(data)); err != nil {
			return at(t.lines[path+".user_data"], "%s: %v", path, err)
		}
	}
	for i, check := range t.Checks {
		if _, err := t.expand("checks", check, t.memberValues(params, cluster.Master, "", 0)); err != nil {
			return fmt.Errorf("%s: %w", index("checks", i), err)
		}
	}
	return nil
}

// memberValues returns the names that a member's user-data may use, except for the address of the master.
func (t *text) memberValues(params map[string]string, r cluster.Role, name string, index int) map[string]string {
	values := maps.Clone(params)
	values[nameName], values[nameRole], values[nameIndex] = name, string(r), strconv.Itoa(index)
	for _, other := range []string{nameCluster, nameSize, nameKey, cluster.ParamAllowedIP} {
		values[other] = ""
	}
	return values
}

// setUp returns the user-data of a member: the one of the text, and on the master the checks too.
func (t *text) setUp(r cluster.Role, values map[string]string) ([]byte, error) {
	m, path := t.of(r)
	own, err := t.expand(path+".user_data", m.UserData, values)
	if err != nil || r != cluster.Master || len(t.Checks) == 0 {
		return []byte(own), err
	}
	script := "#!/bin/sh\n# The master is set up once all of these succeed.\n"
	for _, check := range t.Checks {
		command, err := t.expand("checks", check, values)
		if err != nil {
			return nil, err
		}
		script += fmt.Sprintf("for n in $(seq 150); do if sh -c %[1]s; then n=done; break; fi; sleep 2; done\n"+
			"[ \"$n\" = done ] || { echo %[2]s >&2; exit 1; }\n", shell.Quote(command),
			shell.Quote("the check failed: "+command))
	}
	// cloud-init runs scripts in the order of their names, so this one runs after runcmd
	parts := []userdata.Part{{Name: "zz-croft-checks", Data: []byte(script)}}
	if own != "" {
		parts = append([]userdata.Part{{Name: "user-data", Data: []byte(own)}}, parts...)
	}
	return userdata.Join(parts...), nil
}

func sorted[M ~map[K]V, K cmp.Ordered, V any](m M) []K { return slices.Sorted(maps.Keys(m)) }

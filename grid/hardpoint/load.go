package hardpoint

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"croft"
	"croft/internal/nearest"
)

// A Library loads the hard points of one kind.
type Library struct {
	Kind    string   // runtime, vcs, secret, ...
	Verbs   []string // the verbs that hard points of this kind may have
	Shipped fs.FS    // the files NAME.yaml that are shipped with croft

	// Repository is the cluster's directory; its hardpoints/KIND/NAME.yaml takes precedence over a shipped file. nil:
	// only shipped files are used.
	Repository fs.FS
}

func (l Library) dir() string { return path.Join("hardpoints", l.Kind) }

// Names lists the names of all hard points, sorted. It returns an error if a directory exists and cannot be read.
func (l Library) Names() ([]string, error) {
	names := map[string]bool{}
	for _, from := range []struct {
		fs  fs.FS
		dir string
	}{{l.Shipped, "."}, {l.Repository, l.dir()}} {
		if from.fs == nil {
			continue
		}
		entries, err := fs.ReadDir(from.fs, from.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok && nameForm.MatchString(name) {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// Load reads a hard point and the hard points that it extends. Errors: NotFound if no hard point has this name;
// Invalid, prefixed by file:line, if a file is not valid.
func (l Library) Load(name string) (*Point, error) {
	p := &Point{Kind: l.Kind, Name: name, Cannot: map[string]string{}, variables: map[string]variable{},
		verbs: map[string]*Verb{}}
	var chain []*document // extending documents precede extended ones
	for at, shipped := name, false; at != ""; {
		d, file, fromShipped, err := l.document(at, shipped)
		if err != nil {
			return nil, err
		}
		if p.From == "" {
			p.From = file
		}
		chain = append(chain, d)
		if !fromShipped {
			p.changes = append(p.changes, d.keys)
		}
		if len(chain) > maxDepth {
			return nil, croft.Errorf(croft.Invalid, "%s: it extends itself, or more than %d others", p.From, maxDepth)
		}
		// A file of the repository that extends its own name modifies the shipped file.
		shipped = fromShipped || d.extends == at
		at = d.extends
	}
	for _, d := range slices.Backward(chain) {
		p.take(d)
	}
	if len(p.verbs) == 0 {
		return nil, croft.Errorf(croft.Invalid, "%s: it has no verbs: %s", p.From, strings.Join(l.Verbs, ", "))
	}
	return p, nil
}

// take merges a document into the hard point; the document overrides the documents that it extends.
func (p *Point) take(d *document) {
	if d.about != "" {
		p.About = d.about
	}
	if d.funcs != nil {
		p.functions += *d.funcs + "\n"
	}
	for feature, why := range d.cannot {
		if p.Cannot[feature] = why; why == "" {
			delete(p.Cannot, feature)
		}
	}
	maps.Copy(p.variables, d.vars)
	for name, verb := range d.verbs {
		if p.verbs[name] = verb; verb == nil {
			delete(p.verbs, name)
		}
	}
}

// document reads one file. If shipped is set, it reads only shipped files.
func (l Library) document(name string, shipped bool) (d *document, file string, fromShipped bool, err error) {
	if !nameForm.MatchString(name) {
		return nil, "", false, croft.Errorf(croft.Invalid, "%s %q: a name is lower-case letters, digits, dots, - and _",
			l.Kind, name)
	}
	if l.Repository != nil && !shipped {
		file = path.Join(l.dir(), name+".yaml")
		text, err := fs.ReadFile(l.Repository, file)
		if err == nil {
			d, err = parse(file, text, l.Verbs)
			return d, file, false, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, "", false, err
		}
	}
	text, err := fs.ReadFile(l.Shipped, name+".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		names, _ := l.Names()
		return nil, "", false, croft.Errorf(croft.NotFound,
			"there is no %s %q: known are %s; %s/%s.yaml would be one%s",
			l.Kind, name, strings.Join(names, ", "), l.dir(), name, nearest.Hint(name, names))
	}
	if err != nil {
		return nil, "", false, err
	}
	file = l.Kind + " " + name + " of croft"
	d, err = parse(file, text, l.Verbs)
	return d, file, true, err
}

package watch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/grid/state"
	"croft/internal/lazyregexp"
)

// Settings are the values of the key watch in cluster.yaml. They are the same for all controllers of a cluster.
type Settings struct {
	Cluster string // the cluster's id
	Rules   Rules
	Term    time.Duration
	Fence   string // the name of a hard point; empty: no fence
}

const maxSettings = 1 << 20 // bytes of cluster.yaml

var idForm = lazyregexp.New(`^[0-9a-f]{32}$`)

// ReadSettings reads only cluster.yaml, so that it is fast enough to be called for each beat. NotFound: no such file.
// Invalid.
func ReadSettings(dir string) (Settings, error) {
	name := filepath.Join(dir, state.ClusterFile)
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Settings{}, croft.Errorf(croft.NotFound,
			"%s is not the directory of a cluster: it has no %s; name another "+
				"one with -C", dir, state.ClusterFile)
	} else if err != nil {
		return Settings{}, fmt.Errorf("read the settings of the watch: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSettings+1))
	if err != nil {
		return Settings{}, fmt.Errorf("read the settings of the watch: %w", err)
	}
	if len(text) > maxSettings {
		return Settings{}, croft.Errorf(croft.Invalid, "%s: more than %d bytes", name, maxSettings)
	}
	return parseSettings(state.ClusterFile, text)
}

func parseSettings(name string, text []byte) (Settings, error) {
	s := Settings{Rules: Rules{Every: 10 * time.Second, Grace: time.Minute}, Term: 2 * time.Minute}
	var top struct {
		ID    string
		Watch yaml.Node
	}
	if err := yaml.Unmarshal(text, &top); err != nil {
		return s, croft.Errorf(croft.Invalid, "%s: %w", name, err)
	}
	if s.Cluster = top.ID; !idForm.MatchString(s.Cluster) {
		return s, croft.Errorf(croft.Invalid, "%s: id: want the 32 hexadecimal digits that grid init made, in quotes",
			name)
	}
	seconds := map[string]*time.Duration{"every": &s.Rules.Every, "grace": &s.Rules.Grace, "term": &s.Term}
	w := &top.Watch
	if !w.IsZero() && w.Kind != yaml.MappingNode {
		return s, croft.Errorf(croft.Invalid, "%s:%d: watch: want a map such as {every: 10, grace: 60}", name, w.Line)
	}
	for i := 0; i+1 < len(w.Content); i += 2 {
		key, value := w.Content[i], w.Content[i+1]
		into := seconds[key.Value]
		switch {
		case into != nil:
			n, err := strconv.ParseUint(value.Value, 10, 16)
			if err != nil || value.Kind != yaml.ScalarNode {
				return s, croft.Errorf(croft.Invalid, "%s:%d: watch.%s: want a whole number of seconds, not %q", name,
					value.Line,
					key.Value, value.Value)
			}
			*into = time.Duration(n) * time.Second
		case key.Value == "fence" && nodeForm.MatchString(value.Value):
			s.Fence = value.Value
		case key.Value == "fence":
			return s, croft.Errorf(croft.Invalid, "%s:%d: watch.fence: %q is no name of a hard point", name, value.Line,
				value.Value)
		default:
			return s, croft.Errorf(croft.Invalid, "%s:%d: watch.%s is unknown: known are every, grace, term and fence",
				name,
				key.Line, key.Value)
		}
	}
	if err := s.Rules.check(s.Term); err != nil {
		return s, croft.Errorf(croft.Invalid, "%s:%d: %w", name, max(w.Line, 1), err)
	}
	return s, nil
}

package schedule

import (
	"context"
	"fmt"
	"strings"
	"time"

	"croft"
	"croft/internal/nearest"
)

// Key is a named public SSH key of a project.
type Key struct {
	Project croft.Project `json:"project"` // whose instances may name it
	Name    string        `json:"name"`    // unique in the project
	Line    string        `json:"line"`    // in the form of authorized_keys
	Added   time.Time     `json:"added"`   // when it was added
}

// FindKeys returns the lines of the named keys, in the order of the names. NotFound: a name has no key; the error
// suggests the nearest name.
func FindKeys(ctx context.Context, list func(context.Context, croft.Project) ([]Key, error), project croft.Project,
	names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	all, err := list(ctx, project)
	if err != nil {
		return nil, fmt.Errorf("find the key %s: %w", strings.Join(names, ", "), err)
	}
	lines := map[string]string{}
	var known []string
	for _, k := range all {
		lines[k.Name] = k.Line
		known = append(known, k.Name)
	}
	var found []string
	for _, name := range names {
		line, ok := lines[name]
		if !ok {
			return nil,
				croft.Errorf(croft.NotFound, "there is no key %q, neither a file nor one that `croft key list` shows%s",
					name, nearest.Hint(name, known))
		}
		found = append(found, line)
	}
	return found, nil
}

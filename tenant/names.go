package tenant

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/internal/nearest"
)

// mostSuggested is the maximum number of projects that a hint names.
const mostSuggested = 3

// Hint returns the end of an error about a project that does not exist: it names the known projects that end with name,
// such as lab.ci for ci, or else the most similar one. It is empty if there is no such project, or too many projects
// end with name.
func Hint(name croft.Project, known []croft.Project) string {
	hint, _ := hint(name, known)
	return hint
}

// hint returns the same as Hint. short: a project ends with name.
func hint(name croft.Project, known []croft.Project) (hint string, short bool) {
	var ending, all []string
	for _, p := range known {
		all = append(all, string(p))
		if strings.HasSuffix(string(p), "."+string(name)) {
			ending = append(ending, strconv.Quote(string(p)))
		}
	}
	switch {
	case len(ending) == 0:
		return nearest.Hint(string(name), all), false
	case len(ending) > mostSuggested:
		return "", false
	}
	slices.Sort(ending)
	return fmt.Sprintf("; did you mean %s?", strings.Join(ending, " or ")), true
}

// unknown is the error about a project that does not exist.
type unknown struct {
	name  croft.Project
	hint  string
	short bool // the name is the last part of an existing project name
}

func (u *unknown) Error() string {
	return fmt.Sprintf("there is no project %.80q%s", string(u.name), u.hint)
}

// NotFound returns the error about a project that does not exist, with a hint.
func NotFound(name croft.Project, known []croft.Project) error {
	hint, short := hint(name, known)
	return croft.Errorf(croft.NotFound, "%w", &unknown{name, hint, short})
}

// Short reports whether err comes from NotFound and suggests projects that end with the unknown name.
func Short(err error) bool {
	u, is := errors.AsType[*unknown](err)
	return is && u.short
}

// Hinted reports whether err comes from NotFound and suggests a project.
func Hinted(err error) bool { return HintOf(err) != "" }

// HintOf returns the end of an error from NotFound that suggests a project; empty: it suggests none.
func HintOf(err error) string {
	if u, is := errors.AsType[*unknown](err); is {
		return u.hint
	}
	return ""
}

package vcs

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"croft"
	"croft/grid/hardpoint"
)

// Uncommitted lists paths of the cluster's directory that are not in the revision as they are, sorted: changed, added,
// removed and untracked ones, and ignored ones in a directory of state. Conflict: the repository is not fit to tell,
// for
// the reasons of Examine.
func (r *Repository) Uncommitted(ctx context.Context) ([]string, error) {
	wrong, err := r.Examine(ctx)
	if err != nil {
		return nil, err
	}
	if len(wrong) > 0 {
		return nil, croft.Errorf(croft.Conflict, "%s: %s", r.dir, strings.Join(wrong, "; "))
	}
	result, err := r.ask(ctx, "uncommitted", nil)
	if err != nil {
		return nil, err
	}
	list := r.paths(result.Text)
	var state []string
	for _, dir := range StateDirs {
		if _, err := os.Lstat(filepath.Join(r.dir, dir)); err == nil {
			state = append(state, filepath.Join(r.dir, dir))
		}
	}
	if len(state) > 0 && r.point.Has("ignored") {
		if result, err = r.ask(ctx, "ignored", hardpoint.Values{"state": state}); err != nil {
			return nil, err
		}
		list = append(list, r.paths(result.Text)...)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// paths reads what a system prints of files: names, each after a status. With zero bytes between them, the status is
// letters and a space; without, words in capitals and spaces.
func (r *Repository) paths(text string) []string {
	separator := "\n"
	if strings.Contains(text, "\x00") {
		separator = "\x00"
	}
	var list []string
	for entry := range strings.SplitSeq(text, separator) {
		if entry == "" {
			continue
		}
		if name := r.path(entry); name != "" {
			list = append(list, name)
		}
	}
	return list
}

func (r *Repository) path(entry string) string {
	switch r.Name() {
	case "git":
		return entry[min(3, len(entry)):] // XY and a space
	case "hg":
		return entry[min(2, len(entry)):]
	}
	status, name, found := strings.Cut(entry, " ")
	if found && status == strings.ToUpper(status) && strings.Trim(status, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "" {
		return strings.TrimLeft(name, " ")
	}
	return entry
}

// Examine lists what is wrong with the repository, beyond files that are not committed: each a sentence that says what
// to do. Links that are none, a merge under way, submodules, and names that differ by case alone.
func (r *Repository) Examine(ctx context.Context) ([]string, error) {
	list, err := r.sentences(ctx, "examine")
	if err != nil {
		return nil, err
	}
	if r.point.Has("tracked") {
		result, err := r.ask(ctx, "tracked", nil)
		if err != nil {
			return nil, err
		}
		list = append(list, twins(strings.FieldsFunc(result.Text, func(c rune) bool { return c == 0 || c == '\n' }))...)
	}
	return list, nil
}

// Identity lists what keeps the caller from committing, such as a name that git does not know; each a sentence that
// says what to do. Only commits need it.
func (r *Repository) Identity(ctx context.Context) ([]string, error) {
	return r.sentences(ctx, "identity")
}

// sentences returns the lines that a verb prints; none where the system does not define it.
func (r *Repository) sentences(ctx context.Context, verb string) (list []string, err error) {
	if !r.point.Has(verb) {
		return nil, nil
	}
	result, err := r.ask(ctx, verb, nil)
	for line := range strings.Lines(result.Text) {
		list = append(list, strings.TrimSpace(line))
	}
	return list, err
}

// twins says which names differ by case alone: a clone to a file system without cases has one of them.
func twins(names []string) []string {
	seen := map[string]string{}
	var list []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		folded := strings.ToLower(name)
		if other, there := seen[folded]; there {
			list = append(list,
				other+" and "+name+" differ by case alone: a clone on another system may have one of them; rename one")
		}
		seen[folded] = cmp.Or(seen[folded], name)
	}
	return list
}

// Clean is nil if the cluster's directory is exactly what its revision says, which it returns. Conflict: it is not, or
// the repository is not fit to tell; the error lists why. NotFound: nothing is committed.
func (r *Repository) Clean(ctx context.Context) (string, error) {
	revision, err := r.Revision(ctx)
	if err != nil {
		return "", err
	}
	dirty, err := r.Uncommitted(ctx)
	if err != nil {
		return "", err
	}
	if n := len(dirty); n > 0 {
		more := ""
		if n > 5 {
			more = " ..."
		}
		return "", croft.Errorf(croft.Conflict,
			"%s: %d files are not in revision %s as they are: %s%s: commit or remove them",
			r.dir, n, revision, strings.Join(dirty[:min(n, 5)], ", "), more)
	}
	return revision, nil
}

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

// Uncommitted returns a sorted list of the paths in the cluster's directory that differ from the checked-out revision:
// changed, added, removed and untracked files, and ignored files in one of StateDirs. Conflict: Examine found a reason
// why this repository cannot be trusted to report its changes; the error contains it.
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

// paths parses a list of files that a version control system printed, each after a status. If zero bytes separate the
// entries, the status is letters and a space; otherwise, words in capitals and spaces.
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
		return entry[min(3, len(entry)):] // two letters of status and a space
	case "hg":
		return entry[min(2, len(entry)):]
	}
	status, name, found := strings.Cut(entry, " ")
	if found && status == strings.ToUpper(status) && strings.Trim(status, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "" {
		return strings.TrimLeft(name, " ")
	}
	return entry
}

// Examine lists the faults of the repository, beyond uncommitted files, as sentences that say what to do: symbolic
// links that were checked out as plain files, an unfinished merge, submodules, and names that differ only by case.
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

// Identity lists the reasons why the caller cannot commit, such as a name that git does not know, as sentences that say
// what to do. Only commits need this.
func (r *Repository) Identity(ctx context.Context) ([]string, error) {
	return r.sentences(ctx, "identity")
}

// sentences returns the lines that a verb prints, or nothing if the hard point does not define the verb.
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

// twins reports the names that differ only by case: on a file system that ignores case, a clone has only one of them.
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

// Clean returns the revision of the cluster's directory if the directory is exactly that revision. Conflict: it is not,
// or the repository has a fault that Examine finds; the error lists the reasons. NotFound: nothing was committed yet.
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

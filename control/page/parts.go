package page

import (
	"slices"

	"croft"
)

// reading is a part of a page that is read separately from the others.
type reading struct {
	name     string
	read     func() error
	required bool // the page is not shown without it
}

// readAll reads the parts of a page at once. It returns which could not be read, and why: the other parts are useful
// without them. Its error is that of a required part, one of the kinds in fatal, or that the session has ended.
func readAll(parts []reading, fatal ...croft.Kind) (missing []string, err error) {
	errs := make([]error, len(parts))
	each(len(parts), func(n int) { errs[n] = parts[n].read() })
	for n, err := range errs {
		switch {
		case err == nil:
		case parts[n].required, ended(err), slices.Contains(fatal, croft.KindOf(err)):
			return nil, err
		default:
			missing = append(missing, parts[n].name+": "+err.Error())
		}
	}
	return missing, nil
}

package revlock

import (
	"strconv"
	"strings"
	"unicode"

	"croft"
	"croft/internal/lazyregexp"
)

// A Phase is the state of the last change of a node.
type Phase string

// The phases. In every phase but Done, the client compares the record with what runs, unit by unit, before it relies on
// the record.
const (
	Never     Phase = ""          // nothing was ever applied, or the state was lost
	Applying  Phase = "applying"  // a change has begun, and its outcome is not known
	Done      Phase = "done"      // all steps of the revision for the node were done
	Returning Phase = "returning" // the node is undoing a change, or was interrupted while it did
	Returned  Phase = "returned"  // the node undid a change that nobody confirmed
)

// A State is a node's record of its last change. A node may lie, so only the form of the fields is checked.
type State struct {
	Revision string `json:"revision,omitempty"` // in the form of VCS; "": none is known
	Previous string `json:"previous,omitempty"`
	Epoch    int64  `json:"epoch"`
	Phase    Phase  `json:"phase,omitempty"`
	Plan     string `json:"plan,omitempty"` // the id of the plan of the last change
	By       string `json:"by,omitempty"`
	// With are the nodes that the change concerns. Until the change is done, a client that changes one of them locks
	// all of them, because the first client may have lost this node and go on with others.
	With    []string `json:"with,omitempty"`
	Boot    string   `json:"boot,omitempty"`     // the boot in which the change began
	BootNow string   `json:"boot_now,omitempty"` // the current boot of the node
}

var revisionForm = lazyregexp.New(`^(git|hg|fossil):[0-9a-f]{40,64}$`)

const (
	maxField = 256
	maxWith  = 48 << 10
	maxEpoch = 1 << 60
)

// parseState parses a node's file rev. Invalid: a field is malformed, or the phase is unknown.
func parseState(text, boot string) (State, error) {
	s := State{BootNow: oneLine(boot)}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		if key == "" {
			continue
		}
		if len(value) > maxField && (key != "with" || len(value) > maxWith) {
			return State{}, croft.Errorf(croft.Invalid, "its file rev has a value of %d bytes for %.20q", len(value),
				key)
		}
		switch key {
		case "revision", "previous":
			if value != "" && !revisionForm.MatchString(value) {
				return State{}, croft.Errorf(croft.Invalid, "its file rev contains %.80q, which is no revision: "+
					"check the node, and remove the file if its revision cannot be found", value)
			}
			if key == "revision" {
				s.Revision = value
			} else {
				s.Previous = value
			}
		case "epoch":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 || n > maxEpoch {
				return State{}, croft.Errorf(croft.Invalid, "its file rev has the epoch %.40q, which is no epoch",
					value)
			}
			s.Epoch = n
		case "phase":
			s.Phase = Phase(value)
		case "plan":
			s.Plan = oneLine(value)
		case "by":
			s.By = oneLine(value)
		case "with":
			for _, name := range strings.Fields(value) {
				s.With = append(s.With, oneLine(name))
			}
		case "boot":
			s.Boot = oneLine(value)
		}
	}
	switch s.Phase {
	case Never, Applying, Done, Returning, Returned:
		return s, nil
	}
	return State{}, croft.Errorf(croft.Invalid, "its file rev has the phase %.40q, which this croft does not know",
		string(s.Phase))
}

// text returns the state in the format of the file rev.
func (s State) text() string {
	var b strings.Builder
	for _, f := range [][2]string{
		{"revision", s.Revision}, {"previous", s.Previous}, {"epoch", strconv.FormatInt(s.Epoch, 10)},
		{"phase", string(s.Phase)}, {"plan", s.Plan}, {"by", s.By}, {"boot", s.BootNow},
	} {
		if f[1] != "" {
			b.WriteString(f[0] + " " + oneLine(f[1]) + "\n")
		}
	}
	if s.Phase != Done && len(s.With) > 0 {
		b.WriteString("with " + strings.Join(s.With, " ") + "\n")
	}
	return b.String()
}

// oneLine makes text to or from a node safe for a terminal: it cuts it to maxField bytes and replaces characters that
// are not printable by blanks.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text[:min(len(text), maxField)])
	return strings.ToValidUTF8(text[:min(len(text), maxField)], "") // it may have been cut within a character
}
